//! The series of RDMA transfers.

use crate::{Better, Compared, MetricKind, MetricSpec};

/// Of host memory by `ib_write_bw`, of GPU memory by `gdr`.
pub(super) static WRITE: MetricSpec = MetricSpec {
    name: "rdma_write_bandwidth_bytes_per_second",
    help: "What RDMA writes carried between this device and a partner's, payload in bytes per second, best of the repeats: from host or gpu memory, sent or received.",
    unit: "bytes_per_second",
    kind: MetricKind::Gauge,
    labels: &["device", "peer", "memory", "direction"],
};
pub(super) static READ: MetricSpec = MetricSpec {
    name: "rdma_read_bandwidth_bytes_per_second",
    help: "What RDMA reads carried between this device and a partner's, payload in bytes per second, best of the repeats: from host memory, sent or received.",
    unit: "bytes_per_second",
    kind: MetricKind::Gauge,
    labels: &["device", "peer", "memory", "direction"],
};
pub(super) static SEND: MetricSpec = MetricSpec {
    name: "rdma_send_bandwidth_bytes_per_second",
    help: "What RDMA sends carried between this device and a partner's, payload in bytes per second, best of the repeats: from host memory, sent or received.",
    unit: "bytes_per_second",
    kind: MetricKind::Gauge,
    labels: &["device", "peer", "memory", "direction"],
};
pub(super) static LATENCY: MetricSpec = MetricSpec {
    name: "rdma_write_latency_seconds",
    help: "How long a small RDMA write takes to a partner's device, half of the round trip in seconds: the median (0.5) and 99 of 100 (0.99), of the repeat with the best median.",
    unit: "seconds",
    kind: MetricKind::Gauge,
    labels: &["device", "peer", "quantile"],
};
pub(super) static LOOPBACK: MetricSpec = MetricSpec {
    name: "rdma_loopback_bandwidth_bytes_per_second",
    help: "What RDMA writes carried from the device to itself, payload in bytes per second, best of the repeats: from host or gpu memory.",
    unit: "bytes_per_second",
    kind: MetricKind::Gauge,
    labels: &["device", "memory"],
};
pub(super) static RATIO: MetricSpec = MetricSpec {
    name: "gdr_host_ratio",
    help: "Bandwidth from GPU memory over bandwidth from host memory, of the worse direction, with the same partner in the same lease.",
    unit: "ratio",
    kind: MetricKind::Gauge,
    labels: &["device", "peer"],
};

/// What each probe yields.
pub(super) static BY_WRITES: [&MetricSpec; 1] = [&WRITE];
pub(super) static BY_READS: [&MetricSpec; 1] = [&READ];
pub(super) static BY_SENDS: [&MetricSpec; 1] = [&SEND];
pub(super) static OF_LATENCY: [&MetricSpec; 1] = [&LATENCY];
pub(super) static OF_GDR: [&MetricSpec; 2] = [&WRITE, &RATIO];
pub(super) static OF_LOOPBACK: [&MetricSpec; 1] = [&LOOPBACK];

/// What of it tells how well a part performs. Of latencies the typical one: the rare ones are as
/// rare as they are different.
pub(super) static COMPARED_WRITES: [Compared; 1] = [Compared::more(&WRITE)];
pub(super) static COMPARED_LATENCY: [Compared; 1] =
    [Compared { metric: &LATENCY, better: Better::Less, only: Some(("quantile", "0.5")) }];
pub(super) static COMPARED_GDR: [Compared; 2] = [Compared::more(&WRITE), Compared::more(&RATIO)];
pub(super) static COMPARED_LOOPBACK: [Compared; 1] = [Compared::more(&LOOPBACK)];
