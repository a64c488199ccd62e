use serde_json::{Value, json};

use super::{
    super::{Expectation, FILE_BYTES},
    recorded_tests::{CASES, known, object},
    *,
};

const MIB: &str = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n";
const GBIT: &str = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n";
const TIMES: &str = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n";

fn rule() -> String {
    format!("{}\n", "-".repeat(87))
}

/// The block above a table.
fn block(title: &str, device: &str) -> String {
    format!(
        "{rule}                    {title}\n Dual-port       : OFF\t\tDevice         : {device}\n Number of qps   : 1\t\tTransport type : IB\n TX depth        : 128\n Mtu             : 4096[B]\n Link type       : IB\n{rule}",
        rule = rule()
    )
}

fn table(header: &str, rows: &str) -> String {
    format!("{header}{rows}{}", rule())
}

fn write(rows: &str) -> String {
    block("RDMA_Write BW Test", "mlx5_0") + &table(GBIT, rows)
}

/// A row whose figures agree with each other, in Gb/s.
#[expect(clippy::cast_precision_loss, reason = "sizes are small")]
fn row(size: u64, gbps: f64) -> String {
    let rate = gbps * 1000.0 / 8.0 / size as f64;
    format!(" {size:<7}    5000             {gbps:<7.2}            {gbps:<7.2}\t\t     {rate:<7.6}\n")
}

fn with(exit_code: i32, cmdline: &str) -> Known {
    Known { exit_code: Some(exit_code), cmdline: Some(cmdline.into()), expect: None }
}

fn expecting(expect: Expectation) -> Known {
    Known { expect: Some(expect), ..Known::default() }
}

