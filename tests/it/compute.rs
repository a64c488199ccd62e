//! Probes that make GPUs compute, through the whole agent, with libraries that stand in for the
//! vendors': what is measured, how each fault ends, and that nothing is left behind.

use std::{fs, path::Path, thread, time::Duration};

use rustix::process::Signal;

use crate::{
    agent::{Agent, Answer, Machine, value},
    vendor::{Vendor, libraries},
};

/// A recorded node of eight GPUs whose libraries stand in.
struct Node {
    machine: Machine,
    gpus: Vec<String>,
    uuids: Vec<String>,
}

impl Node {
    fn of(vendor: Vendor) -> Node {
        let machine = Machine::recorded(match vendor {
            Vendor::Amd => "mi300x",
            Vendor::Nvidia => "h200",
        });
        let list = machine.run(&["list", "--json"]);
        let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
        let gpus = list["inventory"]["gpus"].as_array().unwrap();
        let gpus: Vec<String> =
            gpus.iter().map(|gpu| gpu["function"]["pci"].as_str().unwrap().to_string()).collect();
        assert_eq!(gpus.len(), 8);
        let uuids = gpus.iter().map(|pci| uuid(&machine, vendor, pci)).collect();
        Node { machine, gpus, uuids }
    }

    /// Starts an agent that measures only when asked. `fault` is told to the libraries.
    fn start(&self, libraries: &Path, fault: &str, more: &str) -> Agent {
        let names = self.gpus.iter().zip(&self.uuids).map(|(pci, uuid)| format!("{pci}={uuid}"));
        // What an agent before this one has measured would count against the budgets.
        let _ = fs::remove_dir_all(self.machine.path("state"));
        let gpus = if fault == "none" { String::new() } else { names.collect::<Vec<_>>().join(",") };
        self.machine.configure(&format!(
            "active = true\noccupancy.check = false\n\
             budget = {{ gpu_seconds_per_hour = 3600.0, heavy_runs_per_hour = 1000 }}\n\
             [compute]\nlibrary_directories = [{:?}]\nenvironment = [\"FAKE_GPUS={gpus}\", \"FAKE_FAULT={fault}\"]\n\
             [probe.gemm]\ninterval = \"7d\"\nsize = 256\nburst = \"5ms\"\ntypes = [\"bf16\", \"fp16\", \"fp8\", \"tf32\", \"fp32\"]\n\
             [probe.gemm_sustained]\nload = \"300ms\"\n\
             [probe.hbm]\ninterval = \"7d\"\nsize_mib = 1\n\
             [probe.host_copy]\ninterval = \"7d\"\nsize_mib = 1\n\
             [probe.p2p]\ninterval = \"7d\"\nsize_mib = 1\n\
             [probe.collectives]\ninterval = \"7d\"\nsizes_mib = [1]\n\
             [probe.collectives_sweep]\nmost_mib = 1\n{more}",
            libraries.display()
        ));
        self.machine.start()
    }

    fn probe(&self, test: &str, target: &str) -> Answer {
        self.machine.ask("GET", &format!("/probe?test={test}&target={target}&debug=true"), "")
    }

    /// The first GPU.
    fn first(&self) -> &str {
        &self.gpus[0]
    }
}

/// What a GPU calls itself, where its driver shows that.
fn uuid(machine: &Machine, vendor: Vendor, pci: &str) -> String {
    match vendor {
        Vendor::Amd => {
            let file = machine.file(&format!("sys/bus/pci/devices/{pci}/unique_id"));
            format!("GPU-{}", fs::read_to_string(file).unwrap().trim())
        }
        Vendor::Nvidia => {
            let file = machine.file(&format!("proc/driver/nvidia/gpus/{pci}/information"));
            let text = fs::read_to_string(file).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("GPU UUID:")).unwrap();
            line.trim().to_string()
        }
    }
}

fn near(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 1e-3
}

/// The verdict of an answer, as its metric has it.
fn verdict(answer: &Answer, test: &str, target: &str) -> Option<f64> {
    value(&answer.body, &format!("fabricpulse_lane_verdict{{probe=\"{test}\",target=\"{target}\"}}"))
}

