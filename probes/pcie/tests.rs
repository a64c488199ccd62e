use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use super::*;
use crate::{
    LoadedLinks, Verdict,
    config_space::{Acs, ConfigSpace, Kind},
    inventory::{self, Gpu, Link, Nic},
    sample,
    settings::{GpuSettings, InventorySettings, NicSettings, NodeSettings, PcieSettings, Roots},
};

fn settings() -> Settings {
    let window = Duration::from_secs(3600);
    let root = PathBuf::from("/");
    Settings {
        roots: Roots { sysfs: root.clone(), proc: root.clone(), etc: root.clone() },
        inventory: InventorySettings { nic_drivers: Vec::new() },
        node: NodeSettings { ignore: Vec::new(), user: None, cpu_governor: String::new(), huge_pages: 0 },
        pcie: PcieSettings {
            pcid: root,
            nic_max_read_request: 4096,
            error_window: window,
            correctable_errors: 10,
            busy_percent: 50,
        },
        nic: NicSettings { error_window: window, flaps: 1, errors: 0, unused: Vec::new() },
        gpu: GpuSettings { error_window: window, correctable_errors: 0 },
        ..sample::settings()
    }
}

fn function(pci: &str, kind: Kind, speed: f64) -> Function {
    let express = Express {
        kind: Some(kind),
        version: 2,
        max_payload_cap: Some(512),
        max_payload: Some(512),
        max_read_request: Some(4096),
        max_speed: Some(32.0),
        max_width: Some(16),
        speed: Some(speed),
        width: Some(16),
        ..Express::default()
    };
    let bridge = kind != Kind::Endpoint;
    let space = ConfigSpace {
        bytes: 4096,
        express: Some(express),
        // Switches have it at their downstream ports.
        acs: kind.is_upper_end().then_some(Acs { offset: 0x100, capability: 0x5f, control: 0 }),
        ..ConfigSpace::default()
    };
    let errors = Errors { correctable: Some(u64::from(bridge)), nonfatal: Some(0), fatal: Some(0) };
    Function {
        pci: pci.into(),
        config: Config::Read(Box::new(space)),
        errors: Some(errors),
        ..Function::default()
    }
}

/// A node of 8 AMD GPUs and 8 NICs, two of each below each of four switches.
fn node() -> (Inventory, Vec<Function>) {
    let (mut inventory, mut functions) = (Inventory::default(), Vec::new());
    let known = |pci: &str, vendor, path: &[&str]| inventory::Function {
        pci: pci.into(),
        vendor,
        path: path.iter().map(ToString::to_string).collect(),
        ..inventory::Function::default()
    };
    for switch in 0..4 {
        let (root, up) = (format!("0000:{switch}0:00.0"), format!("0000:{switch}1:00.0"));
        functions.extend([function(&root, Kind::RootPort, 32.0), function(&up, Kind::UpstreamPort, 32.0)]);
        inventory.bridges.extend([known(&root, 0x1022, &[]), known(&up, 0x104c, &[])]);
        for slot in 0..2 {
            let at = |what: usize| format!("0000:{switch}{:x}:00.0", 2 + slot * 6 + what);
            let [gpu_port, gpu_up, gpu_down, gpu, nic_port, nic] = [0, 1, 2, 3, 4, 5].map(at);
            functions.extend([
                function(&gpu_port, Kind::DownstreamPort, 32.0),
                function(&gpu_up, Kind::UpstreamPort, 32.0),
                function(&gpu_down, Kind::DownstreamPort, 32.0),
                function(&gpu, Kind::Endpoint, 32.0),
                function(&nic_port, Kind::DownstreamPort, 32.0),
                function(&nic, Kind::Endpoint, 32.0),
            ]);
            inventory.bridges.extend([
                known(&gpu_port, 0x104c, &[]),
                known(&gpu_up, 0x1002, &[]),
                known(&gpu_down, 0x1002, &[]),
                known(&nic_port, 0x104c, &[]),
            ]);
            let path = [gpu_down.as_str(), &gpu_up, &gpu_port, &up, &root];
            inventory.gpus.push(Gpu { function: known(&gpu, 0x1002, &path), ..Gpu::default() });
            let path = [nic_port.as_str(), &up, &root];
            inventory.nics.push(Nic { function: known(&nic, 0x15b3, &path), ..Nic::default() });
        }
    }
    (inventory, functions)
}

fn parse(inventory: &Inventory, functions: &[Function]) -> Vec<Reading> {
    parse_after(LoadedLinks::none(), inventory, functions)
}

