//! The running agent: what the outside may see of it, and the few things it may ask of it.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use governor::clock::DefaultClock;
use probes::{Cost, Inventory, Partner, Plan, Probe, Schedule, Scope, Target};
use prometheus_client::registry::Registry;
use tokio::sync::{Mutex, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    baseline::Baseline,
    config::{self, Config, Overrides, Timing},
    core::Core,
    gate::Gate,
    hold::{Hold, HoldError, Holds},
    inventory::{Keeper, Parts},
    journal::Journal,
    lane::{self, Lane},
    metrics::{self, Cell, Format, Process, Reload, Totals},
    peer::{identity::Identities, lease::Leases, ports::Ports, skew::Skew},
    peers::membership::Membership,
    run::Run,
    runner::{Stop, epoch_seconds},
    words,
};

mod pairs;

/// The running agent, shared by the web server and whoever else looks at it.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) config: watch::Receiver<Arc<Config>>,
    core: Arc<Core>,
    keeper: Keeper,
    overrides: Overrides,
    /// Held while the configuration is read anew.
    publish: Mutex<watch::Sender<Arc<Config>>>,
    lanes: watch::Sender<Vec<Arc<Lane>>>,
    membership: watch::Sender<Arc<Membership>>,
    list_problem: watch::Sender<Option<Arc<str>>>,
    tasks: TaskTracker,
    process: Arc<Cell<Process>>,
    reload: Cell<Reload>,
    listed: Cell<f64>,
    registry: OnceLock<Registry>,
}

/// Why a probe or target could not be found; the words are for the caller.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lookup {
    #[error("there is no test {0:?}; known are {1}")]
    Test(String, String),
    #[error("{test} has no target {target:?}; known are {known}")]
    Target { test: String, target: String, known: String },
    #[error("{0} is switched off: [probe.{0}] enabled = false")]
    Off(String),
    #[error("{0} has nothing to measure on this node; `fabricpulse list` says why")]
    NoTarget(String),
    #[error("{test} needs a target; known are {known}")]
    TargetMissing { test: String, known: String },
    #[error("{0} measures this node alone: it takes no peer")]
    Alone(String),
    #[error("there is no peer {peer:?}; known are {known}")]
    Peer { peer: String, known: String },
}

