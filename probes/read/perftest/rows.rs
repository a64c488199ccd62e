//! Rows and facts of a run as JSON: the unit is in the key, and what is absent has no key.

use serde_json::{Map, Number, Value};

use super::super::{Expectation, Facts};
use crate::perftest::{Figure, Log, Row, Run, Section, Unit};

/// Bytes a second in 1 Gb/s and in 1 MiB/s.
const GIGABIT: f64 = 1.25e8;
const MEBIBYTE: f64 = 1_048_576.0;

/// A whole number, also one beyond 2^63 that an unsigned counter printed.
pub(super) fn integer(value: i128) -> Option<Value> {
    Number::from_i128(value).map(Value::Number)
}

/// All rows, in input order. `names` are those of the files.
pub(super) fn rows(log: &Log, names: &[&str]) -> Vec<Map<String, Value>> {
    let mut rows = Vec::new();
    for (at, run) in log.runs.iter().enumerate() {
        for row in &run.rows {
            let mut facts = of_row(run, row);
            if log.runs.len() > 1 {
                facts.put("run", Some(at + 1));
            }
            if names.len() > 1 {
                facts.put("file", names.get(row.file));
            }
            rows.push(facts.0);
        }
    }
    rows
}

fn of_row(run: &Run, row: &Row) -> Facts {
    let mut facts = Facts::default();
    facts.put("size", row.size.and_then(integer));
    facts.put("iterations", row.iterations.and_then(integer));
    for (figure, gbps, mib_s, bare) in [
        (row.average, "bw_avg_gbps", "bw_avg_mib_s", "bw_avg"),
        (row.peak, "bw_peak_gbps", "bw_peak_mib_s", "bw_peak"),
        (row.minimum, "bw_min_gbps", "bw_min_mib_s", "bw_min"),
    ] {
        match figure {
            Some(Figure { base: Some(base), .. }) => {
                facts.put(gbps, Some(base / GIGABIT));
                facts.put(mib_s, Some(base / MEBIBYTE));
            }
            Some(Figure { printed, base: None }) => facts.put(bare, Some(printed)),
            None => {}
        }
    }
    facts.put("msg_rate_mpps", row.rate);
    let times = &row.times;
    for (figure, us, cycles) in [
        (times.min, "t_min_us", "t_min_cycles"),
        (times.max, "t_max_us", "t_max_cycles"),
        (times.typical, "t_typical_us", "t_typical_cycles"),
        (times.average, "t_avg_us", "t_avg_cycles"),
        (times.deviation, "t_stdev_us", "t_stdev_cycles"),
        (times.p99, "p99_us", "p99_cycles"),
        (times.p999, "p999_us", "p999_cycles"),
    ] {
        let key = if run.unit == Some(Unit::Cycles) { cycles } else { us };
        facts.put(key, figure.map(|figure| figure.printed));
    }
    facts.put("tps_average", row.transactions);
    facts.put("interval", row.interval);
    facts.put(
        "section",
        row.section.map(|section| match section {
            Section::Total => "total",
            Section::Local => "local",
            Section::Remote => "remote",
        }),
    );
    facts
}

/// The keys that stand once a run.
pub(super) fn of_run(run: &Run, expect: Option<Expectation>, facts: &mut Facts) {
    facts.put("test", run.test.as_deref());
    facts.put("role", run.role());
    facts.put("device", run.device.as_deref());
    facts.put("link_layer", run.link_layer.as_deref());
    facts.put("mtu", run.mtu);
    facts.put("qps", run.qps);
    facts.put("outstanding_reads", run.outstanding_reads);
    facts.put("bidirectional", run.bidirectional);
    facts.put("rdma_cm", run.rdma_cm);
    facts.put("rocm_memory", run.rocm_memory);
    facts.put("unit", run.unit.map(Unit::word));
    facts.put("header_unit", run.header_unit.map(Unit::word));
    facts.put("expect_ratio", expect_ratio(run, expect));
    if run.rows.is_empty() || run.is_latency() {
        return;
    }
    facts.put("peak_measured", Some(run.rows.iter().any(|row| row.peak.is_some())));
    let Some(best) = run.best() else { return };
    facts.put("bw_avg_gbps", best.average.and_then(|average| average.base).map(|base| base / GIGABIT));
    facts.put("per_direction_gbps", one_way(run, best));
    facts.put("sample_window_s", window(best));
}

/// Gb/s of a row in one direction.
pub(super) fn one_way(run: &Run, row: &Row) -> Option<f64> {
    Some(run.unit?.base(run.one_way(row)?)? / GIGABIT)
}

/// Seconds over which the rate of a row was taken. With `-D` it is not the whole duration.
fn window(row: &Row) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "six digits are enough")]
    let iterations = row.iterations? as f64;
    let rate = row.rate.filter(|rate| *rate > 0.0)?;
    Some(iterations / (rate * 1e6))
}

/// Measured by expected, or expected by measured for a latency: below 1 is always worse.
pub(super) fn expect_ratio(run: &Run, expect: Option<Expectation>) -> Option<f64> {
    match expect? {
        Expectation::Bandwidth(bits) => Some(run.bandwidth_one_way()? * 8.0 / bits),
        Expectation::Latency(seconds) => {
            let typical = run.latency()?.typical?.base?;
            (typical > 0.0).then(|| seconds / typical)
        }
    }
}
