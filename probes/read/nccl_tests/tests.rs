use serde_json::{Value, json};

use super::{
    super::{Expectation, FILE_BYTES},
    recorded_tests::{CASES, known, object},
    *,
};

const FOOTER: &str = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 100.5 \n#\n";

fn start(sweep: &str) -> String {
    format!(
        "# nThread 1 nGpus 1 {sweep} warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n"
    )
}

/// A header whose ranks are on these hosts, in this order.
fn header(hosts: &[&str]) -> String {
    let ranks = hosts.iter().enumerate().map(|(rank, host)| {
        format!("#  Rank {rank:2} Group  0 Pid  41{rank:02} on {host:>10} device  0 [0000:05:00] AMD Instinct MI300X\n")
    });
    let labels = "#\n#                                                              out-of-place                       in-place          \n#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       \n";
    start("minBytes 1048576 maxBytes 1073741824 step: 2(factor)") + &ranks.collect::<String>() + labels
}

fn row(size: u64, busbw: f64) -> String {
    let half = format!("{:8.2} {busbw:7.2} {busbw:7.2}      0", 91.1);
    format!("{size:12} {:13}     float     sum      -1 {half} {half}\n", size / 4)
}

fn run(rows: &[(u64, f64)]) -> String {
    on(&["node-a", "node-a"], rows)
}

fn on(hosts: &[&str], rows: &[(u64, f64)]) -> String {
    let rows: String = rows.iter().map(|(size, busbw)| row(*size, *busbw)).collect();
    header(hosts) + &rows + FOOTER
}

fn ended(exit_code: i32) -> Known {
    Known {
        exit_code: Some(exit_code),
        cmdline: Some("mpirun -np 2 all_reduce_perf -b 1M".into()),
        expect: None,
    }
}

fn expecting(gb_s: f64) -> Known {
    Known { expect: Some(Expectation::Bandwidth(gb_s * 8e9)), ..Known::default() }
}

