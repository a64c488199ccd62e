//! Pairs: who measures with whom in a slot.
//!
//! All members are put on a ring by `hash(slot, name)`, and the ring is halved again and again: a
//! half has the members whose hash has the next bit set, or not. Of two halves each may have one
//! member left over; these two become a pair. So every part of the ring hands up at most one
//! member, like a tournament in which the winner goes home.
//!
//! A member that joins or leaves moves only pairs on its own way up. The parts of the ring that
//! still pair are therefore not larger than 16 members on average: on the way above that more
//! pairs would move than members would find a partner.
//!
//! This is part of the protocol between agents, as are the hashes.

use std::sync::Arc;

use super::{
    hash,
    membership::{Member, Membership},
};

/// A part of the ring pairs its members among themselves as long as it has, on average, fewer than
/// this. With 8 to 16 members, 6 to 3 % of a fleet are left over and 1 % of replaced members
/// moves 4 to 5 % of the pairs.
const PART: usize = 16;
/// Other partners that a node may ask in a slot. Where nine nodes of ten are occupied, eight would
/// find an idle one in half of the slots only.
pub(crate) const CANDIDATES: usize = 16;

/// The pairs of a slot.
#[derive(Clone, Debug)]
pub(crate) struct Pairs {
    slot: u64,
    members: Arc<Membership>,
    /// Members in the order of the ring.
    ring: Box<[u32]>,
    /// For each member where it is on the ring, and its partner.
    places: Box<[Place]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    at: u32,
    partner: Option<u32>,
}

/// Pairs the members for a slot.
pub(crate) fn pairs(slot: u64, members: &Arc<Membership>) -> Pairs {
    // Members are sorted by name, so members of the same hash have an order too.
    let mut hashed: Vec<(u64, u32)> =
        (0..).zip(members.members()).map(|(index, member)| (hash::join(slot, member.hash), index)).collect();
    hashed.sort_unstable();
    let mut places = vec![Place::default(); hashed.len()].into_boxed_slice();
    for (at, (_, member)) in (0..).zip(&hashed) {
        places[*member as usize].at = at;
    }
    pair_up(&hashed, 0, parts(hashed.len()), &mut places);
    let ring = hashed.iter().map(|(_, member)| *member).collect();
    Pairs { slot, members: members.clone(), ring, places }
}

/// How often the ring is halved before its parts pair.
fn parts(members: usize) -> u32 {
    (members / PART).checked_ilog2().map_or(0, |halvings| halvings + 1)
}

/// Pairs the members of a part of the ring, and returns the one that is left over. `bit` is the
/// number of bits that all of them have in common, `parts` the number below which parts don't mix.
fn pair_up(part: &[(u64, u32)], bit: u32, parts: u32, places: &mut [Place]) -> Option<u32> {
    let left = match part {
        [] => return None,
        [(_, member)] => return Some(*member).filter(|_| bit >= parts),
        [(_, one), (_, other)] if bit >= parts => (Some(*one), Some(*other)),
        [..] if bit == u64::BITS => {
            // So many of one hash: never seen, but it must end.
            let (head, tail) = part.split_at(part.len() - part.len() % 2);
            for pair in head.chunks_exact(2) {
                join(pair[0].1, pair[1].1, places);
            }
            return tail.first().map(|(_, member)| *member);
        }
        [..] => {
            let set = 1 << (u64::BITS - 1 - bit);
            let (low, high) = part.split_at(part.partition_point(|(hash, _)| hash & set == 0));
            (pair_up(low, bit + 1, parts, places), pair_up(high, bit + 1, parts, places))
        }
    };
    match left {
        _ if bit < parts => None,
        (Some(one), Some(other)) => {
            join(one, other, places);
            None
        }
        (Some(one), None) | (None, Some(one)) => Some(one),
        (None, None) => None,
    }
}

fn join(one: u32, other: u32, places: &mut [Place]) {
    places[one as usize].partner = Some(other);
    places[other as usize].partner = Some(one);
}

impl Pairs {
    /// Which slot they are for.
    pub(crate) fn slot(&self) -> u64 {
        self.slot
    }

    /// Whose pairs they are.
    pub(crate) fn members(&self) -> &Arc<Membership> {
        &self.members
    }

    /// The member that this one measures with. None if one is left over, or is not a member.
    pub(crate) fn partner(&self, name: &str) -> Option<&Arc<Member>> {
        let place = self.places[self.members.index(name)?];
        place.partner.map(|partner| &self.members.members()[partner as usize])
    }

    /// Whom to ask when the partner is busy or gone, or where there is none: at most
    /// [`CANDIDATES`], spread over the half of the ring that is ahead. No two nodes have each other
    /// in a large ring, and every node is asked by as many as it asks. The partner itself is the
    /// last one where there are not enough others.
    pub(crate) fn candidates(&self, name: &str) -> impl Iterator<Item = &Arc<Member>> {
        let own = self.members.index(name).map(|index| self.places[index]);
        let others = self.ring.len().saturating_sub(1);
        // In a small ring all others are asked, in a large one half of it is cut into segments.
        let segment = (self.ring.len() / 2 / CANDIDATES).max(1);
        let turn = hash::below(hash::join(self.slot, hash::name("candidates")), segment);
        let ahead = own.into_iter().flat_map(move |own| {
            (0..CANDIDATES.min(others)).map(move |step| {
                let at = own.at as usize + 1 + step * segment + turn;
                (self.ring[at % self.ring.len()], own)
            })
        });
        let partner = own.and_then(|own| own.partner).filter(|_| others <= CANDIDATES);
        ahead
            .filter(|(member, own)| own.partner != Some(*member))
            .map(|(member, _)| member)
            .chain(partner)
            .map(|member| &self.members.members()[member as usize])
    }
}

#[cfg(test)]
pub(crate) mod tests;
