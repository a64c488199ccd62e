//! What the state of a function and of the way above it says.
//!
//! Each rule blames the part that it is about: a slow uplink of a switch is found once for every
//! device below, and names the link each time.

use std::collections::BTreeMap;

use super::{
    Config, Function, errors,
    hop::{Hop, Limit},
};
use crate::{
    Context, Finding, Verdict,
    config_space::{ACS_REDIRECT, Capabilities, Kind},
    inventory::{AMD, Link},
    lines::Problem,
    passive,
};

/// What mends a lack of privilege.
const START_PCID: &str = "systemctl enable --now fabricpulse-pcid.socket";

/// Everything that one run has read.
#[derive(Debug)]
pub(super) struct Node<'a> {
    pub(super) ctx: &'a Context<'a>,
    /// When the worker ended, in seconds since the epoch.
    pub(super) now: f64,
    pub(super) functions: BTreeMap<&'a str, &'a Function>,
    pub(super) rises: errors::Rises,
    pub(super) problems: &'a [Problem],
}

impl<'a> Node<'a> {
    /// The function at an address, if the worker could read it.
    pub(super) fn function(&self, pci: &str) -> Option<&'a Function> {
        self.functions.get(pci).copied()
    }

    /// The bridges above a function, nearest first; none in place of one that could not be read.
    pub(super) fn bridges(&self, pci: &str) -> Vec<Option<&'a Function>> {
        let path = self.ctx.inventory.function(pci).map(|function| function.path.as_slice());
        path.unwrap_or_default().iter().map(|bridge| self.function(bridge)).collect()
    }

    /// The findings about one target.
    pub(super) fn findings(&self, pci: &str) -> Vec<Finding> {
        let Some(function) = self.function(pci) else {
            let problem = self.problems.iter().find(|problem| problem.concerns(pci));
            let found = problem.map_or("the worker did not answer for it".into(), |problem| {
                format!("{}: {}", problem.path, problem.error)
            });
            return vec![
                Finding::new("config_space", pci, Verdict::Unknown, found, "a function that can be read")
                    .try_command(show(pci)),
            ];
        };
        let bridges = self.bridges(pci);
        let way: Vec<&Function> =
            std::iter::once(function).chain(bridges.iter().copied().flatten()).collect();
        // The topmost one takes everything below with it.
        if let Some(dead) = way.iter().rev().find(|function| function.config == Config::AllOnes) {
            let found = format!("config space of {} reads all ones: it fell off the bus", dead.pci);
            return vec![
                Finding::new("config_space", &dead.pci, Verdict::Fail, found, "a device that answers")
                    .because("nothing below it can be used until it is reset or the node is power cycled")
                    .try_command(format!("{}; dmesg | grep {}", show(&dead.pci), dead.pci)),
            ];
        }
        let mut findings = vec![self.config_space(function)];
        let path = self.ctx.inventory.function(pci).map_or(&[][..], |known| &known.path);
        let concerned = |part: &str| part == pci || path.iter().any(|bridge| bridge == part);
        let unread = self.problems.iter().filter(|problem| concerned(&problem.part));
        findings.extend(unread.map(|problem| passive::unread("pcie_files", &problem.part, problem)));
        let hops = Hop::all(function, &bridges);
        for hop in &hops {
            findings.extend(self.link(function, hop));
        }
        findings.push(narrowest(pci, &hops));
        // A virtual function's own sizes mean nothing: its parent's are used.
        if function.express().is_some() && !function.hides_link() {
            findings.extend(self.read_request(function));
            findings.extend(payload(function, &bridges));
        }
        findings.extend(redirection(pci, &bridges));
        findings.extend(errors::findings(pci, &way, &self.rises, &self.ctx.settings.pcie, show));
        findings
    }

    fn config_space(&self, function: &Function) -> Finding {
        let pci = &function.pci;
        match &function.config {
            Config::Read(space) => {
                let found = match (&space.express, space.capabilities) {
                    (Some(express), _) => express.kind.map_or("a kind unknown here", Kind::words).to_string(),
                    (None, Some(Capabilities::Readable | Capabilities::None)) => {
                        "no PCI Express function".into()
                    }
                    (None, Some(Capabilities::Hidden) | None) => "its header only".into(),
                };
                Finding::new("config_space", pci, Verdict::Pass, found, "a device that answers")
            }
            Config::AllOnes => {
                Finding::new("config_space", pci, Verdict::Fail, "all ones", "a device that answers")
            }
            Config::Hidden(why) => Finding::not_applicable(
                "config_space",
                pci,
                format!(
                    "capabilities are not readable: {why}; MaxReadReq, MaxPayload and ACS are not judged"
                ),
            )
            .because("beyond 64 bytes the kernel shows config space to privileged readers only")
            .try_command(START_PCID),
        }
    }

    /// Width and speed of one link.
    fn link(&self, target: &Function, hop: &Hop<'_>) -> Vec<Finding> {
        let lower = &hop.lower.pci;
        let Some(link) = hop.link() else {
            return vec![Finding::not_applicable("link_width", lower, format!("{lower} shows no link"))];
        };
        if *lower == target.pci && hop.lower.hides_link() {
            return vec![
                Finding::new(
                    "link_width",
                    lower,
                    Verdict::Unknown,
                    format!("{} shows no lanes", hop.words()),
                    "a device that tells its link",
                )
                .because("it answers, but does not tell its link, as a virtual function does not")
                .try_command(show(lower)),
            ];
        }
        let mut findings = Vec::new();
        if let Some(limit) = hop.width_limit() {
            findings.push(width(hop, &link, limit));
        }
        // A link that is down has no speed worth a second finding.
        if let Some(limit) = hop.speed_limit().filter(|_| link.width.is_some()) {
            findings.push(self.speed(target, hop, &link, limit));
        }
        if findings.is_empty() {
            findings.push(match link.width {
                Some(width) => Finding::new(
                    "link_width",
                    lower,
                    Verdict::Unknown,
                    format!("{} on {}", lanes(width), hop.words()),
                    format!("what both ends can do, but {lower} does not say what it can"),
                )
                .try_command(show(lower)),
                None => {
                    Finding::not_applicable("link_width", lower, format!("{lower} says nothing of its link"))
                }
            });
        }
        findings
    }

    fn speed(&self, target: &Function, hop: &Hop<'_>, link: &Link, limit: Limit<f64>) -> Finding {
        let lower = &hop.lower.pci;
        let expected = limit.words(transfers);
        let Some(speed) = link.speed else {
            return Finding::new(
                "link_speed",
                lower,
                Verdict::Unknown,
                "a speed that is not known",
                expected,
            )
            .try_command(show(lower));
        };
        let found = format!("{} on {}", transfers(speed), hop.words());
        if speed >= limit.value() {
            return Finding::new("link_speed", lower, Verdict::Pass, found, expected);
        }
        let least = self.ctx.settings.pcie.busy_percent;
        let under_load =
            self.ctx.loaded.get(lower, self.now).and_then(|(age, link)| Some((age, link.speed?)));
        if self.saves_power(target, lower)
            && let Some((age, loaded)) = under_load
        {
            let while_moving = format!("{} while data moved, {} ago", transfers(loaded), passive::span(age));
            let finding = |verdict| {
                Finding::new(
                    "link_speed",
                    lower,
                    verdict,
                    format!("{found}, {while_moving}"),
                    expected.clone(),
                )
            };
            return if loaded >= limit.value() {
                finding(Verdict::Pass)
            } else {
                finding(Verdict::Degraded)
                    .because("it is slow under load too, so it does not sleep: the link trained badly")
                    .try_command(show(lower))
            };
        }
        match target.busy_percent {
            Some(busy) if self.saves_power(target, lower) && busy >= least => Finding::new(
                "link_speed",
                lower,
                Verdict::Degraded,
                format!("{found}, {busy} % busy"),
                expected,
            )
            .because("a GPU at work does not slow its link to save power: the link trained badly")
            .try_command(show(lower)),
            Some(_) | None if self.saves_power(target, lower) => {
                Finding::new("link_speed", lower, Verdict::Unknown, found, expected)
                    .because("an idle GPU slows its link to save power: host_copy looks while data moves")
                    .try_command(show(lower))
            }
            Some(_) | None => Finding::new("link_speed", lower, Verdict::Degraded, found, expected)
                .because(
                    "it carries that much less than it should: reseat or retrain it, and read AER counts",
                )
                .try_command(show(lower)),
        }
    }

    /// Whether the lower end of a link is a GPU, or one of the bridges inside an AMD GPU: those
    /// follow the GPU's power state.
    fn saves_power(&self, target: &Function, lower: &str) -> bool {
        let inventory = self.ctx.inventory;
        inventory.is_gpu(&target.pci)
            && (lower == target.pci || inventory.function(lower).is_some_and(|bridge| bridge.vendor == AMD))
    }

    /// MaxReadReq of a NIC.
    fn read_request(&self, function: &Function) -> Option<Finding> {
        let pci = &function.pci;
        let least = self.ctx.settings.pcie.nic_max_read_request;
        let express = function.express()?;
        let found = express.max_read_request?;
        if self.ctx.inventory.is_gpu(pci) {
            return None;
        }
        let expected = format!("at least {least} bytes, by probe.pcie.nic_max_read_request");
        let shown = format!("MaxReadReq {found} bytes");
        if found >= least {
            return Some(Finding::new("max_read_request", pci, Verdict::Pass, shown, expected));
        }
        let code = u16::try_from(least.clamp(128, 4096).next_power_of_two().ilog2()).ok()? - 7;
        let value = express.device_control? & !(7 << 12) | code << 12;
        let command = format!("setpci -s {} {:x}.w={value:04x}", short(pci), express.offset + 8);
        Some(
            Finding::new("max_read_request", pci, Verdict::Degraded, shown, expected)
                .because("a NIC that asks for small reads can't fill its link; a reboot sets this back")
                .try_command(command),
        )
    }
}

