//! `fabricpulse read pcie`: a saved `lspci -xxxx` dump.
//!
//! A dump is one moment, and says nothing of load: a GPU at low speed may be saving power, so it is
//! unknown and never bad. What both ends of a link can do decides; where the port above is not in
//! the dump, the device's own word does.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value, json};

use super::{Class, Input, Parse, Report, clean_lines};
use crate::{
    config_space::{self, Capabilities, ConfigSpace, Express, Kind, LEGACY_BYTES},
    lspci::{self, Device},
};

/// A bus, told from those of other runs and domains.
type Bus<'a> = (usize, &'a str, u8);

/// A device of the dump, decoded.
#[derive(Debug)]
struct Part {
    file: usize,
    device: Device,
    space: Option<ConfigSpace>,
}

/// Reads the dump.
pub fn read(inputs: &[Input]) -> Report {
    let mut parts = Parts::default();
    let (mut runs, mut cut, mut recognised, mut hex) = (0, false, false, false);
    for (file, input) in inputs.iter().enumerate() {
        let dump = lspci::read(clean_lines(&input.text));
        runs = runs.max(dump.runs);
        cut |= dump.cut;
        recognised |= dump.recognised;
        for device in dump.devices {
            hex |= !device.bytes.is_empty();
            parts.add(file, device);
        }
    }
    let parts = parts.all;
    let truncated = cut || inputs.iter().any(|input| input.truncated);
    if !hex && !parts.iter().any(|part| part.device.unreachable()) {
        return without_bytes(recognised, truncated);
    }
    let complete = !inputs.iter().any(|input| input.truncated)
        && !cut
        && parts.iter().all(|part| part.device.complete());
    let findings = Findings::of(&parts);
    let (class, verdict) = findings.judge(complete, truncated);
    let unreachable: Vec<&str> = findings.unreachable.iter().map(|part| part.bdf()).collect();
    let redirecting: Vec<&str> = findings.redirecting.iter().map(|part| part.bdf()).collect();
    let mut names: Vec<&str> = parts.iter().map(Part::bdf).collect();
    names.sort_unstable();
    names.dedup();
    let facts = [
        ("devices", json!(names.len())),
        ("unreachable", json!(unreachable)),
        ("p2p_redirect", json!(redirecting)),
    ];
    let rows = parts
        .iter()
        .map(|part| {
            let mut row = part.row();
            if runs > 1 {
                row.insert("run".into(), json!(part.device.run));
            }
            if inputs.len() > 1 {
                row.insert("file".into(), json!(inputs[part.file].name));
            }
            row
        })
        .collect();
    Report {
        class,
        parse: if complete { Parse::Ok } else { Parse::Partial },
        verdict,
        complete,
        truncated,
        crashed: false,
        dialect: Some("hex"),
        valid_json: None,
        errors: Vec::new(),
        warnings: Vec::new(),
        runs,
        rows,
        facts: facts.into_iter().map(|(key, value)| (key.to_string(), value)).collect(),
    }
}

/// The devices of all files. One that a file only names may have its bytes in another file, and is
/// one row.
#[derive(Debug, Default)]
struct Parts {
    all: Vec<Part>,
    /// Where the newest device of a run and an address is.
    newest: HashMap<(usize, String), usize>,
}

impl Parts {
    fn add(&mut self, file: usize, device: Device) {
        let key = (device.run, device.bdf.clone());
        let same =
            self.newest.get(&key).and_then(|index| self.all.get_mut(*index)).filter(|part| {
                part.file != file && (part.device.bytes.is_empty() || device.bytes.is_empty())
            });
        let Some(part) = same else {
            self.newest.insert(key, self.all.len());
            self.all.push(Part { file, space: decode(&device), device });
            return;
        };
        part.device.dead |= device.dead;
        part.device.ids = part.device.ids.or(device.ids);
        part.device.class = part.device.class.or(device.class);
        if part.device.bytes.is_empty() {
            part.device.damaged = device.damaged;
            part.device.bytes = device.bytes;
            part.file = file;
        }
        part.space = decode(&part.device);
    }
}

fn decode(device: &Device) -> Option<ConfigSpace> {
    if device.unreachable() { None } else { config_space::decode(&device.bytes).ok() }
}

