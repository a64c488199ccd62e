//! The tests of `probes/collectives.rs`.

use super::*;
use crate::{
    find, inventory,
    sample::{context, output, settings},
};

fn node(gpus: usize) -> Inventory {
    let gpu = |at: usize| Gpu {
        function: inventory::Function {
            pci: format!("0000:{:02x}:00.0", at + 1),
            vendor: inventory::NVIDIA,
            ..inventory::Function::default()
        },
        ..Gpu::default()
    };
    Inventory { gpus: (0..gpus).map(gpu).collect(), ..Inventory::default() }
}

fn with_sizes() -> Settings {
    let mut settings = settings();
    settings.compute.collectives =
        CollectivesSettings { latency_bytes: 8, bytes: vec![256 << 20, 1 << 30], sweep_bytes: 1 << 10 };
    settings
}

fn parse(probe: &Collectives, stdout: &str) -> Reading {
    let (settings, inventory) = (with_sizes(), node(2));
    let outputs = [Output { stdout: stdout.into(), ..Output::default() }];
    let ctx = context(&[Target::Node], &inventory, &settings);
    probe.parse(&ctx, &outputs, &mut Memory::default()).unwrap().remove(0)
}

fn verdicts(reading: &Reading) -> Vec<(&str, &str, Option<Verdict>)> {
    let each = reading.findings.iter();
    each.map(|finding| (finding.check.as_str(), finding.part.as_str(), finding.verdict)).collect()
}

#[test]
fn the_plan_has_the_sizes_of_the_settings_and_holds_the_whole_node() {
    let (settings, inventory) = (with_sizes(), node(2));
    let ctx = context(&[Target::Node], &inventory, &settings);
    let few = Task { sizes: vec![8, 256 << 20, 1 << 30], latency: Some(8), whole: 256 << 20 };
    let sweep = Task { sizes: (3..=10).map(|bit| 1 << bit).collect(), latency: None, whole: 256 << 20 };
    for (probe, task, milliseconds) in [(&COLLECTIVES, few, 3300), (&SWEEP, sweep, 6300)] {
        let plan = probe.plan(&ctx).unwrap();
        let [Stage::Alone(step)] = plan.stages.as_slice() else { panic!("{plan:?}") };
        let request: compute::Request<Task> = serde_json::from_str(&step.stdin).unwrap();
        assert_eq!(request.task, task);
        assert_eq!(request.gpus, ["0000:01:00.0", "0000:02:00.0"]);
        assert_eq!(step.env, [("NCCL_DEBUG_FILE".to_string(), "/dev/stderr".to_string())]);
        let gpu = |pci: &str| Use { resource: Resource::Gpu(pci.into()), amount: milliseconds };
        let node = Use { resource: Resource::Node, amount: 1 };
        assert_eq!(plan.uses, [gpu("0000:01:00.0"), gpu("0000:02:00.0"), node]);
    }
}

#[test]
fn the_operators_log_file_and_every_number_of_gpus_are_kept() {
    let mut settings = with_sizes();
    let own = ("NCCL_DEBUG_FILE".to_string(), "/var/log/nccl.%p".to_string());
    settings.compute.environment = vec![own.clone()];
    let inventory = node(8);
    let plan = COLLECTIVES.plan(&context(&[Target::Node], &inventory, &settings)).unwrap();
    let [Stage::Alone(step)] = plan.stages.as_slice() else { panic!("{plan:?}") };
    assert_eq!(step.env, [own]);
    assert_eq!(plan.uses.len(), 9);

    let alone = node(1);
    let why = COLLECTIVES.plan(&context(&[Target::Node], &alone, &settings)).unwrap_err();
    assert_eq!(why.0, "this node has 1 GPU, and a collective needs two");
}

#[test]
fn a_run_tells_latency_at_the_small_size_and_bandwidth_at_the_largest() {
    let reading = parse(&COLLECTIVES, include_str!("../testdata/collectives/by-hand.jsonl"));
    for op in Op::ALL {
        let value = |metric: &str| {
            let of_op = |found: &&crate::Measurement| {
                found.metric.name == metric && found.labels == [op.name(), "node"]
            };
            let found: Vec<_> = reading.measurements.iter().filter(of_op).collect();
            assert_eq!(found.len(), 1, "{metric} of {op:?}");
            found[0].value
        };
        let (latency, bandwidth) =
            (value("collective_latency_seconds"), value("collective_bus_bandwidth_bytes_per_second"));
        assert!((9e-6..11e-6).contains(&latency), "{op:?}: {latency}");
        let expected = op.bus_factor(2) * f64::from(1 << 30) / (1e-5 + f64::from(1 << 30) / 2e11);
        assert!((bandwidth / expected - 1.0).abs() < 1e-9, "{op:?}: {bandwidth}");
    }
    assert_eq!(reading.measurements.len(), 2 * Op::ALL.len());
    assert_eq!(
        verdicts(&reading),
        [
            ("collectives", "node", Some(Verdict::Pass)),
            ("results", "node", Some(Verdict::Pass)),
            ("libraries", "node", None),
        ]
    );
    let [figures, results, libraries] = reading.findings.as_slice() else { panic!("{reading:?}") };
    let first = figures.found.split("; ").next().unwrap();
    assert_eq!(
        first,
        "all_reduce: 10.0 µs at 8 B (median of 5, spread 0.4 %), 198.5 GB/s at 256 MiB (median of 5, spread 0.4 %), \
         199.6 GB/s at 1 GiB (median of 5, spread 0.4 %)"
    );
    assert!(figures.found.contains("all_to_all: 10.0 µs at 32 B"), "{}", figures.found);
    assert_eq!(results.found, "939524148 of 3690987572 elements were looked at, and are right");
    assert!(libraries.found.contains("libnccl.so.2 2.27.3"), "{}", libraries.found);
}

