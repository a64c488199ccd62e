//! The real worker `gpu` with a library that stands in for NVML: `tests/fixtures/nvml/nvml.c`.
#![expect(clippy::disallowed_methods, reason = "a test starts the compiler and the worker itself")]

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use probes::{
    gpu::{
        Gpu,
        nvidia::{Facts, Limits, Link, LinkErrors, Nvml, Reason, Rows},
    },
    lines,
};
use serde_json::json;

use crate::agent::Machine;

const FIRST: &str = "0000:03:00.0";
const SECOND: &str = "0000:23:00.0";

/// The folder with the library, compiled once.
fn library() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/nvml/nvml.c");
        let compiler = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
            .args([&folder.path().join("libnvidia-ml.so.1"), &source])
            .output()
            .unwrap();
        assert!(compiler.status.success(), "{}", String::from_utf8_lossy(&compiler.stderr));
        folder
    });
    folder.path()
}

/// What the worker says of two GPUs, in words of [`probes::lines`].
fn answer(libraries: &[PathBuf], faults: &str) -> lines::Answer<Gpu> {
    let machine = Machine::recorded("h200");
    let root = |name: &str| machine.file(name);
    let request = json!({
        "roots": { "sysfs": root("sys"), "proc": root("proc"), "etc": root("etc") },
        "inventory": { "nic_drivers": [] },
        "targets": [FIRST, SECOND],
        "libraries": libraries,
    });
    let mut worker = Command::new(env!("CARGO_BIN_EXE_fabricpulse"))
        .args(["worker", "gpu"])
        .env("FAKE_NVML", faults)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    worker.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
    let output = worker.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    lines::read(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

fn gpus(faults: &str) -> [Gpu; 2] {
    let answer = answer(&[library().to_path_buf()], faults);
    assert_eq!(answer.problems, [], "{faults}");
    answer.items.try_into().unwrap()
}

fn facts(gpu: &Gpu) -> &Facts {
    match &gpu.nvml {
        Some(Nvml::Told(facts)) => facts,
        other => panic!("{}: {other:?}", gpu.pci),
    }
}

#[test]
fn a_healthy_gpu_is_told_in_base_units() {
    let [gpu, _] = gpus("");
    let text = |fact: &Option<String>| fact.clone().unwrap_or_default();
    assert_eq!(
        [text(&gpu.driver_version), text(&gpu.model), text(&gpu.firmware)],
        ["580.95.05", "NVIDIA H200", "96.00.CF.00.02"],
        "NVML's words replace those of /proc"
    );
    assert_eq!((gpu.memory_total, gpu.memory_used), (Some(150_754_820_096), Some(786_432)));
    assert_eq!((gpu.busy_percent, gpu.temperature, gpu.power), (Some(37), Some(33_000), Some(76_543_000)));
    assert_eq!((gpu.replays, gpu.partitioned), (Some(3), Some(false)));
    let counts: Vec<_> = gpu
        .errors
        .iter()
        .map(|(block, errors)| (block.as_str(), errors.uncorrectable, errors.correctable))
        .collect();
    assert_eq!(counts, [("dram", 0, 1), ("sram", 0, 0)]);
    let told = facts(&gpu);
    assert_eq!(told.uuid.as_deref(), Some("GPU-00000000-0000-0000-0000-000000000003"));
    assert_eq!(told.persistence, Some(true));
    assert_eq!(told.ecc.map(|ecc| (ecc.on, ecc.next, ecc.by_default)), Some((true, true, Some(true))));
    assert_eq!(told.lifetime.map(|errors| (errors.uncorrectable, errors.correctable)), Some((0, 9)));
    assert_eq!(told.rows, Some(Rows::default()));
    assert_eq!(told.retirement_pending, None, "rows are remapped where pages were retired");
    assert_eq!((told.held, told.slowdown), (Some(Limits::default()), Some(false)));
    assert_eq!(
        told.held_for,
        Limits {
            power: Some(5_000_000_000),
            thermal: Some(0),
            hardware_thermal: Some(0),
            power_brake: Some(0)
        }
    );
    assert_eq!(told.links, (0..18).map(|number| Link { number, active: true }).collect::<Vec<_>>());
    assert_eq!(told.link_errors, LinkErrors { replay: Some(36), recovery: Some(0), crc: Some(0) });
    assert_eq!(told.fabric.map(|fabric| (fabric.state, fabric.status)), Some((3, 0)));
    assert_eq!((told.recovery_action, told.failed.len()), (Some(0), 0));
}

#[test]
fn each_fault_is_told_of_its_own_gpu_and_no_other() {
    let healthy = gpus("");
    type Says = fn(&Gpu) -> bool;
    let table: [(&str, Says); 12] = [
        ("ecc", |gpu| {
            gpu.errors["dram"].uncorrectable == 2 && facts(gpu).lifetime.unwrap().uncorrectable == 5
        }),
        ("remap", |gpu| facts(gpu).rows == Some(Rows { uncorrectable: 1, pending: true, ..Rows::default() })),
        ("remap_failed", |gpu| facts(gpu).rows.unwrap().failed),
        ("thermal", |gpu| {
            facts(gpu).held_for.hardware_thermal == Some(90_000_000_000)
                && facts(gpu).held.unwrap().hardware_thermal
                && facts(gpu).slowdown == Some(true)
        }),
        ("brake", |gpu| {
            facts(gpu).held_for.power_brake == Some(80_000_000_000) && facts(gpu).held.unwrap().power_brake
        }),
        ("slowdown", |gpu| facts(gpu).slowdown == Some(true)),
        ("link_down", |gpu| {
            let silent = facts(gpu).links.iter().filter(|link| !link.active).map(|link| link.number);
            silent.collect::<Vec<_>>() == [3, 7] && facts(gpu).link_errors.recovery == Some(18)
        }),
        ("mig", |gpu| {
            gpu.partitioned == Some(true) && gpu.busy_percent.is_none() && facts(gpu).rows.is_none()
        }),
        ("no_ecc", |gpu| {
            !facts(gpu).ecc.unwrap().on && gpu.errors.is_empty() && facts(gpu).lifetime.is_none()
        }),
        ("no_persistence", |gpu| facts(gpu).persistence == Some(false)),
        ("no_fabric", |gpu| facts(gpu).fabric.unwrap().state == 2),
        ("recovery", |gpu| facts(gpu).recovery_action == Some(1)),
    ];
    for (fault, says) in table {
        let [first, second] = gpus(fault);
        assert!(says(&first), "{fault}: {first:?}");
        assert!(!says(&healthy[0]), "{fault} says nothing of a healthy GPU");
        assert_eq!(second, healthy[1], "{fault}");
    }
}

#[test]
fn what_is_not_supported_is_absent_and_never_zero() {
    let [gpu, other] = gpus("unsupported");
    let told = facts(&gpu);
    assert_eq!(told, &Facts::default());
    assert_eq!((gpu.memory_total, gpu.power, gpu.temperature, gpu.replays), (None, None, None, None));
    assert!(gpu.errors.is_empty() && gpu.partitioned.is_none() && gpu.busy_percent.is_none());
    assert_eq!(gpu.model.as_deref(), Some("NVIDIA H200"), "what /proc says stays");
    assert_eq!(facts(&other).persistence, Some(true));
}

#[test]
fn a_driver_of_old_is_asked_by_the_names_of_old() {
    let [gpu, _] = gpus("old");
    let told = facts(&gpu);
    assert_eq!((gpu.memory_used, gpu.temperature), (Some(634_126_336), Some(34_000)));
    assert_eq!(gpu.errors.keys().collect::<Vec<_>>(), ["all"], "without the places, the sum");
    assert_eq!((gpu.errors["all"].correctable, told.held.is_some()), (1, true));
    assert_eq!(
        told.held_for,
        Limits {
            power: Some(22_000_000_000),
            thermal: Some(11_000_000_000),
            hardware_thermal: None,
            power_brake: None
        }
    );
    assert_eq!(told.link_errors, LinkErrors { replay: Some(72), recovery: Some(0), crc: Some(0) });
    assert_eq!((told.recovery_action, told.failed.len()), (None, 0));
}

#[test]
fn a_lost_gpu_is_told_at_once_and_in_the_middle_and_the_other_is_read() {
    for (fault, call) in [("lost", "nvmlDeviceGetHandleByPciBusId_v2"), ("lost_later", "nvmlDeviceGetName")] {
        let [gpu, other] = gpus(fault);
        let Some(Nvml::Refused(said)) = &gpu.nvml else { panic!("{fault}: {gpu:?}") };
        assert_eq!((said.reason, said.call.as_str()), (Reason::Lost, call));
        assert_eq!(said.words, "GPU is lost (NVML error 15)");
        assert_eq!(gpu.memory_total, None);
        assert_eq!(facts(&other).persistence, Some(true), "{fault}");
    }
}

#[test]
fn a_call_that_fails_is_named_and_the_rest_stands() {
    let [gpu, other] = gpus("forbidden");
    let told = facts(&gpu);
    let named =
        |call: &str| told.failed.iter().find(|problem| problem.path == format!("libnvidia-ml.so.1/{call}"));
    let failed = named("nvmlDeviceGetPowerUsage").unwrap_or_else(|| panic!("{told:?}"));
    assert_eq!(
        (failed.part.as_str(), failed.error.as_str()),
        (FIRST, "Insufficient Permissions (NVML error 4)")
    );
    assert_eq!(facts(&other).failed, []);
}

#[test]
fn a_library_that_does_not_start_says_why_of_every_gpu() {
    let table = [
        ("init=18", Reason::VersionMismatch),
        ("init=9", Reason::NoDriver),
        ("init=4", Reason::Forbidden),
        ("init=999", Reason::Other),
    ];
    for (fault, reason) in table {
        for gpu in gpus(fault) {
            let Some(Nvml::Refused(said)) = &gpu.nvml else { panic!("{fault}: {gpu:?}") };
            assert_eq!((said.reason, said.call.as_str()), (reason, "nvmlInit_v2"));
            assert_eq!(gpu.driver_version.as_deref(), Some("570.133.20"), "what files say stays");
        }
    }
}

#[test]
fn a_library_that_is_missing_or_another_machines_is_not_opened() {
    let empty = tempfile::tempdir().unwrap();
    let why = |libraries: &[PathBuf]| {
        let answer = answer(libraries, "");
        match &answer.items[0].nvml {
            Some(Nvml::NotOpened(why)) => why.clone(),
            other => panic!("{other:?}"),
        }
    };
    let tried = why(&[empty.path().to_path_buf()]);
    assert!(tried.contains(&empty.path().display().to_string()), "{tried}");
    assert!(why(&[]).contains("not those of this machine"), "a recorded tree has no library of its own");
}

#[test]
fn a_library_that_hangs_is_named_by_the_call() {
    let answer = answer(&[library().to_path_buf()], "hang");
    assert!(answer.items.is_empty());
    let named: Vec<_> = answer.problems.iter().map(|problem| problem.part.as_str()).collect();
    assert_eq!(named, [FIRST, SECOND]);
    assert_eq!(answer.problems[0].path, "libnvidia-ml.so.1/nvmlInit_v2");
    assert!(answer.problems[0].error.contains("stuck in the driver"), "{:?}", answer.problems);
}
