//! All series of this node: what is usual for each, what was frozen, which cases are open.
//!
//! One value behind one lock, since a low value is attributed by what other lanes saw.

use std::collections::{BTreeMap, BTreeSet};

use probes::{
    Better, Compared, Inventory, MetricSpec, Probe, Reading, Settings, Target, distance, inventory::Gpu,
};
use serde::{Deserialize, Serialize};

use super::{
    detector::{Detector, State},
    epoch::Epoch,
    expectation::{self, Expectation},
    part::{Part, Rail, Sight, of_pairs, of_rail},
    speed::{Judged, Speed},
};

/// What was measured this long before a case was opened tells of the same time, in seconds: the
/// probes of a lease run one after the other.
const RECENT: f64 = 900.0;
/// Partners that are remembered of a case: the first, and those of the runs that decide it.
const WITNESSES: usize = 8;

/// How the operator wants it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Manner {
    /// Calm samples after which a baseline is frozen.
    pub(crate) samples: u32,
    /// Seconds between two runs that decide a case.
    pub(crate) every: f64,
}

/// Every series that is watched.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct Book {
    lanes: Vec<Lane>,
}

/// The series of one probe and target.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct Lane {
    probe: String,
    target: Target,
    epoch: Epoch,
    series: Vec<Series>,
    /// With whom it was measured while a case was open, and whether it was low.
    #[serde(default)]
    witnesses: Vec<(String, bool)>,
    /// When the newest sample came, in seconds since the epoch.
    at: f64,
}

/// One series.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct Series {
    metric: String,
    labels: Vec<(String, String)>,
    detector: Detector,
    #[serde(default)]
    frozen: Option<Frozen>,
}

/// A baseline.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Frozen {
    /// In the metric's unit.
    pub(crate) value: f64,
    /// When it was frozen, in seconds since the epoch.
    pub(crate) at: f64,
}

/// A completed run, as the book sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) probe: &'static dyn Probe,
    pub(crate) inventory: &'a Inventory,
    pub(crate) settings: &'a Settings,
    pub(crate) peer: Option<&'a str>,
    /// Seconds since the epoch.
    pub(crate) at: f64,
    pub(crate) manner: Manner,
}

/// A run that is wanted to decide a case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) probe: String,
    pub(crate) target: Target,
    /// When, in seconds since the epoch.
    pub(crate) at: f64,
    /// When the first low value came.
    pub(crate) opened: f64,
    /// Partners that it was measured with since then, the first one with the first low value.
    pub(crate) met: Vec<String>,
}

impl Book {
    /// Takes what a run measured of a target; none if it measured nothing that is compared.
    pub(crate) fn observe(&mut self, seen: Seen<'_>, reading: &Reading) -> Option<Speed> {
        let samples: Vec<Sample> = samples(seen, reading);
        if samples.is_empty() {
            return None;
        }
        let now = Epoch::of(seen.probe.name(), &reading.target, seen.inventory, seen.settings);
        let (lane, changes) = self.lane(seen, &reading.target, now);
        let watched = lane.is_watched();
        let mut judged = Vec::new();
        let mut any_low = false;
        for sample in samples {
            let series = lane.series(&sample);
            let low = series.take(&sample, seen);
            any_low |= low;
            judged.push(series.judged(&sample, low));
        }
        lane.at = seen.at;
        if !lane.is_watched() {
            lane.witnesses.clear();
        } else if let Some(peer) = seen.peer
            && (watched || any_low)
        {
            lane.witnesses.push((peer.to_string(), any_low));
            if lane.witnesses.len() > WITNESSES {
                // The first one is what the case began with.
                lane.witnesses.remove(1);
            }
        }
        let state = lane.state();
        let part = match state {
            State::Warming | State::Fine => None,
            State::Suspect | State::Degraded => {
                Some(self.part(seen.probe.name(), &reading.target, seen.inventory))
            }
        };
        Some(Speed::new(state, part, judged, changes))
    }

    /// The runs that are wanted to decide cases.
    pub(crate) fn wanted(&self) -> Vec<Wanted> {
        let of = |lane: &Lane| {
            let at =
                lane.series.iter().filter_map(|series| series.detector.wanted()).min_by(f64::total_cmp)?;
            let cases = lane.series.iter().filter_map(|series| series.detector.case());
            let opened = cases.map(|case| case.opened).fold(f64::INFINITY, f64::min);
            let met = lane.witnesses.iter().map(|(peer, _)| peer.clone()).collect();
            Some(Wanted { probe: lane.probe.clone(), target: lane.target.clone(), at, opened, met })
        };
        self.lanes.iter().filter_map(of).collect()
    }

