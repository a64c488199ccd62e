//! What a healthy full node exports: every series, in both formats, and that others can read it.
#![expect(clippy::disallowed_methods, reason = "a test starts promtool and Prometheus")]

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::agent::{Machine, PATIENCE};

/// Targets of the four passive probes on a node of 8 GPUs and 8 NICs.
const TARGETS: usize = 1 + 16 + 8 + 8;

/// Compares with a golden file; UPDATE_GOLDEN=1 writes it anew.
fn golden(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&file, text).unwrap();
    }
    let want = fs::read_to_string(&file).unwrap_or_default();
    if want != text {
        let difference = want.lines().zip(text.lines()).find(|(want, got)| want != got);
        panic!("{} differs, first in {difference:#?}; UPDATE_GOLDEN=1 renews it", file.display());
    }
}

/// What is the same in every run on the same machine: times, versions and the process are not.
fn stable(metrics: &str) -> String {
    let moving = [
        "process_",
        "fabricpulse_build_",
        "fabricpulse_run_duration_",
        "fabricpulse_runs_total{",
        "fabricpulse_skips_total{",
        "fabricpulse_node_info",
    ];
    let mut lines: Vec<String> = metrics
        .lines()
        .filter(|line| {
            !moving.iter().any(|name| {
                line.trim_start_matches("# HELP ").trim_start_matches("# TYPE ").starts_with(name)
            })
        })
        .map(|line| match line.split_once(' ') {
            Some((series, _)) if series.contains("_timestamp_seconds") => format!("{series} TIME"),
            _ => line.to_string(),
        })
        .collect();
    // A node without groups of its own has a verdict that depends on who runs the test.
    lines.retain(|line| {
        !line.contains("check=\"locked_memory\"") && !line.contains("probe=\"node\",target=\"node\"")
    });
    lines.join("\n") + "\n"
}

#[test]
fn a_healthy_mi300x_node_exports_what_it_did_before() {
    let machine = Machine::recorded("mi300x");
    let agent = machine.start();
    golden("metrics-mi300x.txt", &stable(&agent.settled(TARGETS)));
}

#[test]
fn a_healthy_h200_node_exports_what_it_did_before() {
    let machine = Machine::recorded("h200");
    let agent = machine.start();
    golden("metrics-h200.txt", &stable(&agent.settled(TARGETS)));
}

#[test]
fn promtool_finds_nothing_wrong() {
    let machine = Machine::recorded("mi300x");
    let metrics = machine.start().settled(TARGETS);
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is in Debian's package prometheus; tests/run installs it");
    promtool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn a_real_prometheus_scrapes_it_and_answers_queries() {
    let machine = Machine::recorded("mi300x");
    let agent = machine.start();
    agent.settled(TARGETS);
    let port = free_port();
    let config = machine.path("prometheus.yml");
    fs::write(&config, format!("global: {{scrape_interval: 1s}}\nscrape_configs: [{{job_name: fabricpulse, static_configs: [{{targets: ['{}']}}]}}]\n", agent.address)).unwrap();
    let mut prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", machine.path("tsdb").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus is a package of Debian; tests/run installs it");
    let ask = |query: &str| -> Option<serde_json::Value> {
        let answer = ureq(port, &format!("/api/v1/query?query={query}"))?;
        let answer: serde_json::Value = serde_json::from_str(&answer).ok()?;
        answer["data"]["result"].as_array()?.first().map(|first| first["value"][1].clone())
    };
    let deadline = Instant::now() + PATIENCE;
    let verdicts = loop {
        if let Some(verdicts) = ask("count(fabricpulse_lane_verdict==0)") {
            break verdicts;
        }
        assert!(Instant::now() < deadline, "Prometheus has no verdicts");
        thread::sleep(Duration::from_millis(200));
    };
    let up = ask("up");
    let speed = ask("max(fabricpulse_pcie_link_speed_transfers_per_second)");
    prometheus.kill().unwrap();
    prometheus.wait().unwrap();
    assert_eq!(up, Some("1".into()));
    assert_eq!(speed, Some("32000000000".into()));
    assert!(verdicts.as_str().unwrap().parse::<usize>().unwrap() >= TARGETS - 1, "{verdicts}");
}

#[test]
fn a_scrape_never_starts_a_probe() {
    let machine = Machine::recorded("mi300x");
    let agent = machine.start();
    agent.settled(TARGETS);
    let runs = |metrics: &str| -> Vec<String> {
        metrics.lines().filter(|line| line.starts_with("fabricpulse_runs_total")).map(String::from).collect()
    };
    let mut before = runs(&agent.metrics());
    for _ in 0..200 {
        agent.metrics();
    }
    let mut after = runs(&agent.metrics());
    before.sort();
    after.sort();
    assert_eq!(before, after);
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn ureq(port: u16, path: &str) -> Option<String> {
    use std::io::Read as _;
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_string())
}
