//! What a log says of what was measured: the first rule that holds.
//!
//! Wrong data outweighs an error, an error a hang, and so on down to healthy, which only says that
//! none of the others holds.

use std::collections::{BTreeMap, HashMap};

use super::{
    super::{Class, End},
    Case, Content, rows,
};
use crate::perftest::{Check, Command, Log, Row, Run, Section};

/// Below this part of what is expected a run is degraded.
const EXPECTED: f64 = 0.9;
/// Below this part of the best before it a size or an interval has fallen.
const FALLEN: f64 = 0.5;
/// Smaller messages measure the CPU and vary from size to size.
const LARGE: i128 = 65_536;
/// Below this part of the average a minimum tells of an uneven rate.
const UNEVEN: f64 = 0.75;
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
    Invalid(&'a Run, Option<&'a Row>, Invalid),
    /// Slower than expected.
    Slow(&'a Run, f64),
    /// The operator's limit was missed.
    Limit,
    Fallen(Fall<'a>),
    Uneven(&'a Run, &'a Row),
    Foreign,
    Nothing,
    Truncated,
    Open,
    Apart(Apart<'a>),
    NoUnit(&'a Run),
    Healthy,
}

/// Why a figure measures nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Invalid {
    Negative,
    Zero,
    NoUnitFits,
}

/// A size or an interval that is far below an earlier one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fall<'a> {
    pub run: &'a Run,
    pub row: &'a Row,
    pub best: &'a Row,
}

/// Two runs over the same parts, at the size where they differ most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Apart<'a> {
    pub run: &'a Run,
    pub size: i128,
    /// Lower by higher.
    pub ratio: f64,
    /// The two figures, in the run's unit.
    pub figures: (f64, f64),
}

impl Finding<'_> {
    pub(super) fn class(&self) -> Class {
        match self {
            Finding::Corrupt => Class::Corrupt,
            Finding::Said | Finding::Silent => Class::Error,
            Finding::Stalled | Finding::Killed => Class::Hang,
            Finding::Invalid(..) => Class::InvalidRun,
            Finding::Slow(..) | Finding::Limit | Finding::Fallen(_) | Finding::Uneven(..) => Class::Degraded,
            Finding::Foreign
            | Finding::Nothing
            | Finding::Truncated
            | Finding::Open
            | Finding::Apart(_)
            | Finding::NoUnit(_) => Class::Unknown,
            Finding::Healthy => Class::Healthy,
        }
    }
}

impl<'a> Case<'a> {
    /// The first rule that holds.
    pub(super) fn judge(&self) -> Finding<'a> {
        let (log, runs) = (self.log, &self.log.runs);
        if log.fault.corrupt.is_some() {
            return Finding::Corrupt;
        }
        if log.fault.failed() {
            return Finding::Said;
        }
        if self.content == Content::Foreign {
            return Finding::Foreign;
        }
        if log.fault.stalled {
            return Finding::Stalled;
        }
        let forever = log.command.as_ref().is_some_and(|command: &Command| command.infinite)
            || runs.iter().any(|run| run.repeats);
        match self.known.end() {
            End::Killed if !forever => return Finding::Killed,
            End::Failed if log.fault.limit.is_none() => return Finding::Silent,
            End::Killed | End::Failed | End::Unknown | End::Well | End::Interrupted => {}
        }
        if let Some(invalid) = runs.iter().find_map(invalid) {
            return invalid;
        }
        if let Some(degraded) = self.degraded() {
            return degraded;
        }
        if self.truncated {
            return Finding::Truncated;
        }
        if !runs.iter().any(|run| run.rows.iter().any(has_figure)) {
            return Finding::Nothing;
        }
        if !self.complete() {
            return Finding::Open;
        }
        if let Some(apart) = farthest_apart(runs).filter(|apart| apart.ratio < APART) {
            return Finding::Apart(apart);
        }
        let unitless = |run: &&Run| run.unit.is_none() && run.rows.iter().any(|row| row.average.is_some());
        match runs.iter().find(unitless) {
            Some(run) => Finding::NoUnit(run),
            None => Finding::Healthy,
        }
    }

    fn degraded(&self) -> Option<Finding<'a>> {
        let runs = &self.log.runs;
        let slow = runs.iter().find_map(|run| {
            let ratio = rows::expect_ratio(run, self.known.expect)?;
            (ratio < EXPECTED).then_some(Finding::Slow(run, ratio))
        });
        slow.or_else(|| self.log.fault.limit.is_some().then_some(Finding::Limit))
            .or_else(|| runs.iter().find_map(fallen).map(Finding::Fallen))
            .or_else(|| runs.iter().find_map(uneven))
    }
}

/// Whether a row holds anything that was measured.
fn has_figure(row: &Row) -> bool {
    let bandwidth = row.average.is_some_and(|average| average.printed > 0.0);
    let rate = row.rate.is_some_and(|rate| rate > 0.0);
    bandwidth || rate || row.times.typical.or(row.times.average).is_some() || row.transactions.is_some()
}

