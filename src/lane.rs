//! The serial executor of one probe: periodic and on demand, never twice at once.
//!
//! Every run takes the one way through: plan, gate, runner, parse, judge, history. What asked for
//! it differs only in [`Trigger`]. A passive probe has one lane, whose single child reads all of
//! its targets; an active probe has a lane for each target. A lane publishes a [`View`], and
//! everything that shows or exports results reads that and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use probes::{Context, Memory, Output, Plan, Probe, Reading, Scope, Target, Verdict};
use rand::RngExt as _;
use tokio::{
    select,
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};

use crate::{
    config::{Config, Timing},
    core::Core,
    gate::Asked,
    history::History,
    inventory::Parts,
    judge,
    run::{Evidence, Outcome, Report, Run, Trigger},
    runner::{self, Stop, Unfinished, epoch_seconds},
};

/// How far a tick strays from its time, as a part of the interval: nodes must not fall into step.
const JITTER: f64 = 0.1;
/// Before the first runs of a fresh agent, so that its lanes don't start all at once.
const FIRST_RUNS: Duration = Duration::from_millis(500);

/// What a lane says to everybody else.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// The newest run, however it ended.
    pub(crate) last: Option<Arc<Run>>,
    /// What is known of each target, also of those that are gone.
    pub(crate) standings: BTreeMap<Target, Standing>,
    /// When a run began that is still under way.
    pub(crate) running: Option<f64>,
}

/// What is known of one target. A run that was skipped or cancelled leaves it as it is: it ages.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) verdict: Verdict,
    /// Why, in one sentence.
    pub(crate) reason: String,
    /// Since when the verdict is this one, in seconds since the epoch.
    pub(crate) since: f64,
    /// When the newest run ended, however it ended; 0 before the first.
    pub(crate) last_run: f64,
    /// The run that the verdict is from; none before the first, or for a part that is absent.
    pub(crate) judged: Option<Arc<Run>>,
    /// The newest run that measured it, and when that ended.
    pub(crate) completed: Option<(f64, Arc<Run>)>,
}

/// A request for a run now.
#[derive(Debug)]
struct Ask {
    /// When the caller stops waiting, if that is before the probe's own deadline.
    until: Option<Instant>,
    reply: oneshot::Sender<Arc<Run>>,
}

impl Ask {
    /// Whether nobody waits for the answer any more.
    fn is_stale(&self) -> bool {
        self.reply.is_closed() || self.until.is_some_and(|until| until <= Instant::now())
    }
}

/// What others hold of a lane. Dropping the last one ends the lane after the run under way.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) probe: &'static dyn Probe,
    /// The only target of an active lane; none for a passive one, which reads all of its targets.
    pub(crate) target: Option<Target>,
    asks: mpsc::Sender<Ask>,
    view: watch::Receiver<Arc<View>>,
    history: Arc<Mutex<History>>,
}

/// The lane has a request waiting already, or is ending.
#[derive(Debug)]
pub(crate) struct Busy;

/// The part of a lane that runs.
struct Executor {
    probe: &'static dyn Probe,
    target: Option<Target>,
    core: Arc<Core>,
    memory: Memory,
    history: Arc<Mutex<History>>,
    view: watch::Sender<Arc<View>>,
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Executor({} {:?})", self.probe.name(), self.target)
    }
}

impl Lane {
    /// Starts a lane. `past` are its runs of an earlier process, oldest first.
    pub(crate) fn start(
        probe: &'static dyn Probe,
        target: Option<Target>,
        core: Arc<Core>,
        past: Vec<Run>,
        tasks: &tokio_util::task::TaskTracker,
    ) -> Lane {
        let (asks, asked) = mpsc::channel(1);
        let (publish, view) = watch::channel(Arc::default());
        let history = Arc::new(Mutex::new(History::default()));
        let mut executor = Executor {
            probe,
            target: target.clone(),
            core,
            memory: Memory::default(),
            history: history.clone(),
            view: publish,
        };
        executor.recall(past);
        let core = executor.core.clone();
        tasks.spawn(async move {
            if let Err(error) = tokio::spawn(executor.serve(asked)).await
                && error.is_panic()
            {
                core.give_up(probe.name());
            }
        });
        Lane { probe, target, asks, view, history }
    }

