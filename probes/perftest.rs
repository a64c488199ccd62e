//! perftest (`ib_write_bw` and its relatives): what it prints, as values with units.
//!
//! It turns the text of one run, or of several, into typed rows and facts, and says what is missing.
//! Nothing is judged here. Exit 0 proves nothing, since two sides with different options end with it
//! too; nor does a row, which is printed before the run may fail. A run is whole if its closing rule
//! was seen and no error text.

pub mod command;
pub mod fault;
mod json;
mod line;
mod text;
pub mod unit;

pub use command::Command;
pub use fault::{Completion, Errno, Fault, Kind, Mismatch};
pub use unit::{Check, Unit};

/// Error and warning lines kept of each text.
pub(crate) const LINES_KEPT: usize = 100;

/// More rows than one of each second of a day: no run that somebody reads has as many.
const ROWS_KEPT: usize = 100_000;

/// What the text of a run says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// In the order in which they were printed.
    pub runs: Vec<Run>,
    /// The command, if it is one of perftest.
    pub command: Option<Command>,
    /// How the first text with anything in it is written.
    pub dialect: Option<Dialect>,
    /// Whether JSON that was meant to be is; none where none was meant.
    pub valid_json: Option<bool>,
    /// Something in it is perftest's.
    pub recognised: bool,
    /// No error text, and every table that was begun is closed.
    pub complete: bool,
    /// There were too many rows or tables to read them all.
    pub cut: bool,
    /// The text says that the program crashed.
    pub crashed: bool,
    /// Distinct lines that tell of an error, a missed limit or wrong data.
    pub errors: Vec<String>,
    /// Distinct warnings.
    pub warnings: Vec<String>,
    /// What the error lines say.
    pub fault: Fault,
}

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The table.
    Text,
    /// `--out_json`, with quoted keys.
    Json,
    /// `--out_json` up to 23.10: bare keys and words.
    Legacy,
    /// Quoted keys, and a comma before a closing brace.
    TrailingComma,
}

/// One execution of the program on one side, or on both if they share a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// `ib_write_bw` ..
    pub test: Option<String>,
    /// Both directions at once: figures are their sum.
    pub bidirectional: Option<bool>,
    /// The banner of a waiting server was seen.
    pub waited: bool,
    /// A queue for sending was printed.
    pub sends: bool,
    /// The RDMA device.
    pub device: Option<String>,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: Option<String>,
    /// Active MTU in bytes.
    pub mtu: Option<u32>,
    /// The MTU that the program said it would change to, in bytes.
    changed_mtu: Option<u32>,
    /// Queue pairs.
    pub qps: Option<u32>,
    /// Outstanding reads.
    pub outstanding_reads: Option<u32>,
    /// `-R`
    pub rdma_cm: Option<bool>,
    /// The memory is an AMD GPU's.
    pub rocm_memory: Option<bool>,
    /// The GPU whose memory was used.
    pub gpu: Gpu,
    /// This side's first queue pair.
    pub local: Address,
    /// The other side's first queue pair.
    pub remote: Address,
    /// What the label of the table says.
    pub header_unit: Option<Unit>,
    /// What the figures are; none if it can't be told.
    pub unit: Option<Unit>,
    /// What size times message rate says of the unit.
    pub check: Option<Check>,
    /// In the order in which they were printed.
    pub rows: Vec<Row>,
    /// Equal rows of a server and a client that share a file, which were dropped.
    pub duplicates: usize,
    /// A size repeats in a table: the program runs until it is killed.
    pub repeats: bool,
    /// Every table of it has a row and its closing rule.
    pub complete: bool,
    /// `SEND` shows this side alone with `-D` and `--run_infinitely`.
    one_side: bool,
    /// A table was begun.
    begun: bool,
}

/// One end of the connection, as printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// 0 on Ethernet.
    pub lid: Option<u32>,
    /// Number of the queue pair.
    pub qpn: Option<u32>,
    /// Only where a GID index is used.
    pub gid: Option<[u8; 16]>,
}

/// The GPU whose memory was used, as printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// Its number in the program's order.
    pub index: Option<u32>,
    /// `AMD Instinct MI300X`
    pub name: Option<String>,
    /// `29:00` with CUDA, `0x9` with ROCm.
    pub bdf: Option<String>,
    /// `gfx942:sramecc+:xnack-`
    pub arch: Option<String>,
}

