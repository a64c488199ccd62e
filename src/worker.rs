//! The programs that we ship, run as children of the agent by re-executing ourselves.
//!
//! `fabricpulse worker <name>` reads one JSON [`Request`] from standard input, prints the lines of
//! [`probes::lines`] and exits. A hung driver, a crash or a file that blocks ends a child and never
//! the agent. A file that never answers takes its own part out of the answer, by name, and no
//! other.

use std::{
    io::{self, Read, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use probes::{
    lines::{Line, Problem},
    settings::{InventorySettings, Roots},
};
use serde::{Deserialize, Serialize};

use crate::sysfs::{Progress, ReadError};

mod compute;
mod gpu;
mod inventory;
mod library;
pub(crate) mod limits;
mod nic;
mod node;
mod nvml;
pub(crate) mod pcid;
mod pcie;
#[cfg(test)]
mod recorded;

#[cfg(test)]
mod healthy;

/// How long all parts together may take. Sysfs answers in microseconds; a file that takes longer
/// than this is stuck in its driver.
const PARTS_DEADLINE: Duration = Duration::from_secs(3);

/// How long a part may keep the others waiting. All 80 of a full node may do so within the deadline.
const STALL: Duration = Duration::from_millis(20);

/// What a passive worker is asked.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Request {
    pub(crate) roots: Roots,
    pub(crate) inventory: InventorySettings,
    /// The parts that the workers `gpu` and `nic` read, by name.
    #[serde(default)]
    pub(crate) targets: Vec<String>,
    /// Where the worker `inventory` looks for perftest; empty: where programs usually are.
    #[serde(default)]
    pub(crate) perftest: PathBuf,
    /// Folders with vendors' libraries, before the usual places.
    #[serde(default)]
    pub(crate) libraries: Vec<PathBuf>,
    /// What the worker `pcie` reads.
    #[serde(default)]
    pub(crate) pcie: probes::pcie::Wanted,
}

/// Runs the worker `name` and returns the process's exit status.
pub(crate) fn main(name: &str) -> ExitCode {
    match answer(name) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fabricpulse worker {name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn answer(name: &str) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut request = String::new();
    io::stdin().read_to_string(&mut request).context("standard input")?;
    if let Some(done) = compute::main(name, &request, started) {
        return done;
    }
    let request: Request = serde_json::from_str(&request).context("the request on standard input")?;
    match name {
        "gpu" => print(gpu::read(&request)),
        "inventory" => print(inventory::read(&request)),
        "nic" => print(nic::read(&request)),
        "node" => print(node::read(&request)),
        "pcie" => print(pcie::read(&request)),
        _ => anyhow::bail!("there is no worker of this name"),
    }
    .context("standard output")
}

/// What is said of a part whose file did not answer before its deadline.
const STUCK: &str = "no answer in time: the read is stuck in the driver";

/// What a worker read, and what it could not.
pub(crate) type Found<T> = (Vec<T>, Vec<Problem>);

/// Reads the parts `names` one after the other; where one does not answer, another thread goes on
/// with the next, so that a stuck file costs its own part only, and a healthy node one thread.
///
/// `read` gets the name and a [`Progress`] for its files. What it could not read, or did not read
/// in time, comes back as problems that name the part and the file.
pub(crate) fn each_part<T: Send + 'static>(
    names: Vec<String>,
    read: impl Fn(&str, Progress) -> Result<T, ReadError> + Send + Sync + 'static,
) -> Found<T> {
    each_part_within(PARTS_DEADLINE, names, read)
}

/// The same, where all parts together may take longer, or must not take as long.
fn each_part_within<T: Send + 'static>(
    limit: Duration,
    names: Vec<String>,
    read: impl Fn(&str, Progress) -> Result<T, ReadError> + Send + Sync + 'static,
) -> Found<T> {
    let pending: Arc<Vec<(String, Progress)>> =
        Arc::new(names.into_iter().map(|name| (name, Progress::default())).collect());
    let (read, next) = (Arc::new(read), Arc::new(AtomicUsize::new(0)));
    let (done, results) = mpsc::channel();
    let start_reader = || {
        let (pending, read, next, done) = (pending.clone(), read.clone(), next.clone(), done.clone());
        let reader = move || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some((name, progress)) = pending.get(index) else { return };
                let result = catch_unwind(AssertUnwindSafe(|| read(name, progress.clone())));
                if done.send((index, result)).is_err() {
                    return;
                }
            }
        };
        if let Err(error) = thread::Builder::new().spawn(reader) {
            eprintln!("fabricpulse worker: a reader could not be started: {error}");
        }
    };
    start_reader();
    let deadline = Instant::now() + limit;
    let mut found: Vec<Option<thread::Result<Result<T, ReadError>>>> = pending.iter().map(|_| None).collect();
    let mut missing = found.len();
    while missing > 0 && Instant::now() < deadline {
        match results.recv_timeout(STALL) {
            Ok((index, result)) => {
                found[index] = Some(result);
                missing -= 1;
            }
            Err(_) if next.load(Ordering::Relaxed) < found.len() => start_reader(),
            Err(_) => {}
        }
    }
    let (mut items, mut problems) = (Vec::new(), Vec::new());
    for (result, (part, progress)) in found.into_iter().zip(pending.iter()) {
        let path = progress.path().display().to_string();
        let error = match result {
            Some(Ok(Ok(item))) => {
                items.push(item);
                continue;
            }
            Some(Ok(Err(error))) => {
                problems.push(problem(part, &error));
                continue;
            }
            Some(Err(_)) => "the reader failed on what it says; standard error tells where".to_string(),
            None if path.is_empty() => "not reached: reads before it are stuck in the driver".to_string(),
            None => STUCK.to_string(),
        };
        problems.push(Problem { part: part.clone(), path, error });
    }
    (items, problems)
}

/// Reads the parts that the agent asks for. `read` says none of one that is gone; a name that is
/// none, by `is_name`, is a problem.
fn each_target<T: Send + 'static>(
    targets: &[String],
    is_name: fn(&str) -> bool,
    read: impl Fn(&str, Progress) -> Result<Option<T>, ReadError> + Send + Sync + 'static,
) -> Found<T> {
    each_target_within(PARTS_DEADLINE, targets, is_name, read)
}

/// The same within another time.
fn each_target_within<T: Send + 'static>(
    limit: Duration,
    targets: &[String],
    is_name: fn(&str) -> bool,
    read: impl Fn(&str, Progress) -> Result<Option<T>, ReadError> + Send + Sync + 'static,
) -> Found<T> {
    let (names, odd): (Vec<String>, Vec<String>) = targets.iter().cloned().partition(|name| is_name(name));
    let (found, mut problems) = each_part_within(limit, names, read);
    problems.extend(odd.into_iter().map(|part| Problem {
        error: format!("{part:?} is not the name of a part that this worker reads"),
        part,
        path: "standard input".into(),
    }));
    (found.into_iter().flatten().collect(), problems)
}

/// Says which file of which part could not be read.
pub(crate) fn problem(part: &str, error: &ReadError) -> Problem {
    Problem { part: part.to_string(), path: error.path().display().to_string(), error: error.what() }
}

/// Prints a whole answer.
fn print<T: Serialize>((items, problems): Found<T>) -> io::Result<()> {
    let lines = items.len() + problems.len();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let all = items.into_iter().map(Line::Item).chain(problems.into_iter().map(Line::Problem));
    for line in all.chain([Line::End { lines }]) {
        serde_json::to_writer(&mut out, &line)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}
