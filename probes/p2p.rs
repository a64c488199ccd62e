//! `p2p`: how fast each GPU reaches every other one of the node.

use serde::{Deserialize, Serialize};

use crate::{
    Compared, Context, Cost, Finding, Inventory, Memory, MetricKind, MetricSpec, Output, ParseError, Plan,
    Probe, Reading, Resource, Scope, Settings, Target, Unsupported, Use, Verdict,
    compute::{self, Repeats},
    inventory::Gpu,
};

/// The probe.
#[derive(Debug)]
pub struct P2p;

/// What the worker copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Task {
    /// In each copy.
    pub bytes: usize,
}

/// What one GPU's copies to another gave.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Pair {
    /// By PCI address; its copy engines do the work.
    pub src: String,
    /// By PCI address.
    pub dst: String,
    /// Whether the other way was busy too.
    pub way: Way,
    /// In each copy, and each direction.
    pub bytes: usize,
    /// In bytes per second, of both directions together where both are measured. None where the
    /// two have no direct way: through the host it would be another measurement.
    pub bandwidth: Option<Repeats>,
}

/// How many directions at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// From `src` to `dst`.
    One,
    /// Between the two.
    Both,
}

static ONE_WAY: MetricSpec = MetricSpec {
    name: "p2p_bandwidth_bytes_per_second",
    help: "What copies from one GPU's memory to another's moved directly, in bytes per second, median of the repeats.",
    unit: "bytes_per_second",
    kind: MetricKind::Gauge,
    labels: &["src", "dst"],
};
static BOTH_WAYS: MetricSpec = MetricSpec {
    name: "p2p_both_ways_bandwidth_bytes_per_second",
    help: "What copies between two GPUs moved directly, both ways at once, the sum in bytes per second, median of the repeats.",
    unit: "bytes_per_second",
    kind: MetricKind::Gauge,
    labels: &["src", "dst"],
};

static METRICS: [&MetricSpec; 2] = [&ONE_WAY, &BOTH_WAYS];
static COMPARED: [Compared; 2] = [Compared::more(&ONE_WAY), Compared::more(&BOTH_WAYS)];

/// What a run takes of each GPU's time, in milliseconds: its start, and for each partner three
/// series of copies.
const START_MILLISECONDS: u32 = 1500;
const PARTNER_MILLISECONDS: u32 = 250;

impl Probe for P2p {
    fn name(&self) -> &'static str {
        "p2p"
    }

    fn summary(&self) -> &'static str {
        "Bandwidth from each GPU of the node to every other, one way and both"
    }

    fn cost(&self, _: &Settings, _: &Target) -> Cost {
        Cost::Heavy
    }

    fn scope(&self) -> Scope {
        Scope::EachTarget
    }

    fn metrics(&self) -> &'static [&'static MetricSpec] {
        &METRICS
    }

    fn compared(&self) -> &'static [Compared] {
        &COMPARED
    }

    fn targets(&self, inventory: &Inventory, _: &Settings) -> Vec<Target> {
        compute::node_target(inventory)
    }

    fn plan(&self, ctx: &Context<'_>) -> Result<Plan, Unsupported> {
        let gpus: Vec<&Gpu> = ctx.inventory.gpus.iter().collect();
        if gpus.len() < 2 {
            return Err(Unsupported(format!("this node has {} GPU, and a pair needs two", gpus.len())));
        }
        let partners = u32::try_from(gpus.len() - 1).unwrap_or(u32::MAX);
        let milliseconds = PARTNER_MILLISECONDS.saturating_mul(partners).saturating_add(START_MILLISECONDS);
        let task = Task { bytes: ctx.settings.compute.p2p_bytes };
        let mut plan = compute::plan("p2p", ctx, &gpus, milliseconds, task)?;
        plan.uses.push(Use { resource: Resource::Node, amount: 1 });
        Ok(plan)
    }

    fn explain(&self, output: &Output) -> Option<String> {
        compute::explain(output)
    }

    fn parse(&self, _: &Context<'_>, outputs: &[Output], _: &mut Memory) -> Result<Vec<Reading>, ParseError> {
        let answer = compute::read::<Pair>(outputs)?;
        let mut reading = Reading::of(Target::Node);
        for pair in &answer.values {
            let metric = match pair.way {
                Way::One => &ONE_WAY,
                Way::Both => &BOTH_WAYS,
            };
            if let Some(bandwidth) = &pair.bandwidth {
                reading.measure(metric, [&pair.src, &pair.dst], bandwidth.median);
            }
        }
        reading.findings.extend(copies(&answer.values));
        reading.findings.extend(direct(&answer.values));
        answer.close(&mut reading);
        Ok(vec![reading])
    }
}

