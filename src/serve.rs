//! Serving: from a configuration to a drained agent, and everything that goes on in between.

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use sd_notify::NotifyState;
use tokio::{
    net::TcpListener,
    select,
    signal::unix::{Signal, SignalKind, signal},
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{agent::Agent, cli::Flags, config, confirm, http, logs, metrics, peer, runner};

/// The configuration is wrong.
const BAD_CONFIG: u8 = 2;
/// Worker threads: one serves while another waits in the kernel. More would only take memory.
const THREADS: usize = 2;
/// How long the end may take: a run under way is given its grace and is then killed.
const DRAIN: Duration = Duration::from_secs(runner::GRACE.as_secs() + 5);
/// How long the end waits for calls that block.
const LEFT_BEHIND: Duration = Duration::from_millis(500);
/// How often the watchdog's timer is looked at where systemd has none.
const NO_WATCHDOG: Duration = Duration::from_secs(3600);

/// Serves until a signal ends it.
#[expect(clippy::needless_pass_by_value, reason = "the flags end here")]
pub(crate) fn main(flags: Flags) -> ExitCode {
    let overrides = flags.overrides();
    let config = match config::load(&overrides) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("fabricpulse: {error}");
            return ExitCode::from(BAD_CONFIG);
        }
    };
    if flags.check {
        eprintln!("fabricpulse: the configuration is good");
        return ExitCode::SUCCESS;
    }
    logs::start(&config.log);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    let served = runtime.context("the runtime").and_then(|runtime| {
        let served = runtime.block_on(async {
            let shutdown = CancellationToken::new();
            let servers = http::bind(&config).await?;
            let partners = match &config.peers.identity {
                Some(_) => peer::server::bind(&config.peers.listen).await?,
                None => Vec::new(),
            };
            let agent = Agent::new(config, overrides, shutdown.clone());
            serve(&agent, servers, partners, shutdown).await
        });
        // A name that is being looked up is not waited for.
        runtime.shutdown_timeout(LEFT_BEHIND);
        served
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fabricpulse: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(
    agent: &Arc<Agent>,
    servers: http::Servers,
    partners: Vec<TcpListener>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("signals")?;
    let server = tokio::spawn(servers.serve(agent.clone(), shutdown.clone()));
    let partners = tokio::spawn(peer::server::serve(agent.clone(), partners, shutdown.clone()));
    let rounds = tokio::spawn(peer::rounds::run(agent.clone(), shutdown.clone()));
    let confirm = tokio::spawn(confirm::run(agent.clone(), shutdown.clone()));
    let members = tokio::spawn(agent.clone().follow_members(shutdown.clone()));
    let keeper = tokio::spawn(keep(agent.clone(), shutdown.clone()));
    let lister = tokio::spawn(list(agent.clone(), shutdown.clone()));
    tell(&[NotifyState::Ready, NotifyState::Status("serving")]);
    loop {
        select! {
            got = signals.next() => match got {
                Got::End(signal) => {
                    tracing::info!(signal, "ending");
                    break;
                }
                Got::Reload => reload(agent).await,
            },
            () = shutdown.cancelled() => break,
        }
    }
    tell(&[NotifyState::Stopping]);
    shutdown.cancel();
    let drained = timeout(DRAIN, async {
        agent.drained().await;
        let _ = keeper.await;
        let _ = lister.await;
        let _ = rounds.await;
        let _ = confirm.await;
        let _ = members.await;
        let _ = partners.await;
        let _ = server.await;
    });
    drained.await.context("a run under way could not be ended in time")?;
    anyhow::ensure!(!agent.broken(), "a part of the agent failed; the log says which");
    Ok(())
}

/// The agent's own clockwork: samples the process and answers the watchdog. Nothing here waits for
/// a child, a disk or a caller, so that it stops only if the runtime does.
async fn keep(agent: Arc<Agent>, shutdown: CancellationToken) {
    let mut process = interval(metrics::PROCESS_INTERVAL);
    process.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watchdog = sd_notify::watchdog_enabled();
    let mut alive = interval(watchdog.map_or(NO_WATCHDOG, |within| within / 2));
    alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        select! {
            () = shutdown.cancelled() => return,
            _ = process.tick() => agent.sample_process(),
            _ = alive.tick() => if watchdog.is_some() { tell(&[NotifyState::Watchdog]) },
        }
    }
}

/// Lists the node's parts again and again.
async fn list(agent: Arc<Agent>, shutdown: CancellationToken) {
    loop {
        agent.refresh_parts().await;
        let interval = agent.config.borrow().inventory_interval;
        select! {
            () = shutdown.cancelled() => return,
            () = sleep(interval) => {}
        }
    }
}

async fn reload(agent: &Agent) {
    let started = NotifyState::monotonic_usec_now().ok();
    tell(&[NotifyState::Reloading].into_iter().chain(started).collect::<Vec<_>>());
    // What is wrong has been logged, and the old configuration stays in force.
    let _ = agent.request_reload().await;
    tell(&[NotifyState::Ready]);
}

/// Tells systemd, if it is there.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "systemd could not be told");
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal asks for.
enum Got {
    End(&'static str),
    Reload,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Got {
        select! {
            _ = self.terminate.recv() => Got::End("SIGTERM"),
            _ = self.interrupt.recv() => Got::End("SIGINT"),
            _ = self.hangup.recv() => Got::Reload,
        }
    }
}
