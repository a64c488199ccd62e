//! The checks: what is found, what is expected on this kind of node, why, and what to type.

use super::{Access, Bar, GPU_GROUPS, Host, Lacks};
use crate::{
    Finding, Inventory, Verdict,
    inventory::{AMD, NVIDIA},
    settings::NodeSettings,
};

/// A check's findings, or the fact that it lacks.
type Checked = Result<Vec<Finding>, Lacks>;

/// The first kernel whose RDMA core registers memory of other devices as dmabuf.
const DMABUF_KERNEL: (u32, u32) = (5, 12);

/// The window that GPUs have where the firmware grants no large one.
const SMALL_BAR: u64 = 256 << 20;

/// Every check of the node, in the order of the documentation.
pub(super) fn all(host: &Host, inventory: &Inventory, settings: &NodeSettings) -> Vec<Finding> {
    let node = Node { host, inventory, settings };
    let checks: [(&str, Checked); 14] = [
        ("numa_balancing", node.numa_balancing()),
        ("iommu", node.iommu()),
        ("pci_realloc", node.pci_realloc()),
        ("pci_bfsort", node.pci_bfsort()),
        ("peer_memory", node.peer_memory()),
        ("gdrdrv", node.gdrdrv()),
        ("large_bar", node.large_bar()),
        ("locked_memory", node.locked_memory()),
        ("gpu_groups", node.gpu_groups()),
        ("cpu_governor", node.cpu_governor()),
        ("huge_pages", node.huge_pages()),
        ("selinux", node.selinux()),
        ("firewall", node.firewall()),
        ("clock_source", node.clock_source()),
    ];
    let mut findings = Vec::new();
    for (check, checked) in checks {
        if settings.ignore.iter().any(|name| name == check) {
            findings.push(Finding::not_applicable(check, "node", "listed in probe.node.ignore"));
            continue;
        }
        match checked {
            Ok(found) => findings.extend(found),
            Err(lacks) => findings.push(host.unread(check, lacks)),
        }
    }
    findings
}

struct Node<'a> {
    host: &'a Host,
    inventory: &'a Inventory,
    settings: &'a NodeSettings,
}

fn pass(check: &str, found: impl Into<String>, expected: impl Into<String>) -> Vec<Finding> {
    vec![Finding::new(check, "node", Verdict::Pass, found, expected)]
}

fn degraded(
    check: &str,
    found: impl Into<String>,
    expected: impl Into<String>,
    why: &str,
    command: impl Into<String>,
) -> Vec<Finding> {
    vec![Finding::new(check, "node", Verdict::Degraded, found, expected).because(why).try_command(command)]
}

fn skip(check: &str, reason: impl Into<String>) -> Vec<Finding> {
    vec![Finding::not_applicable(check, "node", reason)]
}

/// What to type to change the kernel's command line.
fn kernel_option(option: &str) -> String {
    format!(
        "add {option} to GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub, then update-grub (or grub2-mkconfig) and reboot"
    )
}

