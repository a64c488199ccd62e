//! What every lane shares: configuration, parts, gate, journal, totals.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
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
}

impl Core {
    pub(crate) fn next_id(&self) -> u64 {
        self.newest.fetch_add(1, Ordering::Relaxed) + 1
    }
}
