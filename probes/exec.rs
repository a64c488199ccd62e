//! `exec`: the operator's own commands, which print values and findings as JSON lines.
//!
//! ```text
//! {"value":{"name":"spare_disks","value":2}}
//! {"finding":{"check":"raid","verdict":"degraded","found":"2 of 4 spares","expected":"4 spares","why":"","command":"cat /proc/mdstat"}}
//! {"end":{}}
//! ```
//!
//! The closing line tells a whole answer from one that was cut; without a finding a command says
//! nothing of the hardware, and its verdict is unknown.

use serde::Deserialize;

use crate::{
    Context, Cost, Finding, Inventory, Measurement, Memory, MetricKind, MetricSpec, Output, ParseError, Plan,
    Probe, Program, Reading, Resource, Scope, Settings, Step, Target, Unsupported, Use, Verdict, plan::only,
    settings::ExecCheck,
};

/// Values that all checks together may export; more are an error, since series must stay bounded.
const MAX_VALUES: usize = 50;

/// Findings that one check may print.
const MAX_FINDINGS: usize = 20;

/// The operator's own commands.
#[derive(Debug)]
pub(crate) struct Exec;

static VALUE: MetricSpec = MetricSpec {
    name: "exec_value",
    help: "A value printed by one of the operator's own commands, in that command's unit.",
    unit: "",
    kind: MetricKind::Gauge,
    labels: &["check", "name"],
};

static METRICS: [&MetricSpec; 1] = [&VALUE];

impl Probe for Exec {
    fn name(&self) -> &'static str {
        "exec"
    }

    fn summary(&self) -> &'static str {
        "The operator's own commands: their values and what they say of the node"
    }

    fn cost(&self, settings: &Settings, target: &Target) -> Cost {
        find(settings, target).map_or(Cost::Passive, |check| check.cost)
    }

    fn scope(&self) -> Scope {
        Scope::EachTarget
    }

    fn metrics(&self) -> &'static [&'static MetricSpec] {
        &METRICS
    }

    fn targets(&self, _: &Inventory, settings: &Settings) -> Vec<Target> {
        settings.exec.iter().map(|check| Target::Check(check.name.clone())).collect()
    }

    fn plan(&self, ctx: &Context<'_>) -> Result<Plan, Unsupported> {
        let check = ctx.targets.first().and_then(|target| find(ctx.settings, target));
        let check = check.ok_or_else(|| Unsupported("no [[probe.exec.check]] has this name".into()))?;
        let step = Step {
            program: Program::Command(check.argv.clone()),
            env: Vec::new(),
            stdin: String::new(),
            deadline: check.timeout,
            cpus: Vec::new(),
        };
        Ok(Plan { uses: uses(check, ctx.inventory), ..Plan::alone(step) })
    }

    fn parse(
        &self,
        ctx: &Context<'_>,
        outputs: &[Output],
        _: &mut Memory,
    ) -> Result<Vec<Reading>, ParseError> {
        let target = ctx.targets.first().ok_or(ParseError::Missing("target"))?;
        let mut reading = Reading::of(target.clone());
        let mut closed = false;
        let most = (MAX_VALUES / ctx.settings.exec.len().max(1)).max(1);
        for line in only(outputs)?.stdout.lines().filter(|line| !line.trim().is_empty()) {
            let wrong = |why: String| ParseError::Line { line: line.chars().take(200).collect(), why };
            if closed {
                return Err(wrong("it follows the closing line".into()));
            }
            match serde_json::from_str(line).map_err(|error| wrong(error.to_string()))? {
                Line::Value { name, value } => {
                    if reading.measurements.iter().any(|told| told.labels.last() == Some(&name)) {
                        return Err(wrong(format!("the value {name:?} was printed before")));
                    }
                    reading.measurements.push(Measurement {
                        metric: &VALUE,
                        labels: vec![target.id().into(), name],
                        value,
                    });
                }
                Line::Finding { check, verdict, found, expected, why, command } => reading.findings.push(
                    Finding::new(&check, target.id(), verdict, found, expected)
                        .because(why)
                        .try_command(command),
                ),
                Line::End {} => closed = true,
            }
            if reading.measurements.len() > most {
                return Err(wrong(format!(
                    "it is one value more than the {most} that each check may export, {MAX_VALUES} in all"
                )));
            }
            if reading.findings.len() > MAX_FINDINGS {
                return Err(wrong(format!("it is one finding more than the {MAX_FINDINGS} of a check")));
            }
        }
        if closed { Ok(vec![reading]) } else { Err(ParseError::Missing("closing line {\"end\":{}}")) }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    Value {
        name: String,
        value: f64,
    },
    Finding {
        check: String,
        verdict: Verdict,
        found: String,
        #[serde(default)]
        expected: String,
        #[serde(default)]
        why: String,
        #[serde(default)]
        command: String,
    },
    End {},
}