impl Node<'_> {
    fn has_gpu(&self) -> bool {
        !self.inventory.gpus.is_empty()
    }

    fn has_gpu_of(&self, vendor: u16) -> bool {
        self.inventory.gpus.iter().any(|gpu| gpu.function.vendor == vendor)
    }

    /// Whether there is RDMA hardware; software devices need nothing of the node.
    fn has_nic(&self) -> bool {
        !self.inventory.nics.is_empty() || self.inventory.rdma.iter().any(|rdma| rdma.pci.is_some())
    }

    fn is_virtual(&self) -> Result<bool, Lacks> {
        Ok(self.host.about.as_ref().ok_or(Lacks("about"))?.virtual_machine)
    }

    fn command_line(&self) -> Result<&str, Lacks> {
        self.host.command_line.as_deref().ok_or(Lacks("command_line"))
    }

    /// Whether the comma-separated option `name` of the command line has this value.
    fn has_option(&self, name: &str, value: &str) -> Result<bool, Lacks> {
        let options = self.command_line()?.split_whitespace().filter_map(|word| word.split_once('='));
        Ok(options
            .filter(|(key, _)| *key == name)
            .any(|(_, values)| values.split(',').any(|one| one == value)))
    }

    fn numa_balancing(&self) -> Checked {
        const CHECK: &str = "numa_balancing";
        let numa = self.host.numa.ok_or(Lacks("numa"))?;
        let Some(value) = numa.balancing else { return Ok(skip(CHECK, "this kernel has no NUMA balancing")) };
        if !self.has_gpu() {
            return Ok(skip(CHECK, "no GPU"));
        }
        if numa.nodes < 2 {
            return Ok(skip(CHECK, "one NUMA node only"));
        }
        Ok(match value {
            0 => pass(CHECK, "0", "0"),
            on => degraded(
                CHECK,
                on.to_string(),
                "0",
                "the kernel unmaps pages to see who uses them, which stalls GPUs and collectives",
                "sysctl -w kernel.numa_balancing=0, and numa_balancing=disable on the kernel's command line to keep it",
            ),
        })
    }

    fn iommu(&self) -> Checked {
        const CHECK: &str = "iommu";
        const EXPECTED: &str = "off, or passing through (iommu=pt)";
        if !self.has_gpu() && !self.has_nic() {
            return Ok(skip(CHECK, "no GPU and no RDMA NIC"));
        }
        if self.is_virtual()? {
            return Ok(skip(CHECK, "a virtual machine: the host's IOMMU counts"));
        }
        let iommu = self.host.iommu.as_ref().ok_or(Lacks("iommu"))?;
        if iommu.units == 0 {
            return Ok(pass(CHECK, "off", EXPECTED));
        }
        if let Some((pci, domain)) = iommu.domains.iter().find(|(_, domain)| *domain != "identity") {
            return Ok(degraded(
                CHECK,
                format!("translating: {pci} is in a domain of type {domain}"),
                EXPECTED,
                "each access of a device to memory is translated, and traffic between devices takes the root complex",
                kernel_option("iommu=pt"),
            ));
        }
        if !iommu.domains.is_empty() {
            return Ok(pass(
                CHECK,
                format!("passing through, for {} devices", iommu.domains.len()),
                EXPECTED,
            ));
        }
        Ok(if self.has_option("iommu", "pt")? || self.has_option("iommu.passthrough", "1")? {
            pass(CHECK, "iommu=pt on the kernel's command line", EXPECTED)
        } else {
            degraded(
                CHECK,
                format!("{} IOMMUs at work, no iommu=pt on the kernel's command line", iommu.units),
                EXPECTED,
                "each access of a device to memory may be translated, and traffic between devices take the root complex",
                kernel_option("iommu=pt"),
            )
        })
    }

    fn pci_realloc(&self) -> Checked {
        const CHECK: &str = "pci_realloc";
        if !self.has_gpu_of(AMD) {
            return Ok(skip(CHECK, "no AMD GPU"));
        }
        if self.is_virtual()? {
            return Ok(skip(CHECK, "a virtual machine: the hypervisor places the devices"));
        }
        Ok(if self.has_option("pci", "realloc=off")? {
            pass(CHECK, "pci=realloc=off", "pci=realloc=off")
        } else {
            degraded(
                CHECK,
                "not on the kernel's command line",
                "pci=realloc=off",
                "the kernel may move the GPUs' memory windows that the firmware placed, and lose some",
                kernel_option("pci=realloc=off"),
            )
        })
    }

    /// Only said, never judged: it changes the order of names, not how anything performs.
    fn pci_bfsort(&self) -> Checked {
        let set = self.has_option("pci", "bfsort")?;
        let is = if set { "is" } else { "is not" };
        Ok(skip(
            "pci_bfsort",
            format!("pci=bfsort {is} set; it orders device names and does not change how they perform"),
        ))
    }

    fn peer_memory(&self) -> Checked {
        const CHECK: &str = "peer_memory";
        if !self.has_gpu() || !self.has_nic() {
            return Ok(skip(CHECK, "it needs a GPU and an RDMA NIC"));
        }
        let modules = self.host.modules.as_ref().ok_or(Lacks("modules"))?;
        let about = self.host.about.as_ref().ok_or(Lacks("about"))?;
        let nvidia = self.has_gpu_of(NVIDIA);
        let wanted: &[&str] = if nvidia { &["nvidia_peermem", "nv_peer_mem"] } else { &["ib_peer_mem"] };
        let expected = format!(
            "{} loaded, or dmabuf (kernel {}.{} or later)",
            wanted[0], DMABUF_KERNEL.0, DMABUF_KERNEL.1
        );
        if let Some(module) =
            wanted.iter().find(|module| modules.loaded.iter().any(|loaded| loaded == *module))
        {
            return Ok(pass(CHECK, format!("{module} is loaded"), expected));
        }
        let kernel = about.kernel.as_deref().unwrap_or("unknown");
        let recent = version(kernel).is_some_and(|version| version >= DMABUF_KERNEL);
        let closed = nvidia && !modules.nvidia_open;
        Ok(if recent && !closed {
            let found = format!(
                "dmabuf, as kernel {kernel} can do if it has CONFIG_PCI_P2PDMA and CONFIG_DMABUF_MOVE_NOTIFY"
            );
            pass(CHECK, found, expected)
        } else {
            let driver = if closed { ", and NVIDIA's driver is not the open one" } else { "" };
            degraded(
                CHECK,
                format!("{} is not loaded, kernel {kernel}{driver}", wanted[0]),
                expected,
                "without it the NIC can't read GPU memory, and all traffic is copied through the host",
                format!("modprobe {0}; echo {0} > /etc/modules-load.d/{0}.conf", wanted[0]),
            )
        })
    }

    fn gdrdrv(&self) -> Checked {
        if !self.has_gpu_of(NVIDIA) {
            return Ok(skip("gdrdrv", "no NVIDIA GPU"));
        }
        let modules = self.host.modules.as_ref().ok_or(Lacks("modules"))?;
        Ok(if modules.loaded.iter().any(|module| module == "gdrdrv") {
            pass("gdrdrv", "loaded", "loaded where UCX or NCCL use GDRCopy")
        } else {
            skip("gdrdrv", "not loaded; only UCX and others that copy small messages with GDRCopy want it")
        })
    }

    fn large_bar(&self) -> Checked {
        const CHECK: &str = "large_bar";
        if !self.has_gpu() {
            return Ok(skip(CHECK, "no GPU"));
        }
        let bars = self.host.bars.as_ref().ok_or(Lacks("bars"))?;
        let unseen = self.inventory.gpus.iter().map(|gpu| gpu.function.pci.as_str());
        let unseen = unseen.filter(|pci| bars.iter().all(|bar| bar.pci != *pci)).map(|pci| {
            let found = "its folder in /sys has no `resource`";
            Finding::new(CHECK, pci, Verdict::Unknown, found, "a memory window")
                .because("what can't be read can't be judged")
                .try_command(format!("lspci -vv -s {pci}"))
        });
        Ok(bars.iter().map(Node::judge_bar).chain(unseen).collect())
    }

    fn judge_bar(bar: &Bar) -> Finding {
        let found = format!("{} MiB", bar.largest >> 20);
        let (whole, expected) = match bar.memory {
            Some(memory) => (bar.largest >= memory, format!("{} MiB, all of its memory", memory >> 20)),
            None => (
                bar.largest > SMALL_BAR,
                format!("more than {} MiB; its memory is not known", SMALL_BAR >> 20),
            ),
        };
        let verdict = if whole { Verdict::Pass } else { Verdict::Degraded };
        Finding::new("large_bar", &bar.pci, verdict, found, expected)
            .because("what does not fit in the window can't be reached by other GPUs and NICs")
            .try_command(format!(
                "lspci -vv -s {}; then enable Above 4G decoding and Resizable BAR in the firmware",
                bar.pci
            ))
    }

    fn locked_memory(&self) -> Checked {
        const CHECK: &str = "locked_memory";
        if !self.has_nic() {
            return Ok(skip(CHECK, "no RDMA NIC"));
        }
        let limit = self.host.locked_memory.as_ref().ok_or(Lacks("locked_memory"))?;
        Ok(match limit.as_deref() {
            None => skip(CHECK, "the kernel does not tell the limits of the agent's process"),
            Some("unlimited") => pass(CHECK, "unlimited, for the agent's own process", "unlimited"),
            Some(limit) => degraded(
                CHECK,
                format!("{limit} bytes, for the agent's own process"),
                "unlimited",
                "RDMA locks the memory that it uses; a lower limit ends in failed registrations",
                "LimitMEMLOCK=infinity in the service; '* soft memlock unlimited' and '* hard memlock unlimited' in /etc/security/limits.d/ for users",
            ),
        })
    }

    fn gpu_groups(&self) -> Checked {
        const CHECK: &str = "gpu_groups";
        if !self.has_gpu_of(AMD) {
            return Ok(skip(CHECK, "no AMD GPU"));
        }
        let access = self.host.access.as_ref().ok_or(Lacks("access"))?;
        let user = self.settings.user.as_deref();
        if access.is_root(user) {
            return Ok(skip(CHECK, "root needs no group"));
        }
        let name = match (user, access.uid) {
            (Some(user), _) => user.to_string(),
            (None, Some(uid)) => format!("the agent's user (id {uid})"),
            (None, None) => return Ok(skip(CHECK, "the kernel does not tell the agent's user")),
        };
        if let Some(user) = user
            && !access.accounts.contains_key(user)
        {
            let found = format!("{user} is no account of this node's /etc/passwd");
            let finding = Finding::new(CHECK, "node", Verdict::Unknown, found, "a local account");
            return Ok(vec![
                finding
                    .because("groups of a directory service can't be seen here")
                    .try_command(format!("id {user}")),
            ]);
        }
        let missing: Vec<&str> =
            GPU_GROUPS.into_iter().filter(|group| !access.is_member(user, group)).collect();
        let expected = GPU_GROUPS.join(", ");
        Ok(if missing.is_empty() {
            pass(CHECK, format!("{name} is in {expected}"), expected)
        } else {
            let who = user.unwrap_or("USER");
            degraded(
                CHECK,
                format!("{name} is not in {}", missing.join(", ")),
                expected,
                "who is not in these groups may not open /dev/kfd and /dev/dri, so GPU programs find no GPU",
                format!("usermod -a -G {} {who}", GPU_GROUPS.join(",")),
            )
        })
    }

    fn cpu_governor(&self) -> Checked {
        const CHECK: &str = "cpu_governor";
        if !self.has_gpu() && !self.has_nic() {
            return Ok(skip(CHECK, "no GPU and no RDMA NIC"));
        }
        let governors = self.host.governors.as_ref().ok_or(Lacks("governors"))?;
        if governors.is_empty() {
            return Ok(skip(CHECK, "the kernel does not control CPU frequencies here"));
        }
        let wanted = self.settings.cpu_governor.as_str();
        let other = governors.iter().filter(|(governor, _)| *governor != wanted);
        let other: Vec<String> =
            other.map(|(governor, count)| format!("{governor} on {count} CPUs")).collect();
        Ok(if other.is_empty() {
            pass(CHECK, wanted, wanted)
        } else {
            degraded(
                CHECK,
                other.join(", "),
                wanted,
                "a CPU that first has to speed up adds latency to every launch and every message",
                format!("cpupower frequency-set -g {wanted}"),
            )
        })
    }

    fn huge_pages(&self) -> Checked {
        const CHECK: &str = "huge_pages";
        let wanted = self.settings.huge_pages;
        if wanted == 0 {
            return Ok(skip(CHECK, "none are asked for in probe.node.huge_pages"));
        }
        let pages = self.host.huge_pages.ok_or(Lacks("huge_pages"))?;
        let found = pages.map_or_else(|| "this kernel has none".to_string(), |pages| pages.to_string());
        let expected = format!("{wanted} or more, by probe.node.huge_pages");
        Ok(if pages.is_some_and(|pages| pages >= wanted) {
            pass(CHECK, found, expected)
        } else {
            let why = "programs that ask for huge pages fail or fall back to small ones";
            degraded(CHECK, found, expected, why, format!("sysctl -w vm.nr_hugepages={wanted}"))
        })
    }

    fn selinux(&self) -> Checked {
        const CHECK: &str = "selinux";
        const EXPECTED: &str = "off or permissive";
        if !self.has_gpu() && !self.has_nic() {
            return Ok(skip(CHECK, "no GPU and no RDMA NIC"));
        }
        Ok(match self.host.selinux.ok_or(Lacks("selinux"))? {
            None => pass(CHECK, "off", EXPECTED),
            Some(0) => pass(CHECK, "permissive", EXPECTED),
            Some(_) => degraded(
                CHECK,
                "enforcing",
                EXPECTED,
                "its policy may deny services and containers the GPU and RDMA devices, and registered memory",
                "setenforce 0, and SELINUX=permissive in /etc/selinux/config",
            ),
        })
    }

    /// Rules can't be read without privilege, so this is a pass only where no filter is loaded, which
    /// distributions do by module.
    fn firewall(&self) -> Checked {
        const CHECK: &str = "firewall";
        if !self.has_nic() {
            return Ok(skip(CHECK, "no RDMA NIC"));
        }
        let modules = self.host.modules.as_ref().ok_or(Lacks("modules"))?;
        let filters = ["nf_tables", "ip_tables"].into_iter();
        let filters: Vec<&str> =
            filters.filter(|name| modules.loaded.iter().any(|module| module == name)).collect();
        Ok(if filters.is_empty() {
            pass(
                CHECK,
                "neither nf_tables nor ip_tables is loaded as a module",
                "none between the nodes of a job",
            )
        } else {
            let loaded = filters.join(", ");
            skip(
                CHECK,
                format!(
                    "{loaded} is loaded, and its rules can't be read without privilege: nft list ruleset"
                ),
            )
        })
    }

    fn clock_source(&self) -> Checked {
        const CHECK: &str = "clock_source";
        if self.is_virtual()? {
            return Ok(skip(CHECK, "a virtual machine: the hypervisor's clock may be the right one"));
        }
        let clock = self.host.clock.as_ref().ok_or(Lacks("clock"))?;
        let Some(current) = &clock.current else {
            return Ok(skip(CHECK, "this kernel does not tell its clock"));
        };
        if current == "tsc" {
            return Ok(pass(CHECK, "tsc", "tsc"));
        }
        if current.starts_with("arch_sys") {
            return Ok(skip(CHECK, "not an x86 CPU"));
        }
        let why = "each look at another clock costs a microsecond and more, in programs that look often";
        let (found, command) = if clock.available.iter().any(|source| source == "tsc") {
            let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
            (format!("{current}, though tsc is available"), format!("echo tsc > {file}"))
        } else {
            (format!("{current}; the kernel holds tsc for unstable"), "dmesg | grep -i tsc".to_string())
        };
        Ok(degraded(CHECK, found, "tsc", why, command))
    }
}

impl Access {
    fn is_root(&self, user: Option<&str>) -> bool {
        user.map_or(self.uid == Some(0), |user| user == "root")
    }

    /// Whether the user, or the agent itself, is in a group.
    fn is_member(&self, user: Option<&str>, group: &str) -> bool {
        let Some(group) = self.groups.get(group) else { return false };
        match user {
            None => self.gids.contains(&group.gid),
            Some(user) => {
                group.members.iter().any(|member| member == user)
                    || self.accounts.get(user) == Some(&group.gid)
            }
        }
    }
}

/// The first two numbers of a kernel's version.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
