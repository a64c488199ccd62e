//! What every lane shares: configuration, parts, gate, journal, totals.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    gate::Gate,
    hold::Holds,
    inventory::Parts,
    journal::Journal,
    metrics::Totals,
    peer::{
        identity::{Identities, Tls},
        lease::Leases,
        ports::Ports,
        skew::Skew,
    },
    peers::{
        membership::{Member, Membership},
        pairing,
        slot::Slots,
    },
    run::Outcome,
    runner::epoch_seconds,
};

/// Why peer probes are off without certificates.
const NO_IDENTITY: &str = "peer probes are off: set peers.certificate_file, peers.key_file and peers.ca_file";

/// What every lane shares.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: watch::Receiver<Arc<Config>>,
    pub(crate) parts: watch::Receiver<Arc<Parts>>,
    pub(crate) gate: Gate,
    pub(crate) holds: Holds,
    pub(crate) journal: Journal,
    pub(crate) totals: Totals,
    /// Every agent that this one may measure with, itself included.
    pub(crate) members: watch::Receiver<Arc<Membership>>,
    pub(crate) identities: Identities,
    /// What partners were granted here.
    pub(crate) leases: Leases,
    pub(crate) ports: Ports,
    pub(crate) skew: Skew,
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

    /// What this agent proves its name with, and knows others by.
    pub(crate) fn tls(&self) -> Result<Arc<Tls>, Outcome> {
        let config = self.config.borrow();
        let Some(files) = &config.peers.identity else {
            return Err(Outcome::Unsupported(NO_IDENTITY.to_string()));
        };
        self.identities.current(files, &config.node_name).map_err(Outcome::Unsupported)
    }

    /// Why this agent measures with no other; none if it can.
    pub(crate) fn alone(&self) -> Option<String> {
        let members = self.members.borrow().clone();
        let config = self.config.borrow();
        if config.peers.identity.is_none() {
            return Some(NO_IDENTITY.to_string());
        }
        if members.members().is_empty() {
            return Some("there is no other node: set peers.static or peers.file_sd".to_string());
        }
        members.get(&config.node_name).is_none().then(|| {
            format!(
                "{:?} is not in the list of peers; node_name must be the name of one entry",
                config.node_name
            )
        })
    }

    /// Whom to ask now, in this order: this slot's partner, then the next candidates.
    pub(crate) fn partners_now(&self) -> Vec<Arc<Member>> {
        let (config, members) = (self.config.borrow().clone(), self.members.borrow().clone());
        let slot = Slots::new(config.peers.slot).at(epoch_seconds());
        let pairs = pairing::pairs(slot, &members);
        let order = pairs.partner(&config.node_name).into_iter().chain(pairs.candidates(&config.node_name));
        order.cloned().collect()
    }

    /// Ends the agent because a part of it failed: systemd starts it anew, with all that the
    /// journal knows, which is better than an agent that looks alive and measures nothing.
    pub(crate) fn give_up(&self, what: &str) {
        tracing::error!(what, "a part of the agent failed, so it ends");
        self.broken.store(true, Ordering::Relaxed);
        self.shutdown.cancel();
    }
}
