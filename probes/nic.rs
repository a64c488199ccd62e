//! `nic`: whether each RDMA port is up, as fast as it can be, and free of errors.
//!
//! A port that is ACTIVE may still flap many times an hour, count errors, or show a rate that is
//! only a placeholder. So states are judged now, counters by what two readings say, and numbers
//! that mean nothing are not exported. Marks of congestion are exported and never judged: they
//! tell of the traffic. A file that can't be read takes nothing else with it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use self::{
    count::Meaning,
    metrics::{
        CONGESTION, DEVICE, DISCARDS, ERRORS, GIDS, LINK_DOWNED, METRICS, MTU, PHYSICAL_STATE, PORT_UP, RATE,
        RECEIVED, TRANSMITTED, WIDTH,
    },
    port::{Known, Rate, State},
};
use crate::{
    Context, Cost, Finding, Inventory, Memory, MetricSpec, Output, ParseError, Plan, Probe, Reading,
    Settings, Target, Unsupported, Verdict,
    counters::saturated,
    lines::{self, Problem},
    passive,
    plan::only,
};

pub mod count;
mod metrics;
pub mod port;

/// What the worker reads of one RDMA device. Texts are as the kernel shows them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Device {
    /// `mlx5_0`
    pub name: String,
    /// `1: CA`
    pub node_type: Option<String>,
    /// `fw_ver`; some drivers leave it empty.
    pub firmware: Option<String>,
    /// `board_id`, else `hca_type`: the exact product; some drivers have neither.
    pub board: Option<String>,
    /// Its ports by number.
    pub ports: Vec<Port>,
    /// Files that could not be read; the rest stands.
    pub unread: Vec<Problem>,
}

/// What the worker reads of one port.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Port {
    /// From 1.
    pub number: u32,
    /// `4: ACTIVE`
    pub state: Option<String>,
    /// `5: LinkUp`
    pub phys_state: Option<String>,
    /// `400 Gb/sec (4X NDR)`
    pub rate: Option<String>,
    /// `InfiniBand` or `Ethernet`
    pub link_layer: Option<String>,
    /// GIDs that are not all zero; none if there is no table.
    pub gids: Option<u32>,
    /// The network interface on it.
    pub netdev: Option<Netdev>,
    /// Known counters by path below the port or the interface.
    pub counters: BTreeMap<String, u64>,
}

/// What the worker reads of a network interface.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Netdev {
    /// `eth0`
    pub name: String,
    /// In bytes.
    pub mtu: Option<u32>,
    /// In 10^6 bits per second; none where the driver doesn't know.
    pub megabits: Option<u32>,
    /// Whether an administrator wants it up.
    pub admin_up: Option<bool>,
}

/// The probe.
#[derive(Debug)]
pub struct Nic;

impl Probe for Nic {
    fn name(&self) -> &'static str {
        "nic"
    }

    fn summary(&self) -> &'static str {
        "RDMA ports: state, rate, width, GIDs, link flaps, error, discard and congestion counters"
    }

    fn cost(&self, _: &Settings, _: &Target) -> Cost {
        Cost::Passive
    }

    fn metrics(&self) -> &'static [&'static MetricSpec] {
        METRICS
    }

    fn targets(&self, inventory: &Inventory, _: &Settings) -> Vec<Target> {
        inventory.rdma.iter().map(|rdma| Target::Rdma(rdma.name.clone())).collect()
    }

    fn plan(&self, ctx: &Context<'_>) -> Result<Plan, Unsupported> {
        if ctx.targets.is_empty() {
            return Err(Unsupported("this node has no RDMA device".into()));
        }
        Ok(passive::plan("nic", ctx))
    }

    fn parse(
        &self,
        ctx: &Context<'_>,
        outputs: &[Output],
        memory: &mut Memory,
    ) -> Result<Vec<Reading>, ParseError> {
        let output = only(outputs)?;
        let answer = lines::read::<Device>(&output.stdout)?;
        let node = Node { ctx, now: output.ended_at, devices: &answer.items };
        Ok(ctx.targets.iter().map(|target| node.read(target, &answer.problems, memory)).collect())
    }
}

/// All devices of one answer: some say what another one of the same product should be.
struct Node<'a> {
    ctx: &'a Context<'a>,
    now: f64,
    devices: &'a [Device],
}

