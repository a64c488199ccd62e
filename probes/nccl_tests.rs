//! nccl-tests and rccl-tests (`all_reduce_perf` and its relatives): what they print, as values with
//! units.
//!
//! Columns have changed from version to version, so they are read by their labels. An exit status of 0
//! and a row prove nothing: a test that was built without MPI runs many times with one rank each.

use std::collections::BTreeMap;

pub use command::Command;

mod command;
mod csv;
mod json;
mod line;
mod text;

/// Everything that was read of one run, or of several in a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// In input order.
    pub runs: Vec<Run>,
    /// Something of these programs was seen.
    pub recognised: bool,
    /// All that they print at their end was seen, and no error.
    pub complete: bool,
    /// The input ends in the middle of a line.
    pub cut: bool,
    /// The text says that a program crashed.
    pub crashed: bool,
    /// How it is written.
    pub dialect: Option<Dialect>,
    /// Whether JSON is whole; none where none was meant.
    pub valid_json: Option<bool>,
    /// Error lines.
    pub errors: Vec<String>,
    /// Warning lines.
    pub warnings: Vec<String>,
    /// The tool's own watchdog spoke.
    pub timed_out: Option<String>,
    /// Which host failed, and what NCCL said of it.
    pub failure: Option<Failure>,
    /// The version of the JSON.
    pub json_version: Option<i64>,
}

/// How output is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The table on standard output.
    Text,
    /// `-J`, or the reporter of rccl-tests.
    Json,
    /// The reporter of rccl-tests.
    Csv,
}

impl Dialect {
    /// The word in the object.
    pub fn word(self) -> &'static str {
        match self {
            Dialect::Text => "text",
            Dialect::Json => "json",
            Dialect::Csv => "csv",
        }
    }
}

/// `HOST: Test NCCL failure file:line 'text / last error'`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The host that says so.
    pub host: String,
    /// The text between the quotes; none where there is none.
    pub text: Option<String>,
}

/// Which generation of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// With `error`: a deviation.
    Old,
    /// With `#wrong`: a count.
    New,
}

impl Layout {
    /// The word in the object.
    pub fn word(self) -> &'static str {
        match self {
            Layout::Old => "old",
            Layout::New => "new",
        }
    }
}

/// How sizes follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Each is that many times the one before.
    Factor(f64),
    /// Each is that many bytes larger.
    Bytes(i64),
}

/// One run of one program on all of its ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// `all_reduce_perf` ..
    pub test: Option<String>,
    /// Of a table in text.
    pub layout: Option<Layout>,
    /// Ranks by host.
    pub ranks_of: BTreeMap<String, u32>,
    /// How often each rank is told.
    pub told: BTreeMap<u32, u32>,
    /// Ranks were left out of the list.
    pub shortened: bool,
    /// What JSON and CSV say.
    pub ranks_said: Option<u32>,
    /// Nodes, as CSV says.
    pub nodes_said: Option<u32>,
    /// Whether results were checked, as the header says.
    pub validation: Option<bool>,
    /// Whether the network was RDMA, where NCCL tells.
    pub rdma: Option<bool>,
    /// The smallest size that was asked for, in bytes.
    pub least: Option<i64>,
    /// How sizes follow.
    pub step: Option<Step>,
    /// In input order.
    pub rows: Vec<Row>,
    /// Tables begun.
    pub tables: usize,
    /// Footers seen.
    pub footers: usize,
    /// Checks that failed, as the footers say.
    pub out_of_bounds: Option<i64>,
    /// The footer's mean over all rows, in 10^9 bytes per second.
    pub average: Option<f64>,
    /// The operator's limit for that mean was missed.
    pub below_limit: bool,
}

/// One size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// In bytes.
    pub size: Option<i64>,
    /// Elements.
    pub count: Option<i64>,
    /// `float` ..
    pub dtype: Option<String>,
    /// `sum`, `none` ..
    pub redop: Option<String>,
    /// -1 where there is none.
    pub root: Option<i64>,
    /// Into another buffer.
    pub out: Half,
    /// Into the same buffer.
    pub inside: Half,
    /// `Ring` ..
    pub algo: Option<String>,
    /// `Simple` ..
    pub proto: Option<String>,
    /// Channels.
    pub channels: Option<i64>,
    /// Which of the files.
    pub file: usize,
}

/// What one way of buffers gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Half {
    /// In microseconds.
    pub time: Option<f64>,
    /// By events of HIP, in microseconds.
    pub event_time: Option<f64>,
    /// In 10^9 bytes per second.
    pub algbw: Option<f64>,
    /// In 10^9 bytes per second.
    pub busbw: Option<f64>,
    /// Wrong elements.
    pub wrong: Option<i64>,
    /// The greatest deviation.
    pub max_delta: Option<f64>,
}

impl Half {
    /// Whether anything is there.
    pub fn is_some(&self) -> bool {
        *self != Half::default()
    }
}

impl Row {
    /// Both ways.
    pub fn halves(&self) -> [&Half; 2] {
        [&self.out, &self.inside]
    }

    /// Bus bandwidth into another buffer or, where only that exists, into the same.
    pub fn busbw(&self) -> Option<f64> {
        if self.out.is_some() { self.out.busbw } else { self.inside.busbw }
    }

    /// Whether it moved anything.
    pub fn is_usable(&self) -> bool {
        self.size.is_some_and(|size| size > 0)
    }
}

