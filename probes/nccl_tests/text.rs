//! The table on standard output, among whatever else came to the same file.

use std::borrow::Cow;

use super::{Dialect, Half, Layout, Log, Row, Run, Step, command, line};
use crate::read::clean_lines;

pub(super) fn read(text: &str) -> Log {
    let mut reader = Reader::default();
    let mut last = Cow::Borrowed("");
    for line in clean_lines(text) {
        reader.line(unlabelled(&line));
        if !line.trim().is_empty() {
            last = line;
        }
    }
    let mut log = reader.end();
    // A row that its line ends in the middle of.
    let fields = last.split_whitespace().count();
    let begins = last.split_whitespace().next().is_some_and(|word| word.bytes().all(|b| b.is_ascii_digit()));
    log.cut = log.recognised
        && !text.ends_with('\n')
        && begins
        && (2..13).contains(&fields)
        && log.runs.iter().any(|run| run.tables > 0 && run.footers < run.tables);
    log
}

/// A line without the rank that `srun -l` puts in front.
fn unlabelled(line: &str) -> &str {
    let rest = line.trim_start().split_once(": ").filter(|(label, rest)| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_digit())
            && (rest.trim_start().starts_with('#') || rest.split_whitespace().count() >= 8)
    });
    rest.map_or(line, |(_, rest)| rest)
}

#[derive(Default)]
struct Reader {
    log: Log,
    run: Run,
    columns: Option<Columns>,
    /// Which ways the title line above the columns names.
    title: Vec<Way>,
    /// The test that the newest start line names, before its run begins.
    seen: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Out,
    Inside,
}

/// What a value of a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Size,
    Count,
    Type,
    Redop,
    Root,
    Time(Way),
    EventTime(Way),
    Algbw(Way),
    Busbw(Way),
    Wrong(Way),
    Delta(Way),
    Algo,
    Proto,
    Channels,
    /// Two words.
    Timestamp,
    Other,
}

#[derive(Clone, Debug)]
struct Columns(Vec<Column>);

impl Reader {
    fn line(&mut self, line: &str) {
        let line = line.trim();
        if let Some(rdma) = line::rdma(line) {
            self.run.rdma = Some(self.run.rdma.unwrap_or(false) || rdma);
            self.seen = true;
        }
        if line::take(&mut self.log, line) {
            return;
        }
        match line.strip_prefix('#') {
            Some(rest) => self.remark(rest.trim()),
            None => self.row(line),
        }
    }

    /// A header line after the last footer begins a new run.
    fn header(&mut self) {
        self.log.recognised = true;
        if self.run.tables > 0 && self.run.footers >= self.run.tables {
            self.close();
        }
        self.seen = true;
    }

    fn close(&mut self) {
        if self.seen {
            self.log.runs.push(std::mem::take(&mut self.run));
        }
        (self.columns, self.title, self.seen) = (None, Vec::new(), false);
    }

    fn remark(&mut self, rest: &str) {
        if let Some(name) = rest.strip_prefix("Collective test starting:") {
            self.header();
            self.run.test = command::tool(name.trim()).map(str::to_string).or(self.run.test.take());
        } else if rest.starts_with("nThread ") {
            self.header();
            self.settings(rest);
        } else if rest.starts_with("nccl-tests version")
            || rest.starts_with("rccl-tests version")
            || rest == "Using devices"
        {
            self.header();
        } else if rest.starts_with("Rank ") {
            self.rank(rest);
        } else if rest.starts_with("...") {
            self.run.shortened = true;
        } else if rest.contains("out-of-place") || rest.contains("in-place") {
            self.header();
            self.title = title(rest);
        } else if rest.starts_with("size ") && rest.contains("busbw") {
            self.header();
            self.run.tables += 1;
            let columns = Columns::of(rest, &self.title);
            self.run.layout = self.run.layout.or(columns.layout());
            self.columns = Some(columns);
        } else if let Some(bounds) = rest.strip_prefix("Out of bounds values") {
            self.log.recognised = true;
            self.seen = true;
            self.run.footers += 1;
            let count = bounds.trim_start_matches([':', ' ']).split(' ').next().and_then(line::whole);
            self.run.out_of_bounds = match (self.run.out_of_bounds, count) {
                (Some(before), Some(more)) => Some(before.saturating_add(more)),
                (before, more) => before.or(more),
            };
        } else if let Some(mean) = rest.strip_prefix("Avg bus bandwidth") {
            let mut words = mean.trim_start_matches([':', ' ']).split_whitespace();
            self.run.average = words.next().and_then(line::number).or(self.run.average);
            self.run.below_limit |= words.next() == Some("FAILED");
        }
    }

