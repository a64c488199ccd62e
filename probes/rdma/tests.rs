//! A node with rails, for the tests of the RDMA probes; which rails it has, and what keeps one out.

use std::net::Ipv6Addr;

use super::*;
use crate::{
    Partner,
    inventory::{AMD, Function, Gpu, NVIDIA, Nic},
    partner::{Side, Terms},
    sample,
};

/// Three rails of 400 Gb/s: two on NUMA node 0, of which `mlx5_1` comes first by PCI address, and
/// one on node 1. GPUs are of the vendor that is given, each beside a NIC; perftest has all options.
pub(super) fn node(vendor: u16) -> Inventory {
    let function = |pci: &str, vendor, numa, bridges: &str| Function {
        pci: pci.into(),
        vendor,
        numa: Some(numa),
        path: bridges.split(' ').map(str::to_string).collect(),
        ..Function::default()
    };
    let nic = |pci, numa, bridge| Nic { function: function(pci, 0x15b3, numa, bridge), ..Nic::default() };
    let gpu = |pci, numa, bridge| Gpu { function: function(pci, vendor, numa, bridge), ..Gpu::default() };
    let rail = |name: &str, pci: &str, last: u16| Rdma {
        name: name.into(),
        pci: Some(pci.into()),
        ports: vec![1],
        wire: Some(Wire {
            port: 1,
            link_layer: "Ethernet".into(),
            bits_per_second: Some(400e9),
            gids: vec![
                Gid { index: 0, address: "fe80::1".parse().unwrap(), roce_v2: false },
                Gid { index: 3, address: ipv4(last), roce_v2: true },
            ],
        }),
        ..Rdma::default()
    };
    Inventory {
        gpus: vec![
            gpu("0000:13:00.0", 0, "0000:10:00.0 0000:00:01.0"),
            gpu("0000:23:00.0", 0, "0000:20:00.0 0000:00:02.0"),
            gpu("0000:93:00.0", 1, "0000:90:00.0 0000:80:01.0"),
        ],
        nics: vec![
            nic("0000:14:00.0", 0, "0000:10:00.0 0000:00:01.0"),
            nic("0000:24:00.0", 0, "0000:20:00.0 0000:00:02.0"),
            nic("0000:94:00.0", 1, "0000:90:00.0 0000:80:01.0"),
        ],
        rdma: vec![
            rail("mlx5_0", "0000:24:00.0", 1),
            rail("mlx5_1", "0000:14:00.0", 2),
            rail("mlx5_2", "0000:94:00.0", 3),
        ],
        cpus: [(0, (0..8).collect()), (1, (8..16).collect())].into(),
        perftest: Some(Perftest {
            directory: "/usr/bin".into(),
            programs: PROGRAMS.map(str::to_string).into(),
            modified: Some(1_700_000_000),
            version: Some("6.26".into()),
            gpu_options: ["use_cuda", "use_cuda_bus_id", "use_cuda_dmabuf", "use_rocm", "use_rocm_dmabuf"]
                .map(str::to_string)
                .into(),
        }),
        ..Inventory::default()
    }
}

/// `10.0.0.<last>` as a GID.
pub(super) fn ipv4(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0x0a00, last)
}

/// A partner that has told its terms: 400 Gb/s at `10.0.0.2`, with a GPU.
pub(super) fn partner(side: Side) -> Partner {
    Partner {
        host_measured: false,
        name: "node-b".into(),
        host: "10.9.0.2".into(),
        side,
        terms: Some(Terms {
            device: "mlx5_4".into(),
            port: 18_700,
            gid: Some(ipv4(2).octets()),
            bits_per_second: Some(400e9),
            gpu: true,
            host: None,
        }),
    }
}

pub(super) fn rail(name: &str) -> [Target; 1] {
    [Target::Rdma(name.into())]
}

/// A context at our port 18601.
pub(super) fn context<'a>(
    targets: &'a [Target],
    inventory: &'a Inventory,
    settings: &'a Settings,
    partner: Option<&'a Partner>,
) -> Context<'a> {
    Context { port: 18_601, partner, ..sample::context(targets, inventory, settings) }
}

