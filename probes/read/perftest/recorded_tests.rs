//! Outputs from bug reports, with what they mean, and those of a laboratory of two soft NICs.

use serde_json::{Value, json};

use super::*;
use crate::read::Expectation;

/// Cases of public reports: input, and what a correct reader makes of it.
macro_rules! cases {
    ($($name:literal),* $(,)?) => {
        [$((
            $name,
            include_str!(concat!("../../testdata/perftest/", $name, "/input.txt")),
            include_str!(concat!("../../testdata/perftest/", $name, "/expected.json")),
        )),*]
    };
}

pub(super) const CASES: [(&str, &str, &str); 17] = cases![
    "001-duration-peak-zero",
    "002-all-sizes-mixed-precision",
    "003-rdma-cm-low-bw",
    "004-negative-overflow",
    "005-duration-margin-msgrate",
    "006-cuda-mr-failed",
    "007-dmabuf-error-93",
    "008-rocm-dmabuf-2qp",
    "010-json-unquoted-latency",
    "011-json-bidirectional-no-unit",
    "013-json-trailing-comma",
    "014-infinite-then-retry-exceeded",
    "016-all-dies-above-64k",
    "019-latency-cycles-mislabelled",
    "020-warnings-mixed",
    "022-negotiation-mismatch",
    "023-server-wrong-unit-header",
];

/// Every run of the laboratory, with perftest 4.5: name, exit status, command, class, rows and the
/// best figure, then standard output and error.
const LAB: &str = include_str!("../../testdata/perftest/lab/outputs.txt");

pub(super) fn object(texts: &[&str], known: &Known) -> Value {
    let names: Vec<String> = (0..texts.len()).map(|at| format!("{at}.txt")).collect();
    let inputs: Vec<Input> = names
        .iter()
        .zip(texts)
        .map(|(name, text)| Input { name: name.clone(), text: text.to_string(), truncated: false })
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    read(&inputs, known).object("perftest", &names, known.exit_code)
}

pub(super) fn known(expected: &Value) -> Known {
    let expect = expected["expect"].as_str().map(|text| {
        let bits = text.strip_suffix("Gb/s").unwrap().parse::<f64>().unwrap();
        Expectation::Bandwidth(bits * 1e9)
    });
    Known {
        exit_code: expected["exit_code"].as_i64().map(|code| code.try_into().unwrap()),
        cmdline: expected["cmdline"].as_str().map(str::to_string),
        expect,
    }
}

/// Integers, booleans and words exactly, other numbers to half a percent; null is absent.
fn same(want: &Value, got: &Value) -> bool {
    match (want, got) {
        (Value::Number(want), Value::Number(got)) if want.is_f64() => {
            let (want, got) = (want.as_f64().unwrap(), got.as_f64().unwrap());
            (want - got).abs() <= 0.005 * want.abs()
        }
        (want, got) => want == got,
    }
}

#[test]
fn every_case_has_the_class_the_facts_and_the_rows_that_it_should() {
    for (name, input, expected) in CASES {
        let expected: Value = serde_json::from_str(expected).unwrap();
        let object = object(&[input], &known(&expected));
        for (key, want) in expected["facts"].as_object().unwrap() {
            assert!(same(want, &object[key]), "{name} {key}: {want} but {}", object[key]);
        }
        let rows = object["rows"].as_array().unwrap();
        assert_eq!(json!(rows.len()), expected["count"], "{name}");
        if let Some(count) = expected.get("warnings") {
            assert_eq!(json!(object["warnings"].as_array().unwrap().len()), *count, "{name}");
        }
        for want in expected["rows"].as_array().unwrap() {
            let is = |row: &&Value| {
                ["size", "interval"].iter().all(|key| want.get(key).is_none_or(|v| row[*key] == *v))
            };
            let row = rows.iter().find(is).unwrap_or_else(|| panic!("{name}: no row {want}"));
            for (key, want) in want.as_object().unwrap() {
                assert!(same(want, &row[key]), "{name} {key}: {want} but {row}");
            }
        }
    }
}

