//! What the probes share that compute: their worker's request and its answer.
//!
//! The worker loads the vendor's libraries, so a node needs nothing but its driver stack. Each value
//! comes with its repeats: a median without spread and count can't be judged.

use std::path::PathBuf;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Context, Finding, Inventory, Output, ParseError, Plan, Program, Reading, Resource, Stage, Step, Target,
    Unsupported, Use, Verdict,
    inventory::{AMD, Gpu, NVIDIA},
    lines,
    plan::only,
    settings::Roots,
};

pub use repeats::Repeats;

mod repeats;

/// The check that finds wrong numbers. Its failures are counted.
pub const CORRUPT_RESULT: &str = "corrupt_result";

/// Whose libraries are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Vendor {
    /// HIP, RCCL, hipBLASLt or rocBLAS.
    Amd,
    /// The CUDA runtime, NCCL, cuBLASLt.
    Nvidia,
}

/// What a computing worker is asked.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Request<T> {
    /// Where the kernel's files are.
    pub roots: Roots,
    /// Folders with the vendor's libraries, before the usual places.
    pub libraries: Vec<PathBuf>,
    /// Whose libraries.
    pub vendor: Vendor,
    /// The GPUs, by PCI address.
    pub gpus: Vec<String>,
    /// The CPUs that it may run on, and so where its host memory is; empty for all.
    pub cpus: Vec<usize>,
    /// Until when it has to be done, in seconds from its start. It stops repeating in time.
    pub seconds: f64,
    /// What is measured.
    pub task: T,
}

/// A line of a computing worker's answer.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Item<T> {
    /// A library that was used.
    Library(Library),
    /// What was measured.
    Value(T),
    /// A call that failed, and ended what it was made for.
    Fault(Fault),
}

/// A library of the vendor's.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Library {
    /// `libcudart.so.13`
    pub name: String,
    /// Where it was found; the name alone where the loader found it.
    pub path: String,
    /// What it says of its version, as the vendor writes it.
    pub version: String,
}

/// A call into a vendor's library that failed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Fault {
    /// The GPU that it was made for, by PCI address; `node` where it was made for several.
    pub part: String,
    /// `cudaMalloc of 1024 MiB`
    pub call: String,
    /// `cudaErrorMemoryAllocation (2): out of memory`
    pub error: String,
    /// Whether the vendor's meaning of the error is that the hardware failed.
    pub hardware: bool,
}

/// A worker's whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer<T> {
    /// The libraries that were used.
    pub libraries: Vec<Library>,
    /// What was measured.
    pub values: Vec<T>,
    /// What failed.
    pub faults: Vec<Fault>,
}

impl<T> Answer<T> {
    /// What is left to say of a target: what failed, and by which libraries all this was found out.
    pub fn close(&self, reading: &mut Reading) {
        let part = reading.target.id().to_string();
        reading.findings.extend(self.faults.iter().map(fault));
        if !self.libraries.is_empty() {
            let used = self.libraries.iter().map(|library| format!("{} {}", library.name, library.version));
            let words = used.collect::<Vec<_>>().join(", ");
            reading.findings.push(Finding::not_applicable("libraries", &part, words));
        }
    }
}

fn fault(fault: &Fault) -> Finding {
    let found = format!("{}: {}", fault.call, fault.error);
    if fault.hardware {
        Finding::new("gpu_call", &fault.part, Verdict::Fail, found, "a call that succeeds")
            .because("the driver says that this hardware lost or damaged data")
            .try_command("dmesg --level=err,warn")
    } else {
        Finding::new("gpu_call", &fault.part, Verdict::Unknown, found, "a call that succeeds")
            .because("what could not be measured can't be judged")
            .try_command("dmesg --level=err,warn")
    }
}

/// Reads what a worker printed.
///
/// # Errors
///
/// When it isn't a whole answer, or says that this node can't be measured.
pub fn read<T: DeserializeOwned>(outputs: &[Output]) -> Result<Answer<T>, ParseError> {
    let mut answer = Answer { libraries: Vec::new(), values: Vec::new(), faults: Vec::new() };
    for item in lines::read::<Item<T>>(&only(outputs)?.stdout)?.items {
        match item {
            Item::Library(library) => answer.libraries.push(library),
            Item::Value(value) => answer.values.push(value),
            Item::Fault(fault) => answer.faults.push(fault),
        }
    }
    Ok(answer)
}

