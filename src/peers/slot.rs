//! Slots: spans of time in which partners stay the same, and what happens when in them.

use std::time::Duration;

use super::hash;

/// The most that clocks may differ, in seconds: nothing begins so close to either end of a slot.
const GUARD: f64 = 30.0;
/// The guard of short slots, as a part of them.
const SHORT_GUARD: f64 = 0.1;
/// From which part of a slot on a rail that is still due looks for another partner.
const FALLBACK: f64 = 0.6;

/// Slots of one length, counted from the epoch.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    length: f64,
}

impl Slots {
    pub(crate) fn new(length: Duration) -> Slots {
        Slots { length: length.as_secs_f64().max(1.0) }
    }

    /// The slot of a time in seconds since the epoch.
    pub(crate) fn number(&self, at: f64) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time after 1970")]
        let number = (at / self.length).floor().max(0.0) as u64;
        number
    }

    /// When a slot begins.
    pub(crate) fn start(&self, number: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a number of slots since 1970")]
        let number = number as f64;
        number * self.length
    }

    /// The length in seconds.
    pub(crate) fn length(&self) -> f64 {
        self.length
    }

    fn guard(&self) -> f64 {
        GUARD.min(self.length * SHORT_GUARD)
    }

    /// When a pair begins: the same for both, spread over the slot's part before the fallback.
    pub(crate) fn pair_at(&self, number: u64, pair: u64) -> f64 {
        let (from, to) = (self.guard(), self.length * FALLBACK * 0.5);
        self.start(number) + from + hash::unit(hash::numbers([number, pair])) * (to - from).max(0.0)
    }

    /// When a node begins to look for others.
    pub(crate) fn fallback_at(&self, number: u64, node: u64) -> f64 {
        let (from, to) = (self.length * FALLBACK, self.length * (FALLBACK + 0.15));
        self.start(number) + from + hash::unit(hash::numbers([number, node])) * (to - from)
    }

    /// After which nothing begins any more.
    pub(crate) fn last_start(&self, number: u64) -> f64 {
        self.start(number) + self.length - self.guard()
    }

    /// How long it is until then.
    pub(crate) fn until(&self, at: f64, now: f64) -> Duration {
        Duration::try_from_secs_f64(at - now).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_begins_inside_the_guards() {
        for length in [20.0, 900.0, 3600.0] {
            let slots = Slots::new(Duration::from_secs_f64(length));
            let number = slots.number(1.7e9);
            let (start, end) = (slots.start(number), slots.start(number + 1));
            assert!(start <= 1.7e9 && 1.7e9 < end);
            let guard = (length / 10.0).min(30.0);
            for pair in 0..1000 {
                let (at, later) = (slots.pair_at(number, pair), slots.fallback_at(number, pair));
                assert!(start + guard <= at && at <= start + 0.3 * length, "{length}: {}", at - start);
                assert!(start + 0.6 * length <= later && later <= end - guard, "{length}: {}", later - start);
            }
            assert!((end - slots.last_start(number) - guard).abs() < 1e-6);
        }
    }

    #[test]
    fn a_time_that_has_passed_is_not_waited_for() {
        let slots = Slots::new(Duration::from_secs(900));
        assert_eq!(slots.until(10.0, 20.0), Duration::ZERO);
        assert_eq!(slots.until(20.0, 10.0), Duration::from_secs(10));
    }
}
