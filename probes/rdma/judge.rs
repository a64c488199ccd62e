//! Transfers in words, and judged where the operator has said what is expected.

use super::outputs::Repeats;
use crate::{Finding, Verdict};

/// Below this, in Gb/s, one decimal would hide what matters.
const FEW_GIGABITS: f64 = 10.0;

/// Bytes per second as network people write them.
pub(super) fn gigabits(bytes_per_second: f64) -> String {
    let gigabits = bytes_per_second * 8.0 / 1e9;
    if gigabits < FEW_GIGABITS { format!("{gigabits:.4} Gb/s") } else { format!("{gigabits:.1} Gb/s") }
}

/// Seconds as network people write latencies.
pub(super) fn microseconds(seconds: f64) -> String {
    format!("{:.2} us", seconds * 1e6)
}

/// That data went through at all.
pub(super) fn transfer(device: &str, found: String) -> Finding {
    Finding::new("transfer", device, Verdict::Pass, found, "data that arrives")
}

/// How far the repeats were from each other.
pub(super) fn spread(device: &str, of: &[(&str, Repeats)]) -> Finding {
    let words = of.iter().map(|(what, repeats)| {
        let left_out = match repeats.of - repeats.measured {
            0 => String::new(),
            some => format!(", {some} of {} measured nothing", repeats.of),
        };
        format!("{what} {:.1} %{left_out}", repeats.spread() * 100.0)
    });
    let words = words.collect::<Vec<_>>().join("; ");
    Finding::not_applicable("spread", device, format!("between the best repeat and the worst: {words}"))
}

/// What is expected of a figure, by the operator.
#[derive(Clone, Debug)]
pub(super) struct Bound<'a> {
    /// The part that it is about.
    pub(super) device: &'a str,
    /// Where it is configured: `probe.gdr`.
    pub(super) section: &'a str,
    /// What a healthy part gives; none judges nothing.
    pub(super) expected: Option<f64>,
    /// The part of it that is still healthy.
    pub(super) tolerance: f64,
    /// Why a bad figure matters.
    pub(super) why: &'a str,
    /// What shows it again.
    pub(super) command: String,
}

impl Bound<'_> {
    /// Judges the slowest of some directions, each with its words.
    pub(super) fn bandwidth(&self, figures: &[(&str, f64)]) -> Finding {
        let slowest = figures.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        let (Some(expected), Some((what, found))) = (self.expected, slowest) else {
            return self.unjudged("bandwidth");
        };
        let least = expected * self.tolerance;
        let words = format!(
            "at least {}: {} of the {} that [{}] expects",
            gigabits(least),
            self.tolerance,
            gigabits(expected),
            self.section
        );
        self.judged("bandwidth", *found >= least, format!("{} {what}", gigabits(*found)), words)
    }

    /// Judges a latency, in seconds.
    pub(super) fn latency(&self, found: f64) -> Finding {
        let Some(expected) = self.expected else { return self.unjudged("latency") };
        let most = expected / self.tolerance;
        let words = format!(
            "at most {}: the {} that [{}] expects, by {}",
            microseconds(most),
            microseconds(expected),
            self.section,
            self.tolerance
        );
        self.judged("latency", found <= most, format!("{} typical", microseconds(found)), words)
    }

    /// Judges the ratio of GPU memory to host memory, whose bound is itself the least.
    pub(super) fn ratio(&self, found: f64) -> Finding {
        let Some(least) = self.expected else { return self.unjudged("gdr_host_ratio") };
        let words = format!("at least {least}, by [{}]", self.section);
        self.judged("gdr_host_ratio", found >= least, format!("{found:.3} of host memory"), words)
    }

    fn unjudged(&self, check: &str) -> Finding {
        Finding::not_applicable(check, self.device, "no expected value is set")
    }

    fn judged(&self, check: &str, good: bool, found: String, expected: String) -> Finding {
        if good {
            return Finding::new(check, self.device, Verdict::Pass, found, expected);
        }
        Finding::new(check, self.device, Verdict::Degraded, found, expected)
            .because(self.why)
            .try_command(self.command.clone())
    }
}