/// No bytes at all: text of `lspci -v`, or something else.
fn without_bytes(recognised: bool, truncated: bool) -> Report {
    let verdict = if recognised {
        "this is lspci's text without bytes: link and ACS state are not read from it; save lspci -xxxx, as root"
    } else {
        "no device and no bytes: this is not what lspci -xxxx prints; save that, as root"
    };
    Report {
        class: Class::Unknown,
        parse: if recognised { Parse::Partial } else { Parse::Error },
        verdict: verdict.into(),
        complete: false,
        truncated,
        crashed: false,
        dialect: None,
        valid_json: None,
        errors: Vec::new(),
        warnings: Vec::new(),
        runs: 0,
        rows: Vec::new(),
        facts: Map::new(),
    }
}

impl Part {
    fn bdf(&self) -> &str {
        &self.device.bdf
    }

    fn express(&self) -> Option<&Express> {
        self.space.as_ref()?.express.as_ref()
    }

    fn class(&self) -> Option<u16> {
        self.space.as_ref().and_then(ConfigSpace::short_class).or(self.device.class)
    }

    fn is_gpu(&self) -> bool {
        self.class().is_some_and(|class| matches!(class >> 8, 0x03 | 0x12))
    }

    fn is_nic(&self) -> bool {
        self.class().is_some_and(|class| class >> 8 == 0x02)
    }

    /// A virtual function shares its parent's link and shows none of its own.
    fn is_virtual(&self) -> bool {
        self.space.as_ref().is_some_and(|space| space.vendor.is_none() && space.bytes > 3)
    }

    fn word(&self) -> &'static str {
        if self.is_gpu() {
            "GPU"
        } else if self.is_nic() {
            "NIC"
        } else {
            "endpoint"
        }
    }

    /// Domain and bus.
    fn bus(&self) -> Option<(&str, u8)> {
        let (rest, _) = self.device.bdf.rsplit_once(':')?;
        let (domain, bus) = rest.rsplit_once(':')?;
        Some((domain, u8::from_str_radix(bus, 16).ok()?))
    }

    /// The buses behind a bridge, if it has any: run, domain, first and last.
    fn behind(&self) -> Option<(Bus<'_>, Bus<'_>)> {
        let buses = self.space.as_ref()?.buses?;
        let (domain, own) = self.bus()?;
        let bus = |number| (self.device.run, domain, number);
        (buses.secondary > own && buses.subordinate >= buses.secondary)
            .then(|| (bus(buses.secondary), bus(buses.subordinate)))
    }

    /// Run, domain and bus.
    fn place(&self) -> Option<Bus<'_>> {
        self.bus().map(|(domain, bus)| (self.device.run, domain, bus))
    }

    fn row(&self) -> Map<String, Value> {
        let space = self.space.as_ref();
        let express = self.express();
        let hex = |id: u16| format!("{id:04x}");
        let reachable = (!self.device.bytes.is_empty() || self.device.unreachable())
            .then_some(!self.device.unreachable());
        let ids = self.device.ids.filter(|_| space.is_none_or(|space| space.vendor.is_none()));
        let readable = space.and_then(|space| space.capabilities).map(|state| match state {
            Capabilities::Hidden => false,
            Capabilities::None | Capabilities::Readable => true,
        });
        let values = [
            ("bdf", json!(self.device.bdf)),
            ("reachable", json!(reachable)),
            ("capabilities_readable", json!(readable)),
            ("vendor", json!(space.and_then(|space| space.vendor).or(ids.map(|ids| ids.0)).map(hex))),
            ("device", json!(space.and_then(|space| space.device).or(ids.map(|ids| ids.1)).map(hex))),
            ("pci_class", json!(self.class().map(hex))),
            ("kind", json!(express.and_then(|express| express.kind).map(Kind::words))),
            ("cap_speed_gt", json!(express.and_then(|express| express.max_speed))),
            ("cap_width", json!(express.and_then(|express| express.max_width))),
            ("sta_speed_gt", json!(express.and_then(|express| express.speed))),
            ("sta_width", json!(express.and_then(|express| express.width))),
            ("max_payload_cap", json!(express.and_then(|express| express.max_payload_cap))),
            ("max_payload", json!(express.and_then(|express| express.max_payload))),
            ("max_read_req", json!(express.and_then(|express| express.max_read_request))),
            ("relaxed_ordering", json!(express.and_then(|express| express.relaxed_ordering))),
            ("acs_ctl", json!(space.and_then(|space| space.acs).map(|acs| acs.control))),
        ];
        let known = values.into_iter().filter(|(_, value)| !value.is_null());
        known.map(|(key, value)| (key.to_string(), value)).collect()
    }
}

/// An endpoint's link against what both ends can do.
#[derive(Clone, Copy, Debug)]
struct Link<'a> {
    part: &'a Part,
    width: u32,
    speed: Option<f64>,
    most_width: u32,
    most_speed: Option<f64>,
    /// The port above, where it is what limits the link.
    limited_by: Option<&'a Part>,
}

