//! `collectives`: how fast all GPUs of the node exchange data, and whether what they get is right.
//!
//! By NCCL or RCCL, in one process, with sizes and bandwidths as nccl-tests count them.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::{
    Compared, Context, Cost, Finding, Inventory, Memory, MetricKind, MetricSpec, Output, ParseError, Plan,
    Probe, Reading, Resource, Schedule, Scope, Settings, Stage, Target, Unsupported, Use, Verdict,
    compute::{self, CORRUPT_RESULT, Repeats},
    inventory::Gpu,
    settings::CollectivesSettings,
};

pub use op::{ELEMENT, Op, Shape};

mod op;

/// Collectives at a few sizes, or at all.
#[derive(Debug)]
pub struct Collectives {
    extent: Extent,
}

/// At which sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// A small one for latency, and one or a few large ones for bandwidth.
    Few,
    /// Every power of two.
    Sweep,
}

/// `collectives`, which runs by itself.
pub static COLLECTIVES: Collectives = Collectives { extent: Extent::Few };
/// `collectives_sweep`, on demand.
pub static SWEEP: Collectives = Collectives { extent: Extent::Sweep };

/// What the worker exchanges.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Task {
    /// In bytes, as nccl-tests count them, from small to large.
    pub sizes: Vec<usize>,
    /// The size whose latency is told: where it comes to nothing, the least that comes to anything
    /// is exchanged.
    pub latency: Option<usize>,
    /// Up to this size every element is checked, above it stripes are.
    pub whole: usize,
}

/// What one collective at one size gave.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Exchange {
    /// Which.
    pub op: Op,
    /// What was asked for, in bytes.
    pub size: usize,
    /// What that comes to, in bytes: `size` in the output of nccl-tests.
    pub bytes: usize,
    /// Elements, as the call is given them.
    pub count: usize,
    /// How many were made back to back in each repeat.
    pub iterations: u32,
    /// What one took, in seconds.
    pub seconds: Repeats,
    /// `busbw` of nccl-tests, in bytes per second.
    pub bus_bandwidth: Repeats,
    /// Whether what the GPUs got was right.
    pub check: Check,
}

/// A look at the outputs of all GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Check {
    /// Elements that were looked at.
    pub elements: u64,
    /// Elements that all outputs have.
    pub of: u64,
    /// GPUs whose output is wrong.
    pub corrupt: Vec<Corrupt>,
}

/// A GPU's output that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Corrupt {
    /// By PCI address.
    pub gpu: String,
    /// How many elements are wrong.
    pub elements: u64,
    /// Where in the output the first is, in elements.
    pub index: u64,
    /// The bits of the float that is there.
    pub found: u32,
    /// The bits of the float that has to be there.
    pub expected: u32,
}

static BANDWIDTH: MetricSpec = MetricSpec {
    name: "collective_bus_bandwidth_bytes_per_second",
    help: "Bus bandwidth of a collective at the largest size, as nccl-tests define it, in bytes per second, median of the repeats.",
    unit: "bytes_per_second",
    kind: MetricKind::Gauge,
    labels: &["op", "scope"],
};
static LATENCY: MetricSpec = MetricSpec {
    name: "collective_latency_seconds",
    help: "What a collective of a few bytes takes, in seconds, median of the repeats.",
    unit: "seconds",
    kind: MetricKind::Gauge,
    labels: &["op", "scope"],
};
static SWEEP_BANDWIDTH: MetricSpec = MetricSpec {
    name: "collective_sweep_bus_bandwidth_bytes_per_second",
    help: "Bus bandwidth of a collective at a size, as nccl-tests define it, in bytes per second, median of the repeats.",
    unit: "bytes_per_second",
    kind: MetricKind::Gauge,
    labels: &["op", "bytes"],
};
static SWEEP_SECONDS: MetricSpec = MetricSpec {
    name: "collective_sweep_seconds",
    help: "What a collective takes at a size, in seconds, median of the repeats.",
    unit: "seconds",
    kind: MetricKind::Gauge,
    labels: &["op", "bytes"],
};

static FEW: [&MetricSpec; 2] = [&BANDWIDTH, &LATENCY];
static COMPARED: [Compared; 2] = [Compared::more(&BANDWIDTH), Compared::less(&LATENCY)];
static ALL: [&MetricSpec; 2] = [&SWEEP_BANDWIDTH, &SWEEP_SECONDS];

/// The GPUs of this node and no others.
const NODE: &str = "node";

/// What a run takes of each GPU's time, in milliseconds: its start, and each collective at each
/// size.
const START_MILLISECONDS: u32 = 1500;
const EXCHANGE_MILLISECONDS: u32 = 100;