    /// When a lane was last measured, in seconds since the epoch.
    pub(crate) fn measured_at(&self, probe: &str, target: &Target) -> Option<f64> {
        self.find(probe, target).map(|lane| lane.at)
    }

    /// Every series with its baseline, for the operator.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.lanes.iter().flat_map(|lane| {
            lane.series.iter().map(|series| Entry {
                probe: &lane.probe,
                target: lane.target.id(),
                metric: &series.metric,
                labels: series.labels.iter().cloned().collect(),
                state: series.detector.state().word(),
                frozen: series.frozen,
                usual: series.usual(),
                samples: series.detector.learned(),
                epoch: lane.epoch.words(),
            })
        })
    }

    /// Freezes what is usual now as the baseline. Returns how many series had enough samples for it.
    pub(crate) fn accept(&mut self, which: &Which<'_>, at: f64) -> usize {
        let mut accepted = 0;
        for series in self.chosen(which).flat_map(|lane| &mut lane.series) {
            if let Some(value) = series.usual() {
                series.frozen = Some(Frozen { value, at });
                accepted += 1;
            }
        }
        accepted
    }

    /// Forgets what was learned. Returns how many series that were.
    pub(crate) fn reset(&mut self, which: &Which<'_>) -> usize {
        let mut forgotten = 0;
        for lane in self.chosen(which) {
            forgotten += lane.series.len();
            lane.series.clear();
            lane.witnesses.clear();
        }
        forgotten
    }

    fn chosen<'a>(&'a mut self, which: &'a Which<'_>) -> impl Iterator<Item = &'a mut Lane> {
        self.lanes.iter_mut().filter(|lane| {
            which.probe.is_none_or(|probe| lane.probe == probe)
                && which.target.is_none_or(|target| lane.target.id() == target)
        })
    }

    fn find(&self, probe: &str, target: &Target) -> Option<&Lane> {
        self.lanes.iter().find(|lane| lane.probe == probe && lane.target == *target)
    }

    /// The lane in its epoch, and what began that, if it is a new one.
    fn lane(&mut self, seen: Seen<'_>, target: &Target, now: Epoch) -> (&mut Lane, Vec<String>) {
        let probe = seen.probe.name();
        let at = match self.lanes.iter().position(|lane| lane.probe == probe && lane.target == *target) {
            Some(at) => at,
            None => {
                self.lanes.push(Lane {
                    probe: probe.to_string(),
                    target: target.clone(),
                    epoch: now.clone(),
                    series: Vec::new(),
                    witnesses: Vec::new(),
                    at: seen.at,
                });
                self.lanes.len() - 1
            }
        };
        let lane = &mut self.lanes[at];
        let changes = lane.epoch.changes(&now);
        if !changes.is_empty() {
            lane.series.clear();
            lane.witnesses.clear();
        }
        lane.epoch.renew(now);
        (lane, changes)
    }

    /// The part that a lane's low values blame.
    fn part(&self, probe: &str, target: &Target, inventory: &Inventory) -> Part {
        match target {
            Target::Pci(gpu) => Part::Gpu(gpu.clone()),
            Target::Rdma(nic) => self.rail_part(nic, inventory),
            Target::Node => self.node_part(probe),
            Target::Check(_) => Part::Node,
        }
    }

    fn node_part(&self, probe: &str) -> Part {
        let blamed: Vec<&Lane> = self
            .lanes
            .iter()
            .filter(|lane| matches!(lane.target, Target::Pci(_)) && lane.is_watched())
            .collect();
        let first = blamed.first().map(|lane| &lane.target);
        if let Some(target) = first.filter(|first| blamed.iter().all(|lane| lane.target == **first)) {
            return Part::Gpu(target.id().to_string());
        }
        let low: Vec<(String, String)> = self
            .find("p2p", &Target::Node)
            .into_iter()
            .flat_map(|lane| &lane.series)
            .filter(|series| series.detector.case().is_some())
            .filter_map(|series| Some((series.label("src")?, series.label("dst")?)))
            .collect();
        if low.is_empty() && probe != "p2p" {
            return Part::Node;
        }
        of_pairs(&low)
    }

    fn rail_part(&self, nic: &str, inventory: &Inventory) -> Part {
        let target = Target::Rdma(nic.to_string());
        let pairs: Vec<&Lane> = ["ib_write_bw", "ib_write_lat", "gdr"]
            .iter()
            .filter_map(|probe| self.find(probe, &target))
            .collect();
        let opened = pairs
            .iter()
            .chain(&self.find("loopback", &target))
            .flat_map(|lane| &lane.series)
            .filter_map(|series| series.detector.case().map(|case| case.opened))
            .fold(f64::INFINITY, f64::min);
        let sight = |probe: &str, target: &Target, memory: Option<&str>| {
            self.find(probe, target).map_or(Sight::Unseen, |lane| lane.sight(memory, opened))
        };
        let gpu = near(nic, inventory);
        let to_host =
            gpu.clone().map(Target::Pci).map_or(Sight::Unseen, |gpu| sight("host_copy", &gpu, None));
        let witnesses = || pairs.iter().flat_map(|lane| &lane.witnesses);
        let with = |low: bool| {
            witnesses().filter(|(_, was)| *was == low).map(|(peer, _)| peer.clone()).collect::<BTreeSet<_>>()
        };
        let host = [sight("ib_write_bw", &target, None), sight("ib_write_lat", &target, None)];
        let (low_with, good_with) = (with(true), with(false));
        of_rail(Rail {
            nic: nic.to_string(),
            gpu,
            gpu_to_host: to_host,
            loopback_host: sight("loopback", &target, Some("host")),
            loopback_gpu: sight("loopback", &target, Some("gpu")),
            pair_host: if host.contains(&Sight::Low) { Sight::Low } else { host[0] },
            pair_gpu: sight("gdr", &target, None),
            decided: pairs.iter().any(|lane| lane.state() == State::Degraded),
            low_with,
            good_with,
        })
    }
}