#[test]
fn rails_follow_the_configuration_and_else_the_pci_addresses() {
    let mut inventory = node(NVIDIA);
    inventory.rdma.push(Rdma { name: "rxe0".into(), ..Rdma::default() });
    /// The configuration, the rails, and the numbers of some devices.
    type Row<'a> = (&'a [&'a str], &'a [&'a str], &'a [(&'a str, Option<usize>)]);
    let table: [Row<'_>; 3] = [
        (
            &[],
            &["mlx5_1", "mlx5_0", "mlx5_2", "rxe0"],
            &[("mlx5_0", Some(1)), ("rxe0", Some(3)), ("x", None)],
        ),
        (&["mlx5_2", "mlx5_0"], &["mlx5_2", "mlx5_0"], &[("mlx5_0", Some(1)), ("mlx5_1", None)]),
        // A device that is gone leaves its number free.
        (&["gone", "mlx5_0"], &["mlx5_0"], &[("mlx5_0", Some(1)), ("gone", Some(0))]),
    ];
    for (configured, want, numbers) in table {
        let settings = RdmaSettings {
            rails: configured.iter().map(ToString::to_string).collect(),
            ..sample::settings().rdma
        };
        let names: Vec<&str> = rails(&inventory, &settings).iter().map(|rail| rail.name.as_str()).collect();
        assert_eq!(names, want, "{configured:?}");
        for (name, number) in numbers {
            assert_eq!(rail_of(&inventory, &settings, name), *number, "{configured:?} {name}");
            let back = number.and_then(|number| device_of(&inventory, &settings, number));
            assert!(back.is_none_or(|back| back.name == *name), "{configured:?} {name} {back:?}");
        }
    }
}

#[test]
fn what_keeps_a_rail_out_is_told_with_what_to_do() {
    type Change = fn(&mut Inventory, &mut RdmaSettings);
    let table: [(Change, &str); 8] = [
        (|node, _| node.rdma.clear(), "this node has no RDMA device mlx5_0 now"),
        (
            |_, settings| settings.rails = vec!["mlx5_2".into()],
            "mlx5_0 is none of the rails: [rdma] rails does not name it",
        ),
        (
            |node, _| node.perftest = None,
            "perftest is not installed (no ib_write_bw in /usr/local/sbin, /usr/local/bin, /usr/sbin, /usr/bin, \
             /sbin, /bin): apt-get install perftest, or dnf install perftest",
        ),
        (
            |node, settings| {
                node.perftest = None;
                settings.perftest = "/opt/perftest/bin".into();
            },
            "there is no ib_write_bw in /opt/perftest/bin, which [rdma] perftest_directory names: install perftest there",
        ),
        (
            |node, _| node.rdma[0].wire = None,
            "mlx5_0 shows no port: look at ibv_devinfo -d mlx5_0 and at its driver",
        ),
        (
            |node, _| node.rdma[0].wire.as_mut().unwrap().bits_per_second = None,
            "port 1 of mlx5_0 is down or shows no rate: ibv_devinfo -d mlx5_0 -i 1",
        ),
        (
            |_, settings| settings.gid_networks = vec![("10.1.0.0".parse().unwrap(), 16)],
            "mlx5_0 has no RoCE v2 GID in 10.1.0.0/16; its GIDs are fe80::1 (RoCE v1), ::ffff:10.0.0.1",
        ),
        (
            |node, _| node.perftest.as_mut().unwrap().programs.retain(|program| program != "ib_read_bw"),
            "perftest in /usr/bin has no ib_read_bw: install the whole package",
        ),
    ];
    for (change, want) in table {
        let (mut inventory, mut settings) = (node(AMD), sample::settings().rdma);
        change(&mut inventory, &mut settings);
        let found = End::of(&inventory, &settings, "mlx5_0").and_then(|end| end.program("ib_read_bw"));
        assert_eq!(found, Err(Unsupported(want.into())));
    }
}

#[test]
fn each_rail_has_the_nearest_gpu_and_equally_near_ones_are_spread() {
    let settings = sample::settings().rdma;
    let chosen = |inventory: &Inventory| {
        let of = |rail: &&Rdma| {
            let end = End::of(inventory, &settings, &rail.name).unwrap();
            gpu::near(inventory, &settings, &end).map_err(|why| why.0).map(|gpu| gpu.pci)
        };
        rails(inventory, &settings).iter().map(of).collect::<Result<Vec<_>, _>>()
    };
    let beside = node(NVIDIA);
    assert_eq!(chosen(&beside).unwrap(), ["0000:13:00.0", "0000:23:00.0", "0000:93:00.0"]);
    // Behind the root complex all are equally far, but for the node.
    let mut far = node(NVIDIA);
    for gpu in &mut far.gpus {
        gpu.function.path = vec!["0000:70:00.0".into()];
    }
    assert_eq!(chosen(&far).unwrap(), ["0000:13:00.0", "0000:23:00.0", "0000:93:00.0"]);
    let mut few = far.clone();
    few.gpus.remove(1);
    assert_eq!(chosen(&few).unwrap(), ["0000:13:00.0", "0000:13:00.0", "0000:93:00.0"]);
    let mut mixed = node(AMD);
    mixed.gpus[0].function.vendor = NVIDIA;
    mixed.perftest.as_mut().unwrap().gpu_options = vec!["use_rocm".into()];
    assert_eq!(chosen(&mixed).unwrap(), ["0000:23:00.0", "0000:23:00.0", "0000:93:00.0"]);
    let mut soft = node(AMD);
    soft.rdma.iter_mut().for_each(|rdma| rdma.pci = None);
    assert_eq!(chosen(&soft).unwrap(), ["0000:13:00.0", "0000:23:00.0", "0000:93:00.0"]);
    let mut none = node(AMD);
    none.gpus.clear();
    assert_eq!(chosen(&none).unwrap_err(), "this node has no GPU");
}

#[test]
fn perftest_is_told_of_the_gpu_by_the_options_that_it_has() {
    let all = "use_cuda use_cuda_bus_id use_cuda_dmabuf use_rocm use_rocm_dmabuf";
    let table = [
        (AMD, all, "", Ok("--use_rocm=1 --use_rocm_dmabuf")),
        (AMD, all, "ib_peer_mem", Ok("--use_rocm=1")),
        (AMD, all, "nvidia_peermem", Ok("--use_rocm=1 --use_rocm_dmabuf")),
        (AMD, "use_rocm", "", Ok("--use_rocm=1")),
        (NVIDIA, all, "", Ok("--use_cuda_bus_id=0000:23:00.0 --use_cuda_dmabuf")),
        (NVIDIA, all, "nvidia_peermem", Ok("--use_cuda_bus_id=0000:23:00.0")),
        (NVIDIA, "use_cuda", "amdkfd", Ok("--use_cuda=1")),
        (
            NVIDIA,
            "use_rocm",
            "",
            Err("perftest in /usr/bin can't use the memory of NVIDIA GPUs: build it with ./configure \
                 CUDA_H_PATH=/usr/local/cuda/include/cuda.h, and name its folder in [rdma] perftest_directory"),
        ),
        (
            AMD,
            "use_cuda",
            "",
            Err(
                "perftest in /usr/bin can't use the memory of AMD GPUs: build it with ./configure --enable-rocm \
                 --with-rocm=/opt/rocm, and name its folder in [rdma] perftest_directory",
            ),
        ),
    ];
    for (vendor, options, loaded, want) in table {
        let (mut inventory, settings) = (node(vendor), sample::settings().rdma);
        inventory.perftest.as_mut().unwrap().gpu_options = options.split(' ').map(str::to_string).collect();
        inventory.peer_memory = vec![loaded.to_string()];
        let end = End::of(&inventory, &settings, "mlx5_0").unwrap();
        let found = gpu::near(&inventory, &settings, &end);
        let words = found.as_ref().map(|gpu| gpu.options.join(" ")).map_err(|why| why.0.clone());
        assert_eq!(words.as_deref().map_err(String::as_str), want, "{vendor:x} {options} {loaded}");
        let ordered = found.is_ok_and(|gpu| gpu.env == [("CUDA_DEVICE_ORDER".into(), "PCI_BUS_ID".into())]);
        assert_eq!(ordered, vendor == NVIDIA && want.is_ok());
    }
}
