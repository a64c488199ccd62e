//! The values that probes measured, family by family.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use probes::{Measurement, MetricKind, MetricSpec, PROBES};
use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter},
    registry::Unit,
};

use super::gauge;
use crate::run::Report;

/// What the newest runs measured. Several probes may have values of one family.
#[derive(Debug, Default)]
pub(super) struct Values<'a> {
    of: HashMap<&'static str, Family<'a>>,
}

#[derive(Debug, Default)]
struct Family<'a> {
    values: Vec<&'a Measurement>,
    /// The run of the first value.
    run: u64,
    /// There are values of several runs, which may tell the same part.
    mixed: bool,
}

impl<'a> Values<'a> {
    /// Takes what a run says of a target.
    pub(super) fn add(&mut self, run: u64, report: Option<&'a Report>) {
        for measurement in report.into_iter().flat_map(|report| &report.measurements) {
            let family = self.of.entry(measurement.metric.name).or_default();
            if family.values.is_empty() {
                family.run = run;
            }
            family.mixed |= family.run != run;
            family.values.push(measurement);
        }
    }

    /// Writes the families in the order of the catalogue.
    ///
    /// A bridge above several targets is told with one of them. After a run that left out a
    /// target, two runs can both tell it: then the first counts.
    pub(super) fn encode(mut self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for spec in PROBES.iter().flat_map(|probe| probe.metrics()) {
            let Some(family) = self.of.remove(spec.name) else { continue };
            let mut seen: HashSet<&[String]> = HashSet::new();
            let values = family.values.into_iter();
            write(encoder, spec, values.filter(|value| !family.mixed || seen.insert(&value.labels)))?;
        }
        Ok(())
    }
}

fn write<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    spec: &MetricSpec,
    measurements: impl Iterator<Item = &'a Measurement>,
) -> fmt::Result {
    let unit = (!spec.unit.is_empty()).then(|| Unit::Other(spec.unit.to_string()));
    let name = spec.name.strip_suffix(spec.unit).map_or(spec.name, |name| name.trim_end_matches('_'));
    let kind = match spec.kind {
        MetricKind::Gauge => MetricType::Gauge,
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Info => MetricType::Info,
    };
    let mut family = encoder.encode_descriptor(name, spec.help, unit.as_ref(), kind)?;
    for measurement in measurements {
        let labels: Vec<(&str, &str)> =
            spec.labels.iter().copied().zip(measurement.labels.iter().map(String::as_str)).collect();
        match spec.kind {
            MetricKind::Gauge => gauge(&mut family, &labels, measurement.value)?,
            MetricKind::Counter => {
                ConstCounter::new(measurement.value).encode(family.encode_family(&labels)?)?;
            }
            MetricKind::Info => family.encode_info(&labels)?,
        }
    }
    Ok(())
}
