//! `/sys/class/infiniband` and the network interfaces under it.

use std::{collections::BTreeMap, net::Ipv6Addr};

use probes::{
    inventory::{Gid, Wire},
    nic::{
        Device, Netdev, Port,
        count::{Counter, NETDEV, PORT},
        port::{Known, Rate, megabits},
    },
};

use super::{Dir, ReadError, tolerant::Tolerant};

/// Empty slots in a row after which the rest of a GID table is taken as empty: tables have up to
/// 256 slots, are filled from the start, and each slot is a file.
const EMPTY_SLOTS: u32 = 32;

/// `IFF_UP` of a network interface's `flags`.
const ADMIN_UP: u32 = 1;

/// Reads one RDMA device; none if it is not there. `sysfs` is the root.
pub(crate) fn device(sysfs: &Dir, name: &str) -> Result<Option<Device>, ReadError> {
    let dir = sysfs.dir("class/infiniband").dir(name);
    if !dir.exists()? {
        return Ok(None);
    }
    let mut files = Tolerant::of(name);
    let mut numbers: Vec<u32> =
        files.names(&dir.dir("ports")).iter().filter_map(|number| number.parse().ok()).collect();
    numbers.sort_unstable();
    let ports = numbers.into_iter().map(|number| port(sysfs, &dir, number, &mut files)).collect();
    Ok(Some(Device {
        name: name.to_string(),
        node_type: files.text(&dir, "node_type"),
        firmware: files.text(&dir, "fw_ver"),
        board: files.text(&dir, "board_id").or_else(|| files.text(&dir, "hca_type")),
        ports,
        unread: files.unread(),
    }))
}

fn port(sysfs: &Dir, device: &Dir, number: u32, files: &mut Tolerant) -> Port {
    let dir = device.dir(&format!("ports/{number}"));
    let link_layer = files.text(&dir, "link_layer");
    let mut counters = BTreeMap::new();
    for folder in ["counters", "hw_counters"] {
        let folder_files = dir.dir(folder);
        let present = files.names(&folder_files);
        let known = |counter: &&Counter| {
            counter
                .file
                .split_once('/')
                .is_some_and(|(parent, name)| parent == folder && present.iter().any(|other| other == name))
        };
        for counter in PORT.iter().filter(known) {
            count(&dir, counter, files, &mut counters);
        }
    }
    let interface = netdev_name(device, &dir, number, files);
    let netdev = interface.map(|name| netdev(&sysfs.dir("class/net").dir(&name), name, files));
    if let Some(netdev) = &netdev
        && link_layer.as_deref() == Some("Ethernet")
    {
        let dir = sysfs.dir("class/net").dir(&netdev.name);
        for counter in NETDEV {
            count(&dir, counter, files, &mut counters);
        }
    }
    Port {
        number,
        state: files.text(&dir, "state"),
        phys_state: files.text(&dir, "phys_state"),
        rate: files.text(&dir, "rate"),
        link_layer,
        gids: gids(&dir.dir("gids"), files),
        netdev,
        counters,
    }
}

fn count(dir: &Dir, counter: &Counter, files: &mut Tolerant, counters: &mut BTreeMap<String, u64>) {
    if let Some(value) = files.number(dir, counter.file) {
        counters.insert(counter.file.to_string(), value);
    }
}

/// The interface on a port: what its first GID names, else the one of the same PCI function and
/// port, else a software device's parent.
fn netdev_name(device: &Dir, port: &Dir, number: u32, files: &mut Tolerant) -> Option<String> {
    // A GID without an interface refuses to be read, which is not an error.
    if let Ok(Some(name)) = port.dir("gid_attrs/ndevs").text("0")
        && !name.is_empty()
    {
        return Some(name);
    }
    let siblings = device.dir("device/net");
    let mut names = files.names(&siblings);
    if names.len() > 1 {
        names.retain(|name| files.number::<u32>(&siblings.dir(name), "dev_port") == number.checked_sub(1));
    }
    names.into_iter().next().or_else(|| files.text(device, "parent"))
}

fn netdev(dir: &Dir, name: String, files: &mut Tolerant) -> Netdev {
    Netdev {
        name,
        mtu: files.number(dir, "mtu"),
        megabits: files.text(dir, "speed").as_deref().and_then(megabits),
        admin_up: files.number::<u32>(dir, "flags").map(|flags| flags & ADMIN_UP != 0),
    }
}

/// What a port of a device is attached to. A file that can't be read leaves out what it says: the
/// probe `nic` tells of it.
pub(crate) fn wire(sysfs: &Dir, device: &str, number: u32) -> Wire {
    let device = sysfs.dir("class/infiniband").dir(device);
    let dir = device.dir(&format!("ports/{number}"));
    let text = |name| dir.text(name).ok().flatten();
    let mut port = Port {
        number,
        state: text("state"),
        phys_state: None,
        rate: text("rate"),
        link_layer: text("link_layer"),
        gids: None,
        netdev: None,
        counters: BTreeMap::new(),
    };
    let carries = port.state().is_some_and(|state| state.carries());
    let shown = port.rate.as_deref().and_then(Rate::parse).filter(|_| carries);
    if port.is_ethernet() && shown.as_ref().is_some_and(|rate| rate.speed == "SDR") {
        let mut files = Tolerant::of(&device.name());
        port.netdev = netdev_name(&device, &dir, number, &mut files)
            .map(|name| netdev(&sysfs.dir("class/net").dir(&name), name, &mut files));
    }
    let bits_per_second = shown.map(|shown| match port.known_rate() {
        Some(Known::Rate(bytes_per_second)) => bytes_per_second * 8.0,
        // Too low a rate makes runs shorter, and no more.
        Some(Known::Not(_)) | None => shown.gigabits * 1e9,
    });
    Wire {
        port: number,
        link_layer: port.link_layer.unwrap_or_default(),
        bits_per_second,
        gids: filled_gids(&dir),
    }
}

/// The filled slots of a GID table, each with two files: a full table is long, so it is not listed.
fn filled_gids(port: &Dir) -> Vec<Gid> {
    let (gids, types) = (port.dir("gids"), port.dir("gid_attrs/types"));
    let (mut found, mut empty) = (Vec::new(), 0);
    for index in 0.. {
        // Some drivers refuse to show an empty slot, others show zeros.
        let address = match gids.text(&index.to_string()) {
            Ok(None) => break,
            Ok(Some(text)) => text.parse().ok().filter(|address: &Ipv6Addr| !address.is_unspecified()),
            Err(_) => None,
        };
        empty = if address.is_some() { 0 } else { empty + 1 };
        if let Some(address) = address {
            let kind = types.text(&index.to_string()).ok().flatten();
            found.push(Gid { index, address, roce_v2: kind.as_deref() == Some("RoCE v2") });
        }
        if empty == EMPTY_SLOTS {
            break;
        }
    }
    found
}

/// Counts the slots of a GID table that hold an address.
fn gids(dir: &Dir, files: &mut Tolerant) -> Option<u32> {
    let mut slots: Vec<u32> = files.names(dir).iter().filter_map(|slot| slot.parse().ok()).collect();
    if slots.is_empty() {
        return None;
    }
    slots.sort_unstable();
    let (mut found, mut empty) = (0, 0);
    for slot in slots {
        let filled =
            files.text(dir, &slot.to_string()).is_some_and(|gid| gid.contains(|c| c != '0' && c != ':'));
        empty = if filled { 0 } else { empty + 1 };
        found += u32::from(filled);
        if empty == EMPTY_SLOTS {
            break;
        }
    }
    Some(found)
}
