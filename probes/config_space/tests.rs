use super::*;

/// A function with the capability list bit, a list that begins at 0x40, and nothing else.
fn function(bytes: usize) -> Vec<u8> {
    let mut space = vec![0; bytes];
    space[..4].copy_from_slice(&[0xb3, 0x15, 0x21, 0x10]);
    space[6] = 0x10;
    space[8..12].copy_from_slice(&[0x01, 0x00, 0x00, 0x02]);
    space[0x34] = 0x40;
    space
}

/// The same with a PCI Express capability of version 2 at 0x60, after one of another kind.
fn express(kind: u8) -> Vec<u8> {
    let mut space = function(EXTENDED_BYTES);
    space[0x40..0x42].copy_from_slice(&[0x01, 0x60]);
    space[0x60..0x64].copy_from_slice(&[0x10, 0x00, 0x02 | kind << 4, 0x00]);
    space
}

#[test]
fn every_register_is_where_the_specification_puts_it() {
    let mut space = express(0);
    space[0x64..0x68].copy_from_slice(&[0x22, 0, 0, 0]);
    space[0x68..0x6a].copy_from_slice(&[0x30, 0x51]);
    space[0x6c..0x70].copy_from_slice(&[0x05, 0x01, 0x00, 0x00]);
    space[0x72..0x74].copy_from_slice(&[0x84, 0x10]);
    space[0x84..0x88].copy_from_slice(&[0, 0, 2, 0]);
    space[0x88..0x8a].copy_from_slice(&[0, 0x10]);
    space[0x100..0x104].copy_from_slice(&[0x01, 0x00, 0x02, 0x15]);
    space[0x104] = 0x10;
    space[0x110] = 0x40;
    space[0x150..0x158].copy_from_slice(&[0x0d, 0x00, 0x01, 0x00, 0x5f, 0, 0x1d, 0]);
    let want = ConfigSpace {
        bytes: 4096,
        vendor: Some(0x15b3),
        device: Some(0x1021),
        class: Some(0x02_0000),
        buses: None,
        capabilities: Some(Capabilities::Readable),
        express: Some(Express {
            offset: 0x60,
            version: 2,
            kind: Some(Kind::Endpoint),
            max_payload_cap: Some(512),
            extended_tags_cap: Some(true),
            device_control: Some(0x5130),
            max_payload: Some(256),
            max_read_request: Some(4096),
            relaxed_ordering: Some(true),
            extended_tags: Some(true),
            ten_bit_tags_cap: Some(true),
            ten_bit_tags: Some(true),
            max_speed: Some(32.0),
            max_width: Some(16),
            speed: Some(16.0),
            width: Some(8),
        }),
        acs: Some(Acs { offset: 0x150, capability: 0x5f, control: 0x1d }),
        aer: Some(Aer { uncorrectable: Some(0x10), correctable: Some(0x40) }),
    };
    assert_eq!(decode(&space), Ok(want));
}

#[test]
fn kinds_are_called_what_lspci_calls_them() {
    let table = [
        (0, Some("Endpoint"), true),
        (1, Some("Legacy Endpoint"), true),
        (2, None, true),
        (4, Some("Root Port"), true),
        (5, Some("Upstream Port"), true),
        (6, Some("Downstream Port"), true),
        (7, Some("PCI-Express to PCI/PCI-X Bridge"), true),
        (8, Some("PCI/PCI-X to PCI-Express Bridge"), true),
        (9, Some("Root Complex Integrated Endpoint"), false),
        (10, Some("Root Complex Event Collector"), false),
    ];
    for (code, words, linked) in table {
        let mut space = express(code);
        space[0x6c] = 0x11;
        space[0x72] = 0x11;
        let found = decode(&space).unwrap().express.unwrap();
        assert_eq!(found.kind.map(Kind::words), words, "{code}");
        assert_eq!(found.max_width.is_some() && found.width.is_some(), linked, "{code}");
    }
}

#[test]
fn a_code_that_is_not_defined_is_absent_and_never_zero() {
    let speeds = [None, Some(2.5), Some(5.0), Some(8.0), Some(16.0), Some(32.0), Some(64.0), Some(128.0)];
    for code in 0..16_u8 {
        let mut space = express(0);
        space[0x6c] = code;
        let found = decode(&space).unwrap().express.unwrap();
        assert_eq!(found.max_speed, speeds.get(usize::from(code)).copied().flatten(), "speed {code}");
        assert_eq!(found.max_width, None);
    }
    for (code, bytes) in [(0, Some(128)), (5, Some(4096)), (6, None), (7, None)] {
        let mut space = express(0);
        space[0x64] = code;
        space[0x69] = code << 4;
        let found = decode(&space).unwrap().express.unwrap();
        assert_eq!((found.max_payload_cap, found.max_read_request), (bytes, bytes), "size {code}");
    }
}

