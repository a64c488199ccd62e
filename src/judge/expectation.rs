//! What a value is held against, and who says so.
//!
//! The first that exists: the operator's own value, what the table of the part's model says, the
//! baseline that was frozen when the node was accepted, what is usual. Below the least of the first
//! three a value is low, whatever is usual: so a part that gets worse slowly is found too. The
//! operator's word replaces the others.

use std::{collections::BTreeMap, sync::LazyLock};

use probes::{
    Better, Bound, Inventory, MetricSpec, Settings, Target,
    expected::{Expected, Kind, Sku, find},
    inventory::Gpu,
};

use super::epoch::parameters;
use crate::{config, expected};

/// The part of what this program itself measured on a model that is still healthy.
const OF_OURS: f64 = 0.9;
/// The same of what other programs measured, who do it another way.
const OF_OTHERS: f64 = 0.75;
/// The part of a frozen baseline that is still healthy.
pub(crate) const OF_FROZEN: f64 = 0.95;
/// The source in the tables that stands for this program.
const OURS: &str = "project";

/// A value that is expected, in the metric's unit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expectation {
    pub(crate) value: f64,
    /// The worst value that is not low.
    pub(crate) worst: f64,
    pub(crate) origin: Origin,
}

/// Who says what is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The operator, in this section of the configuration.
    Operator(String),
    /// The table of the part's model.
    Model { name: String, source: String },
    /// The baseline.
    Frozen,
    /// What is usual for the series.
    Usual,
}

impl Origin {
    /// For a person.
    pub(crate) fn words(&self) -> String {
        match self {
            Origin::Operator(section) => format!("the operator's, [{section}]"),
            Origin::Model { name, source } => format!("of {name}, {source}"),
            Origin::Frozen => "the frozen baseline".to_string(),
            Origin::Usual => "what is usual for it".to_string(),
        }
    }
}

impl Expectation {
    fn of(value: f64, share: f64, better: Better, origin: Origin) -> Expectation {
        let worst = match better {
            Better::More => value * share,
            Better::Less => value / share,
        };
        Expectation { value, worst, origin }
    }

    pub(crate) fn frozen(value: f64, better: Better) -> Expectation {
        Expectation::of(value, OF_FROZEN, better, Origin::Frozen)
    }

    pub(crate) fn usual(value: f64, share: f64, better: Better) -> Expectation {
        Expectation::of(value, share, better, Origin::Usual)
    }

