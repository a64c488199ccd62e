//! From a recorded machine, through inventory, plan, worker and parser, to what is said of it.

use std::{fs, time::Duration};

use probes::{
    Context, Finding, Inventory, LoadedLinks, Memory, Output, Probe, Reading, Settings, Target, Verdict,
    lines::Line,
    pcie::Pcie,
    settings::{GpuSettings, InventorySettings, NicSettings, NodeSettings, PcieSettings},
};

use super::{
    super::{inventory, recorded::Machine},
    *,
};

const INITIAL: &str = include_str!("../../../tests/fixtures/lab-initial.tree");
const HEALTHY: &str = include_str!("../../../tests/fixtures/lab-healthy.tree");
const RDMA: &str = include_str!("../../../tests/fixtures/lab-rdma.tree");
const DEGRADED: &str = include_str!("../../../tests/fixtures/lab-degraded.tree");
const UNPLUGGED: &str = include_str!("../../../tests/fixtures/lab-unplugged.tree");

const GPU: &str = "0000:24:00.0";
const NIC: &str = "0000:23:00.0";
const FAR_NIC: &str = "0000:41:00.0";

fn settings(machine: &Machine) -> Settings {
    let window = Duration::from_secs(3600);
    Settings {
        roots: machine.roots(),
        inventory: InventorySettings { nic_drivers: Vec::new() },
        node: NodeSettings { ignore: Vec::new(), user: None, cpu_governor: String::new(), huge_pages: 0 },
        pcie: PcieSettings {
            pcid: machine.path().join("pcid.sock"),
            nic_max_read_request: 4096,
            error_window: window,
            correctable_errors: 10,
            busy_percent: 50,
        },
        nic: NicSettings { error_window: window, flaps: 1, errors: 0, unused: Vec::new() },
        gpu: GpuSettings { error_window: window, correctable_errors: 0 },
        ..crate::config::built_in().settings
    }
}

/// What one run says.
fn run(machine: &Machine, memory: &mut Memory, now: f64) -> (Inventory, Vec<Reading>) {
    run_with(machine, &[], memory, now)
}

/// The same, where NICs are known by these drivers too.
fn run_with(machine: &Machine, drivers: &[&str], memory: &mut Memory, now: f64) -> (Inventory, Vec<Reading>) {
    let mut settings = settings(machine);
    settings.inventory.nic_drivers = drivers.iter().map(ToString::to_string).collect();
    let mut request = machine.request(&[]);
    request.inventory = settings.inventory.clone();
    let inventory = inventory::read(&request).0.remove(0);
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
    let plan = Pcie.plan(&ctx).unwrap();
    let step = plan.stages[0].steps().next().unwrap();
    let request: Request = serde_json::from_str(&step.stdin).unwrap();
    let (items, problems) = read(&request);
    let lines = items.len() + problems.len();
    let lines = items
        .into_iter()
        .map(Line::Item)
        .chain(problems.into_iter().map(Line::Problem))
        .chain([Line::End { lines }]);
    let stdout: String = lines.map(|line| serde_json::to_string(&line).unwrap() + "\n").collect();
    let output = Output { stdout, stderr: String::new(), ended_at: now };
    let readings = Pcie.parse(&ctx, &[output], memory).unwrap();
    (inventory, readings)
}

/// The findings of a fresh run that are no pass, as `target check part verdict`.
fn faults(machine: &Machine) -> Vec<String> {
    told(&run(machine, &mut Memory::default(), 1e9).1)
}

fn told(readings: &[Reading]) -> Vec<String> {
    let line = |target: &Target, finding: &Finding| {
        let verdict = finding.verdict.filter(|verdict| *verdict != Verdict::Pass)?;
        Some(format!("{target} {} {} {verdict}", finding.check, finding.part))
    };
    readings
        .iter()
        .flat_map(|reading| reading.findings.iter().filter_map(|finding| line(&reading.target, finding)))
        .collect()
}

fn finding<'a>(readings: &'a [Reading], target: &str, check: &str) -> &'a Finding {
    let reading = readings.iter().find(|reading| reading.target.id() == target).unwrap();
    reading.findings.iter().find(|finding| finding.check == check).unwrap()
}

