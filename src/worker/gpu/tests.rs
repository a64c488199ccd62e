use std::{fs, path::Path};

use probes::gpu::{Errors, Hive, throttle::Throttle};

use super::*;
use crate::{tree, worker::healthy::request};

const MI300X: &str = include_str!("../../../tests/fixtures/mi300x.tree");
const H200: &str = include_str!("../../../tests/fixtures/h200.tree");

fn read_tree(text: &str, change: impl FnOnce(&Path)) -> Found<Gpu> {
    let root = tempfile::tempdir().unwrap();
    tree::unpack(text, root.path());
    let mut request = request(root.path());
    let names = fs::read_dir(root.path().join("sys/bus/pci/devices")).unwrap();
    request.targets = names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
    request.targets.sort();
    change(root.path());
    read(&request)
}

#[test]
fn a_gpu_that_is_gone_and_one_whose_identity_can_not_be_read_are_told_apart() {
    let device = |bus: &str| format!("sys/bus/pci/devices/0000:{bus}:00.0");
    let (gpus, problems) = read_tree(MI300X, |root| {
        fs::remove_dir_all(root.join(device("05"))).unwrap();
        for file in ["vendor", "class"]
            .map(|name| format!("{}/{name}", device(if name == "vendor" { "25" } else { "45" })))
        {
            fs::remove_file(root.join(&file)).unwrap();
            tree::unpack(&format!("=== {file} error\n"), root);
        }
    });
    assert!(
        gpus.iter().all(|gpu| !["05", "25", "45"].map(|bus| format!("0000:{bus}:00.0")).contains(&gpu.pci))
    );
    let named: Vec<_> =
        problems.iter().map(|found| (found.part.as_str(), found.path.rsplit('/').next())).collect();
    assert_eq!(named, [("0000:25:00.0", Some("vendor")), ("0000:45:00.0", Some("class"))]);
}

#[test]
fn no_name_but_an_address_becomes_a_part_of_a_path() {
    let root = tempfile::tempdir().unwrap();
    let mut request = request(root.path());
    request.targets = vec!["../../etc".into()];
    let (gpus, problems) = read(&request);
    assert_eq!((gpus.len(), problems[0].part.as_str()), (0, "../../etc"));
}

#[test]
fn an_amd_gpu_is_read_from_sysfs() {
    let (gpus, problems) = read_tree(MI300X, |_| ());
    assert_eq!((gpus.len(), problems.len()), (8, 0));
    let gpu = &gpus[7];
    assert_eq!((gpu.pci.as_str(), gpu.device, gpu.unread.len()), ("0000:e5:00.0", 0x74a1, 0));
    assert_eq!((gpu.driver.as_deref(), gpu.driver_version.as_deref()), (Some("amdgpu"), Some("6.12.12")));
    assert_eq!(gpu.model.as_deref(), Some("AMD Instinct MI300X OAM"));
    assert_eq!((gpu.memory_total, gpu.memory_used), (Some(206_141_652_992), Some(297_795_584)));
    assert_eq!(
        (gpu.busy_percent, gpu.replays, gpu.temperature, gpu.power),
        (Some(0), Some(0), Some(41_000), Some(137_000_000))
    );
    assert_eq!(gpu.errors.len(), 7);
    assert_eq!(gpu.hive, Some(Hive { id: "9024811230541672".into(), members: 8 }));
    assert!(matches!(gpu.throttle, Some(Throttle::Samples { all: 863_104_412, .. })));
}

#[test]
fn an_nvidia_gpu_is_named_from_proc() {
    let (gpus, problems) = read_tree(H200, |_| ());
    assert_eq!((gpus.len(), problems.len()), (8, 0));
    let gpu = &gpus[0];
    assert_eq!(
        (gpu.pci.as_str(), gpu.driver.as_deref(), gpu.driver_version.as_deref()),
        ("0000:03:00.0", Some("nvidia"), Some("570.133.20"))
    );
    assert_eq!(
        (gpu.model.as_deref(), gpu.firmware.as_deref(), gpu.excluded),
        (Some("NVIDIA H200"), Some("96.00.bc.00.01"), false)
    );
    assert_eq!(gpu.memory_total, None);
}

#[test]
fn broken_and_blocking_files_are_named_and_hide_no_other_gpu() {
    let device = |bus: &str| format!("sys/bus/pci/devices/0000:{bus}:00.0");
    let (umc, busy, sdma) = (
        format!("{}/ras/umc_err_count", device("05")),
        format!("{}/gpu_busy_percent", device("25")),
        format!("{}/ras/sdma_err_count", device("05")),
    );
    let (gpus, problems) = read_tree(MI300X, |root| {
        for path in [&umc, &busy, &sdma] {
            fs::remove_file(root.join(path)).unwrap();
        }
        let text = format!("=== {umc} error\n=== {sdma}\nQuery currently inaccessible\n=== {busy} blocks\n");
        tree::unpack(&text, root);
    });
    assert_eq!(gpus.len(), 7);
    assert_eq!(gpus[0].pci, "0000:05:00.0");
    assert_eq!(gpus[0].errors.len(), 5);
    assert_eq!(gpus[0].errors["gfx"], Errors::default());
    let unread: Vec<_> =
        gpus[0].unread.iter().map(|problem| problem.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(unread, ["sdma_err_count", "umc_err_count"]);
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].part, "0000:25:00.0");
    assert!(problems[0].path.ends_with("gpu_busy_percent"));
}

#[test]
fn a_gpu_without_its_driver_is_there_and_nothing_more_is_known() {
    let (gpus, _) = read_tree(MI300X, |root| {
        fs::remove_file(root.join("sys/bus/pci/devices/0000:05:00.0/driver")).unwrap();
    });
    assert_eq!((gpus[0].driver.as_deref(), gpus[0].memory_total, gpus[0].errors.len()), (None, None, 0));
    assert_eq!(gpus[1].driver.as_deref(), Some("amdgpu"));
}
