use super::{throttle::Reasons, *};
use crate::{
    inventory::{Function, Gpu as GpuPart},
    sample::{context, output, settings},
};

const HEALTHY: &str = "0000:05:00.0";
const OTHER: &str = "0000:25:00.0";

fn gpu(pci: &str) -> Gpu {
    Gpu {
        pci: pci.into(),
        vendor: AMD,
        device: 0x74a1,
        driver: Some("amdgpu".into()),
        driver_version: Some("6.12.12".into()),
        model: Some("AMD Instinct MI300X OAM".into()),
        memory_total: Some(206_141_652_992),
        busy_percent: Some(50),
        errors: [("umc".to_string(), Errors::default()), ("gfx".to_string(), Errors::default())].into(),
        replays: Some(0),
        hive: Some(Hive { id: "17".into(), members: 2 }),
        temperature: Some(41_000),
        power: Some(137_000_000),
        ..Gpu::default()
    }
}

fn read(memory: &mut Memory, at: f64, gpus: &[Gpu]) -> Vec<Reading> {
    read_with(memory, at, gpus, &[])
}

fn read_with(memory: &mut Memory, at: f64, gpus: &[Gpu], problems: &[Problem]) -> Vec<Reading> {
    let part = |pci: &str| GpuPart {
        function: Function { pci: pci.into(), ..Function::default() },
        ..GpuPart::default()
    };
    let inventory = Inventory { gpus: vec![part(HEALTHY), part(OTHER)], ..Inventory::default() };
    let settings = settings();
    let targets = GpuState.targets(&inventory, &settings);
    GpuState.parse(&context(&targets, &inventory, &settings), &[output(at, gpus, problems)], memory).unwrap()
}

fn verdict(reading: &Reading, check: &str) -> Option<Verdict> {
    Some(Verdict::worst(
        reading
            .findings
            .iter()
            .filter(|found| found.check == check)
            .map(|found| found.verdict)
            .collect::<Option<Vec<_>>>()?,
    ))
}

fn value(reading: &Reading, metric: &str) -> Option<f64> {
    reading.measurements.iter().find(|found| found.metric.name == metric).map(|found| found.value)
}

#[test]
fn a_healthy_gpu_is_exported_in_base_units() {
    let mut memory = Memory::default();
    read(&mut memory, 0.0, &[gpu(HEALTHY), gpu(OTHER)]);
    let reading = &read(&mut memory, 60.0, &[gpu(HEALTHY), gpu(OTHER)])[0];
    assert!(
        reading.findings.iter().all(|found| found.verdict == Some(Verdict::Pass)),
        "{:?}",
        reading.findings
    );
    let table = [
        ("gpu_busy_ratio", 0.5),
        ("gpu_temperature_celsius", 41.0),
        ("gpu_power_watts", 137.0),
        ("gpu_hive_members", 2.0),
    ];
    for (metric, want) in table {
        assert_eq!(value(reading, metric), Some(want), "{metric}");
    }
    assert_eq!(value(reading, "gpu_memory_used_bytes"), None, "absent is not zero");
    assert!(reading.measurements.len() <= 14);
    assert!(reading.measurements.iter().all(|found| METRICS.contains(&found.metric)));
}

#[test]
fn memory_errors_are_judged_by_kind_and_growth() {
    use Verdict::{Degraded, Fail, Pass};
    let with = |uncorrectable, correctable| {
        let mut gpu = gpu(HEALTHY);
        gpu.errors.insert("umc".into(), Errors { uncorrectable, correctable });
        gpu
    };
    let mut memory = Memory::default();
    let steps = [
        (0.0, with(0, 500), None),
        (60.0, with(0, 510), Some(Pass)),
        (120.0, with(0, 511), Some(Degraded)),
        (180.0, with(1, 511), Some(Fail)),
        (9000.0, with(1, 511), Some(Degraded)),
        (9060.0, with(0, 0), Some(Pass)),
    ];
    for (at, gpu, want) in steps {
        assert_eq!(verdict(&read(&mut memory, at, &[gpu])[0], "memory_errors"), want, "at {at}");
    }
}

#[test]
fn heat_is_a_fault_and_a_power_limit_is_not() {
    let sampled = |all, power, thermal| Gpu {
        throttle: Some(Throttle::Samples { all, throttled: Reasons { power, thermal, prochot: 0 } }),
        ..gpu(HEALTHY)
    };
    let mut memory = Memory::default();
    let first = &read(&mut memory, 0.0, &[sampled(1000, 400, 400)])[0];
    assert_eq!(value(first, "gpu_throttled_ratio"), None, "one reading tells no share");
    let second = &read(&mut memory, 60.0, &[sampled(2000, 1400, 405)])[0];
    assert_eq!(value(second, "gpu_throttled_ratio"), Some(1.0));
    assert_eq!(verdict(second, "throttling"), Some(Verdict::Pass));
    let third = &read(&mut memory, 120.0, &[sampled(3000, 1400, 500)])[0];
    assert_eq!(verdict(third, "throttling"), Some(Verdict::Degraded));
    let now = Gpu {
        throttle: Some(Throttle::Status(Reasons { prochot: true, ..Reasons::default() })),
        ..gpu(HEALTHY)
    };
    assert_eq!(verdict(&read(&mut Memory::default(), 0.0, &[now])[0], "throttling"), Some(Verdict::Degraded));
}

