//! Everything that `read pcie`, `list` and `/metrics` say of PCI functions equals what lspci says.
//!
//! Seeded changes of registers, a batch at a time; after each batch lspci, a dump, the list and a
//! fresh run of the probe are held against each other, whole.

use std::{collections::BTreeSet, env, fs, time::Instant};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

use crate::{
    agent::{self, Agent, Scrape, Series},
    lspci::{self, Express, Function, Link},
    machine::Machine,
    parts::{self, Field},
    registers::Registers,
    tally::Tally,
};

const CHANGES: u32 = 1000;
/// So few that there are more than 50 rounds, and what is compared once a round is compared as often.
const BATCH: u32 = 18;
/// The least comparisons of each field.
const LEAST: u32 = 50;

/// Drivers whose functions are NICs here. Of virtio's functions one is the share, and no NIC at
/// all; no operator would name that driver, but the way such a function is told is worth a look.
const NIC_DRIVERS: [&str; 2] = ["e1000e", "virtio-pci"];

/// Runs come on demand only.
const CONFIG: &str = r#"
[inventory]
interval = "1h"
nic_drivers = ["e1000e", "virtio-pci"]

[probe.pcie]
interval = "1h"
"#;

pub(crate) fn run() {
    let seed = env::var("LAB_SEED").map_or(2, |seed| seed.parse().expect("LAB_SEED is a number"));
    println!("seed {seed}; LAB_SEED=N takes another");
    let started = Instant::now();
    let mut machine = Machine::boot();
    machine.find_registers();
    disguise_gpus(&mut machine);
    let mut agent = Agent::start(machine, CONFIG);
    println!("ready to compare after {:.1?}", started.elapsed());

    let mut random = StdRng::seed_from_u64(seed);
    let mut tally = Tally::default();
    let (mut changes, mut rounds) = (0, 0);
    while changes < CHANGES {
        let functions = agent.machine.registers().functions();
        let mut batch = 0;
        while batch < BATCH {
            let pci = &functions[random.random_range(0..functions.len())];
            let field = Field::ALL[random.random_range(0..Field::ALL.len())];
            let registers = agent.machine.registers();
            let value = value(&mut random, registers, pci, field);
            batch += u32::from(parts::set(registers, pci, field, value));
        }
        changes += batch;
        rounds += 1;
        look(&mut agent, &mut tally);
    }
    println!("{changes} changes in {rounds} rounds of {BATCH}, {:.1?} in all", started.elapsed());
    tally.judge(LEAST);
}

/// Gives the two spare functions a GPU's ids.
pub(crate) fn disguise_gpus(machine: &mut Machine) {
    parts::disguise(machine.registers(), "0000:24:00.0", 0x10de, 0x2335, 0x0302);
    parts::disguise(machine.registers(), "0000:25:00.0", 0x1002, 0x74a1, 0x1200);
    machine.sh(
        "for f in 24 25; do echo 1 >/sys/bus/pci/devices/0000:$f:00.0/remove; done; echo 1 >/sys/bus/pci/rescan",
    );
}

/// A legal value of a field.
fn value(random: &mut StdRng, registers: &Registers, pci: &str, field: Field) -> u32 {
    match field {
        Field::Capability | Field::Status => {
            let fastest = if parts::version(registers, pci) >= 2 { 6 } else { 2 };
            let width = [1, 2, 4, 8, 12, 16, 32][random.random_range(0..7)];
            // A link that is down has neither speed nor width; a function always can do something.
            let down = field == Field::Status && random.random_range(0..8) == 0;
            if down { 0 } else { parts::link(random.random_range(1..=fastest), width) }
        }
        Field::PayloadCapability | Field::Payload | Field::ReadRequest => random.random_range(0..6),
        Field::RelaxedOrdering | Field::ExtendedTags | Field::TenBitTags => random.random_range(0..2),
        Field::AccessControl => random.random_range(0..0x80),
    }
}

/// Compares everything once.
fn look(agent: &mut Agent, tally: &mut Tally) {
    agent.machine.sh("lspci -vvvn >/lab/lspci; lspci -xxxx >/lab/dump");
    let text = fs::read_to_string(agent.machine.shared("lspci")).expect("lspci was recorded");
    let truth = lspci::read(&text);
    compare_read(&truth, &agent::read_pcie(&agent.machine.shared("dump")), tally);
    compare_list(&truth, &agent.list(), tally);
    let target = truth.iter().find(|function| is_gpu(function)).expect("a GPU");
    agent.get(&format!("/probe?test=pcie&target={}", target.pci));
    compare_metrics(&truth, &agent.scrape(), tally);
}

