//! A lease as its opener sees it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper::Method;
use probes::{
    Measurement, Output, Partner, Probe, Stage, Target,
    partner::{HostBandwidth, Side},
};
use tokio::{
    select,
    sync::Mutex as AsyncMutex,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    grant::is_device,
    half::{self, Half},
    link::{Link, LinkError},
    message::{LeaseGranted, LeaseRequest, NO_RAIL, NOT_DUE, Refusal, StageRequest, UNSUPPORTED},
    stage::{AFTER_CLIENT, explain},
};
use crate::{
    config::Config,
    core::Core,
    gate::Share,
    peers::{membership::Member, plan::Ended},
    run::{Evidence, Failure, Outcome, Skip, SkipReason},
    runner::{self, Stop},
};

/// How long a partner may think about a lease or a stage that it only has to prepare.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// How long it may take to end a lease: its last server may have to be killed.
const CLOSE_WITHIN: Duration = Duration::from_secs(15);
/// How often it is tried anew when both nodes ask each other at the same moment.
const COLLISIONS: u32 = 4;
/// How long is waited then, at most; by chance, so that one of the two comes first.
const COLLISION_PAUSE: Duration = Duration::from_millis(1500);
/// The longest that a partner may ask us to wait.
const LONGEST_RETRY: Duration = Duration::from_secs(3600);
/// When a partner that is away or not trusted is worth asking again.
const AWAY_RETRY: Duration = Duration::from_secs(300);

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Wish<'a> {
    pub(crate) target: &'a Target,
    pub(crate) rail: usize,
    pub(crate) probes: &'a [&'static dyn Probe],
    pub(crate) member: &'a Arc<Member>,
    pub(crate) on_demand: bool,
    /// Whether this node's own rail has to be measured now.
    pub(crate) due: bool,
    pub(crate) share: Share,
    /// When the caller stops waiting.
    pub(crate) until: Option<Instant>,
}

/// A lease that a partner granted. Dropping it ends it, there without a word.
#[derive(Debug)]
pub(crate) struct Session {
    partner: Partner,
    id: u64,
    half: Half,
    /// What one of the two sides can't do, and why.
    unsupported: BTreeMap<String, String>,
    host: Mutex<Option<HostBandwidth>>,
    link: AsyncMutex<Link>,
    /// Cancelled when the lease is over, however that came about.
    over: CancellationToken,
}

impl Session {
    /// Asks a partner for a lease, after our own gate said yes.
    pub(crate) async fn open(core: &Arc<Core>, wish: &Wish<'_>) -> Result<Session, NoLease> {
        let mut tries = 0;
        loop {
            let none = match Session::try_open(core, wish).await {
                Ok(session) => return Ok(session),
                Err(none) => none,
            };
            tries += 1;
            let pause = COLLISION_PAUSE.mul_f64(rand::random_range(0.1..1.0));
            let patient = wish.until.is_none_or(|until| until > Instant::now() + pause);
            if !none.refused_as(SkipReason::Locked.word()) || tries > COLLISIONS || !patient {
                return Err(none);
            }
            select! {
                () = core.shutdown.cancelled() => return Err(none),
                () = sleep(pause) => {}
            }
        }
    }

    async fn try_open(core: &Arc<Core>, wish: &Wish<'_>) -> Result<Session, NoLease> {
        let config = core.config.borrow().clone();
        let peer = wish.member.name.to_string();
        let mut partner = Partner {
            name: peer.clone(),
            host: wish.member.host.to_string(),
            side: Side::Opener,
            host_measured: false,
            terms: None,
        };
        let tls = core.tls().await?;
        let half = half::enter(core, wish.target, wish.probes, &partner, wish.share)?;
        let supported = |probe: &&&'static dyn Probe| !half.unsupported.contains_key(probe.name());
        let request = LeaseRequest {
            opener: config.node_name.clone(),
            partner: peer.clone(),
            rail: wish.rail,
            probes: wish.probes.iter().filter(supported).map(|probe| probe.name().to_string()).collect(),
            on_demand: wish.on_demand,
            due: wish.due,
            parameters: probes::rdma::parameters(&config.settings.rdma)
                .into_iter()
                .map(|(name, value)| (name.to_string(), value))
                .collect(),
            end: half.end.clone(),
        };
        let asked = async {
            let mut link = Link::connect(&tls, &peer, &partner.host, config.peers.port).await?;
            let granted: LeaseGranted =
                link.ask(Method::POST, "/peer/v1/leases", &request, ANSWER_WITHIN).await?;
            Ok((link, granted))
        };
        let stop = Stop { caller: wish.until, ..Stop::at_shutdown(core.shutdown.clone()) };
        let asked = select! {
            asked = asked => asked.map_err(|error| NoLease::of(&peer, error)),
            by = stop.cancelled() => Err(Outcome::Failed(Failure::Cancelled { by }).into()),
        };
        let (link, granted) = match asked.and_then(|asked| fits(&config, &peer, asked)) {
            Ok(granted) => granted,
            Err(none) => {
                half.give_back(core);
                return Err(none);
            }
        };
        half.spend(core);
        core.skew.note(granted.end.now - half.end.now);
        let mut unsupported = half.unsupported.clone();
        for (probe, why) in &granted.unsupported {
            unsupported.insert(probe.clone(), format!("{peer}: {}", super::message::plain(why)));
        }
        let gpu =
            wish.probes.iter().any(|probe| probe.name() == GPU_PROBE) && !unsupported.contains_key(GPU_PROBE);
        partner.terms = Some(half::terms(&granted.end, gpu));
        let over = link.over.clone();
        expire(
            over.clone(),
            config.peers.lease.min(Duration::try_from_secs_f64(granted.seconds).unwrap_or_default()),
        );
        Ok(Session {
            partner,
            id: granted.id,
            half,
            unsupported,
            host: Mutex::default(),
            link: AsyncMutex::new(link),
            over,
        })
    }

