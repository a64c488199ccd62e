//! Decides whether a run may start now. It never waits: a run that can't start is skipped, and
//! says why.
//!
//! In this order, cheapest first: active probes switched on, hold, resource locks, occupancy,
//! budget. The budget comes last because asking takes from it. A passive run passes untouched:
//! it reads state, and a job does not feel it.
//!
//! Budgets are token buckets, one for each resource. Half of the hourly figure is the burst and
//! half the refill, so that no hour, wherever it begins, exceeds the figure.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use governor::{
    Quota, RateLimiter,
    clock::{Clock, DefaultClock, Reference as _},
    middleware::NoOpMiddleware,
    state::{InMemoryState, NotKeyed},
};
use probes::{Cost, Inventory, Plan, Resource, Use};

use crate::{
    config::Budget,
    hold::Hold,
    run::{Skip, SkipReason},
};

/// When to ask again where nothing better is known.
const RETRY: Duration = Duration::from_secs(60);

/// What the gate looks at besides its own state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) cost: Cost,
    /// Whether the operator allows active probes.
    pub(crate) active: bool,
    /// Whether devices must be idle.
    pub(crate) occupancy: bool,
    pub(crate) hold: Option<&'a Hold>,
    pub(crate) now: f64,
    pub(crate) inventory: &'a Inventory,
    pub(crate) share: Share,
}

/// Whose budget a run draws on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// What runs by itself and what people ask for.
    Regular,
    /// Runs that decide a suspicion: half as much again, so that neither keeps the other off.
    Confirm,
}

/// The gate of a node.
#[derive(Debug)]
pub(crate) struct Gate<C: Clock = DefaultClock> {
    clock: C,
    locks: Arc<Mutex<BTreeSet<Resource>>>,
    regular: Mutex<Buckets<C>>,
    confirm: Mutex<Buckets<C>>,
}

/// A run's right to be under way. Dropping it unlocks its resources.
#[derive(Debug)]
pub(crate) struct Permit {
    locks: Arc<Mutex<BTreeSet<Resource>>>,
    held: Vec<Resource>,
}

type Bucket<C> = RateLimiter<NotKeyed, InMemoryState, C, NoOpMiddleware<<C as Clock>::Instant>>;

#[derive(Debug)]
struct Buckets<C: Clock> {
    budget: Budget,
    /// What was taken for runs that were refused after all, and when.
    credit: BTreeMap<Resource, (f64, C::Instant)>,
    of: BTreeMap<Resource, Bucket<C>>,
}

impl<C: Clock + Clone> Gate<C> {
    pub(crate) fn new(budget: Budget, clock: C) -> Gate<C> {
        let (regular, confirm) = (Buckets::new(budget), Buckets::new(halved(budget)));
        Gate { clock, locks: Arc::default(), regular: Mutex::new(regular), confirm: Mutex::new(confirm) }
    }

