//! The tests of `src/judge/book.rs`: a node of two GPUs and one NIC, hour after hour.

use probes::inventory::{Function, Nic, Rdma};

use super::*;
use crate::config;

const GPU: &str = "0000:05:00.0";
const NIC: &str = "mlx5_0";
const MANNER: Manner = Manner { samples: 48, every: 600.0 };

struct Node {
    book: Book,
    inventory: Inventory,
    settings: Settings,
    at: f64,
}

impl Node {
    fn new() -> Node {
        let function = |pci: &str| Function { pci: pci.into(), ..Function::default() };
        let gpu = |pci: &str| Gpu { function: function(pci), ..Gpu::default() };
        let inventory = Inventory {
            kernel: Some("6.8".into()),
            gpus: vec![gpu(GPU), gpu("0000:06:00.0")],
            nics: vec![Nic { function: function("0000:07:00.0"), rdma: vec![NIC.into()], netdevs: vec![] }],
            rdma: vec![Rdma { name: NIC.into(), pci: Some("0000:07:00.0".into()), ..Rdma::default() }],
            ..Inventory::default()
        };
        Node { book: Book::default(), inventory, settings: config::built_in().settings, at: 0.0 }
    }

    /// A run at the time that is now.
    fn run(&mut self, probe: &str, peer: Option<&str>, values: &[(&str, &[&str], f64)]) -> Speed {
        let probe = probes::find(probe).unwrap();
        let target = match probe.name() {
            "p2p" | "collectives" => Target::Node,
            "gemm" | "hbm" | "host_copy" => Target::Pci(GPU.into()),
            _ => Target::Rdma(NIC.into()),
        };
        let mut reading = Reading::of(target);
        for (metric, labels, value) in values {
            let metric = probes::find_metric(metric).unwrap();
            let labels = labels.iter().map(|label| label.to_string()).collect();
            reading.measurements.push(probes::Measurement { metric, labels, value: *value });
        }
        let seen = Seen {
            probe,
            inventory: &self.inventory,
            settings: &self.settings,
            peer,
            at: self.at,
            manner: MANNER,
        };
        self.book.observe(seen, &reading).unwrap()
    }

    fn hbm(&mut self, value: f64) -> Speed {
        self.run("hbm", None, &[("hbm_bandwidth_bytes_per_second", &[GPU], value)])
    }

    fn write(&mut self, peer: &str, value: f64) -> Speed {
        let metric = "rdma_write_bandwidth_bytes_per_second";
        let labels = |direction| [NIC, peer, "host", direction];
        self.run(
            "ib_write_bw",
            Some(peer),
            &[(metric, &labels("sent"), value), (metric, &labels("received"), 48e9)],
        )
    }

    fn gdr(&mut self, peer: &str, value: f64) -> Speed {
        let metric = "rdma_write_bandwidth_bytes_per_second";
        self.run("gdr", Some(peer), &[(metric, &[NIC, peer, "gpu", "sent"], value)])
    }

    fn loopback(&mut self, value: f64) -> Speed {
        self.run("loopback", None, &[("rdma_loopback_bandwidth_bytes_per_second", &[NIC, "host"], value)])
    }

    /// Sixty hours in which all is well.
    fn calm(mut self) -> Node {
        for (hour, peer) in (0..60).zip(["b", "c", "d"].into_iter().cycle()) {
            self.at = f64::from(hour) * 3600.0;
            self.hbm(4e12);
            self.write(peer, 48e9);
            self.gdr(peer, 47e9);
            self.loopback(50e9);
        }
        self.at += 3600.0;
        self
    }

    fn later(&mut self, seconds: f64) -> &mut Node {
        self.at += seconds;
        self
    }

    fn wanted(&self) -> Vec<Wanted> {
        self.book.wanted().into_iter().filter(|wanted| wanted.at <= self.at).collect()
    }
}

