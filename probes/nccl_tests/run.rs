//! One run: who took part, its rows, and what follows from them.

use std::collections::{BTreeMap, BTreeSet};

/// What one run printed. Bandwidths are 10^9 byte/s.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// `all_reduce_perf` ..
    pub test: Option<String>,
    /// The release of the tests.
    pub version: Option<String>,
    /// Which last column the table has.
    pub layout: Option<Layout>,
    /// The ranks that the header lists.
    pub ranks: Vec<Rank>,
    /// The list of ranks was cut by the program.
    pub ranks_cut: bool,
    /// Ranks of one process: threads times GPUs.
    pub ranks_per_process: Option<u64>,
    /// Ranks that the header of JSON or a row of CSV tells of.
    pub told_ranks: Option<u64>,
    /// Nodes that a row of CSV tells of.
    pub told_hosts: Option<u64>,
    /// The first size that was asked for, in bytes.
    pub min_bytes: Option<u64>,
    /// The last size that was asked for, in bytes.
    pub max_bytes: Option<u64>,
    /// How sizes follow each other.
    pub step: Option<Step>,
    /// Whether results are compared, as the header says.
    pub validation: Option<bool>,
    /// Whether RDMA was used, as NCCL's own lines say.
    pub rdma: Option<bool>,
    /// In input order.
    pub rows: Vec<Row>,
    /// Column headers seen, or closed objects of JSON and CSV.
    pub tables: usize,
    /// Footers seen.
    pub footers: usize,
    /// A line that is nearly a row could not be read.
    pub odd: bool,
    /// Checks that failed, by the footers; not a count of elements.
    pub out_of_bounds: Option<u64>,
    /// The footer's plain mean over all rows and halves, in GB/s.
    pub average: Option<f64>,
}

/// The last column of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `error`: the largest deviation.
    Old,
    /// `#wrong`: a count of elements.
    New,
}

/// How sizes follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Each is a multiple of the one before.
    Factor(u64),
    /// Each is larger by this many bytes.
    Bytes(u64),
}

/// A line of the header: a rank and its device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rank {
    /// Its number.
    pub rank: u64,
    /// The process.
    pub pid: Option<u64>,
    /// The host's name, as printed.
    pub host: String,
    /// The GPU's number on its host.
    pub device: Option<u64>,
    /// The PCI address or bus number, as printed between brackets.
    pub bus: Option<String>,
    /// The GPU's name.
    pub name: Option<String>,
}

/// One size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Bytes.
    pub size: Option<i128>,
    /// Elements.
    pub count: Option<i128>,
    /// The data type.
    pub kind: Option<String>,
    /// The reduction; `none` as printed.
    pub redop: Option<String>,
    /// The root; -1 as printed.
    pub root: Option<i128>,
    /// Input and output in two buffers.
    pub out_of_place: Half,
    /// Input and output in one buffer.
    pub in_place: Half,
    /// What NCCL chose, if rccl-tests tells.
    pub algo: Option<String>,
    /// See `algo`.
    pub proto: Option<String>,
    /// See `algo`.
    pub channels: Option<i128>,
    /// The number of the text that holds it.
    pub file: usize,
}

/// The figures of one of a row's two measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Half {
    /// Microseconds, the mean over ranks and iterations.
    pub time: Option<f64>,
    /// Microseconds by HIP events.
    pub event_time: Option<f64>,
    /// GB/s by size and time.
    pub algbw: Option<f64>,
    /// GB/s of the busiest link, by the collective's formula.
    pub busbw: Option<f64>,
    /// Wrong elements.
    pub wrong: Option<i128>,
    /// The largest deviation.
    pub deviation: Option<f64>,
}

impl Half {
    fn is_checked(&self) -> bool {
        self.wrong.is_some() || self.deviation.is_some()
    }
}

impl Row {
    /// Both measurements, out-of-place first.
    pub fn halves(&self) -> [&Half; 2] {
        [&self.out_of_place, &self.in_place]
    }

    /// GB/s that a size is judged by: out-of-place, or in-place where only that exists.
    pub fn busbw(&self) -> Option<f64> {
        self.out_of_place.busbw.or(self.in_place.busbw)
    }

    /// Rounding can make a size 0; such a row measures nothing.
    pub fn is_usable(&self) -> bool {
        self.size.is_some_and(|size| size > 0)
    }

    /// The higher bus bandwidth of both halves, with its half.
    fn best(&self) -> Option<(f64, &Half)> {
        let halves = self.halves().into_iter().filter_map(|half| Some((half.busbw?, half)));
        halves.max_by(|a, b| a.0.total_cmp(&b.0))
    }
}

