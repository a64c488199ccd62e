//! The oracle is lspci's own text of the same devices, read here without the decoder's help.

use std::collections::BTreeMap;

use super::*;
use crate::config_space::decode;

const STAGES: [(&str, &str, &str); 5] = [
    (
        "1-initial",
        include_str!("../testdata/pcie/1-initial.lspci-xxxx.txt"),
        include_str!("../testdata/pcie/1-initial.lspci-vvv.txt"),
    ),
    (
        "2-healthy",
        include_str!("../testdata/pcie/2-healthy.lspci-xxxx.txt"),
        include_str!("../testdata/pcie/2-healthy.lspci-vvv.txt"),
    ),
    (
        "4-rdma",
        include_str!("../testdata/pcie/4-rdma.lspci-xxxx.txt"),
        include_str!("../testdata/pcie/4-rdma.lspci-vvv.txt"),
    ),
    (
        "5-degraded",
        include_str!("../testdata/pcie/5-degraded.lspci-xxxx.txt"),
        include_str!("../testdata/pcie/5-degraded.lspci-vvv.txt"),
    ),
    (
        "6-unplugged",
        include_str!("../testdata/pcie/6-unplugged.lspci-xxxx.txt"),
        include_str!("../testdata/pcie/6-unplugged.lspci-vvv.txt"),
    ),
];

type Fields = BTreeMap<&'static str, String>;

/// What `lspci -nnvvv` says of each device, as text; a field that it does not print is not there.
fn told(text: &str) -> BTreeMap<String, Fields> {
    let mut devices: BTreeMap<String, Fields> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        if !line.starts_with('\t') && !line.is_empty() {
            let (bdf, rest) = line.split_once(' ').unwrap();
            name = format!("0000:{bdf}");
            let fields = devices.entry(name.clone()).or_default();
            let (class, ids) = rest.split_once("]: ").unwrap();
            fields.insert("class", class.rsplit('[').next().unwrap().to_string());
            let mut ids = ids.split('[').filter_map(|part| part.split(']').next());
            fields.insert("ids", ids.rfind(|id| id.len() == 9).unwrap().to_string());
        }
        let Some(fields) = devices.get_mut(&name) else { continue };
        let line = line.trim();
        let mut put = |key: &'static str, value: &str| {
            fields.insert(key, value.to_string());
        };
        let between = |from: &str, to: char| {
            line.split_once(from).and_then(|(_, rest)| rest.split(to).next()).unwrap_or_default()
        };
        let bits = |text: &str| {
            text.split_whitespace().map(|bit| if bit.ends_with('+') { '1' } else { '0' }).collect::<String>()
        };
        if line.starts_with("Bus: primary=") {
            let numbers =
                [between("primary=", ','), between("secondary=", ','), between("subordinate=", ',')];
            put("buses", &numbers.join(" "));
        } else if line.contains("] Express (v") {
            put("version", between("Express (v", ')'));
            put("offset", between("[", ']'));
            let kind = line.split_once(") ").unwrap().1;
            put("kind", kind.split([',', '(']).next().unwrap().trim());
        } else if line.starts_with("DevCap:") {
            put("max_payload_cap", between("MaxPayload ", ' '));
        } else if line.starts_with("ExtTag") {
            put("extended_tags_cap", &line[6..7]);
        } else if line.starts_with("RlxdOrd") {
            put("relaxed_ordering", &line[7..8]);
            put("extended_tags", between("ExtTag", ' '));
        } else if line.starts_with("MaxPayload ") {
            put("max_payload", between("MaxPayload ", ' '));
            put("max_read_request", between("MaxReadReq ", ' '));
        } else if line.starts_with("LnkCap:") {
            put("max_speed", between("Speed ", ','));
            put("max_width", between("Width ", ','));
        } else if line.starts_with("LnkSta:") {
            put("speed", between("Speed ", ',').split(' ').next().unwrap());
            put("width", between("Width ", ',').split(' ').next().unwrap());
        } else if line.starts_with("10BitTagComp") {
            put("ten_bit_tags_cap", between("10BitTagReq", ' '));
        } else if line.starts_with("DevCtl2:") {
            put("ten_bit_tags", between("10BitTagReq", ' '));
        } else if let Some(acs) = line.strip_prefix("ACSCap:") {
            put("acs_cap", &bits(acs));
        } else if let Some(acs) = line.strip_prefix("ACSCtl:") {
            put("acs_ctl", &bits(acs));
        } else if line.ends_with("] Advanced Error Reporting") {
            put("aer", "yes");
        }
    }
    devices
}

/// What the decoder says, in lspci's words.
fn decoded(bytes: &[u8]) -> Fields {
    let space = decode(bytes).unwrap();
    let mut fields = Fields::new();
    let mut put = |key, value: Option<String>| value.map(|value| fields.insert(key, value));
    let sign = |on: bool| if on { "+" } else { "-" }.to_string();
    let number = |value: u32| value.to_string();
    let bits = |word: u16| (0..7).map(|bit| if word >> bit & 1 == 1 { '1' } else { '0' }).collect::<String>();
    put("class", space.short_class().map(|class| format!("{class:04x}")));
    put("ids", space.vendor.zip(space.device).map(|(v, d)| format!("{v:04x}:{d:04x}")));
    put("buses", space.buses.map(|b| format!("{:02x} {:02x} {:02x}", b.primary, b.secondary, b.subordinate)));
    if let Some(e) = &space.express {
        put("version", Some(e.version.to_string()));
        put("offset", Some(format!("{:02x}", e.offset)));
        put("kind", e.kind.map(|kind| kind.words().to_string()));
        put("max_payload_cap", e.max_payload_cap.map(number));
        put("extended_tags_cap", e.extended_tags_cap.map(sign));
        put("relaxed_ordering", e.relaxed_ordering.map(sign));
        put("extended_tags", e.extended_tags.map(sign));
        put("max_payload", e.max_payload.map(number));
        put("max_read_request", e.max_read_request.map(number));
        put("ten_bit_tags_cap", e.ten_bit_tags_cap.map(sign));
        put("ten_bit_tags", e.ten_bit_tags.map(sign));
        let speed = |speed: Option<f64>| speed.map_or("unknown".into(), |speed| format!("{speed}GT/s"));
        let width = |width: Option<u32>| format!("x{}", width.unwrap_or(0));
        put("max_speed", Some(speed(e.max_speed)));
        put("max_width", Some(width(e.max_width)));
        put("speed", Some(speed(e.speed)));
        put("width", Some(width(e.width)));
    }
    put("acs_cap", space.acs.map(|acs| bits(acs.capability)));
    put("acs_ctl", space.acs.map(|acs| bits(acs.control)));
    put("aer", space.aer.map(|_| "yes".into()));
    fields
}

