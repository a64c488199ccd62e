use std::{collections::BTreeMap, fs, path::Path};

use probes::node::Group;

use super::*;
use crate::{tree, worker::healthy::request};

const MI300X: &str = include_str!("../../../tests/fixtures/mi300x.tree");
const H200: &str = include_str!("../../../tests/fixtures/h200.tree");

fn read_tree(text: &str, change: impl FnOnce(&Path)) -> Found<Fact> {
    let root = tempfile::tempdir().unwrap();
    tree::unpack(text, root.path());
    change(root.path());
    read(&request(root.path()))
}

#[test]
fn every_fact_of_an_amd_node_is_read() {
    let (facts, problems) = read_tree(MI300X, |_| ());
    assert_eq!((facts.len(), problems.len()), (FACTS.len(), 0), "{problems:?}");
    let mut seen = 0;
    for fact in facts {
        seen += 1;
        match fact {
            Fact::About(about) => {
                assert_eq!(about.kernel.as_deref(), Some("6.8.0-60-generic"));
                assert_eq!(about.distribution.as_deref(), Some("Ubuntu 24.04.2 LTS"));
                assert_eq!(about.cpu_model.as_deref(), Some("AMD EPYC 9654 96-Core Processor"));
                assert_eq!(about.product.as_deref(), Some("GIGABYTE G593-ZX1-AAX1-000"));
                assert!(!about.virtual_machine);
            }
            Fact::CommandLine(line) => assert!(line.contains("iommu=pt")),
            Fact::Numa(numa) => assert_eq!((numa.nodes, numa.balancing), (2, Some(0))),
            Fact::Iommu(iommu) => {
                assert_eq!((iommu.units, iommu.domains.len()), (8, 16));
                assert!(iommu.domains.values().all(|domain| domain == "identity"));
            }
            Fact::Modules(modules) => assert_eq!(modules.loaded, ["ib_peer_mem", "nf_tables", "amdgpu"]),
            Fact::LockedMemory(limit) => assert_eq!(limit.as_deref(), Some("unlimited")),
            Fact::Access(access) => {
                assert_eq!((access.uid, access.gids), (Some(990), vec![44, 109, 990, 990]));
                assert_eq!(access.accounts["ops"], 1000);
                let render = Group { gid: 109, members: vec!["fabricpulse".into(), "ops".into()] };
                assert_eq!(access.groups["render"], render);
            }
            Fact::Governors(governors) => {
                assert_eq!(governors, BTreeMap::from([("performance".to_string(), 192)]));
            }
            Fact::HugePages(pages) => assert_eq!(pages, Some(0)),
            Fact::Selinux(enforce) => assert_eq!(enforce, None),
            Fact::Clock(clock) => {
                assert_eq!((clock.current.as_deref(), clock.available.len()), (Some("tsc"), 3));
            }
            Fact::Bars(bars) => {
                assert_eq!(bars.len(), 8);
                assert!(bars.iter().all(|bar| bar.largest == 1 << 38 && bar.memory == Some(206_141_652_992)));
            }
        }
    }
    assert_eq!(seen, FACTS.len());
}

#[test]
fn nvidia_s_modules_are_seen() {
    let (facts, _) = read_tree(H200, |_| ());
    let modules =
        facts.iter().find_map(|fact| if let Fact::Modules(modules) = fact { Some(modules) } else { None });
    let modules = modules.unwrap();
    assert_eq!(modules.loaded, ["gdrdrv", "nf_tables", "nvidia_peermem"]);
    assert!(modules.nvidia_open);
}

#[test]
fn a_file_that_is_broken_or_blocks_takes_its_own_fact_only() {
    let (numa, governor) =
        ("proc/sys/kernel/numa_balancing", "sys/devices/system/cpu/cpufreq/policy7/scaling_governor");
    let (facts, problems) = read_tree(MI300X, |root| {
        for path in [numa, governor] {
            fs::remove_file(root.join(path)).unwrap();
        }
        tree::unpack(&format!("=== {numa} error\n=== {governor} blocks\n"), root);
    });
    assert_eq!(facts.len(), FACTS.len() - 2);
    let named: Vec<_> = problems.iter().map(|problem| problem.part.as_str()).collect();
    assert_eq!(named, ["numa", "governors"]);
    assert!(problems[0].path.ends_with(numa) && problems[1].path.ends_with(governor));
}

#[test]
fn an_empty_machine_is_read_without_a_problem() {
    let (facts, problems) = read_tree("=== proc/\n", |_| ());
    assert_eq!((facts.len(), problems.len()), (FACTS.len(), 0));
}
