//! The form of a journal line: a run with its metrics by name.

use std::time::Duration;

use probes::{Finding, Measurement, Target, Verdict};
use serde::{Deserialize, Serialize};

use crate::{
    judge::{detector::State, speed::Speed},
    run::{Evidence, Outcome, Report, Run, Trigger},
};

#[derive(Deserialize, Serialize)]
pub(super) struct Line {
    id: u64,
    probe: String,
    target: Option<Target>,
    trigger: Trigger,
    #[serde(default)]
    peer: Option<String>,
    started: f64,
    took: Duration,
    outcome: Outcome,
    reports: Vec<ReportLine>,
    evidence: Vec<Evidence>,
}

#[derive(Deserialize, Serialize)]
struct ReportLine {
    target: Target,
    verdict: Verdict,
    reason: String,
    findings: Vec<Finding>,
    values: Vec<ValueLine>,
    #[serde(default)]
    speed: Option<SpeedLine>,
}

#[derive(Deserialize, Serialize)]
struct SpeedLine {
    state: State,
    ratio: Option<f64>,
    part: Option<String>,
}

#[derive(Deserialize, Serialize)]
struct ValueLine {
    metric: String,
    labels: Vec<String>,
    value: f64,
}

impl Line {
    pub(super) fn of(run: &Run) -> Line {
        Line {
            id: run.id,
            probe: run.probe.to_string(),
            target: run.target.clone(),
            trigger: run.trigger,
            peer: run.peer.clone(),
            started: run.started,
            took: run.took,
            outcome: run.outcome.clone(),
            reports: run.reports.iter().map(ReportLine::of).collect(),
            evidence: run.evidence.iter().map(|evidence| kept(run, evidence)).collect(),
        }
    }

    /// None for a probe that this version does not know any more.
    pub(super) fn run(self) -> Option<Run> {
        Some(Run {
            id: self.id,
            probe: probes::find(&self.probe)?.name(),
            target: self.target,
            trigger: self.trigger,
            peer: self.peer,
            started: self.started,
            took: self.took,
            outcome: self.outcome,
            reports: self.reports.into_iter().map(ReportLine::report).collect(),
            evidence: self.evidence,
        })
    }
}

/// What a program printed is kept where it explains something: where the run did not pass.
fn kept(run: &Run, evidence: &Evidence) -> Evidence {
    let passed = run.outcome == Outcome::Completed && run.worst() == Verdict::Pass;
    let (stdout, stderr) = match passed {
        true => (String::new(), String::new()),
        false => (evidence.stdout.clone(), evidence.stderr.clone()),
    };
    Evidence { stdout, stderr, ..evidence.clone() }
}

impl ReportLine {
    fn of(report: &Report) -> ReportLine {
        let value = |m: &Measurement| ValueLine {
            metric: m.metric.name.to_string(),
            labels: m.labels.clone(),
            value: m.value,
        };
        ReportLine {
            target: report.target.clone(),
            verdict: report.verdict,
            reason: report.reason.clone(),
            findings: report.findings.clone(),
            values: report.measurements.iter().map(value).collect(),
            speed: report.speed.as_ref().map(|speed| SpeedLine {
                state: speed.state,
                ratio: speed.ratio,
                part: speed.part.clone(),
            }),
        }
    }

    fn report(self) -> Report {
        let measurement = |line: ValueLine| {
            let metric = probes::find_metric(&line.metric)?;
            let known = metric.labels.len() == line.labels.len();
            known.then_some(Measurement { metric, labels: line.labels, value: line.value })
        };
        Report {
            target: self.target,
            verdict: self.verdict,
            reason: self.reason,
            findings: self.findings,
            measurements: self.values.into_iter().filter_map(measurement).collect(),
            speed: self.speed.map(|SpeedLine { state, ratio, part }| Speed {
                state,
                ratio,
                part,
                why: "",
                judged: Vec::new(),
                changes: Vec::new(),
            }),
        }
    }
}
