//! Two agents on the two ends of a wire, with certificates, real perftest and a real kernel: what
//! they measure is what the wire gives, and every fault ends in one right way and leaves nothing.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{
    agent::{self, Scrape},
    machine::Machine,
};

/// What Ethernet, IP, UDP and the RDMA transport leave of a packet of 4096 bytes.
const HEADERS: f64 = 4096.0 / (4096.0 + 14.0 + 20.0 + 8.0 + 12.0 + 16.0 + 4.0);
/// Limits of the wire, in bits per second: what an emulated processor can fill, and less. At half of
/// the first, large messages queue up for longer than Soft-RoCE waits for their acknowledgement.
const LIMITS: [f64; 2] = [100e6, 75e6];
/// perftest's processes on either side, in the direction in which node-a sends.
const CLIENT: &str = "ib_write_bw .*10.0.0.2";
const SERVER: &str = "ib_write_bw -d rxe1";
/// How near the exported value is to the limit of the wire.
const NEAR: f64 = 0.03;
/// Runs at each limit, at most.
const RUNS: usize = 5;
/// A slot, its lease on an emulated processor, and some.
const SLOT: Duration = Duration::from_secs(45);
/// After a fault: the deadline of a call, TERM, KILL, and the answer.
const CLEAN: Duration = Duration::from_secs(40);

/// Two agents in one machine. `a` answers at the port that is forwarded.
struct Pair {
    machine: Machine,
}

/// One agent's configuration.
fn config(name: &str, address: &str, rail: &str, more: &str) -> String {
    format!(
        r#"node_name = "{name}"
active = true
web = {{ socket = "/tmp/{name}.sock" }}
state = {{ directory = "/tmp/{name}.state" }}
[inventory]
interval = "5s"
[peers]
file_sd = ["/tmp/peers.json"]
listen_address = ["{address}:10951"]
certificate_file = "/tmp/{name}.pem"
key_file = "/tmp/{name}.key"
ca_file = "/tmp/ca.pem"
slot = "40s"
[rdma]
rails = ["{rail}"]
size = 65536
queue_pairs = 1
seconds = 0.006
repeats = 2
latency_messages = 100
[probe.ib_write_bw]
interval = "1h"
timeout = "20s"
[probe.ib_write_lat]
timeout = "20s"
# An emulated processor has enough to do.
[probe.gdr]
enabled = false
[probe.node]
enabled = false
[probe.pcie]
enabled = false
[probe.nic]
enabled = false
[probe.gpu]
enabled = false
[probe.loopback]
interval = "7d"
timeout = "20s"
{more}"#
    )
}

pub(crate) fn run() {
    let mut pair = Pair::start();
    pair.finds_its_partner_by_itself();
    pair.measures_the_wire();
    pair.survives_the_wire();
    pair.survives_kills();
    pair.survives_each_other();
    pair.knows_whom_it_talks_to();
}

