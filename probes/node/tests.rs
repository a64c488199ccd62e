use super::*;
use crate::{
    Verdict::{self, Degraded, Pass, Unknown},
    inventory::{Function, Gpu, Nic, Rdma},
    sample::{context, output, settings},
};

/// A node with one GPU of this vendor and one NIC.
fn inventory(vendor: u16) -> Inventory {
    let function = Function { pci: "0000:05:00.0".into(), vendor, ..Function::default() };
    let rdma =
        Rdma { name: "mlx5_0".into(), pci: Some("0000:08:00.0".into()), ports: vec![1], ..Rdma::default() };
    Inventory {
        gpus: vec![Gpu { function, ..Gpu::default() }],
        nics: vec![Nic::default()],
        rdma: vec![rdma],
        ..Inventory::default()
    }
}

fn amd() -> Inventory {
    inventory(0x1002)
}

fn nvidia() -> Inventory {
    inventory(0x10de)
}

/// What the worker reads of a node on which every check passes.
fn healthy() -> Vec<Fact> {
    let group = |gid| Group { gid, members: vec!["ops".into()] };
    vec![
        Fact::About(About { kernel: Some("6.8.0-60-generic".into()), ..About::default() }),
        Fact::CommandLine("quiet iommu=pt pci=realloc=off,bfsort".into()),
        Fact::Numa(Numa { nodes: 2, balancing: Some(0) }),
        Fact::Iommu(Iommu {
            units: 8,
            domains: [("0000:05:00.0".to_string(), "identity".to_string())].into(),
        }),
        Fact::Modules(Modules {
            loaded: ["ib_peer_mem", "nvidia_peermem", "gdrdrv"].map(str::to_string).to_vec(),
            nvidia_open: true,
        }),
        Fact::LockedMemory(Some("unlimited".into())),
        Fact::Access(Access {
            uid: Some(990),
            gids: vec![44, 109],
            accounts: [("ops".to_string(), 1000), ("guest".to_string(), 1001)].into(),
            groups: [("video".to_string(), group(44)), ("render".to_string(), group(109))].into(),
        }),
        Fact::Governors([("performance".to_string(), 192)].into()),
        Fact::HugePages(Some(0)),
        Fact::Selinux(None),
        Fact::Clock(Clock { current: Some("tsc".into()), available: vec!["tsc".into(), "hpet".into()] }),
        Fact::Bars(vec![Bar { pci: "0000:05:00.0".into(), largest: 1 << 38, memory: Some(206_141_652_992) }]),
    ]
}

/// The healthy node with one fact replaced.
fn with(fact: Fact) -> Vec<Fact> {
    let mut facts = healthy();
    let kind = std::mem::discriminant(&fact);
    *facts.iter_mut().find(|other| std::mem::discriminant(*other) == kind).unwrap() = fact;
    facts
}

fn read_with(settings: &Settings, facts: &[Fact], problems: &[Problem], inventory: &Inventory) -> Reading {
    let targets = [Target::Node];
    let ctx = context(&targets, inventory, settings);
    Node.parse(&ctx, &[output(0.0, facts, problems)], &mut Memory::default()).unwrap().remove(0)
}

fn verdict(facts: &[Fact], inventory: &Inventory, check: &str) -> Option<Verdict> {
    find(&read_with(&settings(), facts, &[], inventory), check).verdict
}

fn find(reading: &Reading, check: &str) -> Finding {
    reading.findings.iter().find(|finding| finding.check == check).unwrap().clone()
}

#[test]
fn a_healthy_node_passes_every_check_that_applies() {
    let skipped = |inventory: &Inventory| {
        let reading = read_with(&settings(), &healthy(), &[], inventory);
        let (pass, rest): (Vec<_>, Vec<_>) =
            reading.findings.iter().partition(|finding| finding.verdict.is_some());
        assert!(pass.iter().all(|finding| finding.verdict == Some(Pass)), "{pass:?}");
        let exported = reading.measurements.iter().filter(|found| found.metric.name == "check_status");
        assert_eq!(exported.count(), pass.len(), "a check that does not apply has no series");
        rest.iter().map(|finding| finding.check.clone()).collect::<Vec<_>>()
    };
    assert_eq!(skipped(&amd()), ["pci_bfsort", "gdrdrv", "huge_pages"]);
    assert_eq!(skipped(&nvidia()), ["pci_realloc", "pci_bfsort", "gpu_groups", "huge_pages"]);
}

