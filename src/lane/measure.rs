//! The way of a plan that may run: its children, and the parser.

use std::panic::{AssertUnwindSafe, catch_unwind};

use probes::{Context, Memory, Output, ParseError, Plan, Probe, Reading, Scope, Stage, Step};

use crate::{
    peer::stage,
    run::{Evidence, Outcome},
    runner::{self, Stop, Unfinished},
};

/// Runs a plan that may run and needs no partner: runner and parser.
pub(crate) async fn measure(
    probe: &'static dyn Probe,
    ctx: &Context<'_>,
    plan: &Plan,
    memory: &mut Memory,
    stop: &Stop,
    evidence: &mut Vec<Evidence>,
) -> Result<Vec<Reading>, Outcome> {
    let mut outputs = Vec::new();
    for stage in &plan.stages {
        let result = match stage {
            Stage::Alone(step) => {
                let (result, ran) = runner::run(step, stop).await;
                evidence.push(ran);
                result
            }
            Stage::Both { server, client } => both(server, client, ctx.port, stop, evidence).await,
            Stage::Serve(_) | Stage::Call(_) => {
                return Err(Outcome::Unsupported("this run needs a partner".to_string()));
            }
        };
        match result {
            Ok(output) => outputs.push(output),
            // A worker prints its whole answer before it waits for a read that hangs.
            Err(Unfinished { failure, output })
                if failure.is_stuck() && probe.scope() == Scope::AllTargets =>
            {
                return parse(probe, ctx, &[output], memory).map_err(|_| Outcome::Failed(failure));
            }
            Err(unfinished) => return Err(Outcome::Failed(stage::explain(probe, unfinished))),
        }
    }
    parse(probe, ctx, &outputs, memory)
}

/// A server of ours and a client of ours. What the client says counts; a client that failed since
/// its server did says less than the server.
async fn both(
    server: &Step,
    client: &Step,
    port: u16,
    stop: &Stop,
    evidence: &mut Vec<Evidence>,
) -> Result<Output, Unfinished> {
    let server = match runner::serve(server.clone(), port, stop).listening().await {
        Ok(server) => server,
        Err((result, ran)) => {
            evidence.push(ran);
            return result;
        }
    };
    let (called, ran) = runner::run(client, stop).await;
    let (served, server_ran) = server.finish(stage::AFTER_CLIENT).await;
    evidence.extend([server_ran, ran]);
    match (called, served) {
        (Ok(output), Ok(_)) => Ok(output),
        (Ok(_), Err(unfinished)) => Err(unfinished),
        (Err(unfinished), _) => Err(unfinished),
    }
}

/// What the outputs of a finished plan say.
///
/// A parser that panics has met an output that nobody thought of; it must not take the agent down.
pub(super) fn parse(
    probe: &'static dyn Probe,
    ctx: &Context<'_>,
    outputs: &[Output],
    memory: &mut Memory,
) -> Result<Vec<Reading>, Outcome> {
    match catch_unwind(AssertUnwindSafe(|| probe.parse(ctx, outputs, memory))) {
        Ok(Ok(readings)) => Ok(readings),
        Ok(Err(ParseError::Unsupported(why))) => Err(Outcome::Unsupported(why.0)),
        Ok(Err(error)) => Err(Outcome::Unreadable(error.to_string())),
        Err(_) => Err(Outcome::Unreadable("the parser failed; the agent's log says where".to_string())),
    }
}
