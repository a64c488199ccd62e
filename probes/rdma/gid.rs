//! By which GID a port is addressed: found by address and RoCE version, never by a fixed index,
//! since the table's order changes with the network's configuration.

use std::net::{IpAddr, Ipv6Addr};

use crate::{
    Unsupported,
    inventory::{Gid, Wire},
};

/// GIDs that an error lists; tables have up to 256.
const LISTED: usize = 8;

/// What the kernel calls a port that needs no GID.
const INFINIBAND: &str = "InfiniBand";

/// The GID of a port: RoCE v2, in the first of `networks` that has one; where none is wanted in
/// particular, an IPv4 address before a global IPv6 one before a link-local one, the lowest index
/// of equals. None on InfiniBand.
pub(super) fn choose<'a>(
    device: &str,
    wire: &'a Wire,
    networks: &[(IpAddr, u8)],
) -> Result<Option<&'a Gid>, Unsupported> {
    if wire.link_layer == INFINIBAND {
        return Ok(None);
    }
    let usable = || wire.gids.iter().filter(|gid| gid.roce_v2);
    let chosen = if networks.is_empty() {
        usable().min_by_key(|gid| (Rank::of(gid.address), gid.index))
    } else {
        networks.iter().find_map(|network| {
            usable().filter(|gid| contains(*network, gid.address)).min_by_key(|gid| gid.index)
        })
    };
    chosen.map(Some).ok_or_else(|| Unsupported(missing(device, wire, networks)))
}

/// Whether two ends on the wire are told apart by LIDs and not by GIDs.
pub(super) fn is_infiniband(wire: &Wire) -> bool {
    wire.link_layer == INFINIBAND
}

/// How good an address is: routed ones first, and of them those that operators configure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Ipv4,
    Global,
    LinkLocal,
}

impl Rank {
    fn of(address: Ipv6Addr) -> Rank {
        if address.to_ipv4_mapped().is_some() {
            Rank::Ipv4
        } else if address.is_unicast_link_local() {
            Rank::LinkLocal
        } else {
            Rank::Global
        }
    }
}

fn contains((network, length): (IpAddr, u8), address: Ipv6Addr) -> bool {
    let same = |a: u128, b: u128, bits: u32| {
        let host = bits.saturating_sub(length.into());
        host >= bits || a >> host == b >> host
    };
    match (network, address.to_ipv4_mapped()) {
        (IpAddr::V4(network), Some(address)) => same(network.to_bits().into(), address.to_bits().into(), 32),
        (IpAddr::V6(network), None) => same(network.to_bits(), address.to_bits(), 128),
        (IpAddr::V4(_), None) | (IpAddr::V6(_), Some(_)) => false,
    }
}

fn missing(device: &str, wire: &Wire, networks: &[(IpAddr, u8)]) -> String {
    let wanted = match networks {
        [] => String::new(),
        networks => {
            let names = networks.iter().map(|(address, length)| format!("{address}/{length}"));
            format!(" in {}", names.collect::<Vec<_>>().join(" or "))
        }
    };
    let version = |gid: &Gid| if gid.roce_v2 { "" } else { " (RoCE v1)" };
    let mut there: Vec<String> =
        wire.gids.iter().take(LISTED).map(|gid| format!("{}{}", gid.address, version(gid))).collect();
    match wire.gids.len().saturating_sub(LISTED) {
        0 => {}
        more => there.push(format!("{more} more")),
    }
    let there = match there.as_slice() {
        [] => "it has none: give its network interface an address".to_string(),
        there => format!("its GIDs are {}", there.join(", ")),
    };
    format!("{device} has no RoCE v2 GID{wanted}; {there}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Index, address, and whether it is of RoCE v2.
    type Slot = (u32, &'static str, bool);

    fn wire(gids: &[Slot]) -> Wire {
        let gid = |(index, address, roce_v2): &Slot| Gid {
            index: *index,
            address: address.parse().unwrap(),
            roce_v2: *roce_v2,
        };
        Wire {
            port: 1,
            link_layer: "Ethernet".into(),
            gids: gids.iter().map(gid).collect(),
            ..Wire::default()
        }
    }

    fn network(text: &str) -> (IpAddr, u8) {
        let (address, length) = text.split_once('/').unwrap();
        (address.parse().unwrap(), length.parse().unwrap())
    }

    const TABLE: [Slot; 8] = [
        (0, "fe80::a288:c2ff:fe11:2233", false),
        (1, "fe80::a288:c2ff:fe11:2233", true),
        (2, "::ffff:10.1.0.7", false),
        (3, "::ffff:10.1.0.7", true),
        (4, "2001:db8::7", true),
        (5, "::ffff:10.2.0.7", true),
        (6, "fd93:16d3::1", true),
        (7, "::ffff:10.2.0.8", true),
    ];

    #[test]
    fn a_routed_roce_v2_address_is_taken_wherever_it_stands() {
        let table: [(&[Slot], &[&str], Option<u32>); 12] = [
            (&TABLE, &[], Some(3)),
            (&TABLE, &["10.2.0.0/16"], Some(5)),
            (&TABLE, &["10.2.0.8/32"], Some(7)),
            (&TABLE, &["10.9.0.0/16", "10.2.0.0/16"], Some(5)),
            (&TABLE, &["fd00::/8"], Some(6)),
            (&TABLE, &["0.0.0.0/0"], Some(3)),
            (&TABLE, &["::/0"], Some(1)),
            (&TABLE, &["10.9.0.0/16"], None),
            (&TABLE[..2], &[], Some(1)),
            (&TABLE[..1], &[], None),
            (&[TABLE[1], TABLE[6]], &[], Some(6)),
            (&[], &[], None),
        ];
        for (gids, networks, want) in table {
            let networks: Vec<_> = networks.iter().map(|text| network(text)).collect();
            let wire = wire(gids);
            let found = choose("mlx5_0", &wire, &networks);
            assert_eq!(found.ok().flatten().map(|gid| gid.index), want, "{gids:?} {networks:?}");
        }
    }

    #[test]
    fn infiniband_needs_no_gid_and_a_missing_one_is_told_with_what_there_is() {
        let infiniband = Wire { link_layer: INFINIBAND.into(), ..wire(&TABLE) };
        assert_eq!(choose("mlx5_0", &infiniband, &[]), Ok(None));
        let table = [
            (
                wire(&TABLE[..3]),
                "mlx5_0 has no RoCE v2 GID in 10.9.0.0/16 or 10.8.0.0/16; its GIDs are \
                 fe80::a288:c2ff:fe11:2233 (RoCE v1), fe80::a288:c2ff:fe11:2233, ::ffff:10.1.0.7 (RoCE v1)",
            ),
            (
                wire(&[]),
                "mlx5_0 has no RoCE v2 GID in 10.9.0.0/16 or 10.8.0.0/16; it has none: give its network interface an address",
            ),
        ];
        for (wire, words) in table {
            let networks = [network("10.9.0.0/16"), network("10.8.0.0/16")];
            assert_eq!(choose("mlx5_0", &wire, &networks), Err(Unsupported(words.into())));
        }
    }
}
