//! Reads every GPU that it is asked for: its PCI device folder and what its driver shows in `/sys`
//! and `/proc`.

use probes::gpu::Gpu;

use super::{Found, Request, each_target};
use crate::sysfs::{Dir, drm, pci};

pub(crate) fn read(request: &Request) -> Found<Gpu> {
    let (sysfs, proc) = (request.roots.sysfs.clone(), request.roots.proc.clone());
    each_target(&request.targets, pci::is_address, move |name, progress| {
        let proc = Dir::at(&proc, progress.clone());
        drm::gpu(&Dir::at(&sysfs, progress), &proc, name)
    })
}

#[cfg(test)]
mod tests;