impl Run {
    /// Rows that measure something: of the first text that has rows, so that none counts twice.
    pub fn usable(&self) -> impl Iterator<Item = &Row> {
        self.own_rows().filter(|row| row.is_usable())
    }

    /// Rows of the first text that has any.
    pub fn own_rows(&self) -> impl Iterator<Item = &Row> {
        let file = self.rows.first().map(|row| row.file);
        self.rows.iter().filter(move |row| Some(row.file) == file)
    }

    /// How many ranks took part.
    pub fn nranks(&self) -> Option<u64> {
        if let Some(last) = self.ranks.iter().map(|rank| rank.rank).max() {
            let listed = last.checked_add(1)?;
            let processes: BTreeSet<_> = self.ranks.iter().map(|rank| (&rank.host, rank.pid)).collect();
            let told = self.ranks_per_process.and_then(|each| each.checked_mul(processes.len() as u64));
            return Some(if self.ranks_cut { told.unwrap_or(listed).max(listed) } else { listed });
        }
        self.told_ranks.or_else(|| self.derived_ranks())
    }

    /// Ranks by a size that is the whole of all ranks', and a count that is one rank's.
    fn derived_ranks(&self) -> Option<u64> {
        let row = self.usable().max_by_key(|row| row.size)?;
        let each = i128::from(super::line::element_size(row.kind.as_deref()?)?).checked_mul(row.count?)?;
        let size = row.size?;
        let ranks = size.checked_div(each)?;
        (ranks > 1 && ranks.checked_mul(each) == Some(size)).then(|| u64::try_from(ranks).ok()).flatten()
    }

    /// The distinct hosts of the ranks, with how many each has.
    pub fn ranks_per_host(&self) -> BTreeMap<&str, usize> {
        let mut hosts = BTreeMap::new();
        for rank in &self.ranks {
            *hosts.entry(rank.host.as_str()).or_default() += 1;
        }
        hosts
    }

    /// How many hosts took part.
    pub fn hosts(&self) -> Option<u64> {
        let hosts = self.ranks_per_host().len() as u64;
        if hosts > 0 { Some(hosts) } else { self.told_hosts }
    }

    /// Programs that print through each other, all of one rank: started by MPI, built without it.
    pub fn copies(&self) -> Option<usize> {
        let alone = self.ranks.iter().all(|rank| rank.rank == 0);
        (alone && self.ranks.len() > 1).then_some(self.ranks.len())
    }

    /// How many programs print through each other, also of more ranks than one: each has a rank 0.
    pub fn side_by_side(&self) -> usize {
        self.ranks.iter().filter(|rank| rank.rank == 0).count()
    }

    /// The row with the highest bus bandwidth of both halves; none if that is 0.
    pub fn peak(&self) -> Option<(&Row, &Half)> {
        let rows = self.usable().filter_map(|row| row.best().map(|(busbw, half)| (busbw, row, half)));
        let peak = rows.fold(None, |best: Option<(f64, &Row, &Half)>, row| match best {
            Some(best) if best.0 >= row.0 => Some(best),
            Some(_) | None => Some(row),
        });
        peak.filter(|(busbw, ..)| *busbw > 0.0).map(|(_, row, half)| (row, half))
    }

    /// The highest bus bandwidth, in GB/s.
    pub fn peak_busbw(&self) -> Option<f64> {
        self.peak()?.1.busbw
    }

    /// Bus bandwidth by algorithm bandwidth at the peak: what the collective's formula makes of the
    /// number of ranks.
    pub fn factor(&self) -> Option<f64> {
        let half = self.peak()?.1;
        let (busbw, algbw) = (half.busbw?, half.algbw.filter(|algbw| *algbw > 0.0)?);
        let ratio = busbw / algbw;
        #[expect(clippy::cast_precision_loss, reason = "ranks are far below 2^52")]
        let part = self.nranks().map(|n| (n as f64 - 1.0) / n as f64);
        let known = [Some(1.0), part, part.map(|part| 2.0 * part)].into_iter().flatten();
        let nearest = known.min_by(|a, b| (a - ratio).abs().total_cmp(&(b - ratio).abs()));
        match nearest.filter(|known| (known - ratio).abs() <= 0.02 * known) {
            Some(known) => Some(known),
            // Two digits of small figures tell nothing.
            None => (algbw >= 1.0).then_some(ratio),
        }
    }

