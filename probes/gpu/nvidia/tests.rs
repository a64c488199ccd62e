use super::*;
use crate::{
    Inventory, Memory, Probe as _, Reading, Verdict,
    gpu::{Gpu, GpuState},
    inventory::{Function, Gpu as GpuPart, NVIDIA},
    sample::{context, output, settings},
};

const FIRST: &str = "0000:03:00.0";
const OTHER: &str = "0000:23:00.0";

/// What the worker printed on a node with the stand-in for NVML, `tests/fixtures/nvml/nvml.c`.
/// Printed by the worker with tests/fixtures/nvml in NVML's place.
const STAND_IN: &str = include_str!("../../testdata/gpu/stand-in-two-faults.txt");
/// Printed by the worker on an H200 of a virtual machine, driver 580.159.04: no NVLink, no fabric.
const H200: &str = include_str!("../../testdata/gpu/h200.txt");

fn healthy() -> Facts {
    Facts {
        uuid: Some("GPU-4c2e".into()),
        persistence: Some(true),
        ecc: Some(Ecc { on: true, next: true, by_default: Some(true) }),
        lifetime: Some(Errors { uncorrectable: 3, correctable: 9 }),
        rows: Some(Rows::default()),
        retirement_pending: None,
        held: Some(Limits::default()),
        slowdown: Some(false),
        held_for: Limits {
            power: Some(0),
            thermal: Some(0),
            hardware_thermal: Some(0),
            power_brake: Some(0),
        },
        links: links(18, &[]),
        link_errors: LinkErrors { replay: Some(0), recovery: Some(0), crc: Some(0) },
        fabric: Some(Fabric { state: 3, status: 0 }),
        recovery_action: Some(0),
        failed: Vec::new(),
    }
}

fn links(count: u32, silent: &[u32]) -> Vec<Link> {
    (0..count).map(|number| Link { number, active: !silent.contains(&number) }).collect()
}

fn gpu(pci: &str, nvml: Nvml) -> Gpu {
    Gpu {
        pci: pci.into(),
        vendor: NVIDIA,
        device: 0x2335,
        driver: Some("nvidia".into()),
        errors: [("dram".to_string(), Errors::default()), ("sram".to_string(), Errors::default())].into(),
        replays: Some(0),
        partitioned: Some(false),
        nvml: Some(nvml),
        ..Gpu::default()
    }
}

fn told(change: impl FnOnce(&mut Facts)) -> Gpu {
    let mut facts = healthy();
    change(&mut facts);
    gpu(FIRST, Nvml::Told(Box::new(facts)))
}

fn other() -> Gpu {
    gpu(OTHER, Nvml::Told(Box::new(healthy())))
}

/// The readings of the first GPU when the node is read as it is at each time.
fn read(steps: &[(f64, &[Gpu])]) -> Vec<Reading> {
    let part = |pci: &str| GpuPart {
        function: Function { pci: pci.into(), ..Function::default() },
        ..GpuPart::default()
    };
    let inventory = Inventory { gpus: vec![part(FIRST), part(OTHER)], ..Inventory::default() };
    let settings = settings();
    let targets = GpuState.targets(&inventory, &settings);
    let ctx = context(&targets, &inventory, &settings);
    let mut memory = Memory::default();
    let read = |(at, gpus): &(f64, &[Gpu])| {
        GpuState.parse(&ctx, &[output(*at, gpus, &[])], &mut memory).unwrap().swap_remove(0)
    };
    steps.iter().map(read).collect()
}

/// The second of two readings, a minute after one of a healthy node.
fn second(first: Gpu) -> Reading {
    let before = [told(|_| ()), other()];
    let after = [first, other()];
    read(&[(0.0, &before), (60.0, &after)]).swap_remove(1)
}

fn verdicts(reading: &Reading, check: &str) -> Vec<Option<Verdict>> {
    reading.findings.iter().filter(|found| found.check == check).map(|found| found.verdict).collect()
}

fn value(reading: &Reading, metric: &str, label: &str) -> Option<f64> {
    reading
        .measurements
        .iter()
        .find(|found| found.metric.name == metric && (label.is_empty() || found.labels[1] == label))
        .map(|found| found.value)
}