/// A value as it was printed, and in base units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// In the run's unit.
    pub printed: f64,
    /// Bytes a second, or seconds; none if the unit is not known or is cycles.
    pub base: Option<f64>,
}

/// One row of a table. What is printed as `N/A` or nan is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Which of the texts it is from, from 0.
    pub file: usize,
    /// Bytes of a message.
    pub size: Option<i128>,
    /// Messages of all queue pairs.
    pub iterations: Option<i128>,
    /// Mean bandwidth, as printed: both directions together if the run is bidirectional.
    pub average: Option<Figure>,
    /// None where it was not measured, which prints 0.00.
    pub peak: Option<Figure>,
    /// Some forks print it.
    pub minimum: Option<Figure>,
    /// 10^6 messages a second.
    pub rate: Option<f64>,
    /// Of the latency tests.
    pub times: Times,
    /// Transactions a second, by a latency test with `-D`.
    pub transactions: Option<f64>,
    /// Which of the tables of `--report-both`.
    pub section: Option<Section>,
    /// 1, 2 .. where one table repeats a size.
    pub interval: Option<usize>,
}

/// Latencies of a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// Shortest.
    pub min: Option<Figure>,
    /// Longest.
    pub max: Option<Figure>,
    /// Median.
    pub typical: Option<Figure>,
    /// Mean.
    pub average: Option<Figure>,
    /// Standard deviation.
    pub deviation: Option<Figure>,
    /// 99 % are shorter.
    pub p99: Option<Figure>,
    /// 99.9 % are shorter.
    pub p999: Option<Figure>,
}

/// A table of `--report-both`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Both directions together.
    Total,
    /// What this side sent.
    Local,
    /// What the other side sent.
    Remote,
}

/// Reads what one command printed. `command` is its words, if they are known.
pub fn read(stdout: &str, stderr: &str, command: Option<&[String]>) -> Log {
    read_all(&[stdout, stderr], command.and_then(Command::new))
}

/// Reads several texts of the same run or runs: output and errors, or a text and its JSON. A fact is
/// that of the first text that has it; rows and error lines are those of all.
pub fn read_all(texts: &[&str], command: Option<Command>) -> Log {
    let pieces: Vec<Piece> = texts
        .iter()
        .enumerate()
        .map(|(file, text)| {
            json::read(text, file, command.as_ref())
                .unwrap_or_else(|| text::read(text, file, command.as_ref()))
        })
        .collect();
    let recognised = pieces.iter().any(|piece| piece.recognised);
    let mut log = Log { recognised, command, ..Log::default() };
    let (mut tables, mut closed) = (false, true);
    for piece in pieces {
        log.dialect = log.dialect.or(piece.dialect);
        if let Some(valid) = piece.valid_json {
            log.valid_json = Some(log.valid_json.unwrap_or(true) && valid);
        }
        if piece.runs.iter().any(|run| run.begun) {
            tables = true;
            closed &= piece.runs.iter().all(|run| run.complete);
        }
        log.cut |= piece.cut;
        for (at, run) in piece.runs.into_iter().enumerate() {
            match log.runs.get_mut(at) {
                Some(known) => known.join(run),
                None => log.runs.push(run),
            }
        }
        for line in piece.warnings {
            keep(&mut log.warnings, &line);
        }
        for (say, line) in piece.said {
            // Words of any program count only beside perftest's own, or if it is known to have run.
            if !matches!(say, fault::Say::Perhaps(_)) || recognised || log.command.is_some() {
                log.hear(say, &line);
            }
        }
        if let Some(counts) = piece.counts {
            log.fault.counts(&counts);
        }
    }
    for run in &mut log.runs {
        run.finish(log.command.as_ref());
    }
    log.complete = tables && closed && !log.cut && !log.fault.failed();
    log
}

/// Adds a line that is not there yet, up to the bound.
fn keep(lines: &mut Vec<String>, line: &str) {
    if lines.len() < LINES_KEPT && !lines.iter().any(|known| known == line) {
        lines.push(line.to_string());
    }
}

