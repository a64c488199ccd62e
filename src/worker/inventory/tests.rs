use super::{super::recorded::Machine, *};

const RDMA: &str = include_str!("../../../tests/fixtures/lab-rdma.tree");
const INITIAL: &str = include_str!("../../../tests/fixtures/lab-initial.tree");

fn inventory(machine: &Machine, nic_drivers: &[&str]) -> (Inventory, Vec<Problem>) {
    let (mut items, problems) = read(&machine.request(nic_drivers));
    assert_eq!(items.len(), 1);
    (items.remove(0), problems)
}

#[test]
fn the_recorded_machine_has_its_gpu_its_nics_and_the_bridges_above() {
    let (found, problems) = inventory(&Machine::of(RDMA), &[]);
    assert_eq!(problems, []);
    let gpu = &found.gpus[0];
    assert_eq!((found.gpus.len(), gpu.function.pci.as_str()), (1, "0000:24:00.0"));
    assert_eq!(gpu.model.as_deref(), Some("NVIDIA H200 SXM 141GB"));
    assert_eq!(gpu.function.path, ["0000:22:01.0", "0000:21:00.0", "0000:20:00.0"]);
    assert_eq!((gpu.function.numa, gpu.function.class), (Some(0), 0x03_0200));
    let nics: Vec<_> = found
        .nics
        .iter()
        .map(|nic| (nic.function.pci.as_str(), nic.rdma.join(","), nic.netdevs.join(","), nic.function.numa))
        .collect();
    let nic = |pci, rdma: &str, netdev: &str, numa| (pci, rdma.to_string(), netdev.to_string(), Some(numa));
    assert_eq!(nics, [nic("0000:23:00.0", "rxe0", "eth1", 0), nic("0000:41:00.0", "rxe1", "eth0", 1)]);
    assert_eq!(
        found.rdma[0],
        Rdma { name: "rxe0".into(), pci: Some("0000:23:00.0".into()), ports: vec![1], ..Rdma::default() }
    );
    let bridges: Vec<&str> = found.bridges.iter().map(|bridge| bridge.pci.as_str()).collect();
    assert_eq!(bridges, ["0000:20:00.0", "0000:21:00.0", "0000:22:00.0", "0000:22:01.0", "0000:40:00.0"]);
    let link = Link { speed: Some(32.0), width: Some(16), max_speed: Some(32.0), max_width: Some(16) };
    assert_eq!(found.nics[0].function.link, Some(link));
}

#[test]
fn a_nic_is_known_by_its_driver_too() {
    let machine = Machine::of(INITIAL);
    assert_eq!(inventory(&machine, &[]).0.nics, []);
    let (found, _) = inventory(&machine, &["e1000e"]);
    assert_eq!(found.nics.len(), 1);
    assert_eq!(found.nics[0].function.path, ["0000:00:12.0"]);
}

#[test]
fn a_virtual_function_is_no_nic_and_no_rdma_device() {
    let machine = Machine::of(RDMA);
    let real = machine.file("0000:41:00.0", "physfn").display().to_string();
    let inside = real.strip_prefix(&format!("{}/", machine.path().display())).unwrap().to_string();
    machine.change(&format!("=== {inside} -> ../0000:40:00.0\n"));
    let (found, problems) = inventory(&machine, &["virtio-pci"]);
    assert_eq!(problems, []);
    assert!(found.nics.iter().all(|nic| nic.function.pci != "0000:41:00.0"), "{:?}", found.nics);
    assert_eq!(found.rdma.iter().map(|rdma| rdma.name.as_str()).collect::<Vec<_>>(), ["rxe0"]);
}

#[test]
fn one_odd_file_costs_its_own_part_only_what_it_holds() {
    let machine = Machine::of(RDMA);
    let odd = |pci: &str, name: &str, kind: &str| {
        let file = machine.file(pci, name);
        std::fs::remove_file(&file).unwrap();
        let inside = file.strip_prefix(machine.path()).unwrap().display().to_string();
        machine.change(&format!("=== {inside} {kind}\n"));
    };
    odd("0000:24:00.0", "current_link_width", "error");
    odd("0000:41:00.0", "current_link_speed", "blocks");
    let (found, problems) = inventory(&machine, &[]);
    assert_eq!((found.gpus.len(), found.nics.len()), (1, 2));
    assert_eq!((found.gpus[0].function.link, found.gpus[0].function.numa), (None, Some(0)));
    assert!(found.nics[0].function.link.is_some());
    let mut named: Vec<(&str, bool)> = problems
        .iter()
        .map(|problem| (problem.part.as_str(), problem.path.contains("current_link_")))
        .collect();
    named.sort_unstable();
    assert_eq!(named, [("0000:24:00.0", true), ("0000:41:00.0", true)]);
}

#[test]
fn an_rdma_device_stays_while_the_identity_of_its_function_can_not_be_read() {
    let machine = Machine::of(RDMA);
    let file = machine.file("0000:41:00.0", "vendor");
    std::fs::remove_file(&file).unwrap();
    let inside = file.strip_prefix(machine.path()).unwrap().display().to_string();
    machine.change(&format!("=== {inside} error\n"));
    let (found, problems) = inventory(&machine, &[]);
    assert_eq!(found.rdma.iter().map(|rdma| rdma.name.as_str()).collect::<Vec<_>>(), ["rxe0", "rxe1"]);
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].part, "0000:41:00.0");
}

#[test]
fn a_listing_that_failed_is_the_node_s_problem() {
    for folder in ["sys/bus/pci/devices", "sys/class/infiniband"] {
        let machine = Machine::of(RDMA);
        let folder = machine.path().join(folder);
        std::fs::remove_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(folder.file_name().unwrap(), &folder).unwrap();
        let (_, problems) = inventory(&machine, &[]);
        let node: Vec<_> = problems.iter().filter(|found| found.part == NODE).collect();
        assert_eq!(node.len(), 1, "{problems:?}");
        assert_eq!(node[0].path, folder.display().to_string());
    }
}

#[test]
fn drivers_name_their_gpus() {
    let machine = Machine::of(
        "=== sys/bus/pci/devices/0000:05:00.0 -> ../../../devices/pci0000:00/0000:05:00.0\n\
         === sys/devices/pci0000:00/0000:05:00.0/vendor\n0x1002\n\
         === sys/devices/pci0000:00/0000:05:00.0/device\n0x74a1\n\
         === sys/devices/pci0000:00/0000:05:00.0/class\n0x120000\n\
         === sys/devices/pci0000:00/0000:05:00.0/product_name\nAMD Instinct MI300X OAM\n\
         === sys/bus/pci/devices/0000:06:00.0 -> ../../../devices/pci0000:00/0000:06:00.0\n\
         === sys/devices/pci0000:00/0000:06:00.0/vendor\n0x10de\n\
         === sys/devices/pci0000:00/0000:06:00.0/device\n0xffff\n\
         === sys/devices/pci0000:00/0000:06:00.0/class\n0x030200\n\
         === proc/driver/nvidia/gpus/0000:06:00.0/information\nModel: \t\t NVIDIA H100 80GB HBM3\nIRQ: 1\n",
    );
    let (found, problems) = inventory(&machine, &[]);
    assert_eq!(problems, []);
    let models: Vec<_> = found.gpus.iter().map(|gpu| gpu.model.as_deref()).collect();
    assert_eq!(models, [Some("AMD Instinct MI300X OAM"), Some("NVIDIA H100 80GB HBM3")]);
}