fn compare_read(truth: &[Function], product: &Value, tally: &mut Tally) {
    let rows = product["rows"].as_array().expect("rows");
    let addresses: Vec<_> = rows.iter().map(|row| &row["bdf"]).collect();
    tally.compare("read.devices", "the dump", &product["devices"], &json!(truth.len()));
    tally.compare(
        "read.rows",
        "the dump",
        &json!(addresses),
        &json!(truth.iter().map(|f| &f.pci).collect::<Vec<_>>()),
    );
    tally.compare("read.p2p_redirect", "the dump", &product["p2p_redirect"], &json!(redirecting(truth)));
    for (function, row) in truth.iter().zip(rows) {
        tally.compare_objects("read.row", &function.pci, row, &row_of(function), &[]);
    }
}

/// The bridges above GPUs and NICs, by class, that redirect.
fn redirecting(truth: &[Function]) -> Vec<&String> {
    let judged = truth.iter().filter(|function| matches!(function.class >> 8, 0x02 | 0x03 | 0x12));
    let above: BTreeSet<String> = judged.flat_map(|function| lspci::path(function, truth)).collect();
    let bridges = truth.iter().filter(|function| above.contains(&function.pci));
    bridges.filter(|function| function.acs.is_some_and(redirects)).map(|function| &function.pci).collect()
}

/// ReqRedir, CmpltRedir or UpstreamFwd.
fn redirects(acs: u16) -> bool {
    acs & 0b1_1100 != 0
}

fn row_of(function: &Function) -> Value {
    let express = function.express.as_ref();
    let of = |value: fn(&Express) -> Value| express.map_or(Value::Null, value);
    json!({
        "bdf": function.pci,
        "reachable": true,
        "capabilities_readable": true,
        "vendor": format!("{:04x}", function.vendor),
        "device": format!("{:04x}", function.device),
        "pci_class": format!("{:04x}", function.class),
        "kind": of(|express| json!(express.kind)),
        "cap_speed_gt": of(|express| json!(express.can.speed)),
        "cap_width": of(|express| json!(express.can.width)),
        "sta_speed_gt": of(|express| json!(express.is.speed)),
        "sta_width": of(|express| json!(express.is.width)),
        "max_payload_cap": of(|express| json!(express.max_payload_cap)),
        "max_payload": of(|express| json!(express.max_payload)),
        "max_read_req": of(|express| json!(express.max_read_req)),
        "relaxed_ordering": of(|express| json!(express.relaxed_ordering)),
        "acs_ctl": function.acs,
    })
}

fn compare_list(truth: &[Function], product: &Value, tally: &mut Tally) {
    let inventory = &product["inventory"];
    let gpus: Vec<_> = truth.iter().filter(|function| is_gpu(function)).collect();
    let nics: Vec<_> = truth.iter().filter(|function| is_nic(function)).collect();
    let above: BTreeSet<_> =
        gpus.iter().chain(&nics).flat_map(|function| lspci::path(function, truth)).collect();
    let bridges: Vec<_> = truth.iter().filter(|function| above.contains(&function.pci)).collect();
    for (group, truth_of, inner) in [("gpus", gpus, true), ("nics", nics, true), ("bridges", bridges, false)]
    {
        let listed: Vec<&Value> = inventory[group]
            .as_array()
            .unwrap_or_else(|| panic!("no {group} in {inventory}"))
            .iter()
            .map(|part| if inner { &part["function"] } else { part })
            .collect();
        let addresses = |values: Vec<Value>| json!(values);
        tally.compare(
            &format!("list.{group}"),
            "the node",
            &addresses(listed.iter().map(|function| function["pci"].clone()).collect()),
            &addresses(truth_of.iter().map(|function| json!(function.pci)).collect()),
        );
        for (function, listed) in truth_of.iter().zip(listed) {
            let want = json!({
                "pci": function.pci,
                "vendor": function.vendor,
                "device": function.device,
                "class": u32::from(function.class) << 8 | u32::from(function.interface),
                "driver": function.driver,
                "numa": function.numa,
                "path": lspci::path(function, truth),
            });
            tally.compare_objects("list.function", &function.pci, listed, &want, &["link"]);
            compare_list_link(function, &listed["link"], tally);
        }
    }
}

fn compare_list_link(function: &Function, listed: &Value, tally: &mut Tally) {
    match &function.express {
        Some(express) => {
            let want = json!({
                "speed": express.is.speed,
                "width": express.is.width,
                "max_speed": express.can.speed,
                "max_width": express.can.width,
            });
            tally.compare_objects("list.link", &function.pci, listed, &want, &[]);
        }
        None => tally.compare("list.link (none)", &function.pci, listed, &Value::Null),
    }
}

