//! The table and the lines around it.
//!
//! Launchers, NCCL and several copies of the program may print between the lines. A new header block
//! after a footer begins a new run.

use super::{
    Dialect, LINES_KEPT, Piece, ROWS_KEPT, RUNS_KEPT, Run,
    fault::{self, Say},
    line::{self, Column, Place},
};
use crate::read::{clean_lines, unlabelled};

/// Reads a text. `file` is its number among those that belong together.
pub(super) fn read(text: &str, file: usize) -> Piece {
    let mut reader = Reader { file, ..Reader::default() };
    let mut lines = clean_lines(text).peekable();
    let ended = text.ends_with('\n');
    while let Some(line) = lines.next() {
        let last = lines.peek().is_none() && !ended;
        reader.line(unlabelled(&line).trim(), last);
        let many = reader.rows == ROWS_KEPT || reader.run.ranks.len() == ROWS_KEPT;
        if many || reader.piece.runs.len() == RUNS_KEPT {
            reader.piece.cut = true;
            break;
        }
    }
    reader.end()
}

/// The state between two lines.
#[derive(Debug, Default)]
struct Reader {
    file: usize,
    piece: Piece,
    run: Run,
    /// Something of a run was seen.
    begun: bool,
    places: Vec<Place>,
    columns: Option<Vec<Column>>,
    rows: usize,
}

impl Reader {
    fn line(&mut self, line: &str, last: bool) {
        match line.as_bytes().first() {
            None => {}
            Some(b'#') => self.comment(line),
            Some(b'0'..=b'9' | b'-') if self.row(line, last) => {}
            Some(_) => self.words(line),
        }
    }

    /// A line of a header block: one of a new run if the present one has its footer.
    fn block(&mut self) {
        self.piece.recognised = true;
        if self.run.footers > 0 {
            self.piece.runs.push(std::mem::take(&mut self.run));
            (self.columns, self.places) = (None, Vec::new());
        }
        self.begun = true;
    }

    fn comment(&mut self, line: &str) {
        if let Some(places) = line::title(line) {
            self.block();
            self.places = places;
        } else if let Some((columns, layout)) = line::header(line, &self.places) {
            self.block();
            self.run.tables += 1;
            self.run.layout = self.run.layout.or(layout);
            self.columns = Some(columns);
            self.places.clear();
        } else if let Some(rank) = line::rank(line) {
            self.block();
            self.run.ranks.push(rank);
        } else if let Some((count, well)) = line::out_of_bounds(line) {
            self.piece.recognised = true;
            self.begun = true;
            self.run.footers += 1;
            self.run.out_of_bounds =
                Some(self.run.out_of_bounds.map_or(count, |known| known.saturating_add(count)));
            if !well {
                self.say(Say::Corrupt, line);
            }
        } else if let Some((mean, missed)) = line::average(line) {
            self.piece.recognised = true;
            self.begun = true;
            self.run.average = self.run.average.or(mean);
            if missed {
                self.say(Say::Limit, line);
            }
        } else if let Some(start) = line::start(line) {
            self.block();
            let run = &mut self.run;
            run.ranks_per_process =
                start.threads.zip(start.gpus).and_then(|(threads, gpus)| threads.checked_mul(gpus));
            run.min_bytes = run.min_bytes.or(start.min);
            run.max_bytes = run.max_bytes.or(start.max);
            run.step = run.step.or(start.step);
            run.validation = run.validation.or(start.validation);
        } else {
            self.remark(line);
        }
    }

    /// Any other line that begins with `#`.
    fn remark(&mut self, line: &str) {
        let rest = line.trim_start_matches('#').trim_start();
        if let Some(test) = rest.strip_prefix("Collective test starting:") {
            self.block();
            let test = test.trim();
            self.run.test = self.run.test.take().or(Some(name(test)).filter(|name| !name.is_empty()));
        } else if let Some(version) =
            rest.strip_prefix("nccl-tests version ").or_else(|| rest.strip_prefix("rccl-tests version "))
        {
            self.block();
            self.version(version);
        } else if rest.starts_with("Using devices") {
            self.block();
        } else if let Some(bytes) = rest.strip_prefix("Reducing maxBytes to ") {
            let bytes = bytes.split_whitespace().next().and_then(|bytes| bytes.parse().ok());
            self.run.max_bytes = bytes.or(self.run.max_bytes);
        } else if rest == "..." && !self.run.ranks.is_empty() {
            self.run.ranks_cut = true;
        }
    }

    fn version(&mut self, text: &str) {
        let version = text.split_whitespace().next().map(str::to_string);
        self.run.version = self.run.version.take().or(version);
    }

    /// A row of the table. False if the line is something else.
    fn row(&mut self, line: &str, last: bool) -> bool {
        let Some((mut row, layout)) = line::row(line, self.columns.as_deref(), last) else {
            if line::is_row_like(line) {
                self.piece.recognised = true;
                self.begun = true;
                self.run.odd = true;
                return true;
            }
            return false;
        };
        row.file = self.file;
        self.piece.recognised = true;
        self.begun = true;
        self.run.layout = self.run.layout.or(layout);
        self.run.rows.push(row);
        self.rows += 1;
        true
    }

    /// Lines of NCCL, of launchers, and of failures.
    fn words(&mut self, line: &str) {
        let low = line.get(..7).map(str::to_ascii_lowercase);
        if (low.as_deref() == Some("warning") || line.contains("NCCL WARN"))
            && self.piece.warnings.len() < LINES_KEPT
        {
            self.piece.warnings.push(line.to_string());
        }
        if line.contains("Failed to open libibverbs") || line.contains("NET/Socket : Using") {
            self.run.rdma = Some(false);
        } else if line.contains("NET/IB : Using") {
            self.run.rdma = self.run.rdma.or(Some(true));
        }
        if line == "..." && !self.run.ranks.is_empty() {
            self.run.ranks_cut = true;
        }
        if let Some(version) = line.strip_prefix("rccl-tests: Version ") {
            self.block();
            self.version(version);
        }
        if let Some(say) = fault::say(line) {
            self.piece.recognised |= say != Say::Perhaps;
            self.say(say, line);
        }
    }

    fn say(&mut self, say: Say, line: &str) {
        let said = &self.piece.said;
        if said.len() < LINES_KEPT || !said.iter().any(|(known, _)| *known == say) {
            self.piece.said.push((say, line.to_string()));
        }
    }

    fn end(mut self) -> Piece {
        if self.begun || self.run.rdma.is_some() {
            self.piece.runs.push(self.run);
        }
        self.piece.dialect = self.piece.recognised.then_some(Dialect::Text);
        self.piece.closed = true;
        self.piece
    }
}

/// A program's name without its folder, as the start line has it.
fn name(text: &str) -> String {
    let base = text.split_whitespace().next().unwrap_or_default();
    super::command::program(base).unwrap_or(base).to_string()
}