    /// `nThread 1 nGpus 8 minBytes 8388608 maxBytes 1073741824 step: 2(factor) .. validation: 1`
    fn settings(&mut self, rest: &str) {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let after = |name: &str| words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1));
        self.run.least = self.run.least.or_else(|| after("minBytes").and_then(|word| word.parse().ok()));
        self.run.validation = self.run.validation.or_else(|| after("validation:").map(|word| *word != "0"));
        let step = after("step:").and_then(|word| {
            let (number, kind) = word.split_once('(')?;
            match kind {
                "factor)" => number.parse().ok().map(Step::Factor),
                "bytes)" => number.parse().ok().map(Step::Bytes),
                _ => None,
            }
        });
        self.run.step = self.run.step.or(step);
    }

    /// `Rank  0 Group  0 Pid  41200 on     node-a device  0 [0000:05:00] AMD Instinct MI300X`
    fn rank(&mut self, rest: &str) {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let rank = words.get(1).and_then(|word| word.parse::<u32>().ok());
        let host = words.iter().position(|word| *word == "on").and_then(|at| words.get(at + 1));
        let (Some(rank), Some(host)) = (rank, host) else { return };
        self.header();
        *self.run.told.entry(rank).or_default() += 1;
        *self.run.ranks_of.entry((*host).to_string()).or_default() += 1;
    }

    fn row(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first().and_then(|word| word.parse::<i64>().ok()).is_none() {
            self.log.recognised |= line.starts_with("rccl-tests: Version");
            return;
        }
        let row = match &self.columns {
            Some(columns) => columns.row(&words),
            None if words.len() == 13 => Columns::bare(words[8]).row(&words),
            None => None,
        };
        let Some(row) = row else { return };
        self.log.recognised = true;
        self.seen = true;
        if self.columns.is_none() && self.run.layout.is_none() {
            self.run.layout = Columns::bare(words[8]).layout();
        }
        self.run.tables = self.run.tables.max(1);
        self.run.rows.push(row);
    }

    fn end(mut self) -> Log {
        self.close();
        let mut log = self.log;
        let tables: usize = log.runs.iter().map(|run| run.tables).sum();
        let ended = log.runs.iter().all(|run| run.footers >= run.tables.max(1) || run.tables == 0);
        log.complete = tables > 0 && ended && log.errors.is_empty() && log.timed_out.is_none();
        log.dialect = log.recognised.then_some(Dialect::Text);
        log
    }
}

/// The ways in the order in which the title names them.
fn title(rest: &str) -> Vec<Way> {
    match (rest.find("out-of-place"), rest.rfind("in-place")) {
        (Some(_), Some(_)) => vec![Way::Out, Way::Inside],
        (Some(_), None) => vec![Way::Out],
        (None, Some(_)) => vec![Way::Inside],
        (None, None) => Vec::new(),
    }
}

impl Columns {
    /// By their labels; each `time` begins another way.
    fn of(header: &str, title: &[Way]) -> Columns {
        let mut ways =
            title.iter().copied().chain([Way::Out, Way::Inside].into_iter().filter(|_| title.is_empty()));
        let mut way = None;
        let columns = header.split_whitespace().map(|label| {
            if label == "time" || label == "cputime" {
                way = ways.next();
            }
            match (label, way) {
                ("size", _) => Column::Size,
                ("count", _) => Column::Count,
                ("type", _) => Column::Type,
                ("redop", _) => Column::Redop,
                ("root", _) => Column::Root,
                ("time" | "cputime", Some(way)) => Column::Time(way),
                ("hipevt", Some(way)) => Column::EventTime(way),
                ("algbw", Some(way)) => Column::Algbw(way),
                ("busbw", Some(way)) => Column::Busbw(way),
                ("#wrong", Some(way)) => Column::Wrong(way),
                ("error", Some(way)) => Column::Delta(way),
                ("algo", _) => Column::Algo,
                ("proto", _) => Column::Proto,
                ("nchannels", _) => Column::Channels,
                ("timestamp", _) => Column::Timestamp,
                _ => Column::Other,
            }
        });
        Columns(columns.collect())
    }

