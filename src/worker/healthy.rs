//! A whole healthy node, from its files to findings and series: nothing may be called bad, and the
//! series have a bound.

use std::{path::Path, time::Duration};

use probes::{
    Context, Inventory, LoadedLinks, Memory, Output, Probe, Reading, Settings, Verdict,
    inventory::{Function, Gpu, Nic, Rdma},
    lines::Line,
    settings::{GpuSettings, InventorySettings, NicSettings, NodeSettings, PcieSettings, Roots},
};
use serde_json::json;

use super::{Found, Request, gpu, nic, node};
use crate::tree;

const MI300X: &str = include_str!("../../tests/fixtures/mi300x.tree");
const H200: &str = include_str!("../../tests/fixtures/h200.tree");

/// A kind of node: vendor and driver of GPUs and NICs, and the last digit of their bus numbers.
struct Kind {
    tree: &'static str,
    gpu: (u16, &'static str, u32),
    nic: (u16, &'static str, u32),
    rdma: &'static str,
}

const AMD: Kind = Kind { tree: MI300X, gpu: (0x1002, "amdgpu", 5), nic: (0x1dd8, "ionic", 8), rdma: "ionic" };
const NVIDIA: Kind =
    Kind { tree: H200, gpu: (0x10de, "nvidia", 3), nic: (0x15b3, "mlx5_core", 4), rdma: "mlx5" };

impl Kind {
    fn inventory(&self) -> Inventory {
        let function = |pair: u32, (vendor, driver, digit): (u16, &str, u32)| Function {
            pci: format!("0000:{:02x}:00.0", pair * 0x20 + digit),
            vendor,
            driver: Some(driver.into()),
            ..Function::default()
        };
        let mut inventory = Inventory::default();
        for pair in 0..8 {
            let nic = Nic { function: function(pair, self.nic), ..Nic::default() };
            let name = format!("{}_{pair}", self.rdma);
            inventory.rdma.push(Rdma {
                name,
                pci: Some(nic.function.pci.clone()),
                ports: vec![1],
                ..Rdma::default()
            });
            inventory.nics.push(nic);
            inventory.gpus.push(Gpu { function: function(pair, self.gpu), ..Gpu::default() });
        }
        inventory
    }
}

fn roots(root: &Path) -> Roots {
    Roots { sysfs: root.join("sys"), proc: root.join("proc"), etc: root.join("etc") }
}

/// What a worker is asked, for files below `root`; what only one worker reads is left out.
pub(super) fn request(root: &Path) -> Request {
    let inventory = InventorySettings { nic_drivers: Vec::new() };
    serde_json::from_value(json!({ "roots": roots(root), "inventory": inventory })).unwrap()
}

fn settings(roots: Roots) -> Settings {
    let hour = Duration::from_secs(3600);
    Settings {
        roots,
        inventory: InventorySettings { nic_drivers: Vec::new() },
        node: NodeSettings {
            ignore: Vec::new(),
            user: None,
            cpu_governor: "performance".into(),
            huge_pages: 0,
        },
        pcie: PcieSettings {
            pcid: "/run/fabricpulse/pcid.sock".into(),
            nic_max_read_request: 4096,
            error_window: hour,
            correctable_errors: 10,
            busy_percent: 20,
        },
        nic: NicSettings { error_window: hour, flaps: 10, errors: 10, unused: Vec::new() },
        gpu: GpuSettings { error_window: hour, correctable_errors: 10 },
        ..crate::config::built_in().settings
    }
}

fn stdout<T: serde::Serialize>((items, problems): Found<T>) -> String {
    let lines = items.len() + problems.len();
    let all = items.into_iter().map(Line::Item).chain(problems.into_iter().map(Line::Problem));
    all.chain([Line::End { lines }]).map(|line| serde_json::to_string(&line).unwrap() + "\n").collect()
}

/// A kind of node whose files lie below a folder.
struct Node<'a> {
    settings: &'a Settings,
    inventory: &'a Inventory,
}

impl Node<'_> {
    /// Two readings a minute apart of the unchanged node; the second is returned.
    fn read(&self, probe: &dyn Probe, worker: impl Fn(&Request) -> String) -> Vec<Reading> {
        let (settings, inventory) = (self.settings, self.inventory);
        let targets = probe.targets(inventory, settings);
        let ctx = Context {
            targets: &targets,
            inventory,
            settings,
            timeout: Duration::from_secs(10),
            port: 0,
            partner: None,
            loaded: LoadedLinks::none(),
        };
        let plan = probe.plan(&ctx).unwrap();
        let step = plan.stages[0].steps().next().unwrap();
        let request: Request = serde_json::from_str(&step.stdin).unwrap();
        let mut memory = Memory::default();
        let mut readings = Vec::new();
        for ended_at in [0.0, 60.0] {
            let output = Output { stdout: worker(&request), stderr: String::new(), ended_at };
            readings = probe.parse(&ctx, &[output], &mut memory).unwrap();
        }
        assert_eq!(readings.len(), targets.len());
        readings
    }
}

fn with_node(kind: &Kind, check: impl FnOnce(&Node<'_>)) {
    let root = tempfile::tempdir().unwrap();
    tree::unpack(kind.tree, root.path());
    let root = root.path();
    let settings = settings(roots(root));
    check(&Node { settings: &settings, inventory: &kind.inventory() });
}

fn series(readings: &[Reading]) -> usize {
    readings.iter().map(|reading| reading.measurements.len()).sum()
}

fn assert_good(readings: &[Reading], except: &str) {
    for reading in readings {
        let judged: Vec<_> = reading.findings.iter().filter(|finding| finding.verdict.is_some()).collect();
        assert!(!judged.is_empty(), "{}: nothing judged is no pass", reading.target);
        for finding in judged {
            assert!(finding.verdict == Some(Verdict::Pass) || finding.check == except, "{finding:?}");
        }
    }
}

fn assert_nics_and_node(node: &Node<'_>) {
    let nics = node.read(&probes::nic::Nic, |request| stdout(nic::read(request)));
    assert_good(&nics, "");
    assert!((100..240).contains(&series(&nics)), "{}", series(&nics));
    let host = node.read(&probes::node::Node, |request| stdout(node::read(request)));
    assert_good(&host, "");
    assert!((10..=24).contains(&series(&host)), "{}", series(&host));
}

#[test]
fn a_healthy_amd_node_passes_within_its_series() {
    with_node(&AMD, |node| {
        assert_nics_and_node(node);
        let gpus = node.read(&probes::gpu::GpuState, |request| stdout(gpu::read(request)));
        assert_good(&gpus, "");
        assert!((64..=8 * 14).contains(&series(&gpus)), "{}", series(&gpus));
    });
}

#[test]
fn a_healthy_nvidia_node_passes_and_what_nvml_alone_tells_is_a_doubt() {
    with_node(&NVIDIA, |node| {
        assert_nics_and_node(node);
        let gpus = node.read(&probes::gpu::GpuState, |request| stdout(gpu::read(request)));
        assert_good(&gpus, "gpu_state");
        assert_eq!(series(&gpus), 8);
    });
}
