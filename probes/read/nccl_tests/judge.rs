//! What a log says of what was measured: the first rule that holds.
//!
//! Wrong data outweighs an error, an error a hang, and so on down to healthy, which only says that
//! none of the others holds.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::{Class, End},
    Case, Content, rows,
};
use crate::nccl_tests::{Row, Run};

/// Below this part of what is expected a run is degraded.
const EXPECTED: f64 = 0.9;
/// Below this part of the best at smaller sizes a size has fallen.
const FALLEN: f64 = 0.5;
/// Smaller messages measure latency, and change of protocol from size to size.
const LARGE: i128 = 1 << 20;
/// Bandwidths below this, in GB/s, have too few digits to be compared.
const LEAST: f64 = 0.1;
/// Two runs whose lower figure is below this part of the higher one can't both be right.
const APART: f64 = 0.75;

/// The rule that holds, and what it holds of.
#[derive(Debug)]
pub(super) enum Finding<'a> {
    Corrupt(&'a Run),
    /// An error text.
    Said,
    /// The tool's watchdog.
    Stalled,
    /// Ended from outside.
    Killed,
    /// Failed without a text.
    Silent,
    Negative(&'a Row),
    /// One rank in every run.
    Alone(&'a Run),
    /// A bus bandwidth of 0 beside others that are not.
    Zero(&'a Run),
    /// Slower than expected.
    Slow(&'a Run, f64),
    /// The operator's limit was missed.
    Limit(&'a str),
    Cliff(&'a Run, Fall),
    Dip(&'a Run, Fall),
    Placed(Placed),
    Foreign,
    Truncated,
    Nothing,
    Open,
    Apart(Apart<'a>),
    /// More hosts than one, and no RDMA.
    Tcp(&'a Run),
    Healthy,
}

/// A size that is far below a smaller one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fall {
    pub size: i128,
    pub busbw: f64,
    /// The size before it, and its figure.
    pub before: i128,
    pub at_before: f64,
    pub best: f64,
}

/// The falls of a run: those that larger sizes recover from, and the one that lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Falls {
    pub cliff: Option<Fall>,
    pub dip: Option<Fall>,
}

/// Two runs on the same hosts, of which one has its ranks placed unevenly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Placed {
    pub even: f64,
    pub uneven: f64,
    /// Most and fewest ranks of a host.
    pub ranks: (usize, usize),
}

/// Two runs over the same parts, at the size where they differ most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Apart<'a> {
    pub run: &'a Run,
    pub size: i128,
    /// Lower by higher.
    pub ratio: f64,
    /// The two figures, in GB/s.
    pub figures: (f64, f64),
}

impl Finding<'_> {
    pub(super) fn class(&self) -> Class {
        match self {
            Finding::Corrupt(_) => Class::Corrupt,
            Finding::Said | Finding::Silent => Class::Error,
            Finding::Stalled | Finding::Killed => Class::Hang,
            Finding::Negative(_) | Finding::Alone(_) | Finding::Zero(_) => Class::InvalidRun,
            Finding::Slow(..)
            | Finding::Limit(_)
            | Finding::Cliff(..)
            | Finding::Dip(..)
            | Finding::Placed(_) => Class::Degraded,
            Finding::Foreign
            | Finding::Truncated
            | Finding::Nothing
            | Finding::Open
            | Finding::Apart(_)
            | Finding::Tcp(_) => Class::Unknown,
            Finding::Healthy => Class::Healthy,
        }
    }
}

impl<'a> Case<'a> {
    /// The first rule that holds.
    pub(super) fn judge(&self) -> Finding<'a> {
        let (log, runs) = (self.log, &self.log.runs);
        let corrupt = |run: &&Run| !run.bad_sizes().is_empty() || run.out_of_bounds.is_some_and(|n| n > 0);
        if let Some(run) = runs.iter().find(corrupt) {
            return Finding::Corrupt(run);
        }
        if log.fault.failed() {
            return Finding::Said;
        }
        if self.content == Content::Foreign {
            return Finding::Foreign;
        }
        if log.fault.stalled.is_some() {
            return Finding::Stalled;
        }
        match self.known.end() {
            End::Killed if !self.endless => return Finding::Killed,
            End::Failed if log.fault.limit.is_none() => return Finding::Silent,
            End::Killed | End::Failed | End::Unknown | End::Well | End::Interrupted => {}
        }
        if let Some(finding) = self.invalid().or_else(|| self.degraded()) {
            return finding;
        }
        if self.truncated {
            return Finding::Truncated;
        }
        let has_time = |row: &Row| row.halves().iter().any(|half| half.time.is_some_and(|time| time > 0.0));
        if !runs.iter().any(|run| run.usable().any(has_time)) {
            return Finding::Nothing;
        }
        if !self.complete() {
            return Finding::Open;
        }
        if let Some(apart) = farthest_apart(runs).filter(|apart| apart.ratio < APART) {
            return Finding::Apart(apart);
        }
        let tcp = |run: &&Run| run.rdma == Some(false) && run.hosts().is_some_and(|hosts| hosts > 1);
        runs.iter().find(tcp).map_or(Finding::Healthy, Finding::Tcp)
    }

    /// Figures that measure nothing.
    fn invalid(&self) -> Option<Finding<'a>> {
        let runs = &self.log.runs;
        let mut rows = runs.iter().flat_map(|run| &run.rows);
        if let Some(row) = rows.find(|row| is_negative(row)) {
            return Some(Finding::Negative(row));
        }
        let run = runs.iter().find(|run| !run.rows.is_empty())?;
        if runs.iter().all(|run| run.nranks() == Some(1)) {
            return Some(Finding::Alone(run));
        }
        runs.iter().find(|run| is_zero(run)).map(Finding::Zero)
    }

    fn degraded(&self) -> Option<Finding<'a>> {
        let runs = &self.log.runs;
        let slow = runs.iter().find_map(|run| {
            let ratio = rows::expect_ratio(run, self.known.expect)?;
            (ratio < EXPECTED).then_some(Finding::Slow(run, ratio))
        });
        let limit = || self.log.fault.limit.as_deref().map(Finding::Limit);
        let fallen = || {
            runs.iter().find_map(|run| {
                let Falls { cliff, dip } = falls(run);
                cliff.map(|fall| Finding::Cliff(run, fall)).or(dip.map(|fall| Finding::Dip(run, fall)))
            })
        };
        slow.or_else(limit).or_else(fallen).or_else(|| placed(runs).map(Finding::Placed))
    }
}

fn is_negative(row: &Row) -> bool {
    let counts = [row.size, row.count, row.out_of_place.wrong, row.in_place.wrong];
    let figures = row.halves().into_iter().flat_map(|half| [half.time, half.algbw, half.busbw]);
    counts.into_iter().flatten().any(|count| count < 0) || figures.flatten().any(|figure| figure < 0.0)
}

/// Whether the algorithm has a bandwidth and the bus has none in every row, which is so for one rank.
fn is_zero(run: &Run) -> bool {
    let halves = || run.usable().flat_map(Row::halves);
    halves().any(|half| half.algbw.is_some_and(|algbw| algbw >= LEAST))
        && halves().any(|half| half.busbw.is_some())
        && halves().all(|half| half.busbw.is_none_or(|busbw| busbw == 0.0))
}

/// What must be the same for two rows to be compared by size.
type Alike<'a> = (Option<&'a str>, Option<&'a str>, Option<i128>, Option<&'a str>, Option<&'a str>);

fn alike(row: &Row) -> Alike<'_> {
    (row.kind.as_deref(), row.redop.as_deref(), row.root, row.algo.as_deref(), row.proto.as_deref())
}