    /// What is known now.
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
    }

    /// Runs as soon as the lane is free, and waits for the end.
    pub(crate) async fn run_now(&self, until: Option<Instant>) -> Result<Arc<Run>, Busy> {
        let (reply, run) = oneshot::channel();
        self.asks.try_send(Ask { until, reply }).map_err(|_| Busy)?;
        run.await.map_err(|_| Busy)
    }

    /// The kept runs, oldest first.
    pub(crate) fn runs(&self) -> Vec<Arc<Run>> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).runs().cloned().collect()
    }

    /// A kept run.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<Run>> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).find(id)
    }
}

impl Executor {
    async fn serve(mut self, mut asked: mpsc::Receiver<Ask>) {
        let (mut config, mut parts) = (self.core.config.clone(), self.core.parts.clone());
        let shutdown = self.core.shutdown.clone();
        let mut next = self.first_tick();
        let mut seen = self.core.parts.borrow().names();
        loop {
            let listed = self.core.parts.borrow().listed;
            let ask = select! {
                biased;
                () = shutdown.cancelled() => return,
                Ok(()) = config.changed() => {
                    next = next.min(self.next_tick());
                    continue;
                }
                Ok(()) = parts.changed() => {
                    self.settle_parts();
                    // A part that came or went is not left for the next tick: what is expected of
                    // the node depends on it too.
                    let names = self.core.parts.borrow().names();
                    if names != seen && self.target.is_none() {
                        next = next.min(Instant::now());
                    }
                    seen = names;
                    continue;
                }
                // Before what is asked for: nobody who asks all the time keeps the schedule off.
                () = sleep_until(next), if listed => None,
                ask = asked.recv() => match ask {
                    Some(ask) if ask.is_stale() => continue,
                    Some(ask) => Some(ask),
                    None => return,
                },
            };
            let (trigger, until) = match &ask {
                Some(ask) => (Trigger::OnDemand, ask.until),
                None => (Trigger::Periodic, None),
            };
            let run = self.run(trigger, until).await;
            if let Some(ask) = ask {
                // The caller may have hung up; the run counts all the same.
                let _ = ask.reply.send(run);
            } else {
                next = self.next_tick();
            }
        }
    }

    /// The one way through.
    async fn run(&mut self, trigger: Trigger, until: Option<Instant>) -> Arc<Run> {
        let (started, clock) = (epoch_seconds(), Instant::now());
        let config = self.core.config.borrow().clone();
        let parts = self.core.parts.borrow().clone();
        let targets = self.targets(&config, &parts);
        self.view.send_modify(|view| Arc::make_mut(view).running = Some(started));
        let mut evidence = Vec::new();
        let result = self.execute(&config, &parts, &targets, until, &mut evidence).await;
        let (outcome, reports) = match result {
            Ok(reports) => (Outcome::Completed, reports),
            Err(outcome) => {
                let reports = judge::not_completed(&targets, &outcome);
                (outcome, reports)
            }
        };
        let run = Arc::new(Run {
            id: self.core.next_id(),
            probe: self.probe.name(),
            target: self.target.clone(),
            trigger,
            started,
            took: clock.elapsed(),
            outcome,
            reports,
            evidence,
        });
        self.publish(&run);
        run
    }

    async fn execute(
        &mut self,
        config: &Config,
        parts: &Parts,
        targets: &[Target],
        until: Option<Instant>,
        evidence: &mut Vec<Evidence>,
    ) -> Result<Vec<Report>, Outcome> {
        if targets.is_empty() {
            return Err(Outcome::Unsupported("this node has no part that the probe measures".to_string()));
        }
        let timeout = timing(config, self.probe.name(), targets.first())
            .map_or(Duration::ZERO, |timing| timing.timeout);
        let ctx = Context { targets, inventory: &parts.present, settings: &config.settings, timeout };
        let plan = self.probe.plan(&ctx).map_err(|why| Outcome::Unsupported(why.0))?;
        let now = epoch_seconds();
        let hold = self.core.holds.current(now);
        let cost = self.probe.cost(&config.settings, &targets[0]);
        let asked = Asked {
            plan: &plan,
            cost,
            active: config.active,
            hold: hold.as_ref(),
            now,
            inventory: &parts.present,
        };
        let permit = self.core.gate.enter(asked).map_err(Outcome::Skipped)?;
        let stop = Stop { shutdown: self.core.shutdown.clone(), caller: until };
        let measured = measure(self.probe, &ctx, &plan, &mut self.memory, &stop, evidence).await;
        drop(permit);
        measured
    }

