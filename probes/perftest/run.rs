//! One run: its facts, its rows, and the figures that a caller asks for first.

use super::{Check, Command, Unit, unit};

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
    pub(super) changed_mtu: Option<u32>,
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
    pub(super) begun: bool,
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

impl Run {
    /// Whether it is a latency test.
    pub fn is_latency(&self) -> bool {
        match self.rows.first() {
            Some(row) => row.times != Times::default(),
            None => self.test.as_ref().is_some_and(|test| test.ends_with("_lat")),
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
    /// the run is bidirectional. None if nothing was measured, which may print 0.00 with exit 0, or
    /// if the figures contradict each other.
    pub fn bandwidth(&self) -> Option<f64> {
        self.trusted()?.average?.base
    }

    /// The same in one direction.
    pub fn bandwidth_one_way(&self) -> Option<f64> {
        let average = self.one_way(self.trusted()?)?;
        self.unit?.base(average)
    }

    fn trusted(&self) -> Option<&Row> {
        let odd = self.check == Some(Check::FitsNeither);
        self.best().filter(|row| row.measured() && !odd)
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

    /// Whether it is the server of a test that the client alone measures, which prints no row.
    pub fn is_silent(&self) -> bool {
        let silent = |test: &str| ["ib_read_lat", "ib_atomic_lat"].contains(&test);
        !self.begun && self.waited && self.test.as_deref().is_some_and(silent)
    }

    /// Whether a table or a row of it was seen.
    pub fn begun(&self) -> bool {
        self.begun
    }

    /// Adds what another text says of the same run.
    pub(super) fn join(&mut self, other: Run) {
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
    pub(super) fn finish(&mut self, command: Option<&Command>) {
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
    pub(super) fn new(printed: f64) -> Figure {
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