/// What one text says, before the texts are put together.
#[derive(Debug, Default)]
struct Piece {
    runs: Vec<Run>,
    dialect: Option<Dialect>,
    valid_json: Option<bool>,
    recognised: bool,
    cut: bool,
    warnings: Vec<String>,
    said: Vec<(fault::Say, String)>,
    /// The line of message counts after a failed completion.
    counts: Option<String>,
}

impl Log {
    /// The last run, which is the one that a probe started.
    pub fn last(&self) -> Option<&Run> {
        self.runs.last()
    }

    /// The failure and its likely cause, for a person; none if no text tells of one.
    pub fn cause(&self) -> Option<String> {
        self.fault.cause(self.gpu())
    }

    /// Whether the memory was a GPU's.
    pub fn gpu(&self) -> bool {
        let used = |run: &Run| run.gpu != Gpu::default() || run.rocm_memory == Some(true);
        self.command.as_ref().is_some_and(|command| command.gpu) || self.runs.iter().any(used)
    }

    fn hear(&mut self, say: fault::Say, line: &str) {
        keep(&mut self.errors, line);
        match say {
            fault::Say::Error(kind) | fault::Say::Perhaps(kind) => {
                self.crashed |= kind == Kind::Crash;
                self.fault.add(kind, line);
            }
            fault::Say::Stalled => self.fault.stalled = true,
            fault::Say::Limit => self.fault.limit = self.fault.limit.take().or(Some(line.into())),
            fault::Say::Corrupt => self.fault.corrupt = self.fault.corrupt.take().or(Some(line.into())),
        }
    }
}

impl Run {
    /// Whether it is a latency test.
    pub fn is_latency(&self) -> bool {
        match &self.test {
            Some(test) => test.ends_with("_lat"),
            None => self.rows.iter().any(|row| row.times != Times::default()),
        }
    }

    /// The row with the highest average bandwidth in one direction. Of a run with one size and no
    /// intervals it is the only row.
    pub fn best(&self) -> Option<&Row> {
        let measured = self.rows.iter().filter_map(|row| Some((row, self.one_way(row)?)));
        measured.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(row, _)| row)
    }

    /// The row of the smallest size that has a typical latency.
    pub fn smallest(&self) -> Option<&Row> {
        let measured = self.rows.iter().filter(|row| row.times.typical.is_some());
        measured.min_by_key(|row| row.size)
    }

    /// Average bandwidth of the best row in bytes a second, as printed: both directions together if
    /// the run is bidirectional. None if nothing was measured, which may print 0.00 with exit 0.
    pub fn bandwidth(&self) -> Option<f64> {
        let row = self.best()?;
        row.average?.base.filter(|_| row.measured())
    }

    /// The same in one direction.
    pub fn bandwidth_one_way(&self) -> Option<f64> {
        let row = self.best()?;
        self.one_way(row).and_then(|average| self.unit?.base(average)).filter(|_| row.measured())
    }

    /// Latencies of the smallest size; their `base` is seconds.
    pub fn latency(&self) -> Option<&Times> {
        self.smallest().map(|row| &row.times)
    }

    /// The average of a row in one direction, in the run's unit.
    pub fn one_way(&self, row: &Row) -> Option<f64> {
        let printed = row.average?.printed;
        let alone = matches!(row.section, Some(Section::Local | Section::Remote)) || self.one_side;
        Some(if self.bidirectional == Some(true) && !alone { printed / 2.0 } else { printed })
    }

    /// `server` if it waited for a client, `client` if it sends.
    pub fn role(&self) -> Option<&'static str> {
        match (self.waited, self.sends) {
            (true, _) => Some("server"),
            (false, true) => Some("client"),
            (false, false) => None,
        }
    }

    /// Whether a table or a row of it was seen.
    pub fn begun(&self) -> bool {
        self.begun
    }

    /// Adds what another text says of the same run.
    fn join(&mut self, other: Run) {
        fn fill<T>(known: &mut Option<T>, other: Option<T>) {
            if known.is_none() {
                *known = other;
            }
        }
        // A run that the first text only began to tell of: its table is the other one's.
        self.complete = if self.begun && other.begun {
            self.complete && other.complete
        } else {
            self.complete || other.complete
        };
        fill(&mut self.test, other.test);
        fill(&mut self.bidirectional, other.bidirectional);
        fill(&mut self.device, other.device);
        fill(&mut self.link_layer, other.link_layer);
        fill(&mut self.mtu, other.mtu);
        fill(&mut self.changed_mtu, other.changed_mtu);
        fill(&mut self.qps, other.qps);
        fill(&mut self.outstanding_reads, other.outstanding_reads);
        fill(&mut self.rdma_cm, other.rdma_cm);
        fill(&mut self.rocm_memory, other.rocm_memory);
        fill(&mut self.header_unit, other.header_unit);
        self.gpu.join(other.gpu);
        self.local.join(other.local);
        self.remote.join(other.remote);
        self.waited |= other.waited;
        self.sends |= other.sends;
        self.repeats |= other.repeats;
        self.begun |= other.begun;
        self.duplicates += other.duplicates;
        self.rows.extend(other.rows);
    }

    /// Settles what only the whole run says: the unit, and with it the base units.
    fn finish(&mut self, command: Option<&Command>) {
        self.mtu = self.mtu.or(self.changed_mtu);
        self.test = self.test.take().or_else(|| command.map(|command| command.tool.clone()));
        if self.bidirectional.is_none() && command.is_some_and(|command| command.bidirectional) {
            self.bidirectional = Some(true);
        }
        if self.is_latency() {
            let cycles = command.is_some_and(|command| command.cycles);
            self.unit = Some(if cycles { Unit::Cycles } else { Unit::Microseconds });
        } else if !self.rows.is_empty() {
            let check = unit::check(&self.rows);
            self.unit = unit::bandwidth(check, self.header_unit, command);
            self.check = Some(check);
        }
        let unpeaked = self.rows.iter().all(|row| row.peak.is_none());
        let lasting = match command {
            Some(command) => command.duration || command.infinite,
            None => unpeaked,
        };
        let send = self.test.as_deref() == Some("ib_send_bw");
        self.one_side = send && (lasting || self.repeats);
        let unit = self.unit;
        for figure in self.rows.iter_mut().flat_map(Row::figures) {
            figure.base = unit.and_then(|unit| unit.base(figure.printed));
        }
    }
}

