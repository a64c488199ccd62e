use probes::Measurement;

use super::*;
use crate::run::{CancelledBy, Evidence, Failure, Report, Trigger};

static WIDTH: MetricSpec = MetricSpec {
    name: "pcie_link_width_lanes",
    help: "Lanes in use.",
    unit: "lanes",
    kind: MetricKind::Gauge,
    labels: &["pci"],
};

static ERRORS: MetricSpec = MetricSpec {
    name: "pcie_aer_errors",
    help: "Errors, by \"severity\".",
    unit: "",
    kind: MetricKind::Counter,
    labels: &["pci", "severity"],
};

static INFO: MetricSpec =
    MetricSpec { name: "gpu", help: "A GPU.", unit: "", kind: MetricKind::Info, labels: &["gpu", "model"] };

fn report(pci: &str, verdict: Verdict, width: f64) -> Report {
    let measure = |metric, labels: &[&str], value| Measurement {
        metric,
        labels: labels.iter().map(|label| (*label).to_string()).collect(),
        value,
    };
    Report {
        target: Target::Pci(pci.to_string()),
        verdict,
        reason: "as it is".to_string(),
        findings: vec![
            probes::Finding::new("link_width", pci, verdict, "x8", "x16, what both ends can do")
                .because("half the bandwidth")
                .try_command("lspci -vvv"),
        ],
        measurements: vec![
            measure(&WIDTH, &[pci], width),
            measure(&ERRORS, &[pci, "fatal"], 2.0),
            measure(&INFO, &[pci, "A \"B\"\\C\nD"], 1.0),
        ],
    }
}

fn run(outcome: Outcome) -> Run {
    Run {
        id: 7,
        probe: "pcie",
        trigger: Trigger::OnDemand,
        started: 1.0,
        took: Duration::from_millis(20),
        outcome,
        reports: vec![
            report("0000:05:00.0", Verdict::Pass, 16.0),
            report("0000:06:00.0", Verdict::Degraded, 8.0),
        ],
        evidence: vec![Evidence {
            argv: vec!["fabricpulse".to_string(), "worker".to_string()],
            exit: "exit 0".to_string(),
            took: Duration::from_millis(19),
            stdout: "{}\n".to_string(),
            stderr: String::new(),
        }],
    }
}

fn answer<'a>(run: &'a Run, target: Option<&'a Target>) -> Answer<'a> {
    Answer { run, target, took: Duration::from_millis(25), timeout: Duration::from_secs(10) }
}

#[test]
fn families_stay_together_and_each_format_has_its_own_names() {
    let run = run(Outcome::Completed);
    let text = answer(&run, None).encode(Format::Text);
    let expected = format!(
        r#"# HELP probe_success 1 if the run completed and everything asked for passed; the verdicts say why not.
# TYPE probe_success gauge
probe_success 0
# HELP probe_duration_seconds Seconds from the request to the answer.
# TYPE probe_duration_seconds gauge
probe_duration_seconds 0.025
# HELP probe_timeout_seconds Seconds after which the run would have been ended.
# TYPE probe_timeout_seconds gauge
probe_timeout_seconds 10
# HELP {p}_lane_verdict 0 pass, 1 degraded, 2 fail, 3 unknown.
# TYPE {p}_lane_verdict gauge
{p}_lane_verdict{{probe="pcie",target="0000:05:00.0"}} 0
{p}_lane_verdict{{probe="pcie",target="0000:06:00.0"}} 1
# HELP {p}_pcie_link_width_lanes Lanes in use.
# TYPE {p}_pcie_link_width_lanes gauge
{p}_pcie_link_width_lanes{{pci="0000:05:00.0"}} 16
{p}_pcie_link_width_lanes{{pci="0000:06:00.0"}} 8
# HELP {p}_pcie_aer_errors_total Errors, by "severity".
# TYPE {p}_pcie_aer_errors_total counter
{p}_pcie_aer_errors_total{{pci="0000:05:00.0",severity="fatal"}} 2
{p}_pcie_aer_errors_total{{pci="0000:06:00.0",severity="fatal"}} 2
# HELP {p}_gpu_info A GPU.
# TYPE {p}_gpu_info gauge
{p}_gpu_info{{gpu="0000:05:00.0",model="A \"B\"\\C\nD"}} 1
{p}_gpu_info{{gpu="0000:06:00.0",model="A \"B\"\\C\nD"}} 1
"#,
        p = PREFIX
    );
    assert_eq!(text, expected);
    let open = answer(&run, None).encode(Format::OpenMetrics);
    for line in [
        format!("# TYPE {PREFIX}_pcie_aer_errors counter\n{PREFIX}_pcie_aer_errors_total{{"),
        format!("# TYPE {PREFIX}_gpu info\n{PREFIX}_gpu_info{{"),
        format!("# UNIT {PREFIX}_pcie_link_width_lanes lanes\n"),
        format!("# HELP {PREFIX}_pcie_aer_errors Errors, by \\\"severity\\\".\n"),
    ] {
        assert!(open.contains(&line), "{line}");
    }
    assert!(open.ends_with("# EOF\n"));
}

