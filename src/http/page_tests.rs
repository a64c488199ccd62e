use std::{sync::Arc, time::Duration};

use probes::{
    Cost, Inventory, Target,
    inventory::{Function, Gpu, Link, Nic, Rdma},
};

use super::*;
use crate::{
    http::status::{HoldStatus, Value},
    run::{Evidence, Outcome, Report, Trigger},
};

const NOW: f64 = 1_796_082_075.0;

fn function(pci: &str, path: &[&str], width: u32) -> Function {
    Function {
        pci: pci.to_string(),
        vendor: 0x1002,
        device: 0x74a1,
        driver: Some("amdgpu".to_string()),
        numa: Some(0),
        path: path.iter().map(|bridge| (*bridge).to_string()).collect(),
        link: Some(Link {
            speed: Some(32.0),
            width: Some(width),
            max_speed: Some(32.0),
            max_width: Some(16),
        }),
        ..Function::default()
    }
}

/// Two GPUs and two NICs below one switch, and a third GPU with a narrow link of its own.
fn inventory() -> Inventory {
    let gpu = |pci, path: &[&str], width| Gpu {
        function: function(pci, path, width),
        model: Some("AMD Instinct MI300X".to_string()),
        ..Gpu::default()
    };
    let nic = |pci, path: &[&str], name: &str| Nic {
        function: function(pci, path, 16),
        rdma: vec![format!("ionic_{name}")],
        netdevs: vec![format!("eth{name}")],
    };
    let switch = ["0000:03:00.0", "0000:02:00.0", "0000:00:01.0"];
    Inventory {
        gpus: vec![
            gpu("0000:05:00.0", &switch, 16),
            gpu("0000:06:00.0", &["0000:03:01.0", "0000:02:00.0", "0000:00:01.0"], 16),
            gpu("0000:85:00.0", &["0000:84:00.0", "0000:83:00.0", "0000:80:01.0"], 8),
        ],
        nics: vec![
            nic("0000:07:00.0", &["0000:03:02.0", "0000:02:00.0", "0000:00:01.0"], "0"),
            nic("0000:08:00.0", &["0000:03:03.0", "0000:02:00.0", "0000:00:01.0"], "1"),
        ],
        rdma: vec![Rdma {
            name: "ionic_0".to_string(),
            pci: Some("0000:07:00.0".to_string()),
            ports: vec![1],
            ..Rdma::default()
        }],
        bridges: ["0000:00:01.0", "0000:02:00.0", "0000:03:00.0", "0000:84:00.0"]
            .map(|pci| function(pci, &[], 16))
            .to_vec(),
        ..Inventory::default()
    }
}

fn lane(probe: &'static str, target: &str, verdict: Verdict, reason: &str) -> LaneStatus {
    LaneStatus {
        probe,
        cost: Cost::Passive,
        target: target.to_string(),
        verdict,
        reason: reason.to_string(),
        since: NOW - 4000.0,
        last_run: Some(NOW - 20.0),
        last_completed: Some(NOW - 20.0),
        last_judged: Some(NOW - 20.0),
        interval: 60.0,
        running: None,
        run: Some(12),
        findings: Vec::new(),
        values: Vec::new(),
    }
}

fn narrow() -> Finding {
    Finding::new(
        "link_width",
        "0000:85:00.0",
        Verdict::Degraded,
        "x8",
        "x16, what both ends of the link can do",
    )
    .because("Half the lanes are half the bandwidth between this GPU and everything else.")
    .try_command("lspci -vvv -s 0000:85:00.0")
}

