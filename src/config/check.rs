//! Turns what is written into what is meant, and collects what is wrong with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

use probes::{
    Settings,
    settings::{
        CollectivesSettings, ComputeSettings, ExecCheck, GemmSettings, GpuSettings, InventorySettings,
        NicSettings, NodeSettings, PcieSettings, RdmaExpected, RdmaSettings, Roots,
    },
};

use crate::judge::{book::Manner, detector};

use super::{
    Budget, Config, Identity, Log, Peers, State, Timing, Web,
    raw::{self, Leaf, Raw, Span},
};

/// The operator's own checks on a node: their series are bounded like everything else.
const MAX_CHECKS: usize = 50;
/// A shorter interval would make the agent itself a load.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// A longer one is a typing error.
const MAX_INTERVAL: Duration = Duration::from_secs(7 * 86_400);
/// No probe takes a day.
const MAX_TIMEOUT: Duration = Duration::from_secs(86_400);
/// More could not be served by a process that stays small.
const MAX_REQUESTS: usize = 10_000;
/// What stands for the interval of a probe that never runs by itself.
const NO_INTERVAL: Duration = Duration::from_secs(3600);
/// A shorter slot has no room for a lease between its guards.
const MIN_SLOT: Duration = Duration::from_secs(10);
/// Sizes of copies and exchanges: less is all start, more does not fit beside a second buffer.
const MIB: RangeInclusive<u32> = 1..=16_384;
/// Sizes at which `collectives` tells bandwidth; more are a sweep.
const MOST_SIZES: usize = 4;
/// What RDMA allows as MTU, in bytes; 0 takes the port's own.
const MTUS: [u32; 6] = [0, 256, 512, 1024, 2048, 4096];
/// What PCIe allows as MaxReadReq, in bytes; 0 does not judge it.
const READ_REQUESTS: [u32; 7] = [0, 128, 256, 512, 1024, 2048, 4096];

