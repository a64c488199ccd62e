//! What is executed at both ends, and what it costs.

use super::{
    tests::{context, node, partner, rail},
    *,
};
use crate::{
    Partner, Plan, Probe, Program, Resource, Stage, Step, find,
    inventory::{AMD, NVIDIA},
    partner::{HostBandwidth, Side},
    sample,
    settings::RdmaSettings,
};

fn plan(probe: &str, inventory: &Inventory, settings: &Settings, partner: Option<&Partner>) -> Plan {
    let targets = rail("mlx5_0");
    find(probe).unwrap().plan(&context(&targets, inventory, settings, partner)).unwrap()
}

fn argv(step: &Step) -> String {
    match &step.program {
        Program::Command(argv) => argv.join(" "),
        Program::Worker(name) => panic!("{name}"),
    }
}

/// `call` and `serve`, each with how often it comes in a row.
fn halves(plan: &Plan) -> String {
    let half = |stage: &Stage| match stage {
        Stage::Alone(_) => "alone",
        Stage::Both { .. } => "both",
        Stage::Serve(_) => "serve",
        Stage::Call(_) => "call",
    };
    plan.stages.iter().map(half).collect::<Vec<_>>().join(" ")
}

#[test]
fn both_ends_have_the_same_stages_each_with_its_half() {
    let (inventory, settings) = (node(AMD), sample::settings());
    let table = [
        ("ib_write_bw", Side::Opener, "call call serve serve"),
        ("ib_write_bw", Side::Server, "serve serve call call"),
        ("ib_send_bw", Side::Opener, "call call serve serve"),
        ("ib_send_bw", Side::Server, "serve serve call call"),
        // Who reads is who receives.
        ("ib_read_bw", Side::Opener, "serve serve call call"),
        ("ib_read_bw", Side::Server, "call call serve serve"),
        ("ib_write_lat", Side::Opener, "call call"),
        ("ib_write_lat", Side::Server, "serve serve"),
        ("gdr", Side::Opener, "call call serve serve call call serve serve"),
        ("gdr", Side::Server, "serve serve call call serve serve call call"),
    ];
    for (probe, side, want) in table {
        assert_eq!(
            halves(&plan(probe, &inventory, &settings, Some(&partner(side)))),
            want,
            "{probe} {side:?}"
        );
    }
    let mut lease = partner(Side::Opener);
    lease.terms.as_mut().unwrap().host = Some(HostBandwidth { sent: 1.0, received: 1.0 });
    assert_eq!(halves(&plan("gdr", &inventory, &settings, Some(&lease))), "call call serve serve");
    assert_eq!(halves(&plan("loopback", &inventory, &settings, None)), "both both both both");
}

#[test]
fn a_partner_that_was_not_asked_yet_leaves_only_the_costs() {
    let (inventory, settings) = (node(AMD), sample::settings());
    let unasked = Partner { terms: None, ..partner(Side::Opener) };
    for probe in ["ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "gdr"] {
        for partner in [None, Some(&unasked)] {
            let plan = plan(probe, &inventory, &settings, partner);
            assert_eq!(plan.stages, [], "{probe}");
            assert!(plan.uses.iter().any(|part| part.resource == Resource::Nic("mlx5_0".into())), "{probe}");
        }
    }
}

