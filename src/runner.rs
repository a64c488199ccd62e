//! Runs one step: a child in its own process group, bounded in time and output.
//!
//! Both pipes are read the whole time, also while the child is being ended, so that it can never
//! block on a full one. Whatever the child leaves behind goes with it: after the leader's end the
//! group is killed, and a step has ended only when no member of the group is alive. A member that
//! survives SIGKILL is stuck in the kernel, and that is itself a finding.
//!
//! Only this module starts processes.

use std::{
    os::unix::process::ExitStatusExt as _,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use probes::{Output, Program, Step};
use procfs::{net::TcpState, process::FDTarget};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    select,
    sync::oneshot,
    task::{JoinError, JoinHandle},
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    run::{CancelledBy, Evidence, Failure},
    worker::limits::{CANT_START, NOT_STARTED},
};

/// How long a child may take to obey SIGTERM. perftest and collectives need none of it; a vendor's
/// suite may want to reset the device.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// How long the group may take to be gone after SIGKILL: longer is a stuck driver.
const KILL_GRACE: Duration = Duration::from_secs(3);
/// How long the pipes are read on after the whole group is gone: only a process that left the group
/// can still hold them.
const DRAIN: Duration = Duration::from_millis(500);
/// How much of each stream is kept. The largest honest answer, of the `pcie` worker on a full
/// node, is 60 kB.
const CAPTURE: usize = 1 << 20;
/// How much of the end of each stream stays with the run as evidence.
const TAIL: usize = 2048;
/// How often it is looked whether the group is gone.
const POLL: Duration = Duration::from_millis(10);

/// Our own executable. Through `/proc` it is the running one even after an upgrade replaced the file.
const OURSELVES: &str = "/proc/self/exe";

/// What may end a step before its own deadline.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    pub(crate) shutdown: CancellationToken,
    /// When the caller stops waiting.
    pub(crate) caller: Option<Instant>,
    /// Cancelled when the partner's half is over, so that ours has nothing to wait for.
    pub(crate) partner: Option<CancellationToken>,
}

impl Stop {
    /// Nothing but the agent's own end.
    pub(crate) fn at_shutdown(shutdown: CancellationToken) -> Stop {
        Stop { shutdown, caller: None, partner: None }
    }