#[test]
fn a_gpu_whose_memory_becomes_slow_is_named_after_the_runs_that_decide_it() {
    let mut node = Node::new().calm();
    assert_eq!(node.hbm(4e12).state, State::Fine);
    assert_eq!(node.wanted(), []);
    let first = node.later(3600.0).hbm(3.8e12);
    assert_eq!((first.state, first.part.as_deref()), (State::Suspect, Some(GPU)));
    let finding = first.finding(&Target::Pci(GPU.into())).unwrap();
    assert_eq!(finding.verdict, None, "one low value is no verdict");
    for _ in 0..3 {
        assert_eq!(node.wanted().len(), 1);
        node.hbm(3.8e12);
        assert_eq!(node.wanted(), []);
        node.later(600.0);
    }
    let last = node.hbm(3.8e12);
    assert_eq!(last.state, State::Degraded);
    let finding = last.finding(&Target::Pci(GPU.into())).unwrap();
    assert_eq!(finding.verdict, Some(probes::Verdict::Degraded));
    assert_eq!(finding.found, "3800.00 GB/s, 5.0 % below what is expected");
    assert_eq!(finding.expected, "4000.00 GB/s, the frozen baseline");
    assert!((last.ratio.unwrap() - 0.95).abs() < 1e-6);
}

#[test]
fn slow_drift_is_seen_against_the_frozen_baseline() {
    let mut node = Node::new().calm();
    let mut value = 4e12;
    let mut state = State::Fine;
    for _ in 0..2000 {
        value *= 0.9999;
        state = node.later(3600.0).hbm(value).state;
        if state == State::Degraded {
            break;
        }
    }
    assert_eq!(state, State::Degraded);
    assert!((0.945..0.95).contains(&(value / 4e12)), "{}", value / 4e12);
}

#[test]
fn the_ways_that_are_low_tell_nic_port_partner_and_gpu_apart() {
    // Low with every partner, and to itself.
    let mut node = Node::new().calm();
    assert_eq!(node.write("b", 40e9).part.as_deref(), Some("undecided"));
    node.loopback(40e9);
    assert_eq!(node.write("c", 40e9).part.as_deref(), Some("mlx5_0 (NIC or its PCIe way)"));
    // Not to itself.
    let mut node = Node::new().calm();
    node.write("b", 40e9);
    node.loopback(50e9);
    for peer in ["c", "d", "c", "d"] {
        node.write(peer, 40e9);
        node.later(600.0);
    }
    let speed = node.write("c", 40e9);
    assert_eq!(speed.part.as_deref(), Some("mlx5_0 (port, cable or switch port)"));
    assert_eq!(speed.state, State::Degraded);
    // With one partner only.
    let mut node = Node::new().calm();
    node.write("b", 40e9);
    node.loopback(50e9);
    assert_eq!(node.write("c", 48e9).part.as_deref(), Some("b (that node or the path to it)"));
    let speed = node.later(600.0).write("d", 48e9);
    assert_eq!((speed.state, speed.part), (State::Fine, None), "the partner's agent tells of itself");
    // From GPU memory only.
    let mut node = Node::new().calm();
    node.write("b", 48e9);
    node.gdr("b", 30e9);
    node.later(5.0).write("c", 48e9);
    let speed = node.gdr("c", 30e9);
    assert_eq!(speed.part.as_deref(), Some("0000:05:00.0 to mlx5_0 (PCIe way)"));
}

#[test]
fn strangers_are_wanted_for_the_runs_that_decide() {
    let mut node = Node::new().calm();
    node.write("b", 40e9);
    node.later(1.0).write("c", 40e9);
    let wanted = node.later(600.0).wanted();
    assert_eq!(wanted.len(), 1);
    assert_eq!(wanted[0].met, ["b", "c"]);
    assert_eq!(wanted[0].probe, "ib_write_bw");
}

#[test]
fn another_driver_begins_anew_and_says_so() {
    let mut node = Node::new().calm();
    node.inventory.kernel = Some("6.11".into());
    let speed = node.hbm(3e12);
    assert_eq!(speed.state, State::Warming);
    assert_eq!(speed.changes, ["kernel 6.8 became 6.11"]);
    let finding = speed.finding(&Target::Pci(GPU.into())).unwrap();
    assert!(finding.found.contains("begins anew: kernel 6.8 became 6.11"), "{}", finding.found);
    assert!(node.later(3600.0).hbm(3e12).changes.is_empty());
}

