//! The end: prompt when idle, within the grace period when busy, and with nothing left behind.

use std::{fs, os::unix::fs::PermissionsExt as _, time::Duration};

use rustix::process::Signal;

use crate::agent::{Agent, Machine};

/// The children of a process, by `/proc`.
fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

/// A machine with an operator's check that ignores TERM and has a child of its own.
fn stubborn() -> (Machine, Agent) {
    let machine = Machine::empty();
    let script = machine.path("stubborn");
    fs::write(&script, "#!/bin/sh\ntrap '' TERM\nsleep 600 &\nwhile :; do sleep 1; done\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    machine.configure(&format!(
        "[[probe.exec.check]]\nname = \"stubborn\"\nargv = [\"{}\"]\ninterval = \"1s\"\ntimeout = \"60s\"\n",
        script.display()
    ));
    let agent = machine.start();
    (machine, agent)
}

#[test]
fn an_idle_agent_ends_within_a_second() {
    let machine = Machine::recorded("mi300x");
    let agent = machine.start();
    agent.settled(33);
    agent.signal(Signal::TERM);
    let (took, code) = agent.end();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(!machine.path("agent.sock").exists(), "the socket is left behind");
}

#[test]
fn a_run_under_way_is_ended_within_the_grace_and_leaves_no_process() {
    let (_machine, agent) = stubborn();
    // Our own workers come and go beside it, and have no children.
    let [child, grandchild] = agent.wait("running", |agent| {
        children(agent.pid()).into_iter().find_map(|pid| Some([pid, *children(pid).first()?]))
    });
    agent.signal(Signal::TERM);
    let (took, code) = agent.end();
    assert_eq!(code, Some(0));
    assert!(
        (Duration::from_secs(2)..Duration::from_secs(6)).contains(&took),
        "TERM, 2 s of grace, KILL: {took:?}"
    );
    for pid in [child, grandchild] {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{pid} is left behind: {stat}");
    }
}

#[test]
fn a_run_that_was_cut_short_says_nothing_of_the_hardware() {
    let (machine, agent) = stubborn();
    agent.wait("running", |agent| children(agent.pid()).first().copied());
    agent.signal(Signal::TERM);
    agent.end();
    let agent = machine.start();
    let status = agent.get("/api/v1/status").body;
    assert!(!status.contains("\"fail\""), "{status}");
}
