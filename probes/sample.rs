//! Settings and contexts for the tests of the probes.

use std::{path::PathBuf, time::Duration};

use crate::{
    Context, Inventory, LoadedLinks, Output, Settings, Target,
    lines::{Line, Problem},
    settings::{
        ComputeSettings, GpuSettings, InventorySettings, NicSettings, NodeSettings, PcieSettings,
        RdmaExpected, RdmaSettings, Roots,
    },
};

/// Of each step.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// Numbers of these tests' own, which are not the embedded defaults.
pub(crate) fn settings() -> Settings {
    let hour = Duration::from_secs(3600);
    Settings {
        roots: Roots { sysfs: "/sys".into(), proc: "/proc".into(), etc: "/etc".into() },
        inventory: InventorySettings { nic_drivers: vec!["mlx5_core".into()] },
        node: NodeSettings {
            ignore: Vec::new(),
            user: None,
            cpu_governor: "performance".into(),
            huge_pages: 0,
        },
        pcie: PcieSettings {
            pcid: PathBuf::from("/run/fabricpulse/pcid.sock"),
            nic_max_read_request: 4096,
            error_window: hour,
            correctable_errors: 10,
            busy_percent: 20,
        },
        nic: NicSettings { error_window: hour, flaps: 10, errors: 10, unused: Vec::new() },
        gpu: GpuSettings { error_window: hour, correctable_errors: 10 },
        compute: ComputeSettings {
            hbm_bytes: 1 << 30,
            host_copy_bytes: 1 << 28,
            p2p_bytes: 1 << 28,
            ..ComputeSettings::default()
        },
        rdma: RdmaSettings {
            perftest: PathBuf::new(),
            rails: Vec::new(),
            gid_networks: Vec::new(),
            size: 65_536,
            queue_pairs: 2,
            seconds: 0.1,
            most_messages: 10_000,
            repeats: 2,
            latency_size: 8,
            latency_messages: 500,
            traffic_class: Some(104),
            mtu: None,
            tolerance: 0.9,
            loopback_neighbour: false,
        },
        expected: RdmaExpected::default(),
        exec: Vec::new(),
    }
}

pub(crate) fn context<'a>(
    targets: &'a [Target],
    inventory: &'a Inventory,
    settings: &'a Settings,
) -> Context<'a> {
    Context {
        targets,
        inventory,
        settings,
        timeout: TIMEOUT,
        port: 0,
        partner: None,
        loaded: LoadedLinks::none(),
    }
}

/// What a worker would print, ended at `at`.
pub(crate) fn output<T: serde::Serialize>(at: f64, items: &[T], problems: &[Problem]) -> Output {
    let lines = items.iter().map(Line::Item).map(|line| serde_json::to_string(&line).unwrap());
    let bad =
        problems.iter().cloned().map(|problem| serde_json::to_string(&Line::<()>::Problem(problem)).unwrap());
    let end = serde_json::to_string(&Line::<()>::End { lines: items.len() + problems.len() }).unwrap();
    let stdout = lines.chain(bad).chain([end]).collect::<Vec<_>>().join("\n");
    Output { stdout, stderr: String::new(), ended_at: at }
}
