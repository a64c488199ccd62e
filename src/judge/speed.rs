//! What a run says of how well a target performs: each value beside what is expected of it.

use probes::{Better, Finding, MetricSpec, Target, Verdict};

use super::{
    detector::{State, WARM},
    expectation::Expectation,
    part::Part,
};

/// The name of the finding.
pub(crate) const CHECK: &str = "performance";

/// How well a target performs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Speed {
    pub(crate) state: State,
    /// The worst value over what is expected of it, such that below 1 is worse.
    pub(crate) ratio: Option<f64>,
    /// The part that low values blame, in words; none while there are none.
    pub(crate) part: Option<String>,
    /// Why that part.
    pub(crate) why: &'static str,
    /// Each value; empty for a run of an earlier process.
    pub(crate) judged: Vec<Judged>,
    /// What has changed since the run before, if it is the first on another driver, firmware or part.
    pub(crate) changes: Vec<String>,
}

/// A value beside what is expected of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    pub(crate) metric: &'static MetricSpec,
    /// The labels that tell the series.
    pub(crate) series: Vec<(&'static str, String)>,
    /// In the metric's unit.
    pub(crate) value: f64,
    pub(crate) better: Better,
    pub(crate) state: State,
    /// Whether this value is low.
    pub(crate) low: bool,
    /// What it is held against; none while nothing is known.
    pub(crate) expectation: Option<Expectation>,
    /// The worst value that is not low, in the metric's unit.
    pub(crate) worst: Option<f64>,
    /// Samples that what is usual is known from.
    pub(crate) samples: u32,
}

impl Judged {
    /// The value over what is expected, such that below 1 is worse.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let expectation = self.expectation.as_ref()?;
        Some(self.better.goodness(self.value) / self.better.goodness(expectation.value))
    }

    /// `390.1 Gb/s sent`
    fn words(&self, target: &Target) -> String {
        let labels = self.series.iter().filter(|(_, value)| value != target.id());
        let labels: Vec<&str> = labels.map(|(_, value)| value.as_str()).collect();
        [amount(self.metric.unit, self.value), labels.join(" ")].join(" ").trim_end().to_string()
    }
}

impl Speed {
    pub(crate) fn new(state: State, part: Option<Part>, judged: Vec<Judged>, changes: Vec<String>) -> Speed {
        let ratio = judged.iter().filter_map(Judged::ratio).min_by(f64::total_cmp);
        let why = part.as_ref().map_or("", Part::why);
        Speed { state, ratio, part: part.map(|part| part.to_string()), why, judged, changes }
    }

    /// The value that says most: of the worst state, the one that is furthest below.
    fn worst(&self) -> Option<&Judged> {
        let of_state = |judged: &&Judged| judged.state == self.state;
        let ratio = |judged: &Judged| judged.ratio().unwrap_or(f64::INFINITY);
        self.judged.iter().filter(of_state).min_by(|a, b| ratio(a).total_cmp(&ratio(b)))
    }

    /// The same as a finding.
    pub(crate) fn finding(&self, target: &Target) -> Option<Finding> {
        let worst = self.worst()?;
        let mut found = worst.words(target);
        if let Some(ratio) = worst.ratio() {
            found.push_str(&format!(", {}", percent(ratio)));
        }
        let expected = worst.expectation.as_ref().map_or_else(String::new, |expectation| {
            format!("{}, {}", amount(worst.metric.unit, expectation.value), expectation.origin.words())
        });
        let finding = match self.state {
            State::Warming => {
                let words = match worst.expectation {
                    Some(_) => found,
                    None => {
                        format!(
                            "{found}; what is usual is known after {WARM} samples, this is {}",
                            worst.samples
                        )
                    }
                };
                return Some(
                    self.told(Finding { expected, ..Finding::not_applicable(CHECK, target.id(), words) }),
                );
            }
            State::Fine => Finding::new(CHECK, target.id(), Verdict::Pass, found, expected),
            State::Suspect => {
                let words = format!("{found}: more runs are made to see whether it stays so");
                let blamed = self.part.as_deref().unwrap_or_default();
                Finding { expected, ..Finding::not_applicable(CHECK, blamed, words) }
            }
            State::Degraded => {
                let blamed = self.part.as_deref().unwrap_or(target.id());
                Finding::new(CHECK, blamed, Verdict::Degraded, found, expected)
                    .because(self.why)
                    .try_command("fabricpulse baseline show")
            }
        };
        Some(self.told(finding))
    }

    /// With what has changed.
    fn told(&self, mut finding: Finding) -> Finding {
        if !self.changes.is_empty() {
            finding.found.push_str(&format!("; what was usual begins anew: {}", self.changes.join(", ")));
        }
        finding
    }
}

/// `12.3 % below`, `0.4 % above`
fn percent(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    let word = if percent < 0.0 { "below" } else { "above" };
    format!("{:.1} % {word} what is expected", percent.abs())
}

/// A value of a metric, as people say it.
pub(crate) fn amount(unit: &str, value: f64) -> String {
    match unit {
        "flops" => format!("{:.1} TFLOP/s", value / 1e12),
        "bytes_per_second" => format!("{:.2} GB/s", value / 1e9),
        "seconds" => format!("{:.2} us", value * 1e6),
        _ => format!("{value:.3}"),
    }
}
