//! `-J` of nccl-tests and rccl-tests, and `-Z json` of rccl-tests.
//!
//! A program that is killed leaves such a file open, so the rows up to there are read from what a
//! scan makes of it. Booleans may be words, NaN is one, and a root is a padded word. `env` holds the
//! whole environment with all its secrets: nothing of it is ever kept.

use serde_json::{Map, Value};

use super::{
    Dialect, Piece, ROWS_KEPT, RUNS_KEPT, Run, command,
    csv::{Entry, Report},
    fault::{self, Say},
    run::{Half, Rank, Row, Step},
};
use crate::read::cell::Cell;

/// Reads a text that is JSON of these programs, or was meant to be; none if it is not.
pub(super) fn read(text: &str, file: usize) -> Option<Piece> {
    let text = text.trim_start_matches('\u{feff}').trim();
    if !text.starts_with(['{', '[']) {
        return None;
    }
    let mut piece = Piece { closed: true, valid_json: Some(true), ..Piece::default() };
    let mut report = Report::new(file);
    let mut trailing = false;
    let mut rest = text;
    while !rest.is_empty() {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let (value, used, closed) = match values.next() {
            Some(Ok(value)) => (value, values.byte_offset(), true),
            Some(Err(_)) | None => {
                piece.valid_json = Some(false);
                let Some(mended) = mend(rest) else {
                    piece.closed = false;
                    break;
                };
                trailing |= mended.trailing;
                let Ok(value) = serde_json::from_str(&mended.text) else {
                    piece.closed = false;
                    break;
                };
                (value, mended.used, mended.closed)
            }
        };
        piece.closed &= closed;
        match &value {
            Value::Object(object) => piece.object(object, file, closed),
            Value::Array(entries) => report.array(entries),
            _ => break,
        }
        rest = rest[used..].trim_start();
        let rows: usize = piece.runs.iter().map(|run| run.rows.len()).sum();
        if rows >= ROWS_KEPT || piece.runs.len() >= RUNS_KEPT {
            piece.cut = true;
            break;
        }
    }
    report.end(&mut piece);
    // A piece of text that only begins like JSON is read as text.
    piece.recognised.then(|| {
        piece.dialect = Some(if trailing { Dialect::TrailingComma } else { Dialect::Json });
        piece
    })
}

/// What a scan makes of a text that is not strictly JSON.
#[derive(Debug)]
struct Mended {
    text: String,
    /// How much of the input it is, in bytes.
    used: usize,
    /// The input closes what it opens.
    closed: bool,
    /// A comma stood before a closing bracket.
    trailing: bool,
}

/// More brackets inside each other than any of these programs writes.
const DEPTH: usize = 32;

/// How deep a row of `results` is; one inside an array of rows is less deep.
const ROW_DEPTH: usize = 3;

/// Closes what is open, drops commas before brackets, and makes null of words that JSON lacks.
/// None if nothing can be made of it.
fn mend(text: &str) -> Option<Mended> {
    let mut mended = Mended { text: String::new(), used: text.len(), closed: false, trailing: false };
    let out = &mut mended.text;
    let mut open: Vec<char> = Vec::new();
    // Where the text can be cut off: how much of `out`, and what is open there.
    let (mut safe, mut safe_open) = (None, Vec::new());
    let mut keep = |at: usize, open: &[char]| {
        safe = Some(at);
        safe_open.clear();
        safe_open.extend_from_slice(open);
    };
    let mut comma = None;
    let row_depth = if text.starts_with('[') { ROW_DEPTH - 1 } else { ROW_DEPTH };
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        let mut used = sign.len_utf8();
        match sign {
            '"' => {
                let Some(end) = string_end(rest) else { break };
                let string = &rest[..end];
                if serde_json::from_str::<serde::de::IgnoredAny>(string).is_ok() {
                    out.push_str(string);
                } else {
                    // A control character, or a backslash that escapes nothing.
                    out.push_str(&Value::from(&string[1..end - 1]).to_string());
                }
                comma = None;
                used = end;
            }
            '{' | '[' => {
                if open.len() == DEPTH {
                    return None;
                }
                open.push(if sign == '{' { '}' } else { ']' });
                out.push(sign);
                comma = None;
            }
            '}' | ']' => {
                if open.pop() != Some(sign) {
                    return None;
                }
                if let Some(at) = comma.take() {
                    out.truncate(at);
                    mended.trailing = true;
                }
                out.push(sign);
                if open.is_empty() {
                    mended.used = text.len() - rest.len() + used;
                    mended.closed = true;
                    return Some(mended);
                }
                // A row that is not whole is none.
                if open.len() < row_depth {
                    keep(out.len(), &open);
                }
            }
            ',' => {
                if open.len() < row_depth {
                    keep(out.len(), &open);
                }
                comma = Some(out.len());
                out.push(sign);
            }
            sign if sign.is_whitespace() || sign == ':' => out.push(sign),
            _ => {
                let end = rest.find(|c: char| c.is_whitespace() || "{}[],:\"".contains(c));
                // The input may end inside a word.
                let Some(end) = end else { break };
                let word = &rest[..end];
                let known = serde_json::from_str::<Value>(word).is_ok();
                out.push_str(if known { word } else { "null" });
                comma = None;
                used = end;
            }
        }
        rest = &rest[used..];
    }
    out.truncate(safe?);
    out.extend(safe_open.into_iter().rev());
    Some(mended)
}

