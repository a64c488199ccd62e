//! What both sides of a lease do in a stage.

use std::time::Duration;

use probes::Probe;

use crate::{run::Failure, runner::Unfinished};

/// How long a server may go on after its client has ended: both destroy their queue pairs first.
pub(crate) const AFTER_CLIENT: Duration = Duration::from_secs(3);

/// A failure, with what the program said about it in the probe's words.
pub(crate) fn explain(probe: &'static dyn Probe, unfinished: Unfinished) -> Failure {
    let said = probe.explain(&unfinished.output);
    match (unfinished.failure, said) {
        (Failure::Exit { program, status, .. }, Some(says)) => Failure::Exit { program, status, says },
        (failure, _) => failure,
    }
}