fn snapshot(trusted: bool) -> Snapshot {
    let mut bad = lane("pcie", "0000:85:00.0", Verdict::Degraded, "link width is x8 of x16");
    bad.findings = vec![
        narrow(),
        Finding::new("max_payload", "0000:85:00.0", Verdict::Pass, "256", "256, as the bridge above"),
    ];
    bad.values = vec![Value {
        metric: "pcie_link_width_lanes",
        labels: [("pci", "0000:85:00.0".to_string())].into(),
        value: 8.0,
    }];
    let mut down = lane("nic", "ionic_1", Verdict::Fail, "port 1 is down");
    down.findings = vec![
        Finding::new("port_state", "ionic_1", Verdict::Fail, "DOWN, physical state Polling", "ACTIVE")
            .because("Nothing can be sent over this rail; collectives over all rails hang or fall back.")
            .try_command("rdma link show ionic_1/1"),
    ];
    let lanes = vec![
        lane("node", "node", Verdict::Pass, "all 14 checks pass"),
        lane("pcie", "0000:05:00.0", Verdict::Pass, "32 GT/s x16"),
        lane("pcie", "0000:06:00.0", Verdict::Pass, "32 GT/s x16"),
        bad,
        lane("pcie", "0000:07:00.0", Verdict::Unknown, "config space can't be read: pcid is not running"),
        lane("pcie", "0000:08:00.0", Verdict::Unknown, "config space can't be read: pcid is not running"),
        lane("nic", "ionic_0", Verdict::Pass, "port 1 is active at 400 Gb/s"),
        down,
        lane("exec", "<b>disk</b>", Verdict::Pass, "\"quoted\" & fine"),
    ];
    let run = |id: u64, verdict| {
        Arc::new(Run {
            id,
            probe: "pcie",
            target: None,
            trigger: Trigger::Periodic,
            peer: None,
            started: NOW - 60.0 * (13 - id) as f64,
            took: Duration::from_millis(12),
            outcome: Outcome::Completed,
            reports: vec![Report {
                target: Target::Pci("0000:85:00.0".to_string()),
                verdict,
                reason: "link width is x8 of x16".to_string(),
                findings: vec![narrow()],
                measurements: vec![],
                speed: None,
            }],
            evidence: vec![Evidence {
                argv: vec!["/usr/bin/fabricpulse".to_string(), "worker".to_string(), "pcie".to_string()],
                exit: "exit 0".to_string(),
                took: Duration::from_millis(11),
                stdout: "{\"secret\": \"<i>\"}".to_string(),
                stderr: String::new(),
            }],
        })
    };
    Snapshot {
        status: Status {
            node: "gpu-node-17".to_string(),
            version: "0.1.0",
            now: NOW,
            ready: true,
            verdict: Verdict::Fail,
            hold: None,
            lanes,
            off: vec![],
        },
        inventory: inventory(),
        runs: (1..=12)
            .rev()
            .map(|id| run(id, if id > 6 { Verdict::Degraded } else { Verdict::Pass }))
            .collect(),
        trusted,
        socket: "/run/fabricpulse/fabricpulse.sock".to_string(),
    }
}