#[test]
fn replays_and_a_lost_hive_are_degraded() {
    let mut memory = Memory::default();
    read(&mut memory, 0.0, &[gpu(HEALTHY), gpu(OTHER)]);
    let odd = Gpu { replays: Some(11), hive: None, ..gpu(HEALTHY) };
    let readings = read(&mut memory, 60.0, &[odd, gpu(OTHER)]);
    assert_eq!(verdict(&readings[0], "pcie_replays"), Some(Verdict::Degraded));
    assert_eq!(verdict(&readings[0], "hive"), Some(Verdict::Degraded));
    assert_eq!(verdict(&readings[1], "hive"), Some(Verdict::Degraded), "its hive of 2 shows 1");
    let alone = [Gpu { hive: None, ..gpu(HEALTHY) }, Gpu { device: 0x1234, ..gpu(OTHER) }];
    let reading = &read(&mut Memory::default(), 0.0, &alone)[0];
    assert!(reading.findings.iter().all(|found| found.check != "hive"), "another kind of GPU says nothing");
}

#[test]
fn a_listing_that_failed_is_a_doubt_about_each_gpu_and_no_loss() {
    let failed =
        Problem { part: lines::NODE.into(), path: "/sys/bus/pci/devices".into(), error: "EIO".into() };
    for reading in read_with(&mut Memory::default(), 0.0, &[], &[failed]) {
        let [finding] = reading.findings.as_slice() else { panic!("{:?}", reading.findings) };
        assert_eq!((finding.verdict, finding.part.as_str()), (Some(Verdict::Unknown), reading.target.id()));
        assert!(finding.found.contains("/sys/bus/pci/devices: EIO"), "{finding:?}");
    }
}

#[test]
fn a_hive_that_is_split_or_short_is_degraded() {
    let hive = |id: &str, members| Some(Hive { id: id.into(), members });
    let table = [
        (hive("17", 2), hive("17", 2), Verdict::Pass),
        (hive("17", 1), hive("18", 1), Verdict::Pass),
        (hive("17", 1), hive("18", 2), Verdict::Degraded),
        (hive("17", 1), hive("17", 2), Verdict::Degraded),
        (hive("17", 3), hive("17", 3), Verdict::Degraded),
    ];
    for (own, other, want) in table {
        let gpus = [Gpu { hive: own, ..gpu(HEALTHY) }, Gpu { hive: other, ..gpu(OTHER) }];
        let reading = &read(&mut Memory::default(), 0.0, &gpus)[0];
        assert_eq!(verdict(reading, "hive"), Some(want), "{gpus:?}");
    }
}

#[test]
fn presence_is_about_the_driver_too() {
    use Verdict::{Fail, Pass};
    let driven = |driver: Option<&str>| Gpu { driver: driver.map(Into::into), ..gpu(HEALTHY) };
    let table = [
        (driven(Some("amdgpu")), Some(Pass)),
        (driven(None), Some(Fail)),
        (driven(Some("vfio-pci")), None),
        (Gpu { excluded: true, ..driven(Some("nvidia")) }, Some(Fail)),
    ];
    for (gpu, want) in table {
        assert_eq!(
            verdict(&read(&mut Memory::default(), 0.0, std::slice::from_ref(&gpu))[0], "presence"),
            want,
            "{gpu:?}"
        );
    }
    let readings = read(&mut Memory::default(), 0.0, &[gpu(HEALTHY)]);
    assert_eq!(verdict(&readings[1], "presence"), Some(Fail), "it is gone");
}

#[test]
fn what_only_nvml_tells_is_unknown_and_said_to_be_so() {
    let nvidia = Gpu {
        pci: HEALTHY.into(),
        vendor: 0x10de,
        driver: Some("nvidia".into()),
        model: Some("NVIDIA H200".into()),
        ..Gpu::default()
    };
    let reading = &read(&mut Memory::default(), 0.0, &[nvidia])[0];
    assert_eq!(verdict(reading, "presence"), Some(Verdict::Pass));
    assert_eq!(verdict(reading, "gpu_state"), Some(Verdict::Unknown));
    assert_eq!(reading.measurements.len(), 1);
    assert_eq!(reading.measurements[0].labels[1..3], ["NVIDIA H200", "NVIDIA"]);
}