#[test]
fn a_baseline_is_accepted_and_reset_for_what_is_named() {
    let mut node = Node::new().calm();
    let hbm = Which { probe: Some("hbm"), target: Some(GPU) };
    assert_eq!(node.book.accept(&hbm, 5.0), 1);
    let of = |node: &Node| {
        node.book
            .entries()
            .filter_map(|entry| Some((entry.probe.to_string(), entry.frozen?.at)))
            .collect::<Vec<_>>()
    };
    assert!(of(&node).contains(&("hbm".to_string(), 5.0)));
    assert_eq!(node.book.reset(&hbm), 1);
    assert!(of(&node).iter().all(|(probe, _)| probe != "hbm"));
    assert_eq!(node.book.reset(&Which { probe: None, target: Some("nobody") }), 0);
    assert!(node.book.entries().count() > 0);
}

#[test]
fn a_baseline_is_frozen_by_itself_after_enough_calm_samples() {
    let mut node = Node::new();
    for hour in 0..47 {
        node.at = f64::from(hour) * 3600.0;
        node.hbm(4e12);
    }
    assert!(node.book.entries().all(|entry| entry.frozen.is_none()));
    node.later(3600.0).hbm(4e12);
    let frozen: Vec<f64> = node.book.entries().filter_map(|entry| Some(entry.frozen?.value)).collect();
    assert_eq!(frozen.len(), 1);
    assert!((frozen[0] / 4e12 - 1.0).abs() < 1e-6);
}

#[test]
fn what_the_operator_expects_replaces_the_baseline() {
    let mut node = Node::new().calm();
    let bound = |expected| probes::Bound {
        metric: probes::find_metric("hbm_bandwidth_bytes_per_second").unwrap(),
        series: vec![("gpu", GPU.to_string())],
        expected,
        tolerance: 0.9,
        section: "probe.hbm",
    };
    let mut reading = Reading::of(Target::Pci(GPU.into()));
    reading.measurements.push(probes::Measurement {
        metric: probes::find_metric("hbm_bandwidth_bytes_per_second").unwrap(),
        labels: vec![GPU.into()],
        value: 4e12,
    });
    for (expected, state) in [(4.2e12, State::Fine), (4.6e12, State::Suspect)] {
        reading.bounds = vec![bound(expected)];
        let seen = Seen {
            probe: probes::find("hbm").unwrap(),
            inventory: &node.inventory,
            settings: &node.settings,
            peer: None,
            at: node.at,
            manner: MANNER,
        };
        let speed = node.book.observe(seen, &reading).unwrap();
        assert_eq!(speed.state, state);
        assert_eq!(speed.ratio, Some(4e12 / expected));
    }
}

#[test]
fn one_bad_gpu_is_named_by_copies_between_gpus_and_by_collectives() {
    let mut node = Node::new();
    let pairs = |slow: f64| {
        [("a", "b", slow), ("b", "a", slow), ("a", "c", slow), ("b", "c", 400e9)].map(|pair| pair)
    };
    let p2p = |node: &mut Node, slow: f64| {
        let values: Vec<(&str, [&str; 2], f64)> = pairs(slow)
            .map(|(src, dst, value)| ("p2p_bandwidth_bytes_per_second", [src, dst], value))
            .to_vec();
        let values: Vec<(&str, &[&str], f64)> =
            values.iter().map(|(metric, labels, value)| (*metric, &labels[..], *value)).collect();
        node.run("p2p", None, &values)
    };
    let all_reduce = |node: &mut Node, value: f64| {
        let metric = "collective_bus_bandwidth_bytes_per_second";
        node.run("collectives", None, &[(metric, &["all_reduce", "node"], value)])
    };
    for _ in 0..20 {
        p2p(&mut node, 400e9);
        all_reduce(&mut node, 300e9);
        node.later(3600.0);
    }
    assert_eq!(p2p(&mut node, 300e9).part.as_deref(), Some("a"));
    assert_eq!(all_reduce(&mut node, 250e9).part.as_deref(), Some("a"));
}