    /// Tells everybody: totals, journal, history and the view.
    fn publish(&mut self, run: &Arc<Run>) {
        self.core.totals.count(run);
        self.history.lock().unwrap_or_else(PoisonError::into_inner).push(run.clone());
        tracing::debug!(run = run.id, probe = run.probe, outcome = %run.outcome, took_ms = run.took.as_millis(), "run ended");
        let ended = run.started + run.took.as_secs_f64();
        self.view.send_modify(|view| {
            let view = Arc::make_mut(view);
            view.running = None;
            view.last = Some(run.clone());
            for standing in view.standings.values_mut() {
                standing.last_run = ended;
            }
            for report in &run.reports {
                stand(view, report, run, ended);
            }
        });
        self.settle_parts();
        self.core.journal.append(run);
    }

    /// Gives every present target a standing, and every absent one its verdict.
    fn settle_parts(&mut self) {
        let config = self.core.config.borrow().clone();
        let parts = self.core.parts.borrow().clone();
        let mut present: BTreeSet<Target> = self.targets(&config, &parts).into_iter().collect();
        let mut absent: BTreeSet<Target> = match &self.target {
            Some(_) => BTreeSet::new(),
            None => self
                .probe
                .targets(&parts.accepted, &config.settings)
                .into_iter()
                .filter(|target| !present.contains(target))
                .collect(),
        };
        if !parts.listed {
            // Nobody has looked yet, so what was accepted counts as there.
            present.append(&mut absent);
        }
        let now = epoch_seconds();
        self.view.send_modify(|view| {
            let view = Arc::make_mut(view);
            view.standings.retain(|target, _| present.contains(target) || absent.contains(target));
            for target in &present {
                let back = view.standings.get(target).is_some_and(Standing::is_absent);
                if back || !view.standings.contains_key(target) {
                    view.standings.insert(target.clone(), Standing::unmeasured(now));
                }
            }
            for target in &absent {
                let standing =
                    view.standings.entry(target.clone()).or_insert_with(|| Standing::unmeasured(now));
                if !standing.is_absent() {
                    standing.be_absent(now);
                }
            }
        });
    }

    /// Takes up the runs of an earlier process: a restart never turns a bad verdict good.
    fn recall(&mut self, past: Vec<Run>) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        self.view.send_modify(|view| {
            let view = Arc::make_mut(view);
            for run in past {
                let run = Arc::new(run);
                let ended = run.started + run.took.as_secs_f64();
                for report in &run.reports {
                    stand(view, report, &run, ended);
                }
                view.last = Some(run.clone());
                history.push(run);
            }
        });
        drop(history);
        self.settle_parts();
    }

    fn targets(&self, config: &Config, parts: &Parts) -> Vec<Target> {
        match &self.target {
            Some(target) => vec![target.clone()],
            None => self.probe.targets(&parts.present, &config.settings),
        }
    }

    /// A passive lane runs at once; an active one keeps its phase, which a restart must not reset.
    fn first_tick(&self) -> Instant {
        match self.target {
            None => Instant::now() + FIRST_RUNS.mul_f64(rand::rng().random_range(0.0..1.0)),
            Some(_) => self.next_tick(),
        }
    }

    fn next_tick(&self) -> Instant {
        let config = self.core.config.borrow();
        let Some(timing) = timing(&config, self.probe.name(), self.target.as_ref()) else {
            return Instant::now() + Duration::from_secs(60);
        };
        let stray = rand::rng().random_range(0.0..JITTER);
        let wait = match &self.target {
            None => timing.interval.mul_f64(1.0 - stray),
            Some(target) => {
                let phase = phase(&config.node_name, self.probe.name(), target);
                until_phase(epoch_seconds(), timing.interval, phase) + timing.interval.mul_f64(stray)
            }
        };
        Instant::now() + wait
    }
}

/// Runs a plan that may run: runner, parser and judge.
pub(crate) async fn measure(
    probe: &'static dyn Probe,
    ctx: &Context<'_>,
    plan: &Plan,
    memory: &mut Memory,
    stop: &Stop,
    evidence: &mut Vec<Evidence>,
) -> Result<Vec<Report>, Outcome> {
    let mut outputs = Vec::new();
    for step in &plan.steps {
        let (result, what_ran) = runner::run(step, stop).await;
        evidence.push(what_ran);
        match result {
            Ok(output) => outputs.push(output),
            // A worker prints its whole answer before it waits for a read that hangs.
            Err(Unfinished { failure, output })
                if failure.is_stuck() && probe.scope() == Scope::AllTargets =>
            {
                let answer = parse(probe, ctx, &[output], memory);
                return answer
                    .map(|readings| judge::completed(ctx.targets, readings))
                    .map_err(|_| Outcome::Failed(failure));
            }
            Err(unfinished) => return Err(Outcome::Failed(unfinished.failure)),
        }
    }
    let readings = parse(probe, ctx, &outputs, memory).map_err(Outcome::Unreadable)?;
    Ok(judge::completed(ctx.targets, readings))
}

