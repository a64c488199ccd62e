//! Outputs from bug reports, with what they mean; and what damage does to them.

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

const CASES: [(&str, &str, &str); 14] = cases![
    "024-rccl-mi300x-8gpu-healthy",
    "025-rccl-slurm-noise-header",
    "026-rccl-two-node-slow",
    "027-nccl-nompi-independent-ranks",
    "028-nccl-single-gpu-alltoall",
    "029-nccl-reduce-scatter-zero-rows",
    "030-rccl-old-error-column",
    "032-nccl-old-broadcast-na",
    "036-nccl-hang-header-only",
    "038-nccl-test-failure-system-error",
    "039-nccl-wrong-elements-large",
    "041-nccl-alltoall-cliff-512m",
    "043-nccl-json-quirks",
    "045-rccl-reporter-csv-shifted",
];

fn object(texts: &[&str], known: &Known) -> Value {
    let names: Vec<String> = (0..texts.len()).map(|at| format!("{at}.txt")).collect();
    let inputs: Vec<Input> = names
        .iter()
        .zip(texts)
        .map(|(name, text)| Input { name: name.clone(), text: text.to_string(), truncated: false })
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    read(&inputs, known).object("nccl-tests", &names, known.exit_code)
}

fn known(expected: &Value) -> Known {
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
            assert!(
                same(want, &object[key]),
                "{name} {key}: {want} but {}: {}",
                object[key],
                object["verdict"]
            );
        }
        let rows = object["rows"].as_array().unwrap();
        assert_eq!(json!(rows.len()), expected["count"], "{name}");
        for want in expected["rows"].as_array().unwrap() {
            let row = rows
                .iter()
                .find(|row| row["size"] == want["size"])
                .unwrap_or_else(|| panic!("{name}: no row {want}"));
            for (key, want) in want.as_object().unwrap() {
                assert!(same(want, &row[key]), "{name} {key}: {want} but {row}");
            }
        }
        assert!(!object.to_string().contains("hf_EXAMPLE_NOT_REAL"), "{name}");
    }
}

