//! One execution of a probe, from what asked for it to what it says: the record that history,
//! journal, metrics and the page all share.

use std::{fmt, time::Duration};

use probes::{Finding, Measurement, Target, Verdict};
use serde::{Deserialize, Serialize};

use crate::{gate::Share, judge::speed::Speed};

/// One execution.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Unique on this node, growing, across restarts.
    pub(crate) id: u64,
    pub(crate) probe: &'static str,
    /// What an active lane measures; none for a passive one, whose reports name all of its targets.
    pub(crate) target: Option<Target>,
    pub(crate) trigger: Trigger,
    /// The other node of a run that two make together, once it is known.
    pub(crate) peer: Option<String>,
    /// Seconds since the epoch.
    pub(crate) started: f64,
    pub(crate) took: Duration,
    pub(crate) outcome: Outcome,
    /// What it says of each of its targets.
    pub(crate) reports: Vec<Report>,
    /// What was executed, and what came of it.
    pub(crate) evidence: Vec<Evidence>,
}

/// What a run says of one target.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) target: Target,
    pub(crate) verdict: Verdict,
    /// Why, in one sentence for a person.
    pub(crate) reason: String,
    pub(crate) findings: Vec<Finding>,
    pub(crate) measurements: Vec<Measurement>,
    /// How well it performs; none where nothing was compared.
    pub(crate) speed: Option<Speed>,
}

/// What one step executed.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Evidence {
    pub(crate) argv: Vec<String>,
    /// `exit 0`, `signal 9`, or why there is no status.
    pub(crate) exit: String,
    pub(crate) took: Duration,
    /// The end of standard output.
    pub(crate) stdout: String,
    /// The end of standard error.
    pub(crate) stderr: String,
}

/// Why a run happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Trigger {
    Periodic,
    OnDemand,
    /// It decides a suspicion.
    Confirm,
    /// A partner opened a lease.
    Peer,
}

/// What became of a run.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// It ran and its output was read; the reports say what it means.
    Completed,
    /// The gate said no.
    Skipped(Skip),
    /// This node can't run it.
    Unsupported(String),
    /// The program did not end well.
    Failed(Failure),
    /// The program's output was not understood.
    Unreadable(String),
}

/// Why the gate said no.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Skip {
    pub(crate) reason: SkipReason,
    /// The same for a person, with the part and the time.
    pub(crate) detail: String,
    /// When asking again makes sense.
    pub(crate) retry_after: Duration,
}

/// The kinds of refusal, which are label values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SkipReason {
    /// Active probes are switched off.
    Inactive,
    /// A maintenance hold.
    Held,
    /// The lane is running already.
    Busy,
    /// Another run uses the part.
    Locked,
    /// The hourly budget is used up.
    Budget,
    /// A job is on the device, or nobody can tell.
    Occupied,
    /// No partner: there is none, or peers are not set up.
    NoPartner,
    /// The partner said no.
    Refused,
    /// The partner does not answer.
    Away,
    /// The partner is not who it should be.
    Untrusted,
}

/// Why a program did not end well.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Failure {
    /// It could not be started.
    Spawn { program: String, error: String },
    /// It ended with an error of its own, and said why, or not.
    Exit {
        program: String,
        status: String,
        #[serde(default)]
        says: String,
    },
    /// It was ended at its deadline.
    TimedOut { program: String, after: Duration },
    /// We ended it: the agent stops, or the caller's time was up.
    Cancelled { by: CancelledBy },
    /// It survived SIGKILL: stuck in the kernel, itself a finding.
    Stuck { program: String, pid: i32 },
    /// The partner's half of the run did not end well.
    Partner { peer: String, says: String },
}

/// Who ended a run before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CancelledBy {
    /// The agent stops.
    Shutdown,
    /// The caller's deadline was shorter than the probe's.
    Caller,
    /// The partner's half was over.
    Partner,
}

impl Evidence {
    /// Of something that could not even be started.
    pub(crate) fn not_started(argv: Vec<String>, failure: &Failure) -> Evidence {
        let exit = format!("not started: {failure}");
        Evidence { argv, exit, took: Duration::ZERO, stdout: String::new(), stderr: String::new() }
    }
}

impl Run {
    /// Whether anything was started at all.
    pub(crate) fn began(&self) -> bool {
        match self.outcome {
            Outcome::Completed | Outcome::Failed(_) | Outcome::Unreadable(_) => true,
            Outcome::Skipped(_) | Outcome::Unsupported(_) => false,
        }
    }

    /// What asked for it, and with whom it was made.
    pub(crate) fn occasion(&self) -> String {
        let trigger = self.trigger.word();
        self.peer.as_ref().map_or_else(|| trigger.to_string(), |peer| format!("{trigger}, with {peer}"))
    }

    /// The most severe verdict of its targets.
    pub(crate) fn worst(&self) -> Verdict {
        Verdict::worst(self.reports.iter().map(|report| report.verdict))
    }

