//! The agent in the guest, and what it says over HTTP and on its command line.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::machine::Machine;

const AGENT: &str = env!("CARGO_BIN_EXE_fabricpulse");

/// An emulated processor needs a few seconds for what takes a real one a fraction of one.
const START: Duration = Duration::from_secs(30);

/// What was not seen this long after it should have been will not be seen.
const NEVER: Duration = Duration::from_secs(20);

/// A machine with the agent in it.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) machine: Machine,
}

/// One scrape.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scrape(pub(crate) Vec<Series>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    /// Without the prefix.
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

impl Agent {
    /// Puts the agent into the guest and waits until it serves.
    pub(crate) fn start(mut machine: Machine, config: &str) -> Agent {
        stripped(&machine);
        fs::write(machine.shared("config.toml"), config).expect("the share can be written");
        machine.sh(
            ". /lib.sh; modprobe e1000e; nic2=$(netdev_of 0000:01:00.0)\n\
             ip addr add 10.0.2.15/24 dev $nic2; ip link set $nic2 up\n\
             cp /lab/fabricpulse /lab/config.toml /tmp/\n\
             /tmp/fabricpulse --config.file /tmp/config.toml --config.check\n\
             cd /tmp\n\
             /tmp/fabricpulse --config.file /tmp/config.toml --web.listen-address 0.0.0.0:10950 >/lab/agent.log 2>&1 &",
        );
        let agent = Agent { machine };
        let started = Instant::now();
        while !agent.machine.get("/-/ready").is_ok_and(|reply| reply.status == 200) {
            assert!(started.elapsed() < START, "the agent did not become ready:\n{}", agent.log());
            thread::sleep(Duration::from_millis(50));
        }
        println!("the agent is ready after {:.1?}", started.elapsed());
        agent
    }

    /// What the agent has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.machine.shared("agent.log")).unwrap_or_default()
    }

    /// GET of a path that must answer 200.
    pub(crate) fn get(&self, path: &str) -> String {
        let reply = self.machine.get(path).unwrap_or_else(|error| panic!("{path}: {error}\n{}", self.log()));
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
        reply.body
    }

    pub(crate) fn scrape(&self) -> Scrape {
        Scrape::read(&self.get("/metrics"))
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&self.get("/api/v1/status")).expect("the status is JSON")
    }

    /// Scrapes until `seen`; how long it took.
    pub(crate) fn until(&self, within: Duration, what: &str, seen: impl Fn(&Scrape) -> bool) -> Duration {
        let started = Instant::now();
        loop {
            let scrape = self.scrape();
            let took = started.elapsed();
            if seen(&scrape) {
                assert!(took <= within, "{what}: seen after {took:.1?}, not within {within:.1?}");
                return took;
            }
            // Waiting longer tells late from never.
            assert!(took < within + NEVER, "{what}: not seen at all; {:#}\n{}", self.status(), self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// What `fabricpulse list --json` prints in the guest.
    pub(crate) fn list(&mut self) -> Value {
        let printed = self.machine.sh("/tmp/fabricpulse --config.file /tmp/config.toml list --json 2>&1");
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("list --json: {error}: {printed}"))
    }
}

/// Puts the program into the share, and says its name there. A debug build is too large to be worth
/// a way over 9p.
pub(crate) fn stripped(machine: &Machine) -> &'static str {
    let to = machine.shared("fabricpulse").display().to_string();
    let stripped = command("strip").args(["-o", &to, AGENT]).status();
    assert!(stripped.is_ok_and(|status| status.success()), "strip failed; binutils is in tests/lab/packages");
    "fabricpulse"
}

/// What `fabricpulse read pcie` makes of a dump, on the host: it looks at nothing but its arguments.
pub(crate) fn read_pcie(dump: &std::path::Path) -> Value {
    let output = command(AGENT)
        .args(["read", "pcie"])
        .arg(dump)
        .stdin(Stdio::null())
        .output()
        .expect("the agent can be started");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "read pcie: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("read pcie: {error}: {printed}"))
}

#[expect(clippy::disallowed_methods, reason = "the lab runs on the host, beside the agent, not in it")]
fn command(program: &str) -> Command {
    Command::new(program)
}

impl Scrape {
    /// Reads the text format, 0.0.4 and OpenMetrics alike.
    pub(crate) fn read(text: &str) -> Scrape {
        Scrape(text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(series).collect())
    }

    /// The series of one metric.
    pub(crate) fn named(&self, name: &str) -> impl Iterator<Item = &Series> {
        self.0.iter().filter(move |series| series.name == name)
    }

    /// The value of the only series that has these labels.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |series: &&Series| {
            labels.iter().all(|(key, value)| series.labels.get(*key).is_some_and(|is| is == value))
        };
        self.named(name).find(has).map(|series| series.value)
    }
}

fn series(line: &str) -> Series {
    let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}")));
    let mut labels = BTreeMap::new();
    let mut rest = rest;
    if let Some(mut inner) = rest.strip_prefix('{') {
        while let Some((key, value)) = inner.split_once("=\"") {
            let (value, after) = quoted(value);
            labels.insert(key.trim_start_matches(',').to_owned(), value);
            inner = after;
        }
        rest = inner.trim_start_matches(['}', ',']);
    }
    let value = rest.split_whitespace().next().and_then(|value| value.parse().ok());
    Series {
        name: name.trim_start_matches("fabricpulse_").to_owned(),
        labels,
        value: value.unwrap_or_else(|| panic!("no number: {line}")),
    }
}

/// A label's value and what is behind its closing quote.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return (value, &text[index + 1..]),
            '\\' => value
                .extend(characters.next().map(|(_, escaped)| if escaped == 'n' { '\n' } else { escaped })),
            plain => value.push(plain),
        }
    }
    panic!("a label's value has no end: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exposition() {
        let scrape = Scrape::read(
            "# HELP fabricpulse_a A.\n\
             fabricpulse_a{pci=\"0000:23:00.0\",name=\"a \\\"b\\\", {c}\"} 2.5e9\n\
             process_open_fds 7 1700000000\n\
             # EOF\n",
        );
        assert_eq!(scrape.value("a", &[("pci", "0000:23:00.0"), ("name", "a \"b\", {c}")]), Some(2.5e9));
        assert_eq!(scrape.value("a", &[("pci", "0000:24:00.0")]), None);
        assert_eq!(scrape.value("process_open_fds", &[]), Some(7.0));
        assert_eq!(scrape.0.len(), 2);
    }
}
