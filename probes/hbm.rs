//! `hbm`: how fast a GPU copies within its own memory.

use serde::{Deserialize, Serialize};

use crate::{
    Compared, Context, Cost, Finding, Inventory, Memory, MetricKind, MetricSpec, Output, ParseError, Plan,
    Probe, Reading, Scope, Settings, Target, Unsupported, Verdict,
    compute::{self, Repeats},
};

/// The probe.
#[derive(Debug)]
pub struct Hbm;

/// What the worker copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Task {
    /// In each copy.
    pub bytes: usize,
}

/// What a GPU's copies gave.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Copy {
    /// By PCI address.
    pub gpu: String,
    /// In each copy.
    pub bytes: usize,
    /// Bytes read plus bytes written, per second.
    pub bandwidth: Repeats,
}

static BANDWIDTH: MetricSpec = MetricSpec {
    name: "hbm_bandwidth_bytes_per_second",
    help: "What a copy within the GPU's memory moved, bytes read plus bytes written in bytes per second, median of the repeats.",
    unit: "bytes_per_second",
    kind: MetricKind::Gauge,
    labels: &["gpu"],
};

static METRICS: [&MetricSpec; 1] = [&BANDWIDTH];
static COMPARED: [Compared; 1] = [Compared::more(&BANDWIDTH)];

/// What a run takes of the GPU's time, its start included, in milliseconds.
const MILLISECONDS: u32 = 600;

impl Probe for Hbm {
    fn name(&self) -> &'static str {
        "hbm"
    }

    fn summary(&self) -> &'static str {
        "Bandwidth of a GPU's own memory, by copies within it"
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
        let task = Task { bytes: ctx.settings.compute.hbm_bytes };
        compute::plan("hbm", ctx, &[compute::gpu(ctx)?], MILLISECONDS, task)
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
        let answer = compute::read::<Copy>(outputs)?;
        let target = ctx.targets.first().ok_or(ParseError::Missing("target"))?;
        let mut reading = Reading::of(target.clone());
        for copy in answer.values.iter().filter(|copy| copy.gpu == target.id()) {
            reading.measure(&BANDWIDTH, [&copy.gpu], copy.bandwidth.median);
            let found = compute::words(&compute::bandwidth(copy.bandwidth.median), &copy.bandwidth);
            let expected = "copies that succeed";
            reading.findings.push(Finding::new("copies", &copy.gpu, Verdict::Pass, found, expected));
        }
        answer.close(&mut reading);
        Ok(vec![reading])
    }
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
        Hbm.parse(&ctx, &[output], &mut Memory::default())
    }

    #[test]
    fn what_an_h200_gave_is_read_and_told_with_its_repeats() {
        let reading = parse(include_str!("testdata/hbm/h200.jsonl")).unwrap().remove(0);
        assert_eq!(reading.measurements[0].value, 4_209_563_707_204.14);
        assert_eq!(reading.findings[0].found, "4.21 TB/s (median of 5, spread 0.3 %)");
        assert_eq!(reading.findings[1].found, "libcudart.so.13 runtime 13000, driver 13000");
        assert_eq!(reading.findings[1].verdict, None);
    }

    #[test]
    fn a_call_that_failed_is_a_doubt_and_only_broken_memory_a_fault() {
        let fault = |hardware| {
            format!(
                "{{\"item\":{{\"fault\":{{\"part\":\"0000:00:06.0\",\"call\":\"cudaMalloc of 1024 MiB\",\"error\":\"cudaErrorX (2): x\",\"hardware\":{hardware}}}}}}}\n{{\"end\":{{\"lines\":1}}}}\n"
            )
        };
        for (hardware, verdict) in [(false, Verdict::Unknown), (true, Verdict::Fail)] {
            let reading = parse(&fault(hardware)).unwrap().remove(0);
            assert_eq!(reading.findings[0].verdict, Some(verdict));
            assert_eq!(reading.findings[0].found, "cudaMalloc of 1024 MiB: cudaErrorX (2): x");
        }
    }

    #[test]
    fn a_node_that_cant_be_measured_and_an_answer_that_was_cut_are_told_apart() {
        let unsupported = "{\"unsupported\":{\"reason\":\"no libcudart.so\"}}\n{\"end\":{\"lines\":1}}\n";
        assert_eq!(parse(unsupported), Err(Unsupported("no libcudart.so".into()).into()));
        let whole = include_str!("testdata/hbm/h200.jsonl");
        for end in 0..whole.len() - 1 {
            assert!(parse(&whole[..end]).is_err(), "cut at {end}");
        }
    }
}