impl Link<'_> {
    fn narrow(&self) -> bool {
        self.width < self.most_width
    }

    fn slow(&self) -> bool {
        self.speed.zip(self.most_speed).is_some_and(|(speed, most)| speed < most)
    }

    fn degraded(&self) -> bool {
        self.narrow() || (self.slow() && !self.part.is_gpu())
    }

    /// `NIC 0000:c1:00.0 at 16 of 32 GT/s and x8 of x16 (25 % of its bandwidth)`
    fn words(&self) -> String {
        let speed = match (self.speed, self.most_speed) {
            (Some(speed), Some(most)) => format!("{speed} of {most} GT/s"),
            (Some(speed), None) => format!("{speed} GT/s"),
            (None, _) => "an unknown speed".into(),
        };
        let share = match (self.speed, self.most_speed) {
            (Some(speed), Some(most)) => {
                let lanes = f64::from(self.width) / f64::from(self.most_width);
                format!(" ({:.0} % of the rate)", 100.0 * lanes * speed / most)
            }
            (None, _) | (_, None) => String::new(),
        };
        let port =
            self.limited_by.map(|port| format!(", as much as port {} can", port.bdf())).unwrap_or_default();
        format!(
            "{} {} at {speed} and x{} of x{}{share}{port}",
            self.part.word(),
            self.part.bdf(),
            self.width,
            self.most_width
        )
    }
}

/// What the rules look at.
#[derive(Debug, Default)]
struct Findings<'a> {
    unreachable: Vec<&'a Part>,
    redirecting: Vec<&'a Part>,
    links: Vec<Link<'a>>,
    /// Endpoints that say what they can do, but not what their link does.
    silent: Vec<&'a Part>,
    hidden: Vec<&'a Part>,
    /// Bridges above a GPU or NIC whose extended space is not in the dump.
    without_acs: usize,
}