    /// Waits until one of them ends the step, and says which.
    pub(crate) async fn cancelled(&self) -> CancelledBy {
        let caller = async {
            match self.caller {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let partner = async {
            match &self.partner {
                Some(over) => over.cancelled().await,
                None => std::future::pending().await,
            }
        };
        select! {
            () = self.shutdown.cancelled() => CancelledBy::Shutdown,
            () = partner => CancelledBy::Partner,
            () = caller => CancelledBy::Caller,
        }
    }
}

/// How often it is looked whether a server listens. perftest opens its device first, in some 10 ms.
const LISTEN_POLL: Duration = Duration::from_millis(10);
/// How long a server may take until it listens: perftest does so before it touches GPU memory.
const LISTEN_WITHIN: Duration = Duration::from_secs(5);

/// How a step ended, and what was executed.
pub(crate) type Ran = (Result<Output, Unfinished>, Evidence);

/// A server that runs on its own until its client has come and gone.
#[derive(Debug)]
pub(crate) struct Server {
    ready: oneshot::Receiver<()>,
    done: JoinHandle<Ran>,
    ran: Option<Ran>,
    over: CancellationToken,
}

/// Starts a server, and lets it run.
pub(crate) fn serve(step: Step, port: u16, stop: &Stop) -> Server {
    let (listening, ready) = oneshot::channel();
    let over = stop.partner.as_ref().map_or_else(CancellationToken::new, CancellationToken::child_token);
    let stop = Stop { partner: Some(over.clone()), ..stop.clone() };
    let done = tokio::spawn(async move { run_until(&step, &stop, Some((port, listening))).await });
    Server { ready, done, ran: None, over }
}

impl Server {
    /// Waits until it listens. If it ended or took too long instead, it is ended, and gives how.
    pub(crate) async fn listening(mut self) -> Result<Server, Ran> {
        match timeout(LISTEN_WITHIN, &mut self.ready).await {
            Ok(Ok(())) => Ok(self),
            Ok(Err(_)) => {
                let (result, evidence) = self.finish(KILL_GRACE).await;
                Err((Err(result.map_or_else(|unfinished| unfinished, too_early)), evidence))
            }
            Err(_) => {
                let (result, evidence) = self.finish(Duration::ZERO).await;
                let output = match result {
                    // That it could not be ended is the worse finding.
                    Err(stuck) if stuck.failure.is_stuck() => return Err((Err(stuck), evidence)),
                    Err(unfinished) => unfinished.output,
                    Ok(output) => output,
                };
                let program = evidence.argv.first().cloned().unwrap_or_default();
                let failure = Failure::Exit {
                    program,
                    status: evidence.exit.clone(),
                    says: format!("it did not listen within {} s", LISTEN_WITHIN.as_secs()),
                };
                Err((Err(Unfinished { failure, output }), evidence))
            }
        }
    }

    /// Waits for its end, which its client brings about.
    pub(crate) async fn wait(&mut self) {
        if self.ran.is_none() {
            self.ran = Some(ran((&mut self.done).await));
        }
    }

    /// The same; after `patience` it is ended.
    pub(crate) async fn finish(mut self, patience: Duration) -> Ran {
        if timeout(patience, self.wait()).await.is_err() {
            self.over.cancel();
        }
        match self.ran {
            Some(ran) => ran,
            None => ran(self.done.await),
        }
    }
}

/// A server that ended well before it had a client.
fn too_early(output: Output) -> Unfinished {
    let says = "it ended before its client came".to_string();
    let failure = Failure::Exit { program: "the server".to_string(), status: "exit 0".to_string(), says };
    Unfinished { failure, output }
}

/// What a server's task came to; one that panicked ran nothing that can be read.
fn ran(done: Result<Ran, JoinError>) -> Ran {
    done.unwrap_or_else(|error| {
        let failure = Failure::Spawn { program: "a server".into(), error: error.to_string() };
        let evidence = Evidence::not_started(Vec::new(), &failure);
        (Err(Unfinished { failure, output: Output::default() }), evidence)
    })
}

/// Stuck children of one program at a time. A few, since each has still read everything but what
/// it hangs on; not many, since a driver that hangs must not collect processes.
const MOST_STUCK: usize = 3;

/// The words of a command line that tell one kind of child from another: a worker and its name, a
/// program of perftest and its device. Ports and sizes differ from run to run.
const KEY_WORDS: usize = 3;

/// Children that survived SIGKILL: what was started, and the process that is still there.
static STUCK: Mutex<Vec<(Vec<String>, Stuck)>> = Mutex::new(Vec::new());

/// A process, told from a later one of the same number by when it began.
#[derive(Clone, Copy, Debug)]
struct Stuck {
    pid: i32,
    began: u64,
}

/// Why a step did not end well, and what it had said until then.
#[derive(Debug)]
pub(crate) struct Unfinished {
    pub(crate) failure: Failure,
    pub(crate) output: Output,
}

/// Runs the step to its end. The future must be awaited: dropping it kills only the leader.
pub(crate) async fn run(step: &Step, stop: &Stop) -> Ran {
    run_until(step, stop, None).await
}

/// The same, telling when the child listens at a port.
async fn run_until(step: &Step, stop: &Stop, listening: Option<(u16, oneshot::Sender<()>)>) -> Ran {
    let started = Instant::now();
    let argv = argv(&step.program);
    let program = argv.first().cloned().unwrap_or_default();
    let not_started = |failure: Failure| {
        let evidence = Evidence::not_started(argv.clone(), &failure);
        (Err(Unfinished { failure, output: Output::default() }), evidence)
    };
    if let Some(pid) = too_many_stuck(&argv) {
        return not_started(Failure::Stuck { program, pid });
    }
    let mut child = match spawn(step, &argv) {
        Ok(child) => child,
        Err(error) => return not_started(Failure::Spawn { program, error: error.to_string() }),
    };
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    feed(&mut child, step.stdin.clone());
    let stdout = Stream::read(child.stdout.take());
    let stderr = Stream::read(child.stderr.take());

    let ended = {
        let listens = async {
            if let (Some((port, ready)), Some(group)) = (listening, group) {
                until_listening(group, port).await;
                let _ = ready.send(());
            }
            std::future::pending().await
        };
        select! {
            ended = wait(&mut child, started + step.deadline, stop) => ended,
            never = listens => never,
        }
    };
    let status = match &ended {
        Ended::Itself(status) => Some(*status),
        Ended::Deadline | Ended::Cancelled(_) => terminate(&mut child, group).await,
    };
    let gone = status.is_some() && sweep(group).await;
    let stdout = stdout.finish().await;
    let stderr = stderr.finish().await;

    let exit = status.map_or_else(|| "none: it is stuck".to_string(), describe);
    let (out, err) = (tail(&stdout), tail(&stderr));
    let output = Output { stdout, stderr, ended_at: epoch_seconds() };
    let failure = match ended {
        _ if !gone => Some(Failure::Stuck { program, pid: remember_stuck(&argv, group) }),
        Ended::Deadline => Some(Failure::TimedOut { program, after: step.deadline }),
        Ended::Cancelled(by) => Some(Failure::Cancelled { by }),
        Ended::Itself(status) if status.success() => None,
        Ended::Itself(status)
            if status.code() == Some(i32::from(CANT_START)) && err.contains(NOT_STARTED) =>
        {
            let error = err.rsplit(NOT_STARTED).next().unwrap_or_default().trim().to_string();
            Some(Failure::Spawn { program, error })
        }
        Ended::Itself(_) => Some(Failure::Exit { program, status: exit.clone(), says: String::new() }),
    };
    let evidence = Evidence { argv, exit, took: started.elapsed(), stdout: out, stderr: err };
    match failure {
        None => (Ok(output), evidence),
        Some(failure) => (Err(Unfinished { failure, output }), evidence),
    }
}

/// Seconds since the epoch, by the wall clock.
pub(crate) fn epoch_seconds() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

enum Ended {
    Itself(ExitStatus),
    Deadline,
    Cancelled(CancelledBy),
}

/// What is executed, as a person would type it.
fn argv(program: &Program) -> Vec<String> {
    match program {
        Program::Worker(name) => vec!["fabricpulse".into(), "worker".into(), (*name).into()],
        Program::Command(argv) => argv.clone(),
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place")]
fn spawn(step: &Step, argv: &[String]) -> std::io::Result<Child> {
    let mut command = match &step.program {
        Program::Worker(_) => {
            let mut command = Command::new(OURSELVES);
            command.arg0("fabricpulse").args(argv.iter().skip(1));
            command
        }
        Program::Command(argv) => bound(argv, &step.cpus),
    };
    command
        .env_clear()
        // A tool that prints in the operator's language can't be read.
        .envs([("LC_ALL", "C"), ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")])
        .envs(step.env.iter().map(|(key, value)| (key, value)))
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// An external program that goes when the agent goes.
#[cfg(not(test))]
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
fn bound(argv: &[String], cpus: &[u32]) -> Command {
    let mut command = Command::new(OURSELVES);
    let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
    command.arg0("fabricpulse").args(["limits", "--parent", &std::process::id().to_string()]);
    if !cpus.is_empty() {
        command.args(["--cpus", &cpus.join(",")]);
    }
    command.arg("--").args(argv);
    command
}

/// The executable of the unit tests can become nothing; the tests of the whole binary try the other.
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
fn bound(argv: &[String], _: &[u32]) -> Command {
    let mut command = Command::new(argv.first().map_or("", String::as_str));
    command.args(argv.iter().skip(1));
    command
}

/// Writes standard input beside everything else: a child need not read it.
fn feed(child: &mut Child, text: String) {
    if let Some(mut stdin) = child.stdin.take() {
        tokio::spawn(async move {
            let _ = stdin.write_all(text.as_bytes()).await;
        });
    }
}

/// Waits until the leader of the group listens at the TCP port.
async fn until_listening(group: Pid, port: u16) {
    while !procfs::process::Process::new(group.as_raw_nonzero().get())
        .is_ok_and(|leader| listens(&leader, port))
    {
        sleep(LISTEN_POLL).await;
    }
}

/// Whether a socket of this very process listens at the port: another program may have it too, for
/// a moment or on another address. The tables of all sockets are read only once it has one.
fn listens(process: &procfs::process::Process, port: u16) -> bool {
    let inode = |fd: procfs::process::FDInfo| match fd.target {
        FDTarget::Socket(inode) => Some(inode),
        _ => None,
    };
    let own: Vec<u64> = process.fd().into_iter().flatten().flatten().filter_map(inode).collect();
    if own.is_empty() {
        return false;
    }
    let (v4, v6) = (process.tcp().unwrap_or_default(), process.tcp6().unwrap_or_default());
    v4.iter().chain(&v6).any(|entry| {
        entry.state == TcpState::Listen && entry.local_address.port() == port && own.contains(&entry.inode)
    })
}

async fn wait(child: &mut Child, deadline: Instant, stop: &Stop) -> Ended {
    select! {
        biased;
        status = child.wait() => match status {
            Ok(status) => Ended::Itself(status),
            // Nobody else reaps our children, so this is a kernel that lost one.
            Err(_) => Ended::Deadline,
        },
        // Before a caller who stops waiting at the same moment.
        () = sleep_until(deadline) => Ended::Deadline,
        by = stop.cancelled() => Ended::Cancelled(by),
    }
}

/// TERM, grace, KILL. None if the leader is still there after all that.
async fn terminate(child: &mut Child, group: Option<Pid>) -> Option<ExitStatus> {
    for (signal, grace) in [(Signal::TERM, GRACE), (Signal::KILL, KILL_GRACE)] {
        if let Some(group) = group {
            let _ = kill_process_group(group, signal);
        }
        if let Ok(Ok(status)) = timeout(grace, child.wait()).await {
            return Some(status);
        }
    }
    None
}

/// Kills what the leader left in its group, and says whether it is gone.
///
/// The leader has been reaped, but its number can't be given away while its group has a member,
/// and the kernel gives numbers out in turn: an empty group is seen as such here.
async fn sweep(group: Option<Pid>) -> bool {
    let Some(group) = group else { return true };
    let deadline = Instant::now() + KILL_GRACE;
    while test_kill_process_group(group).is_ok() {
        let _ = kill_process_group(group, Signal::KILL);
        if Instant::now() >= deadline {
            // Zombies that their parent does not reap hold the group's number and nothing else.
            return !has_live_member(group);
        }
        sleep(POLL).await;
        if !has_live_member(group) {
            return true;
        }
    }
    true
}

/// Notes the process that is stuck, and returns its number.
fn remember_stuck(argv: &[String], group: Option<Pid>) -> i32 {
    let member = group.and_then(|group| members(group).next());
    let mut stuck = STUCK.lock().unwrap_or_else(PoisonError::into_inner);
    stuck.extend(member.map(|member| (argv.to_vec(), member)));
    member.map_or(0, |member| member.pid)
}

/// One of the stuck children of this program, if there are as many as may be.
fn too_many_stuck(argv: &[String]) -> Option<i32> {
    let mut stuck = STUCK.lock().unwrap_or_else(PoisonError::into_inner);
    stuck.retain(|(_, process)| process.is_there());
    let same = |known: &[String]| known.iter().take(KEY_WORDS).eq(argv.iter().take(KEY_WORDS));
    let mut of_program = stuck.iter().filter(|(known, _)| same(known)).map(|(_, process)| process.pid);
    of_program.nth(MOST_STUCK - 1)
}

impl Stuck {
    fn is_there(self) -> bool {
        let stat = procfs::process::Process::new(self.pid).and_then(|process| process.stat());
        stat.is_ok_and(|stat| stat.starttime == self.began && stat.state != 'Z')
    }
}

fn has_live_member(group: Pid) -> bool {
    members(group).next().is_some()
}

/// The processes of a group that are alive.
fn members(group: Pid) -> impl Iterator<Item = Stuck> {
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    processes
        .filter_map(|process| process.stat().ok())
        .filter(move |stat| stat.pgrp == group.as_raw_nonzero().get() && stat.state != 'Z')
        .map(|stat| Stuck { pid: stat.pid, began: stat.starttime })
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_string(),
    }
}

/// One of the child's output streams.
struct Stream {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Stream {
    fn read(stream: Option<impl AsyncRead + Unpin + Send + 'static>) -> Stream {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let into = kept.clone();
        let reader = tokio::spawn(async move {
            let Some(mut stream) = stream else { return };
            let mut chunk = vec![0; 16 << 10];
            while let Ok(read @ 1..) = stream.read(&mut chunk).await {
                let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
                let room = CAPTURE - kept.len();
                kept.extend_from_slice(&chunk[..read.min(room)]);
            }
        });
        Stream { kept, reader }
    }

    /// What was read. A process that left the group may hold the pipe for ever: don't wait for it.
    async fn finish(mut self) -> String {
        if timeout_at(Instant::now() + DRAIN, &mut self.reader).await.is_err() {
            self.reader.abort();
        }
        let kept = std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        String::from_utf8(kept).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

fn tail(text: &str) -> String {
    let mut from = text.len().saturating_sub(TAIL);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..].to_string()
}

#[cfg(test)]
mod tests;
