//! What the simulation counts, by itself and not by what the product says of itself.

use std::collections::VecDeque;

use super::{RAILS, lease::MIB};

/// Milliseconds of an hour.
const HOUR: u64 = 3_600_000;

/// What became of all that was asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Asks {
    pub(super) asked: u64,
    pub(super) granted: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) killed: u64,
    pub(super) not_due: u64,
    pub(super) occupied: u64,
    pub(super) locked: u64,
    pub(super) budget: u64,
    pub(super) unknown: u64,
    pub(super) gone: u64,
    /// Leases that began on a NIC with another lease under way.
    pub(super) overlaps: u64,
    /// The most that one NIC was granted in any hour.
    pub(super) mib: u64,
}

/// One node's time and rails. Times are milliseconds of the simulation.
pub(super) struct Clock {
    /// Idle time up to `since`.
    idle: u64,
    /// When the state last changed.
    since: u64,
    busy: bool,
    /// Idle time within each hour of the wall clock.
    by_hour: Vec<u64>,
    rails: [Rail; RAILS],
}

#[derive(Default)]
struct Rail {
    /// Leases under way.
    under_way: u32,
    /// When those of the last hour began.
    began: VecDeque<u64>,
    /// A bit for each hour of idle time in which it was covered, and of wall time.
    idle_hours: u64,
    wall_hours: u64,
    /// The idle time when it was last covered, and the longest without.
    covered: u64,
    worst: u64,
}

/// What a fleet comes to.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    pub(super) idle_hours: u64,
    pub(super) idle_uncovered: u64,
    pub(super) wall_hours: u64,
    pub(super) wall_uncovered: u64,
    /// Milliseconds.
    pub(super) worst: u64,
}

impl Clock {
    pub(super) fn new(busy: bool, hours: usize) -> Clock {
        Clock { idle: 0, since: 0, busy, by_hour: vec![0; hours], rails: Default::default() }
    }

    /// A job came, or went, or the day is over.
    pub(super) fn becomes(&mut self, busy: bool, now: u64) {
        let mut from = self.since;
        while !self.busy && from < now {
            let hour = from / HOUR;
            let until = now.min((hour + 1) * HOUR);
            if let Some(idle) = self.by_hour.get_mut(hour as usize) {
                *idle += until - from;
            }
            self.idle += until - from;
            from = until;
        }
        (self.since, self.busy) = (now, busy);
    }

    pub(super) fn began(&mut self, rail: usize, now: u64, asks: &mut Asks) {
        let rail = &mut self.rails[rail];
        asks.overlaps += u64::from(rail.under_way > 0);
        rail.under_way += 1;
        rail.began.retain(|began| now - began < HOUR);
        rail.began.push_back(now);
        asks.mib = asks.mib.max(rail.began.len() as u64 * u64::from(MIB));
    }

    pub(super) fn ended(&mut self, rail: usize) {
        self.rails[rail].under_way -= 1;
    }

    pub(super) fn covered(&mut self, rail: usize, now: u64) {
        let idle = self.idle + if self.busy { 0 } else { now - self.since };
        let rail = &mut self.rails[rail];
        rail.idle_hours |= 1 << (idle / HOUR);
        rail.wall_hours |= 1 << (now / HOUR);
        rail.worst = rail.worst.max(idle - rail.covered);
        rail.covered = idle;
    }

    /// Adds the node to the sum, at the end of the day.
    pub(super) fn add_to(&mut self, sum: &mut Sum, now: u64) {
        self.becomes(self.busy, now);
        let whole = self.idle / HOUR;
        for rail in &self.rails {
            sum.idle_hours += whole;
            sum.idle_uncovered += (0..whole).filter(|hour| rail.idle_hours & (1 << hour) == 0).count() as u64;
            for (hour, _) in self.by_hour.iter().enumerate().filter(|(_, idle)| **idle >= HOUR / 2) {
                sum.wall_hours += 1;
                sum.wall_uncovered += u64::from(rail.wall_hours & (1 << hour) == 0);
            }
            sum.worst = sum.worst.max(rail.worst).max(self.idle - rail.covered);
        }
    }
}
