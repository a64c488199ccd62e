//! AER counts: how much they rose within the operator's window.

use std::collections::BTreeMap;

use super::{Errors, Function};
use crate::{Finding, Memory, Verdict, counters::Change, passive::span, settings::PcieSettings};

/// How bad an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    Correctable,
    Nonfatal,
    Fatal,
}

/// What the newest reading says of each counter.
pub(super) type Rises = BTreeMap<(String, Severity), Change>;

impl Severity {
    pub(super) const ALL: [Severity; 3] = [Severity::Correctable, Severity::Nonfatal, Severity::Fatal];

    pub(super) fn word(self) -> &'static str {
        match self {
            Severity::Correctable => "correctable",
            Severity::Nonfatal => "nonfatal",
            Severity::Fatal => "fatal",
        }
    }

    fn why(self) -> &'static str {
        match self {
            Severity::Correctable => {
                "each one is a packet sent twice: a connector, riser or slot that is going bad"
            }
            Severity::Nonfatal => {
                "a transaction was lost: a driver may have failed a request or reset the device"
            }
            Severity::Fatal => {
                "the link could not be trusted and was reset: the device may have lost its state"
            }
        }
    }
}

impl Errors {
    /// The count of one severity.
    pub(super) fn count(self, severity: Severity) -> Option<u64> {
        match severity {
            Severity::Correctable => self.correctable,
            Severity::Nonfatal => self.nonfatal,
            Severity::Fatal => self.fatal,
        }
    }
}

/// Takes the new counts into the lane's memory, each once.
pub(super) fn observe(
    functions: &[Function],
    memory: &mut Memory,
    now: f64,
    settings: &PcieSettings,
) -> Rises {
    let mut rises = Rises::new();
    for function in functions {
        for severity in Severity::ALL {
            if let Some(count) = function.errors.and_then(|errors| errors.count(severity)) {
                let key = format!("{} {}", function.pci, severity.word());
                let change = memory.observe(&key, now, count, settings.error_window);
                rises.insert((function.pci.clone(), severity), change);
            }
        }
    }
    rises
}

/// What the counts of the functions on one way say.
pub(super) fn findings(
    target: &str,
    way: &[&Function],
    rises: &Rises,
    settings: &PcieSettings,
    command: impl Fn(&str) -> String,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut counted, mut watched) = (0, f64::INFINITY);
    for function in way {
        counted += usize::from(function.errors.is_some());
        for severity in Severity::ALL {
            let Some(change) = rises.get(&(function.pci.clone(), severity)) else { continue };
            watched = watched.min(change.watched);
            let (allowed, verdict) = match severity {
                Severity::Correctable => (settings.correctable_errors, Verdict::Degraded),
                Severity::Nonfatal => (0, Verdict::Degraded),
                Severity::Fatal => (0, Verdict::Fail),
            };
            if change.rise > allowed {
                let window = settings.error_window.as_secs_f64();
                let found = format!(
                    "{} {} errors of {} within {}",
                    change.rise,
                    severity.word(),
                    function.pci,
                    span(change.watched.clamp(0.0, window))
                );
                let expected = format!("at most {allowed} within {}, by probe.pcie", span(window));
                findings.push(
                    Finding::new("aer_errors", &function.pci, verdict, found, expected)
                        .because(severity.why())
                        .try_command(command(&function.pci)),
                );
            }
        }
    }
    if findings.is_empty() {
        findings.push(if counted == 0 {
            Finding::not_applicable(
                "aer_errors",
                target,
                "the kernel counts no errors here: firmware handles AER, or nobody does",
            )
        } else if watched <= 0.0 {
            Finding::not_applicable(
                "aer_errors",
                target,
                "one reading so far: counts since boot say nothing of today",
            )
        } else {
            let found = format!("none that matter on {counted} functions within {}", span(watched));
            let allowed = settings.correctable_errors;
            let expected = format!(
                "at most {allowed} correctable and none else within {}",
                span(settings.error_window.as_secs_f64())
            );
            Finding::new("aer_errors", target, Verdict::Pass, found, expected)
        });
    }
    findings
}