fn value(readings: &[Reading], metric: &str, labels: &[&str]) -> Option<f64> {
    let mut all = readings.iter().flat_map(|reading| &reading.measurements);
    all.find(|found| found.metric.name == metric && found.labels == labels).map(|found| found.value)
}

/// Writes bytes into a function's config space.
fn poke(machine: &Machine, pci: &str, at: usize, bytes: &[u8]) {
    let file = machine.file(pci, "config");
    let mut space = fs::read(&file).unwrap();
    space[at..at + bytes.len()].copy_from_slice(bytes);
    fs::write(file, space).unwrap();
}

/// Where the PCI Express capability of these machines begins.
fn express(pci: &str) -> usize {
    match pci {
        "0000:20:00.0" | "0000:40:00.0" => 0x54,
        "0000:21:00.0" | "0000:22:00.0" | "0000:22:01.0" => 0x90,
        GPU => 0x80,
        _ => 0x40,
    }
}

fn set_link(machine: &Machine, pci: &str, speed: u8, width: u16) {
    poke(machine, pci, express(pci) + 0x12, &(u16::from(speed) | width << 4).to_le_bytes());
}

#[test]
fn the_recorded_stages_are_what_their_registers_say() {
    let table: [(&str, &str, &[&str]); 5] = [
        ("initial", INITIAL, &[]),
        ("healthy", HEALTHY, &[]),
        ("rdma", RDMA, &[]),
        (
            "degraded",
            DEGRADED,
            &[
                "0000:24:00.0 acs_redirect 0000:20:00.0 degraded",
                "0000:23:00.0 link_width 0000:23:00.0 unknown",
                "0000:23:00.0 max_read_request 0000:23:00.0 degraded",
                "0000:23:00.0 acs_redirect 0000:20:00.0 degraded",
                "0000:41:00.0 acs_redirect 0000:40:00.0 degraded",
            ],
        ),
        (
            "unplugged",
            UNPLUGGED,
            &[
                "0000:24:00.0 acs_redirect 0000:20:00.0 degraded",
                "0000:41:00.0 acs_redirect 0000:40:00.0 degraded",
            ],
        ),
    ];
    for (stage, archive, want) in table {
        // An old card below a port of its own is there in every stage, with small reads.
        let (_, readings) = run_with(&Machine::of(archive), &["e1000e"], &mut Memory::default(), 1e9);
        let mut found = told(&readings);
        let old = "0000:01:00.0 max_read_request 0000:01:00.0 degraded";
        assert!(found.contains(&old.to_string()), "{stage}: {found:?}");
        found.retain(|line| line != old);
        assert_eq!(found, want, "{stage}");
    }
}

#[test]
fn a_slow_nic_is_degraded_and_an_idle_gpu_is_not() {
    let machine = Machine::of(RDMA);
    set_link(&machine, NIC, 3, 16);
    set_link(&machine, GPU, 1, 16);
    assert_eq!(
        faults(&machine),
        ["0000:24:00.0 link_speed 0000:24:00.0 unknown", "0000:23:00.0 link_speed 0000:23:00.0 degraded",]
    );
    fs::write(machine.file(GPU, "gpu_busy_percent"), "99\n").unwrap();
    let (_, readings) = run(&machine, &mut Memory::default(), 1e9);
    let speed = finding(&readings, GPU, "link_speed");
    assert_eq!(speed.verdict, Some(Verdict::Degraded));
    assert!(speed.found.contains("the link between 0000:22:01.0 and 0000:24:00.0, 99 % busy"), "{speed:?}");
    assert_eq!(speed.command, "lspci -vvv -s 24:00.0");
    assert_eq!(value(&readings, "pcie_link_speed_transfers_per_second", &[GPU]), Some(2.5e9));
}

