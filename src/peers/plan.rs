//! What one node asks of whom in one slot.
//!
//! A rail is due when it would be too old before the next slot has ended. So it is covered by the
//! computed pair of every third or fourth slot, and there is one more slot to try in before the
//! interval is over. The lower name of a pair opens the lease. It asks also for rails that are not
//! due, since the other side may have waited longer; that side then says whether they are.
//!
//! Rails still due late in the slot ask others, whoever has the lower name. Partners of the last
//! hour come first: where most nodes are occupied, they are the ones known to be idle.
//!
//! A rail is measured with the same rail of the partner, and the rails one after the other.

use std::{collections::VecDeque, sync::Arc};

use super::{
    hash,
    membership::Member,
    pairing::{CANDIDATES, Pairs},
    slot::Slots,
};

/// Candidates that a node may ask within an hour, as DESIGN has it: a fleet that is full of jobs is
/// not to be full of questions too.
const HOURLY: usize = 32;
const HOUR: f64 = 3600.0;
/// Partners of the last hour that are asked again: more would take the place of new ones, and
/// attribution needs new ones.
const RECENT: usize = 2;
/// Between two candidates, in seconds, so that a node does not ask all of them at once.
const PACE: f64 = 1.0;
/// Over so many seconds nodes begin to ask around, so that not all do it at once.
const SPREAD: f64 = 15.0;

/// What the planner looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// Seconds since the epoch.
    pub(crate) now: f64,
    /// This node's name.
    pub(crate) me: &'a str,
    pub(crate) slots: Slots,
    /// The pairs of the slot.
    pub(crate) pairs: &'a Pairs,
    pub(crate) rails: &'a [Rail],
    /// How often each rail is to be covered, in seconds.
    pub(crate) interval: f64,
    /// What a lease for one rail takes, in seconds.
    pub(crate) run: f64,
    /// Partners of the last hour, newest first.
    pub(crate) recent: &'a [Arc<str>],
    /// Candidates that may still be asked.
    pub(crate) allowance: usize,
}

/// A rail of this node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rail {
    pub(crate) number: u32,
    /// When it was last covered, with whomever.
    pub(crate) covered: Option<f64>,
}

/// One lease to ask for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attempt {
    /// Not before this time.
    pub(crate) at: f64,
    pub(crate) rail: u32,
    pub(crate) partner: Arc<Member>,
    pub(crate) why: Why,
}

/// Why a lease is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The computed pair, and the rail is due here.
    Due,
    /// The computed pair. The partner answers that the rail is not due, if it isn't there either.
    IfDue,
    /// Not the computed pair: the rail is due, and was not covered by it.
    Fallback,
}

/// How an attempt ended, as far as the rest of the plan depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The rail was measured.
    Covered,
    /// Asked only if due, and it is not.
    NotDue,
    /// This node's own budget has no room for the rail.
    NoBudget,
    /// A lease was granted, and nothing was measured.
    Failed,
    /// The rail is busy or over budget, here or there.
    RailRefused,
    /// The partner is occupied, held, gone, or does not know this node.
    PartnerRefused,
}

/// The attempts of one node in one slot that are still to be made, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    attempts: VecDeque<Attempt>,
    /// When the last attempt may begin.
    last: f64,
}

/// The candidates that a node has asked within the last hour.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowance {
    asked: VecDeque<(Arc<str>, f64)>,
}

/// Whether a rail is due in a slot.
pub(crate) fn due(covered: Option<f64>, slots: Slots, slot: u64, interval: f64) -> bool {
    let end = slots.end(slot);
    // A time after this slot was written by a clock that has since been set back.
    covered.is_none_or(|covered| end - covered > interval - slots.length() || covered > end)
}

impl Plan {
    /// Plans a slot, or the rest of one.
    pub(crate) fn new(asked: &Asked<'_>) -> Plan {
        let slot = asked.pairs.slot();
        let last = asked.slots.close(slot) - asked.run;
        let Some(me) = asked.pairs.members().get(asked.me) else { return Plan::default() };
        let mut attempts = VecDeque::new();
        pair(asked, me, &mut attempts);
        fallback(asked, me, &mut attempts);
        attempts.retain(|attempt| attempt.at <= last);
        Plan { attempts, last }
    }

