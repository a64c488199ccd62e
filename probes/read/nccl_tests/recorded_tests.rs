//! Outputs from bug reports, with what they mean.

use serde_json::{Value, json};

use super::*;
use crate::read::Expectation;

/// Cases of public reports: input, and what a correct reader makes of it.
macro_rules! cases {
    ($($name:literal),* $(,)?) => {
        [$((
            $name,
            include_str!(concat!("../../testdata/nccl_tests/", $name, "/input.txt")),
            include_str!(concat!("../../testdata/nccl_tests/", $name, "/expected.json")),
        )),*]
    };
}

pub(super) const CASES: [(&str, &str, &str); 14] = cases![
    "024-mi300x-8gpu-healthy",
    "025-slurm-noise-header",
    "026-two-node-slow",
    "027-nompi-independent-ranks",
    "028-single-gpu-alltoall",
    "029-reduce-scatter-zero-rows",
    "030-old-error-column",
    "032-old-broadcast-na",
    "036-hang-header-only",
    "038-test-failure-system-error",
    "039-wrong-elements-large",
    "041-alltoall-cliff-512m",
    "043-json-quirks",
    "045-reporter-csv-shifted",
];

pub(super) fn object(texts: &[&str], known: &Known) -> Value {
    let names: Vec<String> = (0..texts.len()).map(|at| format!("{at}.txt")).collect();
    let inputs: Vec<Input> = names
        .iter()
        .zip(texts)
        .map(|(name, text)| Input { name: name.clone(), text: text.to_string(), truncated: false })
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    read(&inputs, known).object("nccl-tests", &names, known.exit_code)
}

pub(super) fn known(expected: &Value) -> Known {
    let expect = expected["expect"].as_str().map(|text| {
        let bytes = text.strip_suffix("GB/s").unwrap().parse::<f64>().unwrap();
        Expectation::Bandwidth(bytes * 8e9)
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
        for want in expected["rows"].as_array().unwrap() {
            let row = rows.iter().find(|row| row["size"] == want["size"]);
            let row = row.unwrap_or_else(|| panic!("{name}: no row {want}"));
            for (key, want) in want.as_object().unwrap() {
                assert!(same(want, &row[key]), "{name} {key}: {want} but {row}");
            }
        }
    }
}

#[test]
fn every_sentence_holds_what_it_must_and_nothing_that_it_must_not() {
    let table: [(&str, &[&str], &[&str]); 14] = [
        ("024", &["317.34 GB/s", "1073741824 B", "8 ranks on 1 host", "not judged"], &["not validated"]),
        ("025", &["348.71 GB/s", "16 ranks on 2 hosts", "not judged"], &[]),
        ("026", &["5.69 GB/s", "11 %", "50 GB/s", "RDMA"], &["no RDMA", "socket"]),
        ("027", &["2 copies", "MPI", "formula"], &[" 0 GB/s", "263017", "TB/s", "down"]),
        ("028", &["one rank", "alltoall_perf"], &["N/A", "fail", "0 GB/s"]),
        ("029", &["7 rows", "256 B", "exit code"], &["healthy"]),
        ("030", &["0.11 GB/s", "not judged"], &["4e-07", "not validated", "wrong"]),
        ("032", &["TCP", "2 hosts", "not validated"], &["OK"]),
        ("036", &["deadline", "no row came", "4 ranks on 1 host"], &["0 GB/s"]),
        ("038", &["unhandled system error", "node-c"], &[]),
        ("039", &["1048576 B (262144 elements out-of-place)", "2097152 B (1310720 elements in-place)"], &[]),
        ("041", &["314.35 GB/s at 536870912 B", "121.88 GB/s at 537919488 B"], &["recovers"]),
        ("043", &["261.21 GB/s", "not validated", "not judged"], &["HF_TOKEN", "env"]),
        ("045", &["99.62 GB/s", "16 ranks on 2 hosts"], &["not validated"]),
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
    }
}

#[test]
fn nothing_of_the_environment_leaves_the_reader() {
    let (_, input, expected) = CASES[12];
    let known = known(&serde_json::from_str(expected).unwrap());
    assert!(input.contains("HF_TOKEN") && input.contains("SLURM_JOB_ID"));
    for text in [input, &input[..input.len() / 2], &input.replace("\"SLURM", "\"\u{1}SLURM")] {
        let object = object(&[text], &known).to_string();
        assert!(
            !object.contains("TOKEN") && !object.contains("SLURM") && !object.contains("PATH="),
            "{object}"
        );
    }
}
