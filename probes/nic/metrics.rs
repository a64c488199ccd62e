//! The series of RDMA ports.

use crate::{MetricKind, MetricSpec};

pub(super) static PORT_UP: MetricSpec = MetricSpec {
    name: "nic_port_up",
    help: "Whether the port is ACTIVE and carries data: 1, or 0.",
    unit: "",
    kind: MetricKind::Gauge,
    labels: &["device", "port"],
};
pub(super) static PHYSICAL_STATE: MetricSpec = MetricSpec {
    name: "nic_port_physical_state",
    help: "Physical state by InfiniBand's numbers: 2 polling, 3 disabled, 5 link up, 6 recovering from errors.",
    unit: "",
    kind: MetricKind::Gauge,
    labels: &["device", "port"],
};
pub(super) static RATE: MetricSpec = MetricSpec {
    name: "nic_rate_bytes_per_second",
    help: "Data rate of the link as negotiated, in bytes per second; absent while the port is down.",
    unit: "bytes_per_second",
    kind: MetricKind::Gauge,
    labels: &["device", "port"],
};
pub(super) static WIDTH: MetricSpec = MetricSpec {
    name: "nic_width_lanes",
    help: "Lanes of an InfiniBand link as negotiated; absent while the port is down.",
    unit: "lanes",
    kind: MetricKind::Gauge,
    labels: &["device", "port"],
};
pub(super) static MTU: MetricSpec = MetricSpec {
    name: "nic_mtu_bytes",
    help: "MTU of the Ethernet interface under a RoCE port, in bytes.",
    unit: "bytes",
    kind: MetricKind::Gauge,
    labels: &["device", "port"],
};
pub(super) static GIDS: MetricSpec = MetricSpec {
    name: "nic_gids",
    help: "Addresses (GIDs) that the port has.",
    unit: "",
    kind: MetricKind::Gauge,
    labels: &["device", "port"],
};
pub(super) static LINK_DOWNED: MetricSpec = MetricSpec {
    name: "nic_link_downed",
    help: "Losses of the link.",
    unit: "",
    kind: MetricKind::Counter,
    labels: &["device", "port"],
};
pub(super) static ERRORS: MetricSpec = MetricSpec {
    name: "nic_errors",
    help: "Errors that the adapter counts, by kind.",
    unit: "",
    kind: MetricKind::Counter,
    labels: &["device", "port", "kind"],
};
pub(super) static DISCARDS: MetricSpec = MetricSpec {
    name: "nic_discards",
    help: "Packets dropped for want of room or of a receiver, by kind.",
    unit: "",
    kind: MetricKind::Counter,
    labels: &["device", "port", "kind"],
};
pub(super) static CONGESTION: MetricSpec = MetricSpec {
    name: "nic_congestion",
    help: "Marks of congestion, by kind: packets, except transmit_wait, which counts ticks of the adapter's clock.",
    unit: "",
    kind: MetricKind::Counter,
    labels: &["device", "port", "kind"],
};
pub(super) static RECEIVED: MetricSpec = MetricSpec {
    name: "nic_received_bytes",
    help: "Data received, in bytes.",
    unit: "bytes",
    kind: MetricKind::Counter,
    labels: &["device", "port"],
};
pub(super) static TRANSMITTED: MetricSpec = MetricSpec {
    name: "nic_transmitted_bytes",
    help: "Data transmitted, in bytes.",
    unit: "bytes",
    kind: MetricKind::Counter,
    labels: &["device", "port"],
};
pub(super) static DEVICE: MetricSpec = MetricSpec {
    name: "nic_device",
    help: "What the RDMA device is.",
    unit: "",
    kind: MetricKind::Info,
    labels: &["device", "pci", "driver", "firmware", "board", "link_layer", "netdev", "node_type"],
};

pub(super) static METRICS: &[&MetricSpec] = &[
    &PORT_UP,
    &PHYSICAL_STATE,
    &RATE,
    &WIDTH,
    &MTU,
    &GIDS,
    &LINK_DOWNED,
    &ERRORS,
    &DISCARDS,
    &CONGESTION,
    &RECEIVED,
    &TRANSMITTED,
    &DEVICE,
];
