//! Broken files, gone parts, restarts: what is odd takes itself out and nothing else.

use std::fs;

use rustix::process::Signal;

use crate::agent::{Agent, Machine, value};

fn verdict(agent: &Agent, probe: &str, target: &str) -> Option<f64> {
    value(&agent.metrics(), &format!("fabricpulse_lane_verdict{{probe=\"{probe}\",target=\"{target}\"}}"))
}

/// The first RDMA device of the recorded node, and the first GPU.
fn names(machine: &Machine) -> (String, String) {
    let list: serde_json::Value = serde_json::from_slice(&machine.run(&["list", "--json"]).stdout).unwrap();
    let name = |value: &serde_json::Value| value.as_str().unwrap().to_string();
    (name(&list["inventory"]["rdma"][0]["name"]), name(&list["inventory"]["gpus"][0]["function"]["pci"]))
}

const QUICK: &str = "inventory = { interval = \"1s\" }\nprobe = { pcie = { interval = \"1s\" }, nic = { interval = \"1s\" }, gpu = { interval = \"1s\" } }\n";

#[test]
fn a_file_that_blocks_takes_out_its_own_port_and_no_other() {
    let machine = Machine::recorded("mi300x");
    let (device, _) = names(&machine);
    let state = machine.file(&format!("sys/class/infiniband/{device}/ports/1/state"));
    let state = state.canonicalize().unwrap();
    fs::remove_file(&state).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &state, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    let agent = machine.start();
    agent.wait("judged", |agent| (verdict(agent, "nic", &device) == Some(3.0)).then_some(()));
    let status = agent.wait("named", |agent| {
        let status = agent.get("/api/v1/status").body;
        status.contains("stuck in the driver").then_some(status)
    });
    assert!(status.contains("ports/1/state"), "the file is not named: {status}");
    let metrics = agent.metrics();
    let up = metrics
        .lines()
        .filter(|line| line.starts_with("fabricpulse_nic_port_up{") && line.ends_with(" 1.0"))
        .count();
    assert_eq!(up, 7, "the other ports are not affected");
}

#[test]
fn a_part_that_is_gone_fails_until_that_is_accepted() {
    let machine = Machine::recorded("mi300x");
    machine.configure(QUICK);
    let (_, gpu) = names(&machine);
    let agent = machine.start();
    agent.settled(33);
    assert_eq!(verdict(&agent, "pcie", &gpu), Some(0.0));
    let link = machine.file(&format!("sys/bus/pci/devices/{gpu}"));
    let device = link.canonicalize().unwrap();
    fs::remove_file(&link).unwrap();
    fs::remove_dir_all(&device).unwrap();
    agent.wait("absent", |agent| (verdict(agent, "pcie", &gpu) == Some(2.0)).then_some(()));
    let metrics = agent.metrics();
    assert_eq!(value(&metrics, &format!("fabricpulse_pcie_link_width_lanes{{pci=\"{gpu}\"}}")), None);
    drop(agent);

    // A restart does not forget what was accepted.
    let agent = machine.start();
    let status = agent.get("/api/v1/status").body;
    assert_eq!(
        status.matches("absent: it was part").count(),
        2,
        "pcie and gpu of that part and no other: {status}"
    );
    agent.wait("absent still", |agent| (verdict(agent, "pcie", &gpu) == Some(2.0)).then_some(()));
    assert!(agent.get("/api/v1/status").body.contains("absent: it was part of this node and is gone"));
    let answer = machine.run(&["accept"]);
    assert!(String::from_utf8_lossy(&answer.stdout).contains("\"forgotten\": 1"), "{answer:?}");
    agent.wait("accepted", |agent| verdict(agent, "pcie", &gpu).is_none().then_some(()));
}

#[test]
fn a_restart_never_turns_a_bad_verdict_good() {
    let machine = Machine::recorded("mi300x");
    let (device, _) = names(&machine);
    let state = machine.file(&format!("sys/class/infiniband/{device}/ports/1/state")).canonicalize().unwrap();
    fs::write(&state, "1: DOWN\n").unwrap();
    let agent = machine.start();
    let bad = agent.wait("bad", |agent| verdict(agent, "nic", &device).filter(|verdict| *verdict == 2.0));
    agent.signal(Signal::TERM);
    agent.end();
    // Torn by a crash in the middle of a write.
    let journal = machine.path("state/journal.jsonl");
    let mut text = fs::read(&journal).unwrap();
    text.extend_from_slice(b"{\"id\":99,\"probe\":\"nic\",\"repor");
    fs::write(&journal, text).unwrap();
    // The first run of the new agent hangs for a while, so what is shown now is what was kept.
    fs::remove_file(&state).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &state, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    let agent = machine.start();
    assert_eq!(verdict(&agent, "nic", &device), Some(bad), "the journal remembers");
}

#[test]
fn an_unreadable_tree_is_unknown_and_never_a_crash() {
    let machine = Machine::of(
        "=== sys/class/infiniband error\n=== sys/bus/pci/devices\nnot a folder\n=== proc/\n=== etc/\n",
    );
    let agent = machine.start();
    let status = agent.get("/api/v1/status").body;
    assert!(!status.contains("\"verdict\":\"fail\""), "{status}");
}
