//! What of the agent is about other agents: who they are, and how well they cover this node.

use std::sync::Arc;

use probes::{Scope, Target};
use tokio_util::sync::CancellationToken;

use super::{Agent, Lookup};
use crate::{
    core::Core,
    lane::Lane,
    peer::{identity::Tls, lease::Leases},
    peers::{
        coverage,
        membership::{Member, Membership},
        plan,
        slot::Slots,
        watch::Watcher,
    },
    run::Outcome,
    runner::epoch_seconds,
};

/// Names told to somebody who named an unknown peer; a fleet has thousands.
const PEERS_TOLD: usize = 20;

impl Agent {
    /// Keeps the list of peers up to date until `shutdown`.
    pub(crate) async fn follow_members(self: Arc<Self>, shutdown: CancellationToken) {
        let watcher = Watcher::new(self.config.clone(), self.membership.clone(), self.list_problem.clone());
        watcher.run(shutdown).await;
    }

    /// Every agent that this one may measure with, itself included.
    pub(crate) fn members(&self) -> Arc<Membership> {
        self.core.members.borrow().clone()
    }

    /// What is wrong with the list of peers, while it is.
    pub(crate) fn list_problem(&self) -> Option<Arc<str>> {
        self.list_problem.borrow().clone()
    }

    /// Why this agent measures with no other; none if it can.
    pub(crate) fn alone(&self) -> Option<String> {
        let alone = self.core.alone()?;
        Some(match self.list_problem() {
            Some(problem) => format!("{alone}; the list can't be read: {problem}"),
            None => alone,
        })
    }

    /// What partners were granted here.
    pub(crate) fn leases(&self) -> &Leases {
        &self.core.leases
    }

    /// What this agent proves its name with.
    pub(crate) async fn peer_tls(&self) -> Result<Arc<Tls>, Outcome> {
        self.core.tls().await
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Whether a rail has to be measured in the slot of now.
    pub(crate) fn rail_due(&self, target: &Target) -> bool {
        let config = self.config.borrow();
        let slots = Slots::new(config.peers.slot);
        let slot = slots.at(epoch_seconds());
        plan::due(self.covered_at(target), slots, slot, config.rail_interval().as_secs_f64())
    }

    /// When a rail was last measured with any partner, in seconds since the epoch.
    pub(crate) fn covered_at(&self, target: &Target) -> Option<f64> {
        let lane = self.pair_lanes(target).into_iter().next()?;
        let view = lane.view();
        view.standings.get(target)?.partners.coverage().last()
    }

    /// The partners of the last hour of any rail, newest first.
    pub(crate) fn recent_partners(&self) -> Vec<Arc<str>> {
        let mut views = Vec::new();
        for lane in self.lanes().iter().filter(|lane| lane.is_scheduled_pair()) {
            views.push(lane.view());
        }
        let standings = views.iter().flat_map(|view| view.standings.values());
        coverage::recent(standings.map(|standing| standing.partners.coverage()), epoch_seconds())
    }

    /// The lanes that one lease for a rail serves, in the order of the catalogue.
    pub(crate) fn pair_lanes(&self, target: &Target) -> Vec<Arc<Lane>> {
        let mut lanes = self.lanes();
        lanes.retain(|lane| lane.is_scheduled_pair() && lane.target.as_ref() == Some(target));
        lanes
    }

    /// A peer that a caller names, for a test that needs one.
    pub(crate) fn find_peer(&self, lane: &Lane, peer: Option<&str>) -> Result<Option<Arc<Member>>, Lookup> {
        let Some(peer) = peer else { return Ok(None) };
        if lane.probe.scope() != Scope::EachPair {
            return Err(Lookup::Alone(lane.probe.name().to_string()));
        }
        let (members, own) = (self.members(), self.config.borrow().node_name.clone());
        match members.get(peer).filter(|_| peer != own) {
            Some(member) => Ok(Some(member.clone())),
            None => {
                let others = members.members().iter().filter(|member| *member.name != *own);
                let mut known: Vec<&str> = others.map(|member| &*member.name).take(PEERS_TOLD + 1).collect();
                if known.is_empty() {
                    known.push("none: set peers.static or peers.file_sd");
                }
                if known.len() > PEERS_TOLD {
                    known[PEERS_TOLD] = "..";
                }
                Err(Lookup::Peer { peer: peer.to_string(), known: known.join(", ") })
            }
        }
    }
}
