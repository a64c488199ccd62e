//! A fleet in a process: nodes with the shipped gate, pairing, planner and coverage, and a queue of
//! what happens next. Nothing here decides what the product decides.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    sync::Arc,
    time::Duration,
};

use governor::clock::FakeRelativeClock;

use super::{
    HOURS, RAILS, Scenario,
    lease::{BUDGET, LENGTH, Lease, Refused, Side, Terms},
    tally::{Asks, Clock, Sum},
};
use crate::{
    gate::Gate,
    peers::{
        coverage::{self, Coverage},
        hash,
        membership::Membership,
        pairing::{Pairs, pairs},
        plan::{self, Allowance, Attempt, Ended, Plan, Rail, Why},
        slot::Slots,
    },
    run::SkipReason,
};

/// When the simulated day begins: in the middle of a slot of 900 s, as days do.
const EPOCH: f64 = 1_700_000_000.0;
/// What every agent is told.
const SLOT: Duration = Duration::from_secs(900);
const INTERVAL: f64 = 3600.0;
/// Milliseconds until a refusal is there, and until nobody is taken to answer.
const ANSWER: u64 = 20;
const SILENCE: u64 = 5000;

/// A fleet on its way through the day.
pub(super) struct Fleet {
    scenario: Scenario,
    slots: Slots,
    clock: FakeRelativeClock,
    /// Milliseconds since the day began.
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Numbers events, and randomness.
    newest: u64,
    nodes: Vec<Node>,
    by_name: HashMap<Arc<str>, usize>,
    /// The list, and the one of before.
    lists: [Arc<Membership>; 2],
    /// The newest pairs by slot, for each list.
    pairs: Vec<(usize, Arc<Pairs>)>,
    leases: HashMap<u64, UnderWay>,
    terms: Terms,
    pub(super) asks: Asks,
}

struct Node {
    name: Arc<str>,
    /// Which list it has.
    list: usize,
    /// Seconds that its clock is ahead.
    skew: f64,
    gate: Gate<FakeRelativeClock>,
    busy: bool,
    coverage: [Coverage; RAILS],
    plan: Plan,
    allowance: Allowance,
    /// The lease that it asked for and got.
    open: Option<u64>,
    /// Those of others that it serves.
    serves: Vec<u64>,
    /// Which of the wake-ups on the way counts.
    wake: u64,
    tally: Clock,
}

struct UnderWay {
    /// Who asked, and who serves.
    sides: [usize; 2],
    attempt: Attempt,
    _permits: Lease,
}

impl Node {
    fn side(&self) -> Side<'_> {
        Side { gate: &self.gate, occupied: self.busy }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A job comes or goes.
    Job(usize),
    Slot(usize),
    /// It is time for a node's next attempt, if the number is the node's newest.
    Wake(usize, u64),
    /// A lease is over.
    End(u64),
}

impl Fleet {
    /// `lists` are the list of all nodes, and the one of before that some nodes still have.
    pub(super) fn new(scenario: Scenario, lists: [Arc<Membership>; 2]) -> Fleet {
        let clock = FakeRelativeClock::default();
        let mut fleet = Fleet {
            scenario,
            slots: Slots::new(SLOT),
            clock: clock.clone(),
            now: 0,
            events: BinaryHeap::new(),
            newest: 0,
            nodes: Vec::new(),
            by_name: HashMap::new(),
            lists,
            pairs: Vec::new(),
            leases: HashMap::new(),
            terms: Terms::new(RAILS),
            asks: Asks::default(),
        };
        for (index, member) in fleet.lists[0].clone().members().iter().enumerate() {
            let stale = fleet.chance() < scenario.stale && fleet.lists[1].get(&member.name).is_some();
            let skew = (fleet.chance() * 2.0 - 1.0) * scenario.skew;
            let busy = fleet.chance() < scenario.occupancy;
            fleet.nodes.push(Node {
                name: member.name.clone(),
                list: usize::from(stale),
                skew,
                gate: Gate::new(BUDGET, clock.clone()),
                busy,
                coverage: Default::default(),
                plan: Plan::default(),
                allowance: Allowance::default(),
                open: None,
                serves: Vec::new(),
                wake: 0,
                tally: Clock::new(busy, HOURS),
            });
            fleet.by_name.insert(member.name.clone(), index);
            fleet.job_later(index);
            fleet.begin_slot(index);
        }
        fleet
    }

