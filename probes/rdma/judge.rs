//! Transfers in words.

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

/// That data went through at all, and what to type to see it again.
pub(super) fn transfer(device: &str, found: String, again: String) -> Finding {
    Finding::new("transfer", device, Verdict::Pass, found, "data that arrives").try_command(again)
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
