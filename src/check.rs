//! `fabricpulse check`: what the agent knows, in the manners of those who ask a program.
//!
//! Pure: the status in, text and exit code out. It fails open. An agent that is away, or an
//! answer that is not understood, says nothing of the hardware, and must not drain a cluster.

use probes::Verdict;
use serde::{Deserialize, Serialize};

/// How long the text for node-problem-detector may be; it cuts what is longer.
const NPD_CHARACTERS: usize = 80;

/// How long a reason for Slurm may be to stay readable in `sinfo -R`.
const SLURM_CHARACTERS: usize = 200;

/// Whom the answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CheckFormat {
    /// A Nagios plugin: one line, details below it, exit 0 ok, 1 warning, 2 critical, 3 unknown.
    Nagios,
    /// A custom plugin of node-problem-detector: exit 0 ok, 1 problem, 2 unknown.
    Npd,
    /// A HealthCheckProgram of Slurm: exit 1 and a reason only when a part has failed.
    Slurm,
    /// One JSON object, and Nagios's exit codes.
    Json,
}

/// What is read of `/api/v1/status`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Seen {
    node: String,
    lanes: Vec<SeenLane>,
}

#[derive(Clone, Debug, Deserialize)]
struct SeenLane {
    probe: String,
    target: String,
    verdict: Verdict,
    reason: String,
    /// None for a part that is absent, and before the first run.
    last_judged: Option<f64>,
    /// Seconds.
    interval: f64,
}

/// After how many intervals a verdict is too old, if the caller does not say.
const MAX_INTERVALS: f64 = 3.0;

/// One lane's say, after its age was looked at.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Item {
    verdict: Verdict,
    probe: String,
    target: String,
    reason: String,
}

/// The text to print and the code to exit with. `max_age` and `now` are in seconds; `seen` is an
/// error, in words, if there is no status.
pub(crate) fn check(
    seen: Result<&Seen, &str>,
    format: CheckFormat,
    max_age: Option<f64>,
    now: f64,
) -> (String, u8) {
    let seen = match seen {
        Ok(seen) => seen,
        Err(why) => return away(format, why),
    };
    let mut items: Vec<_> = seen.lanes.iter().map(|lane| item(lane, max_age, now)).collect();
    items.sort_by_key(|item| std::cmp::Reverse(item.verdict.severity()));
    let worst = Verdict::worst(items.iter().map(|item| item.verdict));
    match format {
        CheckFormat::Nagios => (nagios(worst, &items), nagios_code(worst)),
        CheckFormat::Npd => npd(worst, &items),
        CheckFormat::Slurm => slurm(worst, &items),
        CheckFormat::Json => {
            let value = serde_json::json!({ "node": seen.node, "verdict": worst, "checks": items });
            (value.to_string(), nagios_code(worst))
        }
    }
}

/// A verdict speaks for now as long as it is young. A fault does not heal by growing old, yet it is
/// no longer known; and what was judged by no run and has a verdict all the same is a part that is
/// absent, which is known without one.
fn item(lane: &SeenLane, max_age: Option<f64>, now: f64) -> Item {
    let limit = max_age.unwrap_or(MAX_INTERVALS * lane.interval);
    let age = lane.last_judged.map(|at| now - at);
    let (verdict, reason) = match (lane.verdict, age) {
        (Verdict::Pass | Verdict::Degraded | Verdict::Fail, Some(age)) if age > limit => {
            (Verdict::Unknown, format!("stale: was {} {age:.0} s ago, {}", lane.verdict, lane.reason))
        }
        (verdict, _) => (verdict, lane.reason.clone()),
    };
    Item { verdict, probe: lane.probe.clone(), target: lane.target.clone(), reason }
}

fn nagios_code(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Pass => 0,
        Verdict::Degraded => 1,
        Verdict::Fail => 2,
        Verdict::Unknown => 3,
    }
}

