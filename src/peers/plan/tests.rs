//! The tests of `src/peers/plan.rs`.

use std::time::Duration;

use super::*;
use crate::peers::{
    membership::Membership,
    pairing::{pairs, tests::fleet},
};

const SLOT: u64 = 1_888_888;

fn slots() -> Slots {
    Slots::new(Duration::from_secs(900))
}

fn rails(covered: Option<f64>) -> Vec<Rail> {
    (0..8).map(|number| Rail { number, covered }).collect()
}

fn members(count: usize) -> Arc<Membership> {
    fleet((0..count).map(|node| format!("node-{node:02}")))
}

/// The two names of a pair, the lower one first.
fn couple(pairs: &Pairs) -> (Arc<str>, Arc<str>) {
    let paired =
        |member: &&Arc<Member>| pairs.partner(&member.name).is_some_and(|partner| partner.name > member.name);
    let lower = pairs.members().members().iter().find(paired).unwrap();
    (lower.name.clone(), pairs.partner(&lower.name).unwrap().name.clone())
}

fn asked<'a>(pairs: &'a Pairs, me: &'a str, now: f64, rails: &'a [Rail]) -> Asked<'a> {
    Asked { now, me, slots: slots(), pairs, rails, interval: HOUR, run: 30.0, recent: &[], allowance: 32 }
}

/// All attempts, each of them failing.
fn all(mut plan: Plan) -> Vec<Attempt> {
    let mut attempts = Vec::new();
    while let Some(attempt) = plan.next(0.0).cloned() {
        plan.ended(&attempt, Ended::Failed);
        attempts.push(attempt);
    }
    attempts
}

#[test]
fn a_rail_is_due_one_slot_before_the_interval_is_over() {
    let begin = slots().begin(SLOT);
    let table = [
        (None, true),
        (Some(begin - 2.0 * HOUR), true),
        // Covered three slots ago, early or late: the next slot may end beyond the hour.
        (Some(begin - 2700.0 + 30.0), true),
        (Some(begin - 1800.0 - 30.0), true),
        (Some(begin - 1800.0 + 30.0), false),
        (Some(begin + 30.0), false),
        // Written by a clock that was an hour ahead.
        (Some(begin + HOUR), true),
    ];
    for (covered, expected) in table {
        assert_eq!(due(covered, slots(), SLOT, HOUR), expected, "{covered:?}");
    }
    assert!(due(Some(begin - 30.0), slots(), SLOT, 900.0), "an interval of one slot is due in each");
}

#[test]
fn the_lower_name_opens_and_asks_also_for_what_is_not_due_here() {
    let pairs = pairs(SLOT, &members(40));
    let (lower, higher) = couple(&pairs);
    let (begin, mut rails) = (slots().begin(SLOT), rails(None));
    rails[3].covered = Some(begin - 60.0);
    let attempts = all(Plan::new(&asked(&pairs, &lower, begin, &rails)));
    let (own, fallback): (Vec<_>, Vec<_>) =
        attempts.into_iter().partition(|attempt| attempt.partner.name == higher);
    assert_eq!(own.len(), 8);
    for (step, attempt) in own.iter().enumerate() {
        assert_eq!(attempt.why, if attempt.rail == 3 { Why::IfDue } else { Why::Due });
        assert_eq!(attempt.at, own[0].at + 30.0 * step as f64);
        assert_eq!(attempt.rail, (own[0].rail + step as u32) % 8, "rails in turn");
    }
    assert!(own[0].at >= begin + 30.0 && own[7].at + 30.0 <= slots().fallback(SLOT));
    let others = pairs.candidates(&lower).count();
    assert_eq!(fallback.len(), 7 * others);
    assert!((CANDIDATES - 1..=CANDIDATES).contains(&others), "{others}");
    for attempt in &fallback {
        assert_eq!(attempt.why, Why::Fallback);
        assert_ne!(attempt.rail, 3);
        assert!(attempt.at >= slots().fallback(SLOT) && attempt.at + 30.0 <= slots().close(SLOT));
    }
    let other = all(Plan::new(&asked(&pairs, &higher, begin, &rails)));
    assert!(other.iter().all(|attempt| attempt.why == Why::Fallback), "{other:?}");
}

#[test]
fn nobody_asks_around_without_need_or_as_a_stranger() {
    let pairs = pairs(SLOT, &members(40));
    let (lower, higher) = couple(&pairs);
    let begin = slots().begin(SLOT);
    let fresh = rails(Some(begin - 60.0));
    let attempts = all(Plan::new(&asked(&pairs, &lower, begin, &fresh)));
    assert!(attempts.iter().all(|attempt| attempt.why == Why::IfDue) && attempts.len() == 8);
    assert_eq!(all(Plan::new(&asked(&pairs, &higher, begin, &fresh))), []);
    assert_eq!(all(Plan::new(&asked(&pairs, "stranger", begin, &rails(None)))), []);
}