    /// What comes next, or came next before `now`. None when the slot is done.
    pub(crate) fn next(&self, now: f64) -> Option<&Attempt> {
        self.attempts.front().filter(|_| now <= self.last)
    }

    /// Takes up how an attempt ended.
    pub(crate) fn ended(&mut self, attempt: &Attempt, ended: Ended) {
        match ended {
            Ended::Covered | Ended::NoBudget => self.attempts.retain(|other| other.rail != attempt.rail),
            Ended::NotDue | Ended::Failed | Ended::RailRefused => {
                self.attempts
                    .retain(|other| other.rail != attempt.rail || other.partner.name != attempt.partner.name);
            }
            Ended::PartnerRefused => {
                self.attempts.retain(|other| other.partner.name != attempt.partner.name);
            }
        }
    }

    /// A rail was covered by a lease that somebody else asked for.
    pub(crate) fn covered(&mut self, rail: u32) {
        self.attempts.retain(|attempt| attempt.rail != rail);
    }
}

impl Allowance {
    /// How many may still be asked.
    pub(crate) fn left(&self, now: f64) -> usize {
        // A time yet to come was written by a clock that has since been set back.
        let within = |at: f64| (0.0..HOUR).contains(&(now - at));
        HOURLY.saturating_sub(self.asked.iter().filter(|(_, at)| within(*at)).count())
    }

    /// Takes up that an attempt is made. One candidate's rails follow each other and count once.
    pub(crate) fn asks(&mut self, attempt: &Attempt, now: f64) {
        let again = self.asked.back().is_some_and(|(name, _)| *name == attempt.partner.name);
        match attempt.why {
            Why::Due | Why::IfDue => {}
            Why::Fallback if again => {}
            Why::Fallback => {
                if self.asked.len() == HOURLY {
                    self.asked.pop_front();
                }
                self.asked.push_back((attempt.partner.name.clone(), now));
            }
        }
    }
}

/// The attempts of the computed pair, if this node opens it.
fn pair(asked: &Asked<'_>, me: &Member, attempts: &mut VecDeque<Attempt>) {
    let Some(partner) = asked.pairs.partner(asked.me).filter(|partner| me.name < partner.name) else {
        return;
    };
    let slot = asked.pairs.slot();
    let pair = hash::join(me.hash, partner.hash);
    let need = asked.run * asked.rails.len() as f64;
    let start = asked.slots.pair(slot, pair, need).max(asked.now);
    for (step, rail) in rotated(asked.rails, hash::join(slot, pair)).enumerate() {
        let why = if asked.due(rail) { Why::Due } else { Why::IfDue };
        let at = start + asked.run * step as f64;
        attempts.push_back(Attempt { at, rail: rail.number, partner: partner.clone(), why });
    }
}

/// The attempts with others.
fn fallback(asked: &Asked<'_>, me: &Member, attempts: &mut VecDeque<Attempt>) {
    let slot = asked.pairs.slot();
    let turn = hash::join(slot, me.hash);
    let start = (asked.slots.fallback(slot) + SPREAD * hash::fraction(turn)).max(asked.now);
    let recent = asked.recent.iter().filter_map(|name| asked.pairs.members().get(name)).take(RECENT);
    let most = CANDIDATES.min(asked.allowance);
    let mut partners: Vec<&Arc<Member>> = Vec::with_capacity(most);
    for partner in recent.chain(asked.pairs.candidates(asked.me)) {
        if partners.len() < most && !partners.contains(&partner) {
            partners.push(partner);
        }
    }
    for (step, partner) in partners.into_iter().enumerate() {
        let at = start + PACE * step as f64;
        for rail in rotated(asked.rails, turn).filter(|rail| asked.due(rail)) {
            let partner = partner.clone();
            attempts.push_back(Attempt { at, rail: rail.number, partner, why: Why::Fallback });
        }
    }
}

impl Asked<'_> {
    fn due(&self, rail: &Rail) -> bool {
        due(rail.covered, self.slots, self.pairs.slot(), self.interval)
    }
}

/// The rails, beginning with another one in each slot.
fn rotated(rails: &[Rail], turn: u64) -> impl Iterator<Item = &Rail> {
    rails.iter().cycle().skip(hash::below(turn, rails.len())).take(rails.len())
}

#[cfg(test)]
mod tests;