    /// The operator's, from what the probe handed on.
    pub(crate) fn operator(
        bounds: &[Bound],
        metric: &MetricSpec,
        series: &[(&'static str, String)],
        better: Better,
    ) -> Option<Expectation> {
        let bound = bounds.iter().find(|bound| bound.metric == metric && bound.series == series)?;
        Some(Expectation::of(
            bound.expected,
            bound.tolerance,
            better,
            Origin::Operator(bound.section.to_string()),
        ))
    }
}

static SKUS: LazyLock<Vec<Sku>> =
    LazyLock::new(|| expected::tables().into_iter().map(|(_, sku)| sku).collect());

/// What the tables are about: runs with the built-in parameters.
static BUILT_IN: LazyLock<Settings> = LazyLock::new(|| config::built_in().settings);

/// What the table of the target's model says of a series; none for parts and values that no table
/// has, or where the operator measures something else.
pub(crate) fn of_model(
    probe: &str,
    target: &Target,
    inventory: &Inventory,
    settings: &Settings,
    metric: &MetricSpec,
    series: &[(&'static str, String)],
    better: Better,
) -> Option<Expectation> {
    if parameters(probe, settings) != parameters(probe, &BUILT_IN) {
        return None;
    }
    let gpus: Vec<&Gpu> = match target {
        Target::Pci(pci) => inventory.gpus.iter().filter(|gpu| gpu.function.pci == *pci).collect(),
        Target::Node => inventory.gpus.iter().collect(),
        Target::Rdma(_) | Target::Check(_) => Vec::new(),
    };
    let sku = |gpu: &&Gpu| find(&SKUS, gpu.function.vendor, gpu.function.device, gpu.model.as_deref());
    let first = gpus.first().and_then(sku)?;
    if !gpus.iter().all(|gpu| sku(gpu).is_some_and(|sku| sku.name == first.name)) {
        return None;
    }
    let collectives = &settings.compute.collectives;
    let bytes = match better {
        Better::More => collectives.bytes.iter().max().copied(),
        Better::Less => Some(collectives.latency_bytes),
    };
    let of = |expected: &&Expected| {
        let labels = series.iter().map(|(label, value)| (label.to_string(), value.clone()));
        let labels: BTreeMap<String, String> = labels.collect();
        expected.metric == metric.name
            && expected.labels.iter().all(|(label, value)| labels.get(label) == Some(value))
            && expected.gpus.is_none_or(|count| usize::try_from(count) == Ok(gpus.len()))
            && expected
                .bytes
                .is_none_or(|size| Some(size) == bytes.and_then(|bytes| u64::try_from(bytes).ok()))
    };
    chosen(first, first.expected.iter().filter(of), better)
}

/// Ours before what somebody demands, that before what others measured; of several the one that
/// is easiest to reach, since all of them come from healthy parts.
fn chosen<'a>(
    sku: &Sku,
    expected: impl Iterator<Item = &'a Expected>,
    better: Better,
) -> Option<Expectation> {
    let expectation = |expected: &Expected| {
        let ours = expected.source == OURS && expected.kind == Kind::Measured;
        let (rank, share) = match expected.kind {
            Kind::Measured if ours => (0, OF_OURS),
            Kind::Threshold => (1, 1.0),
            Kind::Measured => (2, OF_OTHERS),
            Kind::Peak => return None,
        };
        let source =
            sku.sources.get(&expected.source).map_or_else(String::new, |source| source.title.clone());
        let origin = Origin::Model { name: sku.name.clone(), source };
        Some((rank, Expectation::of(expected.value, share, better, origin)))
    };
    let goodness = |expectation: &Expectation| better.goodness(expectation.worst);
    expected
        .filter_map(expectation)
        .min_by(|(a, one), (b, other)| a.cmp(b).then(goodness(one).total_cmp(&goodness(other))))
        .map(|(_, expectation)| expectation)
}

#[cfg(test)]
mod tests {
    use probes::inventory::NVIDIA;

    use super::*;

    fn gpus(count: usize) -> Inventory {
        let gpu = |at: usize| {
            let mut gpu = Gpu::default();
            (gpu.function.pci, gpu.function.vendor, gpu.function.device) =
                (format!("0000:{at:02x}:00.0"), NVIDIA, 0x2335);
            gpu
        };
        Inventory { gpus: (0..count).map(gpu).collect(), ..Inventory::default() }
    }

    fn of(metric: &str, target: &Target, series: &[(&'static str, &str)], count: usize) -> Option<f64> {
        let settings = crate::config::built_in().settings;
        let series: Vec<_> = series.iter().map(|(label, value)| (*label, value.to_string())).collect();
        let metric = probes::find_metric(metric).unwrap();
        let probe = probes::PROBES.iter().find(|probe| probe.metrics().contains(&metric)).unwrap().name();
        of_model(probe, target, &gpus(count), &settings, metric, &series, Better::More)
            .map(|expectation| expectation.worst)
    }

    #[test]
    fn a_model_is_held_against_what_was_measured_the_same_way() {
        let gpu = Target::Pci("0000:00:00.0".into());
        assert_eq!(of("gemm_flops", &gpu, &[("dtype", "bf16")], 1), Some(780e12 * OF_OURS));
        assert_eq!(of("gemm_flops", &gpu, &[("dtype", "int8")], 1), None);
        assert_eq!(of("gemm_flops", &Target::Rdma("mlx5_0".into()), &[("dtype", "bf16")], 1), None);
        let all_reduce = [("op", "all_reduce"), ("scope", "node")];
        let busbw = "collective_bus_bandwidth_bytes_per_second";
        assert_eq!(of(busbw, &Target::Node, &all_reduce, 8), Some(467.58e9 * OF_OTHERS));
        assert_eq!(of(busbw, &Target::Node, &all_reduce, 5), None, "no table has five GPUs");
        let mut settings = config::built_in().settings;
        settings.compute.gemm.size = 512;
        let metric = probes::find_metric("gemm_flops").unwrap();
        let series = [("dtype", "bf16".to_string())];
        let small = of_model("gemm", &gpu, &gpus(1), &settings, metric, &series, Better::More);
        assert_eq!(small, None, "tables are not about small matrices");
    }

    #[test]
    fn of_a_latency_the_worst_is_the_longest() {
        let operator =
            Expectation::of(2e-6, 0.5, Better::Less, Origin::Operator("probe.ib_write_lat".into()));
        assert_eq!(operator.worst, 4e-6);
        assert_eq!(Expectation::frozen(100.0, Better::More).worst, 95.0);
    }
}