#[test]
fn every_sentence_holds_what_it_must_and_nothing_that_it_must_not() {
    let table: [(&str, &[&str], &[&str]); 17] = [
        ("001", &["58.08 Gb/s", "mlx5_0", "not judged"], &["0.00", "collapsed"]),
        ("002", &["97.31 Gb/s", "not judged"], &[]),
        ("003", &["8.45 Gb/s", "90 Gb/s", "rdma_cm"], &[]),
        ("004", &["-1604172633", "discard"], &[]),
        ("005", &["0.48 Gb/s", "not judged"], &["inconsistent", "contradict"]),
        ("006", &["GPU memory", "EFAULT", "dmabuf"], &[]),
        ("007", &["EPROTONOSUPPORT", "93", "dmabuf"], &[]),
        ("008", &["389.50 Gb/s", "97 %", "400 Gb/s", "MI300X"], &["not judged"]),
        ("010", &["2.42 us", "128 B", "not judged"], &[]),
        ("011", &["779.21 Gb/s", "389.61", "both directions"], &["195 %", "half-duplex"]),
        ("013", &["389.60 Gb/s", "comma"], &[]),
        ("014", &["12", "transport retry counter exceeded", "42.31, 25.92, 0.00"], &[]),
        ("016", &["10", "remote access error", "131072 B", "no proof of a bad link"], &[]),
        ("019", &["cycles", "-C"], &["4.33", "8.30"]),
        ("020", &["92.45 Gb/s", "MTU 1024"], &["CPU frequency"]),
        ("022", &["report_fmt", "MBS", "GBS"], &[]),
        ("023", &["197.05 Gb/s", "MiB/s"], &["1.65", "broken"]),
    ];
    for ((name, input, expected), (number, holds, lacks)) in CASES.iter().zip(table) {
        assert!(name.starts_with(number));
        let expected: Value = serde_json::from_str(expected).unwrap();
        let object = object(&[input], &known(&expected));
        let verdict = object["verdict"].as_str().unwrap();
        assert!(verdict.chars().count() <= 300, "{name}: {verdict}");
        assert!(!verdict.ends_with("..."), "{name} is cut: {verdict}");
        for word in holds {
            assert!(verdict.contains(word), "{name} lacks {word:?}: {verdict}");
        }
        for word in lacks {
            assert!(!verdict.contains(word), "{name} has {word:?}: {verdict}");
        }
        for must_not in expected["must_not"].as_array().unwrap() {
            assert!(!verdict.contains(must_not.as_str().unwrap()), "{name}: {verdict}");
        }
    }
}

/// A run of the laboratory.
struct Lab {
    name: String,
    known: Known,
    class: String,
    rows: usize,
    figure: Option<f64>,
    stdout: String,
    stderr: String,
}

fn lab() -> Vec<Lab> {
    let runs = LAB.strip_prefix("=== ").unwrap().strip_suffix('\n').unwrap().split("\n=== ");
    let mut all: Vec<Lab> = Vec::new();
    for part in runs {
        let (title, text) = part.split_once('\n').unwrap_or((part, ""));
        if title == "stderr" {
            all.last_mut().unwrap().stderr = text.to_string();
            continue;
        }
        let fields: Vec<&str> = title.split(" | ").collect();
        let number = |text: &str| text.split(' ').find_map(|word| word.parse::<f64>().ok());
        all.push(Lab {
            name: fields[0].to_string(),
            known: Known {
                exit_code: number(fields[1]).map(|code| format!("{code}").parse().unwrap()),
                cmdline: Some(fields[2].to_string()),
                expect: None,
            },
            class: fields[3].to_string(),
            rows: fields[4].split(' ').next().unwrap().parse().unwrap(),
            figure: number(fields[5]),
            stdout: text.to_string(),
            stderr: String::new(),
        });
    }
    all
}

