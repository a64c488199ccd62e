//! The operator's settings of all probes, already checked.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::Cost;

/// What a probe may know of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where the kernel's files are.
    pub roots: Roots,
    /// `[inventory]`
    pub inventory: InventorySettings,
    /// `[probe.node]`
    pub node: NodeSettings,
    /// `[probe.pcie]`
    pub pcie: PcieSettings,
    /// `[probe.nic]`
    pub nic: NicSettings,
    /// `[probe.gpu]`
    pub gpu: GpuSettings,
    /// `[[probe.exec.check]]`
    pub exec: Vec<ExecCheck>,
}

/// Where the kernel's files are; a test puts a recorded tree here. Handed to workers as it is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Roots {
    /// `/sys`
    pub sysfs: PathBuf,
    /// `/proc`
    pub proc: PathBuf,
    /// `/etc`, for group membership.
    pub etc: PathBuf,
}

/// What counts as a part of the node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct InventorySettings {
    /// Drivers whose PCI functions are NICs even while they show no RDMA device.
    pub nic_drivers: Vec<String>,
}

/// What is expected of the node's own settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct NodeSettings {
    /// Checks that the operator does not want, by name.
    pub ignore: Vec<String>,
    /// The user whose groups are checked; none is the user that the agent runs as.
    pub user: Option<String>,
    /// The CPU frequency governor.
    pub cpu_governor: String,
    /// The least number of huge pages; 0 expects none.
    pub huge_pages: u64,
}

/// What is expected of PCIe links.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct PcieSettings {
    /// The socket of `fabricpulse pcid`, asked where config space can't be read directly.
    pub pcid: PathBuf,
    /// MaxReadReq that a NIC must have, in bytes.
    pub nic_max_read_request: u32,
    /// How long an AER error is held against a part.
    pub error_window: Duration,
    /// Correctable AER errors within the window that are still no fault.
    pub correctable_errors: u64,
    /// A GPU that reports at least this load can't be slow for saving power, in percent.
    pub busy_percent: u32,
}

/// What is expected of NIC ports.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct NicSettings {
    /// How long link flaps and errors are held against a port.
    pub error_window: Duration,
    /// Link losses within the window that make a port degraded.
    pub flaps: u64,
    /// Errors of one kind within the window that are still no fault.
    pub errors: u64,
    /// Ports expected to be down, as `mlx5_3` or `mlx5_3/2`.
    pub unused: Vec<String>,
}

/// What is expected of GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct GpuSettings {
    /// How long corrected memory errors and PCIe replays are held against a GPU.
    pub error_window: Duration,
    /// Corrected errors within the window that are still no fault.
    pub correctable_errors: u64,
}

/// One of the operator's own checks.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ExecCheck {
    /// The label value, and what `/probe?test=exec&target=` calls it.
    pub name: String,
    /// The program, by absolute path, and its arguments.
    pub argv: Vec<String>,
    /// What it costs the node.
    pub cost: Cost,
    /// How often it runs.
    pub interval: Duration,
    /// When it is ended.
    pub timeout: Duration,
    /// What a run takes of every GPU's time.
    pub gpu_seconds: f64,
    /// What a run puts on every NIC's wire.
    pub network_mib: u32,
}