impl Run {
    /// Programs that print through each other, each with one rank; none if there is one.
    pub fn copies(&self) -> Option<u32> {
        let zero = *self.told.get(&0)?;
        (zero > 1 && self.told.len() == 1).then_some(zero)
    }

    /// Ranks of the communicator.
    pub fn ranks(&self) -> Option<u32> {
        if self.copies().is_some() {
            return Some(1);
        }
        let told: u32 = self.told.values().sum();
        if told > 0 && !self.shortened {
            return Some(told);
        }
        self.ranks_said.or_else(|| self.rows.iter().find_map(ranks_by_size))
    }

    /// Hosts, by their names.
    pub fn hosts(&self) -> Option<u32> {
        let named = u32::try_from(self.ranks_of.len()).ok().filter(|hosts| *hosts > 0);
        self.nodes_said.or(named)
    }

    /// Whether results were checked.
    pub fn validated(&self) -> bool {
        let checked = |half: &Half| half.wrong.is_some() || half.max_delta.is_some();
        self.validation != Some(false) && self.rows.iter().any(|row| row.halves().into_iter().any(checked))
    }

    /// Wrong elements of all rows; none where nobody counted.
    pub fn wrong(&self) -> Option<i64> {
        let counts = self.rows.iter().flat_map(Row::halves).filter_map(|half| half.wrong);
        counts.fold(None, |sum, wrong| Some(sum.unwrap_or(0_i64).saturating_add(wrong)))
    }

    /// The row and the way with the highest bus bandwidth.
    pub fn peak(&self) -> Option<(&Row, &Half, f64)> {
        let halves = self
            .rows
            .iter()
            .filter(|row| row.is_usable())
            .flat_map(|row| row.halves().map(|half| (row, half)));
        let known = halves.filter_map(|(row, half)| Some((row, half, half.busbw?)));
        known.fold(None, |best: Option<(&Row, &Half, f64)>, new| match best {
            Some(best) if best.2 >= new.2 => Some(best),
            Some(_) | None => Some(new),
        })
    }
}

/// Collectives of which every rank has a part: their size is all parts together.
fn ranks_by_size(row: &Row) -> Option<u32> {
    let element = element_bytes(row.dtype.as_deref()?)?;
    let part = row.count?.checked_mul(element).filter(|part| *part > 0)?;
    let (size, ranks) = (row.size?, row.size? / part);
    (ranks > 1 && size % part == 0).then(|| u32::try_from(ranks).ok()).flatten()
}

/// Bytes of an element of a type, as the tools name it.
fn element_bytes(dtype: &str) -> Option<i64> {
    match dtype {
        "int8" | "uint8" | "f8e4m3" | "f8e5m2" | "fp8_e4m3" | "fp8_e5m2" => Some(1),
        "half" | "bfloat16" => Some(2),
        "int32" | "uint32" | "float" => Some(4),
        "int64" | "uint64" | "double" => Some(8),
        _ => None,
    }
}

/// Reads the files of one run, or of several. Facts come from the first file that has them.
pub fn read_all(texts: &[&str], command: Option<&Command>) -> Log {
    let mut log = Log::default();
    let mut whole = Vec::new();
    for (file, text) in texts.iter().enumerate() {
        let mut part = read(text);
        for row in part.runs.iter_mut().flat_map(|run| &mut run.rows) {
            row.file = file;
        }
        if part.runs.iter().any(|run| run.tables > 0) {
            whole.push(part.complete);
        }
        join(&mut log, part);
    }
    log.complete = !whole.is_empty() && whole.iter().all(|whole| *whole) && log.errors.is_empty();
    if let Some(command) = command {
        for run in log.runs.iter_mut().filter(|run| run.test.is_none()) {
            run.test = Some(command.tool.clone());
        }
        if command.unchecked {
            for run in log.runs.iter_mut().filter(|run| run.validation.is_none()) {
                run.validation = Some(false);
            }
        }
    }
    log
}

fn read(text: &str) -> Log {
    let start = text.trim_start();
    let array = start.strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with('{'));
    if start.starts_with('{') || array {
        return json::read(start);
    }
    if csv::is_header(start.lines().next().unwrap_or_default()) {
        return csv::read(start);
    }
    text::read(text)
}

fn join(log: &mut Log, part: Log) {
    let headless = |runs: &[Run]| runs.iter().all(|run| run.rows.is_empty());
    // A file without a table, as standard error, adds what it knows to the run that has one.
    if part.runs.len() == 1 && headless(&part.runs) && !log.runs.is_empty() {
        let more = part.runs[0].rdma;
        for run in &mut log.runs {
            run.rdma = run.rdma.or(more);
        }
    } else if headless(&log.runs) && !part.runs.is_empty() {
        let rdma = log.runs.iter().find_map(|run| run.rdma);
        log.runs = part.runs;
        for run in &mut log.runs {
            run.rdma = run.rdma.or(rdma);
        }
    } else {
        log.runs.extend(part.runs);
    }
    log.recognised |= part.recognised;
    log.cut |= part.cut;
    log.crashed |= part.crashed;
    log.dialect = log.dialect.or(part.dialect);
    log.valid_json = log.valid_json.or(part.valid_json);
    log.errors.extend(part.errors);
    log.warnings.extend(part.warnings);
    log.timed_out = log.timed_out.take().or(part.timed_out);
    log.failure = log.failure.take().or(part.failure);
    log.json_version = log.json_version.or(part.json_version);
}
