use super::*;

const START: &str = "# nThread 1 nGpus 1 minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n";
const HEADER: &str = "#\n#                                                              out-of-place                       in-place          \n#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       \n";
const FOOTER: &str = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 100.5 \n#\n";

fn rank(rank: u32, host: &str) -> String {
    format!(
        "#  Rank {rank:2} Group  0 Pid  {} on {host:>10} device  {rank} [0000:0{rank}:00] AMD Instinct MI300X\n",
        40 + rank
    )
}

fn row(size: u64, busbw: f64) -> String {
    format!(
        "{size:12} {:13}     float     sum      -1    91.10   {busbw:.2}  {busbw:.2}      0    94.94   {busbw:.2}  {busbw:.2}      0\n",
        size / 4
    )
}

fn run(rows: &str) -> String {
    [START, &rank(0, "node-a"), &rank(1, "node-b"), HEADER, rows, FOOTER].concat()
}

#[test]
fn a_run_is_read_with_its_ranks_its_sweep_and_its_footer() {
    let stderr = "node-a:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE\n";
    let log =
        read(&run(&(row(8, 0.5) + &row(1_048_576, 150.0))), stderr, Some("mpirun all_reduce_perf -g 1"));
    let run = log.last().unwrap();
    assert!(log.complete && log.recognised && log.errors.is_empty());
    assert_eq!((log.runs.len(), run.nranks(), run.hosts(), run.copies()), (1, Some(2), Some(2), None));
    let ends: Vec<_> = run.ranks.iter().map(|rank| (rank.host.as_str(), rank.bus.as_deref())).collect();
    assert_eq!(ends, [("node-a", Some("0000:00:00")), ("node-b", Some("0000:01:00"))]);
    assert_eq!((run.step, run.min_bytes, run.validation), (Some(Step::Factor(2)), Some(8), Some(true)));
    assert_eq!((run.peak_busbw(), run.factor(), run.average), (Some(150.0), Some(1.0), Some(100.5)));
    assert_eq!((run.wrong_total(), run.out_of_bounds, run.validated()), (Some(0), Some(0), Some(true)));
    assert_eq!(
        (run.test.as_deref(), run.rdma, run.layout),
        (Some("all_reduce_perf"), Some(true), Some(Layout::New))
    );
    assert_eq!((run.last_size(), run.next_size()), (Some(1_048_576), None));
}

#[test]
fn a_failure_is_told_with_the_rows_before_it() {
    let stdout = run(&row(8, 0.5)).replace(FOOTER, "node-b: Test NCCL failure common.cu:1125 'unhandled system error / socketProgress: Connection closed'\n .. node-b pid 41: Test failure common.cu:1017\n");
    let log = read(&stdout, "", None);
    let failure = log.fault.failure.clone().unwrap();
    assert_eq!((failure.host.as_str(), failure.text.as_str()), ("node-b", "unhandled system error"));
    assert_eq!(failure.last.as_deref(), Some("socketProgress: Connection closed"));
    assert!(!log.complete && log.errors.len() == 2 && log.last().unwrap().rows.len() == 1);
    assert_eq!(log.last().unwrap().next_size(), Some(16));
    let reduced = stdout.replace("# Using", "# Reducing maxBytes to 8 due to memory limitation\n# Using");
    assert_eq!(read(&reduced, "", None).last().unwrap().next_size(), None);
}

#[test]
fn copies_that_print_through_each_other_are_one_run_of_the_ranks_of_one() {
    let ranks = |host: &str| rank(0, host) + &rank(1, host);
    let rows = row(8, 0.5) + &row(8, 0.4) + &row(16, 0.5) + &row(16, 0.4);
    let text =
        [START, START, &ranks("node-a"), &ranks("node-b"), HEADER, HEADER, &rows, FOOTER, FOOTER].concat();
    let log = read(&text, "", None);
    let run = log.last().unwrap();
    assert_eq!((log.runs.len(), log.complete, run.rows.len()), (1, true, 4));
    assert_eq!((run.nranks(), run.side_by_side(), run.copies()), (Some(2), 2, None));
    assert!(!read(text.strip_suffix(FOOTER).unwrap(), "", None).complete);
}

