//! What a log says of what was measured: the first rule that holds.

use std::collections::BTreeMap;

use super::{
    super::{Class, End},
    Case, rows,
};
use crate::nccl_tests::{Half, Row, Run};

/// Below this part of what is expected a run is degraded.
const EXPECTED: f64 = 0.9;
/// Below this part of the best of the smaller sizes a size has fallen.
const FALLEN: f64 = 0.5;
/// Smaller sizes are ruled by latency, in bytes.
const LARGE: i64 = 1 << 20;
/// Where the best is below this nothing can fall, in 10^9 bytes per second.
const LEAST: f64 = 0.1;
/// Below this part of a run with equal ranks on each host, one with unequal ranks is slowed by that.
const PLACED: f64 = 0.75;
/// Two runs whose lower figure is below this part of the higher one can't both be right.
const APART: f64 = 0.75;

/// The rule that holds, and what it holds of.
#[derive(Debug)]
pub(super) enum Finding<'a> {
    Corrupt,
    /// An error text.
    Said,
    /// The tool's watchdog.
    Stalled,
    /// Ended from outside.
    Killed,
    /// Failed without a text.
    Silent,
    Negative(&'a Row),
    /// Each run has one rank.
    Alone(&'a Run),
    /// Slower than expected.
    Slow(&'a Run, f64),
    /// The operator's limit was missed.
    Limit(&'a Run),
    Fallen(Fall<'a>),
    /// Unequal ranks on the hosts: peak of that run, and of the equal one.
    Placed(f64, f64),
    Foreign,
    Nothing,
    Truncated,
    Open,
    Apart(Apart),
    /// Several hosts over TCP.
    Sockets(&'a Run),
    Healthy,
}

/// A size that is far below a smaller one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fall<'a> {
    pub row: &'a Row,
    pub best: &'a Row,
    /// The largest size before it that had not fallen.
    pub last_good: &'a Row,
    /// No larger size recovers.
    pub lasts: bool,
}

/// Two runs over the same parts, at the size where they differ most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Apart {
    pub size: i64,
    /// Lower by higher.
    pub ratio: f64,
    pub figures: (f64, f64),
}

impl Finding<'_> {
    pub(super) fn class(&self) -> Class {
        match self {
            Finding::Corrupt => Class::Corrupt,
            Finding::Said | Finding::Silent => Class::Error,
            Finding::Stalled | Finding::Killed => Class::Hang,
            Finding::Negative(_) | Finding::Alone(_) => Class::InvalidRun,
            Finding::Slow(..) | Finding::Limit(_) | Finding::Fallen(_) | Finding::Placed(..) => {
                Class::Degraded
            }
            Finding::Foreign
            | Finding::Nothing
            | Finding::Truncated
            | Finding::Open
            | Finding::Apart(_)
            | Finding::Sockets(_) => Class::Unknown,
            Finding::Healthy => Class::Healthy,
        }
    }

    pub(super) fn is_hang(&self) -> bool {
        self.class() == Class::Hang
    }
}

impl<'a> Case<'a> {
    /// The first rule that holds.
    pub(super) fn judge(&self) -> Finding<'a> {
        let (log, runs) = (self.log, &self.log.runs);
        let corrupt = |run: &Run| {
            run.wrong().is_some_and(|wrong| wrong > 0) || run.out_of_bounds.is_some_and(|n| n > 0)
        };
        if runs.iter().any(corrupt) {
            return Finding::Corrupt;
        }
        if !log.errors.is_empty() {
            return Finding::Said;
        }
        if log.timed_out.is_some() {
            return Finding::Stalled;
        }
        let below = runs.iter().find(|run| run.below_limit);
        match self.known.end() {
            End::Killed => return Finding::Killed,
            End::Failed if below.is_none() => return Finding::Silent,
            End::Failed | End::Unknown | End::Well | End::Interrupted => {}
        }
        if !log.recognised && !self.empty {
            return Finding::Foreign;
        }
        let measured = || runs.iter().filter(|run| !run.rows.is_empty());
        if let Some(row) = runs.iter().flat_map(|run| &run.rows).find(|row| is_negative(row)) {
            return Finding::Negative(row);
        }
        if let Some(first) = measured().next()
            && measured().all(|run| run.ranks() == Some(1))
        {
            return Finding::Alone(first);
        }
        let slow = measured().find_map(|run| {
            let ratio = rows::expect_ratio(run, self.known.expect)?;
            (ratio < EXPECTED).then_some(Finding::Slow(run, ratio))
        });
        if let Some(slow) = slow {
            return slow;
        }
        if let Some(run) = below {
            return Finding::Limit(run);
        }
        if let Some(fall) = runs.iter().find_map(fall) {
            return Finding::Fallen(fall);
        }
        if let Some((unequal, equal)) = placed(runs) {
            return Finding::Placed(unequal, equal);
        }
        if self.truncated {
            return Finding::Truncated;
        }
        let figure = |run: &Run| {
            run.rows
                .iter()
                .any(|row| row.is_usable() && row.halves().into_iter().any(|half| half.busbw.is_some()))
        };
        if !runs.iter().any(figure) {
            return Finding::Nothing;
        }
        if !self.complete() {
            return Finding::Open;
        }
        if let Some(apart) = farthest_apart(runs).filter(|apart| apart.ratio < APART) {
            return Finding::Apart(apart);
        }
        let sockets = |run: &&Run| run.hosts().is_some_and(|hosts| hosts > 1) && run.rdma == Some(false);
        match runs.iter().find(sockets) {
            Some(run) => Finding::Sockets(run),
            None => Finding::Healthy,
        }
    }
}

fn is_negative(row: &Row) -> bool {
    let below = |value: Option<f64>| value.is_some_and(|value| value < 0.0);
    let half = |half: &Half| {
        below(half.time)
            || below(half.algbw)
            || below(half.busbw)
            || half.wrong.is_some_and(|wrong| wrong < 0)
    };
    row.size.is_some_and(|size| size < 0)
        || row.count.is_some_and(|count| count < 0)
        || row.halves().into_iter().any(half)
}

/// The first size, from small to large, that is far below a smaller one.
pub(super) fn fall(run: &Run) -> Option<Fall<'_>> {
    let mut rows: Vec<(&Row, i64, f64)> = run
        .rows
        .iter()
        .filter_map(|row| Some((row, row.size?, row.busbw()?)))
        .filter(|(_, size, _)| *size >= LARGE)
        .collect();
    rows.sort_by_key(|(_, size, _)| *size);
    let (first, ..) = rows.first()?;
    let (mut best, mut most, mut last_good): (&Row, f64, &Row) = (*first, 0.0, *first);
    for (at, (row, size, busbw)) in rows.iter().enumerate() {
        let smaller = best.size.is_some_and(|best| best < *size);
        if smaller && most >= LEAST && *busbw < FALLEN * most {
            let lasts = rows[at..].iter().all(|(_, _, later)| *later < FALLEN * most);
            return Some(Fall { row, best, last_good, lasts });
        }
        last_good = row;
        if *busbw > most {
            (best, most) = (row, *busbw);
        }
    }
    None
}

