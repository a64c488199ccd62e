//! What a lane says to everybody else, and what is known of each of its targets.

use std::{collections::BTreeMap, sync::Arc};

use probes::{Target, Verdict};

use crate::{
    judge,
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
}

/// The nodes that a target was measured with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partners(Vec<Met>);

/// The newest run with one node.
#[derive(Clone, Debug)]
struct Met {
    peer: String,
    at: f64,
    /// Kept for the newest few only.
    run: Option<Arc<Run>>,
}

/// Partners whose values are shown: their number is bounded whatever the size of the fleet.
const SHOWN: usize = 3;
/// For how long a partner counts, in seconds.
const DAY: f64 = 86_400.0;

impl Partners {
    fn meet(&mut self, peer: &str, at: f64, run: &Arc<Run>) {
        self.0.retain(|met| met.peer != peer && at - met.at < DAY);
        let place = self.0.iter().position(|met| met.at <= at).unwrap_or(self.0.len());
        self.0.insert(place, Met { peer: peer.to_string(), at, run: Some(run.clone()) });
        self.0.iter_mut().skip(SHOWN).for_each(|met| met.run = None);
    }

    /// The newest runs with different partners, and when they ended.
    pub(crate) fn recent(&self) -> impl Iterator<Item = (f64, &Arc<Run>)> {
        self.0.iter().filter_map(|met| Some((met.at, met.run.as_ref()?)))
    }

    /// The names of the partners of the last 24 hours.
    pub(crate) fn within_a_day(&self, now: f64) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |met| now - met.at < DAY).map(|met| met.peer.as_str())
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
            last_run: self.last_run,
        };
    }
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
        if let Some(peer) = &run.peer {
            standing.partners.meet(peer, ended, run);
        }
    }
}
