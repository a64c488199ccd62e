//! The runs of one lane that are kept for the page and for `debug=true`.
//!
//! Two rings: a flood of good runs never evicts the last bad one. A passive lane runs every minute
//! and mostly says the same again, so of a streak of runs that say the same only the first and the
//! newest are kept: what remains is the list of changes, which is what a person looks for.

use std::{collections::VecDeque, sync::Arc};

use probes::Verdict;

use crate::run::Run;

/// Runs kept in each ring. A run of 16 targets with its evidence is some 20 kB.
const KEPT: usize = 16;

/// The kept runs of one lane, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History {
    recent: VecDeque<Arc<Run>>,
    bad: VecDeque<Arc<Run>>,
}

impl History {
    pub(crate) fn push(&mut self, run: Arc<Run>) {
        let streak = self.recent.iter().rev().take(2).filter(|kept| kept.gist() == run.gist()).count();
        if streak == 2 {
            self.recent.pop_back();
        }
        self.recent.push_back(run);
        if self.recent.len() > KEPT
            && let Some(old) = self.recent.pop_front()
            && old.reports.iter().any(|report| report.verdict != Verdict::Pass)
        {
            self.bad.push_back(old);
            if self.bad.len() > KEPT {
                self.bad.pop_front();
            }
        }
    }

    /// Every kept run, oldest first.
    pub(crate) fn runs(&self) -> impl DoubleEndedIterator<Item = &Arc<Run>> {
        self.bad.iter().chain(&self.recent)
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<Run>> {
        self.runs().find(|run| run.id == id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use probes::Target;

    use super::*;
    use crate::run::{Outcome, Report, Trigger};

    fn run(id: u64, verdict: Verdict) -> Arc<Run> {
        let report = Report {
            target: Target::Node,
            verdict,
            reason: verdict.to_string(),
            findings: vec![],
            measurements: vec![],
            speed: None,
        };
        Arc::new(Run {
            id,
            probe: "node",
            target: None,
            trigger: Trigger::Periodic,
            peer: None,
            started: 0.0,
            took: Duration::ZERO,
            outcome: Outcome::Completed,
            reports: vec![report],
            evidence: vec![],
        })
    }

    fn ids(history: &History) -> Vec<u64> {
        history.runs().map(|run| run.id).collect()
    }

    #[test]
    fn a_streak_keeps_its_first_and_its_newest_run() {
        let mut history = History::default();
        for id in 0..100 {
            history.push(run(id, if id < 50 { Verdict::Pass } else { Verdict::Fail }));
        }
        assert_eq!(ids(&history), [0, 49, 50, 99]);
        assert!(history.find(50).is_some());
        assert!(history.find(51).is_none());
    }

    #[test]
    fn good_runs_never_evict_the_last_bad_one() {
        let mut history = History::default();
        for id in 0..200 {
            history.push(run(
                id,
                if id == 3 {
                    Verdict::Fail
                } else if id % 2 == 0 {
                    Verdict::Pass
                } else {
                    Verdict::Unknown
                },
            ));
        }
        for id in (200..400).step_by(2) {
            history.push(run(id, Verdict::Pass));
            history.push(Arc::new(Run {
                outcome: Outcome::Unsupported(id.to_string()),
                reports: vec![],
                ..(*run(id + 1, Verdict::Pass)).clone()
            }));
        }
        assert!(history.runs().count() <= 2 * KEPT);
        assert!(history.runs().any(|run| run.worst() == Verdict::Unknown));
    }
}