#[test]
fn every_command_line_is_what_was_meant() {
    let infiniband = |node: &mut Inventory, settings: &mut RdmaSettings| {
        node.rdma[0].wire.as_mut().unwrap().link_layer = "InfiniBand".into();
        settings.mtu = Some(2048);
    };
    type Change = fn(&mut Inventory, &mut RdmaSettings);
    let table: [(&str, Change, &str, &str); 5] = [
        (
            "ib_write_bw",
            |_, _| {},
            "/usr/bin/ib_write_bw -d mlx5_0 -i 1 -p 18700 -s 65536 -n 5000 -q 2 -N -F -x 3 --tclass=104 10.9.0.2",
            "/usr/bin/ib_write_bw -d mlx5_0 -i 1 -p 18601 -s 65536 -n 5000 -q 2 -N -F -x 3 --tclass=104",
        ),
        (
            "ib_write_bw",
            infiniband,
            "/usr/bin/ib_write_bw -d mlx5_0 -i 1 -p 18700 -s 65536 -n 5000 -q 2 -N -F -m 2048 10.9.0.2",
            "/usr/bin/ib_write_bw -d mlx5_0 -i 1 -p 18601 -s 65536 -n 5000 -q 2 -N -F -m 2048",
        ),
        (
            "ib_send_bw",
            |_, settings| settings.traffic_class = None,
            "/usr/bin/ib_send_bw -d mlx5_0 -i 1 -p 18700 -s 65536 -n 5000 -q 2 -N -F -x 3 10.9.0.2",
            "/usr/bin/ib_send_bw -d mlx5_0 -i 1 -p 18601 -s 65536 -n 5000 -q 2 -N -F -x 3",
        ),
        (
            "ib_write_lat",
            |_, _| {},
            "/usr/bin/ib_write_lat -d mlx5_0 -i 1 -p 18700 -s 8 -n 500 -F -x 3 --tclass=104 10.9.0.2",
            "/usr/bin/ib_write_lat -d mlx5_0 -i 1 -p 18601 -s 8 -n 500 -F -x 3 --tclass=104",
        ),
        (
            "gdr",
            |node, settings| {
                node.perftest.as_mut().unwrap().directory = "/opt/perftest/bin/".into();
                node.rdma[0].wire.as_mut().unwrap().port = 2;
                settings.queue_pairs = 4;
            },
            "/opt/perftest/bin/ib_write_bw -d mlx5_0 -i 2 -p 18700 -s 65536 -n 2500 -q 4 -N -F -x 3 --tclass=104 \
             --use_rocm=1 --use_rocm_dmabuf 10.9.0.2",
            "/opt/perftest/bin/ib_write_bw -d mlx5_0 -i 2 -p 18601 -s 65536 -n 2500 -q 4 -N -F -x 3 --tclass=104 \
             --use_rocm=1 --use_rocm_dmabuf",
        ),
    ];
    for (probe, change, call, serve) in table {
        let (mut inventory, mut settings) = (node(AMD), sample::settings());
        change(&mut inventory, &mut settings.rdma);
        let last = |side| {
            let plan = plan(probe, &inventory, &settings, Some(&partner(side)));
            let ends: Vec<Stage> = plan.stages.into_iter().rev().collect();
            let call = ends.iter().find(|stage| matches!(stage, Stage::Call(_))).cloned();
            let serve = ends.iter().find(|stage| matches!(stage, Stage::Serve(_))).cloned();
            (call, serve)
        };
        let (opener, server) = (last(Side::Opener), last(Side::Server));
        let calls: Vec<Stage> = [opener.0, server.0].into_iter().flatten().collect();
        let serves: Vec<Stage> = [opener.1, server.1].into_iter().flatten().collect();
        for (stages, want) in [(calls, call), (serves, serve)] {
            for step in stages.iter().flat_map(Stage::steps) {
                assert_eq!(argv(step), want);
                assert_eq!((step.cpus.as_slice(), step.deadline), (&[3][..], sample::TIMEOUT));
            }
            assert!(!stages.is_empty(), "{probe}");
        }
    }
}

#[test]
fn loopback_has_both_processes_on_cpus_of_their_own() {
    let (inventory, mut settings) = (node(NVIDIA), sample::settings());
    settings.rdma.repeats = 1;
    settings.rdma.loopback_neighbour = true;
    let plan = plan("loopback", &inventory, &settings, None);
    let common = "-s 65536 -n 5000 -q 2 -N -F -x 3 --tclass=104";
    let gpu = "--use_cuda_bus_id=0000:23:00.0 --use_cuda_dmabuf";
    let program = "/usr/bin/ib_write_bw";
    let want = [
        (format!("{program} -d mlx5_0 -i 1 -p 18601 {common}"), 3),
        (format!("{program} -d mlx5_0 -i 1 -p 18601 {common} 127.0.0.1"), 4),
        (format!("{program} -d mlx5_0 -i 1 -p 18601 {common} {gpu}"), 3),
        (format!("{program} -d mlx5_0 -i 1 -p 18601 {common} {gpu} 127.0.0.1"), 4),
        // mlx5_1 is rail 0, mlx5_0 rail 1, and rail 2 is on the other NUMA node.
        (format!("{program} -d mlx5_2 -i 1 -p 18601 {common}"), 9),
        (format!("{program} -d mlx5_0 -i 1 -p 18601 {common} 127.0.0.1"), 4),
    ];
    let found: Vec<(String, u32)> =
        plan.stages.iter().flat_map(Stage::steps).map(|step| (argv(step), step.cpus[0])).collect();
    assert_eq!(found, want);
    let used: Vec<Resource> = plan.uses.into_iter().map(|part| part.resource).collect();
    let nic = |name: &str| Resource::Nic(name.into());
    assert_eq!(used, [Resource::Gpu("0000:23:00.0".into()), nic("mlx5_2"), nic("mlx5_0")]);
}