#[test]
fn each_setting_that_is_off_is_degraded_and_says_what_to_type() {
    let modules = |loaded: &[&str], nvidia_open| {
        Fact::Modules(Modules {
            loaded: loaded.iter().map(|name| (*name).to_string()).collect(),
            nvidia_open,
        })
    };
    let old = Fact::About(About { kernel: Some("5.4.0".into()), ..About::default() });
    let domain =
        |kind: &str| Iommu { units: 1, domains: [("0000:05:00.0".to_string(), kind.to_string())].into() };
    let access = |gids| Fact::Access(Access { uid: Some(990), gids, ..groups() });
    let bar = |largest, memory| Fact::Bars(vec![Bar { pci: "0000:05:00.0".into(), largest, memory }]);
    let clock = |available: &[&str]| {
        Fact::Clock(Clock {
            current: Some("hpet".into()),
            available: available.iter().map(|name| (*name).to_string()).collect(),
        })
    };
    let mut without_peer = with(modules(&[], false));
    without_peer[0] = old;
    let table = [
        (
            with(Fact::Numa(Numa { nodes: 2, balancing: Some(1) })),
            amd(),
            "numa_balancing",
            "kernel.numa_balancing=0",
        ),
        (with(Fact::Iommu(domain("DMA-FQ"))), amd(), "iommu", "iommu=pt"),
        (with(Fact::CommandLine("quiet pci=bfsort".into())), amd(), "pci_realloc", "pci=realloc=off"),
        (without_peer.clone(), amd(), "peer_memory", "modprobe ib_peer_mem"),
        (without_peer, nvidia(), "peer_memory", "modprobe nvidia_peermem"),
        (with(modules(&[], false)), nvidia(), "peer_memory", "modprobe nvidia_peermem"),
        (with(bar(256 << 20, Some(1 << 36))), amd(), "large_bar", "Above 4G"),
        (with(bar(256 << 20, None)), nvidia(), "large_bar", "Above 4G"),
        (with(Fact::LockedMemory(Some("65536".into()))), amd(), "locked_memory", "LimitMEMLOCK=infinity"),
        (with(access(vec![44])), amd(), "gpu_groups", "usermod"),
        (with(Fact::Governors([("powersave".to_string(), 12)].into())), amd(), "cpu_governor", "cpupower"),
        (with(Fact::Selinux(Some(1))), amd(), "selinux", "setenforce 0"),
        (with(clock(&["hpet", "tsc"])), amd(), "clock_source", "echo tsc"),
        (with(clock(&["hpet"])), amd(), "clock_source", "dmesg"),
    ];
    for (facts, inventory, check, command) in table {
        let finding = find(&read_with(&settings(), &facts, &[], &inventory), check);
        assert_eq!(finding.verdict, Some(Degraded), "{check}: {finding:?}");
        assert!(finding.command.contains(command), "{check}: {}", finding.command);
        assert!(!finding.why.is_empty() && !finding.expected.is_empty(), "{check}");
    }
}

fn groups() -> Access {
    healthy()
        .into_iter()
        .find_map(|fact| if let Fact::Access(access) = fact { Some(access) } else { None })
        .unwrap()
}

#[test]
fn an_iommu_is_judged_by_what_it_does_before_what_was_asked() {
    let iommu = |units| Fact::Iommu(Iommu { units, domains: BTreeMap::new() });
    assert_eq!(verdict(&with(iommu(0)), &amd(), "iommu"), Some(Pass));
    assert_eq!(verdict(&with(iommu(2)), &amd(), "iommu"), Some(Pass), "iommu=pt was asked");
    let mut silent = with(iommu(2));
    silent[1] = Fact::CommandLine("quiet xiommu=pt".into());
    assert_eq!(verdict(&silent, &amd(), "iommu"), Some(Degraded));
}