/// Findings that are no pass, by check and verdict.
fn odd(reading: &Reading) -> Vec<(&str, Option<Verdict>)> {
    let odd = reading.findings.iter().filter(|found| found.verdict != Some(Verdict::Pass));
    odd.map(|found| (found.check.as_str(), found.verdict)).collect()
}

#[test]
fn a_healthy_gpu_passes_within_its_series() {
    let reading = second(told(|_| ()));
    assert_eq!(odd(&reading), []);
    let checks: std::collections::BTreeSet<_> =
        reading.findings.iter().map(|found| found.check.as_str()).collect();
    let wanted = [
        "ecc",
        "memory_errors",
        "nvlink",
        "nvlink_errors",
        "nvlink_fabric",
        "persistence",
        "presence",
        "recovery",
        "remapped_rows",
        "throttling",
    ];
    assert_eq!(checks.into_iter().collect::<Vec<_>>(), wanted);
    assert!(reading.findings[0].found.contains("GPU-4c2e"));
    assert_eq!(value(&reading, "gpu_nvlinks_active", ""), Some(18.0));
    assert_eq!(value(&reading, "gpu_remapped_rows", "uncorrectable"), Some(0.0));
    assert_eq!(value(&reading, "gpu_throttled_ratio", "power_brake"), Some(0.0));
    assert!(reading.measurements.len() <= 20, "{}", reading.measurements.len());
}

#[test]
fn each_fact_is_judged() {
    use Verdict::{Degraded, Fail};
    type Change = fn(&mut Facts);
    let table: [(&str, Change, &str, Verdict); 15] = [
        ("a row waits", |facts| facts.rows.as_mut().unwrap().pending = true, "remapped_rows", Degraded),
        ("a row failed", |facts| facts.rows.as_mut().unwrap().failed = true, "remapped_rows", Fail),
        ("a page waits", |facts| facts.retirement_pending = Some(true), "retired_pages", Degraded),
        ("no persistence", |facts| facts.persistence = Some(false), "persistence", Degraded),
        ("links down", |facts| facts.links = links(18, &[3, 7]), "nvlink", Degraded),
        ("no links", |facts| facts.links.clear(), "nvlink", Degraded),
        ("trained again", |facts| facts.link_errors.recovery = Some(1), "nvlink_errors", Degraded),
        ("sent again", |facts| facts.link_errors.replay = Some(11), "nvlink_errors", Degraded),
        (
            "fabric waits",
            |facts| facts.fabric = Some(Fabric { state: 2, status: 0 }),
            "nvlink_fabric",
            Degraded,
        ),
        (
            "fabric failed",
            |facts| facts.fabric = Some(Fabric { state: 3, status: 9 }),
            "nvlink_fabric",
            Degraded,
        ),
        ("reset", |facts| facts.recovery_action = Some(1), "recovery", Fail),
        ("drain", |facts| facts.recovery_action = Some(4), "recovery", Degraded),
        ("an action of later", |facts| facts.recovery_action = Some(77), "recovery", Degraded),
        ("ecc off", |facts| facts.ecc.as_mut().unwrap().on = false, "ecc", Degraded),
        ("lost data", |facts| facts.lifetime.as_mut().unwrap().uncorrectable = 4, "memory_errors", Fail),
    ];
    for (what, change, check, verdict) in table {
        let reading = second(told(change));
        assert_eq!(odd(&reading), [(check, Some(verdict))], "{what}");
        let found = reading.findings.iter().find(|found| found.verdict == Some(verdict)).unwrap();
        assert!(!found.why.is_empty() && !found.command.is_empty(), "{what}: {found:?}");
    }
}

#[test]
fn an_uncorrectable_error_is_told_once() {
    let mut lost = told(|facts| facts.lifetime.as_mut().unwrap().uncorrectable = 4);
    lost.errors.get_mut("dram").unwrap().uncorrectable = 1;
    let reading = second(lost);
    assert_eq!(odd(&reading), [("memory_errors", Some(Verdict::Fail))]);
    let found = reading.findings.iter().find(|found| found.check == "memory_errors").unwrap();
    assert!(found.found.starts_with("dram: +1") && found.command.starts_with("nvidia-smi"), "{found:?}");
}