    /// Of rows without a header. `check` is the value of the first check.
    fn bare(check: &str) -> Columns {
        let half = |way| {
            let check = if check.contains("e-") { Column::Delta(way) } else { Column::Wrong(way) };
            [Column::Time(way), Column::Algbw(way), Column::Busbw(way), check]
        };
        let fixed = [Column::Size, Column::Count, Column::Type, Column::Redop, Column::Root];
        Columns(fixed.into_iter().chain(half(Way::Out)).chain(half(Way::Inside)).collect())
    }

    fn layout(&self) -> Option<Layout> {
        if self.0.iter().any(|column| matches!(column, Column::Delta(_))) {
            Some(Layout::Old)
        } else if self.0.iter().any(|column| matches!(column, Column::Wrong(_))) {
            Some(Layout::New)
        } else {
            None
        }
    }

    /// A row with a value for each column. The reduction, which some collectives have not, may be blank.
    fn row(&self, words: &[&str]) -> Option<Row> {
        let wide: usize = self.0.iter().map(|column| if *column == Column::Timestamp { 2 } else { 1 }).sum();
        let redop = self.0.iter().position(|column| *column == Column::Redop);
        let blank = words.len() + 1 == wide
            && redop.is_some_and(|at| words.get(at).is_some_and(|word| line::number(word).is_some()));
        if words.len() != wide && !blank {
            return None;
        }
        let mut row = Row::default();
        let mut words = words.iter();
        for column in &self.0 {
            if blank && *column == Column::Redop {
                continue;
            }
            let word = words.next()?;
            match *column {
                Column::Size => row.size = Some(line::whole(word)?),
                Column::Count => row.count = Some(line::whole(word)?),
                Column::Type => row.dtype = Some(name(word)?),
                Column::Redop => row.redop = Some(name(word)?),
                Column::Root => row.root = Some(line::whole(word)?),
                Column::Time(way) => half(&mut row, way).time = figure(word)?,
                Column::EventTime(way) => half(&mut row, way).event_time = figure(word)?,
                Column::Algbw(way) => half(&mut row, way).algbw = figure(word)?,
                Column::Busbw(way) => half(&mut row, way).busbw = figure(word)?,
                Column::Wrong(way) => {
                    half(&mut row, way).wrong =
                        figure(word)?.and_then(|_| line::whole(word.trim_end_matches('*')));
                }
                Column::Delta(way) => half(&mut row, way).max_delta = figure(word)?,
                Column::Algo => row.algo = Some((*word).to_string()).filter(|word| word != "N/A"),
                Column::Proto => row.proto = Some((*word).to_string()).filter(|word| word != "N/A"),
                Column::Channels => row.channels = line::whole(word),
                Column::Timestamp => {
                    words.next();
                }
                Column::Other => {}
            }
        }
        Some(row)
    }
}

fn half(row: &mut Row, way: Way) -> &mut Half {
    match way {
        Way::Out => &mut row.out,
        Way::Inside => &mut row.inside,
    }
}

/// A name of a type or an operation: no number.
fn name(word: &str) -> Option<String> {
    line::number(word).is_none().then(|| word.to_string())
}

/// A figure that may be absent; none if it is neither.
fn figure(word: &str) -> Option<Option<f64>> {
    let absent = ["N/A", "nan", "-nan", "NaN", "inf", "-inf"].contains(&word);
    match line::number(word) {
        Some(number) => Some(Some(number)),
        None => absent.then_some(None),
    }
}