/// The plan of a worker that measures `gpus`, which takes `milliseconds` of each one's time.
///
/// # Errors
///
/// When the node has no such GPU, or GPUs of several vendors.
pub fn plan<T: Serialize>(
    worker: &'static str,
    ctx: &Context<'_>,
    gpus: &[&Gpu],
    milliseconds: u32,
    task: T,
) -> Result<Plan, Unsupported> {
    let vendor = vendor(gpus)?;
    let addresses: Vec<String> = gpus.iter().map(|gpu| gpu.function.pci.clone()).collect();
    let uses = addresses.iter().map(|pci| Use { resource: Resource::Gpu(pci.clone()), amount: milliseconds });
    let uses = uses.collect();
    let compute = &ctx.settings.compute;
    let request = Request {
        roots: ctx.settings.roots.clone(),
        libraries: compute.library_directories.clone(),
        vendor,
        gpus: addresses,
        cpus: near(ctx.inventory, gpus),
        seconds: (ctx.timeout.as_secs_f64() - RESERVE).max(RESERVE),
        task,
    };
    let stdin = serde_json::to_string(&request)
        .map_err(|error| Unsupported(format!("the worker's request can't be written: {error}")))?;
    let step = Step {
        program: Program::Worker(worker),
        env: compute.environment.clone(),
        stdin,
        deadline: ctx.timeout,
        cpus: Vec::new(),
    };
    Ok(Plan { stages: vec![Stage::Alone(step)], uses })
}

/// The CPUs beside a GPU: memory is where the CPU is that first writes it, and the way from another
/// socket is slower. None where several GPUs are measured, or where nobody knows.
fn near(inventory: &Inventory, gpus: &[&Gpu]) -> Vec<usize> {
    let [gpu] = gpus else { return Vec::new() };
    let numa = gpu.function.numa.and_then(|numa| inventory.cpus.get(&numa));
    numa.into_iter().flatten().filter_map(|cpu| usize::try_from(*cpu).ok()).collect()
}

/// Left of a step's deadline for a worker to say what it has measured, in seconds.
const RESERVE: f64 = 1.0;

fn vendor(gpus: &[&Gpu]) -> Result<Vendor, Unsupported> {
    let first = gpus.first().ok_or_else(|| Unsupported("this node has no GPU".into()))?.function.vendor;
    if gpus.iter().any(|gpu| gpu.function.vendor != first) {
        return Err(Unsupported(
            "this node has GPUs of several vendors, which no library measures together".into(),
        ));
    }
    match first {
        AMD => Ok(Vendor::Amd),
        NVIDIA => Ok(Vendor::Nvidia),
        other => Err(Unsupported(format!("no library is known for GPUs of vendor 0x{other:04x}"))),
    }
}

/// The GPU that a run measures.
///
/// # Errors
///
/// When it is not there.
pub fn gpu<'a>(ctx: &Context<'a>) -> Result<&'a Gpu, Unsupported> {
    let pci = ctx.targets.first().map(Target::id).unwrap_or_default();
    let gpu = ctx.inventory.gpus.iter().find(|gpu| gpu.function.pci == pci);
    gpu.ok_or_else(|| Unsupported(format!("there is no GPU at {pci:?}")))
}

/// A target for each GPU.
pub fn targets(inventory: &Inventory) -> Vec<Target> {
    inventory.gpus.iter().map(|gpu| Target::Pci(gpu.function.pci.clone())).collect()
}

/// The node as a target, where it has GPUs.
pub fn node_target(inventory: &Inventory) -> Vec<Target> {
    if inventory.gpus.is_empty() { Vec::new() } else { vec![Target::Node] }
}

/// What a worker that failed says of it: the end of its error output.
pub fn explain(output: &Output) -> Option<String> {
    output.stderr.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_string)
}

/// How a repeated value is told to a person: `4.18 TB/s (median of 12, spread 0.3 %)`.
pub fn words(value: &str, repeats: &Repeats) -> String {
    format!("{value} (median of {}, spread {:.1} %)", repeats.count, repeats.spread * 100.0)
}

/// Bytes per second for a person: `55.4 GB/s`, `4.18 TB/s`.
pub fn bandwidth(bytes_per_second: f64) -> String {
    if bytes_per_second >= 1e12 {
        format!("{:.2} TB/s", bytes_per_second / 1e12)
    } else {
        format!("{:.1} GB/s", bytes_per_second / 1e9)
    }
}