/// The text that a reader sees, without markup.
fn seen(html: &str) -> String {
    let body = html.split_once("<main>").unwrap().1;
    let mut text = String::new();
    let mut inside = false;
    for character in body.chars() {
        match character {
            '<' => inside = true,
            '>' => {
                inside = false;
                text.push(' ');
            }
            other if !inside => text.push(other),
            _ => {}
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Where `FABRICPULSE_PAGES` says, for looking at them in a browser.
fn keep(name: &str, html: &str) {
    if let Some(directory) = std::env::var_os("FABRICPULSE_PAGES") {
        std::fs::write(std::path::Path::new(&directory).join(name), html).unwrap();
    }
}

#[test]
fn the_first_page_tells_the_worst_first_with_what_to_type() {
    let html = front(&snapshot(false));
    keep("front.html", &html);
    let text = seen(&html);
    let order = [
        "One part has failed, one is degraded",
        "fail ionic_1 port state",
        "found DOWN, physical state Polling expected ACTIVE",
        "try rdma link show ionic_1/1",
        "degraded 0000:85:00.0 link width",
        "expected x16, what both ends of the link can do",
        "2 unknown, and why",
        "pcid is not running pcie 0000:07:00.0 , pcie 0000:08:00.0",
        "root complex 0000:00",
        "bridge 0000:00:01.0 › 0000:02:00.0",
        "root complex 0000:80",
        "×8 of ×16 degraded",
        "&lt;b&gt;disk&lt;/b&gt; exec pass",
        "Last runs",
    ];
    let mut rest = text.as_str();
    for words in order {
        rest = rest
            .split_once(words)
            .unwrap_or_else(|| panic!("{words:?} is not where it should be in:\n{text}"))
            .1;
    }
}

#[test]
fn the_headline_says_in_words_how_the_node_is() {
    use Verdict::{Degraded, Fail, Pass, Unknown};
    let table: [(&[Verdict], &str); 8] = [
        (&[], "Nothing has been probed yet"),
        (&[Unknown], "Nothing could be judged yet"),
        (&[Pass, Pass], "Everything is as it should be"),
        (&[Pass, Unknown], "Everything that could be judged is as it should be"),
        (&[Pass, Degraded], "One part is worse than it should be"),
        (&[Degraded, Degraded, Unknown], "2 parts are worse than they should be"),
        (&[Fail, Fail], "2 parts have failed"),
        (&[Fail, Degraded, Degraded], "One part has failed, 2 are degraded"),
    ];
    for (verdicts, expected) in table {
        let mut snapshot = snapshot(false);
        snapshot.status.lanes = verdicts
            .iter()
            .enumerate()
            .map(|(index, verdict)| lane("nic", &format!("mlx5_{index}"), *verdict, "as it is"))
            .collect();
        let html = front(&snapshot);
        assert!(html.contains(&format!("</span>{expected}</h1>")), "{expected}:\n{}", seen(&html));
    }
    let mut snapshot = snapshot(false);
    snapshot.status.lanes.truncate(3);
    snapshot.status.hold = Some(HoldStatus {
        since: NOW - 60.0,
        until: NOW + 3600.0,
        reason: "NIC swap <1>".to_string(),
        by: "uid 0".to_string(),
    });
    let html = front(&snapshot);
    keep("good.html", &html);
    assert!(seen(&html).contains("Held by uid 0 until"), "{}", seen(&html));
}

#[test]
fn a_parts_page_shows_why_and_command_lines_only_to_those_who_may() {
    for (name, trusted) in [("0000:85:00.0", true), ("0000:85:00.0", false)] {
        let mut snapshot = snapshot(trusted);
        snapshot.status.lanes.push(lane("gpu", name, Verdict::Pass, "all 9 checks pass"));
        let html = part(&snapshot, name).unwrap();
        keep(if trusted { "part.html" } else { "part-open.html" }, &html);
        let text = seen(&html);
        for words in [
            "AMD Instinct MI300X",
            "driver amdgpu",
            "link width is x8 of x16",
            "x16, what both ends",
            "run 12",
        ] {
            assert!(text.contains(words), "{words:?} is missing in:\n{text}");
        }
        assert_eq!(text.contains("fabricpulse worker pcie"), trusted, "{text}");
        assert_eq!(html.contains("secret"), trusted);
        let told = text.matches("not for everybody").count();
        assert_eq!(told, usize::from(!trusted), "once for all probes: {text}");
    }
    let by_name = part(&snapshot(false), "ionic_1").unwrap();
    assert_eq!(by_name, part(&snapshot(false), "0000:08:00.0").unwrap());
    assert!(seen(&by_name).contains("port 1 is down") && seen(&by_name).contains("pcid is not running"));
    assert!(part(&snapshot(false), "node").is_some());
    assert!(part(&snapshot(false), "<b>disk</b>").is_some());
    assert!(part(&snapshot(false), "0000:00:01.0").is_some());
    assert_eq!(part(&snapshot(false), "mlx5_9"), None);
}

#[test]
fn a_runs_page_shows_the_log_only_to_those_who_may() {
    for trusted in [true, false] {
        let snapshot = snapshot(trusted);
        let html = run(&snapshot, &snapshot.runs[0]);
        keep(if trusted { "run.html" } else { "run-open.html" }, &html);
        assert_eq!(html.contains("&quot;secret&quot;"), trusted);
        assert!(seen(&html).contains("pcie run 12"));
    }
}

#[test]
fn every_page_is_well_formed_and_carries_no_markup_of_others() {
    let snapshot = snapshot(true);
    let pages = [
        front(&snapshot),
        part(&snapshot, "<b>disk</b>").unwrap(),
        part(&snapshot, "0000:85:00.0").unwrap(),
        run(&snapshot, &snapshot.runs[0]),
    ];
    for html in pages {
        assert!(!html.contains("<b>disk") && !html.contains("<i>") && !html.contains("<script"), "{html}");
        let body = html.split_once("<body>").unwrap().1;
        for tag in [
            "div", "ul", "li", "dl", "dd", "dt", "table", "tr", "td", "svg", "a", "span", "p", "h1", "h2",
            "h3", "details", "pre", "code",
        ] {
            let opened =
                body.matches(&format!("<{tag}>")).count() + body.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, body.matches(&format!("</{tag}>")).count(), "<{tag}> in {body}");
        }
    }
}
