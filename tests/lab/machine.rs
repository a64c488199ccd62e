//! A virtual machine: boots, runs commands in the guest, and has its hardware changed from outside.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::registers::{Registers, SIZE};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab");

/// QEMU opens its sockets at once, the guest answers after 5 s; the rest is for a busy host.
const BOOT: Duration = Duration::from_secs(120);
/// The longest that a command in the guest may take.
const COMMAND: Duration = Duration::from_secs(60);
/// The longest that an answer over HTTP may take.
const ANSWER: Duration = Duration::from_secs(30);

/// A running machine. It ends with this value, and with the thread that booted it.
#[derive(Debug)]
pub(crate) struct Machine {
    qemu: Child,
    folder: TempDir,
    requests: u32,
    commands: BufReader<UnixStream>,
    monitor: BufReader<UnixStream>,
    port: u16,
    registers: Option<Registers>,
}

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: String,
}

#[expect(clippy::disallowed_methods, reason = "the lab runs on the host, beside the agent, not in it")]
fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

impl Machine {
    /// Builds what is to be booted, if need be, and boots it.
    ///
    /// # Panics
    ///
    /// Whenever the machine is not to be had. A lab that was left out proves nothing.
    pub(crate) fn boot() -> Machine {
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("lab");
        let status =
            command(format!("{FOLDER}/build.sh")).arg(&built).status().expect("build.sh can be started");
        assert!(status.success(), "tests/lab/build.sh failed, see above");

        let folder = TempDir::new().expect("a temporary folder");
        let place = |name: &str| folder.path().join(name).display().to_string();
        fs::create_dir(place("share")).expect("the share can be made");
        let errors = File::create(place("qemu.err")).expect("a file for QEMU's messages");
        let topology = include_str!("topology").lines().filter(|line| !line.starts_with('#'));
        let qemu = command("setpriv")
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
            // "max" would make kernel and glibc choose instructions that are slow under TCG.
            .args(["-accel", "tcg,thread=multi,tb-size=128", "-cpu", "qemu64", "-machine", "q35"])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-monitor", "none"])
            .args(["-kernel", &built.join("vmlinux").display().to_string()])
            .args(["-initrd", &built.join("initramfs.cpio").display().to_string()])
            .args(["-append", "console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable"])
            .args(["-serial", &format!("file:{}", place("console"))])
            .args(["-serial", &format!("unix:{},server=on,wait=off", place("commands"))])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", place("monitor"))])
            .args(["-virtfs", &format!("local,path={},mount_tag=lab,security_model=none", place("share"))])
            .args(topology.flat_map(str::split_whitespace))
            .stdin(Stdio::null())
            .stdout(errors.try_clone().expect("a second handle"))
            .stderr(errors)
            .spawn()
            .expect("setpriv can be started; install the packages of tests/lab/packages");

        let started = Instant::now();
        let connect = |name: &str| {
            loop {
                if let Ok(socket) = UnixStream::connect(place(name)) {
                    socket.set_read_timeout(Some(BOOT)).expect("a time-out");
                    return BufReader::new(socket);
                }
                let said = || fs::read_to_string(place("qemu.err")).unwrap_or_default();
                assert!(started.elapsed() < BOOT, "no qemu-system-x86_64, or it did not start: {}", said());
                let dead = said().contains("failed to execute") || said().contains("qemu-system-x86_64: -");
                assert!(!dead, "QEMU did not start: {}", said());
                thread::sleep(Duration::from_millis(20));
            }
        };
        let (commands, monitor) = (connect("commands"), connect("monitor"));
        let mut machine = Machine { qemu, requests: 0, commands, monitor, port: 0, registers: None, folder };
        assert_eq!(machine.answer(), (0, 0), "{}", machine.last_words());
        machine.monitor.read_line(&mut String::new()).expect("QEMU greets");
        machine.execute(&json!({"execute": "qmp_capabilities"}));
        machine.port = forwarded_port(&machine.monitor("info usernet"));
        machine
    }

    /// A path in the folder that the guest sees as /lab.
    pub(crate) fn shared(&self, name: &str) -> PathBuf {
        self.folder.path().join("share").join(name)
    }