#[test]
fn a_list_of_ranks_that_the_program_cut_is_completed_by_the_start_line() {
    let start = START.replace("nGpus 1", "nGpus 64");
    let text =
        [&start, &rank(0, "node-a"), &rank(1, "node-a"), "#  ...\n", HEADER, &row(8, 0.5), FOOTER].concat();
    // Two processes of 64 GPUs.
    assert_eq!(read(&text, "", None).last().unwrap().nranks(), Some(128));
}

#[test]
fn the_next_size_follows_the_sweep() {
    let sweep = |min, max, step, sizes: &[i128]| {
        let rows = sizes.iter().map(|size| Row { size: Some(*size), ..Row::default() }).collect();
        Run { min_bytes: min, max_bytes: max, step, rows, ..Run::default() }.next_size()
    };
    let (double, bytes) = (Some(Step::Factor(2)), Some(Step::Bytes(1000)));
    let table = [
        (Some(8), Some(64), double, vec![], Some(8)),
        (Some(8), Some(64), double, vec![8, 16], Some(32)),
        (Some(8), Some(64), double, vec![32, 64], None),
        // Rounded down to a multiple of three ranks.
        (Some(1024), Some(1 << 30), double, vec![1020, 2040], Some(4096)),
        (Some(0), Some(64), double, vec![0, 8], Some(16)),
        (Some(500), Some(9000), bytes, vec![500, 1496], Some(2500)),
        (Some(500), None, Some(Step::Bytes(0)), vec![500, 700], Some(900)),
        (None, None, None, vec![8, 32], Some(128)),
        (None, None, None, vec![32, 8], None),
        (None, None, None, vec![32], None),
        (None, None, Some(Step::Factor(u64::MAX)), vec![i128::MAX / 2], None),
    ];
    for (min, max, step, sizes, want) in table {
        assert_eq!(sweep(min, max, step, &sizes), want, "{min:?} {step:?} {sizes:?}");
    }
}

#[test]
fn json_that_is_cut_anywhere_gives_whole_rows_only() {
    let text = r#"{"version":1,"args":["x/all_gather_perf"],"env":["A=\u00e9\\","B=1"],"nccl_version":22807,"config":{"nthreads":2,"ngpus":4,"minimum_bytes":8,"step_factor":1,"step_bytes":1024,"validation":1,"devices":[{"rank":0,"pid":1,"hostname":"a","device":0},{"rank":8,"pid":1,"hostname":"b","device":0}]},"results":[{"size":8,"count":2,"type":"float","redop":"none","root":"    -1","out_of_place":{"time":7.5,"alg_bw":109.9,"bus_bw":192.4,"nwrong":0},"in_place":{"time":75.9,"alg_bw":110.5,"bus_bw":193.4,"nwrong":null}},{"size":16,"count":4,"type":"float","redop":"none","root":"    -1","out_of_place":{"time":7.5,"alg_bw":109.9,"bus_bw":192.4,"nwrong":3},"in_place":{"time":75.9,"alg_bw":110.5,"bus_bw":193.4,"nwrong":null}}],"out_of_bounds":{"count":1,"okay":"false"},"average_bus_bandwidth":{"bandwidth":192.9,"okay":"false"},"errors":[""]}"#;
    let whole = read(text, "", None);
    let run = whole.last().unwrap();
    assert!(whole.complete && whole.valid_json == Some(true) && whole.json_version == Some(1));
    assert_eq!(
        (run.nranks(), run.hosts(), run.test.as_deref()),
        (Some(16), Some(2), Some("all_gather_perf"))
    );
    assert_eq!((run.step, run.wrong_total(), run.out_of_bounds), (Some(Step::Bytes(1024)), Some(3), Some(1)));
    assert_eq!(run.rows[0].root, Some(-1));
    assert!(whole.fault.limit.is_some());
    for at in 0..text.len() {
        let log = read(&text[..at], "", None);
        assert!(!log.complete, "cut at {at}");
        let rows = log.last().map_or(&[][..], |run| &run.rows);
        assert_eq!(rows, &run.rows[..rows.len()], "cut at {at}");
    }
    let cut = read(
        &text[..text
            .find("},\"in_place\":{\"time\":75.9,\"alg_bw\":110.5,\"bus_bw\":193.4,\"nwrong\":null}}]")
            .unwrap()],
        "",
        None,
    );
    assert_eq!(
        (cut.last().unwrap().rows.len(), cut.valid_json, cut.dialect),
        (1, Some(false), Some(Dialect::Json))
    );
    for (from, to, dialect) in [
        ("}],\"out", "},],\"out", Dialect::TrailingComma),
        ("109.9", "-nan", Dialect::Json),
        ("A=", "A=\u{7}\\q", Dialect::Json),
    ] {
        let odd = read(&text.replace(from, to), "", None);
        assert_eq!((odd.complete, odd.valid_json, odd.dialect), (true, Some(false), Some(dialect)), "{to}");
        assert_eq!(odd.last().unwrap().rows.len(), 2, "{to}");
    }
    // Two files one after the other.
    assert_eq!(read(&[text, "\n", text].concat(), "", None).runs.len(), 2);
    assert!(!read("{\"version\":1,\"results\":[]}", "", None).recognised);
}

