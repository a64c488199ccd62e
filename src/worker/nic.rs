//! Reads every RDMA device, its ports and counters, and the network interfaces on them.

use probes::nic::Device;

use super::{Found, Request, each_part, problem};
use crate::sysfs::{Dir, Progress, rdma};

pub(crate) fn read(request: &Request) -> Found<Device> {
    let root = request.roots.sysfs.clone();
    let class = Dir::at(root.join("class/infiniband"), Progress::default());
    let names = match class.names() {
        Ok(names) => names,
        Err(error) => return (Vec::new(), vec![problem("node", &error)]),
    };
    each_part(names, move |name, progress| Ok(rdma::device(&Dir::at(&root, progress), name)))
}

#[cfg(test)]
mod tests;
