//! Makes the runs that decide suspicions, when they are due.
//!
//! It only asks lanes, as everybody who wants a run does. A run with a partner goes to one that the
//! device has not met since the suspicion came up, and before that the device is measured to itself:
//! so that its own fault and a partner's can be told apart.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use probes::{Scope, Target};
use tokio::{select, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::Agent,
    judge::book::Wanted,
    lane::Lane,
    peers::membership::Member,
    run::{Outcome, Run, Skip, SkipReason},
    runner::epoch_seconds,
};

/// The probe that tells a device's own fault.
const LOOPBACK: &str = "loopback";
/// How often is looked for runs that are due, as a part of the time between two of them.
const LOOK: f64 = 1.0 / 60.0;
/// The most and the least of that, in seconds.
const LOOKS: (f64, f64) = (0.05, 5.0);
/// The longest until a run that was refused is tried anew, in seconds.
const RETRY: f64 = 60.0;
/// Partners that are asked for one run.
const MOST_ASKED: usize = 4;

/// Until the agent stops.
pub(crate) async fn run(agent: Arc<Agent>, shutdown: CancellationToken) {
    let mut not_before: HashMap<(String, Target), f64> = HashMap::new();
    loop {
        let every = agent.config.borrow().baseline.every;
        select! {
            () = shutdown.cancelled() => return,
            () = sleep(Duration::from_secs_f64((every * LOOK).clamp(LOOKS.0, LOOKS.1))) => {}
        }
        let wanted = agent.core().baseline.book().wanted();
        not_before.retain(|(probe, target), _| {
            wanted.iter().any(|wanted| wanted.probe == *probe && wanted.target == *target)
        });
        for wanted in wanted {
            let (now, key) = (epoch_seconds(), (wanted.probe.clone(), wanted.target.clone()));
            if wanted.at > now || not_before.get(&key).is_some_and(|at| *at > now) {
                continue;
            }
            let wait = decide(&agent, &wanted).await;
            not_before.insert(key, epoch_seconds() + wait.unwrap_or(every / 2.0).min(every));
            if shutdown.is_cancelled() {
                return;
            }
        }
    }
}

/// Makes one run. Returns after how many seconds it is worth trying again, if it was refused.
async fn decide(agent: &Arc<Agent>, wanted: &Wanted) -> Option<f64> {
    let lane = lane(agent, &wanted.probe, &wanted.target).filter(|lane| agent.off(lane).is_none())?;
    let run = match lane.probe.scope() {
        Scope::AllTargets | Scope::EachTarget => lane.confirm(None).await,
        Scope::EachPair => {
            to_itself(agent, wanted).await;
            with_another(agent, &lane, wanted).await
        }
    };
    match run {
        Ok(run) => refused(&run).map(|skip| skip.retry_after.as_secs_f64().min(RETRY)),
        Err(_) => Some(LOOKS.1),
    }
}

/// Measures the device to itself, once since the suspicion came up.
async fn to_itself(agent: &Arc<Agent>, wanted: &Wanted) {
    let Some(lane) = lane(agent, LOOPBACK, &wanted.target).filter(|lane| agent.off(lane).is_none()) else {
        return;
    };
    let measured = agent.core().baseline.book().measured_at(LOOPBACK, &wanted.target);
    if measured.is_none_or(|at| at < wanted.opened) {
        let _ = lane.confirm(None).await;
    }
}

/// Measures with a partner: one that was not met yet, if there is one.
async fn with_another(
    agent: &Arc<Agent>,
    lane: &Arc<Lane>,
    wanted: &Wanted,
) -> Result<Arc<Run>, crate::lane::Busy> {
    let mut run = None;
    for member in order(agent.core().partners_now().await, &wanted.met).into_iter().take(MOST_ASKED) {
        let made = lane.confirm(Some(member)).await?;
        let theirs = refused(&made).is_some_and(|skip| {
            [SkipReason::Refused, SkipReason::Away, SkipReason::Untrusted].contains(&skip.reason)
        });
        run = Some(made);
        if !theirs {
            break;
        }
    }
    match run {
        Some(run) => Ok(run),
        None => lane.confirm(None).await,
    }
}

/// Those that were not met come first, and the one that the suspicion began with comes last.
fn order(members: Vec<Arc<Member>>, met: &[String]) -> Vec<Arc<Member>> {
    let first = met.first();
    let met: BTreeSet<&str> = met.iter().map(String::as_str).collect();
    let rank = |member: &Arc<Member>| match &*member.name {
        name if first.is_some_and(|first| first == name) => 2,
        name if met.contains(name) => 1,
        _ => 0,
    };
    let mut members = members;
    members.sort_by_key(rank);
    members
}

fn refused(run: &Run) -> Option<&Skip> {
    match &run.outcome {
        Outcome::Skipped(skip) => Some(skip),
        Outcome::Completed | Outcome::Unsupported(_) | Outcome::Failed(_) | Outcome::Unreadable(_) => None,
    }
}

fn lane(agent: &Agent, probe: &str, target: &Target) -> Option<Arc<Lane>> {
    agent.lanes().into_iter().find(|lane| lane.probe.name() == probe && lane.target.as_ref() == Some(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_come_first_and_the_first_suspect_last() {
        let member = |name: &str| Arc::new(Member { name: name.into(), host: name.into(), hash: 0 });
        let members = ["a", "b", "c", "d"].map(member).to_vec();
        let names = |met: &[&str]| {
            let met: Vec<String> = met.iter().map(|name| name.to_string()).collect();
            order(members.clone(), &met).iter().map(|member| member.name.to_string()).collect::<String>()
        };
        assert_eq!(names(&[]), "abcd");
        assert_eq!(names(&["a", "c"]), "bdca");
    }
}
