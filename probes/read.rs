//! `fabricpulse read`: saved output of a tool, and what it means, as one JSON object.
//!
//! The common part: what is done to any text before a format reads it, and the keys that every
//! object has. A format adds its own facts and rows.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

pub(crate) mod cell;
pub mod nccl_tests;
pub mod pcie;
pub mod perftest;
mod words;

/// A FILE is read up to here, in bytes.
pub const FILE_BYTES: usize = 16 * 1024 * 1024;

/// Lines longer than this, in bytes, are skipped: no tool that is read here prints such.
const LINE_BYTES: usize = 64 * 1024;

/// A verdict is for a person and fits one screen line or three.
const VERDICT_CHARS: usize = 300;

/// Error and warning lines kept.
const LINES_KEPT: usize = 100;

/// Exit statuses of a shell for a program that crashed: ILL, ABRT, BUS, FPE, SEGV.
const CRASHED: [i32; 5] = [132, 134, 135, 136, 139];

/// One FILE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// Its base name.
    pub name: String,
    /// Its text, with what is not UTF-8 replaced.
    pub text: String,
    /// There was more than [`FILE_BYTES`].
    pub truncated: bool,
}

/// What is known of a run beside its output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// The shell's number: 124 for a deadline, 128 + n for signal n.
    pub exit_code: Option<i32>,
    /// The command, on one line.
    pub cmdline: Option<String>,
    /// What a healthy run gives.
    pub expect: Option<Expectation>,
}

/// What a healthy run gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expectation {
    /// Bits per second.
    Bandwidth(f64),
    /// Seconds.
    Latency(f64),
}

/// How a program ended, by the shell's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Not known, which is not 0.
    Unknown,
    /// By itself, well.
    Well,
    /// Somebody pressed Ctrl-C.
    Interrupted,
    /// By a deadline or a signal that ends.
    Killed,
    /// Any other way.
    Failed,
}

impl Known {
    /// How it ended.
    pub fn end(&self) -> End {
        match self.exit_code {
            None => End::Unknown,
            Some(0) => End::Well,
            Some(130) => End::Interrupted,
            Some(124 | 137 | 143) => End::Killed,
            Some(_) => End::Failed,
        }
    }
}

/// What the output says of what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Wrong data.
    Corrupt,
    /// It failed, and says so.
    Error,
    /// It was ended before it finished.
    Hang,
    /// Figures that measure nothing.
    InvalidRun,
    /// It works, worse than it should.
    Degraded,
    /// Nothing that could be judged.
    Unknown,
    /// None of these.
    Healthy,
}

/// How much of the input was understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parse {
    /// All of it.
    Ok,
    /// It is of the format, and not whole.
    Partial,
    /// It is not of the format, or the tool failed before its first row.
    Error,
}

/// What a format makes of its input.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// See [`Class`].
    pub class: Class,
    /// See [`Parse`].
    pub parse: Parse,
    /// One sentence, without the class in front.
    pub verdict: String,
    /// Everything that the tool prints at its end was seen.
    pub complete: bool,
    /// The input ends in the middle, or was longer than what is read.
    pub truncated: bool,
    /// The text says that the program crashed.
    pub crashed: bool,
    /// How the input is written; none if it was not recognised.
    pub dialect: Option<&'static str>,
    /// Whether JSON that was meant to be is; none where none was meant.
    pub valid_json: Option<bool>,
    /// The tool's error lines.
    pub errors: Vec<String>,
    /// The tool's warning lines.
    pub warnings: Vec<String>,
    /// How many runs there are.
    pub runs: usize,
    /// In input order.
    pub rows: Vec<Map<String, Value>>,
    /// The format's own keys.
    pub facts: Map<String, Value>,
}

impl Class {
    /// The word in the object.
    pub fn word(self) -> &'static str {
        match self {
            Class::Corrupt => "corrupt",
            Class::Error => "error",
            Class::Hang => "hang",
            Class::InvalidRun => "invalid-run",
            Class::Degraded => "degraded",
            Class::Unknown => "unknown",
            Class::Healthy => "healthy",
        }
    }
}

impl Parse {
    /// The word in the object.
    pub fn word(self) -> &'static str {
        match self {
            Parse::Ok => "ok",
            Parse::Partial => "partial",
            Parse::Error => "error",
        }
    }
}