    /// Whether results were compared; none if there is nothing to tell from.
    pub fn validated(&self) -> Option<bool> {
        if self.validation == Some(false) {
            return Some(false);
        }
        let checked = || self.rows.iter().any(|row| row.halves().iter().any(|half| half.is_checked()));
        (!self.rows.is_empty()).then(checked)
    }

    /// Wrong elements of all rows; none if none was compared.
    pub fn wrong_total(&self) -> Option<i128> {
        let first = |row: &&Row| row.halves().iter().any(|half| half.wrong.is_some());
        let file = self.rows.iter().filter(|row| row.is_usable()).find(first)?.file;
        let rows = self.rows.iter().filter(|row| row.file == file && row.is_usable());
        let counts = rows.flat_map(Row::halves).filter_map(|half| half.wrong);
        Some(counts.fold(0, i128::saturating_add))
    }

    /// Sizes with wrong elements, each once.
    pub fn bad_sizes(&self) -> Vec<i128> {
        let bad = |row: &&Row| row.halves().iter().any(|half| half.wrong.is_some_and(|wrong| wrong > 0));
        let sizes: BTreeSet<i128> =
            self.rows.iter().filter(|row| row.is_usable()).filter(bad).filter_map(|row| row.size).collect();
        sizes.into_iter().collect()
    }

    /// The smallest out-of-place time, in microseconds.
    pub fn min_latency(&self) -> Option<f64> {
        self.usable().filter_map(|row| row.out_of_place.time).min_by(f64::total_cmp)
    }

    /// The size of the last row.
    pub fn last_size(&self) -> Option<i128> {
        self.usable().filter_map(|row| row.size).last()
    }

    /// The size after the last row, which is the one that a run hangs at.
    pub fn next_size(&self) -> Option<i128> {
        let Some(last) = self.last_size() else { return self.min_bytes.map(i128::from) };
        // Some collectives round a size down, so the one asked for is the next of the sweep.
        let min = self.min_bytes.filter(|min| *min > 0).map_or(last, i128::from);
        let next = match self.step {
            Some(Step::Factor(factor)) if factor > 1 => {
                let factor = i128::from(factor);
                let mut asked = min;
                while asked < last {
                    asked = asked.checked_mul(factor)?;
                }
                asked.checked_mul(factor)?
            }
            Some(Step::Bytes(step)) if step > 0 => {
                let step = i128::from(step);
                let steps = last.checked_sub(min)?.max(0).checked_add(step - 1)? / step;
                min.checked_add(steps.checked_add(1)?.checked_mul(step)?)?
            }
            Some(Step::Factor(_) | Step::Bytes(_)) | None => self.by_last_two()?,
        };
        self.max_bytes.is_none_or(|max| next <= i128::from(max)).then_some(next)
    }

    /// The next size, as the last two follow each other.
    fn by_last_two(&self) -> Option<i128> {
        let sizes: Vec<i128> = self.usable().filter_map(|row| row.size).collect();
        let (last, before) = (*sizes.last()?, *sizes.get(sizes.len().checked_sub(2)?)?);
        if before >= last {
            return None;
        }
        if last % before == 0 { last.checked_mul(last / before) } else { last.checked_add(last - before) }
    }

    /// Every table that was begun has its footer, and every row could be read.
    pub(super) fn is_closed(&self) -> bool {
        self.footers > 0 && self.footers >= self.tables && !self.odd
    }

    /// Adds what another text says of the same run.
    pub(super) fn join(&mut self, other: Run) {
        self.test = self.test.take().or(other.test);
        self.version = self.version.take().or(other.version);
        self.layout = self.layout.or(other.layout);
        if self.ranks.is_empty() {
            (self.ranks, self.ranks_cut) = (other.ranks, other.ranks_cut);
        }
        self.ranks_per_process = self.ranks_per_process.or(other.ranks_per_process);
        self.told_ranks = self.told_ranks.or(other.told_ranks);
        self.told_hosts = self.told_hosts.or(other.told_hosts);
        self.min_bytes = self.min_bytes.or(other.min_bytes);
        self.max_bytes = self.max_bytes.or(other.max_bytes);
        self.step = self.step.or(other.step);
        self.validation = self.validation.or(other.validation);
        self.rdma = self.rdma.or(other.rdma);
        self.rows.extend(other.rows);
        self.tables += other.tables;
        self.footers += other.footers;
        self.odd |= other.odd;
        self.out_of_bounds = self.out_of_bounds.max(other.out_of_bounds);
        self.average = self.average.or(other.average);
    }
}
