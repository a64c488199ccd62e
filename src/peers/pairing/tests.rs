//! The tests of `src/peers/pairing.rs`.

use std::collections::BTreeSet;

use super::*;
use crate::peers::membership::Builder;

/// A fleet of these names.
pub(crate) fn fleet(names: impl IntoIterator<Item = String>) -> Arc<Membership> {
    let names: Vec<String> = names.into_iter().collect();
    let mut builder = Builder::default();
    builder.entries("peers.members", &names).unwrap();
    Arc::new(builder.build().unwrap())
}

/// A fleet of `count` nodes.
fn nodes(count: usize) -> Arc<Membership> {
    fleet((0..count).map(|node| format!("node-{node}")))
}

/// All pairs by name, the lower one first.
pub(crate) fn named(pairs: &Pairs) -> BTreeSet<(&str, &str)> {
    let members = pairs.members.members();
    let pair = |member: &Arc<Member>| pairs.partner(&member.name).map(|partner| partner.name.clone());
    members
        .iter()
        .filter_map(|member| {
            let partner = pair(member)?;
            let partner = &*pairs.members.get(&partner)?.name;
            (*member.name < *partner).then_some((&*member.name, partner))
        })
        .collect()
}

/// The list of `before` with `count` members replaced by new ones.
pub(crate) fn replaced(before: &Membership, count: usize, seed: u64) -> Arc<Membership> {
    let mut names: Vec<String> = before.members().iter().map(|member| member.name.to_string()).collect();
    names.sort_by_key(|name| hash::join(seed, hash::name(name)));
    for (at, name) in names.iter_mut().take(count).enumerate() {
        *name = format!("new-{seed}-{at}");
    }
    fleet(names)
}

// Worked out by another program, from the description in the module's comment.
#[test]
fn the_protocol_is_as_it_was() {
    let few = pairs(1_888_888, &nodes(9));
    assert_eq!(by_number(&few), [(0, 4), (1, 2), (3, 8), (5, 7)]);
    let asked: Vec<&str> = few.candidates("node-3").map(|member| &*member.name).collect();
    assert_eq!(asked, ["node-5", "node-7", "node-4", "node-0", "node-6", "node-1", "node-2", "node-8"]);
    let more = by_number(&pairs(1_888_888, &nodes(40)));
    assert_eq!(more.len(), 19);
    for pair in [(0, 4), (1, 20), (3, 38), (5, 37), (6, 30), (7, 29), (8, 25), (9, 15), (10, 19), (27, 34)] {
        assert!(more.contains(&pair), "{pair:?} in {more:?}");
    }
}

/// The pairs of `nodes` by the numbers in the names, sorted.
fn by_number(pairs: &Pairs) -> Vec<(usize, usize)> {
    let number = |name: &str| name["node-".len()..].parse::<usize>().unwrap();
    let ordered = |(one, other): (&str, &str)| {
        let (one, other) = (number(one), number(other));
        (one.min(other), one.max(other))
    };
    let mut numbers: Vec<_> = named(pairs).into_iter().map(ordered).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn everybody_has_one_partner_who_has_it_too() {
    for count in [0, 1, 2, 3, 4, 15, 16, 17, 31, 32, 33, 1000] {
        for slot in 0..20 {
            let pairs = pairs(slot, &nodes(count));
            let mut paired = 0;
            for member in pairs.members().members() {
                if let Some(partner) = pairs.partner(&member.name) {
                    assert_ne!(partner.name, member.name);
                    assert_eq!(pairs.partner(&partner.name), Some(member));
                    paired += 1;
                }
            }
            if count < 2 * PART {
                let part_odd = count % 2 + if count >= PART { 2 } else { 0 };
                assert!(count - paired <= part_odd, "{paired} of {count}");
            } else {
                assert!(count - paired <= count / 8, "{paired} of {count}");
            }
        }
    }
    assert_eq!(pairs(0, &nodes(3)).partner("stranger"), None);
}

#[test]
fn partners_change_from_slot_to_slot() {
    let members = nodes(1000);
    let mut partners = BTreeSet::new();
    for slot in 0..96 {
        let pairs = pairs(slot, &members);
        partners.extend(pairs.partner("node-7").map(|partner| partner.name.clone()));
    }
    assert!(partners.len() > 80, "{}", partners.len());
}

#[test]
fn a_list_that_differs_by_one_in_a_hundred_moves_few_pairs() {
    for (count, slots) in [(100, 100), (700, 20), (1000, 20), (2000, 10)] {
        let before = nodes(count);
        let (mut moved, mut all) = (0, 0);
        for slot in 0..slots {
            let after = replaced(&before, count / 100, slot);
            let (one, other) = (pairs(slot, &before), pairs(slot, &after));
            all += named(&one).len();
            moved += named(&one).difference(&named(&other)).count();
        }
        assert!(moved * 100 <= all * 5, "{moved} of {all} pairs of {count} nodes");
    }
}

#[test]
fn candidates_are_others_and_spread_evenly() {
    for count in [1, 2, 3, 9, 17, 18, 40, 100, 1000] {
        let members = nodes(count);
        let pairs = pairs(5, &members);
        let mut asked = vec![0; count];
        for member in members.members() {
            let candidates: Vec<_> = pairs.candidates(&member.name).collect();
            let names: BTreeSet<&str> = candidates.iter().map(|member| &*member.name).collect();
            assert_eq!(names.len(), candidates.len(), "each once");
            assert!(!names.contains(&*member.name), "not itself");
            assert!(
                candidates.len() >= CANDIDATES.min(count - 1) - usize::from(count > CANDIDATES + 1),
                "{count}"
            );
            assert!(candidates.len() <= CANDIDATES);
            candidates.iter().for_each(|member| asked[members.index(&member.name).unwrap()] += 1);
            let partner = pairs.partner(&member.name);
            if count > CANDIDATES + 1 {
                assert!(partner.is_none_or(|partner| !names.contains(&*partner.name)), "asked already");
            } else {
                assert!(candidates.last().copied() == partner || partner.is_none(), "asked last");
            }
        }
        assert!(asked.iter().all(|asked| *asked <= CANDIDATES), "{asked:?}");
    }
    assert_eq!(pairs(0, &nodes(3)).candidates("stranger").count(), 0);
}

#[test]
fn nodes_do_not_ask_each_other_in_a_large_ring() {
    let members = nodes(1000);
    let pairs = pairs(9, &members);
    for member in members.members() {
        for candidate in pairs.candidates(&member.name) {
            assert!(pairs.candidates(&candidate.name).all(|back| back != member), "{}", member.name);
        }
    }
}