impl Report {
    /// The object that is printed. `files` are base names.
    pub fn object(self, format: &str, files: &[&str], exit_code: Option<i32>) -> Value {
        let measured = matches!(self.class, Class::Healthy | Class::Degraded);
        let mut object = self.facts;
        let lines = |lines: Vec<String>| -> Vec<String> {
            let mut distinct: Vec<String> = Vec::new();
            for line in lines {
                if distinct.len() < LINES_KEPT && !distinct.contains(&line) {
                    distinct.push(line);
                }
            }
            distinct
        };
        let common = [
            ("format", json!(format)),
            ("files", json!(files)),
            ("class", json!(self.class.word())),
            ("parse", json!(self.parse.word())),
            ("verdict", json!(sentence(self.class, &self.verdict))),
            ("accept_sample", json!(measured && self.parse == Parse::Ok)),
            ("complete", json!(self.complete)),
            ("truncated", json!(self.truncated)),
            ("crashed", json!(self.crashed || exit_code.is_some_and(|code| CRASHED.contains(&code)))),
            ("exit_code", json!(exit_code)),
            ("dialect", json!(self.dialect)),
            ("valid_json", json!(self.valid_json)),
            ("errors", json!(lines(self.errors))),
            ("warnings", json!(lines(self.warnings))),
            ("runs", json!(self.runs)),
            ("rows", Value::Array(self.rows.into_iter().map(Value::Object).collect())),
        ];
        object.extend(common.map(|(key, value)| (key.to_string(), value)));
        Value::Object(object)
    }
}

/// The class and the sentence, on one line of bounded length.
fn sentence(class: Class, text: &str) -> String {
    let line = format!("{}: {text}", class.word());
    let mut line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if let Some((cut, _)) = line.char_indices().nth(VERDICT_CHARS) {
        let dots = line[..cut].char_indices().rev().nth(2).map_or(0, |(at, _)| at);
        line.truncate(dots);
        line.push_str("...");
    }
    line
}

/// The lines of a text without colours, NULs and `mpirun --tag-output` tags; those that no tool
/// prints for their length are skipped.
pub fn clean_lines(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let short = text.split('\n').filter(|line| line.len() <= LINE_BYTES);
    short.map(|line| {
        if line.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
            Cow::Owned(untagged(&plain(line)).to_string())
        } else {
            Cow::Borrowed(untagged(line))
        }
    })
}

/// A line without ANSI sequences and control characters other than tabs.
fn plain(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => {
                if chars.clone().next() == Some('[') {
                    chars.next();
                    // Parameters, then one final letter.
                    let rest = chars.as_str();
                    let end = rest.find(|c: char| !matches!(c, '0'..='?' | ' '..='/')).unwrap_or(rest.len());
                    chars = rest[end..].chars();
                    chars.next();
                }
            }
            '\t' => plain.push(c),
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain
}

/// A line without `[1,0]<stdout>:` in front, or `[job@1,0]<stdout>:` of newer launchers.
fn untagged(line: &str) -> &str {
    let tagged = || {
        let (job, rest) = line.strip_prefix('[')?.split_once("]<std")?;
        let job = job.rsplit('@').next().unwrap_or(job);
        let numbers = job.split(',').all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        let rest = rest.strip_prefix("out>:").or_else(|| rest.strip_prefix("err>:"))?;
        numbers.then_some(rest)
    };
    tagged().unwrap_or(line)
}

/// A line without the `N: ` of `srun --label` and the `[rankN]:` of a launcher.
pub(crate) fn unlabelled(line: &str) -> &str {
    let trimmed = line.trim_start();
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0
        && let Some(rest) = trimmed[digits..].strip_prefix(':')
        && (rest.is_empty() || rest.starts_with([' ', '\t']))
    {
        return rest;
    }
    if let Some(rest) = trimmed.strip_prefix("[rank")
        && let Some((number, rest)) = rest.split_once("]:")
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
    {
        return rest;
    }
    line
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
mod tests {
    use super::*;

    #[test]
    fn lines_lose_what_terminals_and_launchers_add() {
        let table = [
            ("\u{1b}[1;31m00: b3\u{1b}[0m\r", "00: b3"),
            ("[1,12]<stdout>:00: b3", "00: b3"),
            ("[1,12]<stderr>:x", "x"),
            ("[prterun-node-a-71@1,12]<stdout>:x", "x"),
            ("[a,12]<stdout>:x", "[a,12]<stdout>:x"),
            ("\0a\0b\tc", "ab\tc"),
            ("\u{1b}", ""),
            ("\u{1b}[", ""),
            ("\u{1b}[31", ""),
        ];
        for (line, want) in table {
            assert_eq!(clean_lines(line).collect::<Vec<_>>(), [want], "{line:?}");
        }
        assert_eq!(unlabelled("0: 65536 1"), " 65536 1");
        assert_eq!(unlabelled("12:"), "");
        assert_eq!(unlabelled("[rank3]: 65536"), " 65536");
        assert_eq!(unlabelled("00:01:02"), "00:01:02");
        let long = "x".repeat(LINE_BYTES + 1);
        assert_eq!(clean_lines(&format!("a\n{long}\nb")).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_verdict_is_one_line_of_bounded_length() {
        assert_eq!(sentence(Class::Healthy, "a\nb"), "healthy: a b");
        let long = sentence(Class::Unknown, &"é".repeat(500));
        assert_eq!(long.chars().count(), VERDICT_CHARS);
        assert!(long.ends_with("é..."));
    }
}
