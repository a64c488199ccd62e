//! `-J` of nccl-tests, and the reporter of rccl-tests: an object, or an array of rows.
//!
//! The object carries the whole environment of the process, in which there may be secrets: it is
//! never looked at.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Dialect, Half, Log, Row, Run, Step, command, line};

pub(super) fn read(text: &str) -> Log {
    let mut log = Log { dialect: Some(Dialect::Json), ..Log::default() };
    let parsed = serde_json::from_str::<Value>(text.trim_end());
    log.valid_json = Some(parsed.is_ok());
    // What was not closed may still hold whole rows.
    let value = match parsed.or_else(|_| serde_json::from_str(&closed(text))) {
        Ok(value) => value,
        Err(_) => {
            log.recognised = text.contains("\"nccl_version\"") || text.contains("\"rccl_version\"");
            log.dialect = log.recognised.then_some(Dialect::Json);
            log.cut = log.recognised;
            return log;
        }
    };
    match &value {
        Value::Object(_) => object(&value, &mut log),
        Value::Array(rows) => reporter(rows, &mut log),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    let whole = log.valid_json == Some(true);
    log.cut = log.recognised && !whole;
    log.complete =
        log.recognised && whole && log.errors.is_empty() && log.runs.iter().any(|run| !run.rows.is_empty());
    if !log.recognised {
        log.dialect = None;
    }
    log
}

/// A text that ends early, cut behind its last whole row and closed.
fn closed(text: &str) -> String {
    let Some(end) = text.rfind("},{").or_else(|| text.rfind("}}")) else { return String::new() };
    let kept = &text[..=end];
    let mut open = Vec::new();
    let (mut quoted, mut escaped) = (false, false);
    for c in kept.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '{' if !quoted => open.push('}'),
            '[' if !quoted => open.push(']'),
            '}' | ']' if !quoted => {
                open.pop();
            }
            _ => {}
        }
    }
    kept.chars().chain(open.into_iter().rev()).collect()
}

fn object(value: &Value, log: &mut Log) {
    let (config, results) = (&value["config"], value["results"].as_array());
    log.recognised = value.get("nccl_version").or(value.get("rccl_version")).is_some()
        || results.is_some() && config.is_object();
    if !log.recognised {
        return;
    }
    log.json_version = value["version"].as_i64();
    let mut run = Run { tables: 1, ..Run::default() };
    let args = value["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    run.test = args.into_iter().find_map(command::tool).map(str::to_string);
    run.validation = config["validation"].as_i64().map(|checks| checks != 0);
    run.least = config["minimum_bytes"].as_i64();
    run.step =
        config["step_factor"].as_f64().map(Step::Factor).or(config["step_bytes"].as_i64().map(Step::Bytes));
    devices(config, &mut run);
    run.rows = results.into_iter().flatten().map(row).collect();
    run.out_of_bounds = value["out_of_bounds"]["count"].as_i64();
    run.average = number(&value["average_bus_bandwidth"]["bandwidth"]);
    run.below_limit = value["average_bus_bandwidth"]["okay"].as_str() == Some("false");
    run.footers = usize::from(run.out_of_bounds.is_some());
    let errors = value["errors"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for error in errors.filter(|error| !error.trim().is_empty()) {
        if !line::take(log, error) {
            log.errors.push(error.trim().to_string());
        }
    }
    log.runs.push(run);
}

/// Ranks are GPUs times threads times processes; the list of devices may be shortened.
fn devices(config: &Value, run: &mut Run) {
    let mut processes: BTreeSet<(&str, i64)> = BTreeSet::new();
    for device in config["devices"].as_array().into_iter().flatten() {
        let host = device["hostname"].as_str().unwrap_or_default();
        processes.insert((host, device["pid"].as_i64().unwrap_or_default()));
        if !host.is_empty() {
            *run.ranks_of.entry(host.to_string()).or_default() += 1;
        }
    }
    let each = config["ngpus"].as_u64().zip(config["nthreads"].as_u64());
    let all = each.and_then(|(gpus, threads)| {
        gpus.checked_mul(threads)?.checked_mul(u64::try_from(processes.len().max(1)).ok()?)
    });
    run.ranks_said = all.and_then(|ranks| u32::try_from(ranks).ok()).filter(|ranks| *ranks > 0);
}

fn row(value: &Value) -> Row {
    let text =
        |key: &str| value[key].as_str().map(|text| text.trim().to_string()).filter(|text| !text.is_empty());
    Row {
        size: value["size"].as_i64(),
        count: value["count"].as_i64(),
        dtype: text("type"),
        redop: text("redop"),
        root: text("root").and_then(|root| root.parse().ok()).or(value["root"].as_i64()),
        out: half(&value["out_of_place"]),
        inside: half(&value["in_place"]),
        ..Row::default()
    }
}

fn half(value: &Value) -> Half {
    Half {
        time: number(&value["time"]).or(number(&value["cpu_time"])),
        event_time: None,
        algbw: number(&value["alg_bw"]),
        busbw: number(&value["bus_bw"]),
        wrong: wrong(&value["nwrong"]),
        max_delta: None,
    }
}

/// NaN is written as a text.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str().and_then(|text| line::number(text.trim())))
}

fn wrong(value: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "a count")]
    let whole = |number: f64| (number.fract() == 0.0).then_some(number as i64);
    value.as_i64().or_else(|| number(value).and_then(whole))
}

/// The reporter of rccl-tests: an object for each way of each size.
fn reporter(values: &[Value], log: &mut Log) {
    let is_row = |value: &Value| {
        value.get("inPlace").or(value.get("inplace")).is_some() && value.get("size").is_some()
    };
    log.recognised = !values.is_empty() && values.iter().all(is_row);
    if !log.recognised {
        return;
    }
    let mut run = Run { tables: 1, footers: 1, ..Run::default() };
    for value in values {
        let get = |keys: &[&str]| keys.iter().find_map(|key| value.get(key)).unwrap_or(&Value::Null);
        let first =
            |seen: Option<u32>, keys: &[&str]| seen.or_else(|| u32::try_from(get(keys).as_u64()?).ok());
        run.ranks_said = first(run.ranks_said, &["ranks"]);
        run.nodes_said = first(run.nodes_said, &["nodes"]);
        let name = get(&["name", "collective"]).as_str().and_then(command::by_collective);
        run.test = run.test.take().or(name.map(str::to_string));
        let figures = Half {
            time: number(get(&["time"])),
            event_time: None,
            algbw: number(get(&["algBw", "algbw"])),
            busbw: number(get(&["busBw", "busbw"])),
            wrong: wrong(get(&["wrong"])),
            max_delta: None,
        };
        let inside = get(&["inPlace", "inplace"]);
        let inside =
            inside.as_i64() == Some(1) || inside.as_bool() == Some(true) || inside.as_str() == Some("1");
        let row = Row { size: get(&["size"]).as_i64(), ..self::row(value) };
        super::csv::join(&mut run.rows, row, inside, figures);
    }
    log.runs.push(run);
}