    pub(crate) fn peer(&self) -> &str {
        &self.partner.name
    }

    /// Why a probe can't be run in this lease: for want of something here, or there.
    pub(crate) fn unsupported(&self, probe: &str) -> Option<Outcome> {
        let why = self.unsupported.get(probe)?.clone();
        Some(match self.half.unsupported.contains_key(probe) {
            true => Outcome::Unsupported(why),
            false => {
                Outcome::Skipped(Skip { reason: SkipReason::Refused, detail: why, retry_after: AWAY_RETRY })
            }
        })
    }

    /// The partner, with what was learned in this lease.
    pub(crate) fn partner(&self) -> Partner {
        let mut partner = self.partner.clone();
        if let Some(terms) = &mut partner.terms {
            terms.host = *self.host.lock().unwrap_or_else(PoisonError::into_inner);
        }
        partner
    }

    pub(crate) fn port(&self) -> u16 {
        self.half.port.number()
    }

    /// Takes what later runs of the lease need not measure again.
    pub(crate) fn learn(&self, measurements: &[Measurement]) {
        if let Some(host) = probes::rdma::host_bandwidth(measurements) {
            *self.host.lock().unwrap_or_else(PoisonError::into_inner) = Some(host);
        }
    }

    /// Executes our half of a stage, and asks for the partner's.
    pub(crate) async fn stage(
        &self,
        probe: &'static dyn Probe,
        index: usize,
        stage: &Stage,
        stop: &Stop,
        evidence: &mut Vec<Evidence>,
    ) -> Result<Output, Outcome> {
        let stop = Stop { partner: Some(self.over.clone()), ..stop.clone() };
        let host_known = self.host.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let request = StageRequest { probe: probe.name().to_string(), stage: index, host_known };
        match stage {
            Stage::Call(step) => {
                self.ask(&request, until(stop.caller, ANSWER_WITHIN), &stop).await?;
                let (result, ran) = runner::run(step, &stop).await;
                evidence.push(ran);
                result.map_err(|unfinished| Outcome::Failed(explain(probe, unfinished)))
            }
            Stage::Serve(step) => {
                let server = match runner::serve(step.clone(), self.port(), &stop).listening().await {
                    Ok(server) => server,
                    Err((result, ran)) => {
                        evidence.push(ran);
                        return result.map_err(|unfinished| Outcome::Failed(explain(probe, unfinished)));
                    }
                };
                let within = until(stop.caller, step.deadline + ANSWER_WITHIN);
                let asked = self.ask(&request, within, &stop).await;
                let patience = if asked.is_ok() { AFTER_CLIENT } else { Duration::ZERO };
                let (result, ran) = server.finish(patience).await;
                evidence.push(ran);
                asked?;
                result.map_err(|unfinished| Outcome::Failed(explain(probe, unfinished)))
            }
            Stage::Alone(_) | Stage::Both { .. } => {
                Err(Outcome::Unsupported("a run of two nodes has a stage of one".to_string()))
            }
        }
    }

    /// Ends the lease, and waits until the partner's side is clean. An agent that stops does not
    /// wait: the partner sees the connection end.
    pub(crate) async fn close(&self, shutdown: &CancellationToken) {
        let path = format!("/peer/v1/leases/{}", self.id);
        let asked = async {
            let mut link = self.link.lock().await;
            link.ask::<serde_json::Value>(Method::DELETE, &path, &(), CLOSE_WITHIN).await
        };
        select! {
            closed = asked => if let Err(error) = closed {
                tracing::debug!(peer = self.partner.name, %error, "a lease was not closed in the usual way");
            },
            () = shutdown.cancelled() => {}
        }
        self.over.cancel();
    }