#[test]
fn wrong_elements_fail_the_gpu_that_got_them_in_words() {
    let reading = parse(&COLLECTIVES, include_str!("../testdata/collectives/by-hand-corrupt.jsonl"));
    assert_eq!(
        verdicts(&reading),
        [
            ("collectives", "node", Some(Verdict::Pass)),
            ("corrupt_result", "0000:02:00.0", Some(Verdict::Fail)),
            ("libraries", "node", None),
        ]
    );
    assert_eq!(
        reading.findings[1].found,
        "all_reduce of 256 MiB: 1 of this GPU's elements are wrong, the first at 12345678: 8388609 (0x4b000001) for \
         8388608 (0x4b000000); broadcast of 1 GiB: 16777216 of this GPU's elements are wrong, the first at 0: NaN \
         (0xffffffff) for 8388608 (0x4b000000)"
    );
    assert_eq!(reading.measurements.len(), 2 * Op::ALL.len(), "how fast it was is true all the same");
}

#[test]
fn a_sweep_tells_every_size_and_in_words_the_best() {
    let reading = parse(&SWEEP, include_str!("../testdata/collectives_sweep/by-hand.jsonl"));
    // 8 sizes, of which the first two are too small to be cut into parts of two GPUs.
    assert_eq!(reading.measurements.len(), 2 * (3 * 8 + 3 * 6));
    let names: Vec<_> = reading.measurements.iter().map(|measurement| measurement.metric.name).collect();
    assert!(names.iter().all(|name| SWEEP.metrics().iter().any(|metric| metric.name == *name)));
    let has = |op: &str, bytes: &str| {
        reading.measurements.iter().filter(|measurement| measurement.labels == [op, bytes]).count()
    };
    assert_eq!([has("all_reduce", "8"), has("all_gather", "8"), has("all_gather", "1024")], [2, 0, 2]);
    let words = &reading.findings[0].found;
    assert!(words.starts_with("all_reduce: at most 0.1 GB/s at 1 KiB (median of 5"), "{words}");
}

#[test]
fn a_collective_that_fails_leaves_what_was_measured_before_it() {
    let fault = compute::Fault {
        part: "node".into(),
        call: "all_to_all of 32 bytes between 2 GPUs".into(),
        error: "unhandled cuda error (1): Cuda failure 719 'unspecified launch failure'".into(),
        hardware: false,
    };
    let exchange = Exchange {
        op: Op::AllReduce,
        size: 8,
        bytes: 8,
        count: 2,
        iterations: 20,
        seconds: Repeats { median: 12.34e-6, spread: 0.02, count: 99 },
        bus_bandwidth: Repeats { median: 6.5e5, spread: 0.02, count: 99 },
        check: Check { elements: 4, of: 4, corrupt: Vec::new() },
    };
    let items = [compute::Item::Value(exchange), compute::Item::Fault(fault)];
    let reading = parse(&COLLECTIVES, &output(1.0, &items, &[]).stdout);
    assert_eq!(reading.measurements.len(), 1);
    assert_eq!(
        verdicts(&reading),
        [
            ("collectives", "node", Some(Verdict::Pass)),
            ("results", "node", Some(Verdict::Pass)),
            ("gpu_call", "node", Some(Verdict::Unknown)),
        ]
    );
    assert_eq!(reading.findings[0].found, "all_reduce: 12.3 µs at 8 B (median of 99, spread 2.0 %)");

    let nothing = parse(&COLLECTIVES, &output::<compute::Item<Exchange>>(1.0, &items[1..], &[]).stdout);
    assert_eq!(verdicts(&nothing), [("gpu_call", "node", Some(Verdict::Unknown))]);
}

#[test]
fn bytes_are_told_in_the_largest_unit_of_which_they_are_whole() {
    let table = [
        (0, "0 B"),
        (8, "8 B"),
        (1000, "1000 B"),
        (65_536, "64 KiB"),
        (3 << 20, "3 MiB"),
        (1 << 34, "16 GiB"),
    ];
    for (bytes, expected) in table {
        assert_eq!(size(bytes), expected);
    }
}

#[test]
fn people_may_ask_by_the_librarys_name() {
    for name in ["collectives", "nccl", "rccl"] {
        assert_eq!(find(name).unwrap().name(), "collectives", "{name}");
    }
    assert_eq!(find("collectives_sweep").unwrap().name(), "collectives_sweep");
    assert_eq!(find("collectives_sweep").unwrap().schedule(), Schedule::OnDemand);
    assert!(find("NCCL").is_none());
}
