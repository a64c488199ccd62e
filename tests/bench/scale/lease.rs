//! What a lease is to the simulation: two permits of the shipped gates, for a time.

use std::time::Duration;

use governor::clock::FakeRelativeClock;
use probes::{Cost, Inventory, Plan, Resource, Use, inventory::Gpu};

use crate::{
    config::Budget,
    gate::{Asked, Gate, Permit, Share},
    run::SkipReason,
};

/// What an operator's NIC may take in an hour by default: 0.5 % of 400 Gb/s.
pub(super) const BUDGET: Budget = Budget { gpu_milliseconds: 18_000, network_mib: 858_306, heavy_runs: 2 };
/// What one lease takes of it, at most: bandwidth both ways from host and GPU memory, latency.
pub(super) const MIB: u32 = 117_000;
/// How long a lease takes, with all its steps and repeats.
pub(super) const LENGTH: Duration = Duration::from_secs(30);

/// The permits of both sides.
pub(super) type Lease = [Permit; 2];

/// One side of a lease that is asked for.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub(super) gate: &'a Gate<FakeRelativeClock>,
    /// Whether a job is on the node.
    pub(super) occupied: bool,
}

/// Which side refused, and why.
pub(super) enum Refused {
    There(SkipReason),
    Here(SkipReason),
}

/// What all sides have in common.
pub(super) struct Terms {
    /// By rail.
    plans: Vec<Plan>,
    idle: Inventory,
    occupied: Inventory,
}

impl Terms {
    pub(super) fn new(rails: usize) -> Terms {
        let plan = |rail| Plan {
            stages: Vec::new(),
            uses: vec![Use { resource: Resource::Nic(format!("mlx5_{rail}")), amount: MIB }],
        };
        // The gate takes a node for occupied when it has a GPU of which it can't tell.
        let occupied = Inventory { gpus: vec![Gpu::default()], ..Inventory::default() };
        Terms { plans: (0..rails).map(plan).collect(), idle: Inventory::default(), occupied }
    }

    /// Enters both gates. The partner's comes first, since entering takes from the budget: most
    /// refusals come from there, and then nothing is lost here. The other way round, ten times as
    /// many idle hours of a busy fleet are not covered.
    pub(super) fn open(&self, here: Side<'_>, there: Side<'_>, rail: usize) -> Result<Lease, Refused> {
        let theirs = self.enter(there, rail).map_err(Refused::There)?;
        let ours = self.enter(here, rail).map_err(Refused::Here)?;
        Ok([ours, theirs])
    }

    fn enter(&self, side: Side<'_>, rail: usize) -> Result<Permit, SkipReason> {
        let inventory = if side.occupied { &self.occupied } else { &self.idle };
        let plan = &self.plans[rail];
        let asked = Asked {
            plan,
            cost: Cost::Light,
            active: true,
            occupancy: true,
            hold: None,
            now: 0.0,
            inventory,
            share: Share::Regular,
        };
        side.gate.enter(asked).map_err(|skip| skip.reason)
    }
}
