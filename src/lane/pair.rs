//! A run of two nodes: with a partner that is chosen here, in a lease that is open already, or in
//! one that a partner leads.

use std::sync::Arc;

use probes::{Context, Memory, Output, Probe, Stage, Target};
use tokio::{
    select,
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{Told, parse};
use crate::{
    core::Core,
    gate::Share,
    peer::{
        lease::{Command, Served},
        session::{Session, Wish},
        stage::{AFTER_CLIENT, explain},
    },
    peers::membership::Member,
    run::{CancelledBy, Failure, Outcome, Report, Skip, SkipReason},
    runner::{self, Stop},
};

/// Partners that are asked for one run on demand: somebody waits for the answer.
const MOST_ASKED: usize = 3;

/// Opens a lease for a run on demand: with the peer that is asked for, else with this slot's
/// partner or, if that says no, with one of the next.
pub(super) async fn choose(
    core: &Arc<Core>,
    probe: &'static dyn Probe,
    target: &Target,
    peer: Option<Arc<Member>>,
    share: Share,
    until: Option<Instant>,
    told: &mut Told,
) -> Result<Session, Outcome> {
    let (config, parts) = (core.config.borrow().clone(), core.parts.borrow().clone());
    let Some(rail) = probes::rdma::rail_of(&parts.present, &config.settings.rdma, target.id()) else {
        return Err(Outcome::Unsupported(format!("{target} is not one of the rails: see rdma.rails")));
    };
    let members = match peer {
        Some(member) => vec![member],
        None => core.partners_now().await,
    };
    let mut refused = Skip {
        reason: SkipReason::NoPartner,
        detail: "there is no other node: set peers.static or peers.file_sd".to_string(),
        retry_after: config.peers.slot,
    };
    for member in members.iter().take(MOST_ASKED) {
        told.peer = Some(member.name.to_string());
        let wish = Wish { target, rail, probes: &[probe], member, on_demand: true, due: true, share, until };
        match Session::open(core, &wish).await.map_err(|none| none.outcome) {
            Err(Outcome::Skipped(skip)) => {
                let theirs =
                    [SkipReason::Refused, SkipReason::Away, SkipReason::Untrusted].contains(&skip.reason);
                refused = skip;
                if !theirs {
                    break;
                }
            }
            other => return other,
        }
    }
    Err(Outcome::Skipped(refused))
}

/// Leads a run in a lease of our own.
pub(super) async fn opened(
    core: &Core,
    probe: &'static dyn Probe,
    ctx: Context<'_>,
    session: &Session,
    memory: &mut Memory,
    stop: &Stop,
    told: &mut Told,
) -> Result<Vec<Report>, Outcome> {
    told.peer = Some(session.peer().to_string());
    if let Some(why) = session.unsupported(probe.name()) {
        return Err(why);
    }
    let partner = session.partner();
    let ctx = Context { port: session.port(), partner: Some(&partner), ..ctx };
    let plan = probe.plan(&ctx).map_err(|why| Outcome::Unsupported(why.0))?;
    let mut outputs = Vec::new();
    for (index, stage) in plan.stages.iter().enumerate() {
        core.may_go_on()?;
        outputs.push(session.stage(probe, index, stage, stop, &mut told.evidence).await?);
    }
    let readings = parse(probe, &ctx, &outputs, memory)?;
    let reports = core.judge(probe, ctx.targets, Some(session.peer()), readings);
    reports.iter().for_each(|report| session.learn(&report.measurements));
    Ok(reports)
}

/// Makes our half of a run that a partner leads.
pub(super) async fn served(
    core: &Core,
    probe: &'static dyn Probe,
    ctx: Context<'_>,
    served: Served,
    memory: &mut Memory,
    stop: &Stop,
    told: &mut Told,
) -> Result<Vec<Report>, Outcome> {
    let Served { lease, host_known, mut commands, ended } = served;
    told.peer = Some(lease.partner.name.clone());
    let partner = lease.partner(host_known);
    let ctx = Context { port: lease.half.port.number(), partner: Some(&partner), ..ctx };
    let plan = probe.plan(&ctx).map_err(|why| Outcome::Unsupported(why.0))?;
    let stop = Stop { partner: Some(lease.over.clone()), ..stop.clone() };
    let mut outputs = Vec::new();
    let mut next = None;
    for (index, stage) in plan.stages.iter().enumerate() {
        let command = match next.take() {
            Some(command) => Some(command),
            None => receive(&mut commands, &stop).await,
        };
        let Some(Command { stage: asked, reply }) = command else {
            return Err(Outcome::Failed(Failure::Cancelled { by: CancelledBy::Partner }));
        };
        if asked != index {
            let says = format!("it asked for stage {asked} where {index} was next");
            let _ = reply.send(Err(says.clone()));
            return Err(Outcome::Failed(Failure::Partner { peer: lease.partner.name.clone(), says }));
        }
        if let Err(stopped) = core.may_go_on() {
            let _ = reply.send(Err(stopped.to_string()));
            return Err(stopped);
        }
        outputs.push(half(probe, stage, ctx.port, reply, &mut commands, &mut next, &stop, told).await?);
    }
    let readings = parse(probe, &ctx, &outputs, memory)?;
    let reports = core.judge(probe, ctx.targets, Some(&lease.partner.name), readings);
    reports.iter().for_each(|report| lease.learn(&report.measurements));
    drop(ended);
    Ok(reports)
}

/// Our half of one stage. `reply` is answered when the opener may go on.
#[expect(clippy::too_many_arguments, reason = "the state of one loop, which is shorter with it")]
async fn half(
    probe: &'static dyn Probe,
    stage: &Stage,
    port: u16,
    reply: oneshot::Sender<Result<(), String>>,
    commands: &mut mpsc::Receiver<Command>,
    next: &mut Option<Command>,
    stop: &Stop,
    told: &mut Told,
) -> Result<Output, Outcome> {
    let result = match stage {
        Stage::Serve(step) => {
            let mut server = match runner::serve(step.clone(), port, stop).listening().await {
                Ok(server) => server,
                Err((result, ran)) => {
                    told.evidence.push(ran);
                    let result = result.map_err(|unfinished| explain(probe, unfinished));
                    let _ = reply.send(result.as_ref().map(drop).map_err(Failure::to_string));
                    return result.map_err(Outcome::Failed);
                }
            };
            let _ = reply.send(Ok(()));
            // The opener asks for the next stage, or ends the lease, when its client has ended.
            select! {
                () = server.wait() => {}
                command = commands.recv() => *next = command,
            }
            let (result, ran) = server.finish(AFTER_CLIENT).await;
            told.evidence.push(ran);
            result
        }
        Stage::Call(step) => {
            let (result, ran) = runner::run(step, stop).await;
            told.evidence.push(ran);
            let result = result.map_err(|unfinished| explain(probe, unfinished));
            let _ = reply.send(result.as_ref().map(drop).map_err(Failure::to_string));
            return result.map_err(Outcome::Failed);
        }
        Stage::Alone(_) | Stage::Both { .. } => {
            return Err(Outcome::Unsupported("a run of two nodes has a stage of one".to_string()));
        }
    };
    result.map_err(|unfinished| Outcome::Failed(explain(probe, unfinished)))
}

async fn receive(commands: &mut mpsc::Receiver<Command>, stop: &Stop) -> Option<Command> {
    select! {
        command = commands.recv() => command,
        _ = stop.cancelled() => None,
    }
}