/// A parser that panics has met an output that nobody thought of; it must not take the agent down.
fn parse(
    probe: &'static dyn Probe,
    ctx: &Context<'_>,
    outputs: &[Output],
    memory: &mut Memory,
) -> Result<Vec<Reading>, String> {
    match catch_unwind(AssertUnwindSafe(|| probe.parse(ctx, outputs, memory))) {
        Ok(parsed) => parsed.map_err(|error| error.to_string()),
        Err(_) => Err("the parser failed; the agent's log says where".to_string()),
    }
}

impl Standing {
    fn unmeasured(now: f64) -> Standing {
        Standing {
            verdict: Verdict::Unknown,
            reason: "it has not been measured yet".to_string(),
            since: now,
            last_run: 0.0,
            judged: None,
            completed: None,
        }
    }

    /// Whether the part was accepted once and is gone.
    pub(crate) fn is_absent(&self) -> bool {
        self.verdict == Verdict::Fail && self.judged.is_none()
    }

    fn be_absent(&mut self, now: f64) {
        *self = Standing {
            verdict: Verdict::Fail,
            reason: judge::ABSENT.to_string(),
            since: now,
            judged: None,
            completed: None,
            last_run: self.last_run,
        };
    }
}

fn stand(view: &mut View, report: &Report, run: &Arc<Run>, ended: f64) {
    let standing = view.standings.entry(report.target.clone()).or_insert_with(|| Standing::unmeasured(ended));
    if standing.verdict != report.verdict {
        standing.since = ended;
    }
    standing.verdict = report.verdict;
    standing.reason = report.reason.clone();
    standing.last_run = ended;
    standing.judged = Some(run.clone());
    if run.outcome == Outcome::Completed && !(report.measurements.is_empty() && report.findings.is_empty()) {
        standing.completed = Some((ended, run.clone()));
    }
}

/// When and for how long a lane runs: the operator's own checks have times of their own.
pub(crate) fn timing(config: &Config, probe: &str, target: Option<&Target>) -> Option<Timing> {
    match target {
        Some(Target::Check(name)) => config
            .settings
            .exec
            .iter()
            .find(|check| check.name == *name)
            .map(|check| Timing { enabled: true, interval: check.interval, timeout: check.timeout }),
        Some(Target::Node | Target::Pci(_) | Target::Rdma(_)) | None => config.timings.get(probe).copied(),
    }
}

/// Where in its interval a lane runs, from 0 to 1: the same after a restart, spread over the nodes.
fn phase(node: &str, probe: &str, target: &Target) -> f64 {
    // FNV-1a: std's hashers promise no stable value.
    let text = format!("{node} {probe} {target}");
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // FNV's high bits mix poorly on short texts; fold them.
    f64::from(u32::try_from((hash ^ (hash >> 32)) & 0xffff_ffff).unwrap_or(0)) / f64::from(u32::MAX)
}

/// The time from `now` to the next point of that phase.
fn until_phase(now: f64, interval: Duration, phase: f64) -> Duration {
    let interval = interval.as_secs_f64();
    let into = (now / interval).fract();
    let wait = if phase > into { phase - into } else { 1.0 + phase - into };
    Duration::from_secs_f64(wait * interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_spread_over_the_interval_and_are_met_within_it() {
        let mut tenths = [0; 10];
        for node in 0..1000 {
            let phase = phase(&format!("node-{node}"), "exec", &Target::Check("raid".into()));
            let wait = until_phase(1_000_000.25, Duration::from_secs(600), phase);
            assert!(wait > Duration::ZERO && wait <= Duration::from_secs(600), "{wait:?}");
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 9")]
            let tenth = ((phase * 10.0) as usize).min(9);
            tenths[tenth] += 1;
        }
        assert!(tenths.iter().all(|count| (60..140).contains(count)), "{tenths:?}");
    }
}