#[test]
fn every_sentence_holds_what_it_must_and_nothing_that_it_must_not() {
    let table: [(&str, &[&str], &[&str]); 14] = [
        ("024", &["317.34 GB/s", "1073741824 B", "not judged"], &["not validated"]),
        ("025", &["348.71 GB/s", "16 ranks on 2 hosts", "not judged"], &[]),
        ("026", &["5.69 GB/s", "50.00 GB/s", "11 %", "2 hosts", "45.5 Gb/s"], &["healthy"]),
        ("027", &["one rank", "MPI"], &["down", "420"]),
        ("028", &["one rank", "two GPUs"], &["N/A", "fail"]),
        ("029", &["footer", "exit code"], &[]),
        ("030", &["not judged"], &["4e-07", "corrupt", "not validated"]),
        ("032", &["TCP", "2 hosts", "not validated"], &[]),
        ("036", &["no row", "deadline"], &["0 GB/s"]),
        ("038", &["node-c", "unhandled system error"], &[]),
        ("039", &["262144 wrong elements", "1048576 B"], &["parse"]),
        ("041", &["536870912 B", "121.88"], &[]),
        ("043", &["261.21 GB/s", "not judged", "not validated"], &["token", "env"]),
        ("045", &["99.62 GB/s", "16 ranks on 2 hosts"], &["not validated"]),
    ];
    for ((name, input, expected), (number, holds, lacks)) in CASES.iter().zip(table) {
        assert!(name.starts_with(number));
        let expected: Value = serde_json::from_str(expected).unwrap();
        let object = object(&[input], &known(&expected));
        let verdict = object["verdict"].as_str().unwrap();
        assert!(verdict.chars().count() <= 300 && !verdict.ends_with("..."), "{name}: {verdict}");
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

/// A table of two GPUs: its header, its rows, its footer.
fn table(rows: &str) -> String {
    format!(
        "# nThread 1 nGpus 2 minBytes 1048576 maxBytes 8388608 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0\n\
         # Using devices\n\
         #  Rank  0 Group  0 Pid 1 on node-a device  0 [0000:05:00] GPU\n\
         #  Rank  1 Group  0 Pid 1 on node-a device  1 [0000:15:00] GPU\n\
         #                                                out-of-place                       in-place\n\
         #       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong\n\
         {rows}# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 100 \n"
    )
}

fn row(size: i64, busbw: f64) -> String {
    format!("{size} {} float sum -1 100.0 {busbw} {busbw} 0 100.0 {busbw} {busbw} 0\n", size / 4)
}

const MIB: i64 = 1 << 20;

#[test]
fn each_rule_leads_to_its_class_and_says_what_decided() {
    let good = table(&[row(MIB, 50.0), row(2 * MIB, 80.0), row(4 * MIB, 100.0)].concat());
    let unequal = |line: &str| good.replace("on node-a device  1", line);
    let killed = good.split("# Out").next().unwrap().to_string();
    let code = |exit_code: i32| Known { exit_code: Some(exit_code), ..Known::default() };
    let expect =
        |gigabytes: f64| Known { expect: Some(Expectation::Bandwidth(gigabytes * 8e9)), ..Known::default() };
    let none = Known::default;
    let dip = table(&[row(MIB, 50.0), row(2 * MIB, 20.0), row(4 * MIB, 100.0)].concat());
    let cliff = table(&[row(MIB, 50.0), row(2 * MIB, 80.0), row(4 * MIB, 10.0)].concat());
    let crash = format!(
        "{killed}[node-a:1] *** Process received signal ***\n[node-a:1] Signal: Segmentation fault (11)\n"
    );
    let failure = format!(
        "{killed}node-b: Test CUDA failure common.cu:12 'out of memory'\n .. node-b pid 9: Test failure all_reduce.cu:3\n"
    );
    let table: Vec<(&str, String, Known, &str, &str)> = vec![
        ("good", good.clone(), code(0), "healthy", "100.00 GB/s"),
        ("as expected", good.clone(), expect(105.0), "healthy", "95 %"),
        ("slow", good.clone(), expect(200.0), "degraded", "50 %"),
        (
            "wrong",
            good.replace("50 50 0\n", "50 50 3\n"),
            code(7),
            "corrupt",
            "3 wrong elements at 1048576 B (in-place)",
        ),
        ("footer only", good.replace("values : 0 OK", "values : 2 FAILED"), code(1), "corrupt", "2 checks"),
        (
            "killed",
            killed.clone(),
            code(124),
            "hang",
            "4194304 B was the last size that finished, next was 8388608 B",
        ),
        (
            "killed early",
            killed.split("1048576 262144").next().unwrap().into(),
            code(137),
            "hang",
            "no row came",
        ),
        (
            "watchdog",
            format!("{killed}node-a: Test timeout (30s) common.cu:525\n"),
            code(4),
            "hang",
            "Test timeout",
        ),
        ("cut", killed.clone(), none(), "unknown", "footer"),
        ("failed", killed.clone(), code(3), "error", "an NCCL call failed"),
        ("failure", failure, code(2), "error", "node-b: out of memory"),
        ("crash", crash, code(139), "error", "Segmentation fault"),
        (
            "below its limit",
            good.replace(": 100 \n", ": 100 FAILED\n"),
            code(1),
            "degraded",
            "NCCL_TESTS_MIN_BW",
        ),
        ("dip", dip, none(), "degraded", "dips to 20.00 GB/s at 2097152 B"),
        ("cliff", cliff, none(), "degraded", "2097152 B was the last good size"),
        (
            "twice apart",
            format!("{good}{}", good.replace(" 100 100 ", " 60 60 ")),
            none(),
            "unknown",
            "60.00 and 100.00",
        ),
        ("negative", good.replace("100.0 50 50", "-1.0 50 50"), none(), "invalid-run", "negative"),
        (
            "tcp",
            format!(
                "node-a:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0\n{}",
                unequal("on node-b device  1")
            ),
            none(),
            "unknown",
            "TCP",
        ),
        (
            "rdma",
            format!("node-a:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0\n{}", unequal("on node-b device  1")),
            none(),
            "healthy",
            "2 ranks on 2 hosts",
        ),
        (
            "usage",
            "USAGE: all_reduce_perf \n\t[-t,--nthreads <num threads>]\n".into(),
            code(0),
            "error",
            "USAGE",
        ),
        ("empty", " \n".into(), none(), "unknown", "empty"),
        (
            "foreign",
            "#bytes #iterations BW peak\n65536 1000 1.0\n".into(),
            none(),
            "unknown",
            "not what nccl-tests",
        ),
    ];
    for (name, text, known, class, words) in table {
        let object = object(&[&text], &known);
        assert_eq!(object["class"], class, "{name}: {}", object["verdict"]);
        assert!(object["verdict"].as_str().unwrap().contains(words), "{name}: {}", object["verdict"]);
    }
}

#[test]
fn unequal_ranks_on_the_same_hosts_are_a_matter_of_placement() {
    let run = |second: &str, busbw: f64| {
        let ranks = [("0", "node-a"), ("1", second), ("2", "node-b"), ("3", "node-b")];
        let ranks = ranks
            .map(|(rank, host)| format!("#  Rank  {rank} Group  0 Pid 1 on {host} device  0 [0x05] GPU\n"))
            .concat();
        let text = table(&row(8 * MIB, busbw));
        let (before, after) = text.split_once("#  Rank  0").unwrap();
        let after = after.split_once("[0000:15:00] GPU\n").unwrap().1;
        format!("{before}{ranks}{after}")
    };
    let object = object(&[&format!("{}{}", run("node-b", 20.0), run("node-a", 90.0))], &Known::default());
    assert_eq!((&object["class"], &object["runs"]), (&json!("degraded"), &json!(2)), "{}", object["verdict"]);
    assert!(object["verdict"].as_str().unwrap().contains("placement"), "{}", object["verdict"]);
    assert_eq!(object["per_run"][0]["nranks"], 4);
    assert_eq!(object["rows"][1]["run"], 2);
}

#[test]
fn columns_of_all_options_are_read_by_their_labels() {
    let fixed = "#       size         count      type   redop    root";
    let both = "#        out-of-place        in-place";
    let cases = [
        (
            both,
            "time hipevt algbw busbw #wrong time hipevt algbw busbw #wrong",
            "1048576 262144 float sum -1 10 9 1 2 0 11 10 3 4 0",
            Some(2.0),
            Some(4.0),
        ),
        (
            both,
            "time algbw busbw #wrong time algbw busbw #wrong algo proto nchannels",
            "1048576 262144 float sum -1 10 1 2 0 11 3 4 N/A Ring Simple 16",
            Some(2.0),
            Some(4.0),
        ),
        (
            both,
            "time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw busbw #wrong i_min i_max i_p99 i_cv%",
            "1048576 262144 float sum -1 10 1 2 0 9 12 12 3 11 3 4 0 9 9 9 1",
            Some(2.0),
            Some(4.0),
        ),
        (
            both,
            "time algbw busbw #wrong time algbw busbw #wrong timestamp",
            "1048576 262144 float sum -1 10 1 2 0 11 3 4 0 2026-01-14 10:02:11",
            Some(2.0),
            Some(4.0),
        ),
        (
            "#        in-place",
            "time algbw busbw #wrong",
            "1048576 262144 float sum -1 10 1 2 0",
            None,
            Some(2.0),
        ),
        (
            both,
            "time algbw busbw error time algbw busbw error",
            "1048576 262144 float -1 10 1 2 4e-07 11 3 4 N/A",
            Some(2.0),
            Some(4.0),
        ),
    ];
    for (title, columns, row, out, inside) in cases {
        let text = format!("{title}\n{fixed} {columns}\n{row}\n# Out of bounds values : 0 OK\n");
        let object = object(&[&text], &Known::default());
        let row = &object["rows"][0];
        assert_eq!(
            (row["oop_busbw"].as_f64(), row["ip_busbw"].as_f64()),
            (out, inside),
            "{columns}: {object}"
        );
    }
}

/// A small generator with a seed, so that a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % most.max(1) as u64).unwrap()
    }
}

