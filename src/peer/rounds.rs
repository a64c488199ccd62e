//! Measures with partners, slot by slot, without a coordinator: every agent computes the same pairs.

use std::{sync::Arc, time::Duration};

use probes::{Probe, Target};
use tokio::{select, sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use super::session::{Session, Wish};
use crate::{
    agent::Agent,
    config::Config,
    gate::Share,
    inventory::Parts,
    peers::{
        membership::Membership,
        pairing,
        plan::{Allowance, Asked, Attempt, Ended, Plan, Rail, Why},
        slot::Slots,
    },
    run::Outcome,
    runner::epoch_seconds,
};

/// What a lease for one rail usually takes, in seconds: nine calls of perftest without GPU memory
/// and fifteen with it, each a second or two.
const LEASE: f64 = 30.0;
/// The same in slots that are too short for that, as a part of them.
const SHORT_LEASE: f64 = 0.2;

/// Rounds until the agent stops. A lease is never cut short by a change of configuration, members
/// or parts; what comes after it is planned anew.
pub(crate) async fn run(agent: Arc<Agent>, shutdown: CancellationToken) {
    let mut changes = Changes::of(&agent);
    let mut allowance = Allowance::default();
    loop {
        changes.seen();
        let slots = Slots::new(agent.config.borrow().peers.slot);
        let slot = slots.at(epoch_seconds());
        select! {
            () = shutdown.cancelled() => return,
            () = round(&agent, slots, slot, &mut allowance, &mut changes) => {}
        }
    }
}

/// What makes a plan out of date.
struct Changes {
    config: watch::Receiver<Arc<Config>>,
    members: watch::Receiver<Arc<Membership>>,
    parts: watch::Receiver<Arc<Parts>>,
    names: Vec<String>,
}

impl Changes {
    fn of(agent: &Agent) -> Changes {
        let core = agent.core();
        let (config, members, parts) = (core.config.clone(), core.members.clone(), core.parts.clone());
        Changes { config, members, parts, names: Vec::new() }
    }

    fn seen(&mut self) {
        self.config.borrow_and_update();
        self.members.borrow_and_update();
        self.names = self.parts.borrow_and_update().names();
    }

    /// Waits until a time, or for a change. False if it was a change.
    async fn sleep(&mut self, at: f64) -> bool {
        loop {
            select! {
                () = sleep(until(at)) => return true,
                Ok(()) = self.config.changed() => return false,
                Ok(()) = self.members.changed() => return false,
                // Links come and go; only parts that do make other rails.
                Ok(()) = self.parts.changed() => {
                    if self.parts.borrow_and_update().names() != self.names {
                        return false;
                    }
                }
            }
        }
    }
}

/// The attempts of what is left of a slot, and the wait for its end.
async fn round(
    agent: &Arc<Agent>,
    slots: Slots,
    slot: u64,
    allowance: &mut Allowance,
    changes: &mut Changes,
) {
    let config = agent.config.borrow().clone();
    let rails = rails(agent, &config);
    if config.active
        && agent.alone().is_none()
        && let Some(mut plan) =
            plan(agent, &config, &rails, slots, slot, allowance.left(epoch_seconds())).await
    {
        while let Some(attempt) = plan.next(epoch_seconds()).cloned() {
            if !changes.sleep(attempt.at).await {
                return;
            }
            // A partner may have come first in the meantime.
            let target = rails.iter().find(|(rail, _)| *rail == attempt.rail).map(|(_, target)| target);
            let Some(target) = target.filter(|target| attempt.why != Why::Fallback || agent.rail_due(target))
            else {
                plan.covered(attempt.rail);
                continue;
            };
            allowance.asks(&attempt, epoch_seconds());
            let ended = try_lease(agent, target, &attempt).await;
            plan.ended(&attempt, ended);
        }
    }
    changes.sleep(slots.end(slot)).await;
}

/// Computed beside the runtime: it sorts the whole fleet.
async fn plan(
    agent: &Arc<Agent>,
    config: &Config,
    rails: &[(u32, Target)],
    slots: Slots,
    slot: u64,
    allowance: usize,
) -> Option<Plan> {
    let (me, members, recent) = (config.node_name.clone(), agent.members(), agent.recent_partners());
    let rails: Vec<Rail> = rails
        .iter()
        .map(|(number, target)| Rail { number: *number, covered: agent.covered_at(target) })
        .collect();
    let interval = config.rail_interval().as_secs_f64();
    let planned = tokio::task::spawn_blocking(move || {
        let pairs = pairing::pairs(slot, &members);
        Plan::new(&Asked {
            now: epoch_seconds(),
            me: &me,
            slots,
            pairs: &pairs,
            rails: &rails,
            interval,
            run: LEASE.min(slots.length() * SHORT_LEASE),
            recent: &recent,
            allowance,
        })
    });
    planned.await.ok()
}

/// Opens one lease for a rail, and runs everything in it that is switched on.
async fn try_lease(agent: &Arc<Agent>, target: &Target, attempt: &Attempt) -> Ended {
    let lanes = agent.pair_lanes(target);
    let Some(first) = lanes.first() else { return Ended::NoBudget };
    let probes: Vec<&'static dyn Probe> = lanes.iter().map(|lane| lane.probe).collect();
    let due = attempt.why != Why::IfDue || agent.rail_due(target);
    let rail = attempt.rail as usize;
    let wish = Wish {
        target,
        rail,
        probes: &probes,
        member: &attempt.partner,
        on_demand: false,
        due,
        share: Share::Regular,
        until: None,
    };
    let peer = &attempt.partner.name;
    let session = match Session::open(agent.core(), &wish).await {
        Ok(session) => Arc::new(session),
        Err(none) => {
            tracing::debug!(peer = %peer, device = %target, outcome = %none.outcome, "no lease");
            let ended = none.ended();
            if ended != Ended::NotDue {
                first.note(peer.to_string(), none.outcome).await;
            }
            return ended;
        }
    };
    let mut ended = Ended::Failed;
    for lane in &lanes {
        let Ok(run) = lane.run_in(session.clone()).await else { continue };
        match &run.outcome {
            Outcome::Completed => ended = Ended::Covered,
            Outcome::Failed(failure) => {
                tracing::info!(peer = %peer, device = %target, probe = run.probe, %failure, "a run with a partner failed");
            }
            Outcome::Skipped(_) | Outcome::Unsupported(_) | Outcome::Unreadable(_) => {}
        }
    }
    session.close(&agent.core().shutdown).await;
    ended
}

/// The rails of this node, by number.
fn rails(agent: &Agent, config: &Config) -> Vec<(u32, Target)> {
    let (parts, settings) = (agent.parts(), &config.settings.rdma);
    let devices = probes::rdma::rails(&parts.present, settings).into_iter();
    devices
        .filter_map(|device| {
            let rail = probes::rdma::rail_of(&parts.present, settings, &device.name)?;
            Some((u32::try_from(rail).ok()?, Target::Rdma(device.name.clone())))
        })
        .collect()
}

fn until(at: f64) -> Duration {
    Duration::try_from_secs_f64(at - epoch_seconds()).unwrap_or_default()
}
