//! What the agent costs a node, beside Debian's node exporter: `cargo bench`, and with
//! `-- --long` the windows that published figures come from.
//!
//! Both run at the same time on the same machine and are asked by the same clients for the same
//! time: the agent about a recorded node of 8 GPUs and 8 NICs, the node exporter about this one.
//! The limits are asserted for the agent alone; the other column says what is usual.
#![expect(clippy::disallowed_methods, reason = "a measurement starts the exporters itself")]
#![expect(clippy::print_stdout, reason = "this is the report")]

use std::{
    net::TcpListener,
    path::Path,
    process::{Command, ExitCode},
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    client::{Client, Manner},
    exporter::Exporter,
};

mod client;
mod exporter;
#[path = "../tree.rs"]
mod tree;

/// Clients that scrape at once.
const CLIENTS: usize = 10;
/// How long they do, in one round.
const ROUND: Duration = Duration::from_secs(2);
/// Rounds in each manner. What else goes on here can only add time: the best round counts.
const ROUNDS: usize = 5;
/// The most rounds, where the best of them is not good enough yet.
const MOST_ROUNDS: usize = 20;
/// Between two bursts, so that each finds an idle exporter.
const BURST_PAUSE: Duration = Duration::from_millis(5);
/// Until start-up and the first runs are over.
const SETTLE: Duration = Duration::from_secs(5);
/// How often a scraper comes while load and memory are measured.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);
/// How long load and memory are measured: whole intervals of the passive probes.
const SHORT_WINDOW: Duration = Duration::from_secs(120);
const LONG_WINDOW: Duration = Duration::from_secs(600);

const READY: Duration = Duration::from_secs(1);
const RESIDENT: u64 = 20 * 1024 * 1024;
const LOAD: f64 = 0.002;
const SCRAPE: Duration = Duration::from_millis(5);
const END: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let long = std::env::args().any(|argument| argument == "--long");
    let window = if long { LONG_WINDOW } else { SHORT_WINDOW };
    let mut report = Report::default();

    let folder = tempfile::tempdir().unwrap();
    let ours = start_agent(folder.path());
    let theirs = start_node_exporter();
    let both = [&ours, &theirs];
    report.row("ready", both.map(|one| millis(one.ready)), "ms", Some(millis(READY)));

    thread::sleep(SETTLE);
    let idle = watch(both, window);
    report.row(
        &format!("load over {} s, children included", window.as_secs()),
        idle.each_ref().map(|usage| usage.load * 100.0),
        "% of a core",
        Some(LOAD * 100.0),
    );
    report.row(
        "resident memory, most of that time",
        idle.map(|usage| mebibytes(usage.resident)),
        "MiB",
        Some(mebibytes(RESIDENT)),
    );

    for keep in [true, false] {
        for gzip in [false, true] {
            let manner = Manner { keep, gzip };
            let times = best_rounds(both, manner);
            let name = format!(
                "{CLIENTS} scrapes at once, {}, {}",
                if keep { "connection kept" } else { "new connections" },
                if gzip { "gzip" } else { "plain" }
            );
            report.row(&format!("{name}: p50"), times.each_ref().map(|times| millis(times.p50)), "ms", None);
            report.row(
                &format!("{name}: p99"),
                times.each_ref().map(|times| millis(times.p99)),
                "ms",
                Some(millis(SCRAPE)),
            );
            report.row(
                &format!("{name}: most"),
                times.each_ref().map(|times| millis(times.most)),
                "ms",
                None,
            );
            report.row(&format!("{name}: size"), times.map(|times| times.bytes as f64 / 1e3), "kB", None);
        }
    }
    report.row("resident memory after that", both.map(|one| mebibytes(one.resident())), "MiB", None);
    report.row("end", [ours.end(), theirs.end()].map(millis), "ms", Some(millis(END)));
    report.print()
}

/// The release binary with its built-in configuration on a recorded node.
fn start_agent(folder: &Path) -> Exporter {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let archive = std::fs::read_to_string(source.join("tests/fixtures/mi300x.tree")).unwrap();
    let root = folder.join("root");
    tree::unpack(&archive, &root);
    let address = free_address();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabricpulse"));
    command
        .arg("--web.listen-address")
        .arg(&address)
        .env("FABRICPULSE__STATE__DIRECTORY", folder.join("state"));
    command.env("FABRICPULSE__WEB__SOCKET", folder.join("agent.sock"));
    for (name, place) in [("SYSFS", "sys"), ("PROC", "proc"), ("ETC", "etc")] {
        command.env(format!("FABRICPULSE__ROOTS__{name}"), root.join(place));
    }
    Exporter::start("fabricpulse", command, address, "/-/ready")
}

