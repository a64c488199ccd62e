//! The operator's settings of all probes, already checked.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{Cost, gemm::Dtype};

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
    /// `[compute]`
    pub compute: ComputeSettings,
    /// `[rdma]`
    pub rdma: RdmaSettings,
    /// `[probe.ib_write_bw]`, `[probe.ib_write_lat]`, `[probe.gdr]`, `[probe.loopback]`
    pub expected: RdmaExpected,
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

impl Roots {
    /// Whether they are the running machine's own, and no recorded or other one's.
    pub fn are_this_machines(&self) -> bool {
        self.sysfs == Path::new("/sys")
    }
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

/// How GPUs are made to compute.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ComputeSettings {
    /// Folders with the vendor's libraries, before the usual places.
    pub library_directories: Vec<PathBuf>,
    /// Variables of the workers, as `NCCL_DEBUG` and `WARN`.
    pub environment: Vec<(String, String)>,
    /// `[probe.gemm]`
    pub gemm: GemmSettings,
    /// Bytes of a copy of `hbm`.
    pub hbm_bytes: usize,
    /// Bytes of a copy of `host_copy`.
    pub host_copy_bytes: usize,
    /// Bytes of a copy of `p2p`.
    pub p2p_bytes: usize,
    /// `[probe.collectives]`
    pub collectives: CollectivesSettings,
}

/// What `gemm` multiplies.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct GemmSettings {
    /// Rows and columns of the square matrices.
    pub size: u32,
    /// The types of numbers.
    pub types: Vec<Dtype>,
    /// For how long products of a type are repeated, in seconds: the burst.
    pub burst: f64,
    /// The same for `gemm_sustained`.
    pub sustained: f64,
}

/// What `collectives` exchanges.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct CollectivesSettings {
    /// Bytes of the exchange whose latency is told.
    pub latency_bytes: usize,
    /// Bytes of the exchanges whose bandwidth is told; the largest one's is exported.
    pub bytes: Vec<usize>,
    /// Bytes of the largest exchange of a sweep.
    pub sweep_bytes: usize,
}

/// How perftest is called. Two nodes can measure together only where these are equal.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct RdmaSettings {
    /// The folder of perftest's programs; empty: where programs usually are.
    pub perftest: PathBuf,
    /// The RDMA devices that take part, in the order of their rails; empty: all, by PCI address.
    pub rails: Vec<String>,
    /// Networks whose GIDs are preferred, each an address and a prefix length; empty: any.
    pub gid_networks: Vec<(std::net::IpAddr, u8)>,
    /// Message size of bandwidth tests, in bytes.
    pub size: u32,
    /// Queue pairs of bandwidth tests.
    pub queue_pairs: u32,
    /// Line-rate seconds that a repeat sends.
    pub seconds: f64,
    /// The most messages of a repeat, over all of its queue pairs.
    pub most_messages: u32,
    /// Repeats of each direction, of which the best counts.
    pub repeats: u32,
    /// Message size of latency tests, in bytes.
    pub latency_size: u32,
    /// Messages of a latency test.
    pub latency_messages: u32,
    /// RoCE traffic class; none leaves the device's own.
    pub traffic_class: Option<u8>,
    /// MTU in bytes; none takes the port's active one.
    pub mtu: Option<u32>,
    /// The part of an expected value below which a run is degraded.
    pub tolerance: f64,
    /// Whether `loopback` also goes to the neighbour NIC on this node.
    pub loopback_neighbour: bool,
}

/// What a healthy run gives by the operator's own word; none judges no speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct RdmaExpected {
    /// One direction of host memory, in bytes per second.
    pub write: Option<f64>,
    /// One direction of GPU memory, in bytes per second.
    pub gdr: Option<f64>,
    /// A NIC to itself, host memory, in bytes per second.
    pub loopback: Option<f64>,
    /// Typical latency, in seconds.
    pub latency: Option<f64>,
    /// The least ratio of GPU memory to host memory.
    pub gdr_host_ratio: Option<f64>,
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