/// The slowest and the fastest pair.
fn copies(pairs: &[Pair]) -> Option<Finding> {
    let one_way = || pairs.iter().filter(|pair| pair.way == Way::One);
    let mut measured: Vec<(&Pair, &Repeats)> =
        one_way().filter_map(|pair| Some((pair, pair.bandwidth.as_ref()?))).collect();
    measured.sort_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
    let ((slow, least), (_, most)) = (measured.first()?, measured.last()?);
    let slowest = format!("{} to {}", slow.src, slow.dst);
    let found = format!(
        "{} ways, from {} ({slowest}) to {}",
        measured.len(),
        compute::words(&compute::bandwidth(least.median), least),
        compute::bandwidth(most.median)
    );
    Some(Finding::new("copies", "node", Verdict::Pass, found, "copies that succeed"))
}

/// Pairs without a direct way. Where others have one, that is a fault; where none has, the node is
/// built so.
fn direct(pairs: &[Pair]) -> Option<Finding> {
    let ways = || pairs.iter().filter(|pair| pair.way == Way::One);
    let without: Vec<String> = ways()
        .filter(|pair| pair.bandwidth.is_none())
        .map(|pair| format!("{} to {}", pair.src, pair.dst))
        .collect();
    let all = ways().count();
    if without.is_empty() {
        return (all > 0).then(|| {
            Finding::new("peer_access", "node", Verdict::Pass, format!("{all} ways"), "direct ways")
        });
    }
    if without.len() == all {
        let words = "no GPU of this node reaches another one directly, so nothing was measured";
        return Some(Finding::not_applicable("peer_access", "node", words));
    }
    let found = format!("{} of {all} ways are not direct: {}", without.len(), without.join(", "));
    Some(
        Finding::new("peer_access", "node", Verdict::Degraded, found, "direct ways between all GPUs")
            .because(
                "what these GPUs exchange goes through the host, which slows down all that work with them",
            )
            .try_command("nvidia-smi topo -p2p r; amd-smi topology"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn parse(stdout: &str) -> Result<Vec<Reading>, ParseError> {
        let targets = [Target::Node];
        let (inventory, settings) = (Inventory::default(), sample::settings());
        let ctx = sample::context(&targets, &inventory, &settings);
        let output = Output { stdout: stdout.into(), stderr: String::new(), ended_at: 0.0 };
        P2p.parse(&ctx, &[output], &mut Memory::default())
    }

    #[test]
    fn a_pair_without_a_direct_way_is_marked_and_not_measured() {
        let reading = parse(include_str!("testdata/p2p/one-pair-not-direct.jsonl")).unwrap().remove(0);
        let one_way = reading.measurements.iter().filter(|m| m.metric.name == ONE_WAY.name).count();
        assert_eq!((one_way, reading.measurements.len()), (4, 6));
        let found: Vec<(&str, Option<Verdict>, &str)> =
            reading.findings.iter().map(|f| (f.check.as_str(), f.verdict, f.found.as_str())).collect();
        assert_eq!(
            found[..2],
            [
                (
                    "copies",
                    Some(Verdict::Pass),
                    "4 ways, from 24.2 GB/s (median of 6, spread 0.4 %) (0000:15:00.0 to 0000:26:00.0) to 48.3 GB/s"
                ),
                (
                    "peer_access",
                    Some(Verdict::Degraded),
                    "2 of 6 ways are not direct: 0000:05:00.0 to 0000:26:00.0, 0000:26:00.0 to 0000:05:00.0"
                ),
            ]
        );
    }

    #[test]
    fn a_node_whose_gpus_have_no_direct_ways_is_built_so() {
        let whole = include_str!("testdata/p2p/one-pair-not-direct.jsonl");
        let none: Vec<&str> =
            whole.lines().filter(|line| line.contains("library") || line.contains("null")).collect();
        let text = format!("{}\n{{\"end\":{{\"lines\":3}}}}\n", none.join("\n"));
        let reading = parse(&text).unwrap().remove(0);
        assert_eq!(reading.findings[0].check, "peer_access");
        assert_eq!(reading.findings[0].verdict, None);
    }
}
