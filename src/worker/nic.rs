//! Reads every RDMA device that it is asked for, its ports and counters, and the network interfaces
//! on them.

use probes::nic::Device;

use super::{Found, Request, each_target};
use crate::sysfs::{Dir, rdma};

pub(crate) fn read(request: &Request) -> Found<Device> {
    let root = request.roots.sysfs.clone();
    each_target(&request.targets, is_device, move |name, progress| {
        rdma::device(&Dir::at(&root, progress), name)
    })
}

/// Whether a name can be that of a device, and so is safe as a part of a path.
fn is_device(name: &str) -> bool {
    !["", ".", ".."].contains(&name) && !name.contains('/')
}

#[cfg(test)]
mod tests;
