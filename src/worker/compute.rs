//! The workers that make GPUs compute and copy.
//!
//! Each reads one [`Request`], loads the vendor's libraries, and prints what it measured as soon as
//! it knows it. Only the GPUs that it is asked for are visible to it: a process that sees one GPU
//! of eight starts in a fraction of the time, and leaves the others alone.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use device::Device;
use probes::{
    compute::{self, Fault, Item, Request, Vendor},
    lines::Line,
    settings::Roots,
};
use runtime::Runtime;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    library::{Library, LibraryError, Search},
    limits,
};
use crate::sysfs::{Dir, Progress, pci};

mod collectives;
mod device;
mod effort;
mod functions;
mod gemm;
mod hbm;
#[cfg(test)]
mod headers;
mod host_copy;
mod nccl;
mod p2p;
mod runtime;

/// Why a worker stops.
#[derive(Debug)]
pub(super) enum Stop {
    /// This node can't be measured.
    Unsupported(String),
    /// A call failed.
    Fault(Fault),
    /// Nobody reads what is printed.
    Output(io::Error),
}

impl From<LibraryError> for Stop {
    fn from(error: LibraryError) -> Stop {
        Stop::Unsupported(error.to_string())
    }
}

/// Runs the worker `name`, if there is one of this name. One that has given its answer does not
/// return.
pub(super) fn main(name: &str, request: &str, started: Instant) -> Option<anyhow::Result<()>> {
    // An agent that is killed can end nobody, and a GPU that hangs would keep its worker for ever.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let done = match name {
        "collectives" => answer(request, started, nccl::names, collectives::measure),
        "gemm" => answer(request, started, gemm::lt::names, gemm::measure),
        "hbm" => answer(request, started, no_more, hbm::measure),
        "host_copy" => answer(request, started, no_more, host_copy::measure),
        "p2p" => answer(request, started, no_more, p2p::measure),
        _ => return None,
    };
    if done.is_ok() {
        leave();
    }
    Some(done)
}

/// Ends the process at once: what the libraries do at its end waits for GPUs, and one that hangs
/// never answers. The driver takes back all that the process had.
fn leave() -> ! {
    #[expect(unsafe_code, reason = "the C library's own functions")]
    // SAFETY: both are of the C library, with its signatures; `fflush` of none writes what the
    // libraries have printed.
    unsafe {
        unsafe extern "C" {
            fn fflush(stream: *mut std::ffi::c_void) -> std::ffi::c_int;
            fn _exit(status: std::ffi::c_int) -> !;
        }
        fflush(std::ptr::null_mut());
        _exit(0)
    }
}

/// What a measurement is given.
struct Bench<'r> {
    runtime: &'r Runtime,
    devices: Vec<Device<'r>>,
    search: &'r Search,
    libraries: &'r [PathBuf],
    roots: &'r Roots,
    sysfs: Dir,
    vendor: Vendor,
    deadline: Instant,
}

/// What a measurement gives, value by value.
struct Out<V> {
    to: File,
    lines: usize,
    values: std::marker::PhantomData<V>,
}

impl<V: Serialize> Out<V> {
    fn value(&mut self, value: V) -> Result<(), Stop> {
        self.line(&Line::Item(Item::Value(value)))
    }

    fn library(&mut self, library: compute::Library) -> Result<(), Stop> {
        self.line(&Line::Item(Item::Library(library)))
    }

    fn fault(&mut self, fault: Fault) -> Result<(), Stop> {
        self.line(&Line::Item(Item::Fault(fault)))
    }

    fn line(&mut self, line: &Line<Item<V>>) -> Result<(), Stop> {
        let mut text = serde_json::to_vec(line).map_err(|error| Stop::Output(error.into()))?;
        text.push(b'\n');
        self.to.write_all(&text).map_err(Stop::Output)?;
        self.lines += 1;
        Ok(())
    }
}

/// Standard output for the worker's own lines. Libraries print there too: NCCL does so for
/// `NCCL_DEBUG=VERSION`, whatever `NCCL_DEBUG_FILE` says. From here on that goes to standard error.
fn own_output() -> io::Result<File> {
    let own = rustix::io::dup(io::stdout())?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(File::from(own))
}

/// The names of the library that a measurement needs beside the runtime.
type Names = fn(Vendor) -> &'static [&'static str];

fn no_more(_: Vendor) -> &'static [&'static str] {
    &[]
}

