//! How well targets perform, against what is expected of them.

use std::{fmt, sync::Arc};

use prometheus_client::{encoding::DescriptorEncoder, metrics::MetricType};

use super::gauge;
use crate::{
    judge::{detector::State, speed::Speed},
    lane::{Lane, View},
    run::Report,
};

const RATIO: (&str, &str) = (
    "lane_expectation_ratio",
    "The worst value of the newest measured run over what is expected of it, a latency inverted: below 1 is worse.",
);
const STATE: (&str, &str) = (
    "lane_regression_state",
    "Whether what the target does has become worse: -1 not known yet, 0 as usual, 1 it looks so and is being confirmed, 2 it has.",
);
const SUSPECT: (&str, &str) = (
    "lane_suspect",
    "1 while a target looks worse or has become so, with the part that this blames in words.",
);

/// Of every lane whose values are compared.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, views: &[(&Lane, Arc<View>, f64)]) -> fmt::Result {
    let mut all: Vec<(&str, &str, Option<&Speed>)> = Vec::new();
    for (lane, view, _) in views.iter().filter(|(lane, ..)| !lane.probe.compared().is_empty()) {
        for (target, standing) in &view.standings {
            all.push((lane.probe.name(), target.id(), standing.speed.as_ref()));
        }
    }
    write(encoder, &all)
}

/// Of one run.
pub(super) fn of_reports(
    encoder: &mut DescriptorEncoder<'_>,
    probe: &str,
    reports: &[Report],
) -> fmt::Result {
    let measured = reports.iter().filter(|report| report.speed.is_some());
    let all: Vec<_> = measured.map(|report| (probe, report.target.id(), report.speed.as_ref())).collect();
    if all.is_empty() { Ok(()) } else { write(encoder, &all) }
}

fn write(encoder: &mut DescriptorEncoder<'_>, all: &[(&str, &str, Option<&Speed>)]) -> fmt::Result {
    let mut family = encoder.encode_descriptor(RATIO.0, RATIO.1, None, MetricType::Gauge)?;
    for (probe, target, speed) in all {
        if let Some(ratio) = speed.and_then(|speed| speed.ratio) {
            gauge(&mut family, &[("probe", probe), ("target", target)], ratio)?;
        }
    }
    let mut family = encoder.encode_descriptor(STATE.0, STATE.1, None, MetricType::Gauge)?;
    for (probe, target, speed) in all {
        let state = speed.map_or(State::Warming, |speed| speed.state);
        gauge(&mut family, &[("probe", probe), ("target", target)], state.number())?;
    }
    let mut family = encoder.encode_descriptor(SUSPECT.0, SUSPECT.1, None, MetricType::Gauge)?;
    for (probe, target, speed) in all {
        if let Some(part) = speed.and_then(|speed| speed.part.as_deref()) {
            gauge(&mut family, &[("probe", probe), ("target", target), ("part", part)], 1.0)?;
        }
    }
    Ok(())
}
