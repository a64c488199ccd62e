//! Whose GPU memory a rail uses, and how perftest is told.
//!
//! The nearest GPU; where several are equally near, each rail gets another one, so that the rails
//! of a node cover its GPUs. dmabuf is used where perftest has it, unless a peer memory module is
//! loaded: that one works with every kernel that loads it, and dmabuf does not.

use std::collections::BTreeMap;

use super::{End, rails};
use crate::{
    Unsupported,
    distance::{self, Distance},
    inventory::{AMD, Gpu, Inventory, NVIDIA, Perftest, Rdma},
    settings::RdmaSettings,
};

/// Makes CUDA count GPUs by PCI address, and not by speed.
const CUDA_ORDER: (&str, &str) = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID");

/// What lets NICs reach the memory of AMD GPUs without dmabuf: a module, or the driver's own
/// registration with the RDMA stack.
pub const AMD_PEER_MEMORY: &[&str] = &["ib_peer_mem", "amdkfd"];

/// The same for NVIDIA GPUs.
pub const NVIDIA_PEER_MEMORY: &[&str] = &["nvidia_peermem", "nv_peer_mem"];

/// GPU memory that a transfer begins or ends in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuMemory {
    /// The GPU, by PCI address.
    pub pci: String,
    /// What perftest is told.
    pub(super) options: Vec<String>,
    /// Variables of the process.
    pub(super) env: Vec<(String, String)>,
}

impl GpuMemory {
    /// `from GPU 0000:05:00.0 (PIX, dmabuf)`
    pub(super) fn words(&self, inventory: &Inventory, end: &End<'_>) -> String {
        let nic = end.device.pci.as_deref();
        let distance = nic.and_then(|nic| distance::between(inventory, nic, &self.pci));
        let dmabuf = self.options.iter().any(|option| option.ends_with("_dmabuf"));
        let way = if dmabuf { "dmabuf" } else { "peer memory" };
        let words = distance.map(Distance::word).into_iter().chain([way]).collect::<Vec<_>>().join(", ");
        format!("from GPU {} ({words})", self.pci)
    }
}

/// The GPU memory of a rail.
///
/// # Errors
///
/// When there is none that perftest can use, with what would change it.
pub fn near(inventory: &Inventory, settings: &RdmaSettings, end: &End<'_>) -> Result<GpuMemory, Unsupported> {
    let options = |vendor: u16| vendor_options(end.perftest, vendor);
    if inventory.gpus.is_empty() {
        return Err(Unsupported("this node has no GPU".into()));
    }
    let usable: Vec<&Gpu> =
        inventory.gpus.iter().filter(|gpu| options(gpu.function.vendor).is_some()).collect();
    let gpu = assigned(inventory, settings, &usable, end.device)
        .ok_or_else(|| Unsupported(no_support(inventory, end.perftest)))?;
    let Some(how) = options(gpu.function.vendor) else {
        return Err(Unsupported(no_support(inventory, end.perftest)));
    };
    Ok(memory(inventory, end.perftest, gpu, how))
}

/// How perftest is told which GPU of a vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// By its place among the GPUs that ROCm counts.
    RocmIndex,
    /// By PCI address.
    CudaAddress,
    /// By its place among the GPUs that CUDA counts.
    CudaIndex,
}

fn has(perftest: &Perftest, option: &str) -> bool {
    perftest.gpu_options.iter().any(|known| known == option)
}

fn vendor_options(perftest: &Perftest, vendor: u16) -> Option<How> {
    match vendor {
        AMD if has(perftest, "use_rocm") => Some(How::RocmIndex),
        NVIDIA if has(perftest, "use_cuda_bus_id") => Some(How::CudaAddress),
        NVIDIA if has(perftest, "use_cuda") => Some(How::CudaIndex),
        _ => None,
    }
}

/// The GPU of a rail: going through the rails in their order, each takes the nearest GPU, of
/// equally near ones the least taken, of those the first.
fn assigned<'a>(
    inventory: &Inventory,
    settings: &RdmaSettings,
    usable: &[&'a Gpu],
    device: &Rdma,
) -> Option<&'a Gpu> {
    let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
    for rail in rails(inventory, settings) {
        let distance = |gpu: &Gpu| {
            let pci = rail.pci.as_deref()?;
            distance::between(inventory, pci, &gpu.function.pci)
        };
        let key = |gpu: &&&Gpu| {
            let pci = gpu.function.pci.as_str();
            (distance(gpu).unwrap_or(Distance::Sys), taken.get(pci).copied().unwrap_or(0), pci.to_string())
        };
        let gpu = *usable.iter().min_by_key(key)?;
        if rail.name == device.name {
            return Some(gpu);
        }
        *taken.entry(&gpu.function.pci).or_default() += 1;
    }
    None
}

fn memory(inventory: &Inventory, perftest: &Perftest, gpu: &Gpu, how: How) -> GpuMemory {
    let pci = gpu.function.pci.clone();
    let mut of_vendor = inventory.gpus.iter().filter(|other| other.function.vendor == gpu.function.vendor);
    let index = of_vendor.position(|other| other.function.pci == pci).unwrap_or(0);
    let (option, dmabuf, modules) = match how {
        How::RocmIndex => (format!("--use_rocm={index}"), "use_rocm_dmabuf", AMD_PEER_MEMORY),
        How::CudaAddress => (format!("--use_cuda_bus_id={pci}"), "use_cuda_dmabuf", NVIDIA_PEER_MEMORY),
        How::CudaIndex => (format!("--use_cuda={index}"), "use_cuda_dmabuf", NVIDIA_PEER_MEMORY),
    };
    let mut options = vec![option];
    let peer_memory = inventory.peer_memory.iter().any(|loaded| modules.contains(&loaded.as_str()));
    if has(perftest, dmabuf) && !peer_memory {
        options.push(format!("--{dmabuf}"));
    }
    let env = match how {
        How::RocmIndex => Vec::new(),
        How::CudaAddress | How::CudaIndex => vec![(CUDA_ORDER.0.to_string(), CUDA_ORDER.1.to_string())],
    };
    GpuMemory { pci, options, env }
}

fn no_support(inventory: &Inventory, perftest: &Perftest) -> String {
    let amd = inventory.gpus.iter().any(|gpu| gpu.function.vendor == AMD);
    let (vendor, build) = if amd {
        ("AMD", "./configure --enable-rocm --with-rocm=/opt/rocm")
    } else {
        ("NVIDIA", "./configure CUDA_H_PATH=/usr/local/cuda/include/cuda.h")
    };
    format!(
        "perftest in {} can't use the memory of {vendor} GPUs: build it with {build}, and name its folder in [rdma] perftest_directory",
        perftest.directory
    )
}
