//! What a lane says to everybody else, and what is known of each of its targets.

use std::{collections::BTreeMap, sync::Arc};

use probes::{Finding, Target, Verdict, compute::CORRUPT_RESULT};

use crate::{
    judge::{self, speed::Speed},
    peers::coverage::Coverage,
    run::{Outcome, Report, Run},
};

/// What a lane says to everybody else.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// The newest run, however it ended.
    pub(crate) last: Option<Arc<Run>>,
    /// What is known of each target, also of those that are gone.
    pub(crate) standings: BTreeMap<Target, Standing>,
    /// When a run began that is still under way.
    pub(crate) running: Option<f64>,
    /// A probe of two nodes can't be run with the parts that this node has.
    pub(crate) impossible: bool,
}

/// What is known of one target. A run that was skipped or cancelled leaves it as it is: it ages.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) verdict: Verdict,
    /// Why, in one sentence.
    pub(crate) reason: String,
    /// Since when the verdict is this one, in seconds since the epoch.
    pub(crate) since: f64,
    /// When the newest run ended, however it ended; 0 before the first.
    pub(crate) last_run: f64,
    /// The run that the verdict is from; none before the first, or for a part that is absent.
    pub(crate) judged: Option<Arc<Run>>,
    /// The newest run that measured it, and when that ended.
    pub(crate) completed: Option<(f64, Arc<Run>)>,
    /// The nodes that it was measured with.
    pub(crate) partners: Partners,
    /// How well it performs; none where nothing is compared.
    pub(crate) speed: Option<Speed>,
    /// Runs that found wrong numbers, as far back as the journal goes.
    pub(crate) corrupt: u64,
}

/// The nodes that a target was measured with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partners {
    coverage: Coverage,
    /// The newest run with each of the last partners, newest first.
    recent: Vec<(f64, Arc<Run>)>,
}

/// Partners whose values are shown: their number is bounded whatever the size of the fleet.
const SHOWN: usize = 3;

impl Partners {
    fn meet(&mut self, peer: &str, at: f64, run: &Arc<Run>) {
        self.coverage.completed(&peer.into(), at);
        self.recent.retain(|(_, known)| known.peer != run.peer);
        let place = self.recent.iter().position(|(known, _)| *known <= at).unwrap_or(self.recent.len());
        self.recent.insert(place, (at, run.clone()));
        self.recent.truncate(SHOWN);
    }

    /// The newest runs with different partners, and when they ended.
    pub(crate) fn recent(&self) -> impl Iterator<Item = &(f64, Arc<Run>)> {
        self.recent.iter()
    }

    pub(crate) fn coverage(&self) -> &Coverage {
        &self.coverage
    }
}

impl Standing {
    pub(super) fn unmeasured(now: f64) -> Standing {
        Standing {
            verdict: Verdict::Unknown,
            reason: "it has not been measured yet".to_string(),
            since: now,
            last_run: 0.0,
            judged: None,
            completed: None,
            partners: Partners::default(),
            speed: None,
            corrupt: 0,
        }
    }

    /// Whether the part was accepted once and is gone.
    pub(crate) fn is_absent(&self) -> bool {
        self.verdict == Verdict::Fail && self.judged.is_none()
    }

    pub(super) fn be_absent(&mut self, now: f64) {
        *self = Standing {
            verdict: Verdict::Fail,
            reason: judge::ABSENT.to_string(),
            since: now,
            judged: None,
            completed: None,
            partners: Partners::default(),
            speed: None,
            last_run: self.last_run,
            corrupt: self.corrupt,
        };
    }
}

/// Whether it says that numbers are wrong.
fn is_corrupt(finding: &Finding) -> bool {
    finding.check == CORRUPT_RESULT && finding.verdict == Some(Verdict::Fail)
}

/// Lets a report stand for its target.
pub(super) fn stand(view: &mut View, report: &Report, run: &Arc<Run>, ended: f64) {
    let standing = view.standings.entry(report.target.clone()).or_insert_with(|| Standing::unmeasured(ended));
    if standing.verdict != report.verdict {
        standing.since = ended;
    }
    standing.verdict = report.verdict;
    standing.reason = report.reason.clone();
    standing.last_run = ended;
    standing.judged = Some(run.clone());
    if run.outcome == Outcome::Completed && !(report.measurements.is_empty() && report.findings.is_empty()) {
        standing.completed = Some((ended, run.clone()));
        standing.speed = report.speed.clone();
        standing.corrupt += u64::from(report.findings.iter().any(is_corrupt));
        if let Some(peer) = &run.peer {
            standing.partners.meet(peer, ended, run);
        }
    }
}
