//! `node`: the settings of the node itself that a GPU network needs, and that a reboot, a kernel
//! update or an installer resets without a word.
//!
//! Each check says what was found, what this kind of node should have, why, and what to type. A
//! check that does not fit the node (no GPU, no NIC, a virtual machine) is not applicable, which is
//! not a pass. ACS on the bridges is judged by `pcie`, which knows the way to each device.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Context, Cost, Finding, Inventory, Memory, MetricKind, MetricSpec, Output, ParseError, Plan, Probe,
    Reading, Settings, Target, Unsupported,
    lines::{self, Problem},
    passive,
    plan::only,
};

mod checks;

/// One thing that the worker reads, each by itself, so that a file that blocks hides no other.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// What the machine is.
    About(About),
    /// The kernel's command line.
    CommandLine(String),
    /// NUMA nodes and balancing.
    Numa(Numa),
    /// IOMMUs and what they do.
    Iommu(Iommu),
    /// Kernel modules.
    Modules(Modules),
    /// The soft limit of locked memory of the agent's own process, as `/proc` shows it.
    LockedMemory(Option<String>),
    /// Accounts and groups.
    Access(Access),
    /// CPUs by frequency governor; empty where the kernel does not control frequencies.
    Governors(BTreeMap<String, u32>),
    /// Huge pages of the default size.
    HugePages(Option<u64>),
    /// SELinux's `enforce`; none where it is off.
    Selinux(Option<u32>),
    /// The kernel's clock.
    Clock(Clock),
    /// The largest window into each GPU's memory.
    Bars(Vec<Bar>),
}

/// What the machine is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct About {
    /// `6.8.0-60-generic`
    pub kernel: Option<String>,
    /// `Ubuntu 24.04.2 LTS`
    pub distribution: Option<String>,
    /// The first CPU's name.
    pub cpu_model: Option<String>,
    /// Maker and product of the machine.
    pub product: Option<String>,
    /// The firmware's version.
    pub bios: Option<String>,
    /// A hypervisor is underneath.
    pub virtual_machine: bool,
}

/// NUMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Numa {
    /// Nodes that have CPUs or memory.
    pub nodes: u32,
    /// `kernel.numa_balancing`; none if the kernel was built without it.
    pub balancing: Option<u32>,
}

/// IOMMUs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Iommu {
    /// How many are at work.
    pub units: u32,
    /// The type of each GPU's and NIC's domain by PCI address: `identity`, `DMA`, `DMA-FQ`.
    pub domains: BTreeMap<String, String>,
}

/// Kernel modules.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Modules {
    /// Those of [`MODULES`] that are loaded or built in.
    pub loaded: Vec<String>,
    /// NVIDIA's driver is the open one, which exports memory as dmabuf.
    pub nvidia_open: bool,
}

/// The modules that checks ask for.
pub const MODULES: [&str; 7] =
    ["gdrdrv", "ib_peer_mem", "ip_tables", "nf_tables", "nv_peer_mem", "nvidia_peermem", "amdgpu"];

/// Who may use the GPUs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Access {
    /// The agent's user id.
    pub uid: Option<u32>,
    /// The agent's groups.
    pub gids: Vec<u32>,
    /// Local accounts with their primary group.
    pub accounts: BTreeMap<String, u32>,
    /// Local groups that own GPU devices, where they exist.
    pub groups: BTreeMap<String, Group>,
}

/// The groups that own `/dev/kfd` and `/dev/dri`.
pub const GPU_GROUPS: [&str; 2] = ["render", "video"];

/// A local group.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Group {
    /// Its id.
    pub gid: u32,
    /// The accounts listed in it.
    pub members: Vec<String>,
}

/// The kernel's clock source.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Clock {
    /// `tsc`
    pub current: Option<String>,
    /// All that could be chosen.
    pub available: Vec<String>,
}

/// A window into a GPU's memory.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Bar {
    /// The GPU.
    pub pci: String,
    /// Its largest memory region, in bytes.
    pub largest: u64,
    /// Its memory, in bytes, where the driver tells it.
    pub memory: Option<u64>,
}

/// The probe.
#[derive(Debug)]
pub struct Node;

