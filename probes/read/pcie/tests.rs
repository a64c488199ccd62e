use super::*;

const NIC: &str = include_str!("../../testdata/pcie/081.lspci-nxxx.txt");
const HEALTHY: &str = include_str!("../../testdata/pcie/2-healthy.lspci-xxxx.txt");
const DEGRADED: &str = include_str!("../../testdata/pcie/5-degraded.lspci-xxxx.txt");

fn object(texts: &[&str]) -> Value {
    let inputs: Vec<Input> = texts
        .iter()
        .enumerate()
        .map(|(n, text)| Input { name: format!("{n}.txt"), text: (*text).into(), truncated: false })
        .collect();
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    read(&inputs).object("pcie", &names, None)
}

/// A machine of our own making: device lines and bytes as lspci prints them.
#[derive(Clone)]
struct Made {
    bdf: &'static str,
    bytes: Vec<u8>,
}

impl Made {
    /// `class` is base class and subclass; `kind` the PCIe type code; links are (speed code, lanes).
    fn new(bdf: &'static str, class: u16, kind: u8, cap: (u8, u8), sta: (u8, u8)) -> Made {
        let mut bytes = vec![0; 4096];
        bytes[..4].copy_from_slice(&[0x02, 0x10, 0xa1, 0x74]);
        bytes[6] = 0x10;
        bytes[0x0a..0x0c].copy_from_slice(&class.to_le_bytes());
        bytes[0x34] = 0x64;
        bytes[0x64] = 0x10;
        bytes[0x66] = 2 | kind << 4;
        bytes[0x70..0x72].copy_from_slice(&(u16::from(cap.0) | u16::from(cap.1) << 4).to_le_bytes());
        bytes[0x76..0x78].copy_from_slice(&(u16::from(sta.0) | u16::from(sta.1) << 4).to_le_bytes());
        Made { bdf, bytes }
    }

    fn bridge(mut self, secondary: u8, subordinate: u8, acs: u8) -> Made {
        self.bytes[0x0e] = 1;
        self.bytes[0x19..0x1b].copy_from_slice(&[secondary, subordinate]);
        self.bytes[0x100..0x108].copy_from_slice(&[0x0d, 0, 1, 0, 0x5f, 0, acs, 0]);
        self
    }

    fn cut(mut self, bytes: usize) -> Made {
        self.bytes.truncate(bytes);
        self
    }

    fn dead(mut self) -> Made {
        self.bytes.fill(0xff);
        self
    }

    fn dump(machine: &[Made]) -> String {
        let mut text = String::new();
        for made in machine {
            text += &format!("{} Some class: Some device\n", made.bdf);
            for (n, row) in made.bytes.chunks(16).enumerate() {
                let bytes: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
                text += &format!("{:02x}: {}\n", n * 16, bytes.join(" "));
            }
            text += "\n";
        }
        text
    }
}

#[test]
fn the_recorded_nic_is_read_field_by_field() {
    let object = object(&[NIC]);
    let row = &object["rows"][0];
    let want = json!({"bdf": "0000:c1:00.0", "vendor": "15b3", "device": "1021", "pci_class": "0200",
        "kind": "Endpoint", "cap_speed_gt": 32.0, "cap_width": 16, "sta_speed_gt": 16.0, "sta_width": 8,
        "max_payload_cap": 512, "max_payload": 256, "max_read_req": 512, "relaxed_ordering": true,
        "reachable": true, "capabilities_readable": true});
    assert_eq!(row, &want);
    let want = json!({"format": "pcie", "files": ["0.txt"], "class": "degraded", "parse": "ok",
        "verdict": "degraded: NIC 0000:c1:00.0 at 16 of 32 GT/s and x8 of x16 (25 % of the rate); reseat or retrain it, and read AER counts",
        "accept_sample": true, "complete": true, "truncated": false, "crashed": false, "exit_code": null,
        "dialect": "hex", "valid_json": null, "errors": [], "warnings": [], "runs": 1, "devices": 1,
        "unreachable": [], "p2p_redirect": [], "rows": [row]});
    assert_eq!(object, want);
}

