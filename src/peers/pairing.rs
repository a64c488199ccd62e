//! Who measures with whom in a slot. Every agent computes the same pairs from the same list, and
//! nearly the same from a list that is a little older.
//!
//! The members stand in a ring, in the order of a hash of slot and name. Each edge between
//! neighbours has a hash as its weight, and the lightest edges are matched first. So a member that
//! joins or leaves changes the pairs near it and no others: 1 % of the members replaced moves less
//! than 5 % of the pairs. One in seven is left alone in a slot. To match those as well would move
//! more pairs than that: they find somebody by themselves later in the slot.

use super::{
    hash,
    membership::{Member, Membership},
};

/// Partners that a node tries in a slot when its own says no: 32 in an hour of usual slots.
pub(crate) const MOST_CANDIDATES: usize = 8;

/// The pairs of one slot, by the positions of the members in their list.
#[derive(Debug)]
pub(crate) struct Pairs {
    partner: Vec<Option<u32>>,
    ring: Vec<u32>,
}

/// Computes the pairs of a slot in O(n log n).
pub(crate) fn pairs(slot: u64, members: &Membership) -> Pairs {
    let names: Vec<u64> = members.iter().map(|member| hash::name(&member.name)).collect();
    let mut partner = vec![None; names.len()];
    let ring = ring(slot, &names);
    matched(slot, &names, &ring, &mut partner);
    Pairs { partner, ring }
}

/// The number of a pair, the same for both.
pub(crate) fn number(a: &str, b: &str) -> u64 {
    let (a, b) = (hash::name(a), hash::name(b));
    hash::numbers([a.min(b), a.max(b)])
}

impl Pairs {
    /// The partner of the member at a position; none if it is left alone.
    pub(crate) fn partner(&self, own: usize) -> Option<usize> {
        self.partner.get(own).copied().flatten().map(|partner| partner as usize)
    }

    /// Whom else to ask, nearest in the ring first, alternately on both sides.
    pub(crate) fn candidates(&self, own: usize) -> Vec<usize> {
        let count = self.ring.len();
        let Some(place) = self.ring.iter().position(|member| *member as usize == own) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for step in 1..=count / 2 {
            for at in [(place + step) % count, (place + count - step) % count] {
                let member = self.ring[at] as usize;
                if member != own && self.partner(own) != Some(member) && !found.contains(&member) {
                    found.push(member);
                }
                if found.len() == MOST_CANDIDATES {
                    return found;
                }
            }
        }
        found
    }

    /// How many members have a partner.
    #[cfg(test)]
    pub(crate) fn paired(&self) -> usize {
        self.partner.iter().flatten().count()
    }
}

/// Whom to ask at once when somebody wants a run: this slot's partner, then the candidates.
pub(crate) fn choices(slot: u64, members: &Membership, own: &str) -> Vec<Member> {
    let Some(own) = members.position(own) else { return Vec::new() };
    let pairs = pairs(slot, members);
    let order = pairs.partner(own).into_iter().chain(pairs.candidates(own));
    order.filter_map(|at| members.iter().nth(at).cloned()).collect()
}

/// Members in the order of the ring.
fn ring(slot: u64, names: &[u64]) -> Vec<u32> {
    // A list has at most 100,000 members.
    let mut members: Vec<u32> = (0..).take(names.len()).collect();
    members.sort_by_cached_key(|member| hash::numbers([slot, names[*member as usize]]));
    members
}

/// Matches neighbours of a ring, the lightest edges first.
fn matched(slot: u64, names: &[u64], ring: &[u32], partner: &mut [Option<u32>]) {
    let count = ring.len();
    // Two members have one edge between them, not two.
    let edges = if count == 2 { 1 } else { count };
    let mut weighed: Vec<(u64, u32, u32)> = (0..edges)
        .map(|at| (ring[at], ring[(at + 1) % count]))
        .filter(|(a, b)| a != b)
        .map(|(a, b)| {
            let (first, second) = (names[a as usize], names[b as usize]);
            (hash::numbers([slot, first.min(second), first.max(second)]), a, b)
        })
        .collect();
    weighed.sort_unstable();
    for (_, a, b) in weighed {
        if partner[a as usize].is_none() && partner[b as usize].is_none() {
            partner[a as usize] = Some(b);
            partner[b as usize] = Some(a);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::peers::membership::{Builder, numbered};

    /// The pairs by name.
    fn named(slot: u64, members: &Membership) -> BTreeSet<(String, String)> {
        let pairs = pairs(slot, members);
        let name = |at: usize| members.iter().nth(at).unwrap().name.to_string();
        let both = |own| {
            pairs.partner(own).filter(|partner| own < *partner).map(|partner| (name(own), name(partner)))
        };
        (0..members.len()).filter_map(both).collect()
    }

    #[test]
    fn a_pair_is_a_pair_for_both_and_nobody_has_two() {
        for count in [0, 1, 2, 3, 4, 5, 10, 100, 1001] {
            let members = numbered(count);
            for slot in 0..20 {
                let pairs = pairs(slot, &members);
                for own in 0..count {
                    let partner = pairs.partner(own);
                    assert_ne!(partner, Some(own));
                    assert!(partner.is_none_or(|partner| pairs.partner(partner) == Some(own)));
                    let candidates = pairs.candidates(own);
                    assert!(!candidates.contains(&own) && candidates.len() <= MOST_CANDIDATES);
                    assert!(partner.is_none_or(|partner| !candidates.contains(&partner)));
                }
                assert!(pairs.paired() >= count.min(2) / 2 * 2, "{count}");
            }
        }
    }

    #[test]
    fn the_protocol_keeps_its_pairs() {
        let pairs = named(1_900_000, &numbered(6));
        let pair = |a: &str, b: &str| (format!("node-0000{a}"), format!("node-0000{b}"));
        assert_eq!(pairs, BTreeSet::from([pair("0", "4"), pair("1", "5"), pair("2", "3")]));
    }

    #[test]
    fn two_nodes_meet_in_every_slot_and_many_meet_others_each_time() {
        let two = numbered(2);
        assert!((0..50).all(|slot| pairs(slot, &two).paired() == 2));
        let many = numbered(200);
        let met: BTreeSet<Option<usize>> = (0..40).map(|slot| pairs(slot, &many).partner(7)).collect();
        assert!(met.len() > 30, "{met:?}");
    }

    #[test]
    fn an_older_list_makes_nearly_the_same_pairs() {
        let (old, mut builder) = (numbered(1000), Builder::default());
        for index in 10..1010 {
            builder.member(index, &format!("node-{index:05}")).unwrap();
        }
        let new = builder.build();
        let mut moved = 0.0;
        for slot in 0..20 {
            let (before, after) = (named(slot, &old), named(slot, &new));
            #[expect(clippy::cast_precision_loss, reason = "hundreds")]
            let part = before.difference(&after).count() as f64 / before.len() as f64;
            moved += part / 20.0;
        }
        assert!(moved <= 0.05, "{moved}");
    }
}