/// Where the library logs, if the operator makes it, line by line: to standard output it would do so
/// in blocks, of which the last is lost with a process that hangs and is ended. Both NCCL and RCCL
/// read it, in src/debug.cc.
const LOG: (&str, &str) = ("NCCL_DEBUG_FILE", "/dev/stderr");

/// The least size of a sweep in bytes: where nccl-tests begin by custom.
const LEAST: usize = 8;

impl Extent {
    fn task(self, settings: &CollectivesSettings) -> Task {
        let whole = settings.bytes.iter().copied().min().unwrap_or_default().max(settings.latency_bytes);
        match self {
            Extent::Few => {
                let mut sizes = settings.bytes.clone();
                sizes.push(settings.latency_bytes);
                sizes.sort_unstable();
                sizes.dedup();
                Task { sizes, latency: Some(settings.latency_bytes), whole }
            }
            Extent::Sweep => {
                let powers = (0..usize::BITS).map(|bit| 1_usize << bit);
                let sizes = powers.filter(|size| (LEAST..=settings.sweep_bytes).contains(size)).collect();
                Task { sizes, latency: None, whole }
            }
        }
    }
}

impl Probe for Collectives {
    fn name(&self) -> &'static str {
        match self.extent {
            Extent::Few => "collectives",
            Extent::Sweep => "collectives_sweep",
        }
    }

    fn summary(&self) -> &'static str {
        match self.extent {
            Extent::Few => {
                "Latency and bus bandwidth of collectives over the node's GPUs, and whether their results are right"
            }
            Extent::Sweep => "Collectives over the node's GPUs at every power of two bytes; on demand",
        }
    }

    fn cost(&self, _: &Settings, _: &Target) -> Cost {
        Cost::Heavy
    }

    fn schedule(&self) -> Schedule {
        match self.extent {
            Extent::Few => Schedule::Interval,
            Extent::Sweep => Schedule::OnDemand,
        }
    }

    fn scope(&self) -> Scope {
        Scope::EachTarget
    }

    fn metrics(&self) -> &'static [&'static MetricSpec] {
        match self.extent {
            Extent::Few => &FEW,
            Extent::Sweep => &ALL,
        }
    }

    fn compared(&self) -> &'static [Compared] {
        match self.extent {
            Extent::Few => &COMPARED,
            Extent::Sweep => &[],
        }
    }

    fn checks_results(&self) -> bool {
        true
    }

    fn targets(&self, inventory: &Inventory, _: &Settings) -> Vec<Target> {
        compute::node_target(inventory)
    }

    fn plan(&self, ctx: &Context<'_>) -> Result<Plan, Unsupported> {
        let gpus: Vec<&Gpu> = ctx.inventory.gpus.iter().collect();
        if gpus.len() < 2 {
            let words = format!("this node has {} GPU, and a collective needs two", gpus.len());
            return Err(Unsupported(words));
        }
        let task = self.extent.task(&ctx.settings.compute.collectives);
        let exchanges = u32::try_from(task.sizes.len() * Op::ALL.len()).unwrap_or(u32::MAX);
        let milliseconds = EXCHANGE_MILLISECONDS.saturating_mul(exchanges).saturating_add(START_MILLISECONDS);
        let mut plan = compute::plan("collectives", ctx, &gpus, milliseconds, task)?;
        plan.uses.push(Use { resource: Resource::Node, amount: 1 });
        for stage in &mut plan.stages {
            if let Stage::Alone(step) = stage
                && step.env.iter().all(|(name, _)| name != LOG.0)
            {
                step.env.push((LOG.0.into(), LOG.1.into()));
            }
        }
        Ok(plan)
    }

    fn explain(&self, output: &Output) -> Option<String> {
        compute::explain(output)
    }

    fn parse(
        &self,
        ctx: &Context<'_>,
        outputs: &[Output],
        _: &mut Memory,
    ) -> Result<Vec<Reading>, ParseError> {
        let answer = compute::read::<Exchange>(outputs)?;
        let settings = &ctx.settings.compute.collectives;
        let largest = settings.bytes.iter().copied().max();
        let mut reading = Reading::of(Target::Node);
        for exchange in &answer.values {
            let (op, seconds) = (exchange.op.name(), exchange.seconds.median);
            let bandwidth = exchange.bus_bandwidth.median;
            match self.extent {
                Extent::Few if exchange.size == settings.latency_bytes => {
                    reading.measure(&LATENCY, [op, NODE], seconds);
                }
                Extent::Few if Some(exchange.size) == largest => {
                    reading.measure(&BANDWIDTH, [op, NODE], bandwidth);
                }
                Extent::Few => {}
                Extent::Sweep => {
                    let bytes = exchange.size.to_string();
                    reading.measure(&SWEEP_BANDWIDTH, [op, &bytes], bandwidth);
                    reading.measure(&SWEEP_SECONDS, [op, &bytes], seconds);
                }
            }
        }
        reading.findings.extend(self.figures(&answer.values, settings.latency_bytes));
        reading.findings.extend(corrupt(&answer.values));
        reading.findings.extend(right(&answer.values));
        answer.close(&mut reading);
        Ok(vec![reading])
    }
}

