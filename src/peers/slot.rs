//! Slots: the stretches of time in which all agents measure by the same pairs.
//!
//! A slot has three parts: a guard at both ends, in which clocks that differ may disagree on its
//! number; the time of the computed pairs, each at its own moment; and behind that the time in
//! which whoever was left without a partner asks around.

use std::time::Duration;

use super::hash;

/// As DESIGN asks for: clocks may differ by so much.
const GUARD: f64 = 30.0;
/// A short slot, as tests have it, must keep room between the guards.
const MOST_GUARD: f64 = 0.1;
/// From this part of a slot on whoever has no partner asks around. What is behind it holds eight
/// rails of 30 s each in a slot of the usual length.
const FALLBACK: f64 = 0.6;

/// How time is cut into slots. Times are seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slots {
    length: f64,
}

impl Slots {
    /// Slots of this length; all agents must be told the same.
    pub(crate) fn new(length: Duration) -> Slots {
        Slots { length: length.as_secs_f64().max(1.0) }
    }

    /// The number of the slot at `now`.
    #[expect(clippy::cast_sign_loss, reason = "not negative")]
    pub(crate) fn at(self, now: f64) -> u64 {
        (now / self.length).floor().max(0.0) as u64
    }

    /// In seconds.
    pub(crate) fn length(self) -> f64 {
        self.length
    }

    /// When a slot begins.
    pub(crate) fn begin(self, slot: u64) -> f64 {
        slot as f64 * self.length
    }

    /// When it ends, which is when the next one begins.
    pub(crate) fn end(self, slot: u64) -> f64 {
        self.begin(slot.saturating_add(1))
    }

    /// When the first lease of a slot may begin.
    pub(crate) fn open(self, slot: u64) -> f64 {
        self.begin(slot) + self.guard()
    }

    /// When the last lease of a slot must have ended.
    pub(crate) fn close(self, slot: u64) -> f64 {
        self.end(slot) - self.guard()
    }

    /// From when on whoever has no partner asks around.
    pub(crate) fn fallback(self, slot: u64) -> f64 {
        self.begin(slot) + self.length * FALLBACK
    }

    /// When a pair begins, that needs `need` seconds for all its rails. It is done before the
    /// fallback begins if that is possible, else before the slot closes, else it gets all the
    /// slot has. `pair` is the hash of the pair.
    pub(crate) fn pair(self, slot: u64, pair: u64, need: f64) -> f64 {
        let open = self.open(slot);
        let room = [self.fallback(slot), self.close(slot)]
            .into_iter()
            .map(|end| end - open - need)
            .find(|room| *room >= 0.0)
            .unwrap_or(0.0);
        open + room * hash::fraction(hash::join(slot, pair))
    }

    fn guard(self) -> f64 {
        GUARD.min(self.length * MOST_GUARD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_a_guard_at_both_ends() {
        for (length, guard) in [(900, 30.0), (60, 6.0), (10, 1.0)] {
            let slots = Slots::new(Duration::from_secs(length));
            let slot = slots.at(1_700_000_000.0);
            assert!(slots.begin(slot) <= 1_700_000_000.0 && slots.end(slot) > 1_700_000_000.0);
            assert_eq!(slots.at(slots.begin(slot)), slot);
            assert_eq!(slots.at(slots.end(slot)), slot + 1);
            assert_eq!(slots.open(slot) - slots.begin(slot), guard);
            assert_eq!(slots.end(slot) - slots.close(slot), guard);
            // Two clocks that differ by less than the guard agree on the slot of every lease.
            for edge in [slots.open(slot), slots.close(slot)] {
                assert_eq!(slots.at(edge - guard * 0.99), slot);
                assert_eq!(slots.at(edge + guard * 0.99), slot);
            }
        }
        assert_eq!(Slots::new(Duration::from_secs(900)).at(-5.0), 0);
    }

    #[test]
    fn a_pair_has_time_for_all_its_rails() {
        let slots = Slots::new(Duration::from_secs(900));
        let slot = 1_888_888;
        let mut tenths = [0; 10];
        for pair in 0..1000 {
            let pair = hash::name(&format!("pair-{pair}"));
            let start = slots.pair(slot, pair, 240.0);
            assert!(start >= slots.open(slot) && start + 240.0 <= slots.fallback(slot), "{start}");
            let long = slots.pair(slot, pair, 700.0);
            assert!(long >= slots.open(slot) && long + 700.0 <= slots.close(slot), "{long}");
            assert_eq!(slots.pair(slot, pair, 10_000.0), slots.open(slot));
            #[expect(clippy::cast_sign_loss, reason = "0 to 9")]
            let tenth = ((start - slots.open(slot)) / 27.0) as usize;
            tenths[tenth] += 1;
        }
        assert!(tenths.iter().all(|count| (60..140).contains(count)), "{tenths:?}");
        assert_ne!(slots.pair(slot, 7, 240.0), slots.pair(slot + 1, 7, 240.0) - 900.0);
    }
}
