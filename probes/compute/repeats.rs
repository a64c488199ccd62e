//! A value that was measured several times.

use serde::{Deserialize, Serialize};

/// The median of repeats, and how far they are from each other.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Repeats {
    /// In the value's own unit.
    pub median: f64,
    /// How wide the middle half of them is, as a part of the median. Outliers don't count in it.
    pub spread: f64,
    /// How many.
    pub count: u32,
}

impl Repeats {
    /// Of some values; none of no values.
    pub fn of(values: &[f64]) -> Option<Repeats> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let median = quantile(&sorted, 0.5)?;
        let half = quantile(&sorted, 0.75)? - quantile(&sorted, 0.25)?;
        let spread = if median > 0.0 { half / median } else { 0.0 };
        Some(Repeats { median, spread, count: u32::try_from(sorted.len()).unwrap_or(u32::MAX) })
    }

    /// Of seconds that a known amount took each time: the amount in a second.
    pub fn rate(amount: f64, seconds: &[f64]) -> Option<Repeats> {
        let rates: Vec<f64> = seconds.iter().map(|seconds| amount / seconds).collect();
        Repeats::of(&rates)
    }
}

/// The value below which the part `at` of the sorted values is, between two of them by their
/// distance.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an index into a list that is in memory"
)]
fn quantile(sorted: &[f64], at: f64) -> Option<f64> {
    let place = at * sorted.len().checked_sub(1)? as f64;
    let below = sorted.get(place.floor() as usize)?;
    let above = sorted.get(place.ceil() as usize)?;
    Some(below + (above - below) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_half_tells_the_spread_and_an_outlier_does_not() {
        let of = |values: &[f64]| Repeats::of(values).map(|r| (r.median, r.spread, r.count));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[f64::INFINITY]), None);
        assert_eq!(of(&[4.0]), Some((4.0, 0.0, 1)));
        assert_eq!(of(&[10.0, 12.0, 11.0, 9.0, 8.0]), Some((10.0, 0.2, 5)));
        assert_eq!(of(&[10.0, 10.0, 10.0, 10.0, 90.0]), Some((10.0, 0.0, 5)));
        assert_eq!(Repeats::rate(6.0, &[2.0, 3.0, 3.0]).map(|r| r.median), Some(2.0));
    }
}
