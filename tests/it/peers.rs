//! Two agents on two recorded machines, with certificates, and a program that stands in for
//! perftest: who may ask, what is measured, what each side learns, and how each fault ends.
#![expect(clippy::disallowed_methods, reason = "a test makes certificates and looks for processes")]

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::agent::{Agent, Answer, Machine, value};

/// One MiB/s in bytes per second.
const MIB: f64 = 1_048_576.0;

/// Nodes that know each other.
struct Fleet {
    folder: tempfile::TempDir,
    port: u16,
    first_port: u16,
}

/// A node of a fleet before its agent runs.
struct Node {
    machine: Machine,
    name: &'static str,
}

impl Fleet {
    /// Certificates by the script that we ship, and a list of peers.
    fn of(names: &[&str]) -> Fleet {
        let folder = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/peers/certificates.sh");
        let made = Command::new(script).args(names).current_dir(folder.path()).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        // perftest's ports are below what the kernel gives to others.
        let first_port = 20_000 + free % 10_000;
        let fleet = Fleet { folder, port: free, first_port };
        fleet.list(names);
        fleet
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the list of peers. The last letter of a name makes its address.
    fn list(&self, names: &[&str]) {
        let entry = |name: &&str| {
            format!(r#"{{"targets": ["{}:10950"], "labels": {{"node": "{name}"}}}}"#, address(name))
        };
        let text = format!("[{}]", names.iter().map(entry).collect::<Vec<_>>().join(","));
        let new = self.path("peers.json.new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.path("peers.json")).unwrap();
    }

    fn node(&self, name: &'static str) -> Node {
        let node = Node { machine: Machine::recorded("mi300x"), name };
        let perftest = node.machine.path("perftest");
        fs::create_dir(&perftest).unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/perftest/perftest");
        fs::copy(&program, perftest.join("perftest")).unwrap();
        for name in ["ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat"] {
            symlink("perftest", perftest.join(name)).unwrap();
        }
        node.say(
            "help",
            "  -d, --ib-dev=<dev>\n      --use_rocm=<id>  Use selected ROCm device\n\nVersion: 6.23\n",
        );
        let class = node.machine.file("sys/class/infiniband");
        let mut gids = String::new();
        for device in fs::read_dir(class).unwrap().map(|entry| entry.unwrap().path()) {
            for index in 0..4 {
                let gid =
                    fs::read_to_string(device.join(format!("ports/1/gids/{index}"))).unwrap_or_default();
                let bytes: Vec<String> = gid
                    .trim()
                    .split(':')
                    .filter_map(|group| u16::from_str_radix(group, 16).ok())
                    .flat_map(u16::to_be_bytes)
                    .map(|byte| format!("{byte:02}"))
                    .collect();
                let device = device.file_name().unwrap().to_string_lossy().into_owned();
                gids.push_str(&format!("{device} {index} {}\n", bytes.join(":")));
            }
        }
        node.say("gids", &gids);
        let gpus: Vec<String> = fs::read_dir(node.machine.file("sys/bus/pci/drivers/amdgpu"))
            .map(|entries| {
                entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
            })
            .unwrap_or_default();
        let mut buses: Vec<&str> = gpus.iter().filter_map(|gpu| gpu.split(':').nth(1)).collect();
        buses.sort_unstable();
        node.say("gpus", &buses.join("\n"));
        self.configure(&node, "");
        node
    }

    fn configure(&self, node: &Node, more: &str) {
        let folder = self.folder.path().display();
        let name = node.name;
        node.machine.configure_as(
            name,
            &format!(
                "active = true\n[occupancy]\ncheck = false\n[budget]\nnetwork_mib_per_hour = 4000000000\ngpu_seconds_per_hour = 3600.0\n\
                 [peers]\nfile_sd = [\"{folder}/peers.json\"]\nlisten_address = [\"{}:{port}\"]\nport = {port}\n\
                 certificate_file = \"{folder}/{name}.pem\"\nkey_file = \"{folder}/{name}.key\"\nca_file = \"{folder}/ca.pem\"\n\
                 first_port = {first}\nports = 2000\n{}\n\
                 [rdma]\nperftest_directory = \"{}\"\nrepeats = 2\n{}\n\
                 [probe.loopback]\ninterval = \"7d\"\n\
                 [probe.ib_write_bw]\ntimeout = \"2s\"\n[probe.ib_write_lat]\ntimeout = \"2s\"\n[probe.gdr]\ntimeout = \"2s\"\n",
                address(name),
                option(more, "peers"),
                node.machine.path("perftest").display(),
                option(more, "rdma"),
                port = self.port,
                first = self.first_port,
            ),
        );
    }
}

impl Node {
    /// Writes a file that directs the stand-in.
    fn say(&self, file: &str, text: &str) {
        fs::write(self.machine.path("perftest").join(file), text).unwrap();
    }

    fn start(&self) -> Agent {
        let agent = self.machine.start();
        agent.wait("the list of peers read", |agent| {
            value(&agent.metrics(), "fabricpulse_peer_members").filter(|members| *members > 0.0)
        });
        agent
    }

    /// Asks once.
    fn probe_once(&self, asked: &str) -> Answer {
        self.machine.ask("GET", &format!("/probe?{asked}&debug=true"), "")
    }

    /// Asks until no lease of the schedule has the device.
    fn probe(&self, asked: &str) -> Answer {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let answer = self.probe_once(asked);
            let taken = ["locked: ", "says no: locked"].iter().any(|word| answer.body.contains(word));
            if !(answer.status == 409 && taken) || Instant::now() > deadline {
                return answer;
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until no stand-in of this node runs and no lease is left.
    fn is_clean(&self, agent: &Agent) {
        agent.wait("clean", |agent| {
            let leases = value(&agent.metrics(), "fabricpulse_peer_leases");
            (leases == Some(0.0) && processes(&self.machine.path("perftest")).is_empty()).then_some(())
        });
    }
}

/// 127.0.0.1 for `node-a`.
fn address(name: &str) -> String {
    format!("127.0.0.{}", name.bytes().last().unwrap() - b'a' + 1)
}

/// The lines for a section, from `section: line` lines.
fn option(more: &str, section: &str) -> String {
    let prefix = format!("{section}: ");
    more.lines().filter_map(|line| line.strip_prefix(&prefix)).collect::<Vec<_>>().join("\n")
}

/// Running processes of a folder's programs.
fn processes(folder: &Path) -> Vec<String> {
    let folder = folder.to_string_lossy().into_owned();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "))
        .filter(|line| line.contains(&folder) && line.contains("perl"))
        .collect()
}

fn close(found: Option<f64>, wanted: f64) -> bool {
    found.is_some_and(|found| (found / wanted - 1.0).abs() < 0.001)
}

fn sent(metrics: &str, device: &str, peer: &str, memory: &str, direction: &str) -> Option<f64> {
    value(
        metrics,
        &format!(
            "fabricpulse_rdma_write_bandwidth_bytes_per_second{{device=\"{device}\",peer=\"{peer}\",memory=\"{memory}\",direction=\"{direction}\"}}"
        ),
    )
}

#[test]
fn a_pair_is_measured_both_ways_and_both_sides_learn() {
    let fleet = Fleet::of(&["node-a", "node-b"]);
    let (a, b) = (fleet.node("node-a"), fleet.node("node-b"));
    a.say("figures", "ib_write_bw host 46000\nib_write_lat host 1.80\n");
    b.say("figures", "ib_write_bw host 45000\n");
    let (agent_a, agent_b) = (a.start(), b.start());
    let answer = a.probe("test=ib_write_bw&peer=node-b&target=ionic_0");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(value(&answer.body, "probe_success"), Some(1.0), "{}", answer.body);
    assert!(close(sent(&answer.body, "ionic_0", "node-b", "host", "sent"), 46000.0 * MIB), "{}", answer.body);
    assert!(
        close(sent(&answer.body, "ionic_0", "node-b", "host", "received"), 46000.0 * MIB),
        "{}",
        answer.body
    );
    let other = agent_b.wait("learned", |agent| sent(&agent.metrics(), "ionic_0", "node-a", "host", "sent"));
    assert!(close(Some(other), 45000.0 * MIB), "{other}");
    let latency = a.probe("test=ib_write_lat&peer=node-b&target=ionic_3");
    let series =
        "fabricpulse_rdma_write_latency_seconds{device=\"ionic_3\",peer=\"node-b\",quantile=\"0.5\"}";
    assert!(close(value(&latency.body, series), 1.8e-6), "{}", latency.body);
    let metrics = agent_b.metrics();
    assert_eq!(value(&metrics, "fabricpulse_coverage_partners{device=\"ionic_0\"}"), Some(1.0));
    assert!(value(&metrics, "fabricpulse_peer_clock_skew_seconds").is_some_and(|skew| skew.abs() < 5.0));
    a.is_clean(&agent_a);
    b.is_clean(&agent_b);
}

#[test]
fn recorded_outputs_of_real_nodes_come_through() {
    let fleet = Fleet::of(&["node-a", "node-b"]);
    let (a, b) = (fleet.node("node-a"), fleet.node("node-b"));
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("probes/testdata/rdma");
    for node in [&a, &b] {
        for (to, from) in [("host", "mi355x-bidirectional.txt"), ("gpu", "mi355x-rocm.txt")] {
            node.say(&format!("ib_write_bw.{to}"), &fs::read_to_string(recorded.join(from)).unwrap());
        }
        // The largest message of the recorded sweeps.
        fleet.configure(node, "rdma: size = 8388608");
    }
    let (_a, _b) = (a.start(), b.start());
    let answer = a.probe("test=gdr&peer=node-b&target=ionic_1");
    assert_eq!(answer.status, 200, "{answer:?}");
    // 697.97 Gb/s of both directions together; 779.21 from host memory.
    assert!(
        close(sent(&answer.body, "ionic_1", "node-b", "gpu", "sent"), 697.97e9 / 16.0),
        "{}",
        answer.body
    );
    let ratio = value(&answer.body, "fabricpulse_gdr_host_ratio{device=\"ionic_1\",peer=\"node-b\"}");
    assert!(close(ratio, 697.97 / 779.21), "{}", answer.body);
}

#[test]
fn pairs_find_each_other_by_themselves() {
    let fleet = Fleet::of(&["node-a", "node-b"]);
    let (a, b) = (fleet.node("node-a"), fleet.node("node-b"));
    for node in [&a, &b] {
        fleet.configure(node, "peers: slot = \"10s\"\nrdma: rails = [\"ionic_0\", \"ionic_1\"]");
    }
    let agents = [a.start(), b.start()];
    for (agent, peer) in agents.iter().zip(["node-b", "node-a"]) {
        for device in ["ionic_0", "ionic_1"] {
            let found = patient(agent, |metrics| {
                let all = ["sent", "received"].map(|direction| {
                    sent(metrics, device, peer, "host", direction)
                        .and(sent(metrics, device, peer, "gpu", direction))
                });
                all.iter().all(Option::is_some).then_some(())
            });
            assert!(found.is_some(), "{device}: {}", agent.metrics());
        }
    }
    for (node, agent) in [&a, &b].iter().zip(&agents) {
        node.is_clean(agent);
    }
}

/// Waits for something that takes a slot or two.
fn patient<T>(agent: &Agent, mut holds: impl FnMut(&str) -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some(value) = holds(&agent.metrics()) {
            return Some(value);
        }
        thread::sleep(Duration::from_millis(200));
    }
    None
}

#[test]
fn a_fault_on_either_side_ends_in_words_and_never_in_fail() {
    let fleet = Fleet::of(&["node-a", "node-b"]);
    let (a, b) = (fleet.node("node-a"), fleet.node("node-b"));
    let (agent_a, agent_b) = (a.start(), b.start());
    let table = [
        ("a", "client 1 Failed status 12: wr_id 0 syndrom 0x81", "12"),
        ("b", "client 1 Failed status 12: wr_id 0 syndrom 0x81", "node-b: "),
        ("a", "client hang", "deadline of 2 s"),
        ("b", "server hang", "ib_write_bw"),
        ("a", "client die", "signal 9"),
        ("b", "client die", "node-b: "),
        ("b", "server die", "ib_write_bw"),
        ("a", "client silent", "unreadable"),
        ("a", "client zero", "unreadable"),
        ("b", "server wrong-gid", "unreadable"),
        ("b", "server 1 Couldn't listen to port 18515", "node-b: "),
        ("b", "server 1 Couldn't allocate MR", "node-b: "),
    ];
    for (side, fault, words) in table {
        let node = if side == "a" { &a } else { &b };
        node.say("fault", &format!("{fault}\n"));
        let answer = a.probe("test=ib_write_bw&peer=node-b&target=ionic_2");
        assert_eq!(answer.status, 200, "{fault} on {side}: {answer:?}");
        assert!(answer.body.contains(words), "{fault} on {side}: {}", answer.body);
        assert!(answer.body.contains("probe_success 0"), "{fault} on {side}: {}", answer.body);
        node.say("fault", "");
        a.is_clean(&agent_a);
        b.is_clean(&agent_b);
        for agent in [&agent_a, &agent_b] {
            let verdict = "fabricpulse_lane_verdict{probe=\"ib_write_bw\",target=\"ionic_2\"}";
            assert_ne!(value(&agent.metrics(), verdict), Some(2.0), "{fault} on {side}");
        }
    }
    let answer = a.probe("test=ib_write_bw&peer=node-b&target=ionic_2");
    assert_eq!(value(&answer.body, "probe_success"), Some(1.0), "{}", answer.body);
}

#[test]
fn who_is_not_known_or_trusted_or_set_up_alike_is_refused_in_words() {
    let fleet = Fleet::of(&["node-a", "node-b", "node-c"]);
    fleet.list(&["node-a", "node-b", "node-d"]);
    let (a, b) = (fleet.node("node-a"), fleet.node("node-b"));
    let (agent_a, _b) = (a.start(), b.start());
    let ask = |peer: &str| a.probe(&format!("test=ib_write_bw&peer={peer}&target=ionic_0"));
    assert_eq!(ask("node-x").status, 400);
    assert_eq!(a.probe("test=pcie&peer=node-b").status, 400);
    let away = ask("node-d");
    assert_eq!(away.status, 409, "{away:?}");
    assert!(away.body.contains("away: node-d: no answer at 127.0.0.4"), "{away:?}");
    assert!(away.head.to_lowercase().contains("retry-after"), "{away:?}");

    // Somebody else's certificate at the address of node-d.
    let d = fleet.node("node-c");
    let text = fs::read_to_string(d.machine.config()).unwrap().replace("127.0.0.3", "127.0.0.4");
    fs::write(d.machine.config(), text).unwrap();
    let _d = d.machine.start();
    let wrong = ask("node-d");
    assert!(wrong.status == 409 && wrong.body.contains("untrusted: node-d"), "{wrong:?}");

    // node-b does not know node-a any more.
    let b_only = fleet.path("b.json");
    fs::write(&b_only, r#"[{"targets": ["127.0.0.2:1"], "labels": {"node": "node-b"}}]"#).unwrap();
    let text = fs::read_to_string(b.machine.config()).unwrap();
    fs::write(
        b.machine.config(),
        text.replace(&fleet.path("peers.json").display().to_string(), &b_only.display().to_string()),
    )
    .unwrap();
    assert_eq!(b.machine.ask("POST", "/-/reload", "").status, 200);
    let stranger = agent_a.wait("unknown", |_| {
        let answer = ask("node-b");
        answer.body.contains("unknown_peer").then_some(answer)
    });
    assert_eq!(stranger.status, 409, "{stranger:?}");

    fleet.configure(&b, "rdma: size = 65536");
    assert_eq!(b.machine.ask("POST", "/-/reload", "").status, 200);
    let differs = agent_a.wait("known again", |_| {
        let answer = ask("node-b");
        (!answer.body.contains("unknown_peer")).then_some(answer)
    });
    assert!(differs.status == 409 && differs.body.contains("size"), "{differs:?}");

    // A held partner says so, and when it ends.
    fleet.configure(&b, "");
    assert_eq!(b.machine.ask("POST", "/-/reload", "").status, 200);
    assert_eq!(b.machine.ask("POST", "/api/v1/hold", r#"{"for": "10m", "reason": "job-4711"}"#).status, 200);
    let held = ask("node-b");
    assert!(held.status == 409 && held.body.contains("held"), "{held:?}");
    assert!(held.head.to_lowercase().contains("retry-after: "), "{held:?}");
}

#[test]
fn two_who_ask_each_other_at_once_are_both_answered() {
    let fleet = Fleet::of(&["node-a", "node-b"]);
    let (a, b) = (fleet.node("node-a"), fleet.node("node-b"));
    let (agent_a, agent_b) = (a.start(), b.start());
    for _ in 0..3 {
        let answers = thread::scope(|scope| {
            let one = scope.spawn(|| a.probe("test=ib_write_bw&peer=node-b&target=ionic_4"));
            let other = scope.spawn(|| b.probe("test=ib_write_bw&peer=node-a&target=ionic_4"));
            [one.join().unwrap(), other.join().unwrap()]
        });
        assert!(answers.iter().any(|answer| answer.status == 200), "{answers:?}");
        assert!(answers.iter().all(|answer| [200, 409].contains(&answer.status)), "{answers:?}");
    }
    a.is_clean(&agent_a);
    b.is_clean(&agent_b);
}

#[test]
fn an_agent_that_is_killed_takes_its_programs_with_it_and_its_partner_goes_on() {
    let fleet = Fleet::of(&["node-a", "node-b"]);
    let (a, b) = (fleet.node("node-a"), fleet.node("node-b"));
    fs::write(b.machine.path("perftest/fault"), "server hang\n").unwrap();
    let (agent_a, agent_b) = (a.start(), b.start());
    let began = Instant::now();
    let answer = thread::scope(|scope| {
        let asked = scope.spawn(|| a.probe("test=ib_write_bw&peer=node-b&target=ionic_5"));
        agent_b.wait("serving", |_| (!processes(&b.machine.path("perftest")).is_empty()).then_some(()));
        agent_b.signal(rustix::process::Signal::KILL);
        asked.join().unwrap()
    });
    assert!(answer.body.contains("partner's half was over") || answer.body.contains("node-b"), "{answer:?}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    a.is_clean(&agent_a);
    agent_a.wait("nothing left of the other", |_| {
        processes(&b.machine.path("perftest")).is_empty().then_some(())
    });
}

#[test]
fn two_hundred_requests_at_once_are_bounded_and_leave_nothing() {
    let fleet = Fleet::of(&["node-a", "node-b"]);
    let (a, b) = (fleet.node("node-a"), fleet.node("node-b"));
    let (agent_a, agent_b) = (a.start(), b.start());
    let statuses: Vec<u16> = thread::scope(|scope| {
        let ask = |index: usize| {
            let a = &a;
            move || a.probe_once(&format!("test=ib_write_bw&peer=node-b&target=ionic_{}", index % 8)).status
        };
        let asked: Vec<_> = (0..200).map(|index| scope.spawn(ask(index))).collect();
        asked.into_iter().map(|thread| thread.join().unwrap_or(0)).collect()
    });
    let of = |status: u16| statuses.iter().filter(|found| **found == status).count();
    assert!(of(200) >= 1, "{statuses:?}");
    assert_eq!(of(200) + of(409) + of(429) + of(503), 200, "{statuses:?}");
    a.is_clean(&agent_a);
    b.is_clean(&agent_b);
}

#[test]
fn ten_thousand_members_cost_little_memory_and_no_series() {
    let fleet = Fleet::of(&["node-a"]);
    let entry = |index: usize| {
        let (high, low) = (index / 256, index % 256);
        format!(
            r#"{{"targets": ["127.7.{high}.{low}:10950"], "labels": {{"node": "gpu-node-{index:05}", "rack": "r{high}"}}}}"#
        )
    };
    let own = r#"{"targets": ["127.0.0.1:10950"], "labels": {"node": "node-a"}}"#.to_string();
    let entries: Vec<String> = (0..9_999).map(entry).chain([own]).collect();
    fs::write(fleet.path("peers.json"), format!("[{}]", entries.join(","))).unwrap();
    let a = fleet.node("node-a");
    let agent = a.start();
    let metrics = agent.wait("ten thousand members", |agent| {
        let metrics = agent.metrics();
        (value(&metrics, "fabricpulse_peer_members") == Some(10_000.0)).then_some(metrics)
    });
    // Somebody who asks makes it compute the pairs.
    let away = a.probe("test=ib_write_bw&target=ionic_0");
    assert_eq!(away.status, 409, "{away:?}");
    let resident = value(&agent.metrics(), "process_resident_memory_bytes").unwrap();
    assert!(resident < 40.0 * MIB, "{} MiB", resident / MIB);
    assert!(!metrics.contains("gpu-node-"), "no series bears the name of a node that was not measured with");
}

#[test]
fn eight_nics_with_three_partners_stay_inside_the_bound() {
    let fleet = Fleet::of(&["node-a", "node-b"]);
    let (a, b) = (fleet.node("node-a"), fleet.node("node-b"));
    let (agent, _b) = (a.start(), b.start());
    for test in ["ib_write_bw&peer=node-b", "ib_write_lat&peer=node-b", "gdr&peer=node-b", "loopback"] {
        let answer = a.probe(&format!("test={test}&target=ionic_0"));
        assert!(answer.body.contains("probe_success 1"), "{test}: {}", answer.body);
    }
    agent.signal(rustix::process::Signal::TERM);
    agent.end();
    // What a day of four nodes would have left: the same runs of every device with every partner.
    let journal = a.machine.path("state/journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let measured =
        text.lines().filter(|line| line.contains("ionic_0\"}") && line.contains("\"trigger\":\"on_demand\""));
    let mut more = text.clone();
    for line in measured {
        for device in 0..8 {
            for peer in ["node-b", "node-c", "node-d"] {
                let line = line.replace("ionic_0", &format!("ionic_{device}")).replace("node-b", peer);
                more.push_str(&line);
                more.push('\n');
            }
        }
    }
    fs::write(&journal, more).unwrap();
    let metrics = a.start().settled(40);
    let of = |family: &str| {
        metrics.lines().filter(|line| line.starts_with(&format!("fabricpulse_{family}{{"))).count()
    };
    assert_eq!(of("rdma_write_bandwidth_bytes_per_second"), 8 * 3 * 2 * 2);
    assert_eq!(of("rdma_write_latency_seconds"), 8 * 3 * 2);
    assert_eq!(of("gdr_host_ratio"), 8 * 3);
    assert_eq!(of("rdma_loopback_bandwidth_bytes_per_second"), 8 * 2);
    assert_eq!(value(&metrics, "fabricpulse_coverage_partners{device=\"ionic_7\"}"), Some(3.0));
    let series = metrics.lines().filter(|line| !line.starts_with('#')).count();
    // No library computes here, so what eight GPUs would give is added: products of four types, copies
    // within, three ways to the host, 56 ways between them and 28 both ways, six collectives twice;
    // and two times of each of their lanes, and how it compares.
    let of_gpus = 8 * (4 + 1 + 3) + 56 + 28 + 6 * 2 + (8 * 3 + 2) * 3;
    assert!(series + of_gpus <= 1600, "{series} series and {of_gpus} of GPUs");
}
