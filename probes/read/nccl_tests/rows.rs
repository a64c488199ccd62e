//! Rows and facts of a run as JSON: what is absent has no key.

use serde_json::{Map, Number, Value};

use super::{
    super::{Expectation, Facts},
    judge,
};
use crate::nccl_tests::{Half, Layout, Log, Row, Run};

/// A whole number, also one beyond 2^63.
pub(super) fn integer(value: i128) -> Option<Value> {
    Number::from_i128(value).map(Value::Number)
}

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
    facts.put("size", row.size.and_then(integer));
    facts.put("count", row.count.and_then(integer));
    facts.put("type", row.kind.as_deref());
    facts.put("redop", row.redop.as_deref());
    facts.put("root", row.root.and_then(integer));
    for (place, half) in [("oop", &row.out_of_place), ("ip", &row.in_place)] {
        let Half { time, event_time, algbw, busbw, wrong, deviation } = half;
        facts.put(&format!("{place}_time_us"), *time);
        facts.put(&format!("{place}_hipevt_us"), *event_time);
        facts.put(&format!("{place}_algbw"), *algbw);
        facts.put(&format!("{place}_busbw"), *busbw);
        facts.put(&format!("{place}_wrong"), wrong.and_then(integer));
        facts.put(&format!("{place}_max_delta"), *deviation);
    }
    facts.put("algo", row.algo.as_deref());
    facts.put("proto", row.proto.as_deref());
    facts.put("nchannels", row.channels.and_then(integer));
    facts
}

/// The keys that stand once a run.
pub(super) fn of_run(run: &Run, expect: Option<Expectation>, facts: &mut Facts) {
    facts.put("test", run.test.as_deref());
    facts.put("version", run.version.as_deref());
    facts.put(
        "layout",
        run.layout.map(|layout| match layout {
            Layout::Old => "old",
            Layout::New => "new",
        }),
    );
    facts.put("nranks", run.nranks());
    facts.put("hosts", run.hosts());
    facts.put("copies", run.copies());
    facts.put("rdma", run.rdma);
    facts.put("validated", run.validated());
    facts.put("out_of_bounds", run.out_of_bounds);
    facts.put("avg_busbw_gb_s", run.average);
    if run.rows.is_empty() {
        return;
    }
    let wrong = run.wrong_total();
    facts.put("wrong_total", wrong.and_then(integer));
    let bad = run.bad_sizes().into_iter().filter_map(integer).collect();
    facts.put("bad_sizes", wrong.map(|_| Value::Array(bad)));
    facts.put("zero_size_rows", Some(run.own_rows().filter(|row| row.size == Some(0)).count()));
    facts.put("usable_rows", Some(run.usable().count()));
    facts.put("min_latency_us", run.min_latency());
    facts.put("last_size", run.last_size().and_then(integer));
    facts.put("expect_ratio", expect_ratio(run, expect));
    if let Some((row, half)) = run.peak() {
        facts.put("peak_busbw_gb_s", half.busbw);
        facts.put("peak_size", row.size.and_then(integer));
        facts.put("busbw_as_gbit_s", half.busbw.map(|busbw| busbw * 8.0));
        facts.put("factor", run.factor());
    }
    let falls = judge::falls(run);
    facts.put("cliff_after", falls.cliff.and_then(|fall| integer(fall.before)));
    facts.put("dip_size", falls.dip.and_then(|fall| integer(fall.size)));
}

/// The peak by what is expected: below 1 is worse.
pub(super) fn expect_ratio(run: &Run, expect: Option<Expectation>) -> Option<f64> {
    match expect? {
        Expectation::Bandwidth(bits) => Some(run.peak_busbw()? * 8e9 / bits),
        // One size's time is not what these programs are run for.
        Expectation::Latency(_) => None,
    }
}