fn find<'a>(settings: &'a Settings, target: &Target) -> Option<&'a ExecCheck> {
    settings.exec.iter().find(|check| check.name == target.id())
}

/// What a run takes: the declared time of every GPU, the declared traffic of every NIC.
fn uses(check: &ExecCheck, inventory: &Inventory) -> Vec<Use> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the configuration allows 0 to 3600 s"
    )]
    let milliseconds = (check.gpu_seconds * 1000.0).round() as u32;
    let gpus = inventory.gpus.iter().filter(|_| milliseconds > 0);
    let nics = inventory.rdma.iter().filter(|_| check.network_mib > 0);
    let gpu = gpus.map(|gpu| Use { resource: Resource::Gpu(gpu.function.pci.clone()), amount: milliseconds });
    let nic = nics.map(|nic| Use { resource: Resource::Nic(nic.name.clone()), amount: check.network_mib });
    let node = (check.cost == Cost::Heavy).then_some(Use { resource: Resource::Node, amount: 1 });
    gpu.chain(nic).chain(node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn parse(stdout: &str) -> Result<Vec<Reading>, ParseError> {
        let targets = [Target::Check("raid".into())];
        let (inventory, settings) = (Inventory::default(), sample::settings());
        let ctx = sample::context(&targets, &inventory, &settings);
        let output = Output { stdout: stdout.into(), stderr: String::new(), ended_at: 0.0 };
        Exec.parse(&ctx, &[output], &mut Memory::default())
    }

    #[test]
    fn values_and_findings_are_read() {
        let reading = parse(include_str!("testdata/exec/raid.jsonl")).unwrap().remove(0);
        assert_eq!(reading.measurements[0].labels, ["raid", "spares"]);
        assert_eq!(reading.findings[0].verdict, Some(Verdict::Degraded));
    }

    #[test]
    fn what_is_not_the_protocol_is_named() {
        let many: String =
            (0..=MAX_VALUES).map(|i| format!("{{\"value\":{{\"name\":\"{i}\",\"value\":1}}}}\n")).collect();
        let finding = "{\"finding\":{\"check\":\"a\",\"verdict\":\"pass\",\"found\":\"b\"}}\n";
        let findings = finding.repeat(MAX_FINDINGS + 1);
        let twice = "{\"value\":{\"name\":\"a\",\"value\":1}}\n".repeat(2);
        let table = [
            (findings.as_str(), "one finding more than the 20"),
            (twice.as_str(), "the value \"a\" was printed before"),
            ("", "no closing line {\"end\":{}} in the output"),
            ("OK - all fine\n", "unexpected line \"OK - all fine\""),
            ("{\"end\":{}}\n{\"end\":{}}\n", "it follows the closing line"),
            (many.as_str(), "one value more than the 50"),
        ];
        for (stdout, message) in table {
            let error = parse(stdout).unwrap_err().to_string();
            assert!(error.contains(message), "{stdout:?}: {error}");
        }
    }
}
