//! What the agent's own process uses, under the names that every Prometheus client gives.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};

use super::Cell;

/// One sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    cpu_seconds: f64,
    children_cpu_seconds: f64,
    resident_bytes: f64,
    virtual_bytes: f64,
    open_fds: f64,
    max_fds: f64,
    start_time: f64,
}

/// Reads the sample from `/proc/self`; none where that can't be read.
pub(crate) fn sample() -> Option<Process> {
    let process = procfs::process::Process::myself().ok()?;
    let stat = process.stat().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let number = |value: u64| value as f64;
    let ticks = number(procfs::ticks_per_second());
    let limits = process.limits().ok()?;
    let max_fds = match limits.max_open_files.soft_limit {
        procfs::process::LimitValue::Unlimited => f64::INFINITY,
        procfs::process::LimitValue::Value(value) => number(value),
    };
    let children = u64::try_from(stat.cutime + stat.cstime).unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "a count of files")]
    let open_fds = process.fd_count().ok()? as f64;
    let boot = number(procfs::boot_time_secs().ok()?);
    Some(Process {
        cpu_seconds: number(stat.utime + stat.stime) / ticks,
        children_cpu_seconds: number(children) / ticks,
        resident_bytes: number(stat.rss * procfs::page_size()),
        virtual_bytes: number(stat.vsize),
        open_fds,
        max_fds,
        start_time: boot + number(stat.starttime) / ticks,
    })
}

#[derive(Debug)]
pub(super) struct Collected(pub(super) Arc<Cell<Process>>);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let process = self.0.get();
        let counters = [
            ("process_cpu", "CPU time of the agent itself.", process.cpu_seconds),
            (
                "process_children_cpu",
                "CPU time of the agent's children that have ended.",
                process.children_cpu_seconds,
            ),
        ];
        for (name, help, value) in counters {
            let family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
            ConstCounter::new(value).encode(family)?;
        }
        let gauges = [
            (
                "process_resident_memory",
                "Resident memory of the agent.",
                Some(Unit::Bytes),
                process.resident_bytes,
            ),
            (
                "process_virtual_memory",
                "Virtual memory of the agent.",
                Some(Unit::Bytes),
                process.virtual_bytes,
            ),
            ("process_open_fds", "Open files of the agent.", None, process.open_fds),
            ("process_max_fds", "Files that the agent may open.", None, process.max_fds),
            ("process_start_time", "When the agent was started.", Some(Unit::Seconds), process.start_time),
        ];
        for (name, help, unit, value) in gauges {
            ConstGauge::new(value).encode(encoder.encode_descriptor(
                name,
                help,
                unit.as_ref(),
                MetricType::Gauge,
            )?)?;
        }
        Ok(())
    }
}