    fn buckets(&self, share: Share) -> MutexGuard<'_, Buckets<C>> {
        lock(match share {
            Share::Regular => &self.regular,
            Share::Confirm => &self.confirm,
        })
    }

    /// Changes the budget. What was used so far is not known by the new buckets, so they begin
    /// with their burst used up.
    pub(crate) fn set_budget(&self, budget: Budget) {
        for (share, budget) in [(Share::Regular, budget), (Share::Confirm, halved(budget))] {
            let mut buckets = self.buckets(share);
            if buckets.budget != budget {
                let known: Vec<Resource> = buckets.of.keys().cloned().collect();
                *buckets = Buckets::new(budget);
                for resource in known {
                    buckets.empty(&resource, &self.clock);
                }
            }
        }
    }

    /// Takes up that an earlier process used these within the last hour: their burst is used up.
    pub(crate) fn recall(&self, used: impl IntoIterator<Item = Resource>, share: Share) {
        let mut buckets = self.buckets(share);
        for resource in used {
            buckets.empty(&resource, &self.clock);
        }
    }

    /// Lets a run start, or says why not.
    pub(crate) fn enter(&self, asked: Asked<'_>) -> Result<Permit, Skip> {
        let none = Permit { locks: self.locks.clone(), held: Vec::new() };
        if asked.cost == Cost::Passive {
            return Ok(none);
        }
        if !asked.active {
            return Err(Skip {
                reason: SkipReason::Inactive,
                detail: "active probes are off: set active = true or start with --active".to_string(),
                retry_after: RETRY,
            });
        }
        if let Some(hold) = asked.hold {
            let left = Duration::try_from_secs_f64(hold.until - asked.now)
                .unwrap_or(RETRY)
                .max(Duration::from_secs(1));
            let detail = format!("held by {} for {} more s: {}", hold.by, left.as_secs(), hold.reason);
            return Err(Skip { reason: SkipReason::Held, detail, retry_after: left });
        }
        let permit = self.lock_resources(&asked)?;
        if asked.occupancy {
            occupancy(asked.inventory)?;
        }
        self.spend(&asked.plan.uses, asked.share)?;
        Ok(permit)
    }

    /// Gives back what was taken for runs that did not come about.
    pub(crate) fn give_back(&self, uses: &[Use], share: Share) {
        let mut buckets = self.buckets(share);
        uses.iter().for_each(|used| buckets.give_back(used, &self.clock));
    }

    fn lock_resources(&self, asked: &Asked<'_>) -> Result<Permit, Skip> {
        let mut wanted: Vec<Resource> = asked.plan.uses.iter().map(|used| used.resource.clone()).collect();
        if asked.cost == Cost::Heavy {
            wanted.push(Resource::Node);
        }
        wanted.sort();
        wanted.dedup();
        let mut locks = lock(&self.locks);
        let taken = match asked.cost {
            // A heavy run overlaps nothing, and nothing overlaps it.
            Cost::Heavy => locks.first(),
            Cost::Passive | Cost::Light => {
                locks.iter().find(|locked| **locked == Resource::Node || wanted.contains(locked))
            }
        };
        if let Some(taken) = taken {
            let detail = format!("another run uses {}", name(taken));
            return Err(Skip { reason: SkipReason::Locked, detail, retry_after: RETRY });
        }
        locks.extend(wanted.iter().cloned());
        Ok(Permit { locks: self.locks.clone(), held: wanted })
    }

    fn spend(&self, uses: &[Use], share: Share) -> Result<(), Skip> {
        let mut buckets = self.buckets(share);
        for (taken, used) in uses.iter().enumerate() {
            if let Err(skip) = buckets.take(used, &self.clock) {
                uses[..taken].iter().for_each(|used| buckets.give_back(used, &self.clock));
                return Err(skip);
            }
        }
        Ok(())
    }
}

/// What runs that decide suspicions may take. A heavy one at least is possible where any is.
fn halved(budget: Budget) -> Budget {
    Budget {
        gpu_milliseconds: budget.gpu_milliseconds / 2,
        network_mib: budget.network_mib / 2,
        heavy_runs: budget.heavy_runs.div_ceil(2),
    }
}

impl<C: Clock + Clone> Buckets<C> {
    fn new(budget: Budget) -> Buckets<C> {
        Buckets { budget, credit: BTreeMap::new(), of: BTreeMap::new() }
    }

    fn take(&mut self, used: &Use, clock: &C) -> Result<(), Skip> {
        let credit = self.credit(&used.resource, clock);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the amount")]
        let spent = credit.min(f64::from(used.amount)) as u32;
        let Some(amount) = NonZeroU32::new(used.amount - spent) else {
            self.spend_credit(&used.resource, spent, clock);
            return Ok(());
        };
        let name = name(&used.resource);
        let refuse =
            |detail: String, retry_after| Err(Skip { reason: SkipReason::Budget, detail, retry_after });
        let Some(bucket) = self.bucket(&used.resource, clock) else {
            return refuse(format!("{name} has no budget"), RETRY);
        };
        match bucket.check_n(amount) {
            Ok(Ok(())) => {
                self.spend_credit(&used.resource, spent, clock);
                Ok(())
            }
            Ok(Err(not_until)) => {
                let wait = not_until.wait_time_from(clock.now());
                refuse(format!("the hourly budget of {name} has room again in {} s", wait.as_secs()), wait)
            }
            Err(_) => {
                let detail = format!("a run takes {amount} of {name}, more than its budget ever holds");
                refuse(detail, Duration::from_secs(3600))
            }
        }
    }

    /// Notes what a run was refused after it was taken: a bucket can't be asked without taking.
    fn give_back(&mut self, used: &Use, clock: &C) {
        let credit = self.credit(&used.resource, clock) + f64::from(used.amount);
        self.credit.insert(used.resource.clone(), (credit, clock.now()));
    }

    /// What is left of that. It melts as fast as the bucket refills, so that both together never
    /// hold more than the budget.
    fn credit(&self, resource: &Resource, clock: &C) -> f64 {
        let Some((amount, at)) = self.credit.get(resource) else { return 0.0 };
        let refill = f64::from(hourly(self.budget, resource).div_ceil(2).max(1)) / 3600.0;
        let age: Duration = clock.now().duration_since(*at).into();
        (amount - age.as_secs_f64() * refill).max(0.0)
    }

    fn spend_credit(&mut self, resource: &Resource, spent: u32, clock: &C) {
        let left = self.credit(resource, clock) - f64::from(spent);
        self.credit.insert(resource.clone(), (left.max(0.0), clock.now()));
    }