impl Agent {
    /// Builds the agent and takes up what an earlier process left. Nothing runs yet.
    pub(crate) fn new(config: Config, overrides: Overrides, shutdown: CancellationToken) -> Arc<Agent> {
        let now = epoch_seconds();
        let state = config.state.directory.clone();
        let (journal, past) = Journal::open(&state, config.state.journal_bytes);
        let keeper = Keeper::open(&state);
        let gate = Gate::new(config.budget, DefaultClock::default());
        // Not every run is in the journal, so numbers go on from the clock: none is given twice.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "seconds since the epoch"
        )]
        let newest = past.iter().map(|run| run.id).max().unwrap_or(0).max(now as u64);
        let (membership, members) = watch::channel(Arc::default());
        let (publish, config) = watch::channel(Arc::new(config));
        let core = Arc::new(Core {
            loaded: std::sync::Mutex::default(),
            siblings: std::sync::Mutex::default(),
            config: config.clone(),
            parts: keeper.subscribe(),
            gate,
            holds: Holds::open(&state, now),
            journal,
            totals: Totals::new(),
            members: members.clone(),
            identities: Identities::default(),
            leases: Leases::default(),
            ports: Ports::default(),
            skew: Skew::default(),
            baseline: Baseline::open(&state),
            shutdown,
            newest: AtomicU64::new(newest),
            broken: AtomicBool::new(false),
        });
        let agent = Arc::new(Agent {
            config,
            core,
            keeper,
            overrides,
            publish: Mutex::new(publish),
            lanes: watch::Sender::default(),
            membership,
            list_problem: watch::Sender::default(),
            tasks: TaskTracker::new(),
            process: Arc::new(Cell::of(metrics::sample_process().unwrap_or_default())),
            reload: Cell::of(Reload { good: true, good_at: now }),
            listed: Cell::default(),
            registry: OnceLock::new(),
        });
        agent.recall_budget(&past, now);
        agent.settle_lanes(past);
        agent
    }

    /// Every lane, in the order of the catalogue.
    pub(crate) fn lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes.borrow().clone()
    }

    /// The lane that runs a test, and which of its targets is asked for; none means all of them.
    ///
    /// A target may be named by its label or by another name that the inventory knows it by: an
    /// RDMA device where the target is its PCI function.
    pub(crate) fn find(
        &self,
        test: &str,
        target: Option<&str>,
    ) -> Result<(Arc<Lane>, Option<Target>), Lookup> {
        let Some(probe) = probes::find(test) else {
            return Err(Lookup::Test(test.to_string(), words::known_tests()));
        };
        let lanes: Vec<Arc<Lane>> =
            self.lanes().into_iter().filter(|lane| lane.probe.name() == probe.name()).collect();
        let targets: Vec<(Arc<Lane>, Target)> = lanes
            .iter()
            .flat_map(|lane| {
                lane.view().standings.keys().map(|target| (lane.clone(), target.clone())).collect::<Vec<_>>()
            })
            .collect();
        let known = || match targets.len() {
            0 => "none".to_string(),
            _ => targets.iter().map(|(_, target)| target.id()).collect::<Vec<_>>().join(", "),
        };
        if lanes.is_empty() {
            let off = self.config.borrow().timings.get(probe.name()).is_some_and(|timing| !timing.enabled);
            return Err(if off { Lookup::Off(test.to_string()) } else { Lookup::NoTarget(test.to_string()) });
        }
        let Some(wanted) = target else {
            return match (probe.scope(), lanes.as_slice()) {
                (Scope::AllTargets, [lane]) => Ok((lane.clone(), None)),
                (Scope::EachTarget | Scope::EachPair, [lane]) => Ok((lane.clone(), lane.target.clone())),
                // Which rail does not matter to who asks so: the one that waits longest.
                (Scope::EachPair, [_, ..]) => {
                    let longest = lanes.iter().min_by(|a, b| a.completed_at().total_cmp(&b.completed_at()));
                    let lane = longest.unwrap_or(&lanes[0]);
                    Ok((lane.clone(), lane.target.clone()))
                }
                _ => Err(Lookup::TargetMissing { test: test.to_string(), known: known() }),
            };
        };
        let parts = self.core.parts.borrow().clone();
        let alias = pci_of(&parts.present, wanted).or_else(|| pci_of(&parts.accepted, wanted));
        let hit =
            targets.iter().find(|(_, target)| target.id() == wanted || alias.as_deref() == Some(target.id()));
        match hit {
            Some((lane, target)) => Ok((lane.clone(), Some(target.clone()))),
            None => {
                Err(Lookup::Target { test: test.to_string(), target: wanted.to_string(), known: known() })
            }
        }
    }

    /// Why a lane never runs by itself; none if it does.
    pub(crate) fn off(&self, lane: &Lane) -> Option<String> {
        let config = self.config.borrow();
        let target = lane.target.as_ref().unwrap_or(&Target::Node);
        match (lane.probe.schedule(), lane.probe.scope()) {
            // Somebody wrote it down to be run: that it is not is worth a verdict.
            _ if matches!(target, Target::Check(_)) => None,
            (Schedule::OnDemand, _) => Some("it runs only when somebody asks for it".to_string()),
            (Schedule::Interval, _)
                if !config.active && lane.probe.cost(&config.settings, target) != Cost::Passive =>
            {
                Some("active probes are off: set active = true or start with --active".to_string())
            }
            (Schedule::Interval, Scope::EachPair) => self.alone(),
            (Schedule::Interval, Scope::AllTargets | Scope::EachTarget) => None,
        }
    }

    /// The parts of this node that are there now.
    pub(crate) fn parts(&self) -> Arc<Parts> {
        self.core.parts.borrow().clone()
    }

    pub(crate) fn active(&self) -> bool {
        self.config.borrow().active
    }

    /// Whether the parts of the node are known, so that everything else can be.
    pub(crate) fn ready(&self) -> bool {
        self.listed_at() > 0.0
    }

    /// When the parts were last listed, in seconds since the epoch; 0 if never.
    pub(crate) fn listed_at(&self) -> f64 {
        self.listed.get()
    }

    pub(crate) fn timing(&self, lane: &Lane) -> Timing {
        let off = Timing { enabled: false, interval: Duration::ZERO, timeout: Duration::ZERO };
        lane::timing(&self.config.borrow(), lane.probe.name(), lane.target.as_ref()).unwrap_or(off)
    }

    /// The longest that a run of a lane may take.
    pub(crate) fn longest(&self, lane: &Lane) -> Duration {
        match lane.probe.scope() {
            Scope::AllTargets => self.timing(lane).timeout,
            Scope::EachTarget => {
                let target = lane.target.as_ref().unwrap_or(&Target::Node);
                let stages = self.plan(lane.probe, target).map_or(1, |plan| plan.stages.len());
                self.timing(lane).timeout * u32::try_from(stages.max(1)).unwrap_or(u32::MAX)
            }
            Scope::EachPair => self.config.borrow().peers.lease,
        }
    }

    /// The interval of a probe; zero where it is switched off. Of the operator's own checks, which
    /// have one each, the longest.
    pub(crate) fn probe_interval(&self, probe: &str) -> Duration {
        let own = self
            .lanes
            .borrow()
            .iter()
            .filter(|lane| lane.probe.name() == probe)
            .map(|lane| self.timing(lane))
            .collect::<Vec<_>>();
        own.iter()
            .filter(|timing| timing.enabled)
            .map(|timing| timing.interval)
            .max()
            .unwrap_or(Duration::ZERO)
    }

    pub(crate) fn hold(&self) -> Option<Hold> {
        self.core.holds.current(epoch_seconds())
    }

    /// Stops active probes from starting, for a while.
    pub(crate) fn place_hold(&self, length: Duration, reason: String, by: String) -> Result<Hold, HoldError> {
        let hold = self.core.holds.place(epoch_seconds(), length, reason, by)?;
        tracing::info!(
            by = hold.by,
            reason = hold.reason,
            seconds = length.as_secs(),
            "active probes are held"
        );
        Ok(hold)
    }

    /// Ends the hold. False if there was none.
    pub(crate) fn release(&self, by: &str) -> Result<bool, HoldError> {
        let was = self.core.holds.release(epoch_seconds())?;
        tracing::info!(by, was, "the hold is released");
        Ok(was)
    }

    /// Gives up the parts that are gone. Returns how many those were.
    pub(crate) fn accept_inventory(&self, by: &str) -> usize {
        let gone = self.keeper.accept();
        tracing::info!(by, gone, "the present parts are accepted as complete");
        gone
    }

    /// Reads the configuration again. A bad one leaves the old one in force and is returned.
    pub(crate) async fn request_reload(&self) -> Result<(), String> {
        let publish = self.publish.lock().await;
        let overrides = self.overrides.clone();
        let loaded = tokio::task::spawn_blocking(move || config::load(&overrides)).await;
        let config = match loaded {
            Ok(Ok(config)) => config,
            Ok(Err(error)) => return Err(self.reload_failed(&error.to_string())),
            Err(error) => return Err(self.reload_failed(&error.to_string())),
        };
        let old = self.config.borrow().clone();
        for (section, same) in [
            ("web", old.web == config.web),
            ("state", old.state == config.state),
            ("log", old.log == config.log),
            ("peers.listen_address", old.peers.listen == config.peers.listen),
            ("peers", old.peers.identity.is_some() == config.peers.identity.is_some()),
        ] {
            if !same {
                tracing::warn!(section, "this section takes effect at the next start only");
            }
        }
        self.core.gate.set_budget(config.budget);
        publish.send_replace(Arc::new(config));
        self.settle_lanes(Vec::new());
        self.reload.set(Reload { good: true, good_at: epoch_seconds() });
        tracing::info!("the configuration was read again");
        Ok(())
    }

    pub(crate) fn last_reload(&self) -> Reload {
        self.reload.get()
    }

    /// Everything for Prometheus, from memory.
    pub(crate) fn metrics(self: &Arc<Self>, format: Format) -> String {
        metrics::encode(self.registry.get_or_init(|| metrics::registry(self)), format)
    }

    pub(crate) fn totals(&self) -> &Totals {
        &self.core.totals
    }

    pub(crate) fn process(&self) -> Arc<Cell<Process>> {
        self.process.clone()
    }

    /// Lists the parts of the node, and starts lanes for targets that are new.
    pub(crate) async fn refresh_parts(&self) {
        let config = self.config.borrow().clone();
        let stop = Stop::at_shutdown(self.core.shutdown.clone());
        match self.keeper.refresh(&config, &stop).await {
            Ok(()) => {
                self.listed.set(epoch_seconds());
                self.settle_lanes(Vec::new());
            }
            Err(_) if self.core.shutdown.is_cancelled() => {}
            Err(error) => tracing::warn!(error = format!("{error:#}"), "the node's parts can't be listed"),
        }
    }

    pub(crate) fn sample_process(&self) {
        if let Some(sample) = metrics::sample_process() {
            self.process.set(sample);
        }
    }

    /// Whether a part of the agent failed, which ends it.
    pub(crate) fn broken(&self) -> bool {
        self.core.broken.load(Ordering::Relaxed)
    }

    /// Waits until every lane has ended; they do so when the shutdown begins.
    pub(crate) async fn drained(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn reload_failed(&self, error: &str) -> String {
        self.reload.set(Reload { good: false, ..self.reload.get() });
        tracing::error!(error, "the new configuration is wrong, so the old one stays in force");
        error.to_string()
    }

    /// Starts the lanes that should be there and drops the others, which end after their run.
    fn settle_lanes(&self, past: Vec<Run>) {
        let mut past_of: HashMap<&'static str, Vec<Run>> = HashMap::new();
        for run in past {
            past_of.entry(run.probe).or_default().push(run);
        }
        self.lanes.send_if_modified(|lanes| {
            // Read under the lock of the lanes: of two that settle them, the later knows more.
            let (config, parts) = (self.config.borrow().clone(), self.parts());
            let before: Vec<_> = lanes.iter().map(Arc::as_ptr).collect();
            let mut after = Vec::new();
            for (probe, target) in wanted(&config, &parts.accepted) {
                let known =
                    lanes.iter().find(|lane| lane.probe.name() == probe.name() && lane.target == target);
                after.push(known.cloned().unwrap_or_else(|| {
                    let mut past = match &target {
                        None => past_of.remove(probe.name()).unwrap_or_default(),
                        Some(_) => past_of.get(probe.name()).cloned().unwrap_or_default(),
                    };
                    past.retain(|run| run.target == target);
                    Arc::new(Lane::start(probe, target, self.core.clone(), past, &self.tasks))
                }));
            }
            let changed = before != after.iter().map(Arc::as_ptr).collect::<Vec<_>>();
            *lanes = after;
            changed
        });
    }

    /// Counts against the budgets what active runs of an earlier process used within the hour.
    fn recall_budget(&self, past: &[Run], now: f64) {
        for run in past.iter().filter(|run| now - run.started < 3600.0 && run.began()) {
            let (Some(probe), Some(target)) = (probes::find(run.probe), &run.target) else { continue };
            if let Some(plan) = self.plan(probe, target) {
                self.core.gate.recall(plan.uses.into_iter().map(|used| used.resource), run.trigger.share());
            }
        }
    }

    /// What a run would execute and use; none if it is not possible.
    fn plan(&self, probe: &'static dyn Probe, target: &Target) -> Option<Plan> {
        let (config, parts) = (self.config.borrow().clone(), self.parts());
        let nobody = Partner::nobody();
        let ctx = probes::Context {
            targets: std::slice::from_ref(target),
            inventory: &parts.accepted,
            settings: &config.settings,
            timeout: Duration::ZERO,
            port: 0,
            partner: (probe.scope() == Scope::EachPair).then_some(&nobody),
            loaded: probes::LoadedLinks::none(),
        };
        probe.plan(&ctx).ok()
    }
}

/// The lanes that should be there: one for a probe that reads all of its targets with one child,
/// one for each target otherwise.
fn wanted(config: &Config, inventory: &Inventory) -> Vec<(&'static dyn Probe, Option<Target>)> {
    let mut lanes = Vec::new();
    let on = |probe: &&dyn Probe| config.timings.get(probe.name()).is_none_or(|timing| timing.enabled);
    for probe in probes::PROBES.iter().copied().filter(on) {
        match probe.scope() {
            Scope::AllTargets => lanes.push((probe, None)),
            Scope::EachTarget | Scope::EachPair => {
                lanes.extend(
                    probe
                        .targets(inventory, &config.settings)
                        .into_iter()
                        .map(|target| (probe, Some(target))),
                );
            }
        }
    }
    lanes
}

/// The PCI address of the NIC that has this RDMA device or network interface.
pub(crate) fn pci_of(inventory: &Inventory, name: &str) -> Option<String> {
    let has = |nic: &&probes::inventory::Nic| nic.rdma.iter().chain(&nic.netdevs).any(|known| known == name);
    inventory.nics.iter().find(has).map(|nic| nic.function.pci.clone())
}
