//! The kernel's own files about the node: each function reads one fact of [`probes::node`].

use std::collections::BTreeMap;

use probes::{
    node::{About, Access, Bar, Clock, GPU_GROUPS, Group, Iommu, MODULES, Modules, Numa},
    rdma::gpu::{AMD_PEER_MEMORY, NVIDIA_PEER_MEMORY},
};

use super::{Dir, ReadError, drm};

/// How much of `/proc/cpuinfo` is read: its first CPU says all that is asked, and the kernel makes
/// the text of hundreds of others only when somebody reads on.
const FIRST_CPU: usize = 8192;

/// The kernel's files.
#[derive(Clone, Debug)]
pub(crate) struct Roots {
    pub(crate) sysfs: Dir,
    pub(crate) proc: Dir,
    pub(crate) etc: Dir,
}

type Read<T> = Result<T, ReadError>;

impl Roots {
    pub(crate) fn about(&self) -> Read<About> {
        let cpu = self.proc.head("cpuinfo", FIRST_CPU)?.unwrap_or_default();
        let of_cpu = |wanted: &str| {
            let mut lines = cpu.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(key, _)| key.trim() == wanted).map(|(_, value)| value.trim().to_string())
        };
        let release = self.etc.text("os-release")?.unwrap_or_default();
        let distribution = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        let dmi = self.sysfs.dir("class/dmi/id");
        let maker = dmi.text("sys_vendor")?;
        Ok(About {
            kernel: self.proc.text("sys/kernel/osrelease")?,
            distribution: distribution.map(|name| name.trim_matches('"').to_string()),
            cpu_model: of_cpu("model name"),
            product: dmi.text("product_name")?.map(|name| match maker {
                Some(maker) => format!("{maker} {name}"),
                None => name,
            }),
            bios: dmi.text("bios_version")?,
            virtual_machine: of_cpu("flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        })
    }

    pub(crate) fn command_line(&self) -> Read<String> {
        Ok(self.proc.text("cmdline")?.unwrap_or_default())
    }

    pub(crate) fn numa(&self) -> Read<Numa> {
        let names = self.sysfs.dir("devices/system/node").names()?;
        let is_node =
            |name: &&String| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok());
        let nodes = u32::try_from(names.iter().filter(is_node).count()).unwrap_or(u32::MAX);
        Ok(Numa { nodes, balancing: self.proc.number("sys/kernel/numa_balancing")? })
    }

    pub(crate) fn iommu(&self) -> Read<Iommu> {
        let units = self.sysfs.dir("class/iommu").names()?.len();
        let functions = self.sysfs.dir("bus/pci/devices");
        let mut domains = BTreeMap::new();
        for pci in functions.names()? {
            let function = functions.dir(&pci);
            if !drm::is_gpu(&function)? && !function.has("infiniband") {
                continue;
            }
            if let Some(domain) = function.dir("iommu_group").text("type")? {
                domains.insert(pci, domain);
            }
        }
        Ok(Iommu { units: u32::try_from(units).unwrap_or(u32::MAX), domains })
    }

    pub(crate) fn modules(&self) -> Read<Modules> {
        let folder = self.sysfs.dir("module");
        let loaded = MODULES.into_iter().filter(|name| folder.has(name)).map(str::to_string).collect();
        let nvidia = self.proc.text("driver/nvidia/version")?;
        Ok(Modules { loaded, nvidia_open: nvidia.is_some_and(|text| text.contains("Open Kernel Module")) })
    }

    /// The soft limit, which follows the name in a table of fixed columns.
    pub(crate) fn locked_memory(&self) -> Read<Option<String>> {
        let limits = self.proc.text("self/limits")?.unwrap_or_default();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
        Ok(line.and_then(|line| line.split_whitespace().next()).map(str::to_string))
    }

    pub(crate) fn access(&self) -> Read<Access> {
        let status = self.proc.text("self/status")?.unwrap_or_default();
        let numbers = |key: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect()
        };
        let effective = |key: &str| numbers(key).get(1).copied();
        let mut access = Access { uid: effective("Uid:"), gids: numbers("Groups:"), ..Access::default() };
        access.gids.extend(effective("Gid:"));
        for line in self.etc.text("passwd")?.unwrap_or_default().lines() {
            let fields: Vec<&str> = line.split(':').collect();
            if let [name, _, _, gid, ..] = fields[..]
                && let Ok(gid) = gid.parse()
            {
                access.accounts.insert(name.to_string(), gid);
            }
        }
        for line in self.etc.text("group")?.unwrap_or_default().lines() {
            let fields: Vec<&str> = line.split(':').collect();
            if let [name, _, gid, members] = fields[..]
                && GPU_GROUPS.contains(&name)
                && let Ok(gid) = gid.parse()
            {
                let members =
                    members.split(',').filter(|member| !member.is_empty()).map(str::to_string).collect();
                access.groups.insert(name.to_string(), Group { gid, members });
            }
        }
        Ok(access)
    }