    async fn ask(&self, request: &StageRequest, within: Duration, stop: &Stop) -> Result<(), Outcome> {
        let path = format!("/peer/v1/leases/{}", self.id);
        let mut link = self.link.lock().await;
        let asked = async { link.ask::<serde_json::Value>(Method::POST, &path, request, within).await };
        // A partner that goes shows in the answer, in words.
        let stop = Stop { partner: None, ..stop.clone() };
        let failed =
            |says: String| Outcome::Failed(Failure::Partner { peer: self.partner.name.clone(), says });
        select! {
            done = asked => done.map(drop).map_err(|error| failed(error.to_string())),
            by = stop.cancelled() => Err(Outcome::Failed(Failure::Cancelled { by })),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

/// Whether what was granted is something that we can use.
fn fits(
    config: &Config,
    peer: &str,
    (link, granted): (Link, LeaseGranted),
) -> Result<(Link, LeaseGranted), NoLease> {
    let ports = &config.peers.ports;
    let detail = if !ports.contains(&granted.end.port) {
        let (port, first, more) = (granted.end.port, ports.start, ports.len() - 1);
        format!(
            "{peer} serves at port {port}, which is not peers.first_port {first} or one of the {more} after it"
        )
    } else if !is_device(&granted.end.device) {
        format!("{peer} gives a name for its device that can be none")
    } else {
        return Ok((link, granted));
    };
    Err(Outcome::Skipped(Skip { reason: SkipReason::Refused, detail, retry_after: AWAY_RETRY }).into())
}

/// Ends a lease at its deadline, whatever is under way in it.
fn expire(over: CancellationToken, length: Duration) {
    tokio::spawn(async move {
        select! {
            () = sleep(length) => over.cancel(),
            () = over.cancelled() => {}
        }
    });
}

/// The probe that needs GPU memory on both ends.
pub(super) const GPU_PROBE: &str = "gdr";

/// The shorter of a span and what the caller has left.
fn until(caller: Option<Instant>, span: Duration) -> Duration {
    caller.map_or(span, |until| until.saturating_duration_since(Instant::now()).min(span))
}

/// Why there is no lease. It says nothing of the hardware.
#[derive(Debug)]
pub(crate) struct NoLease {
    pub(crate) outcome: Outcome,
    /// The partner's word for its refusal; none if it was not the partner who said no.
    refusal: Option<String>,
}

impl From<Outcome> for NoLease {
    fn from(outcome: Outcome) -> NoLease {
        NoLease { outcome, refusal: None }
    }
}

impl NoLease {
    fn of(peer: &str, error: LinkError) -> NoLease {
        let detail = match &error {
            LinkError::Refused(refusal) => format!("{peer} says no: {}: {}", refusal.reason, refusal.detail),
            LinkError::Away { .. } | LinkError::Untrusted { .. } | LinkError::Answer(_) => {
                format!("{peer}: {error}")
            }
        };
        let (reason, retry_after, refusal) = match error {
            LinkError::Away { .. } => (SkipReason::Away, AWAY_RETRY, None),
            LinkError::Untrusted { .. } => (SkipReason::Untrusted, AWAY_RETRY, None),
            LinkError::Answer(_) => (SkipReason::Refused, AWAY_RETRY, None),
            LinkError::Refused(Refusal { reason, retry_after, .. }) => {
                let wait = Duration::try_from_secs_f64(retry_after).unwrap_or(AWAY_RETRY);
                (SkipReason::Refused, wait.min(LONGEST_RETRY), Some(reason))
            }
        };
        NoLease { outcome: Outcome::Skipped(Skip { reason, detail, retry_after }), refusal }
    }

    fn refused_as(&self, word: &str) -> bool {
        self.refusal.as_deref() == Some(word)
    }

    /// What it means for the other attempts of the slot.
    pub(crate) fn ended(&self) -> Ended {
        if self.refused_as(NOT_DUE) {
            return Ended::NotDue;
        }
        let of_the_rail = [SkipReason::Locked.word(), SkipReason::Budget.word(), NO_RAIL, UNSUPPORTED];
        match &self.outcome {
            Outcome::Skipped(skip) => match skip.reason {
                SkipReason::Budget => Ended::NoBudget,
                SkipReason::Refused if of_the_rail.iter().any(|word| self.refused_as(word)) => {
                    Ended::RailRefused
                }
                SkipReason::Refused | SkipReason::Away | SkipReason::Untrusted => Ended::PartnerRefused,
                SkipReason::Inactive
                | SkipReason::Held
                | SkipReason::Busy
                | SkipReason::Locked
                | SkipReason::Occupied
                | SkipReason::NoPartner => Ended::RailRefused,
            },
            Outcome::Unsupported(_) => Ended::NoBudget,
            Outcome::Completed | Outcome::Failed(_) | Outcome::Unreadable(_) => Ended::Failed,
        }
    }
}
