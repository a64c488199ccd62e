//! The series of GPUs.

use crate::{MetricKind, MetricSpec};

pub(super) static MEMORY_TOTAL: MetricSpec = MetricSpec {
    name: "gpu_memory_total_bytes",
    help: "Device memory, in bytes.",
    unit: "bytes",
    kind: MetricKind::Gauge,
    labels: &["gpu"],
};
pub(super) static MEMORY_USED: MetricSpec = MetricSpec {
    name: "gpu_memory_used_bytes",
    help: "Device memory in use, in bytes.",
    unit: "bytes",
    kind: MetricKind::Gauge,
    labels: &["gpu"],
};
pub(super) static BUSY: MetricSpec = MetricSpec {
    name: "gpu_busy_ratio",
    help: "How busy the GPU says it is, from 0 to 1.",
    unit: "ratio",
    kind: MetricKind::Gauge,
    labels: &["gpu"],
};
pub(super) static ERRORS: MetricSpec = MetricSpec {
    name: "gpu_errors",
    help: "Errors of memory and logic that the GPU counts, of all its blocks, by kind: correctable, uncorrectable.",
    unit: "",
    kind: MetricKind::Counter,
    labels: &["gpu", "kind"],
};
pub(super) static REPLAYS: MetricSpec = MetricSpec {
    name: "gpu_pcie_replays",
    help: "PCIe packets that the GPU had to send again.",
    unit: "",
    kind: MetricKind::Counter,
    labels: &["gpu"],
};
pub(super) static HIVE_MEMBERS: MetricSpec = MetricSpec {
    name: "gpu_hive_members",
    help: "GPUs in the hive of directly linked GPUs that this one belongs to.",
    unit: "",
    kind: MetricKind::Gauge,
    labels: &["gpu"],
};
pub(super) static THROTTLED: MetricSpec = MetricSpec {
    name: "gpu_throttled_ratio",
    help: "Part of the time within probe.gpu.error_window for which a reason (power, thermal, prochot, power_brake) held the clocks back, from 0 to 1; of chips that count no time for it (gpu_metrics 1.3, reason hardware of NVIDIA), whether it does now: 1 yes, 0 no.",
    unit: "ratio",
    kind: MetricKind::Gauge,
    labels: &["gpu", "reason"],
};
pub(super) static TEMPERATURE: MetricSpec = MetricSpec {
    name: "gpu_temperature_celsius",
    help: "Temperature of the hottest place of the chip, of NVIDIA GPUs of the die, in degrees Celsius.",
    unit: "celsius",
    kind: MetricKind::Gauge,
    labels: &["gpu"],
};
pub(super) static POWER: MetricSpec = MetricSpec {
    name: "gpu_power_watts",
    help: "Power that the GPU draws, in watts.",
    unit: "watts",
    kind: MetricKind::Gauge,
    labels: &["gpu"],
};
pub(super) static REMAPPED_ROWS: MetricSpec = MetricSpec {
    name: "gpu_remapped_rows",
    help: "Rows of memory that spare rows stand in for, by the errors that led to it: correctable, uncorrectable.",
    unit: "",
    kind: MetricKind::Gauge,
    labels: &["gpu", "kind"],
};
pub(super) static LINKS_ACTIVE: MetricSpec = MetricSpec {
    name: "gpu_nvlinks_active",
    help: "NVLinks of the GPU that are active.",
    unit: "",
    kind: MetricKind::Gauge,
    labels: &["gpu"],
};
pub(super) static LINK_ERRORS: MetricSpec = MetricSpec {
    name: "gpu_nvlink_errors",
    help: "Errors of all NVLinks of the GPU since the driver was loaded, by kind: replay (sent again), recovery (link trained again), crc (checksum wrong).",
    unit: "",
    kind: MetricKind::Counter,
    labels: &["gpu", "kind"],
};
pub(super) static DEVICE: MetricSpec = MetricSpec {
    name: "gpu_device",
    help: "What the GPU is.",
    unit: "",
    kind: MetricKind::Info,
    labels: &["gpu", "model", "vendor", "driver", "driver_version", "firmware"],
};

pub(super) static METRICS: &[&MetricSpec] = &[
    &MEMORY_TOTAL,
    &MEMORY_USED,
    &BUSY,
    &ERRORS,
    &REPLAYS,
    &HIVE_MEMBERS,
    &THROTTLED,
    &TEMPERATURE,
    &POWER,
    &REMAPPED_ROWS,
    &LINKS_ACTIVE,
    &LINK_ERRORS,
    &DEVICE,
];