pub(super) fn check(raw: Raw, problems: &mut Vec<String>) -> Config {
    let mut c = Checker { problems };
    let timings = BTreeMap::from([
        (
            "node",
            c.timing("probe.node", raw.probe.node.enabled, raw.probe.node.interval, raw.probe.node.timeout),
        ),
        (
            "pcie",
            c.timing("probe.pcie", raw.probe.pcie.enabled, raw.probe.pcie.interval, raw.probe.pcie.timeout),
        ),
        ("nic", c.timing("probe.nic", raw.probe.nic.enabled, raw.probe.nic.interval, raw.probe.nic.timeout)),
        ("gpu", c.timing("probe.gpu", raw.probe.gpu.enabled, raw.probe.gpu.interval, raw.probe.gpu.timeout)),
        (
            "gemm",
            c.timing("probe.gemm", raw.probe.gemm.enabled, raw.probe.gemm.interval, raw.probe.gemm.timeout),
        ),
        (
            "gemm_sustained",
            c.on_demand(
                "probe.gemm_sustained",
                raw.probe.gemm_sustained.enabled,
                raw.probe.gemm_sustained.timeout,
            ),
        ),
        ("hbm", c.timing("probe.hbm", raw.probe.hbm.enabled, raw.probe.hbm.interval, raw.probe.hbm.timeout)),
        (
            "host_copy",
            c.timing(
                "probe.host_copy",
                raw.probe.host_copy.enabled,
                raw.probe.host_copy.interval,
                raw.probe.host_copy.timeout,
            ),
        ),
        ("p2p", c.timing("probe.p2p", raw.probe.p2p.enabled, raw.probe.p2p.interval, raw.probe.p2p.timeout)),
        (
            "collectives",
            c.timing(
                "probe.collectives",
                raw.probe.collectives.enabled,
                raw.probe.collectives.interval,
                raw.probe.collectives.timeout,
            ),
        ),
        (
            "collectives_sweep",
            c.on_demand(
                "probe.collectives_sweep",
                raw.probe.collectives_sweep.enabled,
                raw.probe.collectives_sweep.timeout,
            ),
        ),
        (
            "ib_write_bw",
            c.timing(
                "probe.ib_write_bw",
                raw.probe.ib_write_bw.enabled,
                raw.probe.ib_write_bw.interval,
                raw.probe.ib_write_bw.timeout,
            ),
        ),
        (
            "ib_read_bw",
            c.on_demand("probe.ib_read_bw", raw.probe.ib_read_bw.enabled, raw.probe.ib_read_bw.timeout),
        ),
        (
            "ib_send_bw",
            c.on_demand("probe.ib_send_bw", raw.probe.ib_send_bw.enabled, raw.probe.ib_send_bw.timeout),
        ),
        (
            "ib_write_lat",
            c.timing(
                "probe.ib_write_lat",
                raw.probe.ib_write_lat.enabled,
                raw.probe.ib_write_lat.interval,
                raw.probe.ib_write_lat.timeout,
            ),
        ),
        ("gdr", c.timing("probe.gdr", raw.probe.gdr.enabled, raw.probe.gdr.interval, raw.probe.gdr.timeout)),
        (
            "loopback",
            c.timing(
                "probe.loopback",
                raw.probe.loopback.enabled,
                raw.probe.loopback.interval,
                raw.probe.loopback.timeout,
            ),
        ),
    ]);
    let raw::Rate(write) = c.take("probe.ib_write_bw.expected", raw.probe.ib_write_bw.expected);
    let raw::Microseconds(latency) = c.take("probe.ib_write_lat.expected", raw.probe.ib_write_lat.expected);
    let raw::Rate(gdr) = c.take("probe.gdr.expected", raw.probe.gdr.expected);
    let raw::Rate(loopback) = c.take("probe.loopback.expected", raw.probe.loopback.expected);
    let expected = RdmaExpected {
        write,
        gdr,
        loopback,
        latency,
        gdr_host_ratio: Some(c.within("probe.gdr.expected_ratio", raw.probe.gdr.expected_ratio, 0.0..=2.0))
            .filter(|ratio| *ratio > 0.0),
    };
    let raw::Span(burst) = c.take("probe.gemm.burst", raw.probe.gemm.burst);
    let raw::Span(load) = c.take("probe.gemm_sustained.load", raw.probe.gemm_sustained.load);
    let compute = ComputeSettings {
        library_directories: c.directories("compute.library_directories", raw.compute.library_directories),
        environment: c
            .take("compute.environment", raw.compute.environment)
            .into_iter()
            .map(|raw::Variable(variable)| variable)
            .collect(),
        gemm: GemmSettings {
            size: c.within("probe.gemm.size", raw.probe.gemm.size, 256..=32_768),
            types: c.some("probe.gemm.types", raw.probe.gemm.types),
            burst: burst.as_secs_f64(),
            sustained: load.as_secs_f64(),
        },
        hbm_bytes: c.mib("probe.hbm.size_mib", raw.probe.hbm.size_mib),
        host_copy_bytes: c.mib("probe.host_copy.size_mib", raw.probe.host_copy.size_mib),
        p2p_bytes: c.mib("probe.p2p.size_mib", raw.probe.p2p.size_mib),
        collectives: c.collectives(
            raw.probe.collectives.sizes_mib,
            raw.probe.collectives.latency_bytes,
            raw.probe.collectives_sweep.most_mib,
        ),
    };
    let loopback_neighbour = c.take("probe.loopback.neighbour", raw.probe.loopback.neighbour);
    let exec_enabled = c.take("probe.exec.enabled", raw.probe.exec.enabled);
    let node_name = c.take("node_name", raw.node_name);
    Config {
        node_name: if node_name.is_empty() { host_name() } else { node_name },
        active: c.take("active", raw.active),
        web: c.web(raw.web),
        state: c.state(raw.state),
        log: c.log(raw.log),
        budget: c.budget(raw.budget),
        baseline: c.baseline(raw.baseline),
        occupancy: c.take("occupancy.check", raw.occupancy.check),
        peers: c.peers(raw.peers),
        inventory_interval: c.interval("inventory.interval", raw.inventory.interval),
        timings,
        settings: Settings {
            roots: Roots {
                sysfs: c.take("roots.sysfs", raw.roots.sysfs),
                proc: c.take("roots.proc", raw.roots.proc),
                etc: c.take("roots.etc", raw.roots.etc),
            },
            inventory: InventorySettings {
                nic_drivers: c.take("inventory.nic_drivers", raw.inventory.nic_drivers),
            },
            node: NodeSettings {
                ignore: c.take("probe.node.ignore", raw.probe.node.ignore),
                user: Some(c.take("probe.node.user", raw.probe.node.user)).filter(|user| !user.is_empty()),
                cpu_governor: c.take("probe.node.cpu_governor", raw.probe.node.cpu_governor),
                huge_pages: c.take("probe.node.huge_pages", raw.probe.node.huge_pages),
            },
            pcie: c.pcie(
                raw.probe.pcie.pcid_socket,
                raw.probe.pcie.nic_max_read_request,
                raw.probe.pcie.error_window,
                raw.probe.pcie.correctable_errors,
                raw.probe.pcie.busy_percent,
            ),
            nic: NicSettings {
                error_window: c.window("probe.nic.error_window", raw.probe.nic.error_window),
                flaps: c.at_least("probe.nic.flaps", raw.probe.nic.flaps, 1),
                errors: c.take("probe.nic.errors", raw.probe.nic.errors),
                unused: c.take("probe.nic.unused", raw.probe.nic.unused),
            },
            gpu: GpuSettings {
                error_window: c.window("probe.gpu.error_window", raw.probe.gpu.error_window),
                correctable_errors: c.take("probe.gpu.correctable_errors", raw.probe.gpu.correctable_errors),
            },
            compute,
            rdma: c.rdma(raw.rdma, loopback_neighbour),
            expected,
            exec: if exec_enabled { c.exec(raw.probe.exec.check) } else { Vec::new() },
        },
    }
}