    /// Uses up the burst, as far as it is not.
    fn empty(&mut self, resource: &Resource, clock: &C) {
        let burst = burst(hourly(self.budget, resource));
        if let (Some(bucket), Some(burst)) = (self.bucket(resource, clock), burst) {
            let _ = bucket.check_n(burst);
        }
    }

    fn bucket(&mut self, resource: &Resource, clock: &C) -> Option<&Bucket<C>> {
        let budget = hourly(self.budget, resource);
        let burst = burst(budget)?;
        let refill = NonZeroU32::new(budget.div_ceil(2))?;
        let fresh =
            || RateLimiter::direct_with_clock(Quota::per_hour(refill).allow_burst(burst), clock.clone());
        Some(self.of.entry(resource.clone()).or_insert_with(fresh))
    }
}

/// Half of the hourly figure, and at least one where there is a budget at all.
fn burst(hourly: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(hourly).map(|hourly| NonZeroU32::new(hourly.get() / 2).unwrap_or(NonZeroU32::MIN))
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut locks = lock(&self.locks);
        for resource in &self.held {
            locks.remove(resource);
        }
    }
}

/// Nobody can tell yet whether a job is on a GPU, so a node with GPUs counts as occupied. On a node
/// without them there is nothing a job could lose.
fn occupancy(inventory: &Inventory) -> Result<(), Skip> {
    match inventory.gpus.first() {
        None => Ok(()),
        Some(gpu) => Err(Skip {
            reason: SkipReason::Occupied,
            detail: format!(
                "whether a job is on {} can't be told, so active probes stay off",
                gpu.function.pci
            ),
            retry_after: RETRY,
        }),
    }
}

fn hourly(budget: Budget, resource: &Resource) -> u32 {
    match resource {
        Resource::Gpu(_) => budget.gpu_milliseconds,
        Resource::Nic(_) => budget.network_mib,
        Resource::Node => budget.heavy_runs,
    }
}

