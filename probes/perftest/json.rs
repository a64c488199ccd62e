//! `--out_json`: what is JSON in new versions, and what only looks like it in old ones.
//!
//! Up to 23.10 keys and words are bare and commas trail; later some options still write such a
//! file. One lenient scan reads them all, and a strict reader says whether it is JSON. The file is
//! written anew for every row, so it holds the last one only.

use super::{Command, Dialect, Figure, Piece, RUNS_KEPT, Row, Run, Section, line, text};
use crate::read::{cell::Cell, clean_lines, unlabelled};

/// Reads a text that is meant to be JSON; none if it is not.
pub(super) fn read(text: &str, file: usize, command: Option<&Command>) -> Option<Piece> {
    let text = text.trim_start_matches('\u{feff}');
    let plain;
    let start = text.trim_start();
    let text = if start.starts_with('{') {
        text
    } else {
        let first = clean_lines(start).next()?.into_owned();
        if !unlabelled(&first).trim_start().starts_with('{') {
            return None;
        }
        plain = clean_lines(text).map(|line| unlabelled(&line).to_string() + "\n").collect::<String>();
        plain.as_str()
    };
    let mut scan = Scan { file, ..Scan::default() };
    scan.text(text);
    if !scan.piece.recognised {
        return None;
    }
    scan.end(text, command)
}

/// The state between two signs.
#[derive(Debug, Default)]
struct Scan {
    file: usize,
    piece: Piece,
    run: Run,
    row: Row,
    /// Whether the row has anything in it.
    filled: bool,
    depth: usize,
    /// The word, and whether it stood in quotes.
    word: Option<(String, bool)>,
    key: Option<(String, bool)>,
    bare: bool,
    trailing: bool,
    /// The last sign was a comma.
    comma: bool,
}

impl Scan {
    fn text(&mut self, text: &str) {
        let mut rest = text;
        while let Some(sign) = rest.chars().next() {
            if self.piece.runs.len() == RUNS_KEPT {
                self.piece.cut = true;
                return;
            }
            rest = match sign {
                '"' => {
                    // The closing quote; a backslash does not occur in what perftest writes.
                    let inner = &rest[1..];
                    let Some(end) = inner.find('"') else { return };
                    self.word = Some((inner[..end].to_string(), true));
                    &inner[end + 1..]
                }
                '{' | '[' => {
                    self.key = None;
                    self.word = None;
                    self.depth += 1;
                    self.comma = false;
                    &rest[1..]
                }
                '}' | ']' => {
                    self.value();
                    self.trailing |= self.comma;
                    self.comma = false;
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        self.close(true);
                    }
                    &rest[1..]
                }
                ':' => {
                    self.key = self.word.take();
                    &rest[1..]
                }
                ',' => {
                    self.value();
                    self.comma = true;
                    &rest[1..]
                }
                '\n' => {
                    self.value();
                    &rest[1..]
                }
                space if space.is_whitespace() => &rest[space.len_utf8()..],
                _ => {
                    let end = rest.find(['"', '{', '}', '[', ']', ':', ',', '\n']);
                    // The input may end inside a word.
                    let Some(end) = end else { return };
                    let word = rest[..end].trim();
                    self.word = Some((word.to_string(), false));
                    &rest[end..]
                }
            };
        }
    }

    /// A key with its value, at the sign after it.
    fn value(&mut self) {
        let (Some((key, quoted)), Some((value, _))) = (self.key.take(), self.word.take()) else { return };
        self.comma = false;
        self.bare |= !quoted;
        let run = &mut self.run;
        let number = || value.parse::<u32>().ok();
        match key.as_str() {
            "test" => {
                if let Some((test, both)) = line::title(&value) {
                    self.piece.recognised = true;
                    run.test = Some(test.to_string());
                    run.bidirectional = Some(both);
                }
            }
            "Device" => run.device = Some(value),
            "Number_of_qps" => run.qps = number(),
            "TX_depth" => run.sends = true,
            "Mtu" => run.mtu = number(),
            "Link_type" => run.link_layer = Some(text::link_layer(&value)),
            "Outstand_reads" => run.outstanding_reads = number(),
            "rdma_cm_QPs" => run.rdma_cm = Some(value == "ON"),
            "Use_ROCm_memory" => run.rocm_memory = Some(value == "ON"),
            "cuda_device" => run.gpu.index = number(),
            _ => self.result(&key, &value),
        }
    }

    fn result(&mut self, key: &str, value: &str) {
        let (cells, _) = line::cells(value);
        let Some(cell) = cells.first() else { return };
        let figure = cell.number().map(Figure::new);
        let (row, times) = (&mut self.row, Cell::integer(*cell));
        match key {
            "MsgSize" => row.size = times,
            "n_iterations" => row.iterations = times,
            "BW_peak" => row.peak = figure.filter(|peak| peak.printed != 0.0),
            "BW_average" | "bw_avg" => row.average = figure,
            "MsgRate" | "msgRate_avg" => row.rate = cell.number(),
            "t_min" => row.times.min = figure,
            "t_max" => row.times.max = figure,
            "t_typical" => row.times.typical = figure,
            "t_avg" | "avg_lat" => row.times.average = figure,
            "t_stdev" => row.times.deviation = figure,
            "percentile_99" => row.times.p99 = figure,
            "percentile_99.9" => row.times.p999 = figure,
            "tps_average" => row.transactions = cell.number(),
            _ => return,
        }
        self.piece.recognised = true;
        self.filled = true;
    }

    /// The end of an object, or of the text inside one.
    fn close(&mut self, closed: bool) {
        if self.run == Run::default() && !self.filled {
            return;
        }
        let mut run = std::mem::take(&mut self.run);
        let mut row = std::mem::take(&mut self.row);
        row.file = self.file;
        run.begun = self.filled;
        run.complete = closed && self.filled;
        if self.filled {
            run.rows.push(row);
        }
        self.filled = false;
        self.piece.runs.push(run);
    }

    fn end(mut self, text: &str, command: Option<&Command>) -> Option<Piece> {
        self.close(false);
        let strict = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
        self.piece.valid_json = Some(strict.into_iter().all(|object| object.is_ok()));
        self.piece.dialect = Some(if self.bare {
            Dialect::Legacy
        } else if self.trailing {
            Dialect::TrailingComma
        } else {
            Dialect::Json
        });
        // The file is written anew for each block, and the other side's is the last.
        if command.is_some_and(|command| command.both) {
            for row in self.piece.runs.iter_mut().flat_map(|run| &mut run.rows) {
                row.section = Some(Section::Remote);
            }
        }
        Some(self.piece)
    }
}
