//! The serial executor of one probe: periodic and on demand, never twice at once.
//!
//! Every run takes the one way through: plan, gate, runner, parse, judge, history. What asked for
//! it differs only in [`Trigger`]. A passive probe has one lane, whose single child reads all of
//! its targets; an active probe has a lane for each target. A lane publishes a [`View`], and
//! everything that shows or exports results reads that and nothing else.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use probes::{Context, LoadedLinks, Memory, Partner, Probe, Schedule, Scope, Stage, Target};
use rand::RngExt as _;
use tokio::{
    select,
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};

use crate::{
    config::Config,
    core::Core,
    gate::{Asked, Share},
    history::History,
    inventory::Parts,
    judge,
    peer::{half, lease::Served, session::Session},
    peers::membership::Member,
    run::{Evidence, Outcome, Report, Run, Trigger},
    runner::{Stop, epoch_seconds},
};

mod measure;
mod pair;
mod timing;
mod view;

pub(crate) use measure::measure;
use measure::parse;
pub(crate) use timing::timing;
use timing::{phase, until_phase};
use view::stand;
pub(crate) use view::{Standing, View};

/// How far a tick strays from its time, as a part of the interval: nodes must not fall into step.
const JITTER: f64 = 0.1;
/// Parts in leases that wait for a lane: one from each side, and a refusal to write down.
const LEASED: usize = 4;
/// Until the tick of a lane that has none by itself.
const NEVER: Duration = Duration::from_secs(365 * 86_400);
/// Before the first runs of a fresh agent, so that its lanes don't start all at once.
const FIRST_RUNS: Duration = Duration::from_millis(500);

/// A request for a run now.
#[derive(Debug)]
struct Ask {
    job: Job,
    reply: oneshot::Sender<Arc<Run>>,
}

/// What a lane is asked to do.
#[derive(Debug)]
enum Job {
    /// Its own measurement.
    Own {
        /// When the caller stops waiting, if that is before the probe's own deadline.
        until: Option<Instant>,
        /// With whom; none lets the lane choose.
        peer: Option<Arc<Member>>,
        trigger: Trigger,
    },
    /// Its part in a lease that this node has opened.
    Opened(Arc<Session>),
    /// Its part in a lease that this node has granted.
    Served(Served),
    /// To write down that there is no lease.
    Refused { peer: String, outcome: Outcome },
}

impl Ask {
    /// Whether nobody waits for the answer any more.
    fn is_stale(&self) -> bool {
        match &self.job {
            Job::Own { until, .. } => {
                self.reply.is_closed() || until.is_some_and(|until| until <= Instant::now())
            }
            Job::Opened(_) => self.reply.is_closed(),
            Job::Served(_) | Job::Refused { .. } => false,
        }
    }
}