impl Node<'_> {
    fn read(&self, target: &Target, problems: &[Problem], memory: &mut Memory) -> Reading {
        let mut reading = Reading::of(target.clone());
        let name = target.id();
        let unread = problems.iter().filter(|problem| problem.concerns(name));
        reading.findings.extend(unread.map(|problem| passive::unread("device_files", name, problem)));
        let Some(device) = self.devices.iter().find(|device| device.name == name) else {
            if reading.findings.is_empty() {
                reading.findings.push(
                    Finding::new(
                        "presence",
                        name,
                        Verdict::Fail,
                        "the device is gone",
                        "a device that was there",
                    )
                    .because("its driver has dropped it, or it fell off the bus")
                    .try_command("dmesg --level=err,warn"),
                );
            }
            return reading;
        };
        self.describe(device, &mut reading);
        for problem in &device.unread {
            reading.findings.push(passive::unread("device_files", name, problem));
        }
        for port in &device.ports {
            self.read_port(device, port, &mut reading, memory);
        }
        if device.ports.is_empty() {
            let finding = Finding::new("port_state", name, Verdict::Unknown, "no port", "a port");
            reading.findings.push(finding.because("a device without ports can't be judged"));
        }
        reading
    }

    fn describe(&self, device: &Device, reading: &mut Reading) {
        let pci = self.ctx.inventory.rdma.iter().find(|rdma| rdma.name == device.name);
        let pci = pci.and_then(|rdma| rdma.pci.as_deref());
        let driver = pci.and_then(|pci| self.ctx.inventory.function(pci)?.driver.as_deref());
        let port = device.ports.first();
        let netdev = port.and_then(|port| Some(port.netdev.as_ref()?.name.as_str()));
        let node_type = device.node_type.as_deref().and_then(|text| Some(text.split_once(": ")?.1));
        let facts = [
            pci,
            driver,
            device.firmware.as_deref(),
            device.board.as_deref(),
            port.and_then(|port| port.link_layer.as_deref()),
            netdev,
            node_type,
        ];
        let [pci, driver, firmware, board, link_layer, netdev, node_type] =
            facts.map(Option::unwrap_or_default);
        let labels = [&device.name, pci, driver, firmware, board, link_layer, netdev, node_type];
        reading.measure(&DEVICE, labels, 1.0);
    }

    fn read_port(&self, device: &Device, port: &Port, reading: &mut Reading, memory: &mut Memory) {
        let number = port.number.to_string();
        let labels = [device.name.as_str(), number.as_str()];
        let part =
            if device.ports.len() == 1 { device.name.clone() } else { format!("{}/{number}", device.name) };
        if let Some(state) = port.state() {
            reading.measure(&PORT_UP, labels, f64::from(u8::from(state.carries())));
        }
        if let Some(phys) = port.phys_state.as_deref().and_then(port::number) {
            reading.measure(&PHYSICAL_STATE, labels, f64::from(phys));
        }
        if let Some(gids) = port.gids {
            reading.measure(&GIDS, labels, f64::from(gids));
        }
        if let Some(mtu) = port.netdev.as_ref().and_then(|netdev| netdev.mtu)
            && port.is_ethernet()
        {
            reading.measure(&MTU, labels, f64::from(mtu));
        }
        let unused = self.ctx.settings.nic.unused.iter();
        let is_unused = unused
            .into_iter()
            .any(|name| *name == device.name || *name == format!("{}/{number}", device.name));
        if is_unused && port.state().is_none_or(|state| !state.carries()) {
            let reason = "the port is down, and is listed as unused in probe.nic.unused";
            reading.findings.push(Finding::not_applicable("port_state", &part, reason));
        } else {
            reading.findings.push(port.judge_state(&part));
        }
        self.read_rate(device, port, &part, labels, reading);
        if port.state() == Some(State::Active) && port.gids == Some(0) {
            reading.findings.push(
                Finding::new("gids", &part, Verdict::Degraded, "no GID", "at least one GID")
                    .because("a port without an address can't be reached by RDMA")
                    .try_command(format!("rdma link show {}/{number}", device.name)),
            );
        }
        self.read_counters(port, &part, labels, reading, memory);
    }

    fn read_rate(&self, device: &Device, port: &Port, part: &str, labels: [&str; 2], reading: &mut Reading) {
        match port.known_rate() {
            Some(Known::Rate(rate)) => reading.measure(&RATE, labels, rate),
            Some(Known::Not(why)) if port.state().is_some_and(State::carries) => {
                let shown = port.rate.as_deref().unwrap_or_default();
                let finding = if self.is_software(device) {
                    Finding::not_applicable("link_rate", part, "a software device has no rate of its own")
                } else {
                    Finding::new("link_rate", part, Verdict::Unknown, shown, "a speed that this kernel knows")
                        .because(why)
                        .try_command(format!("ibv_devinfo -v -d {}", device.name))
                };
                reading.findings.push(finding);
                return;
            }
            Some(Known::Not(_)) | None => return,
        }
        let lanes = Self::lanes(port);
        let Some(lanes) = lanes else { return };
        reading.measure(&WIDTH, labels, f64::from(lanes));
        let widest = self.siblings(device).filter_map(|(name, port)| Some((Self::lanes(port)?, name))).max();
        let shown = port.rate.as_deref().unwrap_or_default();
        let finding = match widest {
            Some((most, sibling)) if most > lanes => {
                let expected = format!("{most}X, what {sibling} of the same product has");
                Finding::new("link_width", part, Verdict::Degraded, shown, expected)
                    .because(
                        "lanes are lost: reseat or replace cable and transceiver, or look at the switch port",
                    )
                    .try_command(format!("mlxlink -d {}", device.name))
            }
            Some(_) | None => {
                Finding::new("link_width", part, Verdict::Pass, shown, format!("{lanes}X or more"))
            }
        };
        reading.findings.push(finding);
    }

    /// The width of an InfiniBand link that is up. Ethernet drivers make theirs up from the speed.
    fn lanes(port: &Port) -> Option<u32> {
        match port.known_rate()? {
            Known::Rate(_) if !port.is_ethernet() => Some(Rate::parse(port.rate.as_deref()?)?.lanes),
            Known::Rate(_) | Known::Not(_) => None,
        }
    }

    /// Ports of other devices of exactly this product.
    fn siblings<'b>(&'b self, device: &'b Device) -> impl Iterator<Item = (&'b str, &'b Port)> {
        let same = move |other: &&Device| {
            other.name != device.name && device.board.is_some() && other.board == device.board
        };
        self.devices
            .iter()
            .filter(same)
            .flat_map(|other| other.ports.iter().map(|port| (other.name.as_str(), port)))
    }

    fn is_software(&self, device: &Device) -> bool {
        self.ctx.inventory.rdma.iter().any(|rdma| rdma.name == device.name && rdma.pci.is_none())
    }

    fn read_counters(
        &self,
        port: &Port,
        part: &str,
        labels: [&str; 2],
        reading: &mut Reading,
        memory: &mut Memory,
    ) {
        let settings = &self.ctx.settings.nic;
        let mut judged = 0;
        let mut watched: f64 = 0.0;
        let [device, number] = labels;
        for (counter, value) in count::known(&port.counters) {
            #[expect(clippy::cast_precision_loss, reason = "series are doubles")]
            let exported = value as f64;
            let (limit, check, what) = match counter.meaning {
                Meaning::Received(unit) => {
                    reading.measure(&RECEIVED, labels, exported * f64::from(unit));
                    continue;
                }
                Meaning::Transmitted(unit) => {
                    reading.measure(&TRANSMITTED, labels, exported * f64::from(unit));
                    continue;
                }
                Meaning::Discard(kind) => {
                    reading.measure(&DISCARDS, [device, number, kind], exported);
                    continue;
                }
                Meaning::Congestion(kind) => {
                    reading.measure(&CONGESTION, [device, number, kind], exported);
                    continue;
                }
                Meaning::Error(kind) => {
                    reading.measure(&ERRORS, [device, number, kind], exported);
                    continue;
                }
                Meaning::Fault(kind) => {
                    reading.measure(&ERRORS, [device, number, kind], exported);
                    (settings.errors, "link_errors", kind)
                }
                Meaning::Downed => {
                    reading.measure(&LINK_DOWNED, labels, exported);
                    (settings.flaps.saturating_sub(1), "link_flaps", "link_downed")
                }
            };
            let key = format!("{device}/{number} {}", counter.file);
            let change = memory.observe(&key, self.now, value, settings.error_window);
            judged += 1;
            watched = watched.max(change.watched);
            let file = counter.file;
            if saturated(value, counter.bits) {
                let found = format!("{file} stands at {value}, where its {} bits end", counter.bits);
                reading.findings.push(
                    Finding::new(check, part, Verdict::Unknown, found, "a counter that can still count")
                        .because("it counts no further, so growth can't be seen until it is cleared")
                        .try_command(format!("perfquery -R -C {device} -P {number}")),
                );
            } else if change.rise > limit {
                let reset = if change.reset { ", and was cleared in between" } else { "" };
                let found = format!("{what} +{} in {}{reset}", change.rise, passive::span(change.watched));
                let expected =
                    format!("at most {limit} in {}", passive::span(settings.error_window.as_secs_f64()));
                let why = if check == "link_flaps" {
                    "the link was lost again and again; the state alone looks fine"
                } else {
                    "bits are lost on the way: cable, transceiver, adapter or the port at the other end"
                };
                let files = if file.contains("counters/") {
                    format!("grep . /sys/class/infiniband/{device}/ports/{number}/{file}")
                } else {
                    let netdev = port.netdev.as_ref().map_or("", |netdev| netdev.name.as_str());
                    format!("grep . /sys/class/net/{netdev}/{file}")
                };
                let finding = Finding::new(check, part, Verdict::Degraded, found, expected);
                reading.findings.push(finding.because(why).try_command(files));
            }
        }
        let bad = |finding: &Finding| {
            ["link_flaps", "link_errors"].contains(&finding.check.as_str()) && finding.part == part
        };
        if judged == 0 || reading.findings.iter().any(bad) {
            return;
        }
        reading.findings.push(if watched == 0.0 {
            Finding::not_applicable(
                "link_errors",
                part,
                "the first reading; growth is known from the next one on",
            )
        } else {
            let found = format!(
                "counters of faults: {judged}, none grew more than expected in {}",
                passive::span(watched)
            );
            let expected = format!(
                "fewer than {} link losses, at most {} errors of a kind",
                settings.flaps, settings.errors
            );
            Finding::new("link_errors", part, Verdict::Pass, found, expected)
        });
    }
}

#[cfg(test)]
mod tests;
