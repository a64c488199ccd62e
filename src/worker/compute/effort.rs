//! How often something is measured: until its repeats agree, or the time is spent.

use std::time::{Duration, Instant};

use probes::compute::Repeats;

use super::Stop;

/// Repeats that differ by less than this agree, as a part of their median.
const AGREED: f64 = 0.01;
/// Before that many nothing agrees: the middle half of fewer is no half.
const LEAST: usize = 5;
/// Nothing is learned from more.
const MOST: usize = 1000;

/// What may be spent on one value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Runs that don't count: clocks rise, caches and page tables fill.
    pub(super) warm_up: u32,
    /// Runs that count, at least.
    pub(super) least: usize,
    /// How long repeats may go on.
    pub(super) time: Duration,
    /// When the whole worker has to be done.
    pub(super) deadline: Instant,
}

impl Effort {
    /// A few warm-ups and then `time`.
    pub(super) fn new(time: Duration, deadline: Instant) -> Effort {
        Effort { warm_up: 2, least: LEAST, time, deadline }
    }

    /// The whole of `time`, whether repeats agree or not.
    pub(super) fn throughout(time: Duration, deadline: Instant) -> Effort {
        Effort { least: usize::MAX, ..Effort::new(time, deadline) }
    }

    /// Measures again and again, each time one value; all that counted.
    pub(super) fn repeat(&self, mut once: impl FnMut() -> Result<f64, Stop>) -> Result<Vec<f64>, Stop> {
        for _ in 0..self.warm_up {
            once()?;
        }
        let until = (Instant::now() + self.time).min(self.deadline);
        let mut values = Vec::new();
        loop {
            values.push(once()?);
            let agreed =
                values.len() >= self.least && Repeats::of(&values).is_some_and(|all| all.spread < AGREED);
            if agreed || values.len() >= MOST.max(self.least) || Instant::now() >= until {
                return Ok(values);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(time: Duration, mut value: impl FnMut(usize) -> f64) -> usize {
        let effort = Effort { warm_up: 3, least: 5, time, deadline: Instant::now() + Duration::from_secs(9) };
        let mut calls = 0;
        let values = effort.repeat(|| {
            calls += 1;
            Ok(value(calls))
        });
        let values = values.unwrap();
        assert_eq!(calls, values.len() + 3, "warm-ups don't count");
        values.len()
    }

    #[test]
    fn repeats_end_when_they_agree_or_the_time_is_spent() {
        let long = Duration::from_secs(5);
        assert_eq!(count(long, |_| 7.0), 5);
        assert_eq!(count(Duration::ZERO, |n| n as f64), 1);
        assert_eq!(count(long, |n| n as f64), MOST);
        assert_eq!(count(long, |n| if n < 10 { n as f64 } else { 7.0 }), 13);
    }
}