/// The byte after a string's closing quote.
fn string_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    let ends = |(_, byte): &(usize, u8)| {
        let quote = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        quote
    };
    text.bytes().enumerate().skip(1).find(ends).map(|(at, _)| at + 1)
}

impl Piece {
    /// The one object of `-J`.
    fn object(&mut self, object: &Map<String, Value>, file: usize, closed: bool) {
        let config = object.get("config").and_then(Value::as_object);
        let results = object.get("results").and_then(Value::as_array);
        let args = object.get("args").and_then(Value::as_array);
        let version = ["nccl_version", "rccl_version"].iter().find_map(|key| object.get(*key));
        let test = args.and_then(|args| args.iter().filter_map(Value::as_str).find_map(command::program));
        let threads = config.is_some_and(|config| config.contains_key("nthreads"));
        if test.is_none() && !threads && (version.is_none() || results.is_none()) {
            return;
        }
        self.recognised = true;
        self.json_version = self.json_version.or(object.get("version").and_then(Value::as_i64));
        let mut run = Run { tables: 1, footers: usize::from(closed), ..Run::default() };
        run.test = test.map(Into::into);
        if let Some(config) = config {
            configure(&mut run, config);
        }
        for result in results.into_iter().flatten().take(ROWS_KEPT) {
            match result.as_object().and_then(|result| row(result, file)) {
                Some(row) => run.rows.push(row),
                None => run.odd = true,
            }
        }
        let footer = |key: &str, value: &str| object.get(key).and_then(|footer| footer.get(value));
        run.out_of_bounds = footer("out_of_bounds", "count").and_then(Value::as_u64);
        run.average = footer("average_bus_bandwidth", "bandwidth").and_then(number);
        let limit = footer("average_bus_bandwidth", "okay").is_some_and(|okay| boolean(okay) == Some(false));
        if limit {
            let mean = run.average.map_or_else(|| "not known".into(), |mean| mean.to_string());
            self.said.push((Say::Limit, format!("average_bus_bandwidth {mean} GB/s: not okay")));
        }
        if let Some(count) = run.out_of_bounds.filter(|count| *count > 0) {
            self.said.push((Say::Corrupt, format!("out_of_bounds: {count}")));
        }
        let errors = object.get("errors").and_then(Value::as_array);
        for line in errors.into_iter().flatten().filter_map(Value::as_str) {
            let line = line.trim();
            match fault::say(line) {
                Some(say) => self.said.push((say, line.into())),
                // NCCL's last error may be one that the run survived: it did if it has its footer.
                None if !line.is_empty() && run.out_of_bounds.is_none() => {
                    self.said.push((Say::Error, line.into()));
                }
                None => {}
            }
        }
        self.runs.push(run);
    }
}