    /// Runs a script in the guest: its exit status and what it printed.
    pub(crate) fn status(&mut self, script: &str) -> (i32, String) {
        self.requests += 1;
        let number = self.requests;
        fs::write(self.shared(&format!("{number}.sh")), script).expect("the share can be written");
        let request = format!("{number} {}\n", COMMAND.as_secs());
        self.commands.get_mut().write_all(request.as_bytes()).expect("the guest listens");
        let (answered, status) = self.answer();
        assert_eq!(answered, number, "the guest answered another request");
        let printed = fs::read(self.shared(&format!("{number}.out"))).expect("the guest wrote its answer");
        (status, String::from_utf8_lossy(&printed).into_owned())
    }

    /// Runs a script in the guest that must succeed, and says what it printed.
    pub(crate) fn sh(&mut self, script: &str) -> String {
        let (status, printed) = self.status(script);
        assert_eq!(status, 0, "in the guest:\n{script}\nprinted:\n{printed}");
        printed
    }

    /// One command of QEMU's monitor.
    pub(crate) fn monitor(&mut self, line: &str) -> String {
        let request = json!({"execute": "human-monitor-command", "arguments": {"command-line": line}});
        self.execute(&request).as_str().unwrap_or_default().trim().to_owned()
    }

    /// GET from the guest's port 10950.
    pub(crate) fn get(&self, path: &str) -> std::io::Result<Reply> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(ANSWER))?;
        // 1.0: an answer without chunks, which ends with the connection.
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: lab\r\n\r\n").as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let invalid = || std::io::Error::new(std::io::ErrorKind::InvalidData, format!("not HTTP: {text:?}"));
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(invalid)?;
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(invalid)?;
        Ok(Reply { status, body: body.to_owned() })
    }

    /// Looks for the registers of all functions that the guest has now. To be called again whenever
    /// one was plugged: a place in QEMU's memory is good for as long as the part is.
    pub(crate) fn find_registers(&mut self) {
        let sizes = self.sh("cd /sys/bus/pci/devices; for f in *; do cat $f/config >/lab/$f; done; ls");
        let guest: BTreeMap<String, Vec<u8>> = sizes
            .lines()
            .map(|pci| (pci.to_owned(), fs::read(self.shared(pci)).expect("config space was copied")))
            .filter(|(_, config)| config.len() == SIZE)
            .collect();
        self.registers = Some(Registers::find(self.qemu.id(), &guest).expect("QEMU's memory can be read"));
    }

    /// The registers that [`Machine::find_registers`] found.
    pub(crate) fn registers(&self) -> &Registers {
        self.registers.as_ref().expect("find_registers was called")
    }

    fn answer(&mut self) -> (u32, i32) {
        let mut line = String::new();
        let read = self.commands.read_line(&mut line);
        let parts = line.trim().split_once(' ').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        parts.unwrap_or_else(|| panic!("the guest answered {line:?} ({read:?}); {}", self.last_words()))
    }

    fn execute(&mut self, request: &Value) -> Value {
        self.monitor.get_mut().write_all(format!("{request}\n").as_bytes()).expect("QEMU listens");
        loop {
            let mut line = String::new();
            self.monitor.read_line(&mut line).expect("QEMU answers");
            let answer: Value = serde_json::from_str(&line).expect("QEMU answers in JSON");
            assert!(answer.get("error").is_none(), "{request} was answered {answer}");
            // Events come in between.
            if let Some(value) = answer.get("return") {
                return value.clone();
            }
        }
    }

    fn last_words(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        format!("QEMU said: {}\nthe guest's console: {}", read("qemu.err"), read("console"))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended already, and there is nothing in it to be saved.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// The port of 127.0.0.1 that `info usernet` names.
fn forwarded_port(table: &str) -> u16 {
    let line = table.lines().find(|line| line.contains("HOST_FORWARD"));
    let port = line.and_then(|line| line.split_whitespace().nth(3)).and_then(|port| port.parse().ok());
    port.unwrap_or_else(|| panic!("QEMU forwards no port:\n{table}"))
}