#[test]
fn clocks_are_judged_by_the_part_of_the_time() {
    let held = |nanoseconds| told(move |facts| facts.held_for.thermal = Some(nanoseconds));
    // 0.5 s and 6 s of a minute.
    assert_eq!(odd(&second(held(500_000_000))), []);
    let reading = second(held(6_000_000_000));
    assert_eq!(odd(&reading), [("throttling", Some(Verdict::Degraded))]);
    let share = value(&reading, "gpu_throttled_ratio", "thermal").unwrap();
    assert!((share - 0.1).abs() < 1e-6, "{share}");

    let brake = second(told(|facts| facts.held_for.power_brake = Some(60_000_000_000)));
    assert_eq!(odd(&brake), [("throttling", Some(Verdict::Degraded))]);
    let power = second(told(|facts| facts.held_for.power = Some(60_000_000_000)));
    assert_eq!(odd(&power), [], "a power cap is usual under full load");
    assert_eq!(value(&power, "gpu_throttled_ratio", "power"), Some(1.0));
}

#[test]
fn an_hour_without_readings_is_no_hour_of_heat() {
    // A minute of heat in the two hours that nobody looked is 1/120 of the time.
    let (before, after) = (told(|_| ()), told(|facts| facts.held_for.thermal = Some(60_000_000_000)));
    let reading = read(&[(0.0, &[before, other()]), (7200.0, &[after, other()])]).swap_remove(1);
    assert_eq!(odd(&reading), []);
}

#[test]
fn without_counters_the_moment_counts() {
    let moment = told(|facts| {
        facts.held_for = Limits::default();
        facts.held = Some(Limits { hardware_thermal: true, ..Limits::default() });
    });
    let reading = read(&[(0.0, &[moment, other()])]).swap_remove(0);
    assert!(verdicts(&reading, "throttling").contains(&Some(Verdict::Degraded)));
    assert_eq!(value(&reading, "gpu_throttled_ratio", "thermal"), Some(1.0));
}

#[test]
fn a_slowdown_has_to_last_and_to_have_no_other_name() {
    let slow = || told(|facts| facts.slowdown = Some(true));
    let (fine, slow, hot) = (
        [told(|_| ()), other()],
        [slow(), other()],
        [
            told(|facts| {
                facts.slowdown = Some(true);
                facts.held = Some(Limits { hardware_thermal: true, ..Limits::default() });
            }),
            other(),
        ],
    );
    let steps: [(f64, &[Gpu]); 6] =
        [(0.0, &fine), (60.0, &slow), (120.0, &fine), (180.0, &slow), (240.0, &slow), (300.0, &hot)];
    let bad: Vec<_> = read(&steps)
        .iter()
        .map(|reading| verdicts(reading, "throttling").contains(&Some(Verdict::Degraded)))
        .collect();
    assert_eq!(bad, [false, false, false, false, true, false]);
}

#[test]
fn links_are_judged_by_gpus_of_their_kind() {
    let with = |links: Vec<Link>| told(move |facts| facts.links = links);
    let second_with = |pci: &str, device, links: Vec<Link>| Gpu { pci: pci.into(), device, ..with(links) };
    let table = [
        // Bridges use 12 of 18 links, on all cards.
        (links(18, &[]), 0x2335, links(18, &[]), vec![Some(Verdict::Pass)]),
        (links(18, &[0, 1]), 0x2335, links(18, &[4, 5]), vec![Some(Verdict::Pass)]),
        (links(18, &[0, 1]), 0x2335, links(18, &[4]), vec![Some(Verdict::Degraded)]),
        (links(18, &[0, 1]), 0x1234, links(18, &[]), vec![None]),
        (links(2, &[0, 1]), 0x2335, links(2, &[0, 1]), vec![None]),
        (Vec::new(), 0x2335, Vec::new(), Vec::new()),
        (Vec::new(), 0x1234, links(18, &[]), Vec::new()),
    ];
    for (own, device, others, want) in table {
        let gpus = [with(own), second_with(OTHER, device, others)];
        let reading = read(&[(0.0, &gpus)]).swap_remove(0);
        assert_eq!(verdicts(&reading, "nvlink"), want, "{gpus:?}");
    }
}