#[test]
fn reports_of_rccl_are_put_together_from_their_halves() {
    let lines = "numCycle,name,nodes,ranks,ranksPerNode,gpusPerRank,size,type,redop,inPlace,time,algBw,busBw,wrong\n\
        0,\"AllReduce\",2,16,8,1,8,\"float\",\"sum\",0,1.5,2.5,3.5,\"0\"\n\
        0,\"AllReduce\",2,16,8,1,16,\"float\",\"sum\",0,1.5,2.5,3.5,\"N/A\"\n\
        0,\"AllReduce\",2,16,8,1,8,\"float\",\"sum\",1,4.5,5.5,6.5,\"2\"\n\
        0,\"AllReduce\",2,16,8,1,16,\"float\",\"sum\",1,4.5,nan,6.5,\"0\"\n\
        0,\"AllGather\",2,16,8,1,16,\"float\",\"\",0,4.5,5.5,6.5,\"0\"\n";
    let csv = read(lines, "", None);
    assert_eq!((csv.runs.len(), csv.dialect, csv.complete), (2, Some(Dialect::Csv), true));
    let rows = &csv.runs[0].rows;
    assert_eq!((rows.len(), rows[0].in_place.wrong, rows[1].out_of_place.wrong), (2, Some(2), None));
    assert_eq!((rows[1].in_place.algbw, csv.runs[1].rows[0].redop.as_deref()), (None, None));
    assert_eq!((csv.runs[1].test.as_deref(), csv.runs[1].hosts()), (Some("all_gather_perf"), Some(2)));
    // A half is missing, or a value, or the end of the line.
    let first: String = lines.lines().take(4).map(|line| line.to_string() + "\n").collect();
    for cut in [first, lines.replace(",nan", ""), lines.trim_end().to_string()] {
        assert!(!read(&cut, "", None).complete, "{cut}");
    }
    let json = r#"[{"numCycle":0,"name":"AllReduce","nodes":2,"ranks":16,"ranksPerNode":8,"gpusPerRank":1,"size":8,"type":"float","redop":"sum","inPlace":0,"time":1.5,"algBw":2.5,"busBw":3.5,"wrong":"0"},{"numCycle":0,"name":"AllReduce","nodes":2,"ranks":16,"ranksPerNode":8,"gpusPerRank":1,"size":8,"type":"float","redop":"sum","inPlace":1,"time":4.5,"algBw":5.5,"busBw":6.5,"wrong":"2"}]"#;
    let log = read(json, "", None);
    assert_eq!((log.dialect, log.complete, &log.runs[0].rows[0]), (Some(Dialect::Json), true, &rows[0]));
    assert!(!read(json.trim_end_matches(']'), "", None).complete);
}