#[test]
fn a_switch_uplink_is_blamed_for_all_below_and_exported_once() {
    let machine = Machine::of(RDMA);
    set_link(&machine, "0000:21:00.0", 5, 8);
    let (_, readings) = run(&machine, &mut Memory::default(), 1e9);
    assert_eq!(
        told(&readings),
        ["0000:24:00.0 link_width 0000:21:00.0 degraded", "0000:23:00.0 link_width 0000:21:00.0 degraded",]
    );
    let path = finding(&readings, NIC, "path");
    assert!(path.found.contains("the link between 0000:20:00.0 and 0000:21:00.0: x8"), "{path:?}");
    let all: Vec<_> = readings
        .iter()
        .flat_map(|reading| &reading.measurements)
        .map(|found| (found.metric.name, found.labels.clone()))
        .collect();
    let distinct: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len(), "{all:?}");
    assert_eq!(value(&readings, "pcie_link_width_lanes", &["0000:21:00.0"]), Some(8.0));
    assert_eq!(value(&readings, "pcie_link_width_lanes", &["0000:22:00.0"]), None);
}

#[test]
fn a_device_that_hides_its_link_is_a_doubt_and_one_off_the_bus_fails() {
    let machine = Machine::of(RDMA);
    set_link(&machine, NIC, 0, 0);
    poke(&machine, NIC, express(NIC) + 8, &[0, 0]);
    poke(&machine, FAR_NIC, 0, &[0xff; 4096]);
    let (_, readings) = run(&machine, &mut Memory::default(), 1e9);
    assert_eq!(
        told(&readings),
        ["0000:23:00.0 link_width 0000:23:00.0 unknown", "0000:41:00.0 config_space 0000:41:00.0 fail",]
    );
    assert_eq!(
        value(&readings, "pcie_link_width_lanes", &[NIC]),
        Some(0.0),
        "shown as it was read, not judged"
    );
    assert_eq!(value(&readings, "pcie_link_width_lanes", &[FAR_NIC]), None);
    assert_eq!(value(&readings, "pcie_path_bandwidth_bytes_per_second", &[FAR_NIC]), None);
}

#[test]
fn an_uplink_without_lanes_fails_for_all_below() {
    let machine = Machine::of(RDMA);
    set_link(&machine, "0000:21:00.0", 0, 0);
    let (_, readings) = run(&machine, &mut Memory::default(), 1e9);
    assert_eq!(
        told(&readings),
        ["0000:24:00.0 link_width 0000:21:00.0 fail", "0000:23:00.0 link_width 0000:21:00.0 fail"]
    );
    assert_eq!(value(&readings, "pcie_link_width_lanes", &["0000:21:00.0"]), Some(0.0));
}

#[test]
fn less_than_a_header_of_config_space_is_a_doubt() {
    let machine = Machine::of(RDMA);
    for bytes in [0, 2, 63] {
        fs::write(machine.file(NIC, "config"), vec![1; bytes]).unwrap();
        assert_eq!(faults(&machine), ["0000:23:00.0 config_space 0000:23:00.0 unknown"]);
    }
}

#[test]
fn a_file_that_can_not_be_read_is_a_doubt_about_each_target_that_it_concerns() {
    let machine = Machine::of(RDMA);
    for pci in [FAR_NIC, "0000:20:00.0"] {
        let file = machine.file(pci, "aer_dev_correctable");
        let _ = fs::remove_file(&file);
        fs::create_dir(&file).unwrap();
    }
    let mut found = faults(&machine);
    found.sort();
    assert_eq!(
        found,
        [
            "0000:23:00.0 pcie_files 0000:20:00.0 unknown",
            "0000:24:00.0 pcie_files 0000:20:00.0 unknown",
            "0000:41:00.0 pcie_files 0000:41:00.0 unknown"
        ]
    );
}

#[test]
fn a_bridge_that_could_not_be_read_leaves_redirection_unknown() {
    let machine = Machine::of(RDMA);
    fs::write(machine.file("0000:21:00.0", "config"), [1]).unwrap();
    poke(&machine, "0000:20:00.0", express("0000:20:00.0") + 8, &[0, 0]);
    let (_, readings) = run(&machine, &mut Memory::default(), 1e9);
    let acs = finding(&readings, NIC, "acs_redirect");
    assert_eq!(acs.verdict, Some(Verdict::Unknown));
    assert!(acs.found.contains("of 3 bridges, 1 could not be read"), "{acs:?}");
    assert_eq!(finding(&readings, NIC, "max_payload").verdict, Some(Verdict::Pass), "no neighbours");
}

