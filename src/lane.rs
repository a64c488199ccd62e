//! The serial executor of one probe: periodic and on demand, never twice at once.
//!
//! Every run takes the one way through: plan, gate, runner, parse, judge, history. What asked for
//! it differs only in [`Trigger`]. A passive probe has one lane, whose single child reads all of
//! its targets; an active probe has a lane for each target. A lane publishes a [`View`], and
//! everything that shows or exports results reads that and nothing else.

use std::{
    collections::BTreeSet,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use probes::{Context, Memory, Output, Plan, Probe, Reading, Scope, Target};
use rand::RngExt as _;
use tokio::{
    select,
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};

use crate::{
    config::Config,
    core::Core,
    gate::Asked,
    history::History,
    inventory::Parts,
    judge,
    run::{Evidence, Outcome, Report, Run, Trigger},
    runner::{self, Stop, Unfinished, epoch_seconds},
};

mod timing;
mod view;

pub(crate) use timing::timing;
use timing::{phase, until_phase};
use view::stand;
pub(crate) use view::{Standing, View};

/// How far a tick strays from its time, as a part of the interval: nodes must not fall into step.
const JITTER: f64 = 0.1;
/// Before the first runs of a fresh agent, so that its lanes don't start all at once.
const FIRST_RUNS: Duration = Duration::from_millis(500);

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
        let ctx = Context {
            targets,
            inventory: &parts.present,
            settings: &config.settings,
            timeout,
            port: 0,
            partner: None,
        };
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
    for step in plan.stages.iter().flat_map(probes::Stage::steps) {
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
