//! `fabricpulse read nccl-tests`: saved output of nccl-tests and rccl-tests.
//!
//! The typed reader says what is in the text. Here it becomes a class, a sentence and rows. Correct
//! data says nothing of speed, and speed is judged only where the caller says what is expected.

mod judge;
mod rows;
mod words;

use serde_json::{Map, Value, json};

use super::{End, Input, Known, Parse, Report};
use crate::nccl_tests::{Command, Log, read_all};

/// Reads the output of one run, or of several in a file.
pub fn read(inputs: &[Input], known: &Known) -> Report {
    let texts: Vec<&str> = inputs.iter().map(|input| input.text.as_str()).collect();
    let command = known.cmdline.as_deref().and_then(Command::line);
    let log = read_all(&texts, command.as_ref());
    let truncated = log.cut || inputs.iter().any(|input| input.truncated);
    let empty = inputs.iter().all(|input| input.text.trim().is_empty());
    let case = Case { log: &log, known, truncated, empty };
    let finding = case.judge();
    let verdict = words::verdict(&case, &finding);
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    Report {
        class: finding.class(),
        parse: case.parse(),
        verdict,
        complete: case.complete(),
        truncated,
        crashed: log.crashed,
        dialect: log.dialect.map(|dialect| dialect.word()),
        valid_json: log.valid_json,
        runs: log.runs.len(),
        rows: rows::rows(&log, &names),
        facts: facts(&case, &finding),
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
    /// Nothing but blanks.
    empty: bool,
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
fn facts(case: &Case<'_>, finding: &judge::Finding<'_>) -> Map<String, Value> {
    let mut facts = Facts::default();
    let of = |run, facts: &mut Facts| rows::of_run(run, case.known.expect, finding.is_hang(), facts);
    match case.log.runs.as_slice() {
        [] => {}
        [run] => of(run, &mut facts),
        runs => {
            let objects = runs.iter().map(|run| {
                let mut facts = Facts::default();
                of(run, &mut facts);
                Value::Object(facts.0)
            });
            facts.put("per_run", Some(Value::Array(objects.collect())));
        }
    }
    if let Some(apart) = judge::farthest_apart(&case.log.runs) {
        facts.put("disagree_size", Some(apart.size));
        facts.put("disagree_ratio", Some(apart.ratio));
    }
    if let Some(failure) = &case.log.failure {
        facts.put("failing_host", Some(failure.host.as_str()));
        facts.put("nccl_error", failure.text.as_deref());
    }
    facts.put("json_version", case.log.json_version);
    facts.0
}

/// Keys and values; what is absent has no key.
#[derive(Debug, Default)]
struct Facts(Map<String, Value>);

impl Facts {
    fn put(&mut self, key: &str, value: Option<impl serde::Serialize>) {
        if let Some(value) = value {
            self.0.insert(key.to_string(), json!(value));
        }
    }
}

#[cfg(test)]
mod tests;
