use probes::inventory::Gid;

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
    let rxe0 = &found.rdma[0];
    assert_eq!((rxe0.name.as_str(), rxe0.pci.as_deref()), ("rxe0", Some("0000:23:00.0")));
    assert_eq!(rxe0.ports, [1]);
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

const MI300X: &str = include_str!("../../../tests/fixtures/mi300x.tree");
const H200: &str = include_str!("../../../tests/fixtures/h200.tree");

fn gid(index: u32, address: &str, roce_v2: bool) -> Gid {
    Gid { index, address: address.parse().unwrap(), roce_v2 }
}

#[test]
fn ports_tell_their_wire_and_numa_nodes_their_cpus() {
    let (found, problems) = inventory(&Machine::of(MI300X), &[]);
    assert_eq!(problems, []);
    let wire = found.rdma[0].wire.as_ref().unwrap();
    assert_eq!((wire.port, wire.link_layer.as_str(), wire.bits_per_second), (1, "Ethernet", Some(400e9)));
    let link_local = "fe80::690:81ff:fe2a:10";
    assert_eq!(
        wire.gids,
        [
            gid(0, link_local, false),
            gid(1, link_local, true),
            gid(2, "::ffff:192.168.1.10", false),
            gid(3, "::ffff:192.168.1.10", true)
        ]
    );
    assert_eq!(found.cpus.keys().copied().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(found.cpus[&1], (96..192).collect::<Vec<_>>());
    assert_eq!(found.peer_memory, ["ib_peer_mem"]);

    let (found, _) = inventory(&Machine::of(H200), &[]);
    let wire = found.rdma[0].wire.as_ref().unwrap();
    assert_eq!((wire.link_layer.as_str(), wire.bits_per_second), ("InfiniBand", Some(400e9)));
    assert_eq!(wire.gids, [gid(0, "fe80::a088:c203:e0:10", false)]);
    assert_eq!(found.peer_memory, ["nvidia_peermem"]);
}

#[test]
fn a_port_that_is_down_or_odd_keeps_what_can_be_read() {
    let machine = Machine::of(MI300X);
    let port = "sys/class/infiniband/ionic_0/ports/1";
    let replace = |name: &str, entry: &str| {
        let path = machine.path().join(port).join(name);
        let _ = if path.is_dir() { std::fs::remove_dir(path) } else { std::fs::remove_file(path) };
        machine.change(&format!("=== {port}/{name}{entry}\n"));
    };
    replace("state", "\n1: DOWN");
    replace("gids/1", " error");
    replace("gid_attrs/types/3", " error");
    replace("gids/5", "\nodd");
    replace("gids/7", "\n0000:0000:0000:0000:0000:ffff:0a00:0001");
    replace("gid_attrs/types/7", "\nRoCE v2");
    let (found, problems) = inventory(&machine, &[]);
    assert_eq!(problems, []);
    let wire = found.rdma[0].wire.as_ref().unwrap();
    assert_eq!(wire.bits_per_second, None);
    assert_eq!(
        wire.gids,
        [
            gid(0, "fe80::690:81ff:fe2a:10", false),
            gid(2, "::ffff:192.168.1.10", false),
            gid(3, "::ffff:192.168.1.10", false),
            gid(7, "::ffff:10.0.0.1", true)
        ]
    );
    replace("gids/2", " blocks");
    let (found, problems) = inventory(&machine, &[]);
    assert_eq!(found.rdma[0].wire, None);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!((problems[0].part.as_str(), problems[0].path.ends_with("gids/2")), ("ionic_0", true));
}

#[test]
fn a_long_gid_table_is_left_after_as_many_empty_slots_as_no_driver_leaves() {
    let machine = Machine::of(MI300X);
    let port = "sys/class/infiniband/ionic_0/ports/1/gids";
    let zeros = "0000:0000:0000:0000:0000:0000:0000:0000";
    for index in 4..256 {
        machine.change(&format!("=== {port}/{index}\n{zeros}\n"));
    }
    for (index, seen) in [(35, true), (36 + 32, false)] {
        machine.change(&format!("=== {port}/{index}\n0000:0000:0000:0000:0000:ffff:0a00:0001\n"));
        let (found, _) = inventory(&machine, &[]);
        let gids = &found.rdma[0].wire.as_ref().unwrap().gids;
        assert_eq!(gids.iter().any(|gid| gid.index == index), seen, "{index}: {gids:?}");
    }
}

#[test]
fn speed_codes_that_the_kernel_does_not_know_are_made_up_for_by_the_interface() {
    let machine = Machine::of(MI300X);
    machine.change("=== sys/class/infiniband/ionic_0/ports/1/rate\n10 Gb/sec (4X SDR)\n");
    let rate = |machine: &Machine| inventory(machine, &[]).0.rdma[0].wire.as_ref().unwrap().bits_per_second;
    assert_eq!(rate(&machine), Some(400e9));
    let interface = machine.path().join("sys/class/infiniband/ionic_0/ports/1/gid_attrs/ndevs/0");
    let name = std::fs::read_to_string(interface).unwrap();
    machine.change(&format!("=== sys/class/net/{}/speed\n-1\n", name.trim()));
    assert_eq!(rate(&machine), Some(10e9));
}

#[test]
fn parts_are_told_with_what_makes_them_another_part() {
    let machine = Machine::of(include_str!("../../../tests/fixtures/mi300x.tree"));
    let (found, problems) = inventory(&machine, &[]);
    assert_eq!(problems, []);
    assert!(found.kernel.is_some());
    let (gpu, rdma) = (&found.gpus[0], &found.rdma[0]);
    assert!(gpu.firmware.is_some() && gpu.serial.is_some() && gpu.driver_version.is_some(), "{gpu:?}");
    assert!(rdma.firmware.is_some() && rdma.guid.is_some(), "{rdma:?}");
    let serials: std::collections::BTreeSet<_> = found.gpus.iter().map(|gpu| &gpu.serial).collect();
    assert_eq!(serials.len(), found.gpus.len());
    let machine = Machine::of(include_str!("../../../tests/fixtures/h200.tree"));
    let (found, problems) = inventory(&machine, &[]);
    assert_eq!(problems, []);
    assert!(
        found.gpus.iter().all(|gpu| gpu.firmware.is_some() && gpu.serial.is_some()),
        "{:?}",
        found.gpus[0]
    );
}
