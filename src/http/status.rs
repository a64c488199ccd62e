//! What the agent knows, as one value: the JSON of `/api/v1/status`, and what the page is made of.

use std::{collections::BTreeMap, sync::Arc};

use probes::{Cost, Finding, Inventory, Measurement, Target, Verdict};
use serde::Serialize;

use crate::{
    agent::Agent,
    http::auth::Caller,
    lane::{Lane, Standing},
    run::Run,
    runner::epoch_seconds,
};

/// After how many intervals a verdict no longer speaks for now.
const STALE_INTERVALS: f64 = 3.0;

/// The node, in one answer. Without command lines and logs, so that it may be open.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Status {
    pub(crate) node: String,
    pub(crate) version: &'static str,
    /// When this was said, in seconds since the epoch, as all times here.
    pub(crate) now: f64,
    pub(crate) ready: bool,
    pub(crate) verdict: Verdict,
    pub(crate) hold: Option<HoldStatus>,
    /// One for each probe and target that is measured by itself.
    pub(crate) lanes: Vec<LaneStatus>,
    /// Probes that never run by themselves here, and why.
    pub(crate) off: Vec<OffStatus>,
}

/// A probe that does not run by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OffStatus {
    pub(crate) probe: &'static str,
    pub(crate) reason: String,
}

/// A maintenance hold.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HoldStatus {
    pub(crate) since: f64,
    pub(crate) until: f64,
    pub(crate) reason: String,
    pub(crate) by: String,
}

/// What is known of one target by one probe.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LaneStatus {
    pub(crate) probe: &'static str,
    pub(crate) cost: Cost,
    pub(crate) target: String,
    pub(crate) verdict: Verdict,
    pub(crate) reason: String,
    pub(crate) since: f64,
    /// When the newest run ended, however it ended.
    pub(crate) last_run: Option<f64>,
    /// When the newest run ended that measured something.
    pub(crate) last_completed: Option<f64>,
    /// When the run ended that the verdict is from; none for a part that is absent, whose verdict
    /// does not age, or before the first.
    pub(crate) last_judged: Option<f64>,
    /// Seconds from one run to the next.
    pub(crate) interval: f64,
    /// When a run began that is still under way.
    pub(crate) running: Option<f64>,
    /// The run that the verdict is from.
    pub(crate) run: Option<u64>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) values: Vec<Value>,
}

/// A measured value in its base unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Value {
    pub(crate) metric: &'static str,
    pub(crate) labels: BTreeMap<&'static str, String>,
    pub(crate) value: f64,
}

impl Value {
    pub(crate) fn of(measurement: &Measurement) -> Value {
        let labels = measurement.metric.labels.iter().copied().zip(measurement.labels.iter().cloned());
        Value { metric: measurement.metric.name, labels: labels.collect(), value: measurement.value }
    }
}

impl Status {
    pub(crate) fn of(agent: &Agent) -> Status {
        let (mut lanes, mut off) = (Vec::new(), Vec::<OffStatus>::new());
        for lane in agent.lanes() {
            match agent.off(&lane) {
                None => lanes.extend(LaneStatus::of(agent, &lane)),
                Some(reason) => {
                    off.push(OffStatus { probe: lane.probe.name(), reason });
                    off.dedup();
                }
            }
        }
        Status {
            node: agent.config.borrow().node_name.clone(),
            version: env!("CARGO_PKG_VERSION"),
            now: epoch_seconds(),
            ready: agent.ready(),
            verdict: Verdict::worst(lanes.iter().map(|lane| lane.verdict)),
            hold: agent.hold().map(|hold| HoldStatus {
                since: hold.since,
                until: hold.until,
                reason: hold.reason,
                by: hold.by,
            }),
            lanes,
            off,
        }
    }
}

impl LaneStatus {
    fn of(agent: &Agent, lane: &Lane) -> Vec<LaneStatus> {
        let view = lane.view();
        let interval = agent.timing(lane).interval.as_secs_f64();
        let settings = &agent.config.borrow().settings;
        let of = |(target, standing): (&Target, &Standing)| {
            let report = |run: &Arc<Run>| run.report(target).cloned();
            let judged = standing.judged.as_ref();
            let completed = standing.completed.as_ref();
            LaneStatus {
                probe: lane.probe.name(),
                cost: lane.probe.cost(settings, target),
                target: target.to_string(),
                verdict: standing.verdict,
                reason: standing.reason.clone(),
                since: standing.since,
                last_run: (standing.last_run > 0.0).then_some(standing.last_run),
                last_completed: completed.map(|(at, _)| *at),
                last_judged: judged.map(|run| run.started + run.took.as_secs_f64()),
                interval,
                running: view.running,
                run: judged.map(|run| run.id),
                findings: judged.and_then(report).map(|report| report.findings).unwrap_or_default(),
                values: completed
                    .and_then(|(_, run)| report(run))
                    .map(|report| report.measurements.iter().map(Value::of).collect())
                    .unwrap_or_default(),
            }
        };
        view.standings.iter().map(of).collect()
    }

    /// Whether the verdict is too old to speak for now.
    pub(crate) fn stale(&self, now: f64) -> bool {
        self.last_judged.is_some_and(|at| now - at > STALE_INTERVALS * self.interval)
    }
}

/// Everything that a page shows.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) status: Status,
    pub(crate) inventory: Inventory,
    /// Kept runs of all lanes, newest first.
    pub(crate) runs: Vec<Arc<Run>>,
    /// Whether the reader may see command lines and logs.
    pub(crate) trusted: bool,
    /// The socket that the command line uses.
    pub(crate) socket: String,
}

impl Snapshot {
    pub(crate) fn take(agent: &Agent, caller: &Caller) -> Snapshot {
        let mut runs: Vec<_> = agent.lanes().iter().flat_map(|lane| lane.runs()).collect();
        runs.sort_by_key(|run| std::cmp::Reverse(run.id));
        Snapshot {
            status: Status::of(agent),
            inventory: agent.parts().present.clone(),
            runs,
            trusted: caller.trusted(),
            socket: agent.config.borrow().web.socket.display().to_string(),
        }
    }
}

/// A kept run of any lane.
pub(crate) fn find_run(agent: &Agent, id: u64) -> Option<Arc<Run>> {
    agent.lanes().iter().find_map(|lane| lane.find(id))
}
