//! Reads every GPU: its PCI device folder and what its driver shows in `/sys` and `/proc`.

use probes::gpu::Gpu;

use super::{Found, Request, each_part, problem};
use crate::sysfs::{Dir, Progress, drm};

pub(crate) fn read(request: &Request) -> Found<Gpu> {
    let (sysfs, proc) = (request.roots.sysfs.clone(), request.roots.proc.clone());
    let functions = Dir::at(sysfs.join("bus/pci/devices"), Progress::default());
    let mut names = match functions.names() {
        Ok(names) => names,
        Err(error) => return (Vec::new(), vec![problem("node", &error)]),
    };
    names.retain(|name| drm::is_gpu(&functions.dir(name)));
    each_part(names, move |name, progress| {
        let proc = Dir::at(&proc, progress.clone());
        Ok(drm::gpu(&Dir::at(&sysfs, progress), &proc, name))
    })
}

#[cfg(test)]
mod tests;
