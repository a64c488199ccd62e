//! The worker `limits`: becomes an external program, on the CPUs that it is given, and goes when
//! the agent goes.
//!
//! An agent that is killed can end nothing any more. So the kernel is told beforehand to kill the
//! child with it: a server of perftest would otherwise wait for its client for ever.

use std::{ffi::OsString, os::unix::process::CommandExt as _, process::ExitCode};

use rustix::{
    process::{Signal, getppid, set_parent_process_death_signal},
    thread::{CpuSet, sched_setaffinity},
};

/// The exit status of a shell for a program that can't be started; [`NOT_STARTED`] tells it apart
/// from a program's own.
pub(crate) const CANT_START: u8 = 127;
/// What the line begins with that says why.
pub(crate) const NOT_STARTED: &str = "fabricpulse: not started: ";

/// What is to be started, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The agent: without it as the parent there is nobody to start anything for.
    #[arg(long)]
    parent: i32,
    /// The CPUs that it may run on; none for all.
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<usize>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    argv: Vec<OsString>,
}

/// Becomes the program. Returns only if that fails.
#[expect(clippy::disallowed_methods, reason = "it starts nothing: it becomes what the runner starts")]
pub(crate) fn main(args: &Args) -> ExitCode {
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    // An agent that was gone before that sends no signal.
    if bound.is_err() || getppid().map(|parent| parent.as_raw_nonzero().get()) != Some(args.parent) {
        eprintln!("{NOT_STARTED}the agent is gone");
        return ExitCode::from(CANT_START);
    }
    keep_on(&args.cpus);
    let error = std::process::Command::new(&args.argv[0]).args(&args.argv[1..]).exec();
    eprintln!("{NOT_STARTED}{error}");
    ExitCode::from(CANT_START)
}

/// Keeps this process on these CPUs; without any it runs on all.
pub(super) fn keep_on(cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    if set.count() > 0
        && let Err(error) = sched_setaffinity(None, &set)
    {
        eprintln!("fabricpulse: it could not be kept on CPUs {cpus:?}: {error}");
    }
}
