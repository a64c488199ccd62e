//! `fabricpulse read nccl-tests`: saved output of nccl-tests and rccl-tests.
//!
//! The typed reader says what is in the text. Here it becomes a class, a sentence and rows. Correct
//! data and exit 0 say nothing of speed, which is judged only where the caller says what is expected.

mod judge;
mod rows;
mod words;

use serde_json::{Map, Value};

use super::{End, Facts, Input, Known, Parse, Report};
use crate::nccl_tests::{Log, command, read_all};

/// Reads the output of one run, or of several in a file.
pub fn read(inputs: &[Input], known: &Known) -> Report {
    let texts: Vec<&str> = inputs.iter().map(|input| input.text.as_str()).collect();
    let log = read_all(&texts, known.cmdline.as_deref());
    let truncated = log.cut || inputs.iter().any(|input| input.truncated);
    let endless = known.cmdline.as_deref().is_some_and(command::is_endless);
    let case = Case { log: &log, known, truncated, endless, content: Content::of(inputs, &log) };
    let finding = case.judge();
    let class = finding.class();
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    Report {
        class,
        parse: case.parse(),
        verdict: words::verdict(&case, &finding),
        complete: case.complete(),
        truncated,
        crashed: log.crashed,
        dialect: log.dialect.map(|dialect| dialect.word()),
        valid_json: log.valid_json,
        runs: log.runs.len(),
        rows: rows::rows(&log, &names),
        facts: facts(&case, matches!(finding, judge::Finding::Stalled | judge::Finding::Killed)),
        errors: log.errors.clone(),
        warnings: log.warnings.clone(),
    }
}

/// What is judged.
#[derive(Debug)]
struct Case<'a> {
    log: &'a Log,
    known: &'a Known,
    truncated: bool,
    /// The command runs until it is killed.
    endless: bool,
    content: Content,
}

/// What the input is, before anything of it is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// Blank.
    Empty,
    /// Something that these programs do not print.
    Foreign,
    /// Text that may be a program's last words: one of these ran, and they are none of its own.
    Words,
    /// Of these programs.
    Own,
}

impl Content {
    fn of(inputs: &[Input], log: &Log) -> Content {
        let binary = |c: char| c == '\0' || c == '\u{fffd}';
        if log.recognised {
            Content::Own
        } else if inputs.iter().all(|input| input.text.trim().is_empty()) {
            Content::Empty
        } else if log.tool.is_none() || inputs.iter().any(|input| input.text.contains(binary)) {
            Content::Foreign
        } else {
            Content::Words
        }
    }
}

impl Case<'_> {
    fn complete(&self) -> bool {
        self.log.complete && !self.truncated
    }

    fn has_rows(&self) -> bool {
        self.log.runs.iter().any(|run| !run.rows.is_empty())
    }

    fn parse(&self) -> Parse {
        if self.has_rows() {
            return if self.complete() { Parse::Ok } else { Parse::Partial };
        }
        let failed = !self.log.errors.is_empty() || self.known.end() == End::Failed;
        if self.log.recognised && !failed { Parse::Partial } else { Parse::Error }
    }
}

/// The keys beside the rows. `hangs` says that the size after the last row did not end.
fn facts(case: &Case<'_>, hangs: bool) -> Map<String, Value> {
    let log = case.log;
    let mut facts = Facts::default();
    let last = log.runs.len().saturating_sub(1);
    let of = |at: usize, facts: &mut Facts| {
        let run = &log.runs[at];
        rows::of_run(run, case.known.expect, facts);
        if hangs && at == last {
            facts.put("stuck_at", run.next_size().and_then(rows::integer));
        }
    };
    if log.runs.len() == 1 {
        of(0, &mut facts);
    } else if log.runs.len() > 1 {
        let each = (0..log.runs.len()).map(|at| {
            let mut facts = Facts::default();
            of(at, &mut facts);
            Value::Object(facts.0)
        });
        facts.put("per_run", Some(Value::Array(each.collect())));
    }
    if let Some(failure) = &log.fault.failure {
        facts.put("failing_host", Some(failure.host.as_str()));
        let text = Some(failure.text.as_str()).filter(|text| failure.library == "NCCL" && !text.is_empty());
        facts.put("nccl_error", text);
    }
    facts.put("json_version", log.json_version);
    if let Some(apart) = judge::farthest_apart(&log.runs) {
        facts.put("disagree_size", rows::integer(apart.size));
        facts.put("disagree_ratio", Some(apart.ratio));
    }
    facts.0
}

#[cfg(test)]
mod recorded_tests;
#[cfg(test)]
mod tests;