#[test]
fn each_rule_leads_to_its_class_and_names_what_decided() {
    let gpu = |sta| Made::new("03:00.0", 0x1200, 0, (5, 16), sta);
    let nic = |sta| Made::new("04:00.0", 0x0200, 0, (5, 16), sta);
    let disk = |cap, sta| Made::new("2e:00.0", 0x0108, 0, cap, sta);
    let root = |cap, acs| Made::new("00:01.0", 0x0604, 4, cap, (5, 16)).bridge(3, 4, acs);
    let port = |cap| Made::new("00:02.0", 0x0604, 4, cap, (3, 8)).bridge(4, 4, 0);
    let mut function = Made::new("04:00.1", 0x0200, 0, (5, 16), (0, 0));
    function.bytes[..4].fill(0xff);
    let table: Vec<(&str, Vec<Made>, &str, &[&str])> = vec![
        ("a healthy GPU", vec![root((5, 16), 1), gpu((5, 16))], "healthy", &["not judged", "1 endpoint"]),
        ("an idle GPU", vec![gpu((1, 16))], "unknown", &["2.5 of 32 GT/s", "x16 of x16", "under load"]),
        ("a narrow GPU", vec![gpu((1, 8))], "degraded", &["GPU 0000:03:00.0", "x8 of x16"]),
        ("a slow NIC", vec![nic((4, 16))], "degraded", &["NIC 0000:04:00.0 at 16 of 32 GT/s"]),
        ("a slow disk", vec![disk((5, 2), (4, 2))], "degraded", &["16 of 32 GT/s", "x2 of x2"]),
        ("a slot that is narrower", vec![port((3, 8)), nic((3, 8))], "healthy", &["port above"]),
        ("a slot that could do more", vec![port((5, 16)), nic((3, 8))], "degraded", &["x8 of x16"]),
        ("redirection", vec![root((5, 16), 0x1d), gpu((5, 16))], "degraded", &["0000:00:01.0", "ReqRedir"]),
        (
            "source validation",
            vec![root((5, 16), 0x01), gpu((5, 16))],
            "healthy",
            &["redirects peer-to-peer"],
        ),
        (
            "redirection above a disk",
            vec![
                Made::new("00:03.0", 0x0604, 4, (5, 16), (5, 16)).bridge(0x2e, 0x2e, 0x1d),
                disk((5, 2), (5, 2)),
            ],
            "healthy",
            &[],
        ),
        (
            "no extended space",
            vec![root((5, 16), 0x1d).cut(256), gpu((5, 16)).cut(256)],
            "healthy",
            &["ACS is not in this dump"],
        ),
        (
            "not root",
            vec![root((5, 16), 0x1d).cut(64), gpu((5, 16)).cut(64)],
            "unknown",
            &["not readable", "as root"],
        ),
        ("off the bus", vec![root((5, 16), 0), gpu((5, 16)).dead()], "error", &["0000:03:00.0", "all ones"]),
        ("a virtual function", vec![nic((5, 16)), function], "healthy", &["1 endpoint"]),
        ("no link width", vec![nic((0, 0))], "unknown", &["0000:04:00.0", "no link width"]),
        ("no link speed", vec![nic((0, 16))], "unknown", &["0000:04:00.0", "no link width or speed"]),
        ("a bridge only", vec![root((5, 16), 0x1d)], "unknown", &["no endpoint"]),
    ];
    for (what, machine, class, words) in table {
        let object = object(&[&Made::dump(&machine)]);
        let verdict = object["verdict"].as_str().unwrap();
        assert_eq!(object["class"], class, "{what}: {verdict}");
        assert_eq!(object["parse"], "ok", "{what}");
        assert!(verdict.chars().count() <= 300 && verdict.starts_with(class), "{what}: {verdict}");
        for word in words {
            assert!(verdict.contains(word), "{what}: {verdict}");
        }
    }
}

#[test]
fn what_is_absent_stays_absent() {
    let hidden = Made::new("03:00.0", 0x1200, 0, (5, 16), (5, 16)).cut(64);
    let object_hidden = object(&[&Made::dump(&[hidden])]);
    let row = &object_hidden["rows"][0];
    assert_eq!(row["capabilities_readable"], false);
    for key in ["kind", "cap_width", "sta_width", "acs_ctl", "max_read_req"] {
        assert_eq!(row.get(key), None, "{key}");
    }
    let dead = object(&["c1:00.0 Network: x (rev ff)\n\t!!! Unknown header type 7f\n"]);
    assert_eq!(dead["rows"], json!([{"bdf": "0000:c1:00.0", "reachable": false}]));
    assert_eq!((&dead["class"], &dead["unreachable"]), (&json!("error"), &json!(["0000:c1:00.0"])));
}