#[test]
fn an_input_cut_anywhere_is_never_taken_for_whole() {
    for (name, input, _) in CASES {
        let whole = object(&[input], &Known::default());
        if whole["parse"] != "ok" {
            continue;
        }
        let footer = input.rfind("# Out of bounds").unwrap_or(input.trim_end().len());
        for end in (0..footer).filter(|end| input.is_char_boundary(*end)).step_by(7) {
            let cut = object(&[&input[..end]], &Known::default());
            assert_ne!(cut["parse"], "ok", "{name} cut at {end}");
            assert_ne!(cut["class"], "healthy", "{name} cut at {end}");
        }
    }
}

#[test]
fn damaged_inputs_give_an_object() {
    let mut dice = Dice(4711);
    for (_, input, _) in CASES {
        let lines: Vec<&str> = input.split_inclusive('\n').collect();
        for _ in 0..150 {
            let mut damaged: Vec<String> = lines.iter().map(|line| (*line).to_string()).collect();
            let at = dice.below(damaged.len());
            match dice.below(6) {
                0 => damaged.truncate(at),
                1 => damaged.swap(at, 0),
                2 => damaged.insert(at, lines[dice.below(lines.len())].to_string()),
                3 => damaged[at] = damaged[at].replace(' ', ""),
                4 => damaged[at] = damaged[at].replace(['0', '1'], "-9999999999999999999"),
                _ => damaged[at] = "\u{0}\u{fffd}{[\"%n 1e999 NaN\n".into(),
            }
            let object = object(&[&damaged.concat()], &Known::default());
            assert!(object["verdict"].as_str().unwrap().chars().count() <= 300);
        }
    }
}

#[test]
fn the_largest_input_is_read_in_time_that_grows_with_its_length() {
    let fill = |part: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        let mut number = 0;
        while text.len() < crate::read::FILE_BYTES / 8 {
            text.push_str(&part(number));
            number += 1;
        }
        text
    };
    let good = table(&row(8 * MIB, 90.0));
    let inputs = [
        fill(&|_| good.clone()),
        fill(&|n| format!("#  Rank  {n} Group  0 Pid 1 on node-{n} device  0 [0x05] GPU\n")),
        fill(&|n| row(n as i64, 5.0)),
        format!("{good}{}", fill(&|n| row(n as i64 * MIB, 5.0))),
        fill(&|n| format!("0,\"AllReduce\",16,8,1,{n},\"float\",\"sum\",0,1.0,1.0,1.0,\"0\"\n")),
        "{".repeat(1 << 20),
        format!("{{\"nccl_version\":1,\"results\":[{}", fill(&|n| format!("{{\"size\":{n}}},"))),
        fill(&|n| format!("node-{n}: Test NCCL failure x.cu:1 'y'\n")),
    ];
    let began = std::time::Instant::now();
    for input in &inputs {
        object(&[input], &Known::default());
    }
    let took = began.elapsed();
    assert!(took < std::time::Duration::from_secs(20), "{took:?}");
}