#[test]
fn both_vendors_take_one_way_and_give_what_their_libraries_do() {
    for vendor in [Vendor::Amd, Vendor::Nvidia] {
        let node = Node::of(vendor);
        let agent = node.start(libraries(vendor), "", "");
        let gpu = node.first();
        for (test, series, expected) in [
            ("hbm", format!("hbm_bandwidth_bytes_per_second{{gpu=\"{gpu}\"}}"), 4e12),
            (
                "host_copy",
                format!("host_copy_bandwidth_bytes_per_second{{gpu=\"{gpu}\",direction=\"host_to_device\"}}"),
                50e9,
            ),
            (
                "host_copy",
                format!("host_copy_bandwidth_bytes_per_second{{gpu=\"{gpu}\",direction=\"device_to_host\"}}"),
                40e9,
            ),
            (
                "host_copy",
                format!("host_copy_bandwidth_bytes_per_second{{gpu=\"{gpu}\",direction=\"both\"}}"),
                80e9,
            ),
            ("gemm", format!("gemm_flops{{gpu=\"{gpu}\",dtype=\"bf16\"}}"), 1e14),
            ("gemm", format!("gemm_flops{{gpu=\"{gpu}\",dtype=\"fp8\"}}"), 1e14),
            ("gemm", format!("gemm_flops{{gpu=\"{gpu}\",dtype=\"fp32\"}}"), 1e14),
            ("gemm_sustained", format!("gemm_sustained_flops{{gpu=\"{gpu}\",when=\"last\"}}"), 1e14),
        ] {
            let answer = node.probe(test, gpu);
            let found = value(&answer.body, &format!("fabricpulse_{series}"));
            assert!(found.is_some_and(|found| near(found, expected)), "{vendor:?} {series}: {}", answer.body);
            assert_eq!(verdict(&answer, test, gpu), Some(0.0), "{vendor:?} {test}: {}", answer.body);
        }
        let answer = node.probe("p2p", "node");
        let (a, b) = (&node.gpus[0], &node.gpus[7]);
        let way = |from: &str, to: &str| format!("{{src=\"{from}\",dst=\"{to}\"}}");
        for pair in [way(a, b), way(b, a)] {
            let found = value(&answer.body, &format!("fabricpulse_p2p_bandwidth_bytes_per_second{pair}"));
            assert!(found.is_some_and(|found| near(found, 300e9)), "{vendor:?} {pair}: {}", answer.body);
        }
        let ways = answer.body.matches("\nfabricpulse_p2p_bandwidth_bytes_per_second{").count();
        let both = answer.body.matches("\nfabricpulse_p2p_both_ways_bandwidth_bytes_per_second{").count();
        assert_eq!((ways, both), (56, 28), "{vendor:?}");
        for test in ["rccl", "nccl", "collectives"] {
            let answer = node.probe(test, "node");
            assert_eq!(verdict(&answer, "collectives", "node"), Some(0.0), "{vendor:?}: {}", answer.body);
            let ops = answer.body.matches("\nfabricpulse_collective_bus_bandwidth_bytes_per_second{").count();
            assert_eq!(ops, 6, "{vendor:?}: {}", answer.body);
        }
        let metrics = agent.metrics();
        for (test, target) in [("gemm", gpu), ("collectives", "node")] {
            let series = format!("fabricpulse_corrupt_results_total{{probe=\"{test}\",target=\"{target}\"}}");
            assert_eq!(value(&metrics, &series), Some(0.0), "{metrics}");
        }
        let corrupt = metrics.matches("\nfabricpulse_corrupt_results_total{").count();
        assert_eq!(corrupt, 9, "eight GPUs and the node, from the start");
    }
}

#[test]
fn a_sweep_tells_every_size_and_leaves_no_series() {
    let node = Node::of(Vendor::Amd);
    let agent = node.start(libraries(Vendor::Amd), "", "");
    let answer = node.probe("collectives_sweep", "node");
    let rows = answer.body.matches("\nfabricpulse_collective_sweep_bus_bandwidth_bytes_per_second{").count();
    assert!(rows >= 6 * 14, "{rows} rows: {}", answer.body);
    assert!(!agent.metrics().contains("sweep_bus_bandwidth"));
}

#[test]
fn every_fault_has_its_own_end_and_words() {
    const UNKNOWN: f64 = 3.0;
    const FAIL: f64 = 2.0;
    const DEGRADED: f64 = 1.0;
    let table = [
        ("hbm", "memory", UNKNOWN, "ErrorMemoryAllocation (2): out of memory"),
        ("hbm", "ecc", FAIL, "uncorrectable ECC error"),
        ("host_copy", "crash", UNKNOWN, "signal 6"),
        ("host_copy", "hang", UNKNOWN, "at its deadline of 1 s"),
        ("gemm", "hang_start", UNKNOWN, "at its deadline of 1 s"),
        ("hbm", "none", UNKNOWN, "no GPU answers"),
        ("p2p", "apart=3", DEGRADED, "14 of 56 ways are not direct"),
        ("gemm", "flip=2", FAIL, "the same product gave"),
        ("collectives", "wrong", FAIL, "all_reduce"),
        ("collectives", "nccl", UNKNOWN, "unhandled system error"),
    ];
    for vendor in [Vendor::Amd, Vendor::Nvidia] {
        let node = Node::of(vendor);
        for (test, fault, expected, words) in table {
            let timeout = if fault.starts_with("hang") {
                format!("[probe.{test}]\ninterval = \"7d\"\ntimeout = \"1s\"\n")
            } else {
                String::new()
            };
            let agent = start_with_section(&node, vendor, fault, test, &timeout);
            let target = if ["p2p", "collectives"].contains(&test) { "node" } else { node.first() };
            let answer = node.probe(test, target);
            assert_eq!(
                verdict(&answer, test, target),
                Some(expected),
                "{vendor:?} {test} {fault}: {}",
                answer.body
            );
            assert!(answer.body.contains(words), "{vendor:?} {test} {fault}: {}", answer.body);
            let series = format!("fabricpulse_corrupt_results_total{{probe=\"{test}\",target=\"{target}\"}}");
            let corrupt = value(&agent.metrics(), &series).unwrap_or(0.0);
            assert_eq!(corrupt > 0.0, ["flip=2", "wrong"].contains(&fault), "{vendor:?} {test} {fault}");
            assert!(workers(&agent).is_empty(), "{vendor:?} {test} {fault}: a worker is left");
        }
    }
}

