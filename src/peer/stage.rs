//! What both sides of a lease do in a stage.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use probes::Probe;

use crate::{run::Failure, runner::Unfinished};

/// How long a server may go on after its client has ended: both destroy their queue pairs first.
pub(crate) const AFTER_CLIENT: Duration = Duration::from_secs(3);

/// A failure, with what the program said about it in the probe's words.
pub(crate) fn explain(probe: &'static dyn Probe, unfinished: Unfinished) -> Failure {
    // A parser that panics has met an output that nobody thought of; it must not take the agent down.
    let said = catch_unwind(AssertUnwindSafe(|| probe.explain(&unfinished.output))).unwrap_or_default();
    match (unfinished.failure, said) {
        (Failure::Exit { program, status, .. }, Some(says)) => Failure::Exit { program, status, says },
        (failure, _) => failure,
    }
}