#[test]
fn recorded_machines_are_judged_by_what_their_bytes_say() {
    let healthy = object(&[HEALTHY]);
    assert_eq!(healthy["class"], "healthy", "{}", healthy["verdict"]);
    // QEMU shows no LnkCap of the slowed NIC, so only the bridges can be judged.
    let degraded = object(&[DEGRADED]);
    assert_eq!(degraded["class"], "degraded");
    assert_eq!(degraded["p2p_redirect"], json!(["0000:20:00.0", "0000:40:00.0"]));
    let verdict = degraded["verdict"].as_str().unwrap();
    for word in ["0000:20:00.0, 0000:40:00.0", "ReqRedir"] {
        assert!(verdict.contains(word), "{verdict}");
    }
}

#[test]
fn foreign_and_text_only_input_is_refused_with_what_to_do() {
    let text = "28:03.0 PCI bridge: Broadcom\n\tCapabilities: <access denied>\n";
    let table = [
        ("", "error"),
        ("\0\0\u{1}\u{2}", "error"),
        ("{\"a\": 1}", "error"),
        ("# nccl-tests\n 1024 256 float\n", "error"),
        (text, "partial"),
        ("c1:00.0 0200: 15b3:1021\n", "partial"),
    ];
    for (text, parse) in table {
        let object = object(&[text]);
        assert_eq!((&object["parse"], &object["class"]), (&json!(parse), &json!("unknown")), "{text:?}");
        assert_eq!(object["rows"], json!([]), "{text:?}");
        assert_eq!(object["accept_sample"], false);
    }
}

#[test]
fn several_files_and_several_runs_are_told_apart() {
    let machine = [
        Made::new("00:01.0", 0x0604, 4, (5, 16), (3, 8)).bridge(4, 4, 0),
        Made::new("04:00.0", 0x0200, 0, (3, 8), (3, 8)),
    ];
    let apart = object(&[&Made::dump(&machine[..1]), &Made::dump(&machine[1..])]);
    assert_eq!((&apart["devices"], &apart["class"]), (&json!(2), &json!("healthy")), "{}", apart["verdict"]);
    assert_eq!(apart["rows"][1]["file"], "1.txt");
    let text = "04:00.0 Ethernet controller [0200]: x [15b3:1021]\n\tLnkSta: Speed 8GT/s\n";
    let beside = object(&[text, &Made::dump(&machine[1..])]);
    assert_eq!((&beside["devices"], &beside["parse"]), (&json!(1), &json!("ok")));
    let twice = object(&[&format!("{}{}", Made::dump(&machine), Made::dump(&machine))]);
    assert_eq!((&twice["runs"], &twice["devices"]), (&json!(2), &json!(2)));
    assert_eq!(twice["rows"][3]["run"], 2);
}

#[test]
fn an_input_cut_anywhere_gives_an_object() {
    for at in (0..NIC.len()).chain([NIC.len()]) {
        let object = object(&[&NIC[..at]]);
        assert!(object["rows"].as_array().unwrap().len() <= 1);
        if object["complete"] == false {
            assert_ne!(object["class"], "healthy", "{at}");
        }
    }
    let whole = object(&[DEGRADED])["rows"].as_array().unwrap().len();
    for at in (0..DEGRADED.len()).step_by(4999) {
        assert!(object(&[&DEGRADED[..at]])["rows"].as_array().unwrap().len() <= whole);
    }
}

#[test]
fn the_largest_input_is_read_in_time_that_grows_with_its_length() {
    // Device lines with a few bytes each are the most devices that there can be, and empty lines
    // the most lines. An eighth of the limit, since tests are not optimised.
    let size = crate::read::FILE_BYTES / 8;
    let mut text = String::new();
    let mut number = 0_u32;
    while text.len() < size {
        text += &format!("{:04x}:{:02x}:00.0 a: b\n00: 02\n", number >> 8 & 0xffff, number & 0xff);
        number += 1;
    }
    let begun = std::time::Instant::now();
    for text in [text, "\n".repeat(size), "00: 00\n".repeat(size / 7)] {
        let report = read(&[Input { name: "x".into(), text, truncated: true }]);
        assert_eq!((report.class, report.truncated), (Class::Unknown, true));
    }
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}
