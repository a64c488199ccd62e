//! The catalogue: what can be measured on a node, and how each program's output is read.
//!
//! Nothing here waits, spawns, schedules, reads a file or a clock, or exports. A probe turns a
//! [`Context`] into a [`Plan`], and the [`Output`]s of its finished stages into [`Reading`]s; the
//! agent does everything in between. That split is why every parser can be tested against a
//! recorded output, and why no probe can disturb a node by itself.

#![forbid(unsafe_code)]

use std::fmt;

pub mod collectives;
pub mod compared;
pub mod compute;
pub mod config_space;
pub mod counters;
pub mod distance;
mod exec;
pub mod expected;
pub mod gemm;
pub mod gpu;
pub mod hbm;
pub mod host_copy;
pub mod inventory;
pub mod lines;
pub mod loaded;
pub mod lspci;
pub mod nccl_tests;
pub mod nic;
pub mod node;
pub mod p2p;
pub mod partner;
pub mod passive;
pub mod pcie;
pub mod perftest;
pub mod plan;
pub mod rdma;
pub mod read;
pub mod reading;
#[cfg(test)]
mod sample;
pub mod settings;
pub mod target;

pub use compared::{Better, Bound, Compared};
pub use counters::Memory;
pub use inventory::Inventory;
pub use loaded::LoadedLinks;
pub use partner::Partner;
pub use plan::{Output, Plan, Program, Resource, Stage, Step, Use};
pub use reading::{Digest, Finding, Measurement, MetricKind, MetricSpec, Reading, Verdict};
pub use settings::Settings;
pub use target::Target;

/// Every probe, in the order in which the documentation lists them.
pub static PROBES: &[&dyn Probe] = &[
    &node::Node,
    &pcie::Pcie,
    &nic::Nic,
    &gpu::GpuState,
    &gemm::GEMM,
    &gemm::GEMM_SUSTAINED,
    &hbm::Hbm,
    &host_copy::HostCopy,
    &p2p::P2p,
    &collectives::COLLECTIVES,
    &collectives::SWEEP,
    &rdma::bandwidth::WRITE_BW,
    &rdma::bandwidth::READ_BW,
    &rdma::bandwidth::SEND_BW,
    &rdma::latency::Latency,
    &rdma::gdr::Gdr,
    &rdma::loopback::Loopback,
    &exec::Exec,
];

/// Other names of probes, by which people ask for them: `collectives` by the library that it uses.
const OTHER_NAMES: [(&str, &str); 2] = [("nccl", "collectives"), ("rccl", "collectives")];

/// Finds a probe by the name used in configuration, labels and `/probe?test=`, or by another one
/// that people give it.
pub fn find(name: &str) -> Option<&'static dyn Probe> {
    let name = OTHER_NAMES.iter().find(|(other, _)| *other == name).map_or(name, |(_, name)| name);
    PROBES.iter().copied().find(|probe| probe.name() == name)
}

/// Finds a metric by its name without prefix.
pub fn find_metric(name: &str) -> Option<&'static MetricSpec> {
    PROBES.iter().flat_map(|probe| probe.metrics()).copied().find(|metric| metric.name == name)
}

/// One kind of measurement.
///
/// An implementation has no state: two pure functions and some facts.
pub trait Probe: fmt::Debug + Sync {
    /// The stable name: a configuration section, a label value, `/probe?test=`.
    fn name(&self) -> &'static str;

    /// One sentence for `list`, the page and the reference.
    fn summary(&self) -> &'static str;

    /// How much of the node a run disturbs.
    fn cost(&self, settings: &Settings, target: &Target) -> Cost;

    /// Whether it runs by itself, or only when somebody asks.
    fn schedule(&self) -> Schedule {
        Schedule::Interval
    }

    /// Whether one run reads all targets or measures one of them.
    fn scope(&self) -> Scope {
        Scope::AllTargets
    }

    /// The metrics that a completed run yields; the only place where they are named.
    fn metrics(&self) -> &'static [&'static MetricSpec];

    /// Which of them tell how well a part performs.
    fn compared(&self) -> &'static [Compared] {
        &[]
    }

    /// Whether it tells right numbers from wrong ones; how often they were wrong is counted.
    fn checks_results(&self) -> bool {
        false
    }

    /// What this node gives the probe to measure.
    fn targets(&self, inventory: &Inventory, settings: &Settings) -> Vec<Target>;

    /// The stages that measure `ctx.targets`. With a partner that has not been asked yet, only
    /// what the run will use is told.
    ///
    /// # Errors
    ///
    /// When the node can't be measured at all, with the reason and what would change it.
    fn plan(&self, ctx: &Context<'_>) -> Result<Plan, Unsupported>;

    /// What a program that failed says of it, in a short sentence; none if it says nothing.
    fn explain(&self, _: &Output) -> Option<String> {
        None
    }

    /// Reads what the plan's stages printed, one output a stage. `memory` is handed from each run
    /// of a lane to its next one.
    ///
    /// # Errors
    ///
    /// When the output isn't what the program is known to print.
    fn parse(
        &self,
        ctx: &Context<'_>,
        outputs: &[Output],
        memory: &mut Memory,
    ) -> Result<Vec<Reading>, ParseError>;
}

/// What a probe knows when it plans and parses.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// What this run measures. A passive probe gets all of its targets at once.
    pub targets: &'a [Target],
    /// The parts of the node.
    pub inventory: &'a Inventory,
    /// The operator's settings of all probes.
    pub settings: &'a Settings,
    /// How long each step may take.
    pub timeout: std::time::Duration,
    /// Where servers that the plan starts listen; 0 where the plan has none.
    pub port: u16,
    /// The other node; none for probes that need none.
    pub partner: Option<&'a Partner>,
    /// PCIe links as they were while data moved.
    pub loaded: &'a LoadedLinks,
}

/// What one run of a probe covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All targets, with one child: reading state costs little, starting a process does not.
    AllTargets,
    /// One target, by a lane of its own: it uses the target, and perhaps alone.
    EachTarget,
    /// One target and a partner's, in a lease that serves several probes.
    EachPair,
}

/// When a probe runs by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Once in its interval.
    Interval,
    /// Never: only when somebody asks. Such a probe has no series of its own.
    OnDemand,
}

/// How much of the node a run disturbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// Reads state; safe beside a job.
    Passive,
    /// Uses one device or link for seconds.
    Light,
    /// Uses every device of the node, so it overlaps nothing.
    Heavy,
}

impl Cost {
    /// The word used in `list`, the page and the reference.
    pub fn word(self) -> &'static str {
        match self {
            Cost::Passive => "passive",
            Cost::Light => "light",
            Cost::Heavy => "heavy",
        }
    }
}

/// The node can't run this probe at all. It says nothing of the hardware.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub String);

/// The output isn't what the program is known to print.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Something that should be there isn't.
    #[error("no {0} in the output")]
    Missing(&'static str),
    /// A line is not of the expected form.
    #[error("unexpected line {line:?}: {why}")]
    Line {
        /// The line, cut to a length fit for a log.
        line: String,
        /// What is wrong with it.
        why: String,
    },
    /// It is of the program, but not of what was asked for.
    #[error("{0}")]
    Foreign(String),
    /// The program says that this node can't be measured.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}