/// What the header says of the run.
fn configure(run: &mut Run, config: &Map<String, Value>) {
    let whole = |key: &str| config.get(key).and_then(Value::as_u64);
    run.min_bytes = whole("minimum_bytes");
    run.max_bytes = whole("maximum_bytes");
    run.step = whole("step_factor").filter(|factor| *factor > 1).map(Step::Factor);
    run.step = run.step.or(whole("step_bytes").map(Step::Bytes));
    run.validation = config.get("validation").and_then(boolean);
    let devices = config.get("devices").and_then(Value::as_array);
    let mut ranks = Vec::new();
    for device in devices.into_iter().flatten().filter_map(Value::as_object).take(ROWS_KEPT) {
        let word = |key: &str| device.get(key).and_then(Value::as_str).map(|word| word.trim().to_string());
        let count = |key: &str| device.get(key).and_then(Value::as_u64);
        if let Some((rank, host)) = count("rank").zip(word("hostname")) {
            ranks.push(Rank {
                rank,
                pid: count("pid"),
                host,
                device: count("device"),
                bus: word("device_hex"),
                name: word("device_info"),
            });
        }
    }
    run.ranks_per_process =
        whole("nthreads").zip(whole("ngpus")).and_then(|(threads, gpus)| threads.checked_mul(gpus));
    // The list may hold one rank of each process.
    run.ranks_cut = true;
    if ranks.is_empty() {
        run.told_ranks = run.ranks_per_process;
    }
    run.ranks = ranks;
}

fn row(result: &Map<String, Value>, file: usize) -> Option<Row> {
    let half = |key: &str| {
        let half = result.get(key).and_then(Value::as_object);
        let of = |key: &str| half.and_then(|half| half.get(key));
        Half {
            time: of("time").and_then(number),
            event_time: None,
            algbw: of("alg_bw").and_then(number),
            busbw: of("bus_bw").and_then(number),
            wrong: of("nwrong").and_then(integer),
            deviation: None,
        }
    };
    let word = |key: &str| {
        let word = result.get(key)?.as_str()?.trim();
        (!word.is_empty()).then(|| word.to_string())
    };
    let row = Row {
        size: result.get("size").and_then(integer),
        count: result.get("count").and_then(integer),
        kind: word("type"),
        redop: word("redop"),
        root: result.get("root").and_then(integer),
        out_of_place: half("out_of_place"),
        in_place: half("in_place"),
        algo: word("algo"),
        proto: word("proto"),
        channels: result.get("nchannels").and_then(integer),
        file,
    };
    row.size.is_some().then_some(row)
}

/// A number, also in quotes; none if it is not one.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => Cell::new(text.trim()).and_then(Cell::number),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A whole number, also in quotes.
pub(super) fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Number(number) => Cell::new(&number.to_string()).and_then(Cell::integer),
        Value::String(text) => Cell::new(text.trim()).and_then(Cell::integer),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A truth value: `true`, `"true"`, 1. `unchecked` is none.
fn boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        Value::Number(number) => number.as_f64().map(|number| number != 0.0),
        Value::String(text) => match text.as_str() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        },
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

impl Report {
    /// The array of rccl-tests' reporter.
    fn array(&mut self, entries: &[Value]) {
        for entry in entries {
            let Some(object) = entry.as_object() else { continue };
            let get = |key: &str| object.get(key);
            let word = |key: &str| get(key).and_then(Value::as_str).map(|word| word.trim().to_string());
            let whole = |key: &str| get(key).and_then(integer);
            let count = |key: &str| whole(key).and_then(|count| u64::try_from(count).ok());
            let (Some(size), Some(true)) = (whole("size"), get("busBw").map(|_| true)) else {
                continue;
            };
            let half = Half {
                time: get("time").and_then(number),
                event_time: None,
                algbw: get("algBw").and_then(number),
                busbw: get("busBw").and_then(number),
                wrong: get("wrong").and_then(integer),
                deviation: None,
            };
            self.add(Entry {
                cycle: whole("numCycle"),
                name: word("name").unwrap_or_default(),
                nodes: count("nodes"),
                ranks: count("ranks"),
                size,
                kind: word("type"),
                redop: word("redop"),
                in_place: get("inPlace").and_then(boolean).unwrap_or(false),
                half,
            });
        }
    }
}