/// Figures that measure nothing.
fn invalid(run: &Run) -> Option<Finding<'_>> {
    for row in &run.rows {
        // An unsigned counter that has gone below zero prints as a number near 2^64.
        let counts = [row.size, row.iterations];
        let wrapped = counts.into_iter().flatten().any(|n| n < 0 || n > i128::from(i64::MAX));
        let bandwidths = [row.average, row.peak, row.minimum];
        let times = [row.times.min, row.times.typical, row.times.average];
        let negative = bandwidths.iter().chain(&times).flatten().any(|figure| figure.printed < 0.0)
            || row.rate.is_some_and(|rate| rate < 0.0);
        if wrapped || negative {
            return Some(Finding::Invalid(run, Some(row), Invalid::Negative));
        }
        let zero = row.average.is_some_and(|average| average.printed == 0.0) && row.rate == Some(0.0);
        if zero && row.iterations.is_some_and(|iterations| iterations > 0) {
            return Some(Finding::Invalid(run, Some(row), Invalid::Zero));
        }
    }
    let odd = run.check == Some(Check::FitsNeither);
    odd.then(|| Finding::Invalid(run, run.best(), Invalid::NoUnitFits))
}

/// The first size or interval that is below half of the best before it.
fn fallen(run: &Run) -> Option<Fall<'_>> {
    let mut bests: HashMap<(usize, Option<u8>), &Row> = HashMap::new();
    let large = run.rows.iter().filter(|row| row.size.is_some_and(|size| size >= LARGE));
    for row in large {
        let Some(average) = run.one_way(row) else { continue };
        let section = row.section.map(|section| match section {
            Section::Total => 0,
            Section::Local => 1,
            Section::Remote => 2,
        });
        let best = bests.entry((row.file, section)).or_insert(row);
        let before = run.one_way(best).unwrap_or(0.0);
        let later = best.size < row.size || best.interval < row.interval;
        if later && average < FALLEN * before {
            return Some(Fall { run, row, best });
        }
        if average > before {
            *best = row;
        }
    }
    None
}

fn uneven(run: &Run) -> Option<Finding<'_>> {
    let row = run.rows.iter().find(|row| {
        let large = row.size.is_some_and(|size| size >= LARGE);
        let pair = row.minimum.zip(row.average);
        large && pair.is_some_and(|(minimum, average)| minimum.printed < UNEVEN * average.printed)
    })?;
    Some(Finding::Uneven(run, row))
}

/// What is compared at a size: one direction's bandwidth, or the typical latency, in base units.
fn figure(run: &Run, row: &Row) -> Option<f64> {
    if matches!(row.section, Some(Section::Local | Section::Remote)) {
        return None;
    }
    let figure =
        if run.is_latency() { row.times.typical.or(row.times.average)?.printed } else { run.one_way(row)? };
    (figure > 0.0).then_some(figure)
}

/// The best figure of each size.
fn by_size(run: &Run) -> BTreeMap<i128, f64> {
    let mut best = BTreeMap::new();
    for row in &run.rows {
        if let Some((size, figure)) = row.size.zip(figure(run, row)) {
            let known = best.entry(size).or_insert(figure);
            let better = if run.is_latency() { figure < *known } else { figure > *known };
            if better {
                *known = figure;
            }
        }
    }
    best
}

/// Where two runs of the same test over the same device differ most, if they differ.
pub(super) fn farthest_apart(runs: &[Run]) -> Option<Apart<'_>> {
    type Range<'a> = (f64, f64, &'a Run);
    // Of each device and test, the lowest and highest figure at each size.
    let mut seen: BTreeMap<_, Range<'_>> = BTreeMap::new();
    for run in runs {
        for (size, figure) in by_size(run) {
            // In base units where there are some: the runs may be printed in different ones.
            let base = run.unit.and_then(|unit| unit.base(figure)).unwrap_or(figure);
            let key = (&run.device, &run.test, size);
            let range = seen.entry(key).or_insert((base, base, run));
            (range.0, range.1) = (range.0.min(base), range.1.max(base));
        }
    }
    let apart = seen.into_iter().map(|((.., size), (low, high, run))| Apart {
        run,
        size,
        ratio: low / high,
        figures: (low, high),
    });
    let differ = apart.filter(|apart| apart.ratio < 1.0);
    differ.min_by(|a, b| a.ratio.total_cmp(&b.ratio).then(a.size.cmp(&b.size)))
}

/// After an error: the size of the last row, and the one that failed if sizes were doubling.
pub(super) fn failing(log: &Log) -> Option<(i128, Option<i128>)> {
    if !log.fault.failed() && !log.fault.stalled {
        return None;
    }
    let sizes: Vec<i128> = log.last()?.rows.iter().filter_map(|row| row.size).collect();
    let last = *sizes.last()?;
    let before = sizes.len().checked_sub(2).map(|at| sizes[at]);
    let doubled = before.is_some_and(|before| before.checked_mul(2) == Some(last));
    Some((last, doubled.then(|| last.checked_mul(2)).flatten()))
}
