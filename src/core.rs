//! What every lane shares: configuration, parts, gate, journal, totals.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{config::Config, gate::Gate, hold::Holds, inventory::Parts, journal::Journal, metrics::Totals};

/// What every lane shares.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: watch::Receiver<Arc<Config>>,
    pub(crate) parts: watch::Receiver<Arc<Parts>>,
    pub(crate) gate: Gate,
    pub(crate) holds: Holds,
    pub(crate) journal: Journal,
    pub(crate) totals: Totals,
    /// Cancelled when the agent stops.
    pub(crate) shutdown: CancellationToken,
    /// The number of the newest run.
    pub(crate) newest: AtomicU64,
    /// A task of the agent has panicked.
    pub(crate) broken: AtomicBool,
}

impl Core {
    pub(crate) fn next_id(&self) -> u64 {
        self.newest.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Ends the agent because a part of it failed: systemd starts it anew, with all that the
    /// journal knows, which is better than an agent that looks alive and measures nothing.
    pub(crate) fn give_up(&self, what: &str) {
        tracing::error!(what, "a part of the agent failed, so it ends");
        self.broken.store(true, Ordering::Relaxed);
        self.shutdown.cancel();
    }
}
