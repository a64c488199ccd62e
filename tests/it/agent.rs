//! The agent under test: started on a recorded machine, asked over HTTP, gone at the end.
#![expect(clippy::disallowed_methods, reason = "a test starts the agent itself")]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::tree;

/// How long anything may take before the test fails: generous, since the machine may be loaded.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A folder with a recorded machine and a configuration that points at it.
pub(crate) struct Machine {
    folder: tempfile::TempDir,
}

/// A running agent. Killed when dropped.
pub(crate) struct Agent {
    child: Child,
    pub(crate) address: String,
    lines: mpsc::Receiver<String>,
}

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Machine {
    /// A machine with nothing in its `/sys` and `/proc`.
    pub(crate) fn empty() -> Machine {
        Machine::of("=== sys/\n=== proc/\n=== etc/\n")
    }

    /// A machine from a text archive.
    pub(crate) fn of(archive: &str) -> Machine {
        let machine = Machine { folder: tempfile::tempdir().unwrap() };
        tree::unpack(archive, &machine.path("root"));
        machine.configure("");
        machine
    }

    /// A machine from `tests/fixtures`.
    pub(crate) fn recorded(name: &str) -> Machine {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/{name}.tree"));
        Machine::of(&fs::read_to_string(file).unwrap())
    }

    /// Writes the configuration: what every test needs, and `more`.
    pub(crate) fn configure(&self, more: &str) {
        self.configure_as("node-a", more);
    }

    /// The same, for a node of another name.
    pub(crate) fn configure_as(&self, node: &str, more: &str) {
        let (root, folder) = (self.path("root"), self.folder.path());
        let (root, folder) = (root.display(), folder.display());
        let text = format!(
            "node_name = \"{node}\"\nroots = {{ sysfs = \"{root}/sys\", proc = \"{root}/proc\", etc = \"{root}/etc\" }}\n\
             state = {{ directory = \"{folder}/state\" }}\n\
             web = {{ listen_address = [\"127.0.0.1:0\"], socket = \"{folder}/agent.sock\" }}\n{more}"
        );
        fs::write(self.config(), text).unwrap();
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path("config.toml")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file of the recorded machine.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path("root").join(name)
    }

    /// The command line with this machine's configuration.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fabricpulse"));
        command.arg("--config.file").arg(self.config()).args(arguments);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FABRICPULSE")) {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// Starts the agent and waits until it is ready.
    pub(crate) fn start(&self) -> Agent {
        self.start_with(&[])
    }

    /// Starts the agent with variables set, and waits until it is ready.
    pub(crate) fn start_with(&self, variables: &[(&str, &str)]) -> Agent {
        let agent = self.begin(variables);
        agent.wait("ready", |agent| (agent.get("/-/ready").status == 200).then_some(()));
        agent
    }

    /// Starts an agent that wants a password over TCP, and waits until it is ready.
    pub(crate) fn start_closed(&self) -> Agent {
        let agent = self.begin(&[]);
        agent.log_line("listening for the command line");
        agent.wait("ready", |_| (self.ask("GET", "/-/ready", "").status == 200).then_some(()));
        agent
    }

    /// Starts the agent and reads from its log where it listens.
    fn begin(&self, variables: &[(&str, &str)]) -> Agent {
        let mut command = self.command(&[]);
        command.envs(variables.iter().copied());
        let mut child = command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (send, lines) = mpsc::channel();
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        let mut agent = Agent { child, address: String::new(), lines };
        agent.address = agent
            .log_line("listening addr=")
            .split_once("addr=")
            .unwrap()
            .1
            .split(' ')
            .next()
            .unwrap()
            .into();
        agent
    }

    /// Asks over the Unix socket.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        exchange(UnixStream::connect(self.path("agent.sock")).unwrap(), method, path, &[], body)
    }
}

impl Agent {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.get_with(path, &[])
    }

    pub(crate) fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        exchange(TcpStream::connect(&self.address).unwrap(), "GET", path, headers, "")
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        exchange(TcpStream::connect(&self.address).unwrap(), "POST", path, &[], body)
    }

    /// The metrics, in the text format.
    pub(crate) fn metrics(&self) -> String {
        self.get_with("/metrics", &[("Accept", "text/plain;version=0.0.4")]).body
    }

    /// Waits until every lane with something to measure has completed a run.
    pub(crate) fn settled(&self, lanes: usize) -> String {
        self.wait("measured", |agent| {
            let metrics = agent.metrics();
            let measured =
                metrics.lines().filter(|line| line.starts_with("fabricpulse_lane_last_completed_")).count();
            (measured >= lanes).then_some(metrics)
        })
    }

    /// Waits until `what` holds.
    pub(crate) fn wait<T>(&self, what: &str, mut holds: impl FnMut(&Agent) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(value) = holds(self) {
                return value;
            }
            assert!(Instant::now() < deadline, "not {what} within {PATIENCE:?}; log: {:#?}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for a log line that contains `text`.
    pub(crate) fn log_line(&self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if line.contains(text) {
                return line;
            }
            seen.push(line);
        }
        panic!("no log line with {text:?} within {PATIENCE:?}: {seen:#?}");
    }

    fn log(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the end, and says how long that took and with what exit code.
    pub(crate) fn end(mut self) -> (Duration, Option<i32>) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (began.elapsed(), status.code());
            }
            assert!(began.elapsed() < PATIENCE, "the agent does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Agent {
    /// Ends it as systemd would, so that its own children go with it.
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::TERM,
        );
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Gets a path of an agent from another thread.
pub(crate) fn get(address: &str, path: &str) -> Answer {
    exchange(TcpStream::connect(address).unwrap(), "GET", path, &[], "")
}

fn exchange(
    mut stream: impl std::io::Read + std::io::Write,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nHost: node-a\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_string(), body: body.to_string() }
}

/// The value of one series.
pub(crate) fn value(metrics: &str, series: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}
