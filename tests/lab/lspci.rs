//! What `lspci -vvvn` says of each PCI function, read from its text alone.
//!
//! This is the lab's second opinion: it shares no code and no register layout with the product, and
//! takes lspci's word for everything.

use std::ops::RangeInclusive;

/// One PCI function.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Function {
    pub(crate) pci: String,
    pub(crate) vendor: u16,
    pub(crate) device: u16,
    /// Base class and subclass.
    pub(crate) class: u16,
    pub(crate) interface: u8,
    pub(crate) driver: Option<String>,
    pub(crate) numa: Option<u32>,
    /// The buses below a bridge.
    pub(crate) below: Option<RangeInclusive<u8>>,
    pub(crate) express: Option<Express>,
    /// ACSCtl, put together from its flags.
    pub(crate) acs: Option<u16>,
}

/// The PCI Express capability.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Express {
    pub(crate) kind: String,
    pub(crate) can: Link,
    pub(crate) is: Link,
    pub(crate) max_payload_cap: u32,
    pub(crate) max_payload: u32,
    pub(crate) max_read_req: u32,
    pub(crate) relaxed_ordering: bool,
    pub(crate) extended_tags: bool,
    /// None before version 2 of the capability.
    pub(crate) ten_bit_tags: Option<bool>,
}

/// Speed in GT/s and lanes; none where lspci says `unknown` and `x0`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Link {
    pub(crate) speed: Option<f64>,
    pub(crate) width: Option<u32>,
}

impl Function {
    pub(crate) fn bus(&self) -> u8 {
        u8::from_str_radix(&self.pci[5..7], 16).expect("a bus number")
    }
}

/// The bridges above a function, nearest first.
pub(crate) fn path(function: &Function, all: &[Function]) -> Vec<String> {
    let mut bridges: Vec<_> = all
        .iter()
        .filter_map(|bridge| Some((bridge.below.clone()?, &bridge.pci)))
        .filter(|(below, _)| below.contains(&function.bus()))
        .collect();
    bridges.sort_by_key(|(below, _)| below.end() - below.start());
    bridges.into_iter().map(|(_, pci)| pci.clone()).collect()
}

/// Reads all functions.
///
/// # Panics
///
/// Where the text is not as lspci prints it: nothing can be compared then.
pub(crate) fn read(text: &str) -> Vec<Function> {
    text.split("\n\n").map(str::trim_end).filter(|block| !block.is_empty()).map(function).collect()
}

fn function(block: &str) -> Function {
    let (head, body) = block.split_once('\n').unwrap_or((block, ""));
    let lines = Lines::of(body);
    let mut words = head.split(' ');
    let mut next = || words.next().unwrap_or_else(|| panic!("a short line from lspci: {head}"));
    let pci = match next() {
        address if address.len() == 7 => format!("0000:{address}"),
        address => address.to_owned(),
    };
    let class = hex(next().trim_end_matches(':'));
    let (vendor, device) = next().split_once(':').expect("vendor:device");
    Function {
        pci,
        vendor: hex(vendor),
        device: hex(device),
        class,
        interface: after(head, "(prog-if ")
            .map_or(0, |word| u8::from_str_radix(word, 16).expect("two digits")),
        driver: lines.get("Kernel driver in use").map(str::to_owned),
        numa: lines.get("NUMA node").map(|node| node.parse().expect("a NUMA node")),
        below: lines.get("Bus").map(|bus| {
            let number = |key| u8::from_str_radix(after(bus, key).expect("a bus"), 16).expect("a bus number");
            number("secondary=")..=number("subordinate=")
        }),
        express: lines.capability("Express").map(|title| express(title, &lines)),
        acs: lines.get("ACSCtl").map(|flags| {
            let names = [
                "SrcValid",
                "TransBlk",
                "ReqRedir",
                "CmpltRedir",
                "UpstreamFwd",
                "EgressCtrl",
                "DirectTrans",
            ];
            names.iter().rev().fold(0, |word, name| word << 1 | u16::from(flag(flags, name)))
        }),
    }
}