    pub(crate) fn gist(&self) -> Gist<'_> {
        let outcome = match &self.outcome {
            Outcome::Skipped(skip) => skip.reason.word().to_string(),
            Outcome::Completed | Outcome::Unsupported(_) | Outcome::Failed(_) | Outcome::Unreadable(_) => {
                self.outcome.to_string()
            }
        };
        (outcome, self.reports.iter().map(Report::gist).collect())
    }

    pub(crate) fn report(&self, target: &Target) -> Option<&Report> {
        self.reports.iter().find(|report| report.target == *target)
    }
}

/// What a run says, without the figures that change each time: outcome, verdicts, and the checks
/// that decided them.
pub(crate) type Gist<'a> = (String, Vec<(&'a Target, Verdict, Vec<(&'a str, &'a str)>)>);

impl Report {
    fn gist(&self) -> (&Target, Verdict, Vec<(&str, &str)>) {
        let deciding = self.findings.iter().filter(|finding| finding.verdict == Some(self.verdict));
        (&self.target, self.verdict, deciding.map(|finding| (&*finding.check, &*finding.part)).collect())
    }
}

impl Trigger {
    /// Whose budget such a run draws on.
    pub(crate) fn share(self) -> Share {
        match self {
            Trigger::Confirm => Share::Confirm,
            Trigger::Periodic | Trigger::OnDemand | Trigger::Peer => Share::Regular,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Trigger::Periodic => "periodic",
            Trigger::OnDemand => "on demand",
            Trigger::Confirm => "to confirm",
            Trigger::Peer => "by a partner",
        }
    }
}

impl Outcome {
    /// The label values, in the order of the enum.
    pub(crate) const WORDS: [&'static str; 5] =
        ["completed", "skipped", "unsupported", "failed", "unreadable"];

    pub(crate) fn word(&self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Skipped(_) => "skipped",
            Outcome::Unsupported(_) => "unsupported",
            Outcome::Failed(_) => "failed",
            Outcome::Unreadable(_) => "unreadable",
        }
    }
}

impl Outcome {
    /// The outcome without what a program printed, which may quote anything.
    pub(crate) fn for_everybody(&self) -> String {
        match self {
            Outcome::Unreadable(_) => "unreadable: the program printed something unexpected".to_string(),
            Outcome::Completed | Outcome::Skipped(_) | Outcome::Unsupported(_) | Outcome::Failed(_) => {
                self.to_string()
            }
        }
    }
}

impl Failure {
    pub(crate) fn is_stuck(&self) -> bool {
        match self {
            Failure::Stuck { .. } => true,
            Failure::Spawn { .. }
            | Failure::Exit { .. }
            | Failure::TimedOut { .. }
            | Failure::Cancelled { .. }
            | Failure::Partner { .. } => false,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Completed => f.write_str("completed"),
            Outcome::Skipped(skip) => write!(f, "skipped: {}", skip.detail),
            Outcome::Unsupported(why) => write!(f, "unsupported: {why}"),
            Outcome::Failed(failure) => write!(f, "failed: {failure}"),
            Outcome::Unreadable(why) => write!(f, "unreadable: {why}"),
        }
    }
}

impl SkipReason {
    pub(crate) const ALL: [SkipReason; 10] = [
        SkipReason::Inactive,
        SkipReason::Held,
        SkipReason::Busy,
        SkipReason::Locked,
        SkipReason::Budget,
        SkipReason::Occupied,
        SkipReason::NoPartner,
        SkipReason::Refused,
        SkipReason::Away,
        SkipReason::Untrusted,
    ];

    /// Whether only a run with another node can end so.
    pub(crate) fn is_of_partners(self) -> bool {
        match self {
            SkipReason::NoPartner | SkipReason::Refused | SkipReason::Away | SkipReason::Untrusted => true,
            SkipReason::Inactive
            | SkipReason::Held
            | SkipReason::Busy
            | SkipReason::Locked
            | SkipReason::Budget
            | SkipReason::Occupied => false,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            SkipReason::Inactive => "inactive",
            SkipReason::Held => "held",
            SkipReason::Busy => "busy",
            SkipReason::Locked => "locked",
            SkipReason::Budget => "budget",
            SkipReason::Occupied => "occupied",
            SkipReason::NoPartner => "no_partner",
            SkipReason::Refused => "refused",
            SkipReason::Away => "away",
            SkipReason::Untrusted => "untrusted",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Spawn { program, error } => write!(f, "{program} could not be started: {error}"),
            Failure::Exit { program, status, says } if says.is_empty() => {
                write!(f, "{program} ended with {status}")
            }
            Failure::Exit { program, status, says } => write!(f, "{program} ended with {status}: {says}"),
            Failure::TimedOut { program, after } => {
                write!(f, "{program} was ended at its deadline of {} s", after.as_secs_f64())
            }
            Failure::Cancelled { by: CancelledBy::Shutdown } => {
                f.write_str("cancelled, since the agent stops")
            }
            Failure::Cancelled { by: CancelledBy::Caller } => {
                f.write_str("cancelled at the caller's deadline")
            }
            Failure::Cancelled { by: CancelledBy::Partner } => {
                f.write_str("cancelled, since the partner's half was over")
            }
            Failure::Partner { peer, says } => write!(f, "{peer}: {says}"),
            Failure::Stuck { program, pid } => {
                write!(f, "{program} survived SIGKILL: it is stuck in the kernel; see /proc/{pid}/stack")
            }
        }
    }
}
