//! The serial executor of one probe: periodic and on demand, never twice at once.
//!
//! Every run takes the one way through: plan, gate, runner, parse, judge, history. What asked for
//! it differs only in [`Trigger`]. A passive probe has one lane, whose single child reads all of
//! its targets; an active probe has a lane for each target. A lane publishes a [`View`], and
//! everything that shows or exports results reads that and nothing else.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use probes::{Probe, Target, Verdict};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use crate::{history::History, run::Run};

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
}

/// A request for a run now.
pub(crate) struct Ask {
    /// When the caller stops waiting, if that is before the probe's own deadline.
    pub(crate) until: Option<Instant>,
    pub(crate) reply: oneshot::Sender<Arc<Run>>,
}

/// What others hold of a lane.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) probe: &'static dyn Probe,
    /// The only target of an active lane; none for a passive one, which reads all of its targets.
    pub(crate) target: Option<Target>,
    asks: mpsc::Sender<Ask>,
    view: watch::Receiver<Arc<View>>,
    history: Mutex<History>,
}

/// The lane has a request waiting already, or is ending.
#[derive(Debug)]
pub(crate) struct Busy;

impl Lane {
    /// What is known now.
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
    }

    /// Runs as soon as the lane is free, and waits for the end.
    pub(crate) async fn run_now(&self, until: Option<Instant>) -> Result<Arc<Run>, Busy> {
        let (reply, run) = oneshot::channel();
        self.asks.try_send(Ask { until, reply }).map_err(|_| Busy)?;
        run.await.map_err(|_| Busy)
    }

    /// The kept runs, oldest first.
    pub(crate) fn runs(&self) -> Vec<Arc<Run>> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).runs().cloned().collect()
    }

    /// A kept run.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<Run>> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).find(id)
    }
}
