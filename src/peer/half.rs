//! What either side brings into a lease: its locks and budget, a port, and what it can't do.

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

use probes::{Context, Cost, LoadedLinks, Partner, Plan, Probe, Target, Use, partner::Terms};

use super::{message::End, ports::Port};
use crate::{
    core::Core,
    gate::{Asked, Permit, Share},
    run::{Outcome, Skip, SkipReason},
    runner::epoch_seconds,
};

/// The probe whose figures of host memory `gdr` takes, if both are in one lease.
const HOST_PROBE: &str = "ib_write_bw";
/// When a port may be free again.
const PORT_RETRY: Duration = Duration::from_secs(10);

/// One side's half. Dropping it unlocks the device and frees the port.
#[derive(Debug)]
pub(crate) struct Half {
    pub(crate) port: Port,
    /// What this side can't do, and why.
    pub(crate) unsupported: BTreeMap<String, String>,
    pub(crate) end: End,
    uses: Vec<Use>,
    share: Share,
    _permit: Permit,
}

impl Half {
    /// Counts what it will use: there is a lease.
    pub(crate) fn spend(&self, core: &Core) {
        core.totals.spend(&self.uses);
    }

    /// Gives its budget back: there is no lease after all.
    pub(crate) fn give_back(&self, core: &Core) {
        core.gate.give_back(&self.uses, self.share);
    }
}

/// Enters the gate for all of these probes at once. `partner` has no terms yet.
pub(crate) fn enter(
    core: &Arc<Core>,
    target: &Target,
    wanted: &[&'static dyn Probe],
    partner: &Partner,
    share: Share,
) -> Result<Half, Outcome> {
    let (config, parts) = (core.config.borrow().clone(), core.parts.borrow().clone());
    let host_measured = wanted.iter().any(|probe| probe.name() == HOST_PROBE);
    let partner = &Partner { host_measured, ..partner.clone() };
    let ctx = Context {
        targets: std::slice::from_ref(target),
        inventory: &parts.present,
        settings: &config.settings,
        timeout: Duration::ZERO,
        port: 0,
        partner: Some(partner),
        loaded: LoadedLinks::none(),
    };
    let mut unsupported = BTreeMap::new();
    let mut uses: Vec<Use> = Vec::new();
    for probe in wanted {
        match probe.plan(&ctx) {
            Err(why) => {
                unsupported.insert(probe.name().to_string(), why.0);
            }
            Ok(plan) => plan.uses.into_iter().for_each(|used| add(&mut uses, used)),
        }
    }
    if unsupported.len() == wanted.len() {
        let why = wanted.first().and_then(|probe| unsupported.remove(probe.name()));
        return Err(Outcome::Unsupported(why.unwrap_or_else(|| "nothing is asked for".to_string())));
    }
    let wire = probes::rdma::End::of(&parts.present, &config.settings.rdma, target.id())
        .map_err(|why| Outcome::Unsupported(why.0))?;
    let now = epoch_seconds();
    let hold = core.holds.current(now);
    let plan = Plan { stages: Vec::new(), uses };
    let asked = Asked {
        plan: &plan,
        cost: Cost::Light,
        active: config.active,
        occupancy: config.occupancy,
        hold: hold.as_ref(),
        now,
        inventory: &parts.present,
        share,
    };
    let port = core.ports.take(&config.peers.ports).ok_or_else(|| no_port(&config.peers.ports))?;
    let permit = core.gate.enter(asked).map_err(Outcome::Skipped)?;
    let end = End {
        device: target.id().to_string(),
        port: port.number(),
        gid: wire.gid.map(|gid| gid.address),
        bits_per_second: Some(wire.bits_per_second),
        now,
    };
    Ok(Half { port, unsupported, end, uses: plan.uses, share, _permit: permit })
}

/// There is no port for a server.
pub(crate) fn no_port(ports: &Range<u16>) -> Outcome {
    Outcome::Skipped(Skip {
        reason: SkipReason::Locked,
        detail: format!("no TCP port from {} to {} is free", ports.start, ports.end - 1),
        retry_after: PORT_RETRY,
    })
}

/// The partner's terms, from what it says of its end.
pub(crate) fn terms(theirs: &End, gpu: bool) -> Terms {
    Terms {
        device: super::message::plain(&theirs.device),
        port: theirs.port,
        gid: theirs.gid.map(|gid| gid.octets()),
        bits_per_second: theirs.bits_per_second.filter(|rate| rate.is_finite() && *rate > 0.0),
        gpu,
        host: None,
    }
}

/// Adds to what is used of a resource already.
fn add(uses: &mut Vec<Use>, used: Use) {
    match uses.iter_mut().find(|known| known.resource == used.resource) {
        Some(known) => known.amount = known.amount.saturating_add(used.amount),
        None => uses.push(used),
    }
}