/// Of two runs on the same hosts, one with unequal ranks on them and one with equal: their peaks,
/// where the first is far below.
fn placed(runs: &[Run]) -> Option<(f64, f64)> {
    let hosts = |run: &Run| run.ranks_of.keys().cloned().collect::<Vec<String>>();
    let equal = |run: &Run| run.ranks_of.values().all(|ranks| Some(ranks) == run.ranks_of.values().next());
    let several = || runs.iter().filter(|run| run.ranks_of.len() > 1);
    let mut best: BTreeMap<Vec<String>, f64> = BTreeMap::new();
    for run in several().filter(|run| equal(run)) {
        let Some((_, _, peak)) = run.peak() else { continue };
        let known = best.entry(hosts(run)).or_default();
        *known = known.max(peak);
    }
    several().filter(|run| !equal(run)).find_map(|run| {
        let (low, high) = (run.peak()?.2, *best.get(&hosts(run))?);
        (low < PLACED * high).then_some((low, high))
    })
}

/// Runs that can be compared: the collective, its ranks, and those of each host.
type Parts = (Option<String>, Option<u32>, BTreeMap<String, u32>);

/// Where runs of the same collective, hosts and ranks differ most.
pub(super) fn farthest_apart(runs: &[Run]) -> Option<Apart> {
    // The lowest and the highest figure of each size, and how many runs have it.
    let mut groups: BTreeMap<Parts, BTreeMap<i64, (f64, f64, usize)>> = BTreeMap::new();
    for run in runs {
        let sizes: BTreeMap<i64, f64> = run
            .rows
            .iter()
            .filter(|row| row.is_usable())
            .filter_map(|row| Some((row.size?, row.busbw()?)))
            .collect();
        let group = groups.entry((run.test.clone(), run.ranks(), run.ranks_of.clone())).or_default();
        for (size, busbw) in sizes {
            let (low, high, count) = group.entry(size).or_insert((busbw, busbw, 0));
            (*low, *high, *count) = (low.min(busbw), high.max(busbw), *count + 1);
        }
    }
    let sizes = groups.values().flatten().filter(|(_, (_, high, count))| *count > 1 && *high > 0.0);
    let apart =
        sizes.map(|(size, (low, high, _))| Apart { size: *size, ratio: low / high, figures: (*low, *high) });
    apart.min_by(|a, b| a.ratio.total_cmp(&b.ratio))
}
