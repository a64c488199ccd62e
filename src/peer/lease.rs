//! A lease as its granting side sees it: what is locked for a partner, and the run under way in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use probes::{Measurement, Partner, partner::HostBandwidth};
use tokio::{
    select,
    sync::{Mutex as AsyncMutex, mpsc, oneshot},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    half::Half,
    message::{Refusal, StageRequest},
};
use crate::{core::Core, lane::Lane};

/// How long a run may take to end after its last stage: its server has a moment to end by itself.
const RUN_END: Duration = Duration::from_secs(12);

/// The leases that this node has granted and that are not over.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    newest: AtomicU64,
    of: Mutex<BTreeMap<u64, Arc<Lease>>>,
}

/// A lease that was granted.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) id: u64,
    /// The opener, with its terms.
    pub(crate) partner: Partner,
    pub(crate) half: Half,
    /// What may be run in it.
    pub(crate) probes: BTreeSet<String>,
    pub(crate) deadline: Instant,
    /// How long the opener may keep silent between two stages.
    idle: Duration,
    /// Cancelled when it is over, however that came about.
    pub(crate) over: CancellationToken,
    /// A stage was asked for, so its budget is used.
    begun: AtomicBool,
    host: Mutex<Option<HostBandwidth>>,
    current: AsyncMutex<Option<Current>>,
    idle_since: Mutex<Instant>,
}

/// The run under way in a lease.
#[derive(Debug)]
struct Current {
    probe: String,
    commands: mpsc::Sender<Command>,
    ended: oneshot::Receiver<()>,
}

/// Asks a run for its next stage.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) stage: usize,
    /// Answered when our server listens, or when our client has ended.
    pub(crate) reply: oneshot::Sender<Result<(), String>>,
}

/// What a lane needs for a run that a partner leads.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) lease: Arc<Lease>,
    pub(crate) host_known: bool,
    pub(crate) commands: mpsc::Receiver<Command>,
    /// Dropped when the run is over.
    pub(crate) ended: oneshot::Sender<()>,
}

impl Leases {
    pub(crate) fn begin(
        &self,
        partner: Partner,
        half: Half,
        probes: BTreeSet<String>,
        length: Duration,
        idle: Duration,
    ) -> Arc<Lease> {
        let id = self.newest.fetch_add(1, Ordering::Relaxed) + 1;
        let lease = Arc::new(Lease {
            id,
            partner,
            half,
            probes,
            deadline: Instant::now() + length,
            idle,
            over: CancellationToken::new(),
            begun: AtomicBool::new(false),
            host: Mutex::default(),
            current: AsyncMutex::default(),
            idle_since: Mutex::new(Instant::now()),
        });
        self.of.lock().unwrap_or_else(PoisonError::into_inner).insert(id, lease.clone());
        lease
    }

    /// Forgets a lease. What it locked is free when its last child is gone; what it never used is
    /// given back.
    pub(crate) fn end(&self, lease: &Lease, core: &Core) {
        lease.over.cancel();
        let known = self.of.lock().unwrap_or_else(PoisonError::into_inner).remove(&lease.id).is_some();
        if known && !lease.begun.load(Ordering::Relaxed) {
            lease.half.give_back(core);
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.of.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Lease {
    /// Waits until the lease has to end: at its deadline, or when its opener keeps silent.
    pub(crate) async fn expired(&self) {
        loop {
            let idle = *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner) + self.idle;
            if Instant::now() >= idle.min(self.deadline) {
                return;
            }
            select! {
                () = sleep_until(idle.min(self.deadline)) => {}
                () = self.over.cancelled() => return,
            }
        }
    }

    /// Makes our half of a stage. Answers when the opener may go on with its own.
    pub(crate) async fn stage(self: &Arc<Lease>, request: &StageRequest, lane: &Lane) -> Result<(), Refusal> {
        let failed = |detail: String| Refusal::new("failed", detail, Duration::ZERO);
        self.touch();
        self.begun.store(true, Ordering::Relaxed);
        let host = *self.host.lock().unwrap_or_else(PoisonError::into_inner);
        if request.host_known && host.is_none() {
            return Err(failed("host memory was not measured on this side".to_string()));
        }
        let mut current = self.current.lock().await;
        if request.stage == 0 {
            finish(current.take()).await;
            let (commands, received) = mpsc::channel(1);
            let (ending, ended) = oneshot::channel();
            let served = Served {
                lease: self.clone(),
                host_known: request.host_known,
                commands: received,
                ended: ending,
            };
            if lane.serve(served).is_err() {
                return Err(failed(format!("{} is busy", request.probe)));
            }
            *current = Some(Current { probe: request.probe.clone(), commands, ended });
        }
        let Some(run) = current.as_ref().filter(|run| run.probe == request.probe) else {
            return Err(failed(format!("no run of {} is under way in this lease", request.probe)));
        };
        let (reply, answer) = oneshot::channel();
        let over = || failed("its run is over; its own page says why".to_string());
        run.commands.send(Command { stage: request.stage, reply }).await.map_err(|_| over())?;
        let answered = select! {
            answered = answer => answered.map_err(|_| over())?.map_err(failed),
            () = self.over.cancelled() => Err(failed("the lease is over".to_string())),
        };
        self.touch();
        answered
    }

    /// Lets the run under way come to its end.
    pub(crate) async fn close(&self) {
        finish(self.current.lock().await.take()).await;
    }

    /// The opener, with what was learned in this lease.
    pub(crate) fn partner(&self, host_known: bool) -> Partner {
        let mut partner = self.partner.clone();
        if let Some(terms) = &mut partner.terms {
            terms.host = self.host.lock().unwrap_or_else(PoisonError::into_inner).filter(|_| host_known);
        }
        partner
    }

    pub(crate) fn learn(&self, measurements: &[Measurement]) {
        if let Some(host) = probes::rdma::host_bandwidth(measurements) {
            *self.host.lock().unwrap_or_else(PoisonError::into_inner) = Some(host);
        }
    }

    fn touch(&self) {
        *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

/// Tells a run that no stage will follow, and waits for its end.
async fn finish(run: Option<Current>) {
    if let Some(Current { commands, ended, .. }) = run {
        drop(commands);
        let _ = tokio::time::timeout(RUN_END, ended).await;
    }
}