/// Starts an agent where a section of the usual ones is another.
fn start_with_section(node: &Node, vendor: Vendor, fault: &str, test: &str, section: &str) -> Agent {
    if section.is_empty() {
        return node.start(libraries(vendor), fault, "");
    }
    drop(node.start(libraries(vendor), fault, ""));
    let text = fs::read_to_string(node.machine.config()).unwrap();
    let usual = format!("[probe.{test}]\ninterval = \"7d\"\n");
    assert!(text.contains(&usual));
    fs::write(node.machine.config(), text.replace(&usual, section)).unwrap();
    node.machine.start()
}

/// The computing workers that this agent has started and that are still there.
fn workers(agent: &Agent) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{}/task", agent.pid())).unwrap().flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<i32> = children
        .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    let computes = |pid: &i32| {
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        ["gemm", "hbm", "host_copy", "p2p", "collectives"]
            .contains(&command.trim_end_matches('\0').rsplit('\0').next().unwrap())
    };
    children.into_iter().filter(computes).collect()
}

#[test]
fn a_gpu_that_repeats_wrong_numbers_is_found_by_its_siblings() {
    let node = Node::of(Vendor::Nvidia);
    let bent = &node.uuids[5];
    let agent = node.start(libraries(Vendor::Nvidia), &format!("bent={bent}"), "");
    for gpu in [0, 1] {
        assert_eq!(verdict(&node.probe("gemm", &node.gpus[gpu]), "gemm", &node.gpus[gpu]), Some(0.0));
    }
    let gpu = &node.gpus[5];
    let answer = node.probe("gemm", gpu);
    assert_eq!(verdict(&answer, "gemm", gpu), Some(2.0), "{}", answer.body);
    assert!(answer.body.contains("other bits than GPUs of the same kind"), "{}", answer.body);
    let series = format!("fabricpulse_corrupt_results_total{{probe=\"gemm\",target=\"{gpu}\"}}");
    assert_eq!(value(&agent.metrics(), &series), Some(1.0));
}

#[test]
fn what_is_missing_makes_a_run_unsupported_and_says_where_it_was_looked_for() {
    let node = Node::of(Vendor::Nvidia);
    let empty = tempfile::tempdir().unwrap();
    let _agent = node.start(empty.path(), "", "");
    let answer = node.probe("hbm", node.first());
    assert_eq!(verdict(&answer, "hbm", node.first()), Some(3.0), "{}", answer.body);
    for words in ["libcudart.so.13 or", "is not installed: tried", empty.path().to_str().unwrap()] {
        assert!(answer.body.contains(words), "{words}: {}", answer.body);
    }
}

#[test]
fn a_gpu_that_is_cut_into_several_is_not_measured() {
    let node = Node::of(Vendor::Amd);
    let mode = format!("sys/bus/pci/devices/{}/current_compute_partition", node.first());
    fs::write(node.machine.file(&mode), "CPX\n").unwrap();
    let _agent = node.start(libraries(Vendor::Amd), "", "");
    let answer = node.probe("gemm", node.first());
    assert_eq!(verdict(&answer, "gemm", node.first()), Some(3.0), "{}", answer.body);
    assert!(answer.body.contains("partitioned: "), "{}", answer.body);
}

#[test]
fn a_worker_goes_with_its_agent_and_with_whoever_asked() {
    let node = Node::of(Vendor::Nvidia);
    let agent = node.start(libraries(Vendor::Nvidia), "hang", "");
    let path = format!("/probe?test=hbm&target={}", node.first());
    let ask = {
        let socket = node.machine.path("agent.sock");
        thread::spawn(move || {
            use std::io::{Read as _, Write as _};
            let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Prometheus-Scrape-Timeout-Seconds: 2\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).unwrap();
            let _ = stream.read_to_string(&mut String::new());
        })
    };
    let child = agent.wait("started", |agent| workers(agent).first().copied());
    agent.signal(Signal::KILL);
    drop(agent);
    ask.join().unwrap();
    for _ in 0..100 {
        if !Path::new(&format!("/proc/{child}")).exists() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("the worker {child} outlived its agent");
}

#[test]
fn debians_hip_finds_no_gpu_and_that_is_no_fault() {
    let node = Node::of(Vendor::Amd);
    let empty = tempfile::tempdir().unwrap();
    let _agent = node.start(empty.path(), "", "");
    let answer = node.probe("hbm", node.first());
    assert_eq!(verdict(&answer, "hbm", node.first()), Some(3.0), "{}", answer.body);
    assert!(answer.body.contains("unsupported: no GPU answers: hipErrorNoDevice (100)"), "{}", answer.body);
}