/// What it is, the text, what is known beside it; class, parse and words of the sentence.
type Made = (&'static str, String, Known, &'static str, &'static str, &'static [&'static str]);

const MIB: u64 = 1 << 20;

#[test]
fn each_rule_leads_to_its_class_and_says_what_decided() {
    let none = Known::default;
    let good = run(&[(MIB, 50.0), (2 * MIB, 100.0)]);
    let open = good.replace(FOOTER, "");
    let failure = "node-b: Test NCCL failure common.cu:1125 'remote process exited or there was a network error / socketProgress: Connection closed by remote peer'\n .. node-b pid 41: Test failure common.cu:1017\n";
    let timeout =
        "node-a: Test timeout (120s) common.cu:610\n .. node-a pid 4100: Test failure common.cu:1017\n";
    let limit = FOOTER.replace("100.5 ", "75 FAILED");
    let two = ["node-a", "node-b"];
    let tcp = "node-a:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:192.0.2.11<0>\n";
    let cases: Vec<Made> = vec![
        ("good", good.clone(), none(), "healthy", "ok", &["100 GB/s at 2097152 B", "2 ranks on 1 host", "not judged"]),
        ("good, and the exit code of Ctrl-C", good.clone(), ended(130), "healthy", "ok", &[]),
        ("wrong data", good.replacen("      0\n", "      7\n", 1), ended(7), "corrupt", "ok", &["1048576 B (7 elements in-place)"]),
        ("wrong data by the footer only", good.replace(": 0 OK", ": 3 FAILED"), ended(1), "corrupt", "ok", &["3 checks", "no row"]),
        ("wrong data before a failure", open.replacen("      0\n", "      7\n", 1) + failure, ended(3), "corrupt", "partial", &["1048576 B"]),
        ("a failure after rows", open.clone() + failure, ended(3), "error", "partial", &["remote process exited", "node-b", "2097152 B", "peer"]),
        ("a failure and exit 0", header(&two) + failure, ended(0), "error", "error", &["Connection closed", "no row came"]),
        ("a failure of CUDA", header(&two) + "node-a: Test CUDA failure common.cu:894 'out of memory'\n", none(), "error", "error", &["CUDA out of memory", "node-a"]),
        ("usage", "all_reduce_perf: invalid option -- 'Q'\nUSAGE: all_reduce_perf \n\t[-t,--nthreads <num threads>] \n".into(), ended(0), "error", "error", &["option", "nothing was measured"]),
        ("too many GPUs", "Invalid number of GPUs: 16 requested but only 8 were found.\n".into(), ended(1), "error", "error", &["16 requested"]),
        ("not there", "bash: line 1: all_reduce_perf: command not found\n".into(), ended(127), "error", "error", &["command not found"]),
        ("crashed", open.clone() + "Segmentation fault (core dumped)\n", none(), "error", "partial", &["Segmentation fault"]),
        ("the watchdog", open.clone() + timeout, ended(4), "hang", "partial", &["watchdog", "120s", "2097152 B"]),
        ("the watchdog, exit code not known", header(&two) + timeout, none(), "hang", "error", &["no row came"]),
        ("killed", open.clone(), ended(137), "hang", "partial", &["SIGKILL", "2 rows came, the last at 2097152 B", "hung at 4194304 B"]),
        ("killed before the first row", header(&two), ended(124), "hang", "partial", &["no row came", "2 ranks on 2 hosts"]),
        ("killed after its end", good.clone(), ended(143), "hang", "ok", &["SIGTERM"]),
        ("killed, as it must be", open.clone(), Known { cmdline: Some("all_reduce_perf -N 0".into()), ..ended(143) }, "unknown", "partial", &["end is missing"]),
        ("empty and killed", String::new(), ended(124), "hang", "error", &["no row"]),
        ("empty and failed", String::new(), ended(1), "error", "error", &["exit 1"]),
        ("empty", String::new(), none(), "unknown", "error", &["no output", "--exit-code"]),
        ("failed without a text", open.clone(), ended(3), "error", "partial", &["exit 3", "NCCL failure"]),
        ("crashed without a text", open.clone(), ended(139), "error", "partial", &["crashed"]),
        ("negative", run(&[(MIB, -5.0)]), none(), "invalid-run", "ok", &["1048576 B", "no measurement"]),
        ("one rank", on(&["node-a"], &[(MIB, 0.0)]), none(), "invalid-run", "ok", &["one rank"]),
        ("no bus bandwidth", row(MIB, 10.0).replace("10.00   10.00", "10.00    0.00") + FOOTER, none(), "invalid-run", "ok", &["formula"]),
        ("too slow", good.clone(), expecting(112.0), "degraded", "ok", &["100 GB/s", "89 %", "112 GB/s"]),
        ("fast enough", good.clone(), expecting(111.0), "healthy", "ok", &["90 %", "111 GB/s"]),
        ("too slow and not finished", open.clone(), expecting(400.0), "degraded", "partial", &["25 %"]),
        ("a latency is expected", good.clone(), Known { expect: Some(Expectation::Latency(1e-6)), ..none() }, "healthy", "ok", &["not judged", "does not fit"]),
        ("the limit of the operator", good.replace(FOOTER, &limit), ended(7), "degraded", "ok", &["75 FAILED", "100 GB/s"]),
        ("a cliff", run(&[(MIB, 50.0), (2 * MIB, 100.0), (4 * MIB, 40.0), (8 * MIB, 45.0)]), none(), "degraded", "ok", &["100 GB/s at 2097152 B", "40 GB/s at 4194304 B", "stays low"]),
        ("a dip", run(&[(MIB, 50.0), (2 * MIB, 20.0), (4 * MIB, 90.0)]), none(), "degraded", "ok", &["20 GB/s at 2097152 B", "recovers"]),
        ("a dip of small sizes", run(&[(8, 50.0), (16, 20.0), (32, 90.0)]), none(), "healthy", "ok", &[]),
        ("placed unevenly", on(&["a", "a", "b", "b"], &[(MIB, 90.0)]) + &on(&["a", "a", "a", "b"], &[(MIB, 60.0)]), none(), "degraded", "ok", &["3 and 1 ranks", "placement"]),
        ("two runs that differ", good.clone() + &run(&[(MIB, 50.0), (2 * MIB, 70.0)]), none(), "unknown", "ok", &["2097152 B", "70 and 100 GB/s"]),
        ("two runs on two pairs of hosts", on(&two, &[(MIB, 90.0)]) + &on(&["c", "d"], &[(MIB, 60.0)]), none(), "healthy", "ok", &["2 runs"]),
        ("the second of two is cut", good.clone() + &open, none(), "unknown", "partial", &["end is missing"]),
        ("TCP between hosts", tcp.to_string() + &on(&two, &[(MIB, 2.0)]), none(), "unknown", "ok", &["TCP", "2 hosts"]),
        ("sockets on one host", tcp.to_string() + &good, none(), "healthy", "ok", &[]),
        ("rows of size 0", run(&[(0, 0.0), (0, 0.0)]), none(), "unknown", "ok", &["nothing was measured"]),
        ("no row at all", run(&[]), none(), "unknown", "partial", &["no row"]),
        ("no end", open.clone(), ended(0), "unknown", "partial", &["end is missing", "2097152 B"]),
        ("a row that is none", open.clone() + "     4194304       1048576     float     sum      -1    91.10\n" + FOOTER, none(), "unknown", "partial", &[]),
        ("copies of two ranks", header(&two).repeat(2) + &row(MIB, 5.0).repeat(2) + FOOTER + FOOTER, none(), "healthy", "ok", &["2 copies", "MPI"]),
        ("foreign", " #bytes #iterations BW peak[Gb/sec]\n 65536 5000 97.39 97.00 0.185013\n".into(), Known { exit_code: Some(1), ..none() }, "unknown", "error", &["not what nccl-tests"]),
        ("binary", "\u{fffd}PNG\0\0\u{fffd}\n".into(), ended(1), "unknown", "error", &[]),
        ("JSON of another tool", "{\"version\": 1, \"results\": [{\"size\": 8}]}".into(), none(), "unknown", "error", &[]),
        ("NCCL's warnings", good.clone() + "node-a:1:1 [0] transport.cc:1 NCCL WARN Cuda failure 'out of memory'\n", none(), "healthy", "ok", &[]),
    ];
    for (what, text, known, class, parse, words) in cases {
        let object = object(&[&text], &known);
        let verdict = object["verdict"].as_str().unwrap();
        assert_eq!(
            (object["class"].as_str(), object["parse"].as_str()),
            (Some(class), Some(parse)),
            "{what}: {verdict}"
        );
        assert!(verdict.starts_with(class) && verdict.chars().count() <= 300, "{what}: {verdict}");
        assert!(!verdict.ends_with("..."), "{what} is cut: {verdict}");
        for word in words {
            assert!(verdict.contains(word), "{what} lacks {word:?}: {verdict}");
        }
    }
}

#[test]
fn facts_of_more_than_one_run_stand_in_a_list() {
    let text = on(&["a", "b"], &[(MIB, 50.0)]) + &on(&["a", "b", "a", "b"], &[(MIB, 40.0), (2 * MIB, 10.0)]);
    let two = object(&[&text], &Known::default());
    assert_eq!((&two["runs"], two.get("nranks")), (&json!(2), None));
    let each = |key: &str| -> Vec<Value> {
        two["per_run"].as_array().unwrap().iter().map(|run| run[key].clone()).collect()
    };
    assert_eq!(each("nranks"), [2, 4]);
    assert_eq!(each("cliff_after"), [Value::Null, json!(MIB)]);
    let runs: Vec<&Value> = two["rows"].as_array().unwrap().iter().map(|row| &row["run"]).collect();
    assert_eq!(runs, [1, 2, 2]);
    // Of the same parts, with what differs.
    let text = run(&[(MIB, 50.0)]) + &run(&[(MIB, 40.0)]);
    let same = object(&[&text], &Known::default());
    assert_eq!((&same["disagree_size"], &same["disagree_ratio"]), (&json!(MIB), &json!(0.8)));
    assert_eq!(same["class"], "healthy");
}

#[test]
fn a_text_and_its_json_are_one_run() {
    let (_, json_text, _) = CASES[12];
    let text = run(&[(8 * MIB, 192.44), (16 * MIB, 261.21)]);
    let both = object(&[&text, json_text], &Known::default());
    assert_eq!(
        (&both["runs"], &both["dialect"], &both["valid_json"]),
        (&json!(1), &json!("text"), &json!(true))
    );
    assert_eq!(
        (&both["usable_rows"], &both["class"], &both["parse"]),
        (&json!(2), &json!("healthy"), &json!("ok"))
    );
    let files: Vec<&Value> = both["rows"].as_array().unwrap().iter().map(|row| &row["file"]).collect();
    assert_eq!(files, ["0.txt", "0.txt", "1.txt", "1.txt"]);
    // Each file that holds a table must be whole.
    let cut = object(&[&text, &json_text[..json_text.len() - 3]], &Known::default());
    assert_eq!((&cut["complete"], &cut["class"]), (&json!(false), &json!("unknown")));
    let stderr = object(&[&text, "node-b: Test NCCL failure a.cu:1 'internal error'\n"], &Known::default());
    assert_eq!((&stderr["class"], &stderr["failing_host"]), (&json!("error"), &json!("node-b")));
}

#[test]
fn what_is_not_compared_is_said() {
    let unchecked =
        run(&[(MIB, 50.0)]).replace("      0", "    N/A").replace("validation: 1", "validation: 0");
    let unchecked = object(&[&unchecked], &Known::default());
    assert_eq!((&unchecked["validated"], unchecked.get("wrong_total")), (&json!(false), None));
    assert!(unchecked["verdict"].as_str().unwrap().contains("not validated"));
    // In-place all-to-all is never compared, and the other half is.
    let half = object(&[&run(&[(MIB, 50.0)]).replace("      0\n", "    N/A\n")], &Known::default());
    assert_eq!(
        (&half["validated"], &half["wrong_total"], &half["bad_sizes"]),
        (&json!(true), &json!(0), &json!([]))
    );
}

#[test]
fn what_harnesses_do_to_a_text_changes_nothing() {
    for (name, input, expected) in CASES {
        let known = known(&serde_json::from_str(expected).unwrap());
        let plain = object(&[input], &known);
        if plain["dialect"] == "json" {
            continue;
        }
        let each =
            |change: &dyn Fn(&str) -> String| input.lines().map(change).collect::<Vec<_>>().join("\n") + "\n";
        let changed = [
            ("CRLF", input.replace('\n', "\r\n")),
            ("mpirun", each(&|line| format!("[1,0]<stdout>:{line}"))),
            ("srun", each(&|line| format!("0: {line}"))),
            ("rank", each(&|line| format!("[rank12]: {line}"))),
            ("colour", each(&|line| format!("\u{1b}[32m{line}\u{1b}[0m"))),
            ("blanks", each(&|line| line.trim().replace('\t', "  "))),
            ("noise", each(&|line| format!("{line}\nslurmstepd: task 0 is done"))),
        ];
        for (what, text) in changed {
            if what == "noise" && plain["dialect"] == "csv" {
                continue;
            }
            let object = object(&[&text], &known);
            for key in ["class", "parse", "verdict", "rows", "complete", "errors", "warnings"] {
                assert_eq!(object[key], plain[key], "{name} {what}");
            }
        }
    }
}

/// Where an output is whole: behind its last footer, or its last bracket. A line of CSV looks like
/// the last one, so that is where those end that hold both halves of a row.
fn ends(input: &str, dialect: &str) -> usize {
    match dialect {
        "text" => input.rfind("Out of bounds values : ").map_or(input.len(), |at| {
            let line = &input[at..];
            at + line.find("OK").or(line.find("FAILED")).unwrap_or(line.len()) + 2
        }),
        "csv" => input.find("0\"\n").map_or(input.len(), |at| at + 3),
        _ => input.trim_end().len(),
    }
}

#[test]
fn an_input_cut_anywhere_is_never_taken_for_whole() {
    for (name, input, expected) in CASES {
        let expected: Value = serde_json::from_str(expected).unwrap();
        let known = Known { exit_code: None, ..known(&expected) };
        let whole = object(&[input], &known);
        let end = ends(input, whole["dialect"].as_str().unwrap());
        for at in (0..input.len()).filter(|at| input.is_char_boundary(*at)) {
            let object = object(&[&input[..at]], &known);
            assert!(object["class"] != "healthy" || at >= end, "{name} cut at {at}: {object}");
            // No figure that is not in the whole input.
            for row in object["rows"].as_array().unwrap() {
                let rows = whole["rows"].as_array().unwrap();
                let same = |known: &Value| {
                    let row = row.as_object().unwrap();
                    // A count of wrong elements may end inside, and is above 0 all the same.
                    row.iter().all(|(key, value)| known[key] == *value || key.ends_with("_wrong"))
                };
                assert!(rows.iter().any(same), "{name} cut at {at}: {row}");
            }
        }
    }
}

/// A small generator of numbers, always the same ones.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

#[test]
fn damaged_inputs_give_an_object() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let spice = [
        "\n",
        "-1",
        "N/A",
        "nan",
        "{",
        "}",
        "[",
        "]",
        "\"",
        ",",
        ":",
        "\0",
        "é",
        "#",
        "# Rank 99999999999999999999",
        "1e400",
        "18446744073709551616",
        "170141183460469231731687303715884105727",
        "[1,0]<stdout>:",
        "# Out of bounds values : 18446744073709551615 OK\n",
        "# Using devices\n",
        "Test NCCL failure",
        "(",
        "'",
        " 0 0 float sum -1 1 1 1 0 1 1 1 0\n",
    ];
    for (name, input, expected) in CASES {
        let known = known(&serde_json::from_str(expected).unwrap());
        for _ in 0..300 {
            let mut lines: Vec<&str> = input.split_inclusive('\n').collect();
            for _ in 0..numbers.below(3) {
                let (at, to) = (numbers.below(lines.len()), numbers.below(lines.len()));
                match numbers.below(4) {
                    0 if lines.len() > 1 => drop(lines.remove(at)),
                    1 => lines.insert(at, lines[to]),
                    2 => lines.insert(at, spice[numbers.below(spice.len())]),
                    _ => lines.swap(at, to),
                }
            }
            let mut bytes = lines.concat().into_bytes();
            for _ in 0..numbers.below(4) {
                let at = numbers.below(bytes.len());
                let to = (at + numbers.below(60)).min(bytes.len());
                match numbers.below(5) {
                    0 => bytes[at] = u8::try_from(numbers.below(256)).unwrap(),
                    1 => drop(bytes.drain(at..to)),
                    2 => {
                        let piece = bytes[at..to].to_vec();
                        bytes.splice(at..at, piece);
                    }
                    3 => bytes.truncate(at.max(1)),
                    _ => drop(bytes.splice(at..at, spice[numbers.below(spice.len())].bytes())),
                }
                if bytes.is_empty() {
                    bytes.push(b' ');
                }
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let object = object(&[&text], &known);
            assert!(object["verdict"].as_str().unwrap().chars().count() <= 300, "{name}: {text}");
            for row in object["rows"].as_array().unwrap() {
                for (key, value) in row.as_object().unwrap() {
                    let words = ["type", "redop", "algo", "proto", "file"];
                    assert!(value.is_number() || words.contains(&key.as_str()), "{name} {key}: {value}");
                }
            }
        }
    }
}

#[test]
fn the_largest_input_is_read_in_time_that_grows_with_its_length() {
    // A part of the limit where tests are not optimised.
    let size = FILE_BYTES / if cfg!(debug_assertions) { 64 } else { 1 };
    let fill = |line: &str| line.repeat(size / line.len());
    let result = "{\"size\":8,\"count\":2,\"out_of_place\":{\"time\":1,\"bus_bw\":1}},";
    let mut number = 0;
    let mut distinct = String::new();
    while distinct.len() < size {
        number += 1;
        distinct += &row(number * MIB, 5.0);
        distinct += &format!("h{number}: Test NCCL failure a 'b'\n");
    }
    let ranks: String = (0..size / 60)
        .map(|rank| format!("#  Rank {rank} Group  0 Pid {rank} on h{rank} device  0 [0]\n"))
        .collect();
    let texts = [
        fill(&row(MIB, 5.0)),
        fill(&header(&["a", "b"])),
        fill("# size count type redop root time algbw busbw #wrong\n"),
        fill(&run(&[(MIB, 5.0), (2 * MIB, 9.0)])),
        fill("USAGE: all_reduce_perf\n"),
        fill("Segmentation fault\n"),
        fill("\n"),
        fill("{"),
        fill("["),
        fill("{\"a\":"),
        fill("{\"a\":x},"),
        fill("[1,0]"),
        fill("[{},"),
        fill("\""),
        fill("{\"version\":1,\"results\":[]}"),
        "{\"args\":[\"all_reduce_perf\"],\"results\":[".to_string() + &fill(result),
        "numCycle,name,ranks,size,inplace,time,algbw,busbw\n".to_string()
            + &fill("0,AllReduce,2,8,0,1,1,1\n"),
        "numCycle,name,ranks,size,inplace,time,algbw,busbw\n".to_string() + &fill(","),
        fill("8 2 float "),
        fill("NCCL WARN x\n"),
        fill("\u{1b}["),
        ranks,
        distinct,
    ];
    for text in texts {
        let start: String = text.chars().take(40).collect();
        let begun = std::time::Instant::now();
        let inputs = [Input { name: "x".into(), text, truncated: true }];
        let object = read(&inputs, &Known::default()).object("nccl-tests", &["x"], None).to_string();
        assert!(!object.contains("\"healthy\""), "{start}");
        let taken = begun.elapsed();
        assert!(
            taken.as_secs_f64() < 2.0 || cfg!(debug_assertions) && taken.as_secs() < 10,
            "{start:?}: {taken:?}"
        );
    }
}