impl<'a> Findings<'a> {
    fn of(parts: &'a [Part]) -> Findings<'a> {
        let mut findings = Findings::default();
        let mut ports: BTreeMap<Bus<'_>, Vec<&Part>> = BTreeMap::new();
        for part in parts {
            if let Some((first, _)) = part.behind() {
                ports.entry(first).or_default().push(part);
            }
        }
        let wanted: BTreeSet<Bus<'_>> =
            parts.iter().filter(|part| part.is_gpu() || part.is_nic()).filter_map(Part::place).collect();
        for part in parts {
            if part.device.unreachable() {
                findings.unreachable.push(part);
            }
            let Some(space) = &part.space else { continue };
            if space.capabilities == Some(Capabilities::Hidden) {
                findings.hidden.push(part);
            }
            if part.behind().is_some_and(|(first, last)| wanted.range(first..=last).next().is_some()) {
                findings.without_acs += usize::from(space.express.is_some() && space.bytes <= LEGACY_BYTES);
                if space.acs.is_some_and(config_space::Acs::redirects) {
                    findings.redirecting.push(part);
                }
            }
            if let Some(express) = &space.express
                && express.kind.is_some_and(Kind::is_endpoint)
                && !part.is_virtual()
                && let Some(most) = express.max_width
            {
                if let Some(width) = express.width {
                    findings.links.push(link(part, express, width, most, &ports));
                }
                if express.width.is_none() || (express.speed.is_none() && express.max_speed.is_some()) {
                    findings.silent.push(part);
                }
            }
        }
        findings
    }

    /// The class and the sentence: the first rule that holds.
    fn judge(&self, complete: bool, truncated: bool) -> (Class, String) {
        if let Some(first) = self.unreachable.first() {
            let others = more(self.unreachable.len() - 1, "more");
            return (
                Class::Error,
                format!(
                    "{}{others} reads all ones: no device answers there, it probably fell off the bus or is powered \
                     down; look for AER and hot-plug lines in dmesg, then reset it or power cycle the node",
                    first.bdf()
                ),
            );
        }
        let degraded: Vec<&Link<'_>> = self.links.iter().filter(|link| link.degraded()).collect();
        if !degraded.is_empty() || !self.redirecting.is_empty() {
            return (Class::Degraded, self.degraded(&degraded));
        }
        if truncated || !complete {
            return (
                Class::Unknown,
                "the dump is cut or has lines missing, so what is below or behind is not known; save lspci -xxxx again, \
                 whole"
                    .into(),
            );
        }
        if let Some(first) = self.hidden.first() {
            let others = more(self.hidden.len() - 1, "more");
            return (
                Class::Unknown,
                format!(
                    "capabilities of {}{others} are not readable in this dump (64 bytes only); link and ACS state are \
                     not known; save lspci -xxxx as root",
                    first.bdf()
                ),
            );
        }
        let slow: Vec<&Link<'_>> = self.links.iter().filter(|link| link.slow()).collect();
        if let Some(first) = slow.first() {
            let others = more(slow.len() - 1, "more");
            return (
                Class::Unknown,
                format!(
                    "{}{others}: width is full, and idle GPUs lower their speed to save power; save it again under load \
                     before judging speed",
                    first.words()
                ),
            );
        }
        if let Some(first) = self.silent.first() {
            let others = more(self.silent.len() - 1, "more");
            return (
                Class::Unknown,
                format!(
                    "{}{others} shows no link width or speed: its link is down, or a virtual machine hides it; look at it on the \
                     host",
                    first.bdf()
                ),
            );
        }
        if self.links.is_empty() {
            return (
                Class::Unknown,
                "no endpoint in the dump says what its link can do; save lspci -xxxx of the whole machine, as root"
                    .into(),
            );
        }
        (Class::Healthy, self.healthy())
    }

    fn degraded(&self, links: &[&Link<'_>]) -> String {
        let mut words = Vec::new();
        if let Some(first) = links.first() {
            words.push(format!("{}{}", first.words(), more(links.len() - 1, "more slow or narrow")));
        }
        if let Some(first) = self.redirecting.first() {
            let bits = first.space.as_ref().and_then(|space| space.acs).map(config_space::Acs::redirect_bits);
            let others: Vec<&str> = self.redirecting.iter().skip(1).take(3).map(|part| part.bdf()).collect();
            let list = if others.is_empty() { String::new() } else { format!(", {}", others.join(", ")) };
            words.push(format!(
                "{} {}{list}{} {} peer-to-peer ({})",
                if self.redirecting.len() == 1 { "bridge" } else { "bridges" },
                first.bdf(),
                more(self.redirecting.len() - 1 - others.len(), "more"),
                if self.redirecting.len() == 1 { "redirects" } else { "redirect" },
                bits.unwrap_or_default().join(" ")
            ));
        }
        let advice = match (links.is_empty(), self.redirecting.is_empty()) {
            (false, true) => "reseat or retrain it, and read AER counts",
            (true, false) => "switch ACS redirection off if peers are to talk directly",
            (false, false) | (true, true) => "retrain the link; switch ACS redirection off",
        };
        format!("{}; {advice}", words.join("; "))
    }

    fn healthy(&self) -> String {
        let endpoints = match self.links.len() {
            1 => "1 endpoint".to_string(),
            count => format!("{count} endpoints"),
        };
        let limited = self.links.iter().filter(|link| link.limited_by.is_some()).count();
        let limited = match limited {
            0 => String::new(),
            count => format!(" ({count} of them limited by a slower or narrower port above)"),
        };
        let acs = if self.without_acs > 0 {
            "ACS is not in this dump, and is not judged (save lspci -xxxx)"
        } else {
            "no bridge above a GPU or NIC in the dump redirects peer-to-peer"
        };
        format!(
            "{endpoints} at the width and speed that both ends can do{limited}; {acs}; MaxPayload and MaxReadReq are \
             not judged"
        )
    }
}

fn link<'a>(
    part: &'a Part,
    express: &Express,
    width: u32,
    most: u32,
    ports: &BTreeMap<Bus<'_>, Vec<&'a Part>>,
) -> Link<'a> {
    // The port right above is the one whose secondary bus the endpoint is on; its own file first.
    let above = part.place().and_then(|bus| ports.get(&bus)).map(Vec::as_slice).unwrap_or_default();
    let port = above.iter().find(|port| port.file == part.file).or(above.first()).copied();
    let ends = port.and_then(Part::express).filter(|express| express.kind.is_some_and(Kind::is_upper_end));
    let port_width = ends.and_then(|ends| ends.max_width).unwrap_or(most);
    let port_speed = ends.and_then(|ends| ends.max_speed);
    let most_speed = match (express.max_speed, port_speed) {
        (Some(own), Some(port)) => Some(own.min(port)),
        (own, _) => own,
    };
    Link {
        part,
        width,
        speed: express.speed,
        most_width: most.min(port_width),
        most_speed,
        limited_by: port.filter(|_| port_width < most || most_speed < express.max_speed),
    }
}

fn more(count: usize, word: &str) -> String {
    if count == 0 { String::new() } else { format!(" (and {count} {word})") }
}

#[cfg(test)]
mod tests;
