//! `host_copy`: how fast pinned host memory reaches a GPU, and back.
//!
//! While data moves, the GPU's PCIe link can't be asleep: a link that is slow then is slow.

use serde::{Deserialize, Serialize};

use crate::{
    Compared, Context, Cost, Finding, Inventory, Memory, MetricKind, MetricSpec, Output, ParseError, Plan,
    Probe, Reading, Scope, Settings, Target, Unsupported, Verdict,
    compute::{self, Repeats},
    inventory::Link,
};

/// The probe.
#[derive(Debug)]
pub struct HostCopy;

/// What the worker copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Task {
    /// In each copy.
    pub bytes: usize,
}

/// A line of the worker.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// What copies gave.
    Transfer(Transfer),
    /// A PCIe link on the way while they were under way.
    Link {
        /// The GPU or the bridge at its lower end, by PCI address.
        lower: String,
        /// As the kernel tells it.
        link: Link,
    },
}

/// What the copies of one direction gave.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Transfer {
    /// By PCI address.
    pub gpu: String,
    /// Which way.
    pub direction: Direction,
    /// In each copy, and each direction.
    pub bytes: usize,
    /// In bytes per second; of both directions together where both are measured.
    pub bandwidth: Repeats,
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To the GPU.
    HostToDevice,
    /// From the GPU.
    DeviceToHost,
    /// Both at the same time.
    Both,
}

impl Direction {
    /// In the order in which they are measured.
    pub const ALL: [Direction; 3] = [Direction::HostToDevice, Direction::DeviceToHost, Direction::Both];

    /// The label value.
    pub fn word(self) -> &'static str {
        match self {
            Direction::HostToDevice => "host_to_device",
            Direction::DeviceToHost => "device_to_host",
            Direction::Both => "both",
        }
    }
}

static BANDWIDTH: MetricSpec = MetricSpec {
    name: "host_copy_bandwidth_bytes_per_second",
    help: "What copies between pinned host memory and the GPU moved, in bytes per second, median of the repeats: host_to_device, device_to_host, or the sum of both at once.",
    unit: "bytes_per_second",
    kind: MetricKind::Gauge,
    labels: &["gpu", "direction"],
};

static METRICS: [&MetricSpec; 1] = [&BANDWIDTH];
static COMPARED: [Compared; 1] = [Compared::more(&BANDWIDTH)];

/// What a run takes of the GPU's time, its start included, in milliseconds.
const MILLISECONDS: u32 = 1000;

impl Probe for HostCopy {
    fn name(&self) -> &'static str {
        "host_copy"
    }

    fn summary(&self) -> &'static str {
        "Bandwidth between pinned host memory and a GPU, each way and both, and its PCIe link under that load"
    }

    fn cost(&self, _: &Settings, _: &Target) -> Cost {
        Cost::Light
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
        compute::targets(inventory)
    }

    fn plan(&self, ctx: &Context<'_>) -> Result<Plan, Unsupported> {
        let task = Task { bytes: ctx.settings.compute.host_copy_bytes };
        compute::plan("host_copy", ctx, &[compute::gpu(ctx)?], MILLISECONDS, task)
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
        let answer = compute::read::<Told>(outputs)?;
        let target = ctx.targets.first().ok_or(ParseError::Missing("target"))?;
        let mut reading = Reading::of(target.clone());
        let mut words = Vec::new();
        for told in &answer.values {
            match told {
                Told::Transfer(transfer) if transfer.gpu == target.id() => {
                    let (direction, bandwidth) = (transfer.direction.word(), &transfer.bandwidth);
                    reading.measure(&BANDWIDTH, [target.id(), direction], bandwidth.median);
                    let value = compute::bandwidth(bandwidth.median);
                    words.push(format!("{direction} {}", compute::words(&value, bandwidth)));
                }
                Told::Link { lower, link } => {
                    reading.loaded.push((lower.clone(), *link));
                    if lower == target.id() {
                        reading.findings.extend(judge(lower, link));
                    }
                }
                Told::Transfer(_) => {}
            }
        }
        if !words.is_empty() {
            let expected = "copies that succeed";
            let found = words.join("; ");
            reading.findings.insert(0, Finding::new("copies", target.id(), Verdict::Pass, found, expected));
        }
        answer.close(&mut reading);
        Ok(vec![reading])
    }
}

/// A link that moves data is at its full speed and width, or can't reach them.
fn judge(gpu: &str, link: &Link) -> Option<Finding> {
    let (speed, width) = link.speed.zip(link.width)?;
    let (max_speed, max_width) = link.max_speed.zip(link.max_width)?;
    let full = speed >= max_speed && width >= max_width;
    let found = format!("{speed} GT/s x{width} while data moves");
    let expected = format!("{max_speed} GT/s x{max_width}, what the GPU can do");
    let verdict = if full { Verdict::Pass } else { Verdict::Degraded };
    let finding = Finding::new("link_under_load", gpu, verdict, found, expected);
    Some(if full {
        finding
    } else {
        finding
            .because(
                "a link is not asleep while data moves: it, or a bridge above it, is slower than the GPU",
            )
            .try_command(format!("fabricpulse probe pcie --target {gpu}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn parse(stdout: &str) -> Result<Vec<Reading>, ParseError> {
        let targets = [Target::Pci("0000:00:06.0".into())];
        let (inventory, settings) = (Inventory::default(), sample::settings());
        let ctx = sample::context(&targets, &inventory, &settings);
        let output = Output { stdout: stdout.into(), stderr: String::new(), ended_at: 0.0 };
        HostCopy.parse(&ctx, &[output], &mut Memory::default())
    }

    #[test]
    fn what_an_h200_gave_is_read_with_its_link_under_load() {
        let reading = parse(include_str!("testdata/host_copy/h200.jsonl")).unwrap().remove(0);
        let values: Vec<(&str, f64)> = reading
            .measurements
            .iter()
            .map(|m| (m.labels[1].as_str(), (m.value / 1e8).round() / 10.0))
            .collect();
        assert_eq!(values, [("host_to_device", 55.4), ("device_to_host", 55.2), ("both", 101.4)]);
        let words: Vec<&str> = reading.findings.iter().map(|finding| finding.check.as_str()).collect();
        assert_eq!(words, ["copies", "link_under_load", "libraries"]);
        assert_eq!(reading.findings[1].verdict, Some(Verdict::Pass));
    }

    #[test]
    fn a_link_that_is_slow_while_data_moves_is_no_sleeping_one() {
        let whole = include_str!("testdata/host_copy/h200.jsonl");
        let table = [
            ("\"speed\":32.0", "\"speed\":8.0", Some(Verdict::Degraded)),
            ("\"width\":16", "\"width\":8", Some(Verdict::Degraded)),
            ("\"speed\":32.0", "\"speed\":null", None),
        ];
        for (from, to, verdict) in table {
            let reading = parse(&whole.replacen(from, to, 1)).unwrap().remove(0);
            let link = reading.findings.iter().find(|finding| finding.check == "link_under_load");
            assert_eq!(link.and_then(|finding| finding.verdict), verdict, "{to}");
        }
    }
}
