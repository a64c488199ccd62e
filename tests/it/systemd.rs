//! What systemd is told, by a socket of our own, and what it thinks of our units.
#![expect(clippy::disallowed_methods, reason = "a test starts systemd-analyze")]

use std::{
    fs,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::agent::{Machine, PATIENCE};

/// systemd's exposure level, from 0 to 10, that a unit may have at most. It calls up to 2.0 safe.
const EXPOSURE: &str = "20";

/// The service manager's end of the notification socket.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn beside(machine: &Machine) -> Manager {
        let path = machine.path("notify.sock");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Manager { socket, path }
    }

    /// Waits for a message with the line `wanted`, and gives the lines of all messages until then.
    fn told(&self, wanted: &str) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut lines = Vec::new();
        while Instant::now() < deadline {
            let mut bytes = [0; 4096];
            let Ok(length) = self.socket.recv(&mut bytes) else { break };
            lines.extend(String::from_utf8_lossy(&bytes[..length]).lines().map(String::from));
            if lines.iter().any(|line| line == wanted) {
                return lines;
            }
        }
        panic!("{wanted} was not told, but {lines:?}");
    }
}

#[test]
fn systemd_is_told_of_start_reload_life_and_end() {
    let machine = Machine::recorded("mi300x");
    let manager = Manager::beside(&machine);
    let path = manager.path.display().to_string();
    let agent = machine.start_with(&[("NOTIFY_SOCKET", &path), ("WATCHDOG_USEC", "400000")]);
    manager.told("READY=1");

    // Twice as often as systemd wants to hear it, whatever else goes on.
    let began = Instant::now();
    for _ in 0..5 {
        manager.told("WATCHDOG=1");
    }
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());

    agent.signal(Signal::HUP);
    let lines = manager.told("RELOADING=1");
    assert!(
        lines.iter().any(|line| line.starts_with("MONOTONIC_USEC=")),
        "Type=notify-reload wants it: {lines:?}"
    );
    manager.told("READY=1");

    // A broken file is no reason to stay "reloading": the old configuration is in force.
    machine.configure("nonsense = 1\n");
    agent.signal(Signal::HUP);
    manager.told("RELOADING=1");
    manager.told("READY=1");

    agent.signal(Signal::TERM);
    manager.told("STOPPING=1");
    assert_eq!(agent.end().1, Some(0));
}

#[test]
fn without_a_watchdog_systemd_hears_nothing_of_it() {
    let machine = Machine::empty();
    let manager = Manager::beside(&machine);
    let agent = machine.start_with(&[("NOTIFY_SOCKET", &manager.path.display().to_string())]);
    manager.told("READY=1");
    agent.signal(Signal::TERM);
    let lines = manager.told("STOPPING=1");
    assert!(!lines.iter().any(|line| line.starts_with("WATCHDOG")), "{lines:?}");
}

/// Our units in a folder of their own, starting the binary under test.
fn units() -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/systemd");
    let mut units = Vec::new();
    for entry in fs::read_dir(&source).unwrap() {
        let file = entry.unwrap().path();
        if !file.extension().is_some_and(|kind| kind == "service" || kind == "socket") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let unit = folder.path().join(file.file_name().unwrap());
        fs::write(&unit, text.replace("/usr/bin/fabricpulse", env!("CARGO_BIN_EXE_fabricpulse"))).unwrap();
        units.push(unit);
    }
    let extra = folder.path().join("fabricpulse.service.d");
    fs::create_dir(&extra).unwrap();
    for addition in ["measure.conf", "nvidia.conf"] {
        fs::copy(source.join(addition), extra.join(addition)).unwrap();
    }
    assert!(!units.is_empty(), "{} has no units", source.display());
    units.sort();
    (folder, units)
}

fn analyze(arguments: &[&str], units: &[PathBuf]) -> (bool, String) {
    let output = Command::new("systemd-analyze")
        .args(arguments)
        .args(units)
        .output()
        .expect("systemd-analyze is in Debian's package systemd; tests/run installs it");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.success(), said.into_owned())
}

#[test]
fn systemd_understands_every_line_of_the_units() {
    let (_folder, units) = units();
    let (good, said) = analyze(&["verify", "--man=no"], &units);
    // What the distribution's own units lack is not ours to mend.
    let ours: Vec<_> = said.lines().filter(|line| line.contains("fabricpulse")).collect();
    assert!(good && ours.is_empty(), "{said}");
}

#[test]
fn the_services_are_as_closed_as_systemd_can_tell() {
    let (folder, units) = units();
    // The additions open devices to those who want measurements, or NVML; the unit itself does not.
    fs::remove_dir_all(folder.path().join("fabricpulse.service.d")).unwrap();
    for unit in units.into_iter().filter(|unit| unit.extension().is_some_and(|kind| kind == "service")) {
        let (good, said) = analyze(
            &["security", "--offline=true", "--no-pager", &format!("--threshold={EXPOSURE}")],
            std::slice::from_ref(&unit),
        );
        assert!(good, "{}: {said}", unit.display());
    }
}