#[test]
fn promtool_finds_nothing_wrong_with_the_text() {
    use std::io::Write as _;
    let text = answer(&run(Outcome::Completed), None).encode(Format::Text);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    #[expect(clippy::disallowed_methods, reason = "promtool is the oracle")]
    let output = std::process::Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(file)
        .output()
        .expect("promtool is installed: apt-get install prometheus");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn success_is_what_was_asked_for_and_nothing_else() {
    let good = Target::Pci("0000:05:00.0".to_string());
    let bad = Target::Pci("0000:06:00.0".to_string());
    let gone = Target::Pci("0000:07:00.0".to_string());
    let cancelled = || Outcome::Failed(Failure::Cancelled { by: CancelledBy::Caller });
    let table = [
        (Outcome::Completed, Some(&good), true),
        (Outcome::Completed, Some(&bad), false),
        (Outcome::Completed, Some(&gone), false),
        (Outcome::Completed, None, false),
        (cancelled(), Some(&good), false),
        (Outcome::Unreadable("x".to_string()), Some(&good), false),
    ];
    for (outcome, target, expected) in table {
        let run = run(outcome);
        assert_eq!(answer(&run, target).success(), expected, "{} {target:?}", run.outcome);
    }
    let text = answer(&run(Outcome::Completed), Some(&good)).encode(Format::Text);
    assert!(text.contains("probe_success 1\n") && !text.contains("0000:06:00.0"), "{text}");
}

#[test]
fn the_answer_is_there_before_prometheus_gives_up() {
    let table = [
        (None, Ok(None)),
        (Some("10"), Ok(Some(9.5))),
        (Some("1"), Ok(Some(0.5))),
        (Some("0.4"), Ok(Some(0.2))),
        (Some("0"), Err(())),
        (Some("-1"), Err(())),
        (Some("NaN"), Err(())),
        (Some("inf"), Err(())),
        (Some("ten"), Err(())),
    ];
    for (value, expected) in table {
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert("x-prometheus-scrape-timeout-seconds", HeaderValue::from_static(value));
        }
        let found =
            patience(&headers).map(|patience| patience.map(|time| time.as_secs_f64())).map_err(|_| ());
        assert_eq!(found, expected, "{value:?}");
    }
}

#[test]
fn a_refusal_says_why_and_when_to_ask_again() {
    let table = [
        (SkipReason::Busy, 200, 409, "1"),
        (SkipReason::Occupied, 60_000, 409, "60"),
        (SkipReason::Held, 1_500, 409, "2"),
        (SkipReason::Inactive, 0, 409, "1"),
        (SkipReason::Locked, 5_000, 409, "5"),
        (SkipReason::Budget, 3_600_000, 429, "3600"),
    ];
    for (reason, milliseconds, status, retry) in table {
        let response = refused(reason, "because", Duration::from_millis(milliseconds));
        assert_eq!(response.status().as_u16(), status, "{reason:?}");
        assert_eq!(response.headers()[RETRY_AFTER], retry, "{reason:?}");
    }
}

#[test]
fn debug_shows_what_was_executed_what_was_expected_and_what_was_measured() {
    let text = answer(&run(Outcome::Completed), None).debug();
    for words in [
        "run 7 of pcie, on demand: completed",
        "0000:06:00.0: degraded: as it is",
        "expected: x16, what both ends can do",
        "command: lspci -vvv",
        "argv: [\"fabricpulse\", \"worker\"]",
        "exit: exit 0, after 0.019 s",
        "standard output:\n{}",
        "standard error: empty",
        "probe_success 0",
    ] {
        assert!(text.contains(words), "{words:?} is missing in:\n{text}");
    }
}