/// What others hold of a lane. Dropping the last one ends the lane after the run under way.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) probe: &'static dyn Probe,
    /// The only target of an active lane; none for a passive one, which reads all of its targets.
    pub(crate) target: Option<Target>,
    asks: mpsc::Sender<Ask>,
    /// Parts in leases, which are paid for already: before what is asked for.
    leased: mpsc::Sender<Ask>,
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
        let (leased, parts) = mpsc::channel(LEASED);
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
            if let Err(error) = tokio::spawn(executor.serve(asked, parts)).await
                && error.is_panic()
            {
                core.give_up(probe.name());
            }
        });
        Lane { probe, target, asks, leased, view, history }
    }

    /// Whether it measures with a partner, by itself and not only when asked.
    pub(crate) fn is_scheduled_pair(&self) -> bool {
        self.probe.scope() == Scope::EachPair && self.probe.schedule() == Schedule::Interval
    }

    /// When a run of it last completed, in seconds since the epoch; 0 if none did.
    pub(crate) fn completed_at(&self) -> f64 {
        let view = self.view();
        let at =
            view.standings.values().filter_map(|standing| standing.completed.as_ref().map(|(at, _)| *at));
        at.fold(0.0, f64::max)
    }

    /// What is known now.
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
    }

    /// Runs as soon as the lane is free, and waits for the end. A probe of two nodes runs with this
    /// peer, or with one that the lane chooses.
    pub(crate) async fn run_now(
        &self,
        until: Option<Instant>,
        peer: Option<Arc<Member>>,
    ) -> Result<Arc<Run>, Busy> {
        self.ask(Job::Own { until, peer, trigger: Trigger::OnDemand })?.await.map_err(|_| Busy)
    }

    /// Runs to decide a suspicion, with this peer if the probe needs one.
    pub(crate) async fn confirm(&self, peer: Option<Arc<Member>>) -> Result<Arc<Run>, Busy> {
        self.ask(Job::Own { until: None, peer, trigger: Trigger::Confirm })?.await.map_err(|_| Busy)
    }

    /// Runs in a lease that this node has opened.
    pub(crate) async fn run_in(&self, session: Arc<Session>) -> Result<Arc<Run>, Busy> {
        self.ask(Job::Opened(session))?.await.map_err(|_| Busy)
    }

    /// Runs in a lease that this node has granted.
    pub(crate) fn serve(&self, served: Served) -> Result<(), Busy> {
        self.ask(Job::Served(served)).map(drop)
    }

    /// Writes down why there is no lease.
    pub(crate) async fn note(&self, peer: String, outcome: Outcome) {
        if let Ok(noted) = self.ask(Job::Refused { peer, outcome }) {
            let _ = noted.await;
        }
    }

    fn ask(&self, job: Job) -> Result<oneshot::Receiver<Arc<Run>>, Busy> {
        let (reply, run) = oneshot::channel();
        let queue = match &job {
            Job::Own { .. } => &self.asks,
            Job::Opened(_) | Job::Served(_) | Job::Refused { .. } => &self.leased,
        };
        queue.try_send(Ask { job, reply }).map_err(|_| Busy)?;
        Ok(run)
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
    async fn serve(mut self, mut asked: mpsc::Receiver<Ask>, mut leased: mpsc::Receiver<Ask>) {
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
                // Before what is asked for: nobody who asks all the time keeps leases and schedule off.
                Some(ask) = leased.recv() => {
                    if ask.is_stale() {
                        continue;
                    }
                    Some(ask)
                }
                () = sleep_until(next), if listed => None,
                ask = asked.recv() => match ask {
                    Some(ask) if ask.is_stale() => continue,
                    Some(ask) => Some(ask),
                    None => return,
                },
            };
            match ask {
                Some(Ask { job, reply }) => {
                    let run = self.run(job).await;
                    // The caller may have hung up; the run counts all the same.
                    let _ = reply.send(run);
                }
                None => {
                    self.run_periodic().await;
                    next = self.next_tick();
                }
            }
        }
    }

    async fn run_periodic(&mut self) {
        self.run(Job::Own { until: None, peer: None, trigger: Trigger::Periodic }).await;
    }

    async fn run(&mut self, job: Job) -> Arc<Run> {
        let trigger = match &job {
            Job::Own { trigger, .. } => *trigger,
            Job::Opened(_) | Job::Refused { .. } => Trigger::Periodic,
            Job::Served(_) => Trigger::Peer,
        };
        self.run_as(trigger, job).await
    }

    /// The one way through.
    async fn run_as(&mut self, trigger: Trigger, job: Job) -> Arc<Run> {
        let (started, clock) = (epoch_seconds(), Instant::now());
        let config = self.core.config.borrow().clone();
        let parts = self.core.parts.borrow().clone();
        let targets = self.targets(&config, &parts);
        self.view.send_modify(|view| Arc::make_mut(view).running = Some(started));
        let mut told = Told::default();
        let result = self.execute(&config, &parts, &targets, job, trigger.share(), &mut told).await;
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
            peer: told.peer,
            started,
            took: clock.elapsed(),
            outcome,
            reports,
            evidence: told.evidence,
        });
        self.publish(&run);
        run
    }

    async fn execute(
        &mut self,
        config: &Config,
        parts: &Parts,
        targets: &[Target],
        job: Job,
        share: Share,
        told: &mut Told,
    ) -> Result<Vec<Report>, Outcome> {
        if targets.is_empty() {
            return Err(Outcome::Unsupported("this node has no part that the probe measures".to_string()));
        }
        let timeout = timing(config, self.probe.name(), targets.first())
            .map_or(Duration::ZERO, |timing| timing.timeout);
        let loaded = self.core.loaded_links();
        let mut ctx = Context {
            targets,
            inventory: &parts.present,
            settings: &config.settings,
            timeout,
            port: 0,
            partner: None,
            loaded: &loaded,
        };
        let mut stop = Stop::at_shutdown(self.core.shutdown.clone());
        match (job, self.probe.scope()) {
            (Job::Own { until, peer, .. }, Scope::EachPair) => {
                stop.caller = until;
                let session =
                    pair::choose(&self.core, self.probe, &targets[0], peer, share, until, told).await?;
                let measured =
                    pair::opened(&self.core, self.probe, ctx, &session, &mut self.memory, &stop, told).await;
                let shutdown = self.core.shutdown.clone();
                if until.is_some_and(|until| until <= Instant::now()) {
                    // Somebody's time is up: the answer does not wait for the partner.
                    tokio::spawn(async move { session.close(&shutdown).await });
                } else {
                    session.close(&shutdown).await;
                }
                measured
            }
            (Job::Opened(session), _) => {
                pair::opened(&self.core, self.probe, ctx, &session, &mut self.memory, &stop, told).await
            }
            (Job::Served(served), _) => {
                pair::served(&self.core, self.probe, ctx, served, &mut self.memory, &stop, told).await
            }
            (Job::Refused { peer, outcome }, _) => {
                told.peer = Some(peer);
                Err(outcome)
            }
            (Job::Own { until, .. }, Scope::AllTargets | Scope::EachTarget) => {
                stop.caller = until;
                let mut plan = self.probe.plan(&ctx).map_err(|why| Outcome::Unsupported(why.0))?;
                let mut port = None;
                if plan.stages.iter().any(|stage| matches!(stage, Stage::Both { .. })) {
                    let ports = &config.peers.ports;
                    let taken = self.core.ports.take(ports).ok_or_else(|| half::no_port(ports))?;
                    ctx.port = port.insert(taken).number();
                    plan = self.probe.plan(&ctx).map_err(|why| Outcome::Unsupported(why.0))?;
                }
                let now = epoch_seconds();
                let hold = self.core.holds.current(now);
                let asked = Asked {
                    plan: &plan,
                    cost: self.probe.cost(&config.settings, &targets[0]),
                    active: config.active,
                    occupancy: config.occupancy,
                    hold: hold.as_ref(),
                    now,
                    inventory: &parts.present,
                    share,
                };
                let permit = self.core.gate.enter(asked).map_err(Outcome::Skipped)?;
                self.core.totals.spend(&plan.uses);
                let measured =
                    measure(self.probe, &ctx, &plan, &mut self.memory, &stop, &mut told.evidence).await;
                drop((permit, port));
                measured.map(|readings| self.core.judge(self.probe, targets, None, readings))
            }
        }
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
        let impossible = self.is_impossible(&config, &parts);
        self.view.send_modify(|view| {
            let view = Arc::make_mut(view);
            view.impossible = impossible;
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

    /// Whether a probe of two nodes can't be run here, whoever the partner is.
    fn is_impossible(&self, config: &Config, parts: &Parts) -> bool {
        let Some(target) = self.target.as_ref().filter(|_| self.probe.scope() == Scope::EachPair) else {
            return false;
        };
        let nobody = Partner::nobody();
        let ctx = Context {
            targets: std::slice::from_ref(target),
            inventory: &parts.present,
            settings: &config.settings,
            timeout: Duration::ZERO,
            port: 0,
            partner: Some(&nobody),
            loaded: LoadedLinks::none(),
        };
        self.probe.plan(&ctx).is_err()
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
    /// When a probe of two nodes runs is decided by who its partner is.
    fn first_tick(&self) -> Instant {
        match self.target {
            None => Instant::now() + FIRST_RUNS.mul_f64(rand::rng().random_range(0.0..1.0)),
            Some(_) => self.next_tick(),
        }
    }

    fn next_tick(&self) -> Instant {
        if self.probe.scope() == Scope::EachPair || self.probe.schedule() == Schedule::OnDemand {
            return Instant::now() + NEVER;
        }
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

/// What a run has to tell however it ends.
#[derive(Debug, Default)]
struct Told {
    peer: Option<String>,
    evidence: Vec<Evidence>,
}