static CHECK_STATUS: MetricSpec = MetricSpec {
    name: "check_status",
    help: "Result of a check of the node's settings: 0 pass, 1 degraded, 2 fail, 3 unknown. Checks that don't apply have none.",
    unit: "",
    kind: MetricKind::Gauge,
    labels: &["check", "target"],
};
static NODE: MetricSpec = MetricSpec {
    name: "node",
    help: "What the node is.",
    unit: "",
    kind: MetricKind::Info,
    labels: &["kernel", "distribution", "cpu_model", "product", "bios"],
};

static METRICS: &[&MetricSpec] = &[&CHECK_STATUS, &NODE];

impl Probe for Node {
    fn name(&self) -> &'static str {
        "node"
    }

    fn summary(&self) -> &'static str {
        "Settings of the node: NUMA balancing, IOMMU, peer memory, large BAR, limits, groups, governor, clock"
    }

    fn cost(&self, _: &Settings, _: &Target) -> Cost {
        Cost::Passive
    }

    fn metrics(&self) -> &'static [&'static MetricSpec] {
        METRICS
    }

    fn targets(&self, _: &Inventory, _: &Settings) -> Vec<Target> {
        vec![Target::Node]
    }

    fn plan(&self, ctx: &Context<'_>) -> Result<Plan, Unsupported> {
        Ok(passive::plan("node", ctx))
    }

    fn parse(
        &self,
        ctx: &Context<'_>,
        outputs: &[Output],
        _: &mut Memory,
    ) -> Result<Vec<Reading>, ParseError> {
        let answer = lines::read::<Fact>(&only(outputs)?.stdout)?;
        let host = Host::of(answer.items, answer.problems);
        let mut reading = Reading::of(Target::Node);
        if let Some(about) = &host.about {
            let facts = [&about.kernel, &about.distribution, &about.cpu_model, &about.product, &about.bios];
            reading.measure(&NODE, facts.map(|fact| fact.as_deref().unwrap_or_default()), 1.0);
        }
        for finding in checks::all(&host, ctx.inventory, &ctx.settings.node) {
            if let Some(verdict) = finding.verdict {
                reading.measure(&CHECK_STATUS, [&finding.check, &finding.part], f64::from(verdict as u8));
            }
            reading.findings.push(finding);
        }
        Ok(vec![reading])
    }
}

/// What is known of the node; none where the worker could not read it.
#[derive(Debug, Default)]
struct Host {
    about: Option<About>,
    command_line: Option<String>,
    numa: Option<Numa>,
    iommu: Option<Iommu>,
    modules: Option<Modules>,
    locked_memory: Option<Option<String>>,
    access: Option<Access>,
    governors: Option<BTreeMap<String, u32>>,
    huge_pages: Option<Option<u64>>,
    selinux: Option<Option<u32>>,
    clock: Option<Clock>,
    bars: Option<Vec<Bar>>,
    problems: Vec<Problem>,
}

impl Host {
    fn of(facts: Vec<Fact>, problems: Vec<Problem>) -> Host {
        let mut host = Host { problems, ..Host::default() };
        for fact in facts {
            match fact {
                Fact::About(about) => host.about = Some(about),
                Fact::CommandLine(line) => host.command_line = Some(line),
                Fact::Numa(numa) => host.numa = Some(numa),
                Fact::Iommu(iommu) => host.iommu = Some(iommu),
                Fact::Modules(modules) => host.modules = Some(modules),
                Fact::LockedMemory(limit) => host.locked_memory = Some(limit),
                Fact::Access(access) => host.access = Some(access),
                Fact::Governors(governors) => host.governors = Some(governors),
                Fact::HugePages(pages) => host.huge_pages = Some(pages),
                Fact::Selinux(enforce) => host.selinux = Some(enforce),
                Fact::Clock(clock) => host.clock = Some(clock),
                Fact::Bars(bars) => host.bars = Some(bars),
            }
        }
        host
    }
}

/// Which fact a check lacks, by the name that the worker gives it.
#[derive(Clone, Copy, Debug)]
struct Lacks(&'static str);

impl Host {
    /// A check that lacks a fact: why the fact is missing.
    fn unread(&self, check: &str, lacks: Lacks) -> Finding {
        match self.problems.iter().find(|problem| problem.part == lacks.0) {
            Some(problem) => passive::unread(check, lines::NODE, problem),
            None => {
                let found = format!("the worker says nothing of {}", lacks.0);
                Finding::new(check, "node", crate::Verdict::Unknown, found, "an answer")
            }
        }
    }
}

#[cfg(test)]
mod tests;