impl Pair {
    fn start() -> Pair {
        let mut machine = Machine::boot();
        certificates(&machine);
        let stripped = agent::stripped(&machine);
        for (name, address, rail) in [("node-a", "10.0.0.1", "rxe0"), ("node-b", "10.0.0.2", "rxe1")] {
            fs::write(machine.shared(&format!("{name}.toml")), config(name, address, rail, "")).unwrap();
        }
        let peers = r#"[{"targets": ["10.0.0.1:10950"], "labels": {"node": "node-a"}},
                        {"targets": ["10.0.0.2:10950"], "labels": {"node": "node-b"}}]"#;
        fs::write(machine.shared("peers.json"), peers).unwrap();
        machine.sh(&format!(
            ". /lib.sh; rxe_mod; rxe_pair; modprobe e1000e; nic2=$(netdev_of 0000:01:00.0)\n\
             ip addr add 10.0.2.15/24 dev $nic2; ip link set $nic2 up; ip link set lo up\n\
             cp /lab/{stripped} /lab/*.toml /lab/*.pem /lab/*.key /lab/peers.json /tmp/"
        ));
        let mut pair = Pair { machine };
        pair.begin("node-a", 10_950);
        pair.begin("node-b", 10_960);
        pair
    }

    fn begin(&mut self, name: &str, port: u16) {
        self.machine.sh(&format!(
            "cd /tmp; /tmp/fabricpulse --config.file /tmp/{name}.toml --web.listen-address 0.0.0.0:{port} >>/lab/{name}.log 2>&1 &"
        ));
        let began = Instant::now();
        while self.machine.status(&format!("wget -q -O - http://127.0.0.1:{port}/-/ready")).0 != 0 {
            assert!(began.elapsed() < SLOT, "{name} is not ready:\n{}", self.log());
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// What both have logged, and their newest runs.
    fn log(&mut self) -> String {
        let runs = self
            .machine
            .status("tail -n 2 /tmp/node-?.state/journal*; cat /tmp/once /tmp/one /tmp/two 2>/dev/null")
            .1;
        let logs = ["node-a", "node-b"].map(|name| {
            let log = fs::read_to_string(self.machine.shared(&format!("{name}.log"))).unwrap_or_default();
            format!("{name}: {log}")
        });
        format!("{}\n{runs}", logs.join("\n"))
    }

    fn scrape(&mut self, name: &str) -> Scrape {
        let port = if name == "node-a" { 10_950 } else { 10_960 };
        Scrape::read(&self.machine.sh(&format!("wget -q -O - http://127.0.0.1:{port}/metrics")))
    }

    /// A run that a person asks for, once the device is free: its exit code and what is printed.
    fn probe(&mut self, name: &str, arguments: &str) -> (i32, String) {
        let began = Instant::now();
        loop {
            let answer = self
                .machine
                .status(&format!("/tmp/fabricpulse --config.file /tmp/{name}.toml probe {arguments} 2>&1"));
            let taken = ["locked: ", "says no: locked", "busy: "].iter().any(|word| answer.1.contains(word));
            if !taken || began.elapsed() > SLOT {
                return answer;
            }
            thread::sleep(Duration::from_secs(1));
        }
    }

    fn bandwidth(scrape: &Scrape, peer: &str, direction: &str) -> Option<f64> {
        scrape.value(
            "rdma_write_bandwidth_bytes_per_second",
            &[("peer", peer), ("direction", direction), ("memory", "host")],
        )
    }

    /// Both wires let through so many bits per second.
    fn limit(&mut self, bits: f64) {
        self.machine.sh(&format!(
            "for i in v0 v1; do tc qdisc replace dev $i root tbf rate {bits}bit burst 32kb latency 400ms; done"
        ));
    }

    fn unlimited(&mut self) {
        self.machine.sh("for i in v0 v1; do tc qdisc del dev $i root 2>/dev/null; done; true");
    }

    /// Waits until no perftest runs, no port of ours listens and no lease is left, on either side.
    fn clean(&mut self, after: &str) {
        let began = Instant::now();
        loop {
            let (_, running) = self
                .machine
                .status("ps w | grep '[i]b_write' ; grep -i ':48[AB][0-9A-F] 0*:0000 0A' /proc/net/tcp");
            let leases: f64 = ["node-a", "node-b"]
                .iter()
                .map(|name| self.scrape(name).value("peer_leases", &[]).unwrap_or(f64::NAN))
                .sum();
            if running.trim().is_empty() && leases == 0.0 {
                println!("after {after}: clean in {:.1?}", began.elapsed());
                return;
            }
            assert!(began.elapsed() < CLEAN, "after {after}: {leases} leases and {running}\n{}", self.log());
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// A run that must not be taken for a fault of the hardware, and what it says.
    fn ends(&mut self, after: &str, words: &[&str]) {
        let (_, said) = self.probe("node-a", "ib_write_bw --peer node-b");
        assert!(
            words.iter().any(|word| said.contains(word)),
            "after {after}, none of {words:?}: {said}\n{}",
            self.log()
        );
        self.clean(after);
        for name in ["node-a", "node-b"] {
            let scrape = self.scrape(name);
            let failed = scrape.named("lane_verdict").find(|series| {
                series.value == 2.0
                    && series.labels.get("probe").is_some_and(|probe| probe.starts_with("ib_"))
            });
            assert_eq!(failed, None, "after {after}, {name} blames the hardware");
        }
    }

    /// Does something in the background, half a second after a program of this pattern has begun.
    fn once_running(&mut self, pattern: &str, action: &str) {
        self.machine.sh(&format!(
            ". /lib.sh; (for i in $(seq 200); do [ -n \"$(pids_of '{pattern}')\" ] && sleep 0.5 && {action} && break; sleep 0.05; done) >/tmp/once 2>&1 &"
        ));
    }

    fn passes(&mut self, after: &str) {
        let (_, said) = self.probe("node-a", "ib_write_bw --peer node-b");
        assert!(said.contains("probe_success 1"), "after {after}: {said}\n{}", self.log());
    }

    fn finds_its_partner_by_itself(&mut self) {
        let began = Instant::now();
        loop {
            let (a, b) = (self.scrape("node-a"), self.scrape("node-b"));
            let all = ["sent", "received"].iter().all(|direction| {
                Pair::bandwidth(&a, "node-b", direction).is_some()
                    && Pair::bandwidth(&b, "node-a", direction).is_some()
            });
            if all && a.value("rdma_write_latency_seconds", &[("quantile", "0.5")]).is_some() {
                break;
            }
            assert!(began.elapsed() < SLOT * 2, "no pair by itself:\n{}", self.log());
            thread::sleep(Duration::from_millis(300));
        }
        println!("a pair by itself after {:.1?}", began.elapsed());
        let covered = self.scrape("node-b").value("coverage_partners", &[("device", "rxe1")]);
        assert_eq!(covered, Some(1.0));
        self.clean("a round");
    }

    /// A busy host slows the emulated processor below the wire, so the best of a few runs counts.
    /// More than the wire gives is never right.
    fn measures_the_wire(&mut self) {
        for bits in LIMITS {
            self.limit(bits);
            let near = (0..RUNS).any(|_| {
                self.passes("a limited wire");
                let ratios = self.ratios(bits);
                println!("of {:.0} Mbit/s: {ratios:.3?}", bits / 1e6);
                assert!(ratios.iter().all(|ratio| *ratio < 1.0 + NEAR), "more than the wire gives");
                ratios.iter().all(|ratio| *ratio > 1.0 - NEAR)
            });
            assert!(near, "never within {NEAR} of {bits} bit/s");
        }
        self.unlimited();
        self.clean("limits");
    }

    /// What both agents export for both directions, with its headers, as parts of a limit.
    fn ratios(&mut self, bits: f64) -> Vec<f64> {
        let mut ratios = Vec::new();
        for (name, peer) in [("node-a", "node-b"), ("node-b", "node-a")] {
            let scrape = self.scrape(name);
            for direction in ["sent", "received"] {
                let found = Pair::bandwidth(&scrape, peer, direction).unwrap_or_default();
                ratios.push(found * 8.0 / HEADERS / bits);
            }
        }
        ratios
    }

    fn survives_the_wire(&mut self) {
        self.machine.sh("tc qdisc replace dev v0 root netem loss 1%");
        self.ends("loss", &["probe_success 1", "failed: ", "unreadable: "]);
        self.unlimited();
        self.machine.sh("ip link set v1 down");
        self.ends("a link that is down", &["away: node-b", "refused: node-b", "failed: ", "unsupported: "]);
        self.machine.sh(". /lib.sh; ip link set v1 up; rxe_routes v0 v1; sleep 7");
        self.passes("a link that is up again");
        // The wire goes while the client of -n mode sends, which then waits for ever.
        self.limit(100e6);
        self.once_running(
            CLIENT,
            "{ tc qdisc replace dev v0 root netem loss 100%; tc qdisc replace dev v1 root netem loss 100%; }",
        );
        self.ends("a wire that goes in mid-run", &["failed: "]);
        self.unlimited();
        self.machine.sh("sleep 5");
        self.passes("a wire that is back");
    }

    fn survives_kills(&mut self) {
        self.limit(100e6);
        for (who, pattern) in [("the client", CLIENT), ("the server", SERVER)] {
            self.once_running(pattern, &format!("kill -9 $(pids_of '{pattern}')"));
            self.ends(&format!("a kill of {who}"), &["failed: "]);
        }
        // The partner's agent goes in mid-run.
        self.once_running(CLIENT, "kill -9 $(pids_of 'node-b.toml --web')");
        let (_, said) = self.probe("node-a", "ib_write_bw --peer node-b");
        assert!(said.contains("failed: "), "an agent that is killed: {said}");
        self.begin("node-b", 10_960);
        self.unlimited();
        self.clean("a kill of the partner's agent");
        self.passes("its return");
        // A device goes in mid-run, and its lane with it.
        self.limit(100e6);
        self.once_running(CLIENT, "rdma link del rxe1");
        let (_, said) = self.probe("node-a", "ib_write_bw --peer node-b");
        assert!(said.contains("failed: "), "a device that goes: {said}");
        self.unlimited();
        self.clean("a device that goes");
        self.machine.sh("rdma link add rxe1 type rxe netdev v1; sleep 8");
        self.passes("a device that is back");
    }

    fn survives_each_other(&mut self) {
        let script = "for n in 1 2 3; do\n\
            /tmp/fabricpulse --config.file /tmp/node-a.toml probe ib_write_bw --peer node-b >/tmp/one 2>&1 & one=$!\n\
            /tmp/fabricpulse --config.file /tmp/node-b.toml probe ib_write_bw --peer node-a >/tmp/two 2>&1 & two=$!\n\
            wait $one; wait $two; grep -h 'probe_success\\|locked\\|busy\\|refused' /tmp/one /tmp/two; done";
        let said = self.machine.sh(script);
        assert!(
            said.contains("probe_success 1") && !said.contains("probe_success 0"),
            "{said}\n{}",
            self.log()
        );
        self.clean("both at once");
        // Every port of the range but one is somebody else's.
        self.machine.sh("for p in 18600 18601 18602; do nc -l -p $p >/dev/null 2>&1 & done; sleep 0.3");
        self.passes("ports that are taken");
        self.machine.sh(". /lib.sh; kill $(pids_of 'nc -l'); true");
        self.clean("ports that are taken");
        let many = "for n in $(seq 200); do (wget -q -O - 'http://127.0.0.1:10950/probe?test=ib_write_bw' >/dev/null 2>&1; echo $?) & done | sort | uniq -c; wait";
        println!("200 requests of strangers at once, by wget's exit code: {}", self.machine.sh(many).trim());
        let many = "for n in $(seq 40); do (/tmp/fabricpulse --config.file /tmp/node-a.toml probe ib_write_bw 2>&1 | grep -o 'probe_success .\\|busy\\|budget\\|locked\\|too many') & done | sort | uniq -c; wait";
        let said = self.machine.sh(many);
        println!("40 trusted requests at once: {}", said.split_whitespace().collect::<Vec<_>>().join(" "));
        assert!(said.contains("probe_success 1") && !said.contains("probe_success 0"), "{said}");
        self.clean("many requests");
    }

    fn knows_whom_it_talks_to(&mut self) {
        // node-b comes back with the certificate of another.
        self.restart_b("cp /tmp/stranger.pem /tmp/node-b.pem; cp /tmp/stranger.key /tmp/node-b.key");
        self.ends("a certificate of another name", &["untrusted: ", "away: "]);
        self.restart_b("cp /lab/node-b.pem /lab/node-b.key /tmp/");
        self.passes("its own certificate");
        self.restart_b(r#"sed -i 's,/tmp/peers.json,/tmp/alone.json,' /tmp/node-b.toml; echo '[{"targets":["10.0.0.2:1"],"labels":{"node":"node-b"}}]' >/tmp/alone.json"#);
        self.ends("an unknown peer", &["unknown_peer"]);
        self.restart_b("cp /lab/node-b.toml /tmp/");
        self.passes("a peer that is known again");
        // Another GID than the agent told: the address of v1 changes, and the list is older.
        let (code, said) = self.probe("node-a", "ib_write_bw --peer node-x");
        assert!(code != 0 && said.contains("there is no peer \"node-x\""), "{said}");
    }

    fn restart_b(&mut self, change: &str) {
        self.machine.sh(&format!(". /lib.sh; kill $(pids_of 'node-b.toml --web'); sleep 3; {change}"));
        self.begin("node-b", 10_960);
        thread::sleep(Duration::from_secs(1));
    }
}

/// Makes certificates by the script that we ship, and puts them into the share.
#[expect(clippy::disallowed_methods, reason = "the lab runs on the host, beside the agent, not in it")]
fn certificates(machine: &Machine) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/peers/certificates.sh");
    let made = Command::new(script)
        .args(["node-a", "node-b", "stranger"])
        .current_dir(machine.shared(""))
        .output()
        .expect("certificates.sh can be started");
    assert!(made.status.success(), "certificates.sh: {}", String::from_utf8_lossy(&made.stderr));
}
