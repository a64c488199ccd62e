//! The programs that we ship, run as children of the agent by re-executing ourselves.
//!
//! `fabricpulse worker <name>` reads one JSON [`Request`] from standard input, prints the lines of
//! [`probes::lines`] and exits. A hung driver, a crash or a file that blocks ends a child and never
//! the agent. Every part is read by a thread of its own: a file that never answers takes its own
//! part out of the answer, by name, and no other.

use std::{
    io::{self, Read, Write},
    process::ExitCode,
    sync::{Arc, mpsc},
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

mod gpu;
mod inventory;
mod nic;
mod node;
pub(crate) mod pcid;
mod pcie;
#[cfg(test)]
mod recorded;

#[cfg(test)]
mod healthy;

/// How long all parts together may take. Sysfs answers in microseconds; a file that takes longer
/// than this is stuck in its driver.
const PARTS_DEADLINE: Duration = Duration::from_secs(3);

/// What a passive worker is asked.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Request {
    pub(crate) roots: Roots,
    pub(crate) inventory: InventorySettings,
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
    let mut request = String::new();
    io::stdin().read_to_string(&mut request).context("standard input")?;
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

/// What a worker read, and what it could not.
pub(crate) type Found<T> = (Vec<T>, Vec<Problem>);

/// Reads the parts `names` at the same time, one thread each.
///
/// `read` gets the name and a [`Progress`] for its files. What it could not read, or did not read
/// in time, comes back as problems that name the part and the file.
pub(crate) fn each_part<T: Send + 'static>(
    names: Vec<String>,
    read: impl Fn(&str, Progress) -> Result<T, ReadError> + Send + Sync + 'static,
) -> Found<T> {
    let read = Arc::new(read);
    let (done, results) = mpsc::channel();
    let mut pending: Vec<(String, Progress)> = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        let (read, done, progress) = (read.clone(), done.clone(), Progress::default());
        pending.push((name.clone(), progress.clone()));
        thread::spawn(move || done.send((index, read(&name, progress))));
    }
    drop(done);
    let deadline = Instant::now() + PARTS_DEADLINE;
    let mut found: Vec<Option<Result<T, ReadError>>> = pending.iter().map(|_| None).collect();
    while let Ok((index, result)) = results.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        found[index] = Some(result);
    }
    let (mut items, mut problems) = (Vec::new(), Vec::new());
    for (result, (part, progress)) in found.into_iter().zip(pending) {
        match result {
            Some(Ok(item)) => items.push(item),
            Some(Err(error)) => problems.push(problem(&part, &error)),
            None => problems.push(Problem {
                part,
                path: progress.path().display().to_string(),
                error: format!(
                    "no answer within {} s: the read is stuck in the driver",
                    PARTS_DEADLINE.as_secs()
                ),
            }),
        }
    }
    (items, problems)
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
