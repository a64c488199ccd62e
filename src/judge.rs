//! What a run says about the hardware. Pure: no clock, no I/O.
//!
//! A target is judged by its findings, which the probe's parser made from facts. A run that could
//! not measure says nothing of the hardware: unknown with a reason, never a fault and never a pass.

use probes::{Finding, Reading, Target, Verdict};

use crate::run::{Failure, Outcome, Report};

pub(crate) mod book;
pub(crate) mod detector;
mod epoch;
pub(crate) mod expectation;
mod part;
pub(crate) mod speed;

/// The reports of a completed run: one for each target, also for those the output doesn't mention.
pub(crate) fn completed(targets: &[Target], readings: Vec<Reading>) -> Vec<Report> {
    let mut reports: Vec<Report> = readings.into_iter().map(report).collect();
    for target in targets {
        if !reports.iter().any(|report| report.target == *target) {
            reports.push(unmeasured(target, "the probe's output says nothing of it".to_string()));
        }
    }
    reports.retain(|report| targets.contains(&report.target));
    reports.sort_by(|a, b| a.target.cmp(&b.target));
    reports
}

/// The reports of a run that measured nothing.
///
/// None where the outcome leaves the last verdict standing: a skip, a cancellation or a partner's
/// failure only lets it age.
pub(crate) fn not_completed(targets: &[Target], outcome: &Outcome) -> Vec<Report> {
    let reason = outcome.for_everybody();
    match outcome {
        Outcome::Completed
        | Outcome::Skipped(_)
        | Outcome::Failed(Failure::Cancelled { .. } | Failure::Partner { .. }) => Vec::new(),
        // A child that SIGKILL can't end hangs in the driver of the one device it was using.
        Outcome::Failed(Failure::Stuck { .. }) if targets.len() == 1 => targets
            .iter()
            .map(|target| Report { verdict: Verdict::Fail, ..unmeasured(target, reason.clone()) })
            .collect(),
        Outcome::Unsupported(_) | Outcome::Failed(_) | Outcome::Unreadable(_) => {
            targets.iter().map(|target| unmeasured(target, reason.clone())).collect()
        }
    }
}

/// The words for a part that was accepted once and is not there any more.
pub(crate) const ABSENT: &str = "absent: it was part of this node and is gone; \
     if that is meant, tell so with `fabricpulse accept`";

fn report(reading: Reading) -> Report {
    let verdict = Verdict::worst(reading.findings.iter().filter_map(|finding| finding.verdict));
    Report {
        verdict,
        reason: reason(&reading.target, &reading.findings, verdict),
        target: reading.target,
        findings: reading.findings,
        measurements: reading.measurements,
        speed: None,
    }
}

fn unmeasured(target: &Target, reason: String) -> Report {
    Report {
        target: target.clone(),
        verdict: Verdict::Unknown,
        reason,
        findings: vec![],
        measurements: vec![],
        speed: None,
    }
}

/// The finding that decided, in one sentence, and how many more say the same.
fn reason(target: &Target, findings: &[Finding], verdict: Verdict) -> String {
    let mut deciding = findings.iter().filter(|finding| finding.verdict == Some(verdict));
    let Some(first) = deciding.next() else {
        return "nothing applied that could be judged".to_string();
    };
    if verdict == Verdict::Pass {
        return match deciding.count() {
            0 => format!("{} passed", first.check),
            more => format!("{} checks passed", 1 + more),
        };
    }
    let mut words = if first.part == target.id() {
        first.found.clone()
    } else {
        format!("{}: {}", first.part, first.found)
    };
    if !first.expected.is_empty() {
        words.push_str(", expected ");
        words.push_str(&first.expected);
    }
    match deciding.count() {
        0 => {}
        more => words.push_str(&format!(" (and {more} more)")),
    }
    words
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::run::{CancelledBy, Skip, SkipReason};

    fn targets() -> Vec<Target> {
        vec![Target::Pci("0000:01:00.0".into()), Target::Pci("0000:02:00.0".into())]
    }

    fn reading(findings: Vec<Finding>) -> Reading {
        Reading { findings, ..Reading::of(targets()[0].clone()) }
    }

    #[test]
    fn the_worst_finding_decides_and_is_the_reason() {
        let narrow = Finding::new("link_width", "0000:01:00.0", Verdict::Degraded, "x8", "x16");
        let fine = Finding::new("link_speed", "0000:01:00.0", Verdict::Pass, "32 GT/s", "32 GT/s");
        let reports = completed(&targets(), vec![reading(vec![fine.clone(), narrow.clone(), narrow])]);
        assert_eq!(reports[0].verdict, Verdict::Degraded);
        assert_eq!(reports[0].reason, "x8, expected x16 (and 1 more)");
        assert_eq!(completed(&targets(), vec![reading(vec![fine])])[0].reason, "link_speed passed");
    }

    #[test]
    fn what_was_not_measured_or_does_not_apply_is_no_pass() {
        let reports =
            completed(&targets(), vec![reading(vec![Finding::not_applicable("acs", "x", "no bridge")])]);
        assert_eq!(reports.iter().map(|report| report.verdict).collect::<Vec<_>>(), [Verdict::Unknown; 2]);
        assert_eq!(reports[1].reason, "the probe's output says nothing of it");
    }

    #[test]
    fn a_run_that_could_not_measure_never_says_fail_or_pass() {
        let program = String::from("tool");
        let table = [
            (Outcome::Unsupported("no perftest".into()), Some(Verdict::Unknown)),
            (Outcome::Unreadable("cut".into()), Some(Verdict::Unknown)),
            (
                Outcome::Failed(Failure::Spawn { program: program.clone(), error: "ENOENT".into() }),
                Some(Verdict::Unknown),
            ),
            (
                Outcome::Failed(Failure::Exit {
                    program: program.clone(),
                    status: "exit 1".into(),
                    says: String::new(),
                }),
                Some(Verdict::Unknown),
            ),
            (
                Outcome::Failed(Failure::TimedOut {
                    program: program.clone(),
                    after: Duration::from_secs(1),
                }),
                Some(Verdict::Unknown),
            ),
            (Outcome::Failed(Failure::Stuck { program, pid: 7 }), Some(Verdict::Unknown)),
            (Outcome::Failed(Failure::Cancelled { by: CancelledBy::Shutdown }), None),
            (
                Outcome::Skipped(Skip {
                    reason: SkipReason::Held,
                    detail: String::new(),
                    retry_after: Duration::ZERO,
                }),
                None,
            ),
        ];
        for (outcome, verdict) in table {
            let reports = not_completed(&targets(), &outcome);
            let want: Vec<Verdict> =
                verdict.into_iter().cycle().take(if verdict.is_some() { 2 } else { 0 }).collect();
            assert_eq!(reports.iter().map(|report| report.verdict).collect::<Vec<_>>(), want, "{outcome}");
        }
    }

    #[test]
    fn a_stuck_child_blames_the_only_device_it_can_hang_on() {
        let stuck = Outcome::Failed(Failure::Stuck { program: "tool".into(), pid: 7 });
        assert_eq!(not_completed(&targets()[..1], &stuck)[0].verdict, Verdict::Fail);
    }
}