#[test]
fn every_field_of_every_device_is_what_lspci_says() {
    let mut compared: BTreeMap<&str, usize> = BTreeMap::new();
    for (stage, hex, text) in STAGES {
        let dump = read(hex.lines());
        let told = told(text);
        assert_eq!((dump.runs, dump.cut), (1, false), "{stage}");
        assert_eq!(
            dump.devices.iter().map(|device| &device.bdf).collect::<Vec<_>>(),
            told.keys().collect::<Vec<_>>(),
            "{stage}"
        );
        for device in &dump.devices {
            assert!(device.complete() && !device.unreachable(), "{stage} {}", device.bdf);
            let found = decoded(&device.bytes);
            assert_eq!(found, told[&device.bdf], "{stage} {}", device.bdf);
            for key in found.keys() {
                *compared.entry(key).or_default() += 1;
            }
        }
    }
    assert_eq!(compared.len(), 21, "{compared:?}");
    assert!(compared.values().all(|count| *count >= 15), "{compared:?}");
}

#[test]
fn a_dump_is_read_however_it_was_saved() {
    let hex = STAGES[3].1;
    let plain = read(hex.lines());
    let table = [
        ("CRLF", hex.replace('\n', "\r\n")),
        ("indented", hex.lines().map(|line| format!("    {line}\n")).collect()),
        ("tagged by srun", hex.lines().map(|line| format!("3: {line}\n")).collect()),
        ("with -vv text", {
            let text = "\tControl: I/O+ Mem+\n\tLnkSta:\tSpeed 8GT/s, Width x8\n";
            let line = |line: &str| match line.starts_with("00: ") {
                true => format!("{text}{line}\n"),
                false => format!("{line}\n"),
            };
            hex.lines().map(line).collect()
        }),
    ];
    for (how, saved) in table {
        assert_eq!(read(saved.lines()).devices, plain.devices, "{how}");
    }
}

#[test]
fn a_cut_dump_is_not_taken_for_a_shorter_one() {
    let text = STAGES[3].1;
    let whole = read(text.lines()).devices.len();
    let at = text.find("23:00.0 ").unwrap();
    for length in [0, 8, 30, 200, 290, 300, 305, 1000, 5000] {
        let dump = read(text[..at + length].lines());
        assert!(dump.devices.len() < whole, "{length}");
        assert_eq!(dump.cut, length > 7, "{length}: {:?}", dump.devices.last().map(|d| d.bytes.len()));
    }
}

#[test]
fn addresses_and_numbers_of_a_device_line() {
    let table = [
        ("c1:00.0", Some("0000:c1:00.0")),
        ("0001:C1:1f.7", Some("0001:c1:1f.7")),
        ("10000:01:00.0", Some("10000:01:00.0")),
        ("c1:20.0", None),
        ("c1:00.8", None),
        ("c1:00", None),
        ("1:c1:00.0", None),
        ("a:0000:c1:00.0", None),
        ("../c1:00.0", None),
        ("c1:00.0.0", None),
    ];
    for (name, want) in table {
        assert_eq!(full_address(name).as_deref(), want, "{name}");
    }
    let table = [
        ("0200: 15b3:1021 (rev 01)", (Some(0x0200), Some((0x15b3, 0x1021)))),
        (
            "3D controller [0302]: NVIDIA Corporation [H100] [10de:2330]",
            (Some(0x0302), Some((0x10de, 0x2330))),
        ),
        ("3D controller: NVIDIA Corporation", (None, None)),
    ];
    for (rest, want) in table {
        assert_eq!(numbers(rest), want, "{rest}");
    }
}

#[test]
fn signs_of_trouble_are_kept_with_their_device() {
    let table = [
        ("c1:00.0 0200: 15b3:1021 (rev ff)\n", true, true),
        ("c1:00.0 x: y\n\t!!! Unknown header type 7f\n", true, true),
        ("c1:00.0 x: y\n00: ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff\n", true, true),
        ("c1:00.0 x: y\n00: b3 15\n", false, false),
        ("c1:00.0 x: y\n10: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\n", false, false),
    ];
    for (text, dead, complete) in table {
        let dump = read(text.lines());
        assert_eq!(dump.devices.len(), 1, "{text}");
        assert_eq!(dump.devices[0].unreachable(), dead, "{text}");
        assert_eq!(dump.devices[0].complete(), complete, "{text}");
    }
    let twice = read("01:00.0 a: b\n02:00.0 a: b\n01:00.0 a: b\n".lines());
    assert_eq!((twice.runs, twice.devices[2].run), (2, 2));
    assert!(!read("hello\nBandwidth 12:30\n".lines()).recognised);
}