#[test]
fn dmabuf_stands_in_for_a_module_where_the_driver_has_it() {
    let none = |nvidia_open| with(Fact::Modules(Modules { loaded: Vec::new(), nvidia_open }));
    assert_eq!(verdict(&none(false), &amd(), "peer_memory"), Some(Pass));
    assert_eq!(verdict(&none(true), &nvidia(), "peer_memory"), Some(Pass));
}

#[test]
fn what_does_not_fit_the_node_is_not_applicable() {
    let bare = Inventory::default();
    let reading = read_with(&settings(), &healthy(), &[], &bare);
    let judged: Vec<_> =
        reading.findings.iter().filter(|found| found.verdict.is_some()).map(|found| &found.check).collect();
    assert_eq!(judged, ["clock_source"]);
    let guest = with(Fact::About(About { virtual_machine: true, ..About::default() }));
    for check in ["iommu", "pci_realloc", "clock_source"] {
        assert_eq!(verdict(&guest, &amd(), check), None, "{check}");
    }
    let software = Rdma { name: "rxe0".into(), pci: None, ports: vec![1], ..Rdma::default() };
    let software = Inventory { rdma: vec![software], ..Inventory::default() };
    assert_eq!(verdict(&healthy(), &software, "locked_memory"), None);
    assert_eq!(
        verdict(&with(Fact::Numa(Numa { nodes: 1, balancing: Some(1) })), &amd(), "numa_balancing"),
        None
    );
    assert_eq!(verdict(&with(Fact::Governors(BTreeMap::new())), &amd(), "cpu_governor"), None);
}

#[test]
fn a_gpu_without_a_window_is_a_doubt() {
    let finding = find(&read_with(&settings(), &with(Fact::Bars(Vec::new())), &[], &amd()), "large_bar");
    assert_eq!((finding.verdict, finding.part.as_str()), (Some(Unknown), "0000:05:00.0"));
}

#[test]
fn a_firewall_that_can_not_be_read_is_no_pass() {
    let loaded = with(Fact::Modules(Modules { loaded: vec!["nf_tables".into()], nvidia_open: false }));
    let finding = find(&read_with(&settings(), &loaded, &[], &amd()), "firewall");
    assert_eq!(finding.verdict, None);
    assert!(finding.found.contains("nft list ruleset"));
}

#[test]
fn the_operator_names_the_user_the_pages_and_what_to_ignore() {
    let mut settings = settings();
    let table = [("ops", Some(Pass)), ("guest", Some(Degraded)), ("alice", Some(Unknown)), ("root", None)];
    for (user, want) in table {
        settings.node.user = Some(user.into());
        assert_eq!(
            find(&read_with(&settings, &healthy(), &[], &amd()), "gpu_groups").verdict,
            want,
            "{user}"
        );
    }
    settings.node.huge_pages = 512;
    assert_eq!(find(&read_with(&settings, &healthy(), &[], &amd()), "huge_pages").verdict, Some(Degraded));
    let enough = with(Fact::HugePages(Some(512)));
    assert_eq!(find(&read_with(&settings, &enough, &[], &amd()), "huge_pages").verdict, Some(Pass));
    settings.node.ignore = vec!["huge_pages".into()];
    assert_eq!(find(&read_with(&settings, &healthy(), &[], &amd()), "huge_pages").verdict, None);
}

#[test]
fn a_fact_that_could_not_be_read_is_a_doubt_that_names_its_file() {
    let facts: Vec<Fact> =
        healthy().into_iter().filter(|fact| !matches!(fact, Fact::Numa(_) | Fact::Clock(_))).collect();
    let path = "/proc/sys/kernel/numa_balancing";
    let stuck = Problem { part: "numa".into(), path: path.into(), error: "no answer within 3 s".into() };
    let reading = read_with(&settings(), &facts, &[stuck], &amd());
    let finding = find(&reading, "numa_balancing");
    assert_eq!((finding.verdict, finding.part.as_str()), (Some(Unknown), "node"));
    assert!(finding.found.contains(path), "{}", finding.found);
    assert_eq!(find(&reading, "clock_source").verdict, Some(Unknown));
    assert_eq!(find(&reading, "iommu").verdict, Some(Pass));
}
