use std::{fs, path::Path};

use probes::nic::Device;

use super::*;
use crate::{tree, worker::healthy::request};

fn read_tree(text: &str, change: impl FnOnce(&Path)) -> Found<Device> {
    let root = tempfile::tempdir().unwrap();
    tree::unpack(text, root.path());
    let mut request = request(root.path());
    let class = root.path().join("sys/class/infiniband");
    let names = fs::read_dir(&class).into_iter().flatten();
    request.targets = names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
    request.targets.sort();
    change(root.path());
    read(&request)
}

#[test]
fn a_device_that_is_gone_and_a_class_that_can_not_be_read_are_told_apart() {
    let class = "sys/class/infiniband";
    let (devices, problems) = read_tree(H200, |root| fs::rename(root.join(class), root.join("x")).unwrap());
    assert_eq!((devices.len(), problems.len()), (0, 0));
    let (devices, problems) = read_tree(H200, |root| {
        fs::rename(root.join(class), root.join("x")).unwrap();
        std::os::unix::fs::symlink("infiniband", root.join(class)).unwrap();
    });
    assert_eq!((devices.len(), problems.len()), (0, 8));
    assert!(
        problems.iter().all(|found| found.path.contains(&format!("{class}/{}", found.part))),
        "{problems:?}"
    );
}

const MI300X: &str = include_str!("../../../tests/fixtures/mi300x.tree");
const H200: &str = include_str!("../../../tests/fixtures/h200.tree");

#[test]
fn roce_devices_are_read_with_their_interfaces() {
    let (devices, problems) = read_tree(MI300X, |_| ());
    assert_eq!((devices.len(), problems.len()), (8, 0));
    let device = &devices[3];
    assert_eq!((device.name.as_str(), device.unread.len()), ("ionic_3", 0));
    assert_eq!((device.firmware.as_deref(), device.board.as_deref()), (Some("1.117.1-a-63"), None));
    let port = &device.ports[0];
    assert_eq!(port.state.as_deref(), Some("4: ACTIVE"));
    assert_eq!(port.gids, Some(4));
    let netdev = port.netdev.as_ref().unwrap();
    assert_eq!(
        (netdev.name.as_str(), netdev.mtu, netdev.megabits, netdev.admin_up),
        ("benic4p1", Some(9000), Some(400_000), Some(true))
    );
    assert_eq!(port.counters["hw_counters/tx_rdma_cnp_pkts"], 1204);
    assert_eq!(port.counters["statistics/rx_dropped"], 2);
    assert!(!port.counters.contains_key("hw_counters/lifespan"));
}

#[test]
fn infiniband_devices_are_read_without_their_ip_interface_s_counters() {
    let (devices, problems) = read_tree(H200, |_| ());
    assert_eq!((devices.len(), problems.len()), (8, 0));
    let port = &devices[0].ports[0];
    assert_eq!(devices[0].board.as_deref(), Some("MT_0000000838"));
    assert_eq!(port.netdev.as_ref().unwrap().name, "ibp4s0");
    assert_eq!(port.counters["counters/port_rcv_data"], 1_220_299_767_808);
    assert!(!port.counters.contains_key("statistics/rx_dropped"));
}

#[test]
fn a_broken_file_hides_nothing_and_a_blocking_one_only_its_own_device() {
    let rate = "sys/class/infiniband/mlx5_2/ports/1/rate";
    let downed = "sys/class/infiniband/mlx5_1/ports/1/counters/link_downed";
    let (devices, problems) = read_tree(H200, |root| {
        for path in [rate, downed] {
            fs::remove_file(root.join(path)).unwrap();
        }
        tree::unpack(&format!("=== {downed} error\n=== {rate} blocks\n"), root);
    });
    assert_eq!(devices.len(), 7);
    let odd = devices.iter().find(|device| device.name == "mlx5_1").unwrap();
    assert_eq!(odd.unread.len(), 1);
    assert!(odd.unread[0].path.ends_with(downed), "{}", odd.unread[0].path);
    assert_eq!(odd.ports[0].counters.len(), devices[0].ports[0].counters.len() - 1);
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].part, "mlx5_2");
    assert!(problems[0].path.ends_with(rate), "{}", problems[0].path);
}

#[test]
fn what_a_driver_leaves_out_is_absent() {
    let (devices, problems) = read_tree(
        "=== sys/devices/virtual/infiniband/rxe0/node_type\n1: CA\n\
         === sys/devices/virtual/infiniband/rxe0/fw_ver\n\
         === sys/devices/virtual/infiniband/rxe0/parent\neth1\n\
         === sys/devices/virtual/infiniband/rxe0/ports/1/state\n4: ACTIVE\n\
         === sys/devices/virtual/infiniband/rxe0/ports/1/link_layer\nEthernet\n\
         === sys/devices/virtual/infiniband/rxe0/ports/1/counters/port_rcv_data\nN/A (no PMA)\n\
         === sys/devices/virtual/infiniband/rxe0/ports/1/hw_counters/link_downed\n3\n\
         === sys/class/infiniband/rxe0 -> ../../devices/virtual/infiniband/rxe0\n\
         === sys/class/net/eth1/mtu\n1500\n=== sys/class/net/eth1/speed\n-1\n=== sys/class/net/eth1/flags\n0x1002\n",
        |_| (),
    );
    assert_eq!((devices.len(), problems.len()), (1, 0));
    let device = &devices[0];
    assert_eq!((&device.firmware, &device.board, device.unread.len()), (&None, &None, 0));
    let port = &device.ports[0];
    assert_eq!((port.gids, port.rate.as_deref()), (None, None));
    let netdev = port.netdev.as_ref().unwrap();
    assert_eq!((netdev.mtu, netdev.megabits, netdev.admin_up), (Some(1500), None, Some(false)));
    assert_eq!(port.counters.iter().collect::<Vec<_>>(), [(&"hw_counters/link_downed".to_string(), &3)]);
}

#[test]
fn a_machine_without_rdma_has_no_devices() {
    let (devices, problems) = read_tree("=== sys/class/net/\n", |_| ());
    assert_eq!((devices.len(), problems.len()), (0, 0));
}