fn start_node_exporter() -> Exporter {
    let address = free_address();
    let mut command = Command::new("prometheus-node-exporter");
    command.arg(format!("--web.listen-address={address}"));
    Exporter::start("prometheus-node-exporter", command, address, "/")
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// What an exporter takes while nobody but a scraper wants anything of it.
struct Usage {
    /// Share of a core.
    load: f64,
    /// Bytes, the most that were seen.
    resident: u64,
}

fn watch(exporters: [&Exporter; 2], window: Duration) -> [Usage; 2] {
    let began = Instant::now();
    let before = exporters.map(Exporter::cpu);
    let mut resident = [0, 0];
    let mut scrape = began;
    while began.elapsed() < window {
        if scrape.elapsed() >= SCRAPE_INTERVAL {
            scrape += SCRAPE_INTERVAL;
            for exporter in exporters {
                assert_eq!(exporter.once("/metrics").unwrap().0, 200, "{}", exporter.name);
            }
        }
        for (most, exporter) in resident.iter_mut().zip(exporters) {
            *most = exporter.resident().max(*most);
        }
        thread::sleep(Duration::from_secs(1));
    }
    let took = began.elapsed().as_secs_f64();
    let usage = |at: usize| Usage {
        load: (exporters[at].cpu() - before[at]).as_secs_f64() / took,
        resident: resident[at],
    };
    [usage(0), usage(1)]
}

/// How long scrapes took.
struct Times {
    p50: Duration,
    p99: Duration,
    most: Duration,
    bytes: usize,
}

/// Both exporters go through as many rounds.
fn best_rounds([ours, theirs]: [&Exporter; 2], manner: Manner) -> [Times; 2] {
    let mut best = [round(ours, manner), round(theirs, manner)];
    for done in 1..MOST_ROUNDS {
        if done >= ROUNDS && best[0].p99 < SCRAPE {
            break;
        }
        for (best, exporter) in best.iter_mut().zip([ours, theirs]) {
            let times = round(exporter, manner);
            if times.p99 < best.p99 {
                *best = times;
            }
        }
    }
    best
}

/// All clients at once, again and again.
fn round(exporter: &Exporter, manner: Manner) -> Times {
    let (together, over) = (Barrier::new(CLIENTS), AtomicBool::new(false));
    let began = Instant::now();
    let scrape = || {
        let mut client = Client::new(&exporter.address, manner);
        let mut times = Vec::new();
        loop {
            if together.wait().is_leader() && began.elapsed() >= ROUND {
                over.store(true, Ordering::Relaxed);
            }
            let start = Instant::now();
            let (status, bytes) = client.get("/metrics").unwrap();
            times.push((start.elapsed(), bytes));
            assert_eq!(status, 200, "{}", exporter.name);
            // Behind this everybody knows what the leader decided.
            together.wait();
            if over.load(Ordering::Relaxed) {
                // The first one opened the connection.
                return times.split_off(1);
            }
            thread::sleep(BURST_PAUSE);
        }
    };
    let mut times: Vec<(Duration, usize)> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(scrape)).collect();
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    });
    times.sort_unstable();
    let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)].0;
    Times { p50: at(50), p99: at(99), most: at(100), bytes: times[0].1 }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The table, and whether all limits are kept.
#[derive(Default)]
struct Report {
    rows: Vec<Row>,
}

struct Row {
    name: String,
    unit: &'static str,
    ours: f64,
    theirs: f64,
    limit: Option<f64>,
}

impl Row {
    fn kept(&self) -> Option<bool> {
        self.limit.map(|limit| self.ours < limit)
    }
}

impl Report {
    fn row(&mut self, name: &str, [ours, theirs]: [f64; 2], unit: &'static str, limit: Option<f64>) {
        println!("{name}: {ours:.3} {unit}");
        self.rows.push(Row { name: name.to_string(), unit, ours, theirs, limit });
    }

    /// In the words of a test run, which tests/run counts.
    fn print(self) -> ExitCode {
        println!("\n{:62} {:>12} {:>14} {:>7} {:>7}", "", "fabricpulse", "node exporter", "ratio", "limit");
        for row in &self.rows {
            let limit = row.limit.map_or(String::new(), |limit| limit.to_string());
            let ratio =
                if row.theirs > 0.0 { format!("{:.2}", row.ours / row.theirs) } else { "-".to_string() };
            println!(
                "{:62} {:>12.3} {:>14.3} {:>7} {:>7} {}",
                row.name, row.ours, row.theirs, ratio, limit, row.unit
            );
        }
        println!();
        let gates: Vec<_> = self.rows.iter().filter_map(|row| Some((row, row.kept()?))).collect();
        for (row, kept) in &gates {
            println!("test {} ... {}", row.name, if *kept { "ok" } else { "FAILED" });
        }
        let passed = gates.iter().filter(|(_, kept)| *kept).count();
        let failed = gates.len() - passed;
        let result = if failed == 0 { "ok" } else { "FAILED" };
        println!("\ntest result: {result}. {passed} passed; {failed} failed");
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