/// Sizes below half of the best at smaller ones.
pub(super) fn falls(run: &Run) -> Falls {
    let mut groups: BTreeMap<(usize, Alike<'_>), Vec<(i128, f64)>> = BTreeMap::new();
    for row in &run.rows {
        if let Some((size, busbw)) = row.size.zip(row.busbw()).filter(|(size, _)| *size >= LARGE) {
            groups.entry((row.file, alike(row))).or_default().push((size, busbw));
        }
    }
    let mut all = Falls::default();
    for mut rows in groups.into_values() {
        rows.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let Falls { cliff, dip } = of_sizes(&rows);
        all.cliff = all.cliff.or(cliff);
        all.dip = all.dip.or(dip);
    }
    all
}

/// The falls of sizes in rising order; equal sizes may follow each other.
fn of_sizes(rows: &[(i128, f64)]) -> Falls {
    // The best of all smaller sizes, and the size before.
    let (mut best, mut before): (f64, Option<(i128, f64)>) = (0.0, None);
    let (mut open, mut falls) = (None, Falls::default());
    for same in rows.chunk_by(|a, b| a.0 == b.0) {
        let size = same[0].0;
        let fallen = same.iter().find(|(_, busbw)| best >= LEAST && *busbw < FALLEN * best);
        match (fallen, before) {
            (Some((_, busbw)), Some((before, at_before))) => {
                open = open.or(Some(Fall { size, busbw: *busbw, before, at_before, best }));
            }
            (None, _) | (Some(_), None) => falls.dip = falls.dip.or(open.take()),
        }
        // The highest comes first.
        best = best.max(same[0].1);
        before = Some((size, same[0].1));
    }
    falls.cliff = open;
    falls
}

/// Of two runs on the same hosts, the one with an unequal number of ranks on each that is far below
/// one with an equal number.
fn placed(runs: &[Run]) -> Option<Placed> {
    let mut even: BTreeMap<(Option<&str>, Vec<&str>), f64> = BTreeMap::new();
    let mut uneven = Vec::new();
    for run in runs {
        let ranks = run.ranks_per_host();
        let (Some(most), Some(fewest), Some(peak)) =
            (ranks.values().max(), ranks.values().min(), run.peak_busbw())
        else {
            continue;
        };
        let key = (run.test.as_deref(), ranks.keys().copied().collect());
        if most == fewest {
            let known = even.entry(key).or_insert(peak);
            *known = known.max(peak);
        } else {
            uneven.push((key, peak, (*most, *fewest)));
        }
    }
    uneven.into_iter().find_map(|(key, peak, ranks)| {
        let even = *even.get(&key)?;
        (peak < APART * even).then_some(Placed { even, uneven: peak, ranks })
    })
}

/// Where two runs over the same parts differ most, if they differ.
pub(super) fn farthest_apart(runs: &[Run]) -> Option<Apart<'_>> {
    type Parts<'a> = (Option<&'a str>, BTreeSet<&'a str>, Option<u64>, Option<u64>);
    // Of each collective on the same hosts, the lowest and highest figure at each size.
    let mut numbers: BTreeMap<Parts<'_>, usize> = BTreeMap::new();
    let mut seen: BTreeMap<(usize, Alike<'_>, i128), (f64, f64, &Run)> = BTreeMap::new();
    if runs.len() < 2 {
        return None;
    }
    for run in runs {
        let hosts = run.ranks_per_host().into_keys().collect();
        let parts: Parts<'_> = (run.test.as_deref(), hosts, run.hosts(), run.nranks());
        let next = numbers.len();
        let number = *numbers.entry(parts).or_insert(next);
        let mut best: BTreeMap<(Alike<'_>, i128), f64> = BTreeMap::new();
        for row in run.usable() {
            if let Some((size, busbw)) = row.size.zip(row.busbw()) {
                let known = best.entry((alike(row), size)).or_insert(busbw);
                *known = known.max(busbw);
            }
        }
        for ((alike, size), busbw) in best {
            let range = seen.entry((number, alike, size)).or_insert((busbw, busbw, run));
            (range.0, range.1) = (range.0.min(busbw), range.1.max(busbw));
        }
    }
    let apart = seen.into_iter().filter(|(_, (low, high, _))| *high >= LEAST && low < high);
    let apart = apart.map(|((.., size), (low, high, run))| Apart {
        run,
        size,
        ratio: low / high,
        figures: (low, high),
    });
    apart.min_by(|a, b| a.ratio.total_cmp(&b.ratio).then(a.size.cmp(&b.size)))
}
