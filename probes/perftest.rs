//! perftest (`ib_write_bw` and its relatives): what it prints, as values with units.
//!
//! It turns the text of one run, or of several, into typed rows and facts, and says what is missing.
//! Nothing is judged here. Exit 0 proves nothing, since two sides with different options end with it
//! too; nor does a row, which is printed before the run may fail. A run is whole if its closing rule
//! was seen and no error text.

pub mod command;
pub mod fault;
mod json;
mod line;
mod run;
mod text;
pub mod unit;

pub use command::Command;
pub use fault::{Completion, Errno, Fault, Kind, Mismatch};
pub use run::{Address, Figure, Gpu, Row, Run, Section, Times};
pub use unit::{Check, Unit};

/// Error and warning lines kept of each text.
pub(crate) const LINES_KEPT: usize = 100;

/// More rows than one of each second of a day: no run that somebody reads has as many.
const ROWS_KEPT: usize = 100_000;

/// A run takes a second at least, and this many take hours.
const RUNS_KEPT: usize = 10_000;

/// What the text of a run says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// In the order in which they were printed.
    pub runs: Vec<Run>,
    /// The command, if it is one of perftest.
    pub command: Option<Command>,
    /// How the first text with anything in it is written.
    pub dialect: Option<Dialect>,
    /// Whether JSON that was meant to be is; none where none was meant.
    pub valid_json: Option<bool>,
    /// Something in it is perftest's.
    pub recognised: bool,
    /// No error text, and every table that was begun is closed.
    pub complete: bool,
    /// There were too many rows or tables to read them all.
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
    /// `--out_json`, with quoted keys.
    Json,
    /// `--out_json` up to 23.10: bare keys and words.
    Legacy,
    /// Quoted keys, and a comma before a closing brace.
    TrailingComma,
}

/// Reads what one command printed. `command` is its words, if they are known.
pub fn read(stdout: &str, stderr: &str, command: Option<&[String]>) -> Log {
    read_all(&[stdout, stderr], command.and_then(Command::of))
}

/// Reads several texts of the same run or runs: output and errors, or a text and its JSON. A fact is
/// that of the first text that has it; rows and error lines are those of all.
pub fn read_all(texts: &[&str], command: Option<Command>) -> Log {
    let pieces: Vec<Piece> = texts
        .iter()
        .enumerate()
        .map(|(file, text)| {
            json::read(text, file, command.as_ref())
                .unwrap_or_else(|| text::read(text, file, command.as_ref()))
        })
        .collect();
    let recognised = pieces.iter().any(|piece| piece.recognised);
    let mut log = Log { recognised, command, ..Log::default() };
    let (mut tables, mut closed) = (false, true);
    for piece in pieces {
        log.dialect = log.dialect.or(piece.dialect);
        if let Some(valid) = piece.valid_json {
            log.valid_json = Some(log.valid_json.unwrap_or(true) && valid);
        }
        if piece.runs.iter().any(|run| run.begun) {
            tables = true;
            closed &= piece.runs.iter().all(|run| run.complete || run.is_silent());
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
            // Words of any program count only beside perftest's own, or if it is known to have run.
            if !matches!(say, fault::Say::Perhaps(_)) || recognised || log.command.is_some() {
                log.hear(say, &line);
            }
        }
        if let Some(counts) = piece.counts {
            log.fault.counts(&counts);
        }
    }
    for run in &mut log.runs {
        run.finish(log.command.as_ref());
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
    recognised: bool,
    cut: bool,
    warnings: Vec<String>,
    said: Vec<(fault::Say, String)>,
    /// The line of message counts after a failed completion.
    counts: Option<String>,
}

impl Log {
    /// The last run, which is the one that a probe started.
    pub fn last(&self) -> Option<&Run> {
        self.runs.last()
    }

    /// The failure and its likely cause, for a person; none if no text tells of one.
    pub fn cause(&self) -> Option<String> {
        self.fault.cause(self.gpu())
    }

    /// Whether the memory was a GPU's.
    pub fn gpu(&self) -> bool {
        let used = |run: &Run| run.gpu != Gpu::default() || run.rocm_memory == Some(true);
        self.command.as_ref().is_some_and(|command| command.gpu) || self.runs.iter().any(used)
    }

    fn hear(&mut self, say: fault::Say, line: &str) {
        keep(&mut self.errors, line);
        match say {
            fault::Say::Error(kind) | fault::Say::Perhaps(kind) => {
                self.crashed |= kind == Kind::Crash;
                self.fault.add(kind, line);
            }
            fault::Say::Stalled => self.fault.stalled = true,
            fault::Say::Limit => self.fault.limit = self.fault.limit.take().or(Some(line.into())),
            fault::Say::Corrupt => self.fault.corrupt = self.fault.corrupt.take().or(Some(line.into())),
        }
    }
}

impl Dialect {
    /// The word in the object.
    pub fn word(self) -> &'static str {
        match self {
            Dialect::Text => "text",
            Dialect::Json => "json",
            Dialect::Legacy => "perftest-legacy",
            Dialect::TrailingComma => "trailing-comma",
        }
    }
}

#[cfg(test)]
mod tests;
