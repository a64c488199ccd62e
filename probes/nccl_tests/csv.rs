//! What the reporter of rccl-tests writes (`-Z csv -X file`): a line for each half of a row.
//!
//! The header of a build with MPI lacks the `nodes` column that its rows have.

use std::collections::HashMap;

use super::{
    Dialect, Piece, ROWS_KEPT, RUNS_KEPT, Run, command,
    run::{Half, Row},
};
use crate::read::{cell::Cell, clean_lines, unlabelled};

/// A half of a row, with what else stands in its line.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub cycle: Option<i128>,
    pub name: String,
    pub nodes: Option<u64>,
    pub ranks: Option<u64>,
    pub size: i128,
    pub kind: Option<String>,
    pub redop: Option<String>,
    pub in_place: bool,
    pub half: Half,
}

/// What makes two halves one row: cycle, size, type and reduction.
type Key = (Option<i128>, i128, Option<String>, Option<String>);

/// Puts halves together as rows, and rows as runs.
#[derive(Debug, Default)]
pub(super) struct Report {
    file: usize,
    runs: Vec<Run>,
    rows: usize,
    cut: bool,
    /// Collective, nodes and ranks of the present run.
    of: Option<(String, Option<u64>, Option<u64>)>,
    /// Rows of the present run that have one half, and which.
    halves: HashMap<Key, (usize, bool)>,
    /// A row of the present run has both halves.
    paired: bool,
}

impl Report {
    pub(super) fn new(file: usize) -> Report {
        Report { file, ..Report::default() }
    }

    pub(super) fn add(&mut self, entry: Entry) {
        if self.rows == ROWS_KEPT || self.runs.len() == RUNS_KEPT {
            self.cut = true;
            return;
        }
        let of = Some((entry.name.clone(), entry.nodes, entry.ranks));
        if self.of != of {
            self.close();
            self.of = of;
            self.runs.push(Run {
                test: command::of_collective(&entry.name).map(Into::into),
                told_hosts: entry.nodes,
                told_ranks: entry.ranks,
                tables: 1,
                footers: 1,
                ..Run::default()
            });
        }
        let Some(run) = self.runs.last_mut() else { return };
        let key = (entry.cycle, entry.size, entry.kind.clone(), entry.redop.clone());
        let known =
            self.halves.get(&key).filter(|(_, in_place)| *in_place != entry.in_place).map(|(at, _)| *at);
        let at = known.unwrap_or(run.rows.len());
        if known.is_some() {
            self.halves.remove(&key);
            self.paired = true;
        } else {
            self.rows += 1;
            self.halves.insert(key, (at, entry.in_place));
            run.rows.push(Row {
                size: Some(entry.size),
                kind: entry.kind,
                redop: entry.redop,
                file: self.file,
                ..Row::default()
            });
        }
        let row = &mut run.rows[at];
        *(if entry.in_place { &mut row.in_place } else { &mut row.out_of_place }) = entry.half;
    }

    /// A run with both halves whose last row has one only is cut off.
    fn close(&mut self) {
        if let Some(run) = self.runs.last_mut() {
            run.odd |= self.paired && !self.halves.is_empty();
        }
        self.paired = false;
        self.halves.clear();
    }

    /// A new header begins a new run.
    fn next(&mut self) {
        self.close();
        self.of = None;
    }

    pub(super) fn end(mut self, piece: &mut Piece) {
        self.close();
        piece.recognised |= !self.runs.is_empty();
        piece.cut |= self.cut;
        piece.runs.append(&mut self.runs);
    }
}

/// Reads a text whose first line is the reporter's header; none if it is not.
pub(super) fn read(text: &str, file: usize) -> Option<Piece> {
    let mut lines =
        clean_lines(text).map(|line| unlabelled(&line).trim().to_string()).filter(|line| !line.is_empty());
    let mut columns = header(lines.next()?.trim_start_matches('\u{feff}'))?;
    // The last line may be a part of one.
    let mut piece = Piece { closed: text.ends_with('\n'), ..Piece::default() };
    let mut report = Report::new(file);
    for line in lines {
        if let Some(next) = header(&line) {
            columns = next;
            report.next();
        } else if let Some(entry) = entry(&line, &columns) {
            report.add(entry);
        } else {
            piece.closed = false;
        }
        if report.cut {
            break;
        }
    }
    report.end(&mut piece);
    piece.recognised = true;
    piece.dialect = Some(Dialect::Csv);
    Some(piece)
}

/// The names of the columns, in lower case and as the newest form has them.
fn header(line: &str) -> Option<Vec<String>> {
    let names: Vec<String> = fields(line)
        .into_iter()
        .map(|name| {
            let name = name.to_ascii_lowercase();
            match name.as_str() {
                "name" => "collective".into(),
                "#wrong" => "wrong".into(),
                _ => name,
            }
        })
        .collect();
    let has = |name: &str| names.iter().any(|known| known == name);
    (has("collective") && has("size") && has("inplace") && has("busbw")).then_some(names)
}

/// A row; none if it is not a whole one.
fn entry(line: &str, columns: &[String]) -> Option<Entry> {
    let values = fields(line);
    let nodes_missing = values.len() == columns.len() + 1 && !columns.iter().any(|name| name == "nodes");
    if !nodes_missing && values.len() != columns.len() {
        return None;
    }
    let collective = columns.iter().position(|name| name == "collective")?;
    let value = |name: &str| {
        let at = columns.iter().position(|known| known == name)?;
        values.get(at + usize::from(nodes_missing && at > collective)).copied()
    };
    let cell = |name: &str| value(name).and_then(Cell::new);
    let whole = |name: &str| cell(name).and_then(Cell::integer);
    let count = |name: &str| whole(name).and_then(|count| u64::try_from(count).ok());
    let number = |name: &str| Some(cell(name)?.number());
    let word = |name: &str| value(name).filter(|word| !word.is_empty()).map(str::to_string);
    let nodes = if nodes_missing { values.get(collective + 1)?.parse().ok() } else { count("nodes") };
    Some(Entry {
        cycle: whole("numcycle"),
        name: word("collective")?,
        nodes,
        ranks: count("ranks"),
        size: whole("size")?,
        kind: word("type"),
        redop: word("redop"),
        in_place: whole("inplace")? != 0,
        half: Half {
            time: number("time")?,
            event_time: None,
            algbw: number("algbw")?,
            busbw: number("busbw")?,
            wrong: whole("wrong"),
            deviation: None,
        },
    })
}

/// The values of a line, without quotes; no value of these programs has a comma in it.
fn fields(line: &str) -> Vec<&str> {
    line.split(',').map(|field| field.trim().trim_matches('"').trim()).collect()
}
