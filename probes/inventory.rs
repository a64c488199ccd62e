//! The parts of a node, as the inventory worker finds them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// AMD's vendor id, of its GPUs and of the bridges inside them.
pub const AMD: u16 = 0x1002;

/// NVIDIA's vendor id.
pub const NVIDIA: u16 = 0x10de;

/// Base classes of GPUs: display controllers and processing accelerators.
const GPU_CLASSES: [u32; 2] = [0x03, 0x12];

/// Whether a PCI function is a GPU that this program knows, by vendor id and class (base class,
/// subclass and interface).
pub fn is_gpu(vendor: u16, class: u32) -> bool {
    [AMD, NVIDIA].contains(&vendor) && GPU_CLASSES.contains(&(class >> 16))
}

/// What this node has. Order is by PCI address, so that two answers can be compared.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Inventory {
    /// GPUs: PCI functions of base class 0x03 or 0x12 of a vendor that makes accelerators.
    pub gpus: Vec<Gpu>,
    /// NICs: PCI functions with an RDMA device, or with a driver that makes one.
    pub nics: Vec<Nic>,
    /// RDMA devices, with a PCI function behind them or without.
    pub rdma: Vec<Rdma>,
    /// Bridges between those functions and the root complex.
    pub bridges: Vec<Function>,
    /// The CPUs of each NUMA node.
    #[serde(default)]
    pub cpus: BTreeMap<u32, Vec<u32>>,
    /// The kernel's release; none while it can't be read.
    #[serde(default)]
    pub kernel: Option<String>,
    /// perftest; none if it is not installed.
    #[serde(default)]
    pub perftest: Option<Perftest>,
    /// What lets NICs reach GPU memory without dmabuf, as far as it is loaded: `nvidia_peermem`,
    /// `ib_peer_mem` ..
    #[serde(default)]
    pub peer_memory: Vec<String>,
}

/// What is known of a PCI function without its config space.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Function {
    /// `0000:c1:00.0`
    pub pci: String,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Base class, subclass and interface, `0x020000`.
    pub class: u32,
    /// The bound driver.
    pub driver: Option<String>,
    /// The NUMA node; none where the kernel says -1.
    pub numa: Option<u32>,
    /// The bridges above it, nearest first.
    pub path: Vec<String>,
    /// The link as the text attributes tell it; none without PCIe.
    pub link: Option<Link>,
}

/// A link's state by sysfs text attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Link {
    /// GT/s; none while the kernel says Unknown.
    pub speed: Option<f64>,
    /// Lanes; none while 0, which is a link that is down.
    pub width: Option<u32>,
    /// The device's own maximum, GT/s.
    pub max_speed: Option<f64>,
    /// The device's own maximum, lanes.
    pub max_width: Option<u32>,
}

/// A GPU.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Gpu {
    /// Its PCI function.
    pub function: Function,
    /// The marketing name, where the driver or the device id tells it.
    pub model: Option<String>,
    /// The version of its driver; none where the driver tells none, as one of the kernel itself.
    #[serde(default)]
    pub driver_version: Option<String>,
    /// The version of its firmware (VBIOS).
    #[serde(default)]
    pub firmware: Option<String>,
    /// What tells it from others of its model.
    #[serde(default)]
    pub serial: Option<String>,
}

/// A network adapter's PCI function.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Nic {
    /// Its PCI function.
    pub function: Function,
    /// Its RDMA devices by name.
    pub rdma: Vec<String>,
    /// Its network interfaces by name.
    pub netdevs: Vec<String>,
}

/// An RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Rdma {
    /// `mlx5_0`
    pub name: String,
    /// The PCI function behind it; none for software devices such as rxe.
    pub pci: Option<String>,
    /// Port numbers.
    pub ports: Vec<u32>,
    /// The version of its firmware.
    #[serde(default)]
    pub firmware: Option<String>,
    /// What tells it from others of its model.
    #[serde(default)]
    pub guid: Option<String>,
    /// What is on the first port; none while it can't be read.
    #[serde(default)]
    pub wire: Option<Wire>,
}

/// What an RDMA port is attached to.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Wire {
    /// The port's number.
    pub port: u32,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// The port's rate in bits per second; none while it is down.
    pub bits_per_second: Option<f64>,
    /// The filled slots of its GID table.
    pub gids: Vec<Gid>,
}

/// A slot of a GID table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Gid {
    /// The slot's number.
    pub index: u32,
    /// The address: an IPv4 one as `::ffff:a.b.c.d`.
    pub address: std::net::Ipv6Addr,
    /// Whether it is of RoCE v2; RoCE v1 and InfiniBand are not.
    pub roce_v2: bool,
}

/// The perftest that is installed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Perftest {
    /// The folder of its programs.
    pub directory: String,
    /// The programs that are there: `ib_write_bw` ..
    pub programs: Vec<String>,
    /// When `ib_write_bw` was last changed, in seconds since the epoch: another file may have other
    /// options.
    #[serde(default)]
    pub modified: Option<u64>,
    /// What it calls its version, `6.06`; none if it does not say.
    pub version: Option<String>,
    /// The long options of `ib_write_bw` that concern GPU memory: `use_rocm`, `use_cuda_dmabuf` ..
    pub gpu_options: Vec<String>,
}

impl Inventory {
    /// The GPU or NIC at a PCI address.
    pub fn function(&self, pci: &str) -> Option<&Function> {
        let gpus = self.gpus.iter().map(|gpu| &gpu.function);
        let nics = self.nics.iter().map(|nic| &nic.function);
        gpus.chain(nics).chain(&self.bridges).find(|function| function.pci == pci)
    }

    /// Whether the function at this address is one of the GPUs.
    pub fn is_gpu(&self, pci: &str) -> bool {
        self.gpus.iter().any(|gpu| gpu.function.pci == pci)
    }
}