fn compare_metrics(truth: &[Function], scrape: &Scrape, tally: &mut Tally) {
    let targets: Vec<_> = truth.iter().filter(|function| is_gpu(function) || is_nic(function)).collect();
    // A link is told of its lower end: the part itself, and each switch's upstream port.
    let links: Vec<&Function> = truth
        .iter()
        .filter(|function| {
            let switch = function.express.as_ref().is_some_and(|express| express.kind == "Upstream Port");
            switch || targets.iter().any(|target| target.pci == function.pci)
        })
        .collect();
    let link = |value: fn(&Express) -> Option<f64>| -> Vec<(String, Option<f64>)> {
        links
            .iter()
            .map(|function| (function.pci.clone(), function.express.as_ref().and_then(value)))
            .collect()
    };
    let target = |value: fn(&Express) -> f64| -> Vec<(String, Option<f64>)> {
        targets.iter().map(|function| (function.pci.clone(), function.express.as_ref().map(value))).collect()
    };
    let mut family = |name: &str, want: Vec<(String, Option<f64>)>| {
        let listed: BTreeSet<&str> = scrape.named(name).map(pci_of).collect();
        for pci in listed {
            assert!(
                want.iter().any(|(known, _)| known == pci),
                "{name} of {pci}, which nothing here compares"
            );
        }
        for (pci, value) in want {
            tally.compare(
                &format!("metrics.{name}"),
                &pci,
                &json!(scrape.value(name, &[("pci", &pci)])),
                &json!(value),
            );
        }
    };
    family("pcie_link_speed_transfers_per_second", link(|express| express.is.speed.map(|speed| speed * 1e9)));
    family(
        "pcie_link_max_speed_transfers_per_second",
        link(|express| express.can.speed.map(|speed| speed * 1e9)),
    );
    // A link that is down has no lanes, and that was read.
    family("pcie_link_width_lanes", link(|express| Some(f64::from(express.is.width.unwrap_or(0)))));
    family("pcie_link_max_width_lanes", link(|express| express.can.width.map(f64::from)));
    family("pcie_max_read_request_bytes", target(|express| f64::from(express.max_read_req)));
    family("pcie_max_payload_bytes", target(|express| f64::from(express.max_payload)));
    let above: BTreeSet<String> = targets.iter().flat_map(|function| lspci::path(function, truth)).collect();
    family(
        "pcie_acs_redirect",
        truth
            .iter()
            .filter(|function| above.contains(&function.pci))
            .map(|function| {
                (function.pci.clone(), function.acs.map(|acs| f64::from(u8::from(redirects(acs)))))
            })
            .collect(),
    );
    family(
        "pcie_path_bandwidth_bytes_per_second",
        targets.iter().map(|function| (function.pci.clone(), narrowest(function, &links, truth))).collect(),
    );
    for function in &targets {
        let info = scrape.named("pcie_function_info").find(|series| pci_of(series) == function.pci);
        let labels = info.map_or(json!({}), |series| json!(series.labels));
        tally.compare_objects(
            "metrics.pcie_function_info",
            &function.pci,
            &labels,
            &info_of(function),
            &["name"],
        );
    }
}

fn pci_of(series: &Series) -> &str {
    series.labels.get("pci").map_or("", String::as_str)
}

/// What the narrowest link above a part carries; none if one of them is not known.
fn narrowest(function: &Function, links: &[&Function], truth: &[Function]) -> Option<f64> {
    let above = lspci::path(function, truth);
    let way = links.iter().filter(|link| link.pci == function.pci || above.contains(&link.pci));
    let carries: Option<Vec<f64>> = way.map(|link| bandwidth(link.express.as_ref()?.is)).collect();
    carries?.into_iter().min_by(f64::total_cmp)
}

/// Bytes per second of a link: each lane's transfers less the line code of that generation.
fn bandwidth(link: Link) -> Option<f64> {
    let lane = match link.speed? {
        2.5 => 250e6,
        5.0 => 500e6,
        64.0 => 64e9 / 8.0 * 236.0 / 256.0,
        speed => speed * 1e9 / 8.0 * 128.0 / 130.0,
    };
    Some(lane * f64::from(link.width?))
}

fn info_of(function: &Function) -> Value {
    let express = function.express.as_ref();
    let word = |state: Option<bool>| state.map_or("", |on| if on { "on" } else { "off" });
    json!({
        "pci": function.pci,
        "kind": express.map_or("", |express| express.kind.as_str()),
        "vendor": format!("{:04x}", function.vendor),
        "device": format!("{:04x}", function.device),
        "driver": function.driver.as_deref().unwrap_or(""),
        "relaxed_ordering": word(express.map(|express| express.relaxed_ordering)),
        "extended_tags": word(express.map(|express| express.extended_tags)),
        "ten_bit_tags": word(express.and_then(|express| express.ten_bit_tags)),
    })
}

fn is_gpu(function: &Function) -> bool {
    matches!(function.class >> 8, 0x03 | 0x12) && matches!(function.vendor, 0x1002 | 0x10de)
}

fn is_nic(function: &Function) -> bool {
    function.driver.as_deref().is_some_and(|driver| NIC_DRIVERS.contains(&driver))
}
