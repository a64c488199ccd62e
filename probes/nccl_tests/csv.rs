//! The reporter of rccl-tests as CSV: a line for each way of each size. Builds with MPI write one
//! value more than their header has names: the number of nodes, after the name.

use super::{Dialect, Half, Log, Row, Run, command, line};

/// Whether a line is the header.
pub(super) fn is_header(line: &str) -> bool {
    let names = fields(line);
    ["size", "busbw", "inplace"].iter().all(|name| names.iter().any(|field| field.eq_ignore_ascii_case(name)))
}

pub(super) fn read(text: &str) -> Log {
    let mut log = Log { recognised: true, dialect: Some(Dialect::Csv), ..Log::default() };
    let mut run = Run { tables: 1, ..Run::default() };
    let mut names: Vec<String> = Vec::new();
    let mut full = true;
    for text in text.lines().filter(|line| !line.trim().is_empty()) {
        if is_header(text) {
            names = fields(text).iter().map(|name| name.to_ascii_lowercase()).collect();
            continue;
        }
        if line::take(&mut log, text) {
            continue;
        }
        match values(&names, text) {
            Some(values) => take(&mut run, &values),
            None => full = false,
        }
    }
    let ends = text.ends_with('\n');
    log.cut = !ends || !full;
    log.complete = ends && full && !run.rows.is_empty() && log.errors.is_empty();
    run.footers = usize::from(log.complete);
    log.runs.push(run);
    log
}

/// The fields of a line, without their quotes.
fn fields(line: &str) -> Vec<String> {
    line.trim().split(',').map(|field| field.trim().trim_matches('"').trim().to_string()).collect()
}

/// The values by name; none of a line that is not full.
fn values(names: &[String], line: &str) -> Option<Vec<(String, String)>> {
    let fields = fields(line);
    let mut names: Vec<String> = names.to_vec();
    if fields.len() == names.len() + 1 {
        let name = names.iter().position(|name| name == "collective" || name == "name")?;
        names.insert(name + 1, "nodes".into());
    }
    (fields.len() == names.len()).then(|| names.into_iter().zip(fields).collect())
}

fn take(run: &mut Run, values: &[(String, String)]) {
    let get = |name: &str| values.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let text =
        |name: &str| get(name).filter(|value| !value.is_empty() && *value != "N/A").map(str::to_string);
    let first = |seen: Option<u32>, name: &str| seen.or_else(|| get(name)?.parse().ok());
    run.ranks_said = first(run.ranks_said, "ranks");
    run.nodes_said = first(run.nodes_said, "nodes");
    let collective = get("collective").or(get("name")).and_then(command::by_collective);
    run.test = run.test.take().or(collective.map(str::to_string));
    let number = |name: &str| get(name).and_then(line::number);
    let figures = Half {
        time: number("time"),
        event_time: None,
        algbw: number("algbw"),
        busbw: number("busbw"),
        wrong: get("#wrong").or(get("wrong")).and_then(line::whole),
        max_delta: None,
    };
    let row = Row {
        size: get("size").and_then(line::whole),
        dtype: text("type"),
        redop: text("redop"),
        root: get("root").and_then(line::whole),
        ..Row::default()
    };
    let inside = get("inplace").is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"));
    join(&mut run.rows, row, inside, figures);
}

/// Puts a way to the row of its size that lacks it, or begins a row.
pub(super) fn join(rows: &mut Vec<Row>, row: Row, inside: bool, figures: Half) {
    let same =
        |known: &&mut Row| known.size == row.size && known.dtype == row.dtype && known.redop == row.redop;
    let lacks = |known: &&mut Row| if inside { !known.inside.is_some() } else { !known.out.is_some() };
    // The other way of a size is the line before, or near it.
    let place = rows.iter_mut().rev().take(2).filter(same).find(lacks);
    let row = match place {
        Some(known) => known,
        None => {
            rows.push(row);
            let Some(last) = rows.last_mut() else { return };
            last
        }
    };
    if inside {
        row.inside = figures;
    } else {
        row.out = figures;
    }
}
