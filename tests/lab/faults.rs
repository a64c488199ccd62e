//! Faults while the agent runs: each changes the right series and verdict within one interval, names
//! the right part, and going back clears it.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    agent::{Agent, Scrape},
    machine::Machine,
    parts::{self, Field},
};

const NIC0: &str = "0000:23:00.0";
const GPU0: &str = "0000:24:00.0";
const GPU1: &str = "0000:25:00.0";
const NIC1: &str = "0000:41:00.0";
const ROOT0: &str = "0000:20:00.0";
const UP: &str = "0000:21:00.0";
/// The links of a healthy node, 32 GT/s and 16 lanes, in the machine's larger part.
const DRESSED: [&str; 10] =
    [ROOT0, UP, "0000:22:00.0", "0000:22:01.0", "0000:22:02.0", NIC0, GPU0, GPU1, "0000:40:00.0", NIC1];
/// The NIC that leads to the host keeps its old link.
const NIC2: &str = "0000:01:00.0";

const INTERVAL: Duration = Duration::from_secs(2);
/// What a run may take here beside the interval: an emulated processor starts the worker.
const RUN: Duration = Duration::from_secs(2);
/// An interval of the inventory and its own run, after which the probe runs at once or at its time.
const INVENTORY: Duration = Duration::from_secs(3);
const ERROR_WINDOW: Duration = Duration::from_secs(6);

const CONFIG: &str = r#"
[inventory]
interval = "1s"
nic_drivers = ["e1000e", "virtio-pci"]

[probe.pcie]
interval = "2s"
error_window = "6s"
correctable_errors = 0
"#;

const GEN5: u32 = 5;