struct Checker<'a> {
    problems: &'a mut Vec<String>,
}

impl Checker<'_> {
    fn wrong(&mut self, key: &str, why: impl std::fmt::Display) {
        self.problems.push(format!("{key}: {why}"));
    }

    /// The value, or a default that nobody sees, since the problem is told.
    fn take<T: Default>(&mut self, key: &str, leaf: Leaf<T>) -> T {
        leaf.0.unwrap_or_else(|why| {
            self.wrong(key, why);
            T::default()
        })
    }

    fn at_least(&mut self, key: &str, leaf: Leaf<u64>, least: u64) -> u64 {
        let right = leaf.0.is_ok();
        let value = self.take(key, leaf);
        if right && value < least {
            self.wrong(key, format_args!("{value} is impossible: at least {least}"));
        }
        value
    }

    fn baseline(&mut self, raw: raw::Baseline) -> Manner {
        let least = u64::from(detector::WARM);
        let samples = self.at_least("baseline.samples", raw.samples, least);
        let every = self.interval("baseline.confirm_every", raw.confirm_every);
        Manner { samples: u32::try_from(samples).unwrap_or(u32::MAX), every: every.as_secs_f64() }
    }

    fn interval(&mut self, key: &str, leaf: Leaf<Span>) -> Duration {
        let right = leaf.0.is_ok();
        let Span(value) = self.take(key, leaf);
        if right && !(MIN_INTERVAL..=MAX_INTERVAL).contains(&value) {
            self.wrong(key, format_args!("{value:?} is impossible: from {MIN_INTERVAL:?} to 7 days"));
        }
        value
    }

    fn window(&mut self, key: &str, leaf: Leaf<Span>) -> Duration {
        self.interval(key, leaf)
    }

    fn timing(
        &mut self,
        section: &str,
        enabled: Leaf<bool>,
        interval: Leaf<Span>,
        timeout: Leaf<Span>,
    ) -> Timing {
        let both_right = interval.0.is_ok() && timeout.0.is_ok();
        let enabled = self.take(&format!("{section}.enabled"), enabled);
        let interval = self.interval(&format!("{section}.interval"), interval);
        let key = format!("{section}.timeout");
        let Span(timeout) = self.take(&key, timeout);
        if both_right && timeout.is_zero() {
            self.wrong(&key, "0 s is impossible: nothing ends in no time");
        } else if timeout > MAX_TIMEOUT {
            self.wrong(&key, format_args!("{timeout:?} is impossible: at most 1 day"));
        }
        Timing { enabled, interval, timeout }
    }

    /// A probe that runs only when somebody asks, and so has no interval.
    fn on_demand(&mut self, section: &str, enabled: Leaf<bool>, timeout: Leaf<Span>) -> Timing {
        self.timing(section, enabled, Leaf(Ok(Span(NO_INTERVAL))), timeout)
    }

    fn within<T: Default + Copy + PartialOrd + std::fmt::Display>(
        &mut self,
        key: &str,
        leaf: Leaf<T>,
        range: RangeInclusive<T>,
    ) -> T {
        let right = leaf.0.is_ok();
        let value = self.take(key, leaf);
        if right && !range.contains(&value) {
            self.wrong(key, format_args!("{value} is impossible: from {} to {}", range.start(), range.end()));
        }
        value
    }

    /// A size in MiB, as bytes.
    fn mib(&mut self, key: &str, leaf: Leaf<u32>) -> usize {
        let mib = self.within(key, leaf, MIB);
        usize::try_from(mib).unwrap_or_default() << 20
    }

    /// A list that may not be empty.
    fn some<T>(&mut self, key: &str, leaf: Leaf<Vec<T>>) -> Vec<T> {
        let right = leaf.0.is_ok();
        let list = self.take(key, leaf);
        if right && list.is_empty() {
            self.wrong(key, "an empty list is impossible: there would be nothing to measure");
        }
        list
    }

    fn directories(&mut self, key: &str, leaf: Leaf<Vec<PathBuf>>) -> Vec<PathBuf> {
        let directories = self.take(key, leaf);
        for directory in directories.iter().filter(|directory| !directory.is_absolute()) {
            self.wrong(key, format_args!("{:?} is not an absolute path", directory.display()));
        }
        directories
    }

    fn collectives(
        &mut self,
        sizes_mib: Leaf<Vec<u32>>,
        latency_bytes: Leaf<u32>,
        most_mib: Leaf<u32>,
    ) -> CollectivesSettings {
        let key = "probe.collectives.sizes_mib";
        let right = sizes_mib.0.is_ok();
        let sizes = self.take(key, sizes_mib);
        if right && !(1..=MOST_SIZES).contains(&sizes.len()) {
            self.wrong(key, format_args!("{} sizes are impossible: from 1 to {MOST_SIZES}", sizes.len()));
        }
        let mut bytes: Vec<usize> = sizes.into_iter().map(|size| self.mib(key, Leaf(Ok(size)))).collect();
        bytes.sort_unstable();
        bytes.dedup();
        let latency = self.within("probe.collectives.latency_bytes", latency_bytes, 4..=65_536);
        CollectivesSettings {
            latency_bytes: usize::try_from(latency).unwrap_or_default(),
            bytes,
            sweep_bytes: self.mib("probe.collectives_sweep.most_mib", most_mib),
        }
    }

    fn peers(&mut self, raw: raw::Peers) -> Peers {
        let files = [
            ("certificate_file", self.take("peers.certificate_file", raw.certificate_file)),
            ("key_file", self.take("peers.key_file", raw.key_file)),
            ("ca_file", self.take("peers.ca_file", raw.ca_file)),
        ];
        let missing: Vec<&str> =
            files.iter().filter(|(_, path)| path.as_os_str().is_empty()).map(|(key, _)| *key).collect();
        if !missing.is_empty() && missing.len() < files.len() {
            let missing = missing.join(" and ");
            self.wrong("peers", format_args!("{missing} is missing: mutual TLS needs all three files"));
        }
        let [(_, certificate), (_, key), (_, authority)] = files;
        let first = self.within("peers.first_port", raw.first_port, 1024..=u16::MAX);
        let count = self.within("peers.ports", raw.ports, 2..=10_000);
        let end = first.checked_add(count).unwrap_or_else(|| {
            self.wrong("peers.ports", format_args!("{first} and {count} more go beyond port {}", u16::MAX));
            u16::MAX
        });
        let slot = self.interval("peers.slot", raw.slot);
        if slot < MIN_SLOT {
            self.wrong("peers.slot", format_args!("{slot:?} is impossible: at least {MIN_SLOT:?}"));
        }
        let listen = self.take("peers.listen_address", raw.listen_address);
        Peers {
            members: self.take("peers.static", raw.members),
            file_sd: self.take("peers.file_sd", raw.file_sd),
            listen: listen.into_iter().map(|raw::Address(address)| address).collect(),
            port: self.within("peers.port", raw.port, 1..=u16::MAX),
            identity: missing.is_empty().then_some(Identity { certificate, key, authority }),
            ports: first..end,
            slot,
            lease: self.interval("peers.lease", raw.lease),
        }
    }

    fn rdma(&mut self, raw: raw::Rdma, loopback_neighbour: bool) -> RdmaSettings {
        let mtu = self.take("rdma.mtu", raw.mtu);
        if !MTUS.contains(&mtu) {
            self.wrong("rdma.mtu", format_args!("{mtu} is impossible: one of {MTUS:?}"));
        }
        let traffic_class = self.within("rdma.traffic_class", raw.traffic_class, -1..=255);
        let perftest = self.take("rdma.perftest_directory", raw.perftest_directory);
        if !perftest.as_os_str().is_empty() && !perftest.is_absolute() {
            self.wrong(
                "rdma.perftest_directory",
                format_args!("{:?} is not an absolute path", perftest.display()),
            );
        }
        let networks = self.take("rdma.gid_networks", raw.gid_networks);
        RdmaSettings {
            tolerance: self.within("rdma.tolerance", raw.tolerance, 0.01..=1.0),
            perftest,
            rails: self.take("rdma.rails", raw.rails),
            gid_networks: networks.into_iter().map(|raw::Network(network)| network).collect(),
            size: self.within("rdma.size", raw.size, 2..=8_388_608),
            queue_pairs: self.within("rdma.queue_pairs", raw.queue_pairs, 1..=128),
            seconds: self.within("rdma.seconds", raw.seconds, 0.001..=10.0),
            most_messages: self.within("rdma.most_messages", raw.most_messages, 100..=1_000_000),
            repeats: self.within("rdma.repeats", raw.repeats, 1..=10),
            latency_size: self.within("rdma.latency_size", raw.latency_size, 2..=8_388_608),
            latency_messages: self.within("rdma.latency_messages", raw.latency_messages, 100..=1_000_000),
            traffic_class: u8::try_from(traffic_class).ok(),
            mtu: Some(mtu).filter(|mtu| *mtu > 0),
            loopback_neighbour,
        }
    }

    fn web(&mut self, raw: raw::Web) -> Web {
        let listen = self
            .take("web.listen_address", raw.listen_address)
            .into_iter()
            .map(|raw::Address(address)| address)
            .collect();
        let config_file = self.take("web.config_file", raw.config_file);
        let socket = self.take("web.socket", raw.socket);
        let right = raw.max_requests.0.is_ok();
        let max_requests = self.take("web.max_requests", raw.max_requests);
        if right && !(1..=MAX_REQUESTS).contains(&max_requests) {
            self.wrong(
                "web.max_requests",
                format_args!("{max_requests} is impossible: from 1 to {MAX_REQUESTS}"),
            );
        }
        Web {
            listen,
            config_file: Some(config_file).filter(|file| !file.as_os_str().is_empty()),
            socket: if socket.as_os_str().is_empty() {
                runtime_directory().join("fabricpulse.sock")
            } else {
                socket
            },
            max_requests,
        }
    }

    fn state(&mut self, raw: raw::State) -> State {
        let directory = self.take("state.directory", raw.directory);
        State {
            directory: if directory.as_os_str().is_empty() { state_directory() } else { directory },
            journal_bytes: self.at_least("state.journal_mib", raw.journal_mib, 1).saturating_mul(1 << 20),
        }
    }

    fn log(&mut self, raw: raw::Log) -> Log {
        let level = self.take("log.level", raw.level);
        if let Err(error) = level.parse::<tracing_subscriber::EnvFilter>() {
            self.wrong("log.level", format_args!("{level:?} is no filter: {error}"));
        }
        Log { level, format: self.take("log.format", raw.format).0 }
    }

    fn budget(&mut self, raw: raw::Budget) -> Budget {
        let seconds = self.take("budget.gpu_seconds_per_hour", raw.gpu_seconds_per_hour);
        Budget {
            gpu_milliseconds: self.milliseconds("budget.gpu_seconds_per_hour", seconds),
            network_mib: self.take("budget.network_mib_per_hour", raw.network_mib_per_hour),
            heavy_runs: self.take("budget.heavy_runs_per_hour", raw.heavy_runs_per_hour),
        }
    }

    fn milliseconds(&mut self, key: &str, seconds: f64) -> u32 {
        if !(0.0..=3600.0).contains(&seconds) {
            self.wrong(key, format_args!("{seconds} is impossible: an hour has 3600 seconds"));
            return 0;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked: 0 to 3.6 million"
        )]
        let milliseconds = (seconds * 1000.0).round() as u32;
        milliseconds
    }

    fn pcie(
        &mut self,
        pcid: Leaf<PathBuf>,
        read_request: Leaf<u32>,
        window: Leaf<Span>,
        errors: Leaf<u64>,
        busy: Leaf<u32>,
    ) -> PcieSettings {
        let nic_max_read_request = self.take("probe.pcie.nic_max_read_request", read_request);
        if !READ_REQUESTS.contains(&nic_max_read_request) {
            self.wrong(
                "probe.pcie.nic_max_read_request",
                format_args!("{nic_max_read_request} is impossible: one of {READ_REQUESTS:?}"),
            );
        }
        let busy_percent = self.take("probe.pcie.busy_percent", busy);
        if busy_percent > 100 {
            self.wrong("probe.pcie.busy_percent", format_args!("{busy_percent} is impossible: at most 100"));
        }
        PcieSettings {
            pcid: self.take("probe.pcie.pcid_socket", pcid),
            nic_max_read_request,
            error_window: self.window("probe.pcie.error_window", window),
            correctable_errors: self.take("probe.pcie.correctable_errors", errors),
            busy_percent,
        }
    }

    fn exec(&mut self, raw: Vec<raw::Check>) -> Vec<ExecCheck> {
        if raw.len() > MAX_CHECKS {
            self.wrong(
                "probe.exec.check",
                format_args!("{} checks are too many: at most {MAX_CHECKS}", raw.len()),
            );
        }
        let mut names = BTreeSet::new();
        let mut checks = Vec::new();
        for (index, raw) in raw.into_iter().take(MAX_CHECKS).enumerate() {
            let check = self.exec_check(&format!("probe.exec.check.{index}"), raw);
            if !check.name.is_empty() && !names.insert(check.name.clone()) {
                self.wrong(
                    &format!("probe.exec.check.{index}.name"),
                    format_args!("{:?} is taken by an earlier check", check.name),
                );
            }
            checks.push(check);
        }
        checks
    }

    fn exec_check(&mut self, section: &str, raw: raw::Check) -> ExecCheck {
        let key = |leaf: &str| format!("{section}.{leaf}");
        let (had_name, had_argv) = (raw.name.is_some(), raw.argv.is_some());
        let name = match raw.name {
            Some(leaf) => self.take(&key("name"), leaf),
            None => {
                self.wrong(section, "name is missing");
                String::new()
            }
        };
        if name.is_empty() && had_name {
            self.wrong(&key("name"), "it is empty");
        }
        if !name.is_empty() && !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            self.wrong(
                &key("name"),
                format_args!("{name:?} is not a name: letters, digits, '-', '_' and '.'"),
            );
        }
        let argv = match raw.argv {
            Some(leaf) => self.take(&key("argv"), leaf),
            None => {
                self.wrong(section, "argv is missing");
                Vec::new()
            }
        };
        if argv.is_empty() && had_argv {
            self.wrong(&key("argv"), "it names no program");
        }
        if argv.first().is_some_and(|program| !Path::new(program).is_absolute()) {
            self.wrong(&key("argv"), format_args!("{:?} is not an absolute path", argv[0]));
        }
        let interval = raw.interval.unwrap_or(Leaf(Ok(Span(Duration::from_secs(300)))));
        let timeout = raw.timeout.unwrap_or(Leaf(Ok(Span(Duration::from_secs(30)))));
        let Timing { interval, timeout, .. } = self.timing(section, Leaf(Ok(true)), interval, timeout);
        let gpu_seconds = raw.gpu_seconds.map_or(0.0, |leaf| self.take(&key("gpu_seconds"), leaf));
        self.milliseconds(&key("gpu_seconds"), gpu_seconds);
        ExecCheck {
            name,
            argv,
            cost: raw.cost.map_or(probes::Cost::Passive, |leaf| self.take(&key("cost"), leaf).0),
            interval,
            timeout,
            gpu_seconds,
            network_mib: raw.network_mib.map_or(0, |leaf| self.take(&key("network_mib"), leaf)),
        }
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn state_directory() -> PathBuf {
    // systemd sets the first; it may be a list.
    if let Some(directory) = env::var_os("STATE_DIRECTORY") {
        return directory.to_string_lossy().split(':').next().unwrap_or_default().into();
    }
    if rustix::process::geteuid().is_root() {
        return "/var/lib/fabricpulse".into();
    }
    match (env::var_os("XDG_STATE_HOME"), env::var_os("HOME")) {
        (Some(state), _) => Path::new(&state).join("fabricpulse"),
        (None, Some(home)) => Path::new(&home).join(".local/state/fabricpulse"),
        (None, None) => env::temp_dir().join("fabricpulse"),
    }
}

fn runtime_directory() -> PathBuf {
    if let Some(directory) = env::var_os("RUNTIME_DIRECTORY") {
        return directory.to_string_lossy().split(':').next().unwrap_or_default().into();
    }
    let service = Path::new("/run/fabricpulse");
    if rustix::process::geteuid().is_root() || service.is_dir() {
        return service.into();
    }
    env::var_os("XDG_RUNTIME_DIR").map_or_else(state_directory, PathBuf::from)
}