fn name(resource: &Resource) -> String {
    match resource {
        Resource::Gpu(pci) => format!("GPU {pci}"),
        Resource::Nic(device) => format!("NIC {device}"),
        Resource::Node => "the whole node".to_string(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use governor::clock::FakeRelativeClock;
    use probes::inventory::Gpu;

    use super::*;

    const BUDGET: Budget = Budget { gpu_milliseconds: 18_000, network_mib: 858_306, heavy_runs: 2 };

    fn gpu(milliseconds: u32) -> Use {
        Use { resource: Resource::Gpu("0000:05:00.0".into()), amount: milliseconds }
    }

    fn plan(uses: Vec<Use>) -> Plan {
        Plan { stages: vec![], uses }
    }

    fn gate() -> (Gate<FakeRelativeClock>, FakeRelativeClock) {
        let clock = FakeRelativeClock::default();
        (Gate::new(BUDGET, clock.clone()), clock)
    }

    fn enter(gate: &Gate<FakeRelativeClock>, cost: Cost, plan: &Plan) -> Result<Permit, SkipReason> {
        let inventory = Inventory::default();
        let asked = Asked {
            plan,
            cost,
            active: true,
            occupancy: true,
            hold: None,
            now: 0.0,
            inventory: &inventory,
            share: Share::Regular,
        };
        gate.enter(asked).map_err(|skip| skip.reason)
    }

    #[test]
    fn refusals_come_in_order_and_a_passive_run_passes_them_all() {
        let (gate, _) = gate();
        let (plan, empty) = (plan(vec![gpu(1)]), Inventory::default());
        let full = Inventory { gpus: vec![Gpu::default()], ..Inventory::default() };
        let hold = Hold { since: 0.0, until: 100.0, reason: "job-4711".into(), by: "uid 0".into() };
        let base = Asked {
            plan: &plan,
            cost: Cost::Light,
            active: true,
            occupancy: true,
            hold: None,
            now: 40.0,
            inventory: &empty,
            share: Share::Regular,
        };
        let table = [
            (
                Asked { active: false, hold: Some(&hold), inventory: &full, ..base },
                Some(SkipReason::Inactive),
            ),
            (Asked { hold: Some(&hold), inventory: &full, ..base }, Some(SkipReason::Held)),
            (Asked { inventory: &full, ..base }, Some(SkipReason::Occupied)),
            (Asked { inventory: &full, occupancy: false, ..base }, None),
            (base, None),
            (Asked { cost: Cost::Passive, active: false, hold: Some(&hold), inventory: &full, ..base }, None),
        ];
        for (asked, reason) in table {
            assert_eq!(gate.enter(asked).err().map(|skip| skip.reason), reason, "{asked:?}");
        }
        let skip = gate.enter(Asked { hold: Some(&hold), ..base }).unwrap_err();
        assert_eq!(skip.detail, "held by uid 0 for 60 more s: job-4711");
        assert_eq!(skip.retry_after, Duration::from_secs(60));
    }

    #[test]
    fn runs_on_one_part_never_overlap_and_a_heavy_one_overlaps_nothing() {
        let (gate, _) = gate();
        let (one, other) =
            (plan(vec![gpu(1)]), plan(vec![Use { resource: Resource::Nic("mlx5_0".into()), amount: 1 }]));
        let first = enter(&gate, Cost::Light, &one).unwrap();
        assert_eq!(enter(&gate, Cost::Light, &one).unwrap_err(), SkipReason::Locked);
        let second = enter(&gate, Cost::Light, &other).unwrap();
        assert_eq!(enter(&gate, Cost::Heavy, &plan(vec![])).unwrap_err(), SkipReason::Locked);
        drop((first, second));
        let heavy = enter(&gate, Cost::Heavy, &plan(vec![])).unwrap();
        assert_eq!(enter(&gate, Cost::Light, &one).unwrap_err(), SkipReason::Locked);
        assert!(enter(&gate, Cost::Passive, &one).is_ok());
        drop(heavy);
        assert!(enter(&gate, Cost::Light, &one).is_ok());
    }

    #[test]
    fn no_hour_exceeds_the_budget_wherever_it_begins() {
        let (gate, clock) = gate();
        let run = plan(vec![gpu(700)]);
        let mut spent: Vec<(u64, u64)> = Vec::new();
        for second in 0..6 * 3600 {
            if enter(&gate, Cost::Light, &run).is_ok() {
                spent.push((second, 700));
            }
            clock.advance(Duration::from_secs(1));
        }
        let worst = spent
            .iter()
            .map(|(from, _)| {
                spent
                    .iter()
                    .filter(|(at, _)| (*from..from + 3600).contains(at))
                    .map(|(_, ms)| ms)
                    .sum::<u64>()
            })
            .max()
            .unwrap();
        assert!((9_000..=18_000).contains(&worst), "{worst} ms in the worst hour");
    }

    #[test]
    fn a_run_that_is_refused_takes_nothing() {
        let (gate, clock) = gate();
        let other = Use { resource: Resource::Gpu("0000:15:00.0".into()), amount: 9_000 };
        let _ = enter(&gate, Cost::Light, &plan(vec![other.clone()])).unwrap();
        for _ in 0..100 {
            let both = plan(vec![gpu(3_000), other.clone()]);
            assert_eq!(enter(&gate, Cost::Light, &both).unwrap_err(), SkipReason::Budget);
            clock.advance(Duration::from_secs(1));
        }
        // All but what rounding takes.
        let whole_burst = enter(&gate, Cost::Light, &plan(vec![gpu(8_990)]));
        assert!(whole_burst.is_ok(), "{whole_burst:?}");
        drop(whole_burst);
        assert_eq!(enter(&gate, Cost::Light, &plan(vec![gpu(3_000)])).unwrap_err(), SkipReason::Budget);
    }

    #[test]
    fn a_restart_does_not_refill_the_budget() {
        let (gate, clock) = gate();
        gate.recall([Resource::Gpu("0000:05:00.0".into())], Share::Regular);
        let run = plan(vec![gpu(4_000)]);
        assert_eq!(enter(&gate, Cost::Light, &run).unwrap_err(), SkipReason::Budget);
        clock.advance(Duration::from_secs(1601));
        assert!(enter(&gate, Cost::Light, &run).is_ok());
    }

    #[test]
    fn runs_that_decide_a_suspicion_have_half_as_much_of_their_own() {
        let (gate, _) = gate();
        let (run, inventory) = (plan(vec![gpu(1_500)]), Inventory::default());
        let asked = |share| Asked {
            plan: &run,
            cost: Cost::Light,
            active: true,
            occupancy: true,
            hold: None,
            now: 0.0,
            inventory: &inventory,
            share,
        };
        let runs = |share| (0..10).filter(|_| gate.enter(asked(share)).is_ok()).count();
        assert_eq!((runs(Share::Regular), runs(Share::Confirm)), (6, 3));
        assert_eq!(halved(Budget { heavy_runs: 1, ..BUDGET }).heavy_runs, 1);
    }

    #[test]
    fn what_never_fits_or_has_no_budget_says_so() {
        let (gate, _) = gate();
        assert_eq!(enter(&gate, Cost::Light, &plan(vec![gpu(20_000)])).unwrap_err(), SkipReason::Budget);
        gate.set_budget(Budget { gpu_milliseconds: 0, ..BUDGET });
        assert_eq!(enter(&gate, Cost::Light, &plan(vec![gpu(1)])).unwrap_err(), SkipReason::Budget);
    }
}
