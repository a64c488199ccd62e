//! `fabricpulse read perftest`: saved output of `ib_write_bw` and its relatives.
//!
//! The typed reader says what is in the text. Here it becomes a class, a sentence and rows. Exit 0
//! and a row prove nothing, and speed is judged only where the caller says what is expected.

mod judge;
mod rows;
mod words;

use serde_json::{Map, Value};

use super::{End, Facts, Input, Known, Parse, Report};
use crate::perftest::{Command, Fault, Log, read_all};

/// Reads the output of one run, or of several in a file.
pub fn read(inputs: &[Input], known: &Known) -> Report {
    let texts: Vec<&str> = inputs.iter().map(|input| input.text.as_str()).collect();
    let log = read_all(&texts, known.cmdline.as_deref().and_then(Command::line));
    let truncated = log.cut || inputs.iter().any(|input| input.truncated);
    let case = Case { log: &log, known, truncated, content: Content::of(inputs, &log) };
    let finding = case.judge();
    let parse = case.parse();
    let verdict = words::verdict(&case, &finding);
    let class = finding.class();
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    Report {
        class,
        parse,
        verdict,
        complete: case.complete(),
        truncated,
        crashed: log.crashed,
        dialect: log.dialect.map(|dialect| dialect.word()),
        valid_json: log.valid_json,
        runs: log.runs.len(),
        rows: rows::rows(&log, &names),
        facts: facts(&case),
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
    content: Content,
}

/// What the input is, before anything of it is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    /// Blank.
    Empty,
    /// Something that perftest does not print.
    Foreign,
    /// Text that may be a program's last words: perftest ran, and they are none of its own.
    Words,
    /// perftest's.
    Own,
}

impl Content {
    fn of(inputs: &[Input], log: &Log) -> Content {
        let binary = |c: char| c == '\0' || c == '\u{fffd}';
        if log.recognised {
            Content::Own
        } else if inputs.iter().all(|input| input.text.trim().is_empty()) {
            Content::Empty
        } else if log.command.is_none() || inputs.iter().any(|input| input.text.contains(binary)) {
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

/// The keys beside the rows.
fn facts(case: &Case<'_>) -> Map<String, Value> {
    let log = case.log;
    let mut facts = Facts::default();
    let expect = case.known.expect;
    match log.runs.as_slice() {
        [run] => rows::of_run(run, expect, &mut facts),
        runs => {
            let of = |run| {
                let mut facts = Facts::default();
                rows::of_run(run, expect, &mut facts);
                Value::Object(facts.0)
            };
            if !runs.is_empty() {
                facts.put("per_run", Some(Value::Array(runs.iter().map(of).collect())));
            }
        }
    }
    if let Some(run) = log.runs.iter().find(|run| run.gpu != crate::perftest::Gpu::default()) {
        facts.put("gpu", run.gpu.name.as_deref());
        facts.put("gpu_bdf", run.gpu.bdf.as_deref());
        facts.put("gpu_arch", run.gpu.arch.as_deref());
    }
    let duplicates: usize = log.runs.iter().map(|run| run.duplicates).sum();
    facts.put("duplicate_rows", (duplicates > 0).then_some(duplicates));
    if let Some(apart) = judge::farthest_apart(&log.runs) {
        facts.put("disagree_size", rows::integer(apart.size));
        facts.put("disagree_ratio", Some(apart.ratio));
    }
    of_fault(&log.fault, &mut facts);
    if let Some((last, failing)) = judge::failing(log) {
        facts.put("last_good_size", rows::integer(last));
        facts.put("failing_size", failing.and_then(rows::integer));
    }
    facts.0
}

fn of_fault(fault: &Fault, facts: &mut Facts) {
    if let Some(completion) = &fault.completion {
        facts.put("wc_status", Some(completion.status));
        facts.put("wc_status_text", completion.name.as_deref());
        facts.put("vendor_err", completion.vendor.as_deref());
        facts.put("scnt", completion.sent);
        facts.put("ccnt", completion.completed);
    }
    if let Some(errno) = &fault.errno {
        facts.put("errno", Some(errno.number));
        facts.put("errno_name", errno.name);
    }
    if let Some(mismatch) = &fault.mismatch {
        facts.put("mismatch_field", Some(mismatch.field.as_str()));
        facts.put("mismatch_local", Some(mismatch.local.as_str()));
        facts.put("mismatch_remote", Some(mismatch.remote.as_str()));
    }
}

#[cfg(test)]
mod recorded_tests;
#[cfg(test)]
mod tests;
