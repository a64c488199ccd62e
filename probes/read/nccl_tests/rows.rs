//! Rows and facts of a run as JSON: the unit is in the key, and what is absent has no key.

use serde_json::{Map, Value};

use super::{super::Expectation, Facts, judge};
use crate::nccl_tests::{Half, Layout, Log, Row, Run, Step};

/// All rows, in input order. `names` are those of the files.
pub(super) fn rows(log: &Log, names: &[&str]) -> Vec<Map<String, Value>> {
    let mut rows = Vec::new();
    for (at, run) in log.runs.iter().enumerate() {
        for row in &run.rows {
            let mut facts = of_row(row);
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

fn of_row(row: &Row) -> Facts {
    let mut facts = Facts::default();
    facts.put("size", row.size);
    facts.put("count", row.count);
    facts.put("type", row.dtype.as_deref());
    facts.put("redop", row.redop.as_deref());
    facts.put("root", row.root);
    for (way, half) in [("oop", &row.out), ("ip", &row.inside)] {
        let Half { time, event_time, algbw, busbw, wrong, max_delta } = *half;
        facts.put(&format!("{way}_time_us"), time);
        facts.put(&format!("{way}_hipevt_us"), event_time);
        facts.put(&format!("{way}_algbw"), algbw);
        facts.put(&format!("{way}_busbw"), busbw);
        facts.put(&format!("{way}_wrong"), wrong);
        facts.put(&format!("{way}_max_delta"), max_delta);
    }
    facts.put("algo", row.algo.as_deref());
    facts.put("proto", row.proto.as_deref());
    facts.put("nchannels", row.channels);
    facts
}

/// The keys that stand once a run.
pub(super) fn of_run(run: &Run, expect: Option<Expectation>, hang: bool, facts: &mut Facts) {
    facts.put("test", run.test.as_deref());
    facts.put("layout", run.layout.map(Layout::word));
    facts.put("nranks", run.ranks());
    facts.put("hosts", run.hosts());
    facts.put("copies", run.copies());
    facts.put("rdma", run.rdma);
    facts.put("out_of_bounds", run.out_of_bounds);
    facts.put("avg_busbw_gb_s", run.average);
    let last = run.rows.iter().rev().find(|row| row.is_usable()).and_then(|row| row.size);
    facts.put("last_size", last);
    if hang {
        facts.put("stuck_at", stuck_at(run));
    }
    if run.rows.is_empty() {
        return;
    }
    facts.put("validated", Some(run.validated()));
    facts.put("wrong_total", run.wrong());
    let bad = |row: &&Row| row.halves().into_iter().any(|half| half.wrong.is_some_and(|wrong| wrong > 0));
    facts.put("bad_sizes", Some(run.rows.iter().filter(bad).filter_map(|row| row.size).collect::<Vec<_>>()));
    let usable = run.rows.iter().filter(|row| row.is_usable()).count();
    facts.put("usable_rows", Some(usable));
    facts.put("zero_size_rows", Some(run.rows.iter().filter(|row| row.size == Some(0)).count()));
    let times = run.rows.iter().filter(|row| row.is_usable()).filter_map(|row| row.out.time);
    facts.put("min_latency_us", times.min_by(f64::total_cmp));
    if let Some((row, half, busbw)) = run.peak() {
        facts.put("peak_busbw_gb_s", Some(busbw));
        facts.put("peak_size", row.size);
        facts.put("busbw_as_gbit_s", Some(busbw * 8.0));
        facts.put("factor", factor(run, half));
    }
    facts.put("expect_ratio", expect_ratio(run, expect));
    match judge::fall(run) {
        Some(fall) if fall.lasts => facts.put("cliff_after", fall.last_good.size),
        Some(fall) => facts.put("dip_size", fall.row.size),
        None => {}
    }
}

/// Bus bandwidth by algorithm bandwidth, as the formula that it is near to.
fn factor(run: &Run, half: &Half) -> Option<f64> {
    let ratio = half.busbw? / half.algbw.filter(|algbw| *algbw > 0.0)?;
    let n = f64::from(run.ranks()?);
    [1.0, (n - 1.0) / n, 2.0 * (n - 1.0) / n]
        .into_iter()
        .find(|factor| (ratio - factor).abs() <= 0.02 * factor)
}

/// Measured by expected: below 1 is always worse.
pub(super) fn expect_ratio(run: &Run, expect: Option<Expectation>) -> Option<f64> {
    match expect? {
        Expectation::Bandwidth(bits) => Some(run.peak()?.2 * 8e9 / bits),
        Expectation::Latency(_) => None,
    }
}

/// The size at which a run that was ended is likely to hang.
pub(super) fn stuck_at(run: &Run) -> Option<i64> {
    let mut sizes = run.rows.iter().rev().filter(|row| row.is_usable()).filter_map(|row| row.size);
    let Some(last) = sizes.next() else { return run.least };
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a size in bytes")]
    let times = |factor: f64| (last as f64 * factor) as i64;
    match (run.step, sizes.next()) {
        (Some(Step::Factor(factor)), _) => Some(times(factor)),
        (Some(Step::Bytes(bytes)), _) => last.checked_add(bytes),
        (None, Some(before)) if before > 0 && last % before == 0 && last > before => {
            last.checked_mul(last / before)
        }
        (None, Some(before)) if last > before => last.checked_add(last - before),
        (None, _) => None,
    }
}
