//! An exporter under measurement: started, watched through `/proc`, ended.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::client::{Client, Manner};

/// How long an exporter may take to start or to end before the measurement is given up.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running exporter. Killed when dropped.
pub(crate) struct Exporter {
    pub(crate) name: &'static str,
    pub(crate) address: String,
    /// From the start of the process until it said that it is ready.
    pub(crate) ready: Duration,
    child: Child,
}

impl Exporter {
    /// Starts it, and waits until `path` is answered with 200.
    pub(crate) fn start(name: &'static str, mut command: Command, address: String, path: &str) -> Exporter {
        let began = Instant::now();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child =
            child.unwrap_or_else(|error| panic!("{name} can't be started: {error}; tests/run installs it"));
        let mut exporter = Exporter { name, address, ready: Duration::ZERO, child };
        while !matches!(exporter.once(path), Ok((200, _))) {
            assert!(began.elapsed() < PATIENCE, "{name} is not ready after {PATIENCE:?}");
            assert!(exporter.child.try_wait().unwrap().is_none(), "{name} ended at once");
            thread::sleep(Duration::from_millis(1));
        }
        exporter.ready = began.elapsed();
        exporter
    }

    /// One request over a connection of its own.
    pub(crate) fn once(&self, path: &str) -> std::io::Result<(u16, usize)> {
        Client::new(&self.address, Manner { keep: false, gzip: false }).get(path)
    }

    /// Bytes of memory that are its own or shared, and present.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Time on a core since the start, with that of children that have ended.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // Behind the name, which may have spaces: state is field 3, utime to cstime are 14 to 17.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11..15].iter().map(|field| field.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }

    /// Asks it to end, and says how long that took.
    pub(crate) fn end(mut self) -> Duration {
        let pid = rustix::process::Pid::from_child(&self.child);
        let began = Instant::now();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        while self.child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "{} does not end", self.name);
            thread::sleep(Duration::from_millis(1));
        }
        began.elapsed()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