    /// CPUs by governor. A policy covers several CPUs where they share a clock.
    pub(crate) fn governors(&self) -> Read<BTreeMap<String, u32>> {
        let policies = self.sysfs.dir("devices/system/cpu/cpufreq");
        let mut governors = BTreeMap::new();
        for name in policies.names()?.iter().filter(|name| name.starts_with("policy")) {
            let policy = policies.dir(name);
            let Some(governor) = policy.text("scaling_governor")? else { continue };
            let cpus = policy.text("affected_cpus")?.map_or(1, |cpus| cpus.split_whitespace().count());
            *governors.entry(governor).or_insert(0) += u32::try_from(cpus).unwrap_or(u32::MAX);
        }
        Ok(governors)
    }

    pub(crate) fn huge_pages(&self) -> Read<Option<u64>> {
        self.proc.number("sys/vm/nr_hugepages")
    }

    pub(crate) fn selinux(&self) -> Read<Option<u32>> {
        self.sysfs.dir("fs/selinux").number("enforce")
    }

    pub(crate) fn clock(&self) -> Read<Clock> {
        let source = self.sysfs.dir("devices/system/clocksource/clocksource0");
        let available = source.text("available_clocksource")?.unwrap_or_default();
        Ok(Clock {
            current: source.text("current_clocksource")?,
            available: available.split_whitespace().map(str::to_string).collect(),
        })
    }

    pub(crate) fn bars(&self) -> Read<Vec<Bar>> {
        let functions = self.sysfs.dir("bus/pci/devices");
        let mut bars = Vec::new();
        for pci in functions.names()? {
            let function = functions.dir(&pci);
            if !drm::is_gpu(&function)? {
                continue;
            }
            let Some(text) = function.text("resource")? else { continue };
            // Its memory only sharpens the check, so a driver that can't tell it hides no GPU.
            let memory = function.number("mem_info_vram_total").ok().flatten();
            bars.push(Bar { pci, largest: largest_region(&text), memory });
        }
        Ok(bars)
    }
}

/// The CPUs of each NUMA node that are online.
pub(crate) fn cpus(sysfs: &Dir) -> Read<BTreeMap<u32, Vec<u32>>> {
    let nodes = sysfs.dir("devices/system/node");
    let mut cpus = BTreeMap::new();
    for name in nodes.names()? {
        let Some(number) = name.strip_prefix("node").and_then(|number| number.parse().ok()) else { continue };
        if let Some(list) = nodes.dir(&name).text("cpulist")? {
            cpus.insert(number, cpu_list(&list));
        }
    }
    Ok(cpus)
}

/// CPUs as the kernel lists them: `0-47,96-143`.
fn cpu_list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// What lets NICs reach GPU memory without dmabuf, as far as it is loaded.
pub(crate) fn peer_memory(sysfs: &Dir) -> Vec<String> {
    // Modules, and drivers that registered with the RDMA stack.
    let places = [sysfs.dir("module"), sysfs.dir("kernel/mm/memory_peers")];
    let names = NVIDIA_PEER_MEMORY.iter().chain(AMD_PEER_MEMORY);
    names.filter(|name| places.iter().any(|dir| dir.has(name))).map(ToString::to_string).collect()
}

/// The largest of the six regions in a `resource` file: start, end and flags, one region a line.
fn largest_region(text: &str) -> u64 {
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let size = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = (hex(words.next()?)?, hex(words.next()?)?);
        (end > start).then(|| end - start + 1)
    };
    text.lines().take(6).filter_map(size).max().unwrap_or(0)
}
