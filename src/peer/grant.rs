//! Whether a partner gets a lease. Everything that it names is looked up in what this node knows.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use probes::{Partner, Probe, Scope, Target, partner::Side};

use super::{
    half,
    lease::Lease,
    message::{LeaseGranted, LeaseRequest, NO_RAIL, NOT_DUE, Refusal, UNSUPPORTED, plain},
    session::GPU_PROBE,
};
use crate::{
    agent::Agent,
    gate::Share,
    lane::Lane,
    run::{Outcome, SkipReason},
    runner::epoch_seconds,
};

/// When what an operator has to change is worth asking for again.
pub(crate) const LATER: Duration = Duration::from_secs(900);
/// A device that another run has just now is free again in seconds, and where two nodes ask each
/// other at the same moment, at once.
const SOON: Duration = Duration::from_secs(1);

/// The kernel's limit for the names of RDMA devices, in bytes.
const LONGEST_DEVICE: usize = 64;

/// What an opener may take between two stages beside the call that is its half.
const BETWEEN: Duration = Duration::from_secs(20);

/// Grants a lease, or says why not.
pub(crate) fn grant(
    agent: &Arc<Agent>,
    request: &LeaseRequest,
) -> Result<(Arc<Lease>, LeaseGranted), Refusal> {
    let config = agent.config.borrow().clone();
    if request.partner != config.node_name {
        let detail = format!(
            "this is {}, not {:?}: two nodes have one address",
            config.node_name,
            plain(&request.partner)
        );
        return Err(Refusal::new("wrong_node", detail, LATER));
    }
    if !is_device(&request.end.device) {
        return Err(Refusal::new("not_understood", "the device's name is none", LATER));
    }
    let members = agent.members();
    let Some(member) = members.get(&request.opener) else {
        let detail = format!("{} is not in the list of peers here", request.opener);
        return Err(Refusal::new("unknown_peer", detail, LATER));
    };
    let ours = probes::rdma::parameters(&config.settings.rdma);
    if let Some(difference) = probes::rdma::difference(&ours, &request.parameters) {
        return Err(Refusal::new(
            "parameters_differ",
            format!("[rdma] differs: {}", plain(&difference)),
            LATER,
        ));
    }
    if !config.peers.ports.contains(&request.end.port) {
        let detail = format!("port {} is not one of peers.first_port and peers.ports here", request.end.port);
        return Err(Refusal::new("parameters_differ", detail, LATER));
    }
    let parts = agent.parts();
    let Some(device) = probes::rdma::device_of(&parts.present, &config.settings.rdma, request.rail) else {
        let detail = format!("{} has no rail {}, counted from 0", config.node_name, request.rail);
        return Err(Refusal::new(NO_RAIL, detail, LATER));
    };
    let target = Target::Rdma(device.name.clone());
    if !request.on_demand && !request.due && !agent.rail_due(&target) {
        let detail = format!("{target} was measured within the interval");
        return Err(Refusal::new(NOT_DUE, detail, LATER));
    }
    // Each once, and only what there is: from the catalogue, not from the message.
    let asked = |probe: &&'static dyn Probe| {
        probe.scope() == Scope::EachPair
            && request.probes.iter().any(|name| name == probe.name())
            && agent.find(probe.name(), Some(target.id())).is_ok()
    };
    let known: Vec<&'static dyn Probe> = probes::PROBES.iter().copied().filter(asked).collect();
    if known.is_empty() {
        return Err(Refusal::new(UNSUPPORTED, "none of these probes is switched on here", LATER));
    }
    let mut partner = Partner {
        name: request.opener.clone(),
        host: member.host.to_string(),
        side: Side::Server,
        host_measured: false,
        terms: None,
    };
    let half = half::enter(agent.core(), &target, &known, &partner, Share::Regular).map_err(|outcome| {
        if let Outcome::Skipped(skip) = &outcome {
            agent.totals().refuse(known[0].name(), skip.reason);
        }
        refusal(outcome)
    })?;
    half.spend(agent.core());
    agent.core().skew.note(request.end.now - epoch_seconds());
    let offered: BTreeSet<String> = known
        .iter()
        .map(|probe| probe.name().to_string())
        .filter(|probe| !half.unsupported.contains_key(probe))
        .collect();
    let mut unsupported = half.unsupported.clone();
    for probe in request.probes.iter().filter(|probe| !offered.contains(*probe)).take(probes::PROBES.len()) {
        unsupported.entry(plain(probe)).or_insert_with(|| "it is not switched on here".to_string());
    }
    partner.terms = Some(half::terms(&request.end, offered.contains(GPU_PROBE)));
    let end = half.end.clone();
    // The opener's own call, and what comes around it.
    let longest =
        known.iter().filter_map(|probe| config.timings.get(probe.name())).map(|timing| timing.timeout).max();
    let idle = longest.unwrap_or_default() + BETWEEN;
    let lease = agent.leases().begin(partner, half, offered, config.peers.lease, idle);
    tracing::debug!(peer = request.opener, device = %target, lease = lease.id, "a lease is granted");
    let granted = LeaseGranted { id: lease.id, end, unsupported, seconds: config.peers.lease.as_secs_f64() };
    Ok((lease, granted))
}

/// Whether this can be the name of an RDMA device: it is shown in a command to repeat a run by hand.
pub(crate) fn is_device(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=LONGEST_DEVICE).contains(&name.len()) && name.bytes().all(plain)
}

/// The lane that runs our half of a probe in a lease.
pub(crate) fn lane(agent: &Agent, lease: &Lease, probe: &str) -> Result<Arc<Lane>, Refusal> {
    if !lease.probes.contains(probe) {
        return Err(Refusal::new(UNSUPPORTED, format!("{} is not part of this lease", plain(probe)), LATER));
    }
    match agent.find(probe, Some(&lease.half.end.device)) {
        Ok((lane, _)) => Ok(lane),
        Err(gone) => Err(Refusal::new("failed", gone.to_string(), LATER)),
    }
}

/// Our own gate's no, for the partner.
fn refusal(outcome: Outcome) -> Refusal {
    match outcome {
        Outcome::Skipped(skip) => {
            let retry_after = if skip.reason == SkipReason::Locked { SOON } else { skip.retry_after };
            Refusal::new(skip.reason.word(), skip.detail, retry_after)
        }
        Outcome::Unsupported(why) => Refusal::new(UNSUPPORTED, why, LATER),
        other @ (Outcome::Completed | Outcome::Failed(_) | Outcome::Unreadable(_)) => {
            Refusal::new("failed", other.for_everybody(), LATER)
        }
    }
}
