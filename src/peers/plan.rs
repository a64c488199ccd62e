//! What one node attempts in a slot: with whom, on which rail, when.

use std::time::Duration;

use super::{
    hash,
    membership::Membership,
    pairing::{self, Pairs},
    slot::Slots,
};

/// How long a lease of one rail is expected to take, in seconds. Rails come one after the other.
const RAIL: f64 = 40.0;
/// The least time between two attempts at other partners, in seconds.
const PATIENCE: f64 = 5.0;

/// What a node knows at the beginning of its plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation<'a> {
    pub(crate) own: &'a str,
    pub(crate) members: &'a Membership,
    pub(crate) slots: &'a Slots,
    pub(crate) slot: u64,
    /// When each rail was last measured with any partner, in seconds since the epoch; 0 if never.
    pub(crate) covered: &'a [f64],
    /// How often a rail has to be measured.
    pub(crate) interval: Duration,
    /// Seconds since the epoch.
    pub(crate) now: f64,
}

/// One lease to ask for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attempt {
    /// When, in seconds since the epoch.
    pub(crate) at: f64,
    pub(crate) rail: usize,
    pub(crate) partner: Box<str>,
    /// The partner is not this slot's: the rail is still due, and this is one of the next.
    pub(crate) fallback: bool,
}

/// Whether a rail that was last measured at `covered` has to be measured: a slot before its
/// interval ends, so that it is measured within it.
pub(crate) fn due(covered: f64, now: f64, interval: Duration, slots: &Slots) -> bool {
    now - covered > interval.as_secs_f64() - slots.length()
}

/// What to attempt in what is left of the slot, in order of time.
pub(crate) fn attempts(situation: &Situation<'_>) -> Vec<Attempt> {
    let Some(own) = situation.members.position(situation.own) else { return Vec::new() };
    let pairs = pairing::pairs(situation.slot, situation.members);
    with(situation, own, &pairs)
}

/// The same, with pairs that are computed already.
pub(crate) fn with(situation: &Situation<'_>, own: usize, pairs: &Pairs) -> Vec<Attempt> {
    let Situation { members, slots, slot, covered, interval, now, .. } = *situation;
    let rails = covered.len();
    let name = |at: usize| members.iter().as_slice()[at].name.clone();
    let node = hash::name(situation.own);
    let mut attempts = Vec::new();
    // Rails take turns at being first, since the last may find no time.
    let turn = |first: u64, step: usize| {
        let rails_wide = u64::try_from(rails.max(1)).unwrap_or(1);
        let first = usize::try_from(hash::numbers([slot, first]) % rails_wide).unwrap_or(0);
        (first + step) % rails.max(1)
    };
    let last = slots.last_start(slot);
    if let Some(partner) = pairs.partner(own).map(name)
        && *situation.own < *partner
    {
        let pair = pairing::number(situation.own, &partner);
        let (begin, pace) = (slots.pair_at(slot, pair), RAIL.min(slots.length() * 0.3 / spread(rails)));
        for step in 0..rails {
            let at = begin + pace * spread(step);
            attempts.push(Attempt { at, rail: turn(pair, step), partner: partner.clone(), fallback: false });
        }
    }
    let begin = slots.fallback_at(slot, node);
    let waiting: Vec<usize> = (0..rails)
        .map(|step| turn(node, step))
        .filter(|rail| due(covered[*rail], begin, interval, slots))
        .collect();
    let others: Vec<Box<str>> = pairs.candidates(own).into_iter().map(name).collect();
    let pace = PATIENCE.min(slots.length() * 0.01);
    for (round, partner) in others.iter().enumerate() {
        for (step, rail) in waiting.iter().enumerate() {
            let at = begin + pace * spread(round * waiting.len() + step);
            attempts.push(Attempt { at, rail: *rail, partner: partner.clone(), fallback: true });
        }
    }
    attempts.retain(|attempt| attempt.at >= now && attempt.at <= last);
    attempts.sort_by(|a, b| a.at.total_cmp(&b.at));
    attempts
}

fn spread(count: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "some hundred")]
    let count = count as f64;
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::membership::numbered;

    const HOUR: Duration = Duration::from_secs(3600);

    fn plan(own: &str, members: &Membership, slot: u64, covered: &[f64], late: f64) -> Vec<Attempt> {
        let slots = Slots::new(Duration::from_secs(900));
        let now = slots.start(slot) + late;
        attempts(&Situation { own, members, slots: &slots, slot, covered, interval: HOUR, now })
    }

    #[test]
    fn the_lower_name_of_a_pair_asks_for_all_rails_and_the_other_waits() {
        let members = numbered(2);
        let mine = plan("node-00000", &members, 7, &[0.0; 4], 0.0);
        let own: Vec<&Attempt> = mine.iter().filter(|attempt| !attempt.fallback).collect();
        let mut rails: Vec<usize> = own.iter().map(|attempt| attempt.rail).collect();
        rails.sort_unstable();
        assert_eq!(rails, [0, 1, 2, 3]);
        assert!(own.iter().all(|attempt| *attempt.partner == *"node-00001"));
        assert!(own.windows(2).all(|pair| pair[1].at - pair[0].at >= 30.0), "{own:?}");
        assert!(plan("node-00001", &members, 7, &[0.0; 4], 0.0).iter().all(|attempt| attempt.fallback));
    }

    #[test]
    fn a_rail_that_was_measured_looks_for_nobody_else() {
        let members = numbered(50);
        let slots = Slots::new(Duration::from_secs(900));
        let now = slots.start(9);
        let covered = [now - 100.0, 0.0];
        let fallback = plan("node-00003", &members, 9, &covered, 0.0);
        let rails: Vec<usize> =
            fallback.iter().filter(|attempt| attempt.fallback).map(|attempt| attempt.rail).collect();
        assert!(!rails.is_empty() && rails.iter().all(|rail| *rail == 1), "{fallback:?}");
        assert!(rails.len() <= pairing::MOST_CANDIDATES);
    }

    #[test]
    fn what_has_passed_is_not_made_up_and_nothing_begins_at_the_end() {
        let members = numbered(50);
        for late in [0.0, 300.0, 700.0, 890.0] {
            for own in members.iter() {
                let plan = plan(&own.name, &members, 11, &[0.0; 8], late);
                let start = Slots::new(Duration::from_secs(900)).start(11);
                assert!(plan.iter().all(|a| a.at >= start + late && a.at <= start + 870.0), "{plan:?}");
                assert!(plan.windows(2).all(|pair| pair[0].at <= pair[1].at));
            }
        }
        assert!(plan("stranger", &members, 11, &[0.0; 8], 0.0).is_empty());
    }

    #[test]
    fn a_rail_is_due_a_slot_before_its_interval_ends() {
        let slots = Slots::new(Duration::from_secs(900));
        for (age, want) in [(0.0, false), (2699.0, false), (2701.0, true), (3600.0, true)] {
            assert_eq!(due(1e9 - age, 1e9, HOUR, &slots), want, "{age}");
        }
    }
}