impl Row {
    /// An average of 0, or of less, is no measurement.
    pub fn measured(&self) -> bool {
        self.average.is_some_and(|average| average.printed > 0.0)
    }

    fn figures(&mut self) -> impl Iterator<Item = &mut Figure> {
        let times = &mut self.times;
        let bandwidths = [&mut self.average, &mut self.peak, &mut self.minimum];
        let times = [
            &mut times.min,
            &mut times.max,
            &mut times.typical,
            &mut times.average,
            &mut times.deviation,
            &mut times.p99,
            &mut times.p999,
        ];
        bandwidths.into_iter().chain(times).flatten()
    }
}

impl Figure {
    fn new(printed: f64) -> Figure {
        Figure { printed, base: None }
    }
}

impl Address {
    fn join(&mut self, other: Address) {
        self.lid = self.lid.or(other.lid);
        self.qpn = self.qpn.or(other.qpn);
        self.gid = self.gid.or(other.gid);
    }
}

impl Gpu {
    /// The PCI bus number.
    pub fn bus(&self) -> Option<u8> {
        let bdf = self.bdf.as_deref()?;
        match bdf.strip_prefix("0x") {
            Some(bus) => u8::from_str_radix(bus, 16).ok(),
            // With a domain in front and a function behind, or with neither.
            None => {
                let mut parts = bdf.rsplit(':');
                parts.next()?;
                u8::from_str_radix(parts.next()?, 16).ok()
            }
        }
    }

    fn join(&mut self, other: Gpu) {
        self.index = self.index.or(other.index);
        self.name = self.name.take().or(other.name);
        self.bdf = self.bdf.take().or(other.bdf);
        self.arch = self.arch.take().or(other.arch);
    }
}

impl Dialect {
    /// The word in the object.
    pub fn word(self) -> &'static str {
        match self {
            Dialect::Text => "text",
            Dialect::Json => "json",
            Dialect::Legacy => "perftest-legacy",
            Dialect::TrailingComma => "trailing-comma",
        }
    }
}

#[cfg(test)]
mod tests;