/// A series and the value that it must come to have; none is a series that goes.
type Sample = (&'static str, Vec<(&'static str, &'static str)>, Option<f64>);

/// What is done to the machine.
type Act = fn(&mut Machine);

/// How a fault goes away again.
enum Mend {
    Act(Act),
    /// The command that the agent gives.
    AsTold,
    /// It is not held against the part for ever.
    Wait,
}

/// Where the agent says what is wrong.
#[derive(Clone, Copy, Debug)]
enum Blame {
    /// A check, and the part that it names.
    Check(&'static str, &'static str),
    /// The reason itself begins so: a part that is gone can't be checked.
    Reason(&'static str),
}

struct Fault {
    name: &'static str,
    act: Act,
    mend: Mend,
    /// The targets whose verdict changes, and to what. All others stay as they were.
    verdicts: Vec<(&'static str, Verdict)>,
    blames: Blame,
    bad: Sample,
    good: Sample,
    /// How long it may take: an inventory and a run, or a run.
    within: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Pass,
    Degraded,
    Fail,
    Unknown,
}

impl Verdict {
    fn exported(self) -> f64 {
        match self {
            Verdict::Pass => 0.0,
            Verdict::Degraded => 1.0,
            Verdict::Fail => 2.0,
            Verdict::Unknown => 3.0,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Degraded => "degraded",
            Verdict::Fail => "fail",
            Verdict::Unknown => "unknown",
        }
    }
}

fn of(pci: &'static str) -> Vec<(&'static str, &'static str)> {
    vec![("pci", pci)]
}

fn errors(pci: &'static str, severity: &'static str) -> Vec<(&'static str, &'static str)> {
    vec![("pci", pci), ("severity", severity)]
}

fn set(machine: &Machine, pci: &str, field: Field, value: u32) {
    parts::set(machine.registers(), pci, field, value);
}

fn link(machine: &Machine, pci: &str, speed: u32, width: u32) {
    set(machine, pci, Field::Status, parts::link(speed, width));
}

/// Makes a function what it is on a healthy node.
fn dress(machine: &Machine, pci: &str) {
    set(machine, pci, Field::Capability, parts::link(GEN5, 16));
    link(machine, pci, GEN5, 16);
    set(machine, pci, Field::PayloadCapability, 2);
    set(machine, pci, Field::Payload, 2);
    set(machine, pci, Field::ReadRequest, 5);
    parts::open_device_control(machine.registers(), pci);
}

fn rescan(machine: &mut Machine, pci: &str) {
    machine.sh(&format!("echo 1 >/sys/bus/pci/devices/{pci}/remove; echo 1 >/sys/bus/pci/rescan"));
}

fn faults() -> Vec<Fault> {
    const WIDTH: &str = "pcie_link_width_lanes";
    const SPEED: &str = "pcie_link_speed_transfers_per_second";
    const READ: &str = "pcie_max_read_request_bytes";
    const ACS: &str = "pcie_acs_redirect";
    const ERRORS: &str = "pcie_aer_errors_total";
    vec![
        Fault {
            name: "a NIC's link narrowed to x8",
            act: |machine| link(machine, NIC0, GEN5, 8),
            mend: Mend::Act(|machine| link(machine, NIC0, GEN5, 16)),
            verdicts: vec![(NIC0, Verdict::Degraded)],
            blames: Blame::Check("link_width", NIC0),
            bad: (WIDTH, of(NIC0), Some(8.0)),
            good: (WIDTH, of(NIC0), Some(16.0)),
            within: INTERVAL + RUN,
        },
        Fault {
            name: "a NIC's link slowed to 8 GT/s",
            act: |machine| link(machine, NIC0, 3, 16),
            mend: Mend::Act(|machine| link(machine, NIC0, GEN5, 16)),
            verdicts: vec![(NIC0, Verdict::Degraded)],
            blames: Blame::Check("link_speed", NIC0),
            bad: (SPEED, of(NIC0), Some(8e9)),
            good: (SPEED, of(NIC0), Some(32e9)),
            within: INTERVAL + RUN,
        },
        Fault {
            name: "a NIC that answers and shows no lanes",
            act: |machine| link(machine, NIC0, 0, 0),
            mend: Mend::Act(|machine| link(machine, NIC0, GEN5, 16)),
            verdicts: vec![(NIC0, Verdict::Unknown)],
            blames: Blame::Check("link_width", NIC0),
            bad: (WIDTH, of(NIC0), Some(0.0)),
            good: (WIDTH, of(NIC0), Some(16.0)),
            within: INTERVAL + RUN,
        },
        Fault {
            name: "an idle GPU's link slowed to 2.5 GT/s",
            act: |machine| link(machine, GPU0, 1, 16),
            mend: Mend::Act(|machine| link(machine, GPU0, GEN5, 16)),
            verdicts: vec![(GPU0, Verdict::Unknown)],
            blames: Blame::Check("link_speed", GPU0),
            bad: (SPEED, of(GPU0), Some(2.5e9)),
            good: (SPEED, of(GPU0), Some(32e9)),
            within: INTERVAL + RUN,
        },
        Fault {
            name: "the switch's uplink narrowed to x4",
            act: |machine| link(machine, UP, GEN5, 4),
            mend: Mend::Act(|machine| link(machine, UP, GEN5, 16)),
            verdicts: vec![(NIC0, Verdict::Degraded), (GPU0, Verdict::Degraded)],
            blames: Blame::Check("link_width", UP),
            bad: (WIDTH, of(UP), Some(4.0)),
            good: (WIDTH, of(UP), Some(16.0)),
            within: INTERVAL + RUN,
        },
        Fault {
            name: "MaxReadReq lowered by setpci",
            act: |machine| {
                machine.sh("setpci -s 23:00.0 CAP_EXP+8.w=2000:7000");
            },
            mend: Mend::AsTold,
            verdicts: vec![(NIC0, Verdict::Degraded)],
            blames: Blame::Check("max_read_request", NIC0),
            bad: (READ, of(NIC0), Some(512.0)),
            good: (READ, of(NIC0), Some(4096.0)),
            within: INTERVAL + RUN,
        },
        Fault {
            name: "ACS redirection switched on",
            act: |machine| {
                machine.sh("setpci -s 20:00.0 ECAP_ACS+6.w=1d");
            },
            mend: Mend::AsTold,
            verdicts: vec![(NIC0, Verdict::Degraded), (GPU0, Verdict::Degraded)],
            blames: Blame::Check("acs_redirect", ROOT0),
            bad: (ACS, of(ROOT0), Some(1.0)),
            good: (ACS, of(ROOT0), Some(0.0)),
            within: INTERVAL + RUN,
        },
        Fault {
            name: "a correctable error (BadTLP)",
            // u8 bus, device, function, padding; u32 uncorrectable, correctable, header[4], domain
            act: |machine| {
                machine.sh(
                    "z='\\0\\0\\0\\0'; printf '\\x41\\0\\0\\0'\"$z\"'\\x40\\0\\0\\0'\"$z$z$z$z$z\" >/tmp/error\n\
                     dd if=/tmp/error of=/dev/aer_inject bs=64",
                );
            },
            mend: Mend::Wait,
            verdicts: vec![(NIC1, Verdict::Degraded)],
            blames: Blame::Check("aer_errors", NIC1),
            bad: (ERRORS, errors(NIC1, "correctable"), Some(1.0)),
            good: (ERRORS, errors(NIC1, "correctable"), Some(1.0)),
            within: INTERVAL + RUN,
        },
        Fault {
            name: "an uncorrectable error (completion time-out)",
            // Not below the port that aer_inject has its hands on: that one sees no more real errors.
            act: |machine| {
                machine.monitor("pcie_aer_inject_error nic0 COMP_TIME");
                // QEMU clears LnkCap on the way.
                set(machine, NIC0, Field::Capability, parts::link(GEN5, 16));
            },
            mend: Mend::Wait,
            verdicts: vec![(NIC0, Verdict::Degraded)],
            blames: Blame::Check("aer_errors", NIC0),
            bad: (ERRORS, errors(NIC0, "nonfatal"), Some(1.0)),
            good: (ERRORS, errors(NIC0, "nonfatal"), Some(1.0)),
            within: INTERVAL + RUN,
        },
        Fault {
            name: "a NIC unplugged and plugged again",
            act: |machine| {
                machine.sh(&format!(". /lib.sh; echo 0 >$(slot_of {NIC0})/power; wait_for 10 [ ! -e /sys/bus/pci/devices/{NIC0} ]"));
            },
            mend: Mend::Act(|machine| {
                machine.monitor(
                    "device_add virtio-net-pci,netdev=wire0,bus=down0,id=nic0b,mac=52:54:00:00:01:00,aer=on",
                );
                machine.sh(&format!(". /lib.sh; wait_for 10 [ -e /sys/bus/pci/devices/{NIC0}/driver ]"));
                machine.find_registers();
                dress(machine, NIC0);
            }),
            verdicts: vec![(NIC0, Verdict::Fail)],
            blames: Blame::Reason("absent: "),
            bad: (WIDTH, of(NIC0), None),
            good: (WIDTH, of(NIC0), Some(16.0)),
            within: INVENTORY + INTERVAL + RUN,
        },
    ]
}

pub(crate) fn run() {
    let mut machine = Machine::boot();
    machine.sh("modprobe -a e1000e aer_inject");
    machine.find_registers();
    for pci in DRESSED {
        dress(&machine, pci);
    }
    set(&machine, NIC2, Field::ReadRequest, 5);
    parts::disguise(machine.registers(), GPU0, 0x10de, 0x2335, 0x0302);
    rescan(&mut machine, GPU0);
    // Without these a function keeps its errors to itself.
    machine.sh("for f in 23 41; do setpci -s $f:00.0 CAP_EXP+8.w=000f:000f; done");
    let mut agent = Agent::start(machine, CONFIG);

    let healthy = settle(&agent);
    println!("healthy: {healthy:?}; the interval is {INTERVAL:?}");
    println!("{:48} {:>9} {:>9} {:>9}", "fault", "series", "verdict", "cleared");
    for fault in faults() {
        play(&mut agent, &fault, &healthy);
    }
    becomes_a_gpu(&mut agent, &healthy);
}

/// Waits until all of the healthy node's parts pass.
fn settle(agent: &Agent) -> BTreeSet<String> {
    let started = Instant::now();
    loop {
        let verdicts = verdicts(&agent.scrape());
        let all = [NIC0, GPU0, NIC1, NIC2].iter().all(|pci| verdicts.get(*pci) == Some(&0.0));
        if all && verdicts.values().all(|verdict| *verdict == Verdict::Pass.exported()) {
            return verdicts.into_keys().collect();
        }
        assert!(
            started.elapsed() < 5 * INTERVAL + RUN,
            "the healthy node is not healthy: {verdicts:?}\n{:#}\n{}",
            agent.status(),
            agent.log()
        );
        thread::sleep(Duration::from_millis(100));
    }
}

/// The verdicts of the `pcie` probe by target.
fn verdicts(scrape: &Scrape) -> BTreeMap<String, f64> {
    let series = scrape.named("lane_verdict").filter(|series| series.labels["probe"] == "pcie");
    series.map(|series| (series.labels["target"].clone(), series.value)).collect()
}

fn shows(scrape: &Scrape, (name, labels, value): &Sample) -> bool {
    scrape.value(name, labels) == *value
}

fn play(agent: &mut Agent, fault: &Fault, healthy: &BTreeSet<String>) {
    let name = fault.name;
    (fault.act)(&mut agent.machine);
    let started = Instant::now();
    agent.until(fault.within, &format!("{name}: series {:?}", fault.bad), |scrape| shows(scrape, &fault.bad));
    let series = started.elapsed();
    let expected: BTreeMap<String, f64> = healthy
        .iter()
        .map(|pci| {
            let changed = fault.verdicts.iter().find(|(target, _)| target == pci);
            (pci.clone(), changed.map_or(Verdict::Pass, |(_, verdict)| *verdict).exported())
        })
        .collect();
    agent.until(fault.within.saturating_sub(series), &format!("{name}: verdicts {expected:?}"), |scrape| {
        verdicts(scrape) == expected
    });
    let verdict = started.elapsed();

    let status = agent.status();
    let mut told = None;
    for (target, verdict) in &fault.verdicts {
        let lane = lane(&status, target);
        assert_eq!(lane["verdict"], verdict.word(), "{name}: {lane:#}");
        match fault.blames {
            Blame::Check(check, part) => told = Some(blamed(name, lane, check, part, verdict.word())),
            Blame::Reason(reason) => {
                let begins = lane["reason"].as_str().is_some_and(|given| given.starts_with(reason));
                assert!(begins, "{name}: the reason is not {reason:?}: {lane:#}");
            }
        }
    }

    let mut within = fault.within;
    match &fault.mend {
        Mend::Act(act) => act(&mut agent.machine),
        Mend::AsTold => {
            let command = told.unwrap_or_else(|| panic!("{name}: no command mends it"));
            agent.machine.sh(&command);
        }
        Mend::Wait => within += ERROR_WINDOW,
    }
    let cleared = agent.until(within, &format!("{name}: going back"), |scrape| {
        shows(scrape, &fault.good) && verdicts(scrape).values().all(|verdict| *verdict == 0.0)
    });
    let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
    println!("{name:48} {:>9} {:>9} {:>9}", seconds(series), seconds(verdict), seconds(cleared));
}

fn lane<'a>(status: &'a Value, target: &str) -> &'a Value {
    let lanes = status["lanes"].as_array().unwrap_or_else(|| panic!("no lanes in {status:#}"));
    let found = lanes.iter().find(|lane| lane["probe"] == "pcie" && lane["target"] == target);
    found.unwrap_or_else(|| panic!("no lane of {target} in {status:#}"))
}

/// The command of the finding that gives a lane its verdict. There is no other with this verdict
/// about another part.
fn blamed(name: &str, lane: &Value, check: &str, part: &str, verdict: &str) -> String {
    let findings = lane["findings"].as_array().map_or(&[][..], Vec::as_slice);
    let worst: Vec<_> = findings.iter().filter(|finding| finding["verdict"] == verdict).collect();
    assert!(worst.iter().all(|finding| finding["part"] == part), "{name}: others are blamed: {lane:#}");
    let finding = worst.iter().find(|finding| finding["check"] == check);
    let command = finding.and_then(|finding| finding["command"].as_str());
    command.unwrap_or_else(|| panic!("{name}: {check} does not blame {part}: {lane:#}")).to_owned()
}

/// A function that takes on a GPU's ids is a new part with a verdict; one that has them no more is a
/// GPU that is gone until the operator accepts that.
fn becomes_a_gpu(agent: &mut Agent, healthy: &BTreeSet<String>) {
    let within = INVENTORY + INTERVAL + RUN;
    let is_mi300x = |scrape: &Scrape| {
        scrape.value("pcie_function_info", &[("pci", GPU1), ("vendor", "1002"), ("device", "74a1")]).is_some()
    };
    parts::disguise(agent.machine.registers(), GPU1, 0x1002, 0x74a1, 0x1200);
    rescan(&mut agent.machine, GPU1);
    let appeared = agent.until(within, "a new GPU", |scrape| {
        is_mi300x(scrape) && verdicts(scrape).get(GPU1) == Some(&Verdict::Pass.exported())
    });
    let parts: BTreeSet<String> = verdicts(&agent.scrape()).into_keys().collect();
    assert_eq!(parts.difference(healthy).collect::<Vec<_>>(), [GPU1]);

    parts::disguise(agent.machine.registers(), GPU1, 0x1b36, 0x0010, 0x0108);
    rescan(&mut agent.machine, GPU1);
    let gone = agent.until(within, "a GPU that is gone", |scrape| {
        !is_mi300x(scrape) && verdicts(scrape).get(GPU1) == Some(&Verdict::Fail.exported())
    });
    agent.machine.sh("/tmp/fabricpulse --config.file /tmp/config.toml accept");
    let accepted = agent.until(within, "a loss that is accepted", |scrape| {
        verdicts(scrape).into_keys().collect::<BTreeSet<_>>() == *healthy
    });
    println!("a device given a GPU's ids: seen {appeared:.2?}, missed {gone:.2?}, accepted {accepted:.2?}");
}