/// The same, when data has moved before.
fn parse_after(loaded: &LoadedLinks, inventory: &Inventory, functions: &[Function]) -> Vec<Reading> {
    let settings = settings();
    let targets = Pcie.targets(inventory, &settings);
    let timeout = Duration::from_secs(5);
    let ctx = Context {
        targets: &targets,
        inventory,
        settings: &settings,
        timeout,
        port: 0,
        partner: None,
        loaded,
    };
    let mut stdout = String::new();
    for function in functions {
        stdout += &format!("{}\n", serde_json::json!({ "item": function }));
    }
    stdout += &format!("{{\"end\":{{\"lines\":{}}}}}\n", functions.len());
    let output = Output { stdout, stderr: String::new(), ended_at: 1e9 };
    Pcie.parse(&ctx, &[output], &mut Memory::default()).unwrap()
}

#[test]
fn a_full_node_has_a_bounded_number_of_series_each_told_once() {
    let (inventory, functions) = node();
    let readings = parse(&inventory, &functions);
    assert_eq!(readings.len(), 16);
    let series: Vec<_> = readings
        .iter()
        .flat_map(|reading| &reading.measurements)
        .map(|found| (found.metric.name, found.labels.clone()))
        .collect();
    let distinct: BTreeSet<_> = series.iter().collect();
    assert_eq!(distinct.len(), series.len());
    // 16 targets and 12 upstream ports with 4 link values, 4 more a target, 28 bridges with ACS,
    // and errors of 16 targets and of the 4 worst bridges.
    assert_eq!(series.len(), 28 * 4 + 16 * 4 + 28 + 16 * 3 + 4 * 3);
    for reading in &readings {
        for finding in &reading.findings {
            assert!(matches!(finding.verdict, Some(Verdict::Pass) | None), "{finding:?}");
        }
    }
}

#[test]
fn the_bridges_inside_an_amd_gpu_follow_its_power_state_and_others_do_not() {
    let (inventory, mut functions) = node();
    let verdict = |functions: &[Function], part: &str| {
        let readings = parse(&inventory, functions);
        let gpu = readings.iter().find(|reading| reading.target.id() == "0000:05:00.0").unwrap();
        let found = gpu.findings.iter().find(|found| found.check == "link_speed" && found.part == part);
        found.and_then(|found| found.verdict)
    };
    for (part, idle, busy) in [
        ("0000:03:00.0", Verdict::Unknown, Verdict::Degraded),
        ("0000:01:00.0", Verdict::Degraded, Verdict::Degraded),
    ] {
        let index = functions.iter().position(|function| function.pci == part).unwrap();
        let whole = functions[index].clone();
        functions[index] = function(part, Kind::UpstreamPort, 2.5);
        assert_eq!(verdict(&functions, part), Some(idle), "{part} idle");
        let gpu = functions.iter().position(|function| function.pci == "0000:05:00.0").unwrap();
        functions[gpu].busy_percent = Some(90);
        assert_eq!(verdict(&functions, part), Some(busy), "{part} busy");
        functions[gpu].busy_percent = Some(0);
        functions[index] = whole;
    }
}

#[test]
fn what_was_seen_while_data_moved_tells_a_sleeping_link_from_a_slow_one() {
    let (inventory, mut functions) = node();
    let part = "0000:03:00.0";
    let index = functions.iter().position(|function| function.pci == part).unwrap();
    functions[index] = function(part, Kind::UpstreamPort, 2.5);
    let day = 86_400.0;
    let table = [
        (60.0, Some(32.0), Verdict::Pass),
        (60.0, Some(2.5), Verdict::Degraded),
        (60.0, None, Verdict::Unknown),
        (day, Some(32.0), Verdict::Unknown),
        (-60.0, Some(32.0), Verdict::Unknown),
    ];
    for (age, speed, expected) in table {
        let mut loaded = LoadedLinks::default();
        loaded.see(1e9 - age, [(part.to_string(), Link { speed, ..Link::default() })]);
        let readings = parse_after(&loaded, &inventory, &functions);
        let gpu = readings.iter().find(|reading| reading.target.id() == "0000:05:00.0").unwrap();
        let found = gpu.findings.iter().find(|found| found.check == "link_speed" && found.part == part);
        assert_eq!(found.and_then(|found| found.verdict), Some(expected), "{speed:?}, {age} s ago");
    }
}

#[test]
fn a_cut_answer_is_an_error_and_never_a_verdict() {
    let (inventory, _) = node();
    let settings = settings();
    let targets = Pcie.targets(&inventory, &settings);
    let timeout = Duration::from_secs(5);
    let ctx = Context {
        targets: &targets,
        inventory: &inventory,
        settings: &settings,
        timeout,
        port: 0,
        partner: None,
        loaded: LoadedLinks::none(),
    };
    let output = Output { stdout: "{\"item\":".into(), stderr: String::new(), ended_at: 0.0 };
    assert!(Pcie.parse(&ctx, &[output], &mut Memory::default()).is_err());
    assert!(Pcie.parse(&ctx, &[], &mut Memory::default()).is_err());
    let none = Context { targets: &[], ..ctx };
    assert!(Pcie.plan(&none).unwrap_err().to_string().contains("no GPU and no NIC"));
}