    /// Lets the day pass.
    pub(super) fn run(&mut self) {
        let end = HOURS as u64 * 3_600_000;
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at >= end {
                break;
            }
            self.clock.advance(Duration::from_millis(at - self.now));
            self.now = at;
            match event {
                Event::Job(node) => self.job(node),
                Event::Slot(node) => self.begin_slot(node),
                Event::Wake(node, number) => self.wake(node, number),
                Event::End(lease) => self.end(lease),
            }
        }
        self.now = end;
    }

    /// What the day came to, and the distinct partners of each rail, sorted.
    pub(super) fn sum(&mut self) -> (Sum, Vec<usize>) {
        let (mut sum, now) = (Sum::default(), self.now);
        let mut partners = Vec::new();
        for node in &mut self.nodes {
            node.tally.add_to(&mut sum, now);
            let time = EPOCH + now as f64 / 1000.0 + node.skew;
            partners.extend(node.coverage.iter().map(|coverage| coverage.partners(time)));
        }
        partners.sort_unstable();
        (sum, partners)
    }

    /// The time by a node's clock.
    fn time(&self, node: usize) -> f64 {
        EPOCH + self.now as f64 / 1000.0 + self.nodes[node].skew
    }

    /// In so many seconds.
    #[expect(clippy::cast_sign_loss, reason = "not negative")]
    fn later(&mut self, seconds: f64, event: Event) {
        let at = self.now + (seconds.max(0.0) * 1000.0).ceil() as u64;
        self.newest += 1;
        self.events.push(Reverse((at, self.newest, event)));
    }

    fn chance(&mut self) -> f64 {
        self.newest += 1;
        hash::fraction(hash::join(self.scenario.seed, self.newest))
    }

    fn begin_slot(&mut self, node: usize) {
        let now = self.time(node);
        self.later(self.slots.end(self.slots.at(now)) - now, Event::Slot(node));
        self.plan(node);
    }

    fn job_later(&mut self, node: usize) {
        let mean = if self.nodes[node].busy { self.scenario.busy() } else { self.scenario.idle };
        if self.scenario.occupancy > 0.0 {
            let length = -(1.0 - self.chance()).ln() * mean;
            self.later(length, Event::Job(node));
        }
    }

    /// A job kills what is under way, on both sides; a node that becomes idle plans what is left of
    /// the slot.
    fn job(&mut self, node: usize) {
        let busy = !self.nodes[node].busy;
        let now = self.now;
        self.nodes[node].busy = busy;
        self.nodes[node].tally.becomes(busy, now);
        self.job_later(node);
        if busy {
            self.nodes[node].plan = Plan::default();
            let mut killed = std::mem::take(&mut self.nodes[node].serves);
            killed.extend(self.nodes[node].open);
            for lease in killed {
                self.asks.killed += 1;
                self.close(lease, Ended::PartnerRefused);
            }
        } else {
            self.plan(node);
        }
    }

    fn plan(&mut self, node: usize) {
        if self.nodes[node].busy {
            return;
        }
        let now = self.time(node);
        let pairs = self.pairs(self.nodes[node].list, self.slots.at(now));
        let Node { name, coverage, allowance, .. } = &self.nodes[node];
        let rails: Vec<Rail> =
            (0..).zip(coverage).map(|(number, coverage)| Rail { number, covered: coverage.last() }).collect();
        let recent = coverage::recent(coverage, now);
        self.nodes[node].plan = Plan::new(&plan::Asked {
            now,
            me: name,
            slots: self.slots,
            pairs: &pairs,
            rails: &rails,
            interval: INTERVAL,
            run: LENGTH.as_secs_f64(),
            recent: &recent,
            allowance: allowance.left(now),
        });
        self.next(node, 0);
    }

    fn pairs(&mut self, list: usize, slot: u64) -> Arc<Pairs> {
        if let Some((_, pairs)) =
            self.pairs.iter().rev().find(|(of, pairs)| *of == list && pairs.slot() == slot)
        {
            return pairs.clone();
        }
        let fresh = Arc::new(pairs(slot, &self.lists[list]));
        if self.pairs.len() == 4 {
            self.pairs.remove(0);
        }
        self.pairs.push((list, fresh.clone()));
        fresh
    }

    /// Wakes a node for its next attempt, `pause` milliseconds from now or later.
    fn next(&mut self, node: usize, pause: u64) {
        let now = self.time(node);
        let idle = self.nodes[node].open.is_none();
        if let Some(at) = self.nodes[node].plan.next(now).map(|attempt| attempt.at).filter(|_| idle) {
            self.nodes[node].wake += 1;
            let wake = Event::Wake(node, self.nodes[node].wake);
            self.later((at - now).max(pause as f64 / 1000.0), wake);
        }
    }

    fn wake(&mut self, node: usize, number: u64) {
        let now = self.time(node);
        let Node { busy, open, wake, plan, .. } = &self.nodes[node];
        if *busy || open.is_some() || *wake != number {
            return;
        }
        let Some(attempt) = plan.next(now).cloned() else { return };
        if attempt.at > now + 0.001 {
            // What it waited for was covered by somebody else.
            self.next(node, 0);
            return;
        }
        match self.ask(node, &attempt) {
            Ok(()) => {}
            Err((ended, pause)) => {
                self.nodes[node].plan.ended(&attempt, ended);
                self.next(node, pause);
            }
        }
    }

    /// Asks a partner for a lease.
    fn ask(&mut self, node: usize, attempt: &Attempt) -> Result<(), (Ended, u64)> {
        let (now, rail) = (self.time(node), attempt.rail as usize);
        self.asks.asked += 1;
        self.nodes[node].allowance.asks(attempt, now);
        let Some(partner) = self.by_name.get(&attempt.partner.name).copied() else {
            self.asks.gone += 1;
            return Err((Ended::PartnerRefused, SILENCE));
        };
        let (here, there) = (&self.nodes[node], &self.nodes[partner]);
        if self.lists[there.list].get(&here.name).is_none() {
            self.asks.unknown += 1;
            return Err((Ended::PartnerRefused, ANSWER));
        }
        let slot = self.slots.at(self.time(partner));
        let due = plan::due(there.coverage[rail].last(), self.slots, slot, INTERVAL);
        if attempt.why == Why::IfDue && !due {
            self.asks.not_due += 1;
            return Err((Ended::NotDue, ANSWER));
        }
        let permits = match self.terms.open(here.side(), there.side(), rail) {
            Ok(permits) => permits,
            Err(refused) => return Err((self.refused(&refused), ANSWER)),
        };
        self.asks.granted += 1;
        let now = self.now;
        for side in [node, partner] {
            self.nodes[side].tally.began(rail, now, &mut self.asks);
        }
        self.later(LENGTH.as_secs_f64(), Event::End(self.newest + 1));
        let lease = self.newest;
        self.nodes[node].open = Some(lease);
        self.nodes[partner].serves.push(lease);
        let under_way = UnderWay { sides: [node, partner], attempt: attempt.clone(), _permits: permits };
        self.leases.insert(lease, under_way);
        Ok(())
    }

    fn refused(&mut self, refused: &Refused) -> Ended {
        let (reason, here) = match refused {
            Refused::Here(reason) => (*reason, true),
            Refused::There(reason) => (*reason, false),
        };
        match reason {
            SkipReason::Occupied => {
                self.asks.occupied += 1;
                Ended::PartnerRefused
            }
            SkipReason::Locked => {
                self.asks.locked += 1;
                Ended::RailRefused
            }
            SkipReason::Budget => {
                self.asks.budget += 1;
                if here { Ended::NoBudget } else { Ended::RailRefused }
            }
            SkipReason::Inactive
            | SkipReason::Held
            | SkipReason::Busy
            | SkipReason::NoPartner
            | SkipReason::Refused
            | SkipReason::Away
            | SkipReason::Untrusted => {
                panic!("nobody here is {reason:?}")
            }
        }
    }

    /// The time of a lease is over, if it was not killed before.
    fn end(&mut self, lease: u64) {
        if !self.leases.contains_key(&lease) {
            return;
        }
        let failed = self.chance() < self.scenario.failing;
        let ended = if failed { Ended::Failed } else { Ended::Covered };
        if failed {
            self.asks.failed += 1;
        } else {
            self.asks.completed += 1;
        }
        self.close(lease, ended);
    }

    fn close(&mut self, lease: u64, ended: Ended) {
        let Some(UnderWay { sides: [node, partner], attempt, .. }) = self.leases.remove(&lease) else {
            return;
        };
        let (now, rail) = (self.now, attempt.rail as usize);
        for (side, other) in [(node, partner), (partner, node)] {
            self.nodes[side].tally.ended(rail);
            if ended == Ended::Covered {
                let (time, other) = (self.time(side), self.nodes[other].name.clone());
                self.nodes[side].tally.covered(rail, now);
                self.nodes[side].coverage[rail].completed(&other, time);
            }
        }
        self.nodes[partner].serves.retain(|serves| *serves != lease);
        if ended == Ended::Covered {
            self.nodes[partner].plan.covered(attempt.rail);
        }
        self.nodes[node].open = None;
        self.nodes[node].plan.ended(&attempt, ended);
        self.next(node, 0);
    }
}