fn express(title: &str, lines: &Lines) -> Express {
    let line = |label| lines.get(label).unwrap_or_else(|| panic!("no {label} below {title}"));
    let number = |label, key| {
        let word = after(line(label), key).unwrap_or_else(|| panic!("no {key} in {label}"));
        word.parse().unwrap_or_else(|_| panic!("{key} {word} in {label}"))
    };
    let link = |label| Link {
        speed: after(line(label), "Speed ")
            .expect("a speed")
            .strip_suffix("GT/s")
            .map(|gt| gt.parse().expect("GT/s")),
        width: after(line(label), "Width x")
            .map(|lanes| lanes.parse().expect("lanes"))
            .filter(|&lanes| lanes != 0),
    };
    let (_, kind) = title.split_once(") ").expect("a kind of function");
    let kind = kind.split([',', '(']).next().unwrap_or(kind).trim();
    Express {
        kind: kind.to_owned(),
        can: link("LnkCap"),
        is: link("LnkSta"),
        max_payload_cap: number("DevCap", "MaxPayload "),
        max_payload: number("DevCtl", "MaxPayload "),
        max_read_req: number("DevCtl", "MaxReadReq "),
        relaxed_ordering: flag(line("DevCtl"), "RlxdOrd"),
        extended_tags: flag(line("DevCtl"), "ExtTag"),
        ten_bit_tags: lines.get("DevCtl2").map(|text| flag(text, "10BitTagReq")),
    }
}

/// A function's lines by label, each with the lines that continue it.
struct Lines(Vec<(String, String)>);

impl Lines {
    fn of(body: &str) -> Lines {
        let mut lines: Vec<(String, String)> = Vec::new();
        for line in body.lines() {
            let continues = line.starts_with("\t\t\t");
            let line = line.trim();
            match lines.last_mut() {
                Some((_, text)) if continues => {
                    text.push(' ');
                    text.push_str(line);
                }
                Some(_) | None => {
                    let (label, text) = line.split_once(':').unwrap_or((line, ""));
                    lines.push((label.to_owned(), text.trim().to_owned()));
                }
            }
        }
        Lines(lines)
    }

    fn get(&self, label: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == label).map(|(_, text)| text.as_str())
    }

    /// The title of a capability, behind its offset: `Express (v2) Endpoint, MSI 00`.
    fn capability(&self, name: &str) -> Option<&str> {
        let titles = self.0.iter().filter(|(label, _)| label == "Capabilities");
        titles
            .filter_map(|(_, text)| text.split_once("] "))
            .map(|(_, title)| title)
            .find(|title| title.starts_with(name))
    }
}

/// The word behind `key`.
fn after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(key)?;
    rest.split([' ', ',', ';', ')']).next()
}

/// Whether `NAME+` or `NAME-` stands in the text.
fn flag(text: &str, name: &str) -> bool {
    let sign = text.split([' ', ',']).find_map(|word| word.strip_prefix(name));
    match sign {
        Some("+") => true,
        Some("-") => false,
        Some(_) | None => panic!("no {name} in {text:?}"),
    }
}

fn hex(word: &str) -> u16 {
    u16::from_str_radix(word, 16).unwrap_or_else(|_| panic!("{word:?} is no hexadecimal number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded() {
        let all = read(include_str!("lspci.txt"));
        let find = |pci: &str| all.iter().find(|function| function.pci == pci).expect("a recorded function");

        let root = find("0000:20:00.0");
        assert_eq!((root.vendor, root.device, root.class, root.interface), (0x1b36, 0x000c, 0x0604, 0));
        assert_eq!((root.driver.as_deref(), root.numa), (Some("pcieport"), Some(0)));
        assert_eq!((root.below.clone(), root.acs), (Some(0x21..=0x25), Some(0x1d)));
        let express = root.express.as_ref().expect("a capability");
        assert_eq!(express.kind, "Root Port");
        assert_eq!(express.can, Link { speed: Some(32.0), width: Some(16) });
        assert_eq!(express.is, Link { speed: Some(32.0), width: Some(16) });

        let nic = find("0000:23:00.0");
        assert_eq!((nic.driver.as_deref(), nic.acs, nic.below.clone()), (Some("virtio-pci"), None, None));
        assert_eq!(
            nic.express,
            Some(Express {
                kind: "Endpoint".to_owned(),
                can: Link { speed: Some(32.0), width: Some(16) },
                is: Link { speed: Some(8.0), width: Some(8) },
                max_payload_cap: 512,
                max_payload: 512,
                max_read_req: 128,
                relaxed_ordering: true,
                extended_tags: false,
                ten_bit_tags: Some(true),
            })
        );
        assert_eq!(path(nic, &all), ["0000:22:00.0", "0000:21:00.0", "0000:20:00.0"]);

        let switch = find("0000:22:00.0");
        let express = switch.express.as_ref().expect("a capability");
        assert_eq!(express.kind, "Downstream Port");
        assert_eq!(express.can, Link { speed: None, width: None });

        let old = find("0000:01:00.0");
        assert_eq!(old.express.as_ref().expect("a capability").ten_bit_tags, None);
        assert_eq!((old.numa, path(old, &all)), (None, vec!["0000:00:12.0".to_owned()]));
        assert_eq!(find("0000:00:1f.2").express, None);
        assert_eq!(find("0000:00:1f.2").interface, 1);
    }
}
