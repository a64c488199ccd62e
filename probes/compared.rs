//! Which values tell how well a part performs, so that they can be held against what is expected.

use crate::{Measurement, MetricSpec};

/// The label that says with whom a value was measured. Partners rotate, so it is no part of a
/// series: it is evidence.
const PARTNER: &str = "peer";

/// A metric that tells how well a part performs.
#[derive(Debug)]
pub struct Compared {
    /// Which metric.
    pub metric: &'static MetricSpec,
    /// What is better.
    pub better: Better,
    /// The only values that count, by a label and its value; none counts all.
    pub only: Option<(&'static str, &'static str)>,
}

/// What is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// A bandwidth.
    More,
    /// A latency.
    Less,
}

impl Better {
    /// The value, such that more is better.
    pub fn goodness(self, value: f64) -> f64 {
        match self {
            Better::More => value,
            Better::Less => 1.0 / value,
        }
    }
}

impl Compared {
    /// All values of a metric of which more is better.
    pub const fn more(metric: &'static MetricSpec) -> Compared {
        Compared { metric, better: Better::More, only: None }
    }

    /// All values of a metric of which less is better.
    pub const fn less(metric: &'static MetricSpec) -> Compared {
        Compared { metric, better: Better::Less, only: None }
    }

    /// Whether a value counts.
    pub fn covers(&self, measurement: &Measurement) -> bool {
        let is = |(label, value): (&str, &str)| labels(measurement).any(|known| known == (label, value));
        measurement.metric == self.metric && self.only.is_none_or(is)
    }

    /// The labels that tell the series of a value, in the metric's order.
    pub fn series(measurement: &Measurement) -> Vec<(&'static str, String)> {
        labels(measurement)
            .filter(|(label, _)| *label != PARTNER)
            .map(|(label, value)| (label, value.to_string()))
            .collect()
    }
}

fn labels(measurement: &Measurement) -> impl Iterator<Item = (&'static str, &str)> {
    measurement.metric.labels.iter().copied().zip(measurement.labels.iter().map(String::as_str))
}

/// What the operator expects of a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Which value.
    pub metric: &'static MetricSpec,
    /// The labels that tell its series.
    pub series: Vec<(&'static str, String)>,
    /// What a healthy part gives, in the metric's unit.
    pub expected: f64,
    /// The part of it that is still healthy.
    pub tolerance: f64,
    /// Where it is configured: `probe.gdr`.
    pub section: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PROBES;

    #[test]
    fn what_is_compared_is_measured_and_runs_by_itself() {
        let mut count = 0;
        for probe in PROBES {
            for compared in probe.compared() {
                count += 1;
                assert!(probe.metrics().contains(&compared.metric), "{} {compared:?}", probe.name());
                assert_eq!(probe.schedule(), crate::Schedule::Interval, "{}", probe.name());
                if let Some((label, _)) = compared.only {
                    assert!(compared.metric.labels.contains(&label), "{compared:?}");
                }
            }
        }
        assert!(count >= 10, "{count}");
    }

    #[test]
    fn the_partner_is_no_part_of_a_series() {
        let spec = crate::find_metric("rdma_write_latency_seconds").unwrap();
        let latency = crate::find("ib_write_lat").unwrap().compared();
        let of = |quantile: &str| Measurement {
            metric: spec,
            labels: vec!["mlx5_0".into(), "node-b".into(), quantile.into()],
            value: 2e-6,
        };
        assert!(latency[0].covers(&of("0.5")) && !latency[0].covers(&of("0.99")));
        assert_eq!(
            Compared::series(&of("0.5")),
            [("device", "mlx5_0".to_string()), ("quantile", "0.5".to_string())]
        );
        assert_eq!(latency[0].better.goodness(2e-6), 5e5);
    }
}
