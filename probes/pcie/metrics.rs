//! The metrics of the `pcie` probe.

use crate::{MetricKind, MetricSpec};

const fn gauge(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
) -> MetricSpec {
    MetricSpec { name, help, unit, kind: MetricKind::Gauge, labels }
}

pub(super) static SPEED: MetricSpec = gauge(
    "pcie_link_speed_transfers_per_second",
    "transfers_per_second",
    "Present speed of the link above the function, in transfers per second and lane.",
    &["pci"],
);
pub(super) static MAX_SPEED: MetricSpec = gauge(
    "pcie_link_max_speed_transfers_per_second",
    "transfers_per_second",
    "Highest speed that the function can do, in transfers per second and lane.",
    &["pci"],
);
pub(super) static WIDTH: MetricSpec = gauge(
    "pcie_link_width_lanes",
    "lanes",
    "Present width of the link above the function, in lanes; 0 where the function tells none: the link is down, or it is a virtual function.",
    &["pci"],
);
pub(super) static MAX_WIDTH: MetricSpec = gauge(
    "pcie_link_max_width_lanes",
    "lanes",
    "Greatest width that the function can do, in lanes.",
    &["pci"],
);
pub(super) static MAX_READ_REQUEST: MetricSpec = gauge(
    "pcie_max_read_request_bytes",
    "bytes",
    "Largest read that the function asks for, in bytes (MaxReadReq).",
    &["pci"],
);
pub(super) static MAX_PAYLOAD: MetricSpec = gauge(
    "pcie_max_payload_bytes",
    "bytes",
    "Largest payload that the function sends, in bytes (MaxPayload).",
    &["pci"],
);
pub(super) static PATH_BANDWIDTH: MetricSpec = gauge(
    "pcie_path_bandwidth_bytes_per_second",
    "bytes_per_second",
    "Bandwidth of the narrowest link between the function and the root complex, one way, after line code.",
    &["pci"],
);
pub(super) static ACS_REDIRECT: MetricSpec = gauge(
    "pcie_acs_redirect",
    "",
    "Whether the bridge sends traffic between devices below it up to the root complex: 1 yes, 0 no.",
    &["pci"],
);
pub(super) static AER_ERRORS: MetricSpec = MetricSpec {
    name: "pcie_aer_errors",
    help: "Errors that the function has reported since boot, by severity.",
    unit: "",
    kind: MetricKind::Counter,
    labels: &["pci", "severity"],
};
pub(super) static FUNCTION: MetricSpec = MetricSpec {
    name: "pcie_function",
    help: "A GPU's or NIC's PCI function: its kind, ids, driver, name, and what its requests may use.",
    unit: "",
    kind: MetricKind::Info,
    labels: &[
        "pci",
        "kind",
        "vendor",
        "device",
        "driver",
        "name",
        "relaxed_ordering",
        "extended_tags",
        "ten_bit_tags",
    ],
};

pub(super) static ALL: &[&MetricSpec] = &[
    &SPEED,
    &MAX_SPEED,
    &WIDTH,
    &MAX_WIDTH,
    &MAX_READ_REQUEST,
    &MAX_PAYLOAD,
    &PATH_BANDWIDTH,
    &ACS_REDIRECT,
    &AER_ERRORS,
    &FUNCTION,
];
