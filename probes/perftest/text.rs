//! The table and the block above it, line by line.
//!
//! Lines of stderr may stand anywhere, a server and a client may print through each other, and the
//! header may be missing. So tables are kept open until their own rule comes, and a row goes to the
//! first open table that it fits and that does not have it yet.

use std::collections::{HashMap, HashSet};

use super::{
    Dialect, Figure, LINES_KEPT, Piece, ROWS_KEPT, RUNS_KEPT, Row, Run, Section, Unit,
    command::{Command, Output},
    fault::{self, Say},
    line::{self, Column},
};
use crate::read::{cell::Cell, clean_lines, unlabelled};

/// A server and a client can share a file. Of more tables that are open at once the oldest is
/// given up, so that no row is compared with too many.
const OPEN: usize = 4;

/// Each row needs a table at most, and a run has three with `--report-both`.
const TABLES: usize = 10_000;

/// Facts of the block: names with which a line begins. The first few are perftest's alone.
const FACTS: [&str; 16] = [
    "Dual-port",
    "Number of qps",
    "PCIe relax order",
    "ibv_wr* API",
    "CQ Moderation",
    "Outstand reads",
    "rdma_cm QPs",
    "Use ROCm memory",
    "Data ex. method",
    "Max inline data",
    "Connection type",
    "TX depth",
    "RX depth",
    "Mtu",
    "Link type",
    "GID index",
];
const OWN_FACTS: usize = 10;

/// Beginnings of lines that are warnings, in lower case.
const WARNINGS: [&str; 5] =
    ["warning", "requested mtu", "changing to active mtu", "requested sq size", "conflicting cpu frequency"];

/// Reads a text. `file` is its number among those that belong together.
pub(super) fn read(text: &str, file: usize, command: Option<&Command>) -> Piece {
    let mut reader = Reader { file, command, ..Reader::default() };
    let mut lines = clean_lines(text).peekable();
    let ended = text.ends_with('\n');
    while let Some(line) = lines.next() {
        let last = lines.peek().is_none() && !ended;
        reader.line(unlabelled(&line).trim(), last);
        let full = reader.rows == ROWS_KEPT || reader.piece.runs.len() == RUNS_KEPT;
        if full || reader.tables.len() == TABLES {
            reader.piece.cut = true;
            break;
        }
    }
    reader.end()
}

/// A table that was begun.
#[derive(Debug, Default)]
struct Table {
    columns: Vec<Column>,
    rows: HashSet<String>,
    /// The tables that were open at the same time, which are another program's.
    beside: Vec<usize>,
    /// How often each size came.
    sizes: HashMap<i128, usize>,
    /// Which rows of the run are its own, with how often their size had come.
    own: Vec<(usize, usize)>,
    repeats: bool,
    closed: bool,
}

/// The state between two lines.
#[derive(Debug, Default)]
struct Reader<'a> {
    file: usize,
    command: Option<&'a Command>,
    piece: Piece,
    run: Run,
    /// What is said before the next title, once the present run has rows.
    next: Run,
    tables: Vec<Table>,
    open: Vec<usize>,
    section: Option<Section>,
    sections: bool,
    /// Whether the address that came last is the other side's.
    remote: Option<bool>,
    /// GPUs that CUDA listed, by number.
    listed: HashMap<u32, String>,
    rows: usize,
}