/// What the operator means: all of it, or what a probe or a target has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Which<'a> {
    pub(crate) probe: Option<&'a str>,
    pub(crate) target: Option<&'a str>,
}

/// A series for the operator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Entry<'a> {
    pub(crate) probe: &'a str,
    pub(crate) target: &'a str,
    pub(crate) metric: &'a str,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) state: &'static str,
    pub(crate) frozen: Option<Frozen>,
    /// In the metric's unit; none before there are enough samples.
    pub(crate) usual: Option<f64>,
    /// Samples that were learned in this epoch.
    pub(crate) samples: u32,
    pub(crate) epoch: String,
}

/// A value that is compared.
struct Sample {
    metric: &'static MetricSpec,
    series: Vec<(&'static str, String)>,
    value: f64,
    better: Better,
    operator: Option<Expectation>,
    model: Option<Expectation>,
}

fn samples(seen: Seen<'_>, reading: &Reading) -> Vec<Sample> {
    let compared = seen.probe.compared();
    let of = |measurement: &probes::Measurement| {
        let better = compared.iter().find(|compared| compared.covers(measurement))?.better;
        let (metric, series) = (measurement.metric, Compared::series(measurement));
        let operator = Expectation::operator(&reading.bounds, metric, &series, better);
        let model = expectation::of_model(
            seen.probe.name(),
            &reading.target,
            seen.inventory,
            seen.settings,
            metric,
            &series,
            better,
        );
        Some(Sample { metric, series, value: measurement.value, better, operator, model })
    };
    reading.measurements.iter().filter_map(of).collect()
}

/// The GPU nearest to a NIC.
fn near(nic: &str, inventory: &Inventory) -> Option<String> {
    let pci = inventory.rdma.iter().find(|rdma| rdma.name == nic)?.pci.as_deref()?;
    let distance = |gpu: &Gpu| distance::between(inventory, &gpu.function.pci, pci);
    inventory
        .gpus
        .iter()
        .filter(|gpu| distance(gpu).is_some())
        .min_by_key(|gpu| distance(gpu))
        .map(|gpu| gpu.function.pci.clone())
}

impl Lane {
    fn state(&self) -> State {
        self.series.iter().map(|series| series.detector.state()).max().unwrap_or(State::Warming)
    }

    /// Whether a case is open.
    fn is_watched(&self) -> bool {
        self.series.iter().any(|series| series.detector.case().is_some())
    }

    /// How it was since a time.
    fn sight(&self, memory: Option<&str>, since: f64) -> Sight {
        let of = |series: &&Series| memory.is_none() || series.label("memory").as_deref() == memory;
        let mut series = self.series.iter().filter(of).peekable();
        if series.peek().is_none() {
            return Sight::Unseen;
        }
        if series.any(|series| series.detector.case().is_some()) {
            return Sight::Low;
        }
        // A figure without anything to compare it with says nothing.
        let judged = self.series.iter().filter(of).all(|series| series.detector.state() == State::Fine);
        if judged && self.at >= since - RECENT { Sight::Fine } else { Sight::Unseen }
    }