#[test]
fn what_ended_shortens_the_plan() {
    let pairs = pairs(SLOT, &members(40));
    let (lower, higher) = couple(&pairs);
    let (begin, rails) = (slots().begin(SLOT), rails(None));
    let others = pairs.candidates(&lower).count();
    let left = |ended: Ended| {
        let mut plan = Plan::new(&asked(&pairs, &lower, begin, &rails));
        let first = plan.next(begin).unwrap().clone();
        plan.ended(&first, ended);
        let attempts = all(plan);
        let count = |of: &dyn Fn(&Attempt) -> bool| attempts.iter().filter(|attempt| of(attempt)).count();
        (count(&|attempt| attempt.partner.name == higher), count(&|attempt| attempt.rail == first.rail))
    };
    for (ended, expected) in [
        (Ended::Covered, (7, 0)),
        (Ended::NoBudget, (7, 0)),
        (Ended::NotDue, (7, others)),
        (Ended::Failed, (7, others)),
        (Ended::RailRefused, (7, others)),
        (Ended::PartnerRefused, (0, others)),
    ] {
        assert_eq!(left(ended), expected, "{ended:?}");
    }
    let mut plan = Plan::new(&asked(&pairs, &lower, begin, &rails));
    (0..7).for_each(|rail| plan.covered(rail));
    assert!(all(plan.clone()).iter().all(|attempt| attempt.rail == 7));
    assert!(plan.next(slots().close(SLOT) - 30.0).is_some());
    assert_eq!(plan.next(slots().close(SLOT) - 29.0), None, "no time is left");
}

#[test]
fn a_node_that_comes_late_begins_at_once_and_ends_in_time() {
    let pairs = pairs(SLOT, &members(40));
    let (lower, higher) = couple(&pairs);
    let rails = rails(None);
    let late = slots().close(SLOT) - 100.0;
    let attempts = all(Plan::new(&asked(&pairs, &lower, late, &rails)));
    assert_eq!((attempts[0].at, &attempts[0].partner.name), (late, &higher));
    assert!(attempts.iter().all(|attempt| attempt.at >= late && attempt.at + 30.0 <= slots().close(SLOT)));
    assert_eq!(all(Plan::new(&asked(&pairs, &lower, slots().close(SLOT), &rails))), []);
}

#[test]
fn partners_of_the_last_hour_are_asked_first() {
    let pairs = pairs(SLOT, &members(40));
    let (lower, _) = couple(&pairs);
    let candidates: Vec<Arc<str>> = pairs.candidates(&lower).map(|member| member.name.clone()).collect();
    let recent = [candidates[2].clone(), "gone".into(), candidates[5].clone(), candidates[6].clone()];
    let rails = [Rail { number: 0, covered: None }];
    let plan = Plan::new(&Asked { recent: &recent, ..asked(&pairs, &lower, slots().begin(SLOT), &rails) });
    let order: Vec<Arc<str>> = all(plan)
        .into_iter()
        .filter(|attempt| attempt.why == Why::Fallback)
        .map(|attempt| attempt.partner.name.clone())
        .collect();
    let first = [2, 5];
    let rest = (0..candidates.len()).filter(|index| !first.contains(index));
    let expected: Vec<Arc<str>> =
        first.into_iter().chain(rest).map(|index| candidates[index].clone()).collect();
    assert_eq!(order, expected);
}

#[test]
fn an_hour_has_room_for_so_many_candidates() {
    let pairs = pairs(SLOT, &members(100));
    let (lower, _) = couple(&pairs);
    let (begin, rails) = (slots().begin(SLOT), rails(None));
    let mut allowance = Allowance::default();
    let all_of =
        |allowance: usize| all(Plan::new(&Asked { allowance, ..asked(&pairs, &lower, begin, &rails) }));
    for attempt in all_of(allowance.left(begin)) {
        allowance.asks(&attempt, begin);
    }
    let used = pairs.candidates(&lower).count();
    assert_eq!(allowance.left(begin), 32 - used, "each candidate once, the pair not at all");
    let partners = |attempts: Vec<Attempt>| {
        let fallback = attempts.into_iter().filter(|attempt| attempt.why == Why::Fallback);
        fallback.map(|attempt| attempt.partner.name.clone()).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!((partners(all_of(3)), partners(all_of(0))), (3, 0));
    for _ in 0..3 {
        all_of(CANDIDATES).iter().for_each(|attempt| allowance.asks(attempt, begin + 900.0));
    }
    assert_eq!((allowance.left(begin + 900.0), allowance.asked.len()), (0, 32));
    assert_eq!(allowance.left(begin + 900.0 + HOUR), 32);
}