#[test]
fn a_partitioned_gpu_is_said_to_be_so_and_not_blamed_for_its_links() {
    let gpu = Gpu { partitioned: Some(true), ..told(|facts| facts.links = links(18, &[0, 1, 2])) };
    assert_eq!(odd(&second(gpu)), [("partitioned", None), ("nvlink", None)]);
}

#[test]
fn ecc_that_is_off_is_a_fault_only_where_something_expects_it() {
    let off = |by_default| told(move |facts| facts.ecc = Some(Ecc { on: false, next: false, by_default }));
    for (by_default, want) in [(Some(true), Some(Verdict::Degraded)), (Some(false), None), (None, None)] {
        let reading = read(&[(0.0, &[off(by_default)])]).swap_remove(0);
        assert_eq!(verdicts(&reading, "ecc"), [want], "{by_default:?}");
        let beside = read(&[(0.0, &[off(by_default), other()])]).swap_remove(0);
        assert_eq!(verdicts(&beside, "ecc"), [Some(Verdict::Degraded)], "{by_default:?}");
    }
}

#[test]
fn a_refusal_is_a_fault_only_where_it_is_the_gpus() {
    use Verdict::{Fail, Unknown};
    let table = [
        (Reason::Lost, Fail),
        (Reason::ResetRequired, Fail),
        (Reason::PowerCables, Fail),
        (Reason::Interrupts, Fail),
        (Reason::VersionMismatch, Unknown),
        (Reason::NoDriver, Unknown),
        (Reason::Forbidden, Unknown),
        (Reason::NotFound, Unknown),
        (Reason::Other, Unknown),
    ];
    for (reason, want) in table {
        let said = Refused { call: "nvmlInit_v2".into(), reason, words: "Words (NVML error 7)".into() };
        let reading = second(gpu(FIRST, Nvml::Refused(said)));
        assert_eq!(odd(&reading), [("gpu_state", Some(want))], "{reason:?}");
        let found = reading.findings.iter().find(|found| found.check == "gpu_state").unwrap();
        assert!(found.found.contains("nvmlInit_v2 says Words (NVML error 7)"), "{found:?}");
        assert!(!found.why.is_empty() && !found.command.is_empty(), "{found:?}");
    }
    let missing = second(gpu(FIRST, Nvml::NotOpened("libnvidia-ml.so.1: no such file".into())));
    assert_eq!(odd(&missing), [("gpu_state", Some(Verdict::Unknown))]);
}

#[test]
fn calls_that_failed_are_one_doubt_with_the_first_of_them() {
    let failed = |call: &str| Problem {
        part: FIRST.into(),
        path: format!("libnvidia-ml.so.1/{call}"),
        error: "Unknown Error (NVML error 999)".into(),
    };
    let reading = second(told(|facts| facts.failed = vec![failed("nvmlA"), failed("nvmlB")]));
    assert_eq!(odd(&reading), [("gpu_state", Some(Verdict::Unknown))]);
    let found = reading.findings.iter().find(|found| found.check == "gpu_state").unwrap();
    assert!(found.found.contains("nvmlA") && found.found.contains("and 1 other call"), "{found:?}");
}

#[test]
fn recorded_lines_are_read() {
    let answer = crate::lines::read::<Gpu>(STAND_IN).unwrap();
    assert_eq!((answer.items.len(), answer.problems.len()), (2, 0));
    let Some(Nvml::Told(facts)) = &answer.items[0].nvml else { panic!("{:?}", answer.items[0]) };
    assert_eq!((facts.links.len(), facts.rows.map(|rows| rows.pending)), (18, Some(true)));
    let step: (f64, &[Gpu]) = (0.0, &answer.items);
    let reading = read(&[step]).swap_remove(0);
    let bad: Vec<_> = odd(&reading).into_iter().filter(|(_, verdict)| verdict.is_some()).collect();
    assert_eq!(bad, [("remapped_rows", Some(Verdict::Degraded)), ("nvlink", Some(Verdict::Degraded))]);
}

#[test]
fn an_h200_that_is_well_is_called_so() {
    let answer = crate::lines::read::<Gpu>(H200).unwrap();
    let reading = read(&[(0.0, &answer.items), (60.0, &answer.items)]).pop().unwrap();
    assert_eq!(odd(&reading), []);
    assert!(reading.findings.iter().filter(|finding| finding.verdict == Some(Verdict::Pass)).count() >= 5);
}