#[test]
fn every_run_of_the_laboratory_is_understood() {
    let runs = lab();
    assert_eq!(runs.len(), 209);
    for run in runs {
        let object = object(&[&run.stdout, &run.stderr], &run.known);
        let what = format!("{}: {}", run.name, object["verdict"]);
        assert_eq!(object["class"], run.class, "{what}");
        assert_eq!(object["rows"].as_array().unwrap().len(), run.rows, "{what}");
        let latency = run.known.cmdline.as_ref().unwrap().contains("_lat");
        let got = if latency { &object["rows"][0]["t_typical_us"] } else { &object["bw_avg_gbps"] };
        let (got, want) = (got.as_f64(), run.figure);
        assert_eq!(got.is_some(), want.is_some(), "{what}");
        if let Some((got, want)) = got.zip(want) {
            assert!((got - want).abs() <= 1e-5 * want, "{what}: {got} {want}");
        }
        // Nothing that failed may become a sample, though exit 0 or a row suggest one.
        let sample = ["healthy", "degraded"].contains(&run.class.as_str());
        assert_eq!(object["accept_sample"], sample, "{what}");
    }
}

#[test]
fn the_laboratory_shows_how_perftest_lies() {
    let runs = lab();
    let of = |name: &str| runs.iter().find(|run| run.name == name).unwrap();
    let log = |name: &str| {
        let run = of(name);
        let words: Vec<String> = run.known.cmdline.as_ref().unwrap().split(' ').map(str::to_string).collect();
        crate::perftest::read(&run.stdout, &run.stderr, Some(&words))
    };
    // Exit 0 and an average of 0.00.
    let zero = log("faults/base-1.client");
    assert_eq!((zero.complete, zero.last().unwrap().bandwidth()), (true, None));
    // A part of a bandwidth, and then exit 1.
    let part = log("rdma/err-kill9-server.client");
    assert!(!part.complete && part.last().unwrap().bandwidth().is_some() && part.cause().is_some());
    // Nothing, since the output of a killed client was still in its buffer.
    let empty = log("rdma/err-kill9-client.client");
    assert_eq!((empty.runs.len(), empty.cause(), empty.complete), (0, None, false));
    // The two sides differ in an option, and both end with 0.
    let (client, server) = (log("rdma/err-mix-gbits.client"), log("rdma/err-mix-gbits.server"));
    let bandwidth = |log: &Log| log.last().unwrap().bandwidth();
    assert_eq!(bandwidth(&client), bandwidth(&server));
    assert_ne!(server.last().unwrap().header_unit, server.last().unwrap().unit);
    // The ends of the connection.
    let run = log("rdma/opt-gid1.client");
    let (local, remote) = (run.last().unwrap().local.gid.unwrap(), run.last().unwrap().remote.gid.unwrap());
    assert_eq!((&local[10..], &remote[10..]), (&[255, 255, 10, 0, 0, 1][..], &[255, 255, 10, 0, 0, 2][..]));
}

#[test]
fn a_json_file_that_is_none_is_read_beside_its_text() {
    let table = [
        (include_str!("../../testdata/perftest/lab/json.client.json"), "opt-json.client", "client", 0.461122),
        (include_str!("../../testdata/perftest/lab/json.server.json"), "opt-json.server", "", 0.461122),
        (
            include_str!("../../testdata/perftest/lab/jsong.client.json"),
            "opt-json-gbits.client",
            "client",
            0.35,
        ),
        (include_str!("../../testdata/perftest/lab/jsong.server.json"), "opt-json-gbits.server", "", 0.35),
    ];
    let runs = lab();
    for (text, name, role, gbps) in table {
        let alone = object(&[text], &Known::default());
        assert_eq!(
            (&alone["dialect"], &alone["valid_json"], &alone["parse"], alone["role"].as_str().unwrap_or("")),
            (&json!("perftest-legacy"), &json!(false), &json!("ok"), role)
        );
        let run = runs.iter().find(|run| run.name.ends_with(name)).unwrap();
        let both = object(&[&run.stdout, text], &run.known);
        assert_eq!((&both["runs"], &both["class"]), (&json!(1), &json!("healthy")), "{both}");
        for (at, row) in both["rows"].as_array().unwrap().iter().enumerate() {
            assert_eq!(row["file"], format!("{at}.txt"));
            assert!((row["bw_avg_gbps"].as_f64().unwrap() - gbps).abs() < 1e-5, "{row}");
        }
        assert_eq!(both["rows"].as_array().unwrap().len(), 2);
    }
}