#[test]
fn nothing_is_decoded_of_a_device_that_does_not_answer() {
    assert_eq!(decode(&[]), Err(Unreadable::Empty));
    for bytes in [1, 64, 256, 4096] {
        assert_eq!(decode(&vec![0xff; bytes]), Err(Unreadable::AllOnes), "{bytes}");
    }
    // A virtual function reads all ones for its ids only.
    let mut space = express(0);
    space[..4].fill(0xff);
    let found = decode(&space).unwrap();
    assert_eq!((found.vendor, found.device, found.class), (None, None, Some(0x02_0000)));
    assert!(found.express.is_some());
}

#[test]
fn what_can_not_be_read_is_told_from_what_is_not_there() {
    let mut none = function(64);
    none[6] = 0;
    assert_eq!(decode(&none).unwrap().capabilities, Some(Capabilities::None));
    assert_eq!(decode(&express(0)[..64]).unwrap().capabilities, Some(Capabilities::Hidden));
    assert_eq!(decode(&express(0)[..32]).unwrap().capabilities, None);
    assert_eq!(decode(&express(0)[..256]).unwrap().acs, None);
}

#[test]
fn lists_that_loop_or_lead_nowhere_end() {
    for next in [0x40, 0x44, 0x10, 0xff, 0x00] {
        let mut space = function(EXTENDED_BYTES);
        space[0x40..0x42].copy_from_slice(&[0x05, next]);
        space[0x44..0x46].copy_from_slice(&[0x05, 0x40]);
        assert_eq!(decode(&space).unwrap().express, None, "{next:#x}");
    }
    for header in [[0x0b, 0, 0x01, 0x10], [0x0b, 0, 0x01, 0x00], [0x0b, 0, 0xc1, 0xff], [0xff; 4], [0; 4]] {
        let mut space = express(4);
        space[0x100..0x104].copy_from_slice(&header);
        let found = decode(&space).unwrap();
        assert_eq!((found.acs, found.aer), (None, None), "{header:x?}");
    }
}

#[test]
fn a_bridge_has_buses_and_its_acs_bits_have_names() {
    let mut space = express(6);
    space[0x0e] = 0x81;
    space[0x18..0x1b].copy_from_slice(&[0x20, 0x21, 0x25]);
    assert_eq!(
        decode(&space).unwrap().buses,
        Some(Buses { primary: 0x20, secondary: 0x21, subordinate: 0x25 })
    );
    let table: [(u16, &[&str]); 4] = [
        (0x01, &[]),
        (0x43, &[]),
        (0x1d, &["ReqRedir", "CmpltRedir", "UpstreamFwd"]),
        (0x08, &["CmpltRedir"]),
    ];
    for (control, bits) in table {
        let acs = Acs { offset: 0x100, capability: 0x7f, control };
        assert_eq!(acs.redirect_bits(), bits);
        assert_eq!(acs.redirects(), !bits.is_empty());
    }
}

#[test]
fn any_bytes_cut_anywhere_are_read_without_a_panic() {
    // A linear congruential generator, seeded: the same bytes every time.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u8::try_from(state >> 56).unwrap()
    };
    let mut decoded = 0;
    for round in 0..400_usize {
        let mut space = if round % 2 == 0 { express(0) } else { vec![0; EXTENDED_BYTES] };
        for byte in &mut space {
            if random() < 40 {
                *byte = random();
            }
        }
        space[6] |= 0x10;
        for cut in (0..=256).step_by(3).chain([258, 300, 1001, 4095, 4096]) {
            if let Ok(found) = decode(&space[..cut]) {
                decoded += usize::from(found.express.is_some());
                assert_eq!(found.bytes, cut);
            }
        }
    }
    assert!(decoded > 100, "the loop must reach the capability: {decoded}");
}

#[test]
fn only_widths_that_a_link_can_have_are_lanes() {
    let known: Vec<u32> = (0..=0x3f).filter(|lanes| width(lanes << 4) == Some(*lanes)).collect();
    assert_eq!(known, [1, 2, 4, 8, 12, 16, 32]);
    assert!((0..=0x3f).all(|lanes| width(lanes << 4).is_none() || known.contains(&lanes)));
}