    fn series(&mut self, sample: &Sample) -> &mut Series {
        let is = |series: &Series| {
            series.metric == sample.metric.name
                && series
                    .labels
                    .iter()
                    .map(|(label, value)| (label.as_str(), value))
                    .eq(sample.series.iter().map(|(label, value)| (*label, value)))
        };
        let at = self.series.iter().position(is).unwrap_or_else(|| {
            self.series.push(Series {
                metric: sample.metric.name.to_string(),
                labels: sample
                    .series
                    .iter()
                    .map(|(label, value)| (label.to_string(), value.clone()))
                    .collect(),
                detector: Detector::default(),
                frozen: None,
            });
            self.series.len() - 1
        });
        &mut self.series[at]
    }
}

impl Series {
    fn label(&self, name: &str) -> Option<String> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.clone())
    }

    /// In the metric's unit.
    fn usual(&self) -> Option<f64> {
        Some(self.better()?.goodness(self.detector.usual()?.median))
    }

    fn better(&self) -> Option<Better> {
        let all = probes::PROBES.iter().flat_map(|probe| probe.compared());
        all.into_iter().find(|compared| compared.metric.name == self.metric).map(|compared| compared.better)
    }

    /// What is expected whatever is usual: the first that exists, and the worst value that is not low.
    fn absolute(&self, sample: &Sample) -> (Option<Expectation>, Option<f64>) {
        let frozen = self.frozen.map(|frozen| Expectation::frozen(frozen.value, sample.better));
        if let Some(operator) = &sample.operator {
            return (Some(operator.clone()), Some(operator.worst));
        }
        let goodness = |expectation: &Expectation| sample.better.goodness(expectation.worst);
        let floor = [&sample.model, &frozen]
            .into_iter()
            .flatten()
            .max_by(|a, b| goodness(a).total_cmp(&goodness(b)))
            .map(|expectation| expectation.worst);
        (sample.model.clone().or(frozen), floor)
    }

    /// Takes a sample, and says whether it is low.
    fn take(&mut self, sample: &Sample, seen: Seen<'_>) -> bool {
        let (goodness, better) = (sample.better.goodness(sample.value), sample.better);
        let floor = self.absolute(sample).1.map(|worst| better.goodness(worst));
        let low = self.detector.is_low(goodness, floor);
        let state = self.detector.observe(goodness, seen.at, floor, seen.manner.every);
        if self.frozen.is_none() && state == State::Fine && self.detector.learned() >= seen.manner.samples {
            self.frozen = self.usual().map(|value| Frozen { value, at: seen.at });
        }
        low
    }

    fn judged(&self, sample: &Sample, low: bool) -> Judged {
        let share = self.detector.lowest_share();
        let usual = self.usual().zip(share);
        let usual = usual.map(|(value, share)| Expectation::usual(value, share, sample.better));
        let (absolute, floor) = self.absolute(sample);
        let worst = [usual.as_ref().map(|usual| usual.worst), floor]
            .into_iter()
            .flatten()
            .max_by(|a, b| sample.better.goodness(*a).total_cmp(&sample.better.goodness(*b)));
        Judged {
            metric: sample.metric,
            series: sample.series.clone(),
            value: sample.value,
            better: sample.better,
            state: self.detector.state(),
            low,
            expectation: absolute.or(usual),
            worst,
            samples: self.detector.learned(),
        }
    }
}

/// A book with something in it.
#[cfg(test)]
pub(crate) fn sample_book() -> Book {
    let mut detector = Detector::default();
    for at in 0..20 {
        detector.observe(100.0, f64::from(at), None, 600.0);
    }
    detector.observe(50.0, 20.0, None, 600.0);
    let labels = vec![("gpu".to_string(), "0000:05:00.0".to_string())];
    let series = Series {
        metric: "hbm_bandwidth_bytes_per_second".to_string(),
        labels,
        detector,
        frozen: Some(Frozen { value: 100.0, at: 3.0 }),
    };
    let target = Target::Pci("0000:05:00.0".to_string());
    let lane = Lane {
        probe: "hbm".to_string(),
        target,
        epoch: Epoch::default(),
        series: vec![series],
        witnesses: vec![("node-b".to_string(), true)],
        at: 20.0,
    };
    Book { lanes: vec![lane] }
}

#[cfg(test)]
mod tests;
