//! What every lane shares: configuration, parts, gate, journal, totals.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use probes::{LoadedLinks, Probe, Reading, Target};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    baseline::Baseline,
    config::Config,
    gate::Gate,
    hold::Holds,
    inventory::Parts,
    journal::Journal,
    judge::{self, book::Seen, speed::Speed},
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
    run::{Outcome, Report, Skip, SkipReason},
    runner::epoch_seconds,
    siblings::Siblings,
};

/// Why peer probes are off without certificates.
const NO_IDENTITY: &str = "peer probes are off: set peers.certificate_file, peers.key_file and peers.ca_file";

/// When to ask again for a run that was stopped.
const LATER: Duration = Duration::from_secs(60);

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
    /// PCIe links as they were while data moved.
    pub(crate) loaded: Mutex<Arc<LoadedLinks>>,
    /// Results of GPUs of the same kind.
    pub(crate) siblings: Mutex<Siblings>,
    /// What is usual for each series, and what is suspected.
    pub(crate) baseline: Baseline,
    /// A task of the agent has panicked.
    pub(crate) broken: AtomicBool,
}

impl Core {
    pub(crate) fn next_id(&self) -> u64 {
        self.newest.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// What a completed run says of its targets, told to all who learn from it.
    pub(crate) fn judge(
        &self,
        probe: &'static dyn Probe,
        targets: &[Target],
        peer: Option<&str>,
        mut readings: Vec<Reading>,
    ) -> Vec<Report> {
        for reading in readings.iter_mut().filter(|reading| !reading.digests.is_empty()) {
            let mut siblings = self.siblings.lock().unwrap_or_else(PoisonError::into_inner);
            let differ = |digest| siblings.compare(reading.target.id(), digest);
            let found: Vec<_> = reading.digests.iter().filter_map(differ).collect();
            reading.findings.extend(found);
        }
        let seen = readings.iter().flat_map(|reading| reading.loaded.iter().cloned()).collect::<Vec<_>>();
        if !seen.is_empty() {
            let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::make_mut(&mut loaded).see(epoch_seconds(), seen);
        }
        let speeds = self.compare(probe, peer, &mut readings);
        let mut reports = judge::completed(targets, readings);
        for (target, speed) in speeds {
            if let Some(report) = reports.iter_mut().find(|report| report.target == target) {
                report.speed = Some(speed);
            }
        }
        reports
    }

    /// Holds what was measured against what is expected, and adds that to the findings.
    fn compare(
        &self,
        probe: &'static dyn Probe,
        peer: Option<&str>,
        readings: &mut [Reading],
    ) -> Vec<(Target, Speed)> {
        if probe.compared().is_empty() {
            return Vec::new();
        }
        let (config, parts) = (self.config.borrow().clone(), self.parts.borrow().clone());
        let seen = Seen {
            probe,
            inventory: &parts.present,
            settings: &config.settings,
            peer,
            at: epoch_seconds(),
            manner: config.baseline,
        };
        let mut speeds = Vec::new();
        for reading in readings {
            if let Some(speed) = self.baseline.change(|book| book.observe(seen, reading)) {
                reading.findings.extend(speed.finding(&reading.target));
                for change in &speed.changes {
                    tracing::info!(probe = probe.name(), target = %reading.target, change, "a series begins anew");
                }
                speeds.push((reading.target.clone(), speed));
            }
        }
        speeds
    }

    /// PCIe links as they were while data moved.
    pub(crate) fn loaded_links(&self) -> Arc<LoadedLinks> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What this agent proves its name with, and knows others by.
    pub(crate) async fn tls(self: &Arc<Self>) -> Result<Arc<Tls>, Outcome> {
        let config = self.config.borrow().clone();
        let Some(files) = config.peers.identity.clone() else {
            return Err(Outcome::Unsupported(NO_IDENTITY.to_string()));
        };
        let core = self.clone();
        let read =
            tokio::task::spawn_blocking(move || core.identities.current(&files, &config.node_name)).await;
        read.unwrap_or_else(|error| Err(error.to_string())).map_err(Outcome::Unsupported)
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

    /// Whom to ask now, in this order: this slot's partner, then the next candidates. Computed
    /// beside the runtime, since it sorts the whole fleet.
    pub(crate) async fn partners_now(&self) -> Vec<Arc<Member>> {
        let (config, members) = (self.config.borrow().clone(), self.members.borrow().clone());
        let slot = Slots::new(config.peers.slot).at(epoch_seconds());
        let computed = tokio::task::spawn_blocking(move || {
            let (pairs, own) = (pairing::pairs(slot, &members), &config.node_name);
            pairs.partner(own).into_iter().chain(pairs.candidates(own)).cloned().collect()
        });
        computed.await.unwrap_or_default()
    }

    /// Whether a run that is under way may begin its next stage: a hold may have come since.
    pub(crate) fn may_go_on(&self) -> Result<(), Outcome> {
        let now = epoch_seconds();
        let refuse =
            |reason, detail: String| Err(Outcome::Skipped(Skip { reason, detail, retry_after: LATER }));
        if !self.config.borrow().active {
            return refuse(SkipReason::Inactive, "active probes were switched off".to_string());
        }
        match self.holds.current(now) {
            Some(hold) => refuse(SkipReason::Held, format!("held by {}: {}", hold.by, hold.reason)),
            None => Ok(()),
        }
    }

    /// Ends the agent because a part of it failed: systemd starts it anew, with all that the
    /// journal knows, which is better than an agent that looks alive and measures nothing.
    pub(crate) fn give_up(&self, what: &str) {
        tracing::error!(what, "a part of the agent failed, so it ends");
        self.broken.store(true, Ordering::Relaxed);
        self.shutdown.cancel();
    }
}