#[test]
fn the_command_for_read_requests_keeps_every_other_bit() {
    let machine = Machine::of(RDMA);
    poke(&machine, NIC, express(NIC) + 8, &0x2950_u16.to_le_bytes());
    let (_, readings) = run(&machine, &mut Memory::default(), 1e9);
    let found = finding(&readings, NIC, "max_read_request");
    assert_eq!(found.found, "MaxReadReq 512 bytes");
    assert_eq!(found.command, "setpci -s 23:00.0 48.w=5950");
}

#[test]
fn payload_sizes_that_differ_between_neighbours_are_a_fault() {
    let machine = Machine::of(RDMA);
    poke(&machine, "0000:22:00.0", express("0000:22:00.0") + 8, &0x5000_u16.to_le_bytes());
    assert_eq!(faults(&machine), ["0000:23:00.0 max_payload 0000:23:00.0 degraded"]);
}

#[test]
fn errors_count_from_the_second_reading_on_and_name_their_function() {
    let machine = Machine::of(RDMA);
    let mut memory = Memory::default();
    let set = |pci: &str, file: &str, text: &str| fs::write(machine.file(pci, file), text).unwrap();
    set(NIC, "aer_dev_correctable", "BadTLP 40\nTOTAL_ERR_COR 40\n");
    let (_, first) = run(&machine, &mut memory, 1e9);
    assert_eq!((told(&first), finding(&first, NIC, "aer_errors").verdict), (vec![], None));
    set(NIC, "aer_dev_correctable", "BadTLP 45\nTOTAL_ERR_COR 45\n");
    let (_, few) = run(&machine, &mut memory, 1e9 + 60.0);
    assert_eq!((told(&few), finding(&few, NIC, "aer_errors").verdict), (vec![], Some(Verdict::Pass)));
    set(NIC, "aer_dev_correctable", "BadTLP 60\nTOTAL_ERR_COR 60\n");
    set("0000:40:00.0", "aer_dev_fatal", "DLP 1\nTOTAL_ERR_FATAL 1\n");
    let (_, many) = run(&machine, &mut memory, 1e9 + 120.0);
    assert_eq!(
        told(&many),
        ["0000:23:00.0 aer_errors 0000:23:00.0 degraded", "0000:41:00.0 aer_errors 0000:40:00.0 fail",]
    );
    assert_eq!(value(&many, "pcie_aer_errors", &[NIC, "correctable"]), Some(60.0));
    assert_eq!(value(&many, "pcie_aer_errors", &["0000:40:00.0", "fatal"]), Some(1.0));
}

#[test]
fn without_privilege_links_are_judged_and_the_rest_is_not() {
    let machine = Machine::of(RDMA);
    for pci in fs::read_dir(machine.path().join("sys/bus/pci/devices")).unwrap() {
        let file = pci.unwrap().path().join("config");
        let bytes = fs::read(&file).unwrap();
        fs::write(file, &bytes[..64]).unwrap();
    }
    fs::write(machine.file(NIC, "current_link_width"), "8\n").unwrap();
    let (_, readings) = run(&machine, &mut Memory::default(), 1e9);
    assert_eq!(told(&readings), ["0000:23:00.0 link_width 0000:23:00.0 degraded"]);
    let space = finding(&readings, NIC, "config_space");
    assert_eq!(space.verdict, None);
    assert!(space.found.contains("only 64 bytes") && space.found.contains("pcid.sock"), "{}", space.found);
    assert!(space.command.contains("fabricpulse-pcid.socket"));
    assert_eq!(finding(&readings, NIC, "acs_redirect").verdict, None);
    assert_eq!(value(&readings, "pcie_max_payload_bytes", &[NIC]), None);
}

#[test]
fn a_function_that_can_not_be_read_leaves_the_others_alone() {
    let machine = Machine::of(RDMA);
    let request = Request {
        pcie: probes::pcie::Wanted {
            functions: vec![NIC.into(), "0000:77:00.0".into(), "../x".into()],
            pcid: machine.path().join("pcid.sock"),
        },
        ..machine.request(&[])
    };
    let (functions, problems) = read(&request);
    assert_eq!(functions.iter().map(|function| function.pci.as_str()).collect::<Vec<_>>(), [NIC]);
    assert_eq!(
        problems.iter().map(|problem| problem.part.as_str()).collect::<Vec<_>>(),
        ["0000:77:00.0", "../x"]
    );
}