impl Reader<'_> {
    fn line(&mut self, line: &str, last: bool) {
        if line.is_empty() {
            return;
        }
        match line.as_bytes()[0] {
            b'-' if line::is_rule(line) => return self.rule(),
            b'0'..=b'9' | b'-' | b'N' | b'n' => {
                let (cells, rest) = line::cells(line);
                if !cells.is_empty() && self.row(&cells, last && rest.is_empty()) {
                    // A row is flushed before its end of line, and stderr comes between.
                    if !rest.is_empty() {
                        self.words(rest);
                    }
                    return;
                }
            }
            b'#' => {
                if let Some((columns, unit)) = line::header(line) {
                    return self.header(columns, unit);
                }
            }
            _ => {}
        }
        self.words(line);
    }

    fn rule(&mut self) {
        let begun = self.open.iter().position(|at| !self.tables[*at].rows.is_empty());
        if let Some(place) = begun {
            let at = self.open.remove(place);
            self.tables[at].closed = true;
        }
    }

    fn header(&mut self, columns: Vec<Column>, unit: Option<&str>) {
        self.piece.recognised = true;
        let unit = unit.map(|word| match word {
            "Gb/s" => Unit::Gigabits,
            "us" => Unit::Microseconds,
            _ => Unit::Mebibytes,
        });
        self.run.header_unit = self.run.header_unit.or(unit);
        self.begin(columns);
    }

    fn begin(&mut self, columns: Vec<Column>) {
        self.run.begun = true;
        if self.open.len() == OPEN {
            self.open.remove(0);
        }
        let new = self.tables.len();
        for at in &self.open {
            self.tables[*at].beside.push(new);
        }
        self.tables.push(Table { columns, beside: self.open.clone(), ..Table::default() });
        self.open.push(new);
    }

    /// A line of numbers. False if it is no row.
    fn row(&mut self, cells: &[Cell<'_>], cut: bool) -> bool {
        if cells.len() == 1 {
            return self.bare(cells[0], cut);
        }
        let key = cells.iter().map(|cell| cell.text()).collect::<Vec<_>>().join(" ");
        let size = cells[0].integer();
        let fits = |table: &Table| {
            let needed = table.columns.iter().rposition(|c| !matches!(c, Column::CpuUtil | Column::Other));
            needed.is_some_and(|needed| (needed + 1..=table.columns.len()).contains(&cells.len()))
        };
        let mut fitting: Vec<usize> =
            self.open.iter().copied().filter(|at| fits(&self.tables[*at])).collect();
        if fitting.is_empty() {
            // The rule that closed the last table was another program's.
            if let Some(at) = self.tables.len().checked_sub(1)
                && fits(&self.tables[at])
            {
                self.tables[at].closed = false;
                self.open.push(at);
                fitting.push(at);
            } else if let Some(columns) = line::shape(cells, self.piece.recognised, self.run.is_latency()) {
                self.begin(columns.to_vec());
                fitting.push(self.tables.len() - 1);
            } else {
                return false;
            }
        }
        if cut && !line::whole(&self.tables[fitting[0]].columns, cells) {
            return true;
        }
        self.piece.recognised = true;
        let has = |at: &usize| self.tables[*at].rows.contains(&key);
        let other = |at: &&usize| !has(at) && self.tables[**at].beside.iter().any(has);
        if let Some(at) = fitting.iter().find(other) {
            // The other program's same row.
            self.tables[*at].rows.insert(key);
            self.run.duplicates += 1;
            return true;
        }
        let fresh = |at: &usize| size.is_none_or(|size| !self.tables[*at].sizes.contains_key(&size));
        let at = fitting.iter().copied().find(|at| fresh(at)).unwrap_or(fitting[0]);
        let row = self.typed(&self.tables[at].columns, cells);
        let table = &mut self.tables[at];
        table.rows.insert(key);
        let times = table.sizes.entry(size.unwrap_or(0)).or_default();
        *times += 1;
        table.repeats |= *times > 1;
        table.own.push((self.run.rows.len(), *times));
        self.run.rows.push(row);
        self.rows += 1;
        true
    }

    fn typed(&self, columns: &[Column], cells: &[Cell<'_>]) -> Row {
        let mut row = Row { file: self.file, section: self.section, ..Row::default() };
        for (column, cell) in columns.iter().zip(cells) {
            let figure = cell.number().map(Figure::new);
            match column {
                Column::Size => row.size = cell.integer(),
                Column::Iterations => row.iterations = cell.integer(),
                Column::Average => row.average = figure,
                // What is not measured prints 0.00.
                Column::Peak => row.peak = figure.filter(|peak| peak.printed != 0.0),
                Column::Minimum => row.minimum = figure,
                Column::Rate => row.rate = cell.number(),
                Column::TimeMin => row.times.min = figure,
                Column::TimeMax => row.times.max = figure,
                Column::Typical => row.times.typical = figure,
                Column::TimeAverage => row.times.average = figure,
                Column::Deviation => row.times.deviation = figure,
                Column::P99 => row.times.p99 = figure,
                Column::P999 => row.times.p999 = figure,
                Column::Transactions => row.transactions = cell.number(),
                Column::CpuUtil | Column::Other => {}
            }
        }
        row
    }

    /// `--output=bandwidth` and its like print one number a line and nothing else.
    fn bare(&mut self, cell: Cell<'_>, cut: bool) -> bool {
        let Some(output) = self.command.and_then(|command| command.output) else { return false };
        let Some(number) = cell.number() else { return false };
        let mut row = Row { file: self.file, ..Row::default() };
        match output {
            Output::Bandwidth => row.average = Some(Figure::new(number)),
            Output::MessageRate => row.rate = Some(number),
            Output::Latency => row.times.average = Some(Figure::new(number)),
        }
        self.begin(Vec::new());
        self.open.clear();
        let table = self.tables.last_mut().expect("begun above");
        table.rows.insert(String::new());
        table.closed = !cut;
        if !cut {
            self.piece.recognised = true;
            self.run.rows.push(row);
            self.rows += 1;
        }
        true
    }

    /// A line of text.
    fn words(&mut self, line: &str) {
        if let Some((test, both)) = line::title(line) {
            return self.title(test, both);
        }
        if line.contains("Waiting for client to connect") {
            self.piece.recognised = true;
            self.preamble().waited = true;
            return;
        }
        if line.starts_with("Local results") || line.starts_with("Remote results") {
            let section = if line.starts_with('L') { Section::Local } else { Section::Remote };
            self.section = Some(section);
            self.sections = true;
            return;
        }
        if warns(line) {
            if let Some(code) = line.strip_prefix("Changing to active mtu - ") {
                let bytes =
                    code.parse().ok().filter(|code| (1..=5).contains(code)).map(|code: u32| 128 << code);
                let run = self.preamble();
                run.changed_mtu = run.changed_mtu.or(bytes);
            }
            super::keep(&mut self.piece.warnings, line);
            return;
        }
        if self.fact(line) || self.address(line) || self.gpu(line) {
            return;
        }
        if line.starts_with("scnt=") {
            self.piece.counts.get_or_insert_with(|| line.to_string());
            return;
        }
        if let Some(say) = fault::say(line) {
            self.piece.recognised |= !matches!(say, Say::Perhaps(_));
            if self.piece.said.len() < LINES_KEPT && !self.piece.said.iter().any(|(_, known)| known == line) {
                self.piece.said.push((say, line.to_string()));
            }
        }
    }

    /// The run that a line before a title belongs to.
    fn preamble(&mut self) -> &mut Run {
        if self.run.rows.is_empty() { &mut self.run } else { &mut self.next }
    }

    fn title(&mut self, test: &str, both: bool) {
        self.piece.recognised = true;
        if !self.run.rows.is_empty() {
            self.close();
        }
        self.run.test.get_or_insert_with(|| test.to_string());
        self.run.bidirectional.get_or_insert(both);
    }

    /// Facts of the block: ` Dual-port       : OFF\t\tDevice         : mlx5_0`
    fn fact(&mut self, line: &str) -> bool {
        let Some(at) = FACTS.iter().position(|name| line.starts_with(name)) else { return false };
        if !line.contains(':') {
            return false;
        }
        self.piece.recognised |= at < OWN_FACTS;
        let run = &mut self.run;
        let word = |name: &str| line::fact(line, name);
        let number = |name: &str| {
            let word = word(name)?;
            word.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()
        };
        let on = |name: &str| word(name).map(|word| word == "ON");
        match FACTS[at] {
            "Dual-port" => {
                run.device = run.device.take().or_else(|| word("Device").map(str::to_string));
            }
            "Number of qps" => run.qps = run.qps.or_else(|| number("Number of qps")),
            "Outstand reads" => {
                run.outstanding_reads = run.outstanding_reads.or_else(|| number("Outstand reads"));
            }
            "rdma_cm QPs" => run.rdma_cm = run.rdma_cm.or_else(|| on("rdma_cm QPs")),
            "Use ROCm memory" => run.rocm_memory = run.rocm_memory.or_else(|| on("Use ROCm memory")),
            "TX depth" => run.sends = true,
            "Mtu" => run.mtu = run.mtu.or_else(|| number("Mtu")),
            "Link type" => {
                run.link_layer = run.link_layer.take().or_else(|| word("Link type").map(link_layer));
            }
            _ => {}
        }
        true
    }

    /// An address line, or the GID line below it.
    fn address(&mut self, line: &str) -> bool {
        if line.starts_with("GID:") {
            let side = match self.remote {
                Some(true) => &mut self.run.remote,
                Some(false) => &mut self.run.local,
                None => return true,
            };
            side.gid = side.gid.or_else(|| line::gid(line));
            self.remote = None;
            return true;
        }
        let remote = line.starts_with("remote address:");
        if !remote && !line.starts_with("local address:") {
            return false;
        }
        self.piece.recognised = true;
        let side = if remote { &mut self.run.remote } else { &mut self.run.local };
        // Only the first queue pair is kept, so the GID line of another one is not taken for its.
        let first = side.qpn.is_none();
        if first {
            side.lid = line::hex_after(line, "LID");
            side.qpn = line::hex_after(line, "QPN");
        }
        self.remote = first.then_some(remote);
        true
    }

    /// What CUDA and ROCm say before the block.
    fn gpu(&mut self, line: &str) -> bool {
        if let Some(rest) = line.strip_prefix("CUDA device ") {
            let Some((index, bdf)) = rest.split_once(": PCIe address is ") else { return false };
            if let Ok(index) = index.parse() {
                self.listed.entry(index).or_insert_with(|| bdf.trim().to_string());
            }
        } else if let Some(rest) =
            line.strip_prefix("Picking device No. ").or_else(|| line.strip_prefix("Picking GPU number "))
        {
            let index = rest.trim().parse().ok();
            let bdf = index.and_then(|index| self.listed.get(&index).cloned());
            let gpu = &mut self.preamble().gpu;
            gpu.index = gpu.index.or(index);
            gpu.bdf = gpu.bdf.take().or(bdf);
        } else if let Some(rest) = line.strip_prefix("Finding PCIe BUS ") {
            let gpu = &mut self.preamble().gpu;
            gpu.bdf.get_or_insert_with(|| rest.trim().to_string());
        } else if let Some((_, name)) = line.split_once("device name = [") {
            let gpu = &mut self.preamble().gpu;
            gpu.name.get_or_insert_with(|| name.trim_end_matches(']').to_string());
        } else if let Some(rest) = line.strip_prefix("Using ROCm Device with ID: ") {
            let part = |from: &str, to: &str| {
                let (_, rest) = rest.split_once(from)?;
                Some(rest.split(to).next()?.trim().to_string())
            };
            let gpu = &mut self.preamble().gpu;
            gpu.index = gpu.index.or_else(|| rest.split(',').next()?.trim().parse().ok());
            gpu.name = gpu.name.take().or_else(|| part("Name: ", ", PCI Bus ID"));
            gpu.bdf = gpu.bdf.take().or_else(|| part("PCI Bus ID: ", ","));
            gpu.arch = gpu.arch.take().or_else(|| part("GCN Arch: ", ","));
        } else {
            let known = line == "initializing CUDA" || line.starts_with("Listing all CUDA devices");
            self.piece.recognised |= known;
            return known;
        }
        self.piece.recognised = true;
        true
    }

    /// Ends the present run, and begins the next one with what was already said of it.
    fn close(&mut self) {
        let mut run = std::mem::replace(&mut self.run, std::mem::take(&mut self.next));
        let tables = std::mem::take(&mut self.tables);
        self.open.clear();
        let forever = self.command.is_some_and(|command| command.infinite);
        let whole = |t: &Table| !t.rows.is_empty() && (t.closed || t.repeats || forever);
        run.complete = !tables.is_empty() && tables.iter().all(whole);
        for table in tables.iter().filter(|table| table.repeats) {
            run.repeats = true;
            for (row, times) in &table.own {
                run.rows[*row].interval = Some(*times);
            }
        }
        if self.sections {
            for row in &mut run.rows {
                row.section.get_or_insert(Section::Total);
            }
        }
        (self.section, self.sections, self.remote) = (None, false, None);
        self.piece.runs.push(run);
    }

    fn end(mut self) -> Piece {
        let begun = self.run != Run::default() || self.piece.runs.is_empty();
        if self.piece.recognised && begun {
            self.close();
        }
        self.piece.dialect = self.piece.recognised.then_some(Dialect::Text);
        self.piece
    }
}

fn warns(line: &str) -> bool {
    let begins = |text: &&str| line.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text));
    WARNINGS.iter().any(begins) || line.contains("NCCL WARN")
}

/// `IB` in the block.
pub(super) fn link_layer(word: &str) -> String {
    if word == "IB" { "InfiniBand".into() } else { word.into() }
}
