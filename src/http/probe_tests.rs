use governor::clock::FakeRelativeClock;
use hyper::header::{HeaderValue, RETRY_AFTER};
use probes::Measurement;

use super::*;
use crate::{
    metrics::PREFIX,
    run::{CancelledBy, Evidence, Failure, Report, Trigger},
};

fn report(device: &str, verdict: Verdict, up: f64) -> Report {
    let measure = |name, value| Measurement {
        metric: probes::find_metric(name).unwrap(),
        labels: vec![device.to_string(), "1".to_string()],
        value,
    };
    Report {
        target: Target::Rdma(device.to_string()),
        verdict,
        reason: "as it is".to_string(),
        findings: vec![
            probes::Finding::new("port_state", device, verdict, "INIT", "ACTIVE, as on every used port")
                .because("nothing can be sent")
                .try_command("rdma link show"),
        ],
        measurements: vec![measure("nic_port_up", up), measure("nic_link_downed", 2.0)],
        speed: None,
    }
}

fn run(outcome: Outcome) -> Run {
    Run {
        id: 7,
        probe: "nic",
        target: None,
        trigger: Trigger::OnDemand,
        peer: None,
        started: 1.0,
        took: Duration::from_millis(20),
        outcome,
        reports: vec![report("mlx5_0", Verdict::Pass, 1.0), report("mlx5_1", Verdict::Degraded, 0.0)],
        evidence: vec![Evidence {
            argv: vec!["fabricpulse".to_string(), "worker".to_string()],
            exit: "exit 0".to_string(),
            took: Duration::from_millis(19),
            stdout: "{}\n".to_string(),
            stderr: String::new(),
        }],
    }
}

fn answer<'a>(run: &'a Arc<Run>, target: Option<&'a Target>) -> Answer<'a> {
    Answer { run, target, took: Duration::from_millis(25), timeout: Duration::from_secs(10) }
}

#[test]
fn families_stay_together_and_each_format_has_its_own_names() {
    let run = Arc::new(run(Outcome::Completed));
    let text = answer(&run, None).encode(Format::Text);
    for words in [
        "# TYPE probe_success gauge\nprobe_success 0",
        "probe_duration_seconds 0.025\n",
        "probe_timeout_seconds 10",
        &format!("{PREFIX}_lane_verdict{{probe=\"nic\",target=\"mlx5_0\"}} 0"),
        &format!("{PREFIX}_lane_verdict{{probe=\"nic\",target=\"mlx5_1\"}} 1"),
        &format!(
            "# TYPE {PREFIX}_nic_port_up gauge\n{PREFIX}_nic_port_up{{device=\"mlx5_0\",port=\"1\"}} 1.0\n\
             {PREFIX}_nic_port_up{{device=\"mlx5_1\",port=\"1\"}} 0.0\n"
        ),
        &format!("{PREFIX}_nic_link_downed_total{{device=\"mlx5_0\",port=\"1\"}} 2"),
    ] {
        assert!(text.contains(words), "{words:?} is missing in:\n{text}");
    }
    let open = answer(&run, None).encode(Format::OpenMetrics);
    assert!(open.contains(&format!("# TYPE {PREFIX}_nic_link_downed counter\n")), "{open}");
    assert!(open.ends_with("# EOF\n"), "{open}");
}

#[test]
fn promtool_finds_nothing_wrong_with_the_text() {
    use std::io::Write as _;
    let text = answer(&Arc::new(run(Outcome::Completed)), None).encode(Format::Text);
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
    let good = Target::Rdma("mlx5_0".to_string());
    let bad = Target::Rdma("mlx5_1".to_string());
    let gone = Target::Rdma("mlx5_2".to_string());
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
        let run = Arc::new(run(outcome));
        assert_eq!(answer(&run, target).success(), expected, "{} {target:?}", run.outcome);
    }
    let text = answer(&Arc::new(run(Outcome::Completed)), Some(&good)).encode(Format::Text);
    assert!(text.contains("probe_success 1") && !text.contains("mlx5_1"), "{text}");
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
fn what_anybody_asks_of_one_probe_is_bounded_and_the_others_are_not_touched() {
    let clock = FakeRelativeClock::default();
    let asked = Asked::new(clock.clone());
    assert_eq!((0..100).filter(|_| asked.take("nic").is_ok()).count(), 30);
    assert!(asked.take("nic").unwrap_err() <= Duration::from_secs(1));
    assert!(asked.take("pcie").is_ok());
    clock.advance(Duration::from_secs(2));
    assert_eq!((0..100).filter(|_| asked.take("nic").is_ok()).count(), 2);
}

#[test]
fn debug_shows_what_was_executed_what_was_expected_and_what_was_measured() {
    let text = answer(&Arc::new(run(Outcome::Completed)), None).debug();
    for words in [
        "run 7 of nic, on demand: completed",
        "mlx5_1: degraded: as it is",
        "expected: ACTIVE, as on every used port",
        "try: rdma link show",
        "argv: [\"fabricpulse\", \"worker\"]",
        "exit: exit 0, after 0.019 s",
        "standard output:\n{}",
        "standard error: empty",
        "probe_success 0",
    ] {
        assert!(text.contains(words), "{words:?} is missing in:\n{text}");
    }
}