fn answer<T: DeserializeOwned, V: Serialize>(
    request: &str,
    started: Instant,
    more: Names,
    measure: impl FnOnce(&Bench<'_>, &T, &mut Out<V>) -> Result<(), Stop>,
) -> anyhow::Result<()> {
    let request: Request<T> = serde_json::from_str(request).context("the request on standard input")?;
    let to = own_output().context("standard output")?;
    let mut out = Out { to, lines: 0, values: std::marker::PhantomData };
    let done = prepare(&request, started, more, &mut out, measure);
    let told = match done {
        Ok(()) => Ok(()),
        Err(Stop::Unsupported(reason)) => out.line(&Line::Unsupported { reason }),
        Err(Stop::Fault(fault)) => out.fault(fault),
        Err(stop @ Stop::Output(_)) => Err(stop),
    };
    let lines = out.lines;
    match told.and_then(|()| out.line(&Line::End { lines })) {
        Err(Stop::Output(error)) => Err(error).context("standard output"),
        Ok(()) | Err(Stop::Unsupported(_) | Stop::Fault(_)) => Ok(()),
    }
}

fn prepare<T, V: Serialize>(
    request: &Request<T>,
    started: Instant,
    more: Names,
    out: &mut Out<V>,
    measure: impl FnOnce(&Bench<'_>, &T, &mut Out<V>) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let sysfs = Dir::at(&request.roots.sysfs, Progress::default());
    for pci in &request.gpus {
        if !pci::is_address(pci) {
            return Err(Stop::Unsupported(format!("{pci:?} is not a PCI address")));
        }
        if let Some(partition) = partition(&sysfs, pci) {
            return Err(Stop::Unsupported(format!("partitioned: {pci} is in mode {partition}")));
        }
    }
    limits::keep_on(&request.cpus);
    show_only(request, &sysfs);
    let search = runtime::search(request.vendor, &request.libraries);
    // The driver takes a while to start: the other library is brought in beside that. Whether it
    // could be is told to whoever needs it.
    let (names, ahead) = (more(request.vendor), search.clone());
    thread::spawn(move || (!names.is_empty()).then(|| ahead.open(names).map(Library::keep)));
    let (runtime, library) = Runtime::load(request.vendor, &search)?;
    out.library(library)?;
    let seen = runtime.devices()?;
    let devices = request.gpus.iter().map(|pci| {
        let found = seen.iter().find(|(_, address)| address == pci);
        let (index, _) = found.ok_or_else(|| {
            let seen: Vec<&str> = seen.iter().map(|(_, address)| address.as_str()).collect();
            Stop::Unsupported(format!("the driver's library does not see {pci}, only {seen:?}"))
        })?;
        Ok(Device::new(&runtime, *index, pci.clone()))
    });
    let bench = Bench {
        devices: devices.collect::<Result<_, Stop>>()?,
        runtime: &runtime,
        search: &search,
        libraries: &request.libraries,
        roots: &request.roots,
        sysfs,
        vendor: request.vendor,
        deadline: started + Duration::from_secs_f64(request.seconds),
    };
    measure(&bench, &request.task, out)
}

/// The mode of a GPU that is cut into several: figures of a part of it mean something else.
fn partition(sysfs: &Dir, pci: &str) -> Option<String> {
    let mode = sysfs.dir("bus/pci/devices").dir(pci).text("current_compute_partition").ok()??;
    (mode != "SPX").then_some(mode)
}

/// Makes the process see the GPUs that it is asked for and no others, where their own names can be
/// read. Where they can't, it sees all, and finds its own by PCI address.
fn show_only<T>(request: &Request<T>, sysfs: &Dir) {
    let names = request.gpus.iter().map(|pci| match request.vendor {
        Vendor::Amd => {
            let id = sysfs.dir("bus/pci/devices").dir(pci).text("unique_id").ok()??;
            Some(format!("GPU-{}", id.trim_start_matches("0x")))
        }
        Vendor::Nvidia => {
            let file = request.roots.proc.join("driver/nvidia/gpus").join(pci).join("information");
            let text = fs::read_to_string(file).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("GPU UUID:"))?;
            Some(line.trim().to_string()).filter(|uuid| uuid.starts_with("GPU-") && !uuid.contains('?'))
        }
    });
    let Some(names) = names.collect::<Option<Vec<String>>>() else { return };
    let variable = match request.vendor {
        Vendor::Amd => "ROCR_VISIBLE_DEVICES",
        Vendor::Nvidia => "CUDA_VISIBLE_DEVICES",
    };
    #[expect(unsafe_code, reason = "the libraries read it from the environment")]
    // SAFETY: the worker has one thread, and has not loaded a library yet.
    unsafe {
        std::env::set_var(variable, names.join(","));
    }
}