/// ACS redirection on the bridges above a function; none in place of one that could not be read.
fn redirection(pci: &str, bridges: &[Option<&Function>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut read, mut off) = (0, 0);
    for bridge in bridges.iter().flatten() {
        let Config::Read(space) = &bridge.config else { continue };
        read += usize::from(space.bytes > crate::config_space::LEGACY_BYTES);
        let Some(acs) = space.acs else { continue };
        if !acs.redirects() {
            off += 1;
            continue;
        }
        let found = format!("{} on at {}", acs.redirect_bits().join(", "), bridge.pci);
        let value = acs.control & !ACS_REDIRECT;
        findings.push(
            Finding::new("acs_redirect", &bridge.pci, Verdict::Degraded, found, "no redirection")
                .because(
                    "traffic between a GPU and a NIC below one switch goes up to the root complex and back",
                )
                .try_command(format!("setpci -s {} ECAP_ACS+6.w={value:04x}", short(&bridge.pci))),
        );
    }
    let above = bridges.len();
    let silent = bridges.iter().filter(|bridge| bridge.is_none()).count();
    if silent > 0 {
        let found = format!("off on {off} of {above} bridges, {silent} could not be read");
        findings.push(Finding::new("acs_redirect", pci, Verdict::Unknown, found, "no redirection"));
    } else if findings.is_empty() {
        findings.push(if above == 0 {
            Finding::not_applicable("acs_redirect", pci, "there is no bridge above it")
        } else if read < above {
            Finding::not_applicable(
                "acs_redirect",
                pci,
                format!("extended config space of {} of {above} bridges is not readable", above - read),
            )
        } else {
            let found = format!("off on {off} bridges, {} have no ACS", above - off);
            Finding::new("acs_redirect", pci, Verdict::Pass, found, "no redirection")
        });
    }
    findings
}

