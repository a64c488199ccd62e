//! The worker `inventory`: which parts this node has.
//!
//! Ids, class and driver are the kernel's own memory of a function, so they are read for all of
//! them at once. What asks the device itself, its link, is read part by part, and one that hangs is
//! left behind: a device that does not answer keeps its place in the inventory and loses only that.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use probes::{
    Inventory,
    inventory::{Function, Gpu, Link, Nic, Rdma, is_gpu},
    lines::{NODE, Problem},
};

use super::{Found, Request, each_part, problem};
use crate::sysfs::{Dir, Progress, ReadError, host, pci, rdma as ports};

mod models;
mod perftest;

/// What a virtual function has: the way to the function that it is a part of.
const PARENT: &str = "physfn";

pub(crate) fn read(request: &Request) -> Found<Inventory> {
    let sysfs = &request.roots.sysfs;
    let mut problems = Vec::new();
    let mut functions = identities(sysfs, &mut problems);
    let mut rdma = rdma(sysfs, &mut problems);
    wires(sysfs, &mut rdma, &mut problems);
    let mut nics: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for device in &rdma {
        if let Some(pci) = &device.pci {
            nics.entry(pci.clone()).or_default().push(device.name.clone());
        }
    }
    for function in functions.values() {
        if function.driver.as_ref().is_some_and(|driver| request.inventory.nic_drivers.contains(driver)) {
            nics.entry(function.pci.clone()).or_default();
        }
    }
    let gpus: Vec<String> =
        functions.values().filter(|gpu| is_gpu(gpu.vendor, gpu.class)).map(|gpu| gpu.pci.clone()).collect();
    let parts = gpus.iter().chain(nics.keys());
    let bridges: BTreeSet<String> = parts
        .filter_map(|pci| functions.get(pci))
        .flat_map(|function| function.path.iter().cloned())
        .collect();
    let mut known = details(request, gpus.iter().chain(nics.keys()).chain(&bridges), &mut problems);
    let mut take = |pci: &str| -> Option<(Function, Detail)> {
        let detail = known.remove(pci).unwrap_or_default();
        let function = functions.get_mut(pci)?;
        function.numa = detail.numa;
        function.link = detail.link;
        Some((function.clone(), detail))
    };
    let inventory = Inventory {
        gpus: gpus
            .iter()
            .filter_map(|pci| take(pci))
            .map(|(function, detail)| Gpu {
                model: detail
                    .model
                    .or_else(|| models::name(function.vendor, function.device).map(str::to_string)),
                driver_version: detail.driver_version,
                firmware: detail.firmware,
                serial: detail.serial,
                function,
            })
            .collect(),
        nics: nics
            .into_iter()
            .filter_map(|(pci, rdma)| Some((take(&pci)?, rdma)))
            .map(|((function, detail), rdma)| Nic { function, rdma, netdevs: detail.netdevs })
            .collect(),
        rdma,
        bridges: bridges.iter().filter_map(|pci| take(pci)).map(|(function, _)| function).collect(),
        cpus: cpus(sysfs, &mut problems),
        kernel: tried(
            NODE,
            Dir::at(&request.roots.proc, Progress::default()).text("sys/kernel/osrelease"),
            &mut problems,
        ),
        perftest: perftest::find(&request.perftest, &mut problems),
        peer_memory: host::peer_memory(&Dir::at(sysfs, Progress::default())),
    };
    (vec![inventory], problems)
}

/// Every function but virtual ones, by address.
fn identities(sysfs: &Path, problems: &mut Vec<Problem>) -> BTreeMap<String, Function> {
    let devices = pci::devices(sysfs, Progress::default());
    let mut functions = BTreeMap::new();
    for name in listed(&devices, problems).into_iter().filter(|name| pci::is_address(name)) {
        let dir = devices.dir(&name);
        if dir.has(PARENT) {
            continue;
        }
        match pci::identity(&dir) {
            Ok(Some(function)) => {
                functions.insert(name, function);
            }
            Ok(None) => {}
            Err(error) => problems.push(problem(&name, &error)),
        }
    }
    functions
}

/// RDMA devices, but for those of virtual functions.
fn rdma(sysfs: &Path, problems: &mut Vec<Problem>) -> Vec<Rdma> {
    let functions = pci::devices(sysfs, Progress::default());
    let class = Dir::at(sysfs, Progress::default()).dir("class/infiniband");
    let mut found = Vec::new();
    for name in listed(&class, problems) {
        let dir = class.dir(&name);
        let pci = pci::behind(&dir.dir("device")).unwrap_or_else(|error| {
            problems.push(problem(&name, &error));
            None
        });
        if pci.as_ref().is_some_and(|pci| functions.dir(pci).has(PARENT)) {
            continue;
        }
        let mut ports: Vec<u32> =
            names(&dir.dir("ports"), problems).iter().filter_map(|port| port.parse().ok()).collect();
        ports.sort_unstable();
        found.push(Rdma { name, pci, ports, ..Rdma::default() });
    }
    found
}

