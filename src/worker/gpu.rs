//! Reads every GPU that it is asked for: its PCI device folder, what its driver shows in `/sys`
//! and `/proc`, and what NVML tells of those that NVIDIA's driver drives.

use std::{path::Path, time::Duration};

use probes::gpu::Gpu;

use super::{Found, PARTS_DEADLINE, Request, each_target_within, nvml::Session};
use crate::sysfs::{Dir, Progress, ReadError, drm, pci};

/// NVIDIA's driver.
const NVIDIA: &str = "nvidia";

/// How long all GPUs together may take where NVML is asked. Without persistence mode the driver
/// starts each GPU for the question, which takes a second or two. The agent waits for 10 s.
const NVML_DEADLINE: Duration = Duration::from_secs(8);

pub(crate) fn read(request: &Request) -> Found<Gpu> {
    let (sysfs, proc) = (request.roots.sysfs.clone(), request.roots.proc.clone());
    let devices = Dir::at(&sysfs, Progress::default()).dir("bus/pci/devices");
    let is_nvidias = |name: &String| {
        pci::is_address(name) && devices.dir(name).link_name("driver").as_deref() == Some(NVIDIA)
    };
    let deadline = if request.targets.iter().any(is_nvidias) { NVML_DEADLINE } else { PARTS_DEADLINE };
    let nvml = Session::new(&request.roots, &request.libraries);
    each_target_within(deadline, &request.targets, pci::is_address, move |name, progress| {
        look(&sysfs, &proc, &nvml, name, &progress)
    })
}

/// Reads one GPU; none where there is none.
pub(super) fn look(
    sysfs: &Path,
    proc: &Path,
    nvml: &Session,
    name: &str,
    progress: &Progress,
) -> Result<Option<Gpu>, ReadError> {
    let (sysfs, proc) = (Dir::at(sysfs, progress.clone()), Dir::at(proc, progress.clone()));
    let mut gpu = drm::gpu(&sysfs, &proc, name)?;
    if let Some(gpu) = gpu.as_mut().filter(|gpu| gpu.driver.as_deref() == Some(NVIDIA)) {
        nvml.complete(gpu, progress);
    }
    Ok(gpu)
}

#[cfg(test)]
mod tests;