fn width(hop: &Hop<'_>, link: &Link, limit: Limit<u32>) -> Finding {
    let lower = &hop.lower.pci;
    let expected = limit.words(lanes);
    match link.width {
        None => {
            let found = format!("{} is down: it has no lanes", hop.words());
            Finding::new("link_width", lower, Verdict::Fail, found, expected)
                .because("nothing passes a link without lanes")
                .try_command(show(lower))
        }
        Some(width) if width < limit.value() => {
            let found = format!("{} on {}", lanes(width), hop.words());
            Finding::new("link_width", lower, Verdict::Degraded, found, expected)
                .because(
                    "lanes that did not train take their share of bandwidth: reseat the card, riser or cable",
                )
                .try_command(show(lower))
        }
        Some(width) => {
            let found = format!("{} on {}", lanes(width), hop.words());
            Finding::new("link_width", lower, Verdict::Pass, found, expected)
        }
    }
}

/// The narrowest link of a way, by name.
fn narrowest(pci: &str, hops: &[Hop<'_>]) -> Finding {
    let known: Vec<_> = hops.iter().filter_map(|hop| Some((hop, hop.link()?, hop.bandwidth()?))).collect();
    let Some((hop, link, bandwidth)) = known.iter().min_by(|a, b| a.2.total_cmp(&b.2)) else {
        return Finding::not_applicable(
            "path",
            pci,
            "no link of its way to the root complex tells its state",
        );
    };
    let found = format!(
        "narrowest of {} is {}: {} at {}, {:.1} GB/s",
        count(hops.len()),
        hop.words(),
        lanes(link.width.unwrap_or_default()),
        transfers(link.speed.unwrap_or_default()),
        bandwidth / 1e9
    );
    Finding::new("path", &hop.lower.pci, Verdict::Pass, found, "named, and judged link by link")
        .try_command(show(&hop.lower.pci))
}

/// MaxPayload along a way: neighbours must agree, or packets are dropped as malformed.
fn payload(function: &Function, bridges: &[Option<&Function>]) -> Option<Finding> {
    let way: Vec<Option<&Function>> =
        std::iter::once(Some(function)).chain(bridges.iter().copied()).collect();
    let size_of = |function: &Function| function.express()?.max_payload;
    let (first, size) = (function, size_of(function)?);
    for pair in way.windows(2) {
        let [Some(lower), Some(upper)] = pair else { continue };
        let (Some(below), Some(above)) = (size_of(lower), size_of(upper)) else { continue };
        // The kernel's pci=pcie_bus_perf leaves a smaller size below, with reads as small.
        let reads = lower.express().and_then(|express| express.max_read_request);
        if below > above || (below < above && reads.is_none_or(|reads| reads > below)) {
            let found = format!("MaxPayload {below} bytes at {}, {above} at {}", lower.pci, upper.pci);
            return Some(
                Finding::new("max_payload", &lower.pci, Verdict::Degraded, found, "the same on both")
                    .because("a packet larger than the receiver's MaxPayload is dropped as malformed")
                    .try_command(format!("{}; boot with pci=pcie_bus_safe", show(&lower.pci))),
            );
        }
    }
    let possible = way.iter().flatten().filter_map(|function| function.express()?.max_payload_cap).min();
    let expected = possible.map_or("the same on the whole way".into(), |possible| {
        format!("the same on the whole way; all could do {possible} bytes")
    });
    Some(Finding::new("max_payload", &first.pci, Verdict::Pass, format!("MaxPayload {size} bytes"), expected))
}

fn show(pci: &str) -> String {
    format!("lspci -vvv -s {}", short(pci))
}

/// An address as lspci and setpci take it, without the domain that most machines don't have.
fn short(pci: &str) -> &str {
    pci.strip_prefix("0000:").unwrap_or(pci)
}

fn lanes(width: u32) -> String {
    format!("x{width}")
}

fn transfers(speed: f64) -> String {
    format!("{speed} GT/s")
}

fn count(links: usize) -> String {
    if links == 1 { "1 link".into() } else { format!("{links} links") }
}
