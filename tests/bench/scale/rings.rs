//! Other ways to pair, to compare with.

use std::collections::BTreeSet;

use crate::peers::{
    hash,
    membership::{Member, Membership},
    pairing::pairs,
};

/// Pairs by the hashes of the names, the lower one first.
pub(super) type Hashed = BTreeSet<(u64, u64)>;
/// A way to pair the members in a slot.
pub(super) type Way = fn(u64, &std::sync::Arc<Membership>) -> Hashed;

/// The one that counts.
pub(super) const SHIPPED: &str = "as shipped";

pub(super) const WAYS: [(&str, Way); 3] = [
    (SHIPPED, |slot, members| {
        let pairs = pairs(slot, members);
        let partner =
            |member: &std::sync::Arc<Member>| Some((member.hash, pairs.partner(&member.name)?.hash));
        members.members().iter().filter_map(partner).map(ordered).collect()
    }),
    ("lightest edges of a ring", |slot, members| {
        let ring = ring(slot, members);
        let edge = |at: usize| ordered((ring[at], ring[(at + 1) % ring.len()]));
        let mut edges: Vec<(u64, u64)> = (0..ring.len()).map(edge).collect();
        edges.sort_by_key(|(one, other)| hash::join(hash::join(slot, *one), *other));
        let mut taken = BTreeSet::new();
        edges.retain(|(one, other)| {
            !taken.contains(one) && !taken.contains(other) && taken.insert(*one) && taken.insert(*other)
        });
        edges.into_iter().collect()
    }),
    ("neighbours on a ring", |slot, members| {
        ring(slot, members).chunks_exact(2).map(|pair| ordered((pair[0], pair[1]))).collect()
    }),
];

fn ring(slot: u64, members: &Membership) -> Vec<u64> {
    let mut ring: Vec<u64> = members.members().iter().map(|member| member.hash).collect();
    ring.sort_by_key(|member| hash::join(slot, *member));
    ring
}

fn ordered((one, other): (u64, u64)) -> (u64, u64) {
    (one.min(other), one.max(other))
}
