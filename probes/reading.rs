//! What a completed run says: measured values, and findings in words.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Bound, Compared, Target, inventory::Link};

/// What a run says about the hardware. The numbers are Nagios's, and the exported ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was measured, and is as it should be.
    Pass = 0,
    /// It works, worse than it should.
    Degraded = 1,
    /// It does not work.
    Fail = 2,
    /// Nothing was measured that could be judged.
    Unknown = 3,
}

impl Verdict {
    /// The word for people and for JSON.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Degraded => "degraded",
            Verdict::Fail => "fail",
            Verdict::Unknown => "unknown",
        }
    }

    /// How much it matters to somebody who looks for trouble: a fault outranks a doubt, and a
    /// doubt outranks a pass.
    pub fn severity(self) -> u8 {
        match self {
            Verdict::Pass => 0,
            Verdict::Unknown => 1,
            Verdict::Degraded => 2,
            Verdict::Fail => 3,
        }
    }

    /// The most severe verdict; unknown if there is none, since nothing judged is never a pass.
    pub fn worst(verdicts: impl IntoIterator<Item = Verdict>) -> Verdict {
        verdicts.into_iter().max_by_key(|verdict| verdict.severity()).unwrap_or(Verdict::Unknown)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What a run found out about one target.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Which target.
    pub target: Target,
    /// Values to export.
    pub measurements: Vec<Measurement>,
    /// Facts already judged, the deciding ones and the good ones.
    pub findings: Vec<Finding>,
    /// PCIe links as they were while data moved, by the function at their lower end.
    pub loaded: Vec<(String, Link)>,
    /// What the operator expects of these values.
    pub bounds: Vec<Bound>,
    /// Digests of what was computed, to be compared with those of parts of the same kind.
    pub digests: Vec<Digest>,
}

/// A digest of a result that every part of a kind must come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// All that the result depends on: model, libraries, type, size and algorithm.
    pub kind: String,
    /// Equal where the results are.
    pub value: String,
}

impl Reading {
    /// A reading with nothing in it yet.
    pub fn of(target: Target) -> Reading {
        Reading {
            target,
            measurements: Vec::new(),
            findings: Vec::new(),
            loaded: Vec::new(),
            bounds: Vec::new(),
            digests: Vec::new(),
        }
    }

    /// Says what the operator expects of the values of a metric that were added.
    pub fn expect(
        &mut self,
        metric: &'static MetricSpec,
        section: &'static str,
        expected: Option<f64>,
        tolerance: f64,
    ) {
        let Some(expected) = expected else { return };
        let of = self.measurements.iter().filter(|measurement| measurement.metric == metric);
        let bound = |measurement| Bound {
            metric,
            series: Compared::series(measurement),
            expected,
            tolerance,
            section,
        };
        self.bounds.extend(of.map(bound));
    }

    /// Adds a value. `labels` are the values of the metric's labels, in its order.
    pub fn measure<const N: usize>(&mut self, metric: &'static MetricSpec, labels: [&str; N], value: f64) {
        debug_assert_eq!(metric.labels.len(), N, "{} has other labels", metric.name);
        self.measurements.push(Measurement { metric, labels: labels.map(str::to_string).to_vec(), value });
    }
}

/// One fact that was checked, in words a person can act on at night.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Finding {
    /// The stable name of the check: `link_width`, `numa_balancing`.
    pub check: String,
    /// The part that it is about, by name: `0000:23:00.0`, `mlx5_0`, `node`.
    pub part: String,
    /// What it says; none if the check does not apply to this node, which is not a pass.
    pub verdict: Option<Verdict>,
    /// What was found: `x8`, or why nothing could be.
    pub found: String,
    /// What is expected, and says who: `x16, what both ends of the link can do`.
    pub expected: String,
    /// Why it matters, in one sentence; empty where a pass needs none.
    pub why: String,
    /// The command that shows or mends it; never run by us.
    pub command: String,
}

impl Finding {
    /// A finding with a verdict. Set `why` and `command` where they help.
    pub fn new(
        check: &str,
        part: &str,
        verdict: Verdict,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Finding {
        Finding {
            check: check.to_string(),
            part: part.to_string(),
            verdict: Some(verdict),
            found: found.into(),
            expected: expected.into(),
            why: String::new(),
            command: String::new(),
        }
    }

    /// A check that does not apply here, and why not.
    pub fn not_applicable(check: &str, part: &str, reason: impl Into<String>) -> Finding {
        Finding { verdict: None, ..Finding::new(check, part, Verdict::Unknown, reason, "") }
    }

    /// Says why it matters.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Finding {
        self.why = why.into();
        self
    }

    /// Says what to type.
    #[must_use]
    pub fn try_command(mut self, command: impl Into<String>) -> Finding {
        self.command = command.into();
        self
    }
}

/// The name, meaning and unit of a metric.
#[derive(Debug, PartialEq, Eq)]
pub struct MetricSpec {
    /// Without the common prefix, with its unit, without `_total` or `_info`.
    pub name: &'static str,
    /// One sentence that gives unit and meaning, with its full stop.
    pub help: &'static str,
    /// The base unit, which is the end of the name; empty for counts and states.
    pub unit: &'static str,
    /// How it may change.
    pub kind: MetricKind,
    /// Label names, in the order in which [`Measurement::labels`] gives their values.
    pub labels: &'static [&'static str],
}

/// How a metric may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Goes up and down.
    Gauge,
    /// Only grows, until the device or the node is reset. Exported with `_total`.
    Counter,
    /// Always 1; the labels are the message. Exported with `_info`.
    Info,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// Which metric.
    pub metric: &'static MetricSpec,
    /// The values of its labels.
    pub labels: Vec<String>,
    /// In the metric's base unit.
    pub value: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_outranks_a_doubt_and_nothing_judged_is_no_pass() {
        use Verdict::{Degraded, Fail, Pass, Unknown};
        let table: [(&[Verdict], Verdict); 5] = [
            (&[], Unknown),
            (&[Pass, Pass], Pass),
            (&[Pass, Unknown], Unknown),
            (&[Unknown, Degraded], Degraded),
            (&[Degraded, Fail, Unknown], Fail),
        ];
        for (verdicts, worst) in table {
            assert_eq!(Verdict::worst(verdicts.iter().copied()), worst, "{verdicts:?}");
        }
    }
}