impl Collectives {
    /// What was measured, in words: all of a few sizes, and of a sweep the best.
    fn figures(&self, exchanges: &[Exchange], latency: usize) -> Option<Finding> {
        let each = Op::ALL.into_iter().filter_map(|op| {
            let mut of_op = exchanges.iter().filter(|exchange| exchange.op == op).peekable();
            of_op.peek()?;
            let words = match self.extent {
                Extent::Few => of_op.map(|exchange| figure(exchange, latency)).collect::<Vec<_>>().join(", "),
                Extent::Sweep => {
                    let by = |a: &&Exchange, b: &&Exchange| {
                        a.bus_bandwidth.median.total_cmp(&b.bus_bandwidth.median)
                    };
                    format!("at most {}", figure(of_op.max_by(by)?, 0))
                }
            };
            Some(format!("{}: {words}", op.name()))
        });
        let found = each.collect::<Vec<_>>().join("; ");
        let finding =
            || Finding::new("collectives", "node", Verdict::Pass, found.clone(), "collectives that end");
        (!found.is_empty()).then(finding)
    }
}

/// `350.1 GB/s at 256 MiB (median of 5, spread 0.1 %)`
fn figure(exchange: &Exchange, latency: usize) -> String {
    let (value, repeats) = if exchange.size == latency {
        (format!("{:.1} µs", exchange.seconds.median * 1e6), &exchange.seconds)
    } else {
        (compute::bandwidth(exchange.bus_bandwidth.median), &exchange.bus_bandwidth)
    };
    compute::words(&format!("{value} at {}", size(exchange.bytes)), repeats)
}

/// `8 B`, `256 MiB`: the largest unit of which it is a whole number.
fn size(bytes: usize) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = units.into_iter().find(|(bits, _)| bytes > 0 && bytes.trailing_zeros() >= *bits);
    whole.map_or_else(|| format!("{bytes} B"), |(bits, unit)| format!("{} {unit}", bytes >> bits))
}

/// A finding for each GPU that got something wrong.
fn corrupt(exchanges: &[Exchange]) -> Vec<Finding> {
    let mut gpus: Vec<&str> = Vec::new();
    for bad in exchanges.iter().flat_map(|exchange| &exchange.check.corrupt) {
        if !gpus.contains(&bad.gpu.as_str()) {
            gpus.push(&bad.gpu);
        }
    }
    let finding = |gpu: &str| {
        let mut found = String::new();
        for exchange in exchanges {
            for bad in exchange.check.corrupt.iter().filter(|bad| bad.gpu == gpu) {
                let between = if found.is_empty() { "" } else { "; " };
                let (got, right) = (f32::from_bits(bad.found), f32::from_bits(bad.expected));
                let _ = write!(
                    found,
                    "{between}{} of {}: {} of this GPU's elements are wrong, the first at {}: {got} (0x{:08x}) for {right} (0x{:08x})",
                    exchange.op.name(),
                    size(exchange.bytes),
                    bad.elements,
                    bad.index,
                    bad.found,
                    bad.expected,
                );
            }
        }
        Finding::new(CORRUPT_RESULT, gpu, Verdict::Fail, found, "the bits that the inputs add up to")
            .because(
                "a GPU, its memory or the link between two GPUs changes data without an error, so what is \
                 computed on this node can't be trusted",
            )
            .try_command("nvidia-smi -q -d ECC,ROW_REMAPPER; amd-smi metric --ecc; dmesg --level=err,warn")
    };
    gpus.into_iter().map(finding).collect()
}

/// How much was looked at, where all of it was right.
fn right(exchanges: &[Exchange]) -> Option<Finding> {
    let sum = |of: fn(&Check) -> u64| exchanges.iter().map(|exchange| of(&exchange.check)).sum::<u64>();
    let (elements, of) = (sum(|check| check.elements), sum(|check| check.of));
    if elements == 0 || exchanges.iter().any(|exchange| !exchange.check.corrupt.is_empty()) {
        return None;
    }
    let found = format!("{elements} of {of} elements were looked at, and are right");
    Some(Finding::new("results", "node", Verdict::Pass, found, "the bits that the inputs add up to"))
}

#[cfg(test)]
mod tests;
