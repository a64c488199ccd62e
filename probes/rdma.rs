//! RDMA bandwidth and latency by perftest: rails, and what the probes share.
//!
//! Two nodes measure together rail by rail: the same place in the order of their devices. What
//! each end uses of itself, its GID, CPU and GPU, it chooses alone; how much is sent, both compute
//! from the same settings and both rates.

use self::{
    command::Command,
    pair::{Agreed, Direction},
};
use crate::{
    Context, Measurement, Output, ParseError, Settings, Target, Unsupported,
    inventory::{Gid, Inventory, Perftest, Rdma, Wire},
    partner::HostBandwidth,
    perftest,
    settings::RdmaSettings,
};

mod amount;
pub mod bandwidth;
mod command;
mod cpu;
mod figures;
pub mod gdr;
mod gid;
pub mod gpu;
pub mod help;
mod judge;
pub mod latency;
pub mod loopback;
mod metrics;
mod outputs;
mod pair;
mod same;

pub use amount::{Amount, amount};
pub use same::{difference, parameters};

/// Where perftest's programs are looked for when the configuration names no folder.
pub const FOLDERS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// perftest's programs that the inventory looks for. The first one stands for the package.
pub const PROGRAMS: [&str; 6] =
    ["ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat"];

/// The RDMA devices that take part, in the order of their rails: as configured, else by PCI
/// address and name, software devices last.
pub fn rails<'a>(inventory: &'a Inventory, settings: &RdmaSettings) -> Vec<&'a Rdma> {
    if settings.rails.is_empty() {
        let mut rails: Vec<&Rdma> = inventory.rdma.iter().collect();
        rails.sort_by_key(|rdma| (rdma.pci.is_none(), &rdma.pci, &rdma.name));
        return rails;
    }
    settings.rails.iter().filter_map(|name| device(inventory, name)).collect()
}

/// The number of a device's rail, from 0. A configured rail keeps its number while others are gone.
pub fn rail_of(inventory: &Inventory, settings: &RdmaSettings, name: &str) -> Option<usize> {
    if settings.rails.is_empty() {
        return rails(inventory, settings).iter().position(|rdma| rdma.name == name);
    }
    settings.rails.iter().position(|rail| rail == name)
}

/// The device of a rail.
pub fn device_of<'a>(inventory: &'a Inventory, settings: &RdmaSettings, rail: usize) -> Option<&'a Rdma> {
    if settings.rails.is_empty() {
        return rails(inventory, settings).get(rail).copied();
    }
    settings.rails.get(rail).and_then(|name| device(inventory, name))
}

fn device<'a>(inventory: &'a Inventory, name: &str) -> Option<&'a Rdma> {
    inventory.rdma.iter().find(|rdma| rdma.name == name)
}

/// This node's end of a transfer: a rail that can be measured.
#[derive(Clone, Debug, PartialEq)]
pub struct End<'a> {
    /// The device.
    pub device: &'a Rdma,
    /// Its port.
    pub wire: &'a Wire,
    /// The port's rate, in bits per second.
    pub bits_per_second: f64,
    /// What it is addressed by; none on InfiniBand, which has LIDs.
    pub gid: Option<&'a Gid>,
    /// The programs.
    pub perftest: &'a Perftest,
}

impl<'a> End<'a> {
    /// The end at the device `name`.
    ///
    /// # Errors
    ///
    /// When it can't take part, with the reason and what would change it.
    pub fn of(inventory: &'a Inventory, settings: &RdmaSettings, name: &str) -> Result<End<'a>, Unsupported> {
        let device = device(inventory, name)
            .ok_or_else(|| Unsupported(format!("this node has no RDMA device {name} now")))?;
        if rail_of(inventory, settings, name).is_none() {
            return Err(Unsupported(format!("{name} is none of the rails: [rdma] rails does not name it")));
        }
        let perftest = inventory.perftest.as_ref().ok_or_else(|| not_installed(settings))?;
        let wire = device.wire.as_ref().ok_or_else(|| {
            Unsupported(format!("{name} shows no port: look at ibv_devinfo -d {name} and at its driver"))
        })?;
        let port = wire.port;
        let bits_per_second = wire.bits_per_second.ok_or_else(|| {
            Unsupported(format!(
                "port {port} of {name} is down or shows no rate: ibv_devinfo -d {name} -i {port}"
            ))
        })?;
        let gid = gid::choose(name, wire, &settings.gid_networks)?;
        Ok(End { device, wire, bits_per_second, gid, perftest })
    }

    /// The end at the target of a run.
    fn at_target(ctx: &Context<'a>) -> Result<End<'a>, Unsupported> {
        let target = ctx.targets.first().ok_or_else(|| Unsupported("this node has no RDMA device".into()))?;
        End::of(ctx.inventory, &ctx.settings.rdma, target.id())
    }

    /// The device's name.
    pub fn name(&self) -> &'a str {
        &self.device.name
    }

    /// The path of one of perftest's programs.
    fn program(&self, name: &str) -> Result<String, Unsupported> {
        let Perftest { directory, programs, .. } = self.perftest;
        if !programs.iter().any(|program| program == name) {
            return Err(Unsupported(format!(
                "perftest in {directory} has no {name}: install the whole package"
            )));
        }
        Ok(format!("{}/{name}", directory.trim_end_matches('/')))
    }
}

/// What is said where no perftest is found.
pub fn not_installed(settings: &RdmaSettings) -> Unsupported {
    let program = PROGRAMS[0];
    Unsupported(if settings.perftest.as_os_str().is_empty() {
        format!(
            "perftest is not installed (no {program} in {}): apt-get install perftest, or dnf install perftest",
            FOLDERS.join(", ")
        )
    } else {
        let folder = settings.perftest.display();
        format!(
            "there is no {program} in {folder}, which [rdma] perftest_directory names: install perftest there"
        )
    })
}

/// Host memory bandwidth with a partner, where a run measured it: what `gdr` compares with.
pub fn host_bandwidth(measurements: &[Measurement]) -> Option<HostBandwidth> {
    let of = |direction: Direction| {
        let has = |m: &&Measurement| {
            m.metric == &metrics::WRITE && m.labels[2] == "host" && m.labels[3] == direction.word()
        };
        measurements.iter().find(has).map(|m| m.value)
    };
    Some(HostBandwidth { sent: of(Direction::Sent)?, received: of(Direction::Received)? })
}

/// What perftest says of its own failure, and the likely cause.
fn explain(output: &Output) -> Option<String> {
    perftest::read(&output.stdout, &output.stderr, None).cause()
}

/// The rails as targets.
fn targets(inventory: &Inventory, settings: &Settings) -> Vec<Target> {
    rails(inventory, &settings.rdma).into_iter().map(|rdma| Target::Rdma(rdma.name.clone())).collect()
}

/// Both ends of a run that has ended.
fn measured_with<'a>(ctx: &Context<'a>) -> Result<(End<'a>, Agreed<'a>), ParseError> {
    let end = End::at_target(ctx).map_err(|why| ParseError::Foreign(why.0))?;
    Ok((end, Agreed::of(ctx).ok_or(ParseError::Missing("partner"))?))
}

/// What a person types to repeat a transfer with a partner.
fn by_hand(command: &Command<'_>, agreed: &Agreed<'_>) -> String {
    let Agreed { partner, terms } = agreed;
    command.by_hand(&partner.host, terms.port, &partner.name, &terms.device)
}

#[cfg(test)]
mod parse_tests;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod tests;
