//! A day of 10,000 nodes with 8 rails each, driven through the shipped membership, pairing,
//! planner, gate and coverage with a clock that is ours. Built into the program's own tests, since
//! it needs the program's own types.
#![expect(clippy::print_stdout, reason = "this is the report")]

use std::{sync::Arc, time::Instant};

use crate::peers::{
    membership::{Builder, Membership},
    pairing::{Pairs, pairs},
};

#[path = "scale/fleet.rs"]
mod fleet;
#[path = "scale/lease.rs"]
mod lease;
#[path = "scale/rings.rs"]
mod rings;
#[path = "scale/tally.rs"]
mod tally;

const NODES: usize = 10_000;
const RAILS: usize = 8;
const HOURS: usize = 24;
/// Slots over which pairings are compared.
const SLOTS: u64 = 20;

/// What happens to a fleet.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    name: &'static str,
    /// Part of the time that jobs take.
    occupancy: f64,
    /// How long a node is idle between two jobs, on average, in seconds.
    idle: f64,
    /// Part of the leases that fail.
    failing: f64,
    /// Part of the nodes that have the list of before.
    stale: f64,
    /// Seconds that clocks are off, at most, in both directions.
    skew: f64,
    /// Whether partners of the last hour are asked first.
    recent: bool,
    seed: u64,
}

const BASE: Scenario = Scenario {
    name: "idle",
    occupancy: 0.0,
    idle: 1200.0,
    failing: 0.05,
    stale: 0.01,
    skew: 30.0,
    recent: true,
    seed: 1,
};

impl Scenario {
    /// How long a job takes, on average, in seconds.
    fn busy(&self) -> f64 {
        self.idle * self.occupancy / (1.0 - self.occupancy)
    }
}

fn members(names: impl Iterator<Item = String>) -> Arc<Membership> {
    let names: Vec<String> = names.collect();
    let mut builder = Builder::default();
    builder.entries("peers.members", &names).unwrap();
    Arc::new(builder.build().unwrap())
}

/// A fleet, and the same with one in a hundred replaced.
fn fleets(seed: u64) -> [Arc<Membership>; 2] {
    let name = |node: usize| format!("node-{seed}-{node:05}");
    let before = |node: usize| if node % 100 == 7 { format!("old-{seed}-{node:05}") } else { name(node) };
    [members((0..NODES).map(name)), members((0..NODES).map(before))]
}

#[test]
#[ignore = "a simulation of a minute: tests/run bench runs it in release"]
fn a_day_of_ten_thousand_nodes() {
    let table = [
        BASE,
        Scenario { name: "half", occupancy: 0.5, ..BASE },
        Scenario { name: "busy", occupancy: 0.9, ..BASE },
        Scenario { name: "busy, no recent", occupancy: 0.9, recent: false, ..BASE },
        Scenario { name: "busy, long gaps", occupancy: 0.9, idle: 7200.0, ..BASE },
    ];
    for scenario in table {
        let start = Instant::now();
        let mut fleet = fleet::Fleet::new(scenario, fleets(scenario.seed));
        fleet.run();
        let (sum, partners) = fleet.sum();
        let asks = &fleet.asks;
        println!("{} {:?} {:?}", scenario.name, start.elapsed(), asks);
        println!(
            "   idle uncovered {:.4}%, wall {:.4}%, worst {:.1} min, partners {} / {}, mib {}",
            100.0 * sum.idle_uncovered as f64 / sum.idle_hours as f64,
            100.0 * sum.wall_uncovered as f64 / sum.wall_hours as f64,
            sum.worst as f64 / 60_000.0,
            partners[0],
            partners[partners.len() / 2],
            asks.mib
        );
    }
}

#[test]
#[ignore = "a simulation of a minute: tests/run bench runs it in release"]
fn pairs_are_quick_and_stay() {
    for (name, way) in rings::WAYS {
        let (mut moved, mut all) = (0, 0);
        for slot in 0..SLOTS {
            let [after, before] = fleets(slot);
            let (before, after) = (way(slot, &before), way(slot, &after));
            all += before.len();
            moved += before.difference(&after).count();
        }
        let left = 1.0 - 2.0 * all as f64 / (SLOTS as usize * NODES) as f64;
        println!("{name}: unpaired {:.2}%, moved {:.2}%", left * 100.0, 100.0 * moved as f64 / all as f64);
    }
    let [members, _] = fleets(1);
    let start = Instant::now();
    let all: Vec<Pairs> = (0..100).map(|slot| pairs(slot, &members)).collect();
    println!("{:?} each", start.elapsed() / u32::try_from(all.len()).unwrap());
}