/// Reads what each device is and what its first port is attached to, which asks its driver.
fn wires(sysfs: &Path, rdma: &mut [Rdma], problems: &mut Vec<Problem>) {
    let first: BTreeMap<String, u32> =
        rdma.iter().filter_map(|rdma| Some((rdma.name.clone(), *rdma.ports.first()?))).collect();
    let root = sysfs.to_path_buf();
    let (found, unread) = each_part(first.keys().cloned().collect(), move |name, progress| {
        let port = first.get(name).copied().unwrap_or(1);
        let sysfs = Dir::at(&root, progress);
        let device = sysfs.dir("class/infiniband").dir(name);
        let mut problems = Vec::new();
        let firmware = tried(name, device.text("fw_ver"), &mut problems);
        let guid = tried(name, device.text("node_guid"), &mut problems);
        Ok((name.to_string(), firmware, guid, ports::wire(&sysfs, name, port), problems))
    });
    problems.extend(unread);
    for (name, firmware, guid, wire, odd) in found {
        problems.extend(odd);
        if let Some(device) = rdma.iter_mut().find(|device| device.name == name) {
            (device.firmware, device.guid, device.wire) = (firmware, guid, Some(wire));
        }
    }
}

/// The CPUs of each NUMA node. Without them programs run on any, which is no reason to stop.
fn cpus(sysfs: &Path, problems: &mut Vec<Problem>) -> BTreeMap<u32, Vec<u32>> {
    host::cpus(&Dir::at(sysfs, Progress::default())).unwrap_or_else(|error| {
        problems.push(problem("cpus", &error));
        BTreeMap::new()
    })
}

/// The names that the inventory is made of. Without them nothing is known of any part, so the
/// problem is the node's: whoever reads it must not take the parts for gone.
fn listed(dir: &Dir, problems: &mut Vec<Problem>) -> Vec<String> {
    dir.names().unwrap_or_else(|error| {
        problems.push(problem(NODE, &error));
        Vec::new()
    })
}

fn names(dir: &Dir, problems: &mut Vec<Problem>) -> Vec<String> {
    dir.names().unwrap_or_else(|error| {
        problems.push(problem(&dir.name(), &error));
        Vec::new()
    })
}

/// What is read of a part in a thread of its own.
#[derive(Debug, Default)]
struct Detail {
    numa: Option<u32>,
    link: Option<Link>,
    model: Option<String>,
    driver_version: Option<String>,
    firmware: Option<String>,
    serial: Option<String>,
    netdevs: Vec<String>,
}

fn details<'a>(
    request: &Request,
    parts: impl Iterator<Item = &'a String>,
    problems: &mut Vec<Problem>,
) -> BTreeMap<String, Detail> {
    let (sysfs, proc) = (request.roots.sysfs.clone(), request.roots.proc.clone());
    let parts: BTreeSet<String> = parts.cloned().collect();
    let (read, unread) = each_part(parts.into_iter().collect(), move |name, progress| {
        let dir = pci::devices(&sysfs, progress.clone()).dir(name);
        let mut problems = Vec::new();
        let proc = Dir::at(&proc, progress.clone());
        let information = Information::of(&proc, name, &mut problems);
        let detail = Detail {
            numa: tried(name, pci::numa(&dir), &mut problems),
            link: tried(name, pci::link(&dir), &mut problems),
            model: tried(name, dir.text("product_name"), &mut problems)
                .filter(|name| !name.is_empty())
                .or_else(|| information.fact("Model")),
            driver_version: dir.link_name("driver").and_then(|driver| {
                let module = Dir::at(&sysfs, progress.clone()).dir("module").dir(&driver);
                tried(name, module.text("version"), &mut problems)
            }),
            firmware: tried(name, dir.text("vbios_version"), &mut problems)
                .or_else(|| information.fact("Video BIOS")),
            serial: tried(name, dir.text("unique_id"), &mut problems)
                .or_else(|| information.fact("GPU UUID")),
            netdevs: netdevs(&dir, &mut problems),
        };
        Ok((name.to_string(), detail, problems))
    });
    problems.extend(unread);
    let mut details = BTreeMap::new();
    for (name, detail, found) in read {
        problems.extend(found);
        details.insert(name, detail);
    }
    details
}

/// A value, or none and a problem: one odd file leaves the others alone.
fn tried<T>(part: &str, value: Result<Option<T>, ReadError>, problems: &mut Vec<Problem>) -> Option<T> {
    value.unwrap_or_else(|error| {
        problems.push(problem(part, &error));
        None
    })
}

/// What NVIDIA's driver says of a GPU below `/proc`.
struct Information(Option<String>);

impl Information {
    fn of(proc: &Dir, pci: &str, problems: &mut Vec<Problem>) -> Information {
        Information(tried(pci, proc.dir("driver/nvidia/gpus").dir(pci).text("information"), problems))
    }

    /// A fact; none where the driver does not know it yet, which it says with question marks.
    fn fact(&self, key: &str) -> Option<String> {
        let line = |line: &str| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim().to_string());
        let value = self.0.as_deref()?.lines().find_map(line)?;
        (!value.is_empty() && !value.contains('?') && value != "Unknown").then_some(value)
    }
}

/// The network interfaces of a function, which virtio puts one folder further down.
fn netdevs(dir: &Dir, problems: &mut Vec<Problem>) -> Vec<String> {
    let below = names(dir, problems).into_iter().filter(|name| name.starts_with("virtio"));
    let folders: Vec<Dir> = below.map(|name| dir.dir(&name).dir("net")).chain([dir.dir("net")]).collect();
    let mut found: Vec<String> = folders.iter().flat_map(|folder| names(folder, problems)).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests;
