//! nccl-tests and rccl-tests (`all_reduce_perf` and its relatives): what they print, as values with units.
//!
//! It turns text, `-J` JSON, or the CSV or JSON of rccl's reporter into typed runs and rows, and says
//! what is missing. Nothing is judged here. The programs flush whole lines, so a row in progress is
//! never seen, and a run is whole only if its footer was printed.

pub mod command;
mod csv;
pub mod fault;
mod json;
mod line;
mod run;
mod text;

pub use command::tool;
pub use fault::{Failure, Fault};
pub use run::{Half, Layout, Rank, Row, Run, Step};

/// Error and warning lines kept of each text.
const LINES_KEPT: usize = 100;

/// More rows than a sweep over all types, operations and roots has.
const ROWS_KEPT: usize = 100_000;

/// A run takes a second at least, and this many take hours.
const RUNS_KEPT: usize = 10_000;

/// What the text of a run says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// In the order in which they were printed.
    pub runs: Vec<Run>,
    /// The program that the command names, such as `all_reduce_perf`.
    pub tool: Option<&'static str>,
    /// How the first text with anything in it is written.
    pub dialect: Option<Dialect>,
    /// Whether JSON that was meant to be is; none where none was meant.
    pub valid_json: Option<bool>,
    /// Version of the JSON's form.
    pub json_version: Option<i64>,
    /// Something in it is of these programs.
    pub recognised: bool,
    /// No error text, and every table that was begun is closed.
    pub complete: bool,
    /// There were too many rows or runs to read them all.
    pub cut: bool,
    /// The text says that the program crashed.
    pub crashed: bool,
    /// Distinct lines that tell of an error, a missed limit or wrong data.
    pub errors: Vec<String>,
    /// Distinct warnings.
    pub warnings: Vec<String>,
    /// What the error lines say.
    pub fault: Fault,
}

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The table.
    Text,
    /// `-J`, or `-Z json` of rccl-tests.
    Json,
    /// JSON with a comma before a closing bracket.
    TrailingComma,
    /// `-Z csv` of rccl-tests.
    Csv,
}

impl Dialect {
    /// The word in the object.
    pub fn word(self) -> &'static str {
        match self {
            Dialect::Text => "text",
            Dialect::Json => "json",
            Dialect::TrailingComma => "trailing-comma",
            Dialect::Csv => "csv",
        }
    }
}

/// Reads what one command printed. `cmdline` is the command on one line, if it is known.
pub fn read(stdout: &str, stderr: &str, cmdline: Option<&str>) -> Log {
    read_all(&[stdout, stderr], cmdline)
}

/// Reads several texts of the same run or runs: output and errors, or a text and its JSON. A fact is
/// that of the first text that has it; rows and error lines are those of all.
pub fn read_all(texts: &[&str], cmdline: Option<&str>) -> Log {
    let pieces: Vec<Piece> = texts
        .iter()
        .enumerate()
        .map(|(file, text)| {
            json::read(text, file).or_else(|| csv::read(text, file)).unwrap_or_else(|| text::read(text, file))
        })
        .collect();
    let recognised = pieces.iter().any(|piece| piece.recognised);
    let mut log = Log { recognised, tool: cmdline.and_then(tool), ..Log::default() };
    let (mut tables, mut closed) = (false, true);
    for piece in pieces {
        log.dialect = log.dialect.or(piece.dialect);
        log.json_version = log.json_version.or(piece.json_version);
        if let Some(valid) = piece.valid_json {
            log.valid_json = Some(log.valid_json.unwrap_or(true) && valid);
        }
        if piece.runs.iter().any(|run| run.tables > 0 || run.footers > 0 || !run.rows.is_empty()) {
            tables = true;
            closed &= piece.closed && piece.runs.iter().all(Run::is_closed);
        }
        log.cut |= piece.cut;
        for (at, run) in piece.runs.into_iter().enumerate() {
            match log.runs.get_mut(at) {
                Some(known) => known.join(run),
                None => log.runs.push(run),
            }
        }
        for line in piece.warnings {
            keep(&mut log.warnings, &line);
        }
        for (say, line) in piece.said {
            // Words of any program count only beside these programs' own, or if one is known to have run.
            if say != fault::Say::Perhaps || recognised || log.tool.is_some() {
                keep(&mut log.errors, &line);
                log.crashed |= fault::is_crash(&line);
                log.fault.add(say, &line);
            }
        }
    }
    for run in &mut log.runs {
        run.test = run.test.take().or(log.tool.map(str::to_string));
    }
    log.complete = tables && closed && !log.cut && !log.fault.failed();
    log
}

/// Adds a line that is not there yet, up to the bound.
fn keep(lines: &mut Vec<String>, line: &str) {
    if lines.len() < LINES_KEPT && !lines.iter().any(|known| known == line) {
        lines.push(line.to_string());
    }
}

/// What one text says, before the texts are put together.
#[derive(Debug, Default)]
struct Piece {
    runs: Vec<Run>,
    dialect: Option<Dialect>,
    valid_json: Option<bool>,
    json_version: Option<i64>,
    recognised: bool,
    /// Nothing tells that the text is cut off.
    closed: bool,
    cut: bool,
    warnings: Vec<String>,
    said: Vec<(fault::Say, String)>,
}

impl Log {
    /// The last run, which is the one that a probe started.
    pub fn last(&self) -> Option<&Run> {
        self.runs.last()
    }
}

#[cfg(test)]
mod tests;