fn nagios(worst: Verdict, items: &[Item]) -> String {
    let word = match worst {
        Verdict::Pass => "OK",
        Verdict::Degraded => "WARNING",
        Verdict::Fail => "CRITICAL",
        Verdict::Unknown => "UNKNOWN",
    };
    let counts: Vec<_> = [Verdict::Fail, Verdict::Degraded, Verdict::Unknown, Verdict::Pass]
        .into_iter()
        .map(|verdict| (verdict, items.iter().filter(|item| item.verdict == verdict).count()))
        .filter(|(_, count)| *count > 0)
        .map(|(verdict, count)| format!("{count} {verdict}"))
        .collect();
    let mut text = match items {
        [] => format!("FABRICPULSE {word}: nothing is probed"),
        [first, ..] if worst != Verdict::Pass => {
            format!("FABRICPULSE {word}: {} ({})", line(first), counts.join(", "))
        }
        _ => format!("FABRICPULSE {word}: {}", counts.join(", ")),
    };
    // A bar would start performance data.
    text = text.replace('|', "/");
    for item in items.iter().filter(|item| item.verdict != Verdict::Pass) {
        text.push('\n');
        text.push_str(&format!("{}: {}", item.verdict, line(item)).replace('|', "/"));
    }
    text
}

fn line(item: &Item) -> String {
    flat(&format!("{} {}: {}", item.probe, item.target, item.reason))
}

/// One line, whatever a reason contains.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn npd(worst: Verdict, items: &[Item]) -> (String, u8) {
    let (text, code) = match (worst, items) {
        (Verdict::Pass, items) => (format!("all {} checks pass", items.len()), 0),
        (Verdict::Degraded | Verdict::Fail, [first, ..]) => {
            (format!("{}: {}", first.verdict, line(first)), 1)
        }
        (Verdict::Unknown, [first, ..]) => (format!("unknown: {}", line(first)), 2),
        (_, []) => ("unknown: nothing is probed".to_string(), 2),
    };
    (cut(&text, NPD_CHARACTERS), code)
}

fn slurm(worst: Verdict, items: &[Item]) -> (String, u8) {
    let failed: Vec<_> = items.iter().filter(|item| item.verdict == Verdict::Fail).map(line).collect();
    match (worst, failed.first()) {
        (Verdict::Fail, Some(first)) => {
            let more =
                if failed.len() > 1 { format!(" (+{} more)", failed.len() - 1) } else { String::new() };
            (format!("{}{more}", cut(&format!("fabricpulse: {first}"), SLURM_CHARACTERS)), 1)
        }
        (verdict, _) => (format!("fabricpulse: {verdict}, no part has failed"), 0),
    }
}

/// Nothing is known of the node, which is no reason to take it out of service.
fn away(format: CheckFormat, why: &str) -> (String, u8) {
    let why = flat(why);
    match format {
        CheckFormat::Nagios => (format!("FABRICPULSE UNKNOWN: {}", why.replace('|', "/")), 3),
        CheckFormat::Npd => (cut(&format!("unknown: {why}"), NPD_CHARACTERS), 2),
        CheckFormat::Slurm => (format!("fabricpulse: {why}"), 0),
        CheckFormat::Json => {
            (serde_json::json!({ "verdict": Verdict::Unknown, "error": why, "checks": [] }).to_string(), 3)
        }
    }
}