/// What it is, the text, what is known beside it; class, parse and words of the sentence.
type Made = (&'static str, String, Known, &'static str, &'static str, &'static [&'static str]);

#[test]
fn each_rule_leads_to_its_class_and_says_what_decided() {
    let good = write(&row(65536, 97.0));
    let none = Known::default;
    let latency = block("RDMA_Write Latency Test", "mlx5_0")
        + &table(
            TIMES,
            " 2       1000          1.50           9.00         2.00     \t       2.10        \t0.10   \t\t3.00    \t\t8.00\n",
        );
    let waiting = "\n************************************\n* Waiting for client to connect... *\n************************************\n";
    let infinite = write(&(row(65536, 97.0) + &row(65536, 40.0)));
    let minimum = block("RDMA_Write BW Test", "mlx5_0")
        + &table(
            " #bytes #iterations BW min[Gb/sec] BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n",
            " 65536 5000 40.00 99.00 97.00 0.185013\n",
        );
    let cases: Vec<Made> = vec![
        ("good", good.clone(), none(), "healthy", "ok", &["97 Gb/s from mlx5_0", "not judged"]),
        ("good, and the exit code of Ctrl-C", good.clone(), with(130, "ib_write_bw"), "healthy", "ok", &[]),
        ("wrong data", good.clone() + "[DATA_VALIDATION] mismatch at offset 4096: expected 0x01, got 0x00\n", none(), "corrupt", "ok", &["65536 B", "offset 4096"]),
        ("data validated", good.clone() + "[DATA_VALIDATION] done, 0 mismatches\nVALIDATION: PASSED - 3 chunks, 5 bytes\n", none(), "healthy", "ok", &[]),
        ("validation says it failed", good.clone() + "VALIDATION: FAILED - 3 error(s), first at QP 0, Chunk 1, Offset 64 (expected 0x01, got 0x00)\n", none(), "corrupt", "ok", &["Offset 64"]),
        ("validation broke", good.clone() + "[DATA_VALIDATION] Failed to allocate marker counts\n", none(), "error", "partial", &["marker counts"]),
        ("an error after a good table", good.clone() + "Failed to close connection between server and client\n", with(0, "ib_write_bw"), "error", "partial", &["1 row before"]),
        ("killed", write("").replace(&format!("{GBIT}{}", rule()), ""), with(124, "ib_write_bw"), "hang", "partial", &["deadline", "no row"]),
        ("killed after a size", block("RDMA_Write BW Test", "mlx5_0") + GBIT + &row(65536, 97.0), with(137, "ib_write_bw -a"), "hang", "partial", &["65536 B", "SIGKILL"]),
        ("killed while waiting", waiting.into(), with(143, "ib_write_bw"), "hang", "partial", &["no client"]),
        ("empty and killed", String::new(), with(137, "ib_write_bw"), "hang", "error", &["no row"]),
        ("empty and failed", String::new(), Known { exit_code: Some(1), ..none() }, "error", "error", &["exit 1"]),
        ("empty and no more", String::new(), none(), "unknown", "error", &["--exit-code"]),
        ("empty and crashed", String::new(), with(139, "ib_write_bw"), "error", "error", &["crashed"]),
        ("watchdog", waiting.to_string() + " Did not get Message for 120 Seconds, exiting..\n Total Received=3, Total Iters Required=5\n", with(1, "ib_send_bw"), "hang", "error", &["120 s"]),
        ("failed without a text", good.clone(), with(1, "ib_write_bw"), "error", "ok", &["exit 1"]),
        ("limit missed", good.clone() + "Error: BW result is below bw limit\n", with(1, "ib_write_bw -w 200"), "degraded", "ok", &["limit", "97 Gb/s"]),
        ("usage page", "Usage:\n  ib_write_bw            start a server and wait for connection\n  ib_write_bw <host>     connect to server at <host>\n".into(), with(0, "ib_write_bw -h"), "error", "error", &["option"]),
        ("no such program", "bash: ib_write_bw: command not found\n".into(), with(127, "ib_write_bw"), "error", "error", &["does not start"]),
        ("nothing measured", block("RDMA_Write BW Test", "mlx5_0") + &table(MIB, " 65536      1664             0.00               0.00   \t\t   0.000000\n"), with(0, "ib_write_bw -D 3"), "invalid-run", "ok", &["1664 iterations"]),
        ("a wrapped counter", write(" 65536      18446744072105378983           0.00               41.03 \t\t   0.078259\n"), none(), "invalid-run", "ok", &["wrapped"]),
        ("units added to each other", write(" 65536      5000             0.00               12000.00 \t\t   0.375843\n"), none(), "invalid-run", "ok", &["contradict"]),
        ("slower than expected", good.clone(), expecting(Expectation::Bandwidth(200e9)), "degraded", "ok", &["97 Gb/s", "200 Gb/s", "48 %"]),
        ("as expected", good.clone(), expecting(Expectation::Bandwidth(100e9)), "healthy", "ok", &["97 % of the expected 100 Gb/s"]),
        ("an expectation of another kind", good.clone(), expecting(Expectation::Latency(2e-6)), "healthy", "ok", &["not judged"]),
        ("later than expected", latency.clone(), expecting(Expectation::Latency(1.5e-6)), "degraded", "ok", &["2.00 us", "1.50 us", "2 B"]),
        ("as soon as expected", latency.clone(), expecting(Expectation::Latency(2e-6)), "healthy", "ok", &["typical 2.00 us"]),
        ("a cliff", write(&(row(65536, 97.0) + &row(131_072, 40.0))), none(), "degraded", "ok", &["40.00", "131072 B", "97.00", "65536 B"]),
        ("small sizes vary", write(&(row(1024, 97.0) + &row(2048, 40.0) + &row(65536, 41.0))), none(), "healthy", "ok", &[]),
        ("an interval falls", infinite.clone(), none(), "degraded", "ok", &["interval 2", "interval 1"]),
        ("an uneven rate", minimum, none(), "degraded", "ok", &["minimum 40.00", "97.00"]),
        ("infinite and killed", write(&(row(65536, 97.0) + &row(65536, 96.0))).replace(&(rule() + "$"), ""), with(143, "ib_write_bw --run_inf"), "healthy", "ok", &[]),
        ("cut before its rule", block("RDMA_Write BW Test", "mlx5_0") + GBIT + &row(65536, 97.0), none(), "unknown", "partial", &["closing rule"]),
        ("no header", row(65536, 97.0) + &rule(), none(), "healthy", "ok", &["97 Gb/s"]),
        ("no header and too small to tell", " 2          5000             0.01               0.01   \t\t   0.006878\n".to_string() + &rule(), none(), "unknown", "ok", &["--cmdline"]),
        ("no header, and the command tells", " 2          5000             0.01               0.01   \t\t   0.006878\n".to_string() + &rule(), with(0, "ib_write_bw -s 2"), "healthy", "ok", &[]),
        ("two runs that differ", good.clone() + &write(&row(65536, 60.0)), none(), "unknown", "ok", &["65536 B", "60.00", "97.00"]),
        ("two runs on two devices", good.clone() + &write(&row(65536, 60.0)).replace("mlx5_0", "mlx5_1"), none(), "healthy", "ok", &["2 runs"]),
        ("foreign", "# nccl-tests\n 1024 256 float sum -1 5.0 0.2 0.2 0\n".into(), Known { exit_code: Some(1), ..none() }, "unknown", "error", &["not what perftest prints"]),
        ("binary", "\u{fffd}PNG\0\0\u{fffd}\n".into(), with(1, "ib_write_bw"), "unknown", "error", &[]),
        ("JSON of another tool", "{\"version\": 1, \"results\": [{\"size\": 8}]}".into(), none(), "unknown", "error", &[]),
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
        for word in words {
            assert!(verdict.contains(word), "{what} lacks {word:?}: {verdict}");
        }
    }
}

#[test]
fn tables_of_all_options_are_read_by_their_labels() {
    let first = |text: &str, cmdline: &str| object(&[text], &with(0, cmdline))["rows"][0].clone();
    let in_block = |title: &str, header: &str, rows: &str| block(title, "mlx5_0") + &table(header, rows);
    let port = in_block(
        "RDMA_Write BW Test",
        " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]   BW Port1[Gb/sec]   MsgRate Port1[Mpps]   BW Port2[Gb/sec]   MsgRate Port2[Mpps]\n",
        " 65536      5000     0.00            97.00\t\t   0.185013        48.50            0.092507              48.50            0.092506\n",
    );
    assert_eq!(
        (&first(&port, "")["bw_avg_gbps"], &first(&port, "")["msg_rate_mpps"]),
        (&json!(97.0), &json!(0.185013))
    );
    let qos = in_block(
        "Send BW Test",
        " #bytes    #sl      #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n",
        " 65536    3           5000           97.39            97.00                  0.185013\n",
    );
    assert_eq!(
        (&first(&qos, "")["iterations"], &first(&qos, "")["bw_peak_gbps"]),
        (&json!(5000), &json!(97.39))
    );
    let duration = in_block(
        "Send Latency Test",
        " #bytes        #iterations       t_avg[usec]    tps average\n",
        " 2       356082            2.81        356082.15\n",
    );
    for text in [
        duration.clone(),
        duration.replace(" #bytes        #iterations       t_avg[usec]    tps average\n", ""),
    ] {
        let row = first(&text, "ib_send_lat -D 1");
        assert_eq!((&row["t_avg_us"], row.get("t_typical_us")), (&json!(2.81), None));
    }
    let absent = in_block(
        "RDMA_Write BW Test",
        GBIT,
        " 65536      5000             N/A            97.00\t\t     -nan\n",
    );
    assert_eq!(
        first(&absent, ""),
        json!({"size": 65536, "iterations": 5000, "bw_avg_gbps": 97.0, "bw_avg_mib_s": 97.0 * 1.25e8 / 1_048_576.0})
    );
    for (cmdline, key) in
        [("--output=bandwidth --report_gbits", "bw_avg_gbps"), ("--output message_rate", "msg_rate_mpps")]
    {
        let object = object(&["97.250000\n"], &with(0, &format!("ib_write_bw {cmdline}")));
        assert_eq!((&object["rows"][0][key], &object["parse"]), (&json!(97.25), &json!("ok")), "{object}");
    }
    assert_eq!(object(&["97.250000\n"], &Known::default())["parse"], "error");
}

#[test]
fn what_harnesses_do_to_a_text_changes_nothing() {
    for (name, input, expected) in CASES {
        let expected: Value = serde_json::from_str(expected).unwrap();
        let known = known(&expected);
        let plain = object(&[input], &known);
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
            // Lines between those of a JSON file break it.
            if what == "noise" && plain["dialect"] != "text" {
                continue;
            }
            let object = object(&[&text], &known);
            for key in ["class", "parse", "verdict", "rows", "complete", "errors", "warnings"] {
                assert_eq!(object[key], plain[key], "{name} {what}");
            }
        }
    }
}

#[test]
fn a_server_and_a_client_that_share_a_file_are_one_run() {
    let waiting = "* Waiting for client to connect... *\n";
    let (first, second) = (row(65536, 97.0), row(131_072, 97.2));
    let text = [
        waiting,
        &block("RDMA_Write BW Test", "mlx5_0"),
        &block("RDMA_Write BW Test", "mlx5_0"),
        GBIT,
        GBIT,
        &first,
        &second,
        &second,
        &rule(),
        &rule(),
    ]
    .concat();
    let whole = object(&[&text], &Known::default());
    assert_eq!(
        (&whole["runs"], &whole["duplicate_rows"], &whole["role"]),
        (&json!(1), &json!(1), &json!("server"))
    );
    assert_eq!((&whole["rows"].as_array().unwrap().len(), &whole["parse"]), (&2, &json!("ok")));
    // The client may have closed its table before the server prints its row.
    let apart = text.replace(&format!("{second}{second}{}", rule()), &format!("{second}{}{second}", rule()));
    let apart = object(&[&apart], &Known::default());
    assert_eq!(
        (&apart["runs"], &apart["duplicate_rows"], &apart["parse"]),
        (&json!(1), &json!(1), &json!("ok"))
    );
    let cut = object(&[text.trim_end().trim_end_matches('-')], &Known::default());
    assert_eq!((&cut["parse"], &cut["class"]), (&json!("partial"), &json!("unknown")));
    // One after the other they are two runs, each with its own facts.
    let client = block("RDMA_Write BW Test", "mlx5_1")
        + &table(MIB, " 65536      5000             0.00               6923.38\t\t   0.110774\n");
    let two = object(
        &[&(waiting.to_string() + &write(&first).replace(" TX depth        : 128\n", "") + &client)],
        &Known::default(),
    );
    assert_eq!((&two["runs"], two.get("device")), (&json!(2), None));
    let per_run = two["per_run"].as_array().unwrap();
    assert_eq!((&per_run[0]["role"], &per_run[1]["role"]), (&json!("server"), &json!("client")));
    assert_eq!((&per_run[0]["unit"], &per_run[1]["unit"]), (&json!("Gb/s"), &json!("MiB/s")));
    assert_eq!((&two["rows"][0]["run"], &two["rows"][1]["run"]), (&json!(1), &json!(2)));
}

#[test]
fn directions_and_sections_are_told_apart() {
    let both = block("RDMA_Write Bidirectional BW Test", "mlx5_0") + GBIT + &row(65536, 180.0) + &rule();
    let section =
        |name: &str, gbps| format!("\n {name} results: \n{}{GBIT}{}{}", rule(), row(65536, gbps), rule());
    let text = both.clone() + &section("Local", 95.0) + &section("Remote", 85.0);
    let object_both = object(&[&text], &Known::default());
    let sections: Vec<&str> =
        object_both["rows"].as_array().unwrap().iter().map(|row| row["section"].as_str().unwrap()).collect();
    assert_eq!(sections, ["total", "local", "remote"]);
    assert_eq!((&object_both["bidirectional"], &object_both["parse"]), (&json!(true), &json!("ok")));
    assert_eq!(
        (&object_both["bw_avg_gbps"], &object_both["per_direction_gbps"]),
        (&json!(95.0), &json!(95.0))
    );
    let alone = object(&[&both], &expecting(Expectation::Bandwidth(100e9)));
    assert_eq!(
        (&alone["per_direction_gbps"], &alone["expect_ratio"], &alone["class"]),
        (&json!(90.0), &json!(0.9), &json!("healthy"))
    );
    // The last block that JSON holds is the other side's.
    let json_text = "{\"test_info\": {\"test\": \"RDMA_Write_Bidirectional_BW_Test\"}, \"results\": {\"MsgSize\": 65536, \"BW_average\": 85.00, \"MsgRate\": 0.162125}}";
    let known = with(0, "ib_write_bw -b --report-both --report_gbits");
    let remote = object(&[json_text], &known);
    assert_eq!(
        (&remote["rows"][0]["section"], &remote["per_direction_gbps"]),
        (&json!("remote"), &json!(85.0))
    );
    assert_eq!((&remote["dialect"], &remote["valid_json"]), (&json!("json"), &json!(true)));
}

#[test]
fn error_lines_of_other_files_count_and_rows_name_their_file() {
    let good = write(&row(65536, 97.0));
    let stderr = " Completion with error at client\n Failed status-RNR retry counter exceeded (13): wr_id 0 syndrom 0x87\n scnt=128, ccnt=3\n";
    let object = object(&[&good, stderr], &with(1, "ib_write_bw"));
    assert_eq!(
        (&object["class"], &object["wc_status"], &object["ccnt"]),
        (&json!("error"), &json!(13), &json!(3))
    );
    assert_eq!((&object["complete"], &object["rows"][0]["file"]), (&json!(false), &json!("0.txt")));
    assert_eq!(object["errors"].as_array().unwrap().len(), 2);
}

#[test]
fn an_input_cut_anywhere_is_never_taken_for_whole() {
    for (name, input, expected) in CASES {
        let expected: Value = serde_json::from_str(expected).unwrap();
        let known = Known { exit_code: None, ..known(&expected) };
        let whole = object(&[input], &known);
        // What ends the table, or the file if it is JSON; trailing blanks and notices aside.
        let end = match (whole["dialect"].as_str(), input.rfind(&"-".repeat(87))) {
            (Some("text"), Some(at)) => at + 87,
            _ => input.trim_end().len(),
        };
        // Each byte of the short ones; the long ones repeat themselves.
        let step = if input.len() < 2200 { 1 } else { 7 };
        for at in (0..input.len()).step_by(step).filter(|at| input.is_char_boundary(*at)) {
            let object = object(&[&input[..at]], &known);
            let sample = object["class"] == "healthy" && object["parse"] == "ok";
            assert!(!sample || at >= end, "{name} cut at {at}: {object}");
            // No figure that is not in the whole input.
            for row in object["rows"].as_array().unwrap() {
                let rows = whole["rows"].as_array().unwrap();
                let same = |known: &Value| {
                    ["size", "iterations", "msg_rate_mpps", "t_typical_us", "p999_us"]
                        .iter()
                        .all(|key| row.get(key).is_none_or(|v| known[*key] == *v))
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
        "\"",
        ",",
        ":",
        "\0",
        "é",
        "#bytes",
        "1e400",
        "18446744073709551616",
        "[1,0]<stdout>:",
        " RDMA_Write BW Test\n",
        "Failed status",
        "(",
        "Local results:",
    ];
    for (name, input, expected) in CASES {
        let known = known(&serde_json::from_str(expected).unwrap());
        for _ in 0..200 {
            let mut bytes = input.as_bytes().to_vec();
            for _ in 0..=numbers.below(4) {
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
                    assert!(
                        value.is_number() || ["section", "file"].contains(&key.as_str()),
                        "{name} {key}: {value}"
                    );
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
    let mut number = 0;
    let mut distinct = String::new();
    while distinct.len() < size {
        number += 1;
        distinct += &format!(" {number} 1 0.00 1.00 0.000001\nFailed {number}\n");
    }
    let texts = [
        fill(" 65536 1 0.00 1.00 0.000001\n"),
        fill("#bytes\n"),
        fill(GBIT),
        fill(&("x".repeat(30) + "\n")),
        fill("Couldn't \n"),
        fill("\n"),
        fill("{"),
        fill("{\"MsgSize\":1}"),
        fill("RDMA_Write BW Test\n 1 1 0.00 1.00 0.000001\n"),
        fill("\"MsgSize\": 1,\n{"),
        fill(&write(&row(65536, 97.0))),
        fill("1 "),
        fill("-"),
        fill("Device : ib_write_bw mismatch: local=\n"),
        fill("\u{1b}["),
        distinct,
    ];
    for text in texts {
        let start: String = text.chars().take(40).collect();
        let begun = std::time::Instant::now();
        let inputs = [Input { name: "x".into(), text, truncated: true }];
        let object = read(&inputs, &Known::default()).object("perftest", &["x"], None).to_string();
        assert!(!object.contains("\"healthy\""), "{start}");
        let taken = begun.elapsed();
        assert!(
            taken.as_secs_f64() < 2.0 || cfg!(debug_assertions) && taken.as_secs() < 10,
            "{start:?}: {taken:?}"
        );
    }
}