#[test]
fn the_defaults_stay_inside_what_an_hour_may_cost() {
    let inventory = node(AMD);
    let settings = Settings {
        rdma: RdmaSettings {
            size: 1 << 20,
            queue_pairs: 4,
            seconds: 0.4,
            most_messages: 20_000,
            repeats: 3,
            latency_messages: 5000,
            ..sample::settings().rdma
        },
        ..sample::settings()
    };
    let used = |plan: &Plan, resource: &Resource| -> u64 {
        plan.uses.iter().filter(|part| part.resource == *resource).map(|part| u64::from(part.amount)).sum()
    };
    let mut lease = partner(Side::Opener);
    let alone = plan("gdr", &inventory, &settings, Some(&lease));
    lease.terms.as_mut().unwrap().host = Some(HostBandwidth { sent: 1.0, received: 1.0 });
    let plans =
        ["ib_write_bw", "ib_write_lat", "gdr"].map(|probe| plan(probe, &inventory, &settings, Some(&lease)));
    let (nic, gpu) = (Resource::Nic("mlx5_0".into()), Resource::Gpu("0000:23:00.0".into()));
    let bytes: Vec<u64> = plans.iter().map(|plan| used(plan, &nic) << 20).collect();
    assert!(bytes[0] + bytes[2] <= 120_000_000_000, "{bytes:?}");
    assert!(bytes[0] + bytes[2] >= 119_000_000_000, "{bytes:?}");
    assert!(bytes[1] <= 4 << 20, "{bytes:?}");
    assert_eq!(used(&plans[2], &gpu), 2400, "milliseconds");
    assert_eq!(used(&alone, &nic) << 20, 2 * bytes[2], "with its own host memory");
    let back = plan("loopback", &inventory, &settings, None);
    assert_eq!((used(&back, &nic) << 20, used(&back, &gpu)), (2 * bytes[0], 1200));
}

#[test]
fn the_slower_port_sets_the_amount_at_both_ends() {
    let (inventory, settings) = (node(AMD), sample::settings());
    let mut slow = partner(Side::Opener);
    slow.terms.as_mut().unwrap().bits_per_second = Some(10e9);
    let plan = plan("ib_write_bw", &inventory, &settings, Some(&slow));
    // 0.1 s of 10 Gb/s are 1907 messages of 64 KiB, over two queue pairs.
    assert!(plan.stages.iter().flat_map(Stage::steps).all(|step| argv(step).contains(" -n 953 ")));
    assert_eq!(plan.uses[0].amount, 239);
}

#[test]
fn a_partner_without_gpu_memory_is_told() {
    let (inventory, settings, targets) = (node(AMD), sample::settings(), rail("mlx5_0"));
    let mut poor = partner(Side::Server);
    poor.terms.as_mut().unwrap().gpu = false;
    let refused = gdr::Gdr.plan(&context(&targets, &inventory, &settings, Some(&poor)));
    let words = "node-b can't use GPU memory for this rail: `fabricpulse list` there says why";
    assert_eq!(refused, Err(Unsupported(words.into())));
    let mut bare = inventory.clone();
    bare.gpus.clear();
    let refused = gdr::Gdr.plan(&context(&targets, &bare, &settings, None));
    assert_eq!(refused, Err(Unsupported("this node has no GPU".into())));
}