/// The text, or as much of its start as fits before an ellipsis. The limits that others set count
/// bytes, so the cut does too.
fn cut(text: &str, limit: usize) -> String {
    const ELLIPSIS: &str = "...";
    if text.len() <= limit {
        return text.to_string();
    }
    let mut end = limit - ELLIPSIS.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{ELLIPSIS}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: f64 = 10_000.0;

    /// Lanes of an interval of 60 s, by verdict and age.
    fn seen(lanes: &[(&str, Option<f64>)]) -> Seen {
        let lanes: Vec<_> = lanes
            .iter()
            .enumerate()
            .map(|(index, (verdict, age))| {
                serde_json::json!({
                    "probe": "pcie", "target": format!("0000:0{index}:00.0"), "verdict": verdict,
                    "reason": format!("x8|of\nx16 {index}"), "last_judged": age.map(|age| NOW - age),
                    "interval": 60.0, "since": 1.0, "values": [],
                })
            })
            .collect();
        serde_json::from_value(serde_json::json!({ "node": "n1", "version": "1", "lanes": lanes })).unwrap()
    }

    #[test]
    fn each_asker_gets_the_exit_code_of_its_own_manners() {
        use CheckFormat::{Json, Nagios, Npd, Slurm};
        let young = Some(30.0);
        type Row<'a> = (&'a [(&'a str, Option<f64>)], Option<f64>, [u8; 4]);
        let table: [Row; 12] = [
            // lanes, max_age, [nagios, npd, slurm, json]
            (&[("pass", young), ("pass", young)], None, [0, 0, 0, 0]),
            (&[("pass", young), ("degraded", young)], None, [1, 1, 0, 1]),
            (&[("degraded", young), ("fail", young)], None, [2, 1, 1, 2]),
            (&[("pass", young), ("unknown", young)], None, [3, 2, 0, 3]),
            (&[("unknown", None), ("degraded", young)], None, [1, 1, 0, 1]),
            // Absent: judged by no run.
            (&[("fail", None)], None, [2, 1, 1, 2]),
            // Three intervals are 180 s.
            (&[("pass", Some(180.0))], None, [0, 0, 0, 0]),
            (&[("pass", Some(181.0))], None, [3, 2, 0, 3]),
            (&[("fail", Some(181.0))], None, [3, 2, 0, 3]),
            (&[("fail", Some(181.0))], Some(600.0), [2, 1, 1, 2]),
            (&[("pass", Some(61.0))], Some(60.0), [3, 2, 0, 3]),
            (&[], None, [3, 2, 0, 3]),
        ];
        for (lanes, max_age, codes) in table {
            let seen = seen(lanes);
            let found = [Nagios, Npd, Slurm, Json].map(|format| check(Ok(&seen), format, max_age, NOW).1);
            assert_eq!(found, codes, "{lanes:?} {max_age:?}");
        }
    }

    #[test]
    fn the_words_fit_who_reads_them() {
        let seen =
            seen(&[("pass", Some(1.0)), ("fail", Some(1.0)), ("fail", Some(1.0)), ("degraded", Some(1.0))]);
        let say = |format| check(Ok(&seen), format, None, NOW).0;
        assert_eq!(
            say(CheckFormat::Nagios),
            "FABRICPULSE CRITICAL: pcie 0000:01:00.0: x8/of x16 1 (2 fail, 1 degraded, 1 pass)\n\
             fail: pcie 0000:01:00.0: x8/of x16 1\n\
             fail: pcie 0000:02:00.0: x8/of x16 2\n\
             degraded: pcie 0000:03:00.0: x8/of x16 3"
        );
        assert_eq!(say(CheckFormat::Npd), "fail: pcie 0000:01:00.0: x8|of x16 1");
        assert_eq!(say(CheckFormat::Slurm), "fabricpulse: pcie 0000:01:00.0: x8|of x16 1 (+1 more)");
        let json: serde_json::Value = serde_json::from_str(&say(CheckFormat::Json)).unwrap();
        assert_eq!((&json["verdict"], json["checks"].as_array().unwrap().len()), (&"fail".into(), 4));
    }

    #[test]
    fn an_agent_that_is_away_drains_nothing() {
        let why = "no agent at /run/fabricpulse/fabricpulse.sock: is the service running? It should be on every node of this cluster";
        let table = [
            (CheckFormat::Nagios, 3),
            (CheckFormat::Npd, 2),
            (CheckFormat::Slurm, 0),
            (CheckFormat::Json, 3),
        ];
        for (format, expected) in table {
            let (text, code) = check(Err(why), format, None, NOW);
            assert_eq!(code, expected, "{format:?}");
            assert!(text.contains("no agent at /run"), "{text}");
        }
        assert!(check(Err(why), CheckFormat::Npd, None, NOW).0.len() <= NPD_CHARACTERS);
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        assert_eq!(cut(&"×".repeat(50), 80).len(), 79);
        assert_eq!(cut("short", 80), "short");
    }
}
