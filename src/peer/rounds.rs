//! Measures with partners, slot by slot, without a coordinator: every agent computes the same pairs.

use std::{sync::Arc, time::Duration};

use probes::{Probe, Target};
use tokio::{select, time::sleep};
use tokio_util::sync::CancellationToken;

use super::session::{Session, Wish};
use crate::{
    agent::Agent,
    config::Config,
    lane::Lane,
    peers::{
        membership::{Member, Membership},
        plan::{self, Attempt, Situation},
        slot::Slots,
    },
    run::Outcome,
    runner::epoch_seconds,
};

/// Rounds until the agent stops.
pub(crate) async fn run(agent: Arc<Agent>, shutdown: CancellationToken) {
    let mut config = agent.config.clone();
    loop {
        let slots = Slots::new(config.borrow_and_update().peers.slot);
        let slot = slots.number(epoch_seconds());
        select! {
            () = shutdown.cancelled() => return,
            // What has changed may be the slots themselves.
            Ok(()) = config.changed() => {}
            () = async {
                round(&agent, &slots, slot).await;
                sleep(slots.until(slots.start(slot + 1), epoch_seconds())).await;
            } => {}
        }
    }
}

/// The attempts of what is left of a slot.
async fn round(agent: &Arc<Agent>, slots: &Slots, slot: u64) {
    let config = agent.config.borrow().clone();
    let members = agent.members();
    if !config.active || agent.core().alone().is_some() {
        return;
    }
    let rails = rails(agent, &config);
    let covered: Vec<f64> = rails.iter().map(|target| agent.covered_at(target)).collect();
    let now = epoch_seconds();
    let attempts = attempts(&config, &members, slots, slot, &covered, now).await;
    for Attempt { at, rail, partner, fallback } in attempts {
        sleep(slots.until(at, epoch_seconds())).await;
        let (Some(target), Some(member)) = (rails.get(rail), members.find(&partner)) else { continue };
        // A partner may have come first in the meantime.
        if fallback && !agent.rail_due(target) {
            continue;
        }
        attempt(agent, target, rail, member).await;
    }
}

/// Computed beside the runtime: it sorts the whole fleet.
async fn attempts(
    config: &Config,
    members: &Arc<Membership>,
    slots: &Slots,
    slot: u64,
    covered: &[f64],
    now: f64,
) -> Vec<Attempt> {
    let interval = config.timings.get("ib_write_bw").map_or(Duration::ZERO, |timing| timing.interval);
    let (own, members, slots, covered) =
        (config.node_name.clone(), members.clone(), slots.clone(), covered.to_vec());
    let computed = tokio::task::spawn_blocking(move || {
        plan::attempts(&Situation {
            own: &own,
            members: &members,
            slots: &slots,
            slot,
            covered: &covered,
            interval,
            now,
        })
    });
    computed.await.unwrap_or_default()
}

/// Opens one lease for a rail, and runs everything in it that is switched on.
async fn attempt(agent: &Arc<Agent>, target: &Target, rail: usize, member: &Member) {
    let lanes = lanes(agent, target);
    let Some(first) = lanes.first() else { return };
    let probes: Vec<&'static dyn Probe> = lanes.iter().map(|lane| lane.probe).collect();
    let due = agent.rail_due(target);
    let wish = Wish { target, rail, probes: &probes, member, on_demand: false, due, until: None };
    let session = match Session::open(agent.core(), &wish).await {
        Ok(session) => Arc::new(session),
        Err(outcome) => {
            tracing::debug!(peer = %member.name, device = %target, %outcome, "no lease");
            if due {
                first.note(member.name.to_string(), outcome).await;
            }
            return;
        }
    };
    for lane in &lanes {
        if let Ok(run) = lane.run_in(session.clone()).await
            && let Outcome::Failed(failure) = &run.outcome
        {
            tracing::info!(peer = %member.name, device = %target, probe = run.probe, %failure, "a run with a partner failed");
        }
    }
    session.close().await;
}

/// The rails of this node.
fn rails(agent: &Agent, config: &Config) -> Vec<Target> {
    let parts = agent.parts();
    let rails = probes::rdma::rails(&parts.present, &config.settings);
    rails.into_iter().map(|device| Target::Rdma(device.name.clone())).collect()
}

/// The lanes that one lease serves, in the order of the catalogue.
fn lanes(agent: &Agent, target: &Target) -> Vec<Arc<Lane>> {
    let mut lanes = agent.lanes();
    lanes.retain(|lane| lane.is_scheduled_pair() && lane.target.as_ref() == Some(target));
    lanes
}
