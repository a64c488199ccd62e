//! Everything that Prometheus sees. The only module that knows the prefix.
//!
//! Results are collected from the lanes' views at each scrape, so a series lives exactly as long as
//! its target: nothing is left behind in a registry. A scrape reads memory only; what the process
//! itself uses is sampled beside it.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use probes::{Measurement, MetricKind, MetricSpec, PROBES, Schedule, Scope, Verdict};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, prometheus_text, text},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::ConstGauge,
        histogram::Histogram,
    },
    registry::{Registry, Unit},
};

use crate::{
    agent::Agent,
    lane::{Lane, Standing, View},
    run::{Outcome, Report, Run, SkipReason},
    runner::epoch_seconds,
};

mod process;

pub(crate) use process::{Process, sample as sample_process};

/// What every name of ours begins with.
pub(crate) const PREFIX: &str = "fabricpulse";
/// For how many intervals without a completed run a value is still shown.
const SHOWN_INTERVALS: f64 = 3.0;
/// A passive run, a light one, a heavy one, and what took longer.
const DURATION_BUCKETS: [f64; 3] = [0.1, 1.0, 10.0];

/// An exposition format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus's text format 0.0.4.
    Text,
}

/// Encodes everything.
pub(crate) fn encode(registry: &Registry, format: Format) -> String {
    let mut out = String::with_capacity(256 << 10);
    let encoded = match format {
        Format::OpenMetrics => text::encode(&mut out, registry),
        Format::Text => prometheus_text::encode(&mut out, registry),
    };
    encoded.expect("writing to a string can't fail");
    out
}

/// The registry of a running agent.
pub(crate) fn registry(agent: &Arc<Agent>) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(process::Collected(agent.process())));
    let ours = registry.sub_registry_with_prefix(PREFIX);
    let totals = agent.totals();
    ours.register("runs", "Runs by how they ended, since the agent's start", totals.runs.clone());
    ours.register(
        "skips",
        "Runs that the gate did not let start, by its reason, since the agent's start",
        totals.skips.clone(),
    );
    ours.register_with_unit(
        "run_duration",
        "Seconds that the runs which were started took",
        Unit::Seconds,
        totals.durations.clone(),
    );
    ours.register_collector(Box::new(Lanes(agent.clone())));
    registry
}

/// The answer to one `/probe` request: its own three values, and what the run measured.
pub(crate) fn encode_answer(
    own: [(&'static str, &'static str, f64); 3],
    run: &Run,
    reports: Vec<Report>,
    format: Format,
) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Own(own)));
    registry
        .sub_registry_with_prefix(PREFIX)
        .register_collector(Box::new(Answer { probe: run.probe, reports }));
    encode(&registry, format)
}

/// Counts of runs since the agent's start.
#[derive(Debug)]
pub(crate) struct Totals {
    runs: Family<[(&'static str, &'static str); 2], Counter>,
    skips: Family<[(&'static str, &'static str); 2], Counter>,
    durations: Family<[(&'static str, &'static str); 1], Histogram>,
}

impl Totals {
    /// Every series exists from the start, at 0: a rate can't be taken of a series that begins at 1.
    pub(crate) fn new() -> Totals {
        let totals = Totals {
            runs: Family::default(),
            skips: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
        };
        for probe in PROBES {
            for outcome in Outcome::WORDS {
                let _ = totals.runs.get_or_create(&[("probe", probe.name()), ("outcome", outcome)]);
            }
            let _ = totals.durations.get_or_create(&[("probe", probe.name())]);
            if probe.scope() != Scope::AllTargets {
                for reason in SkipReason::ALL {
                    let _ = totals.skips.get_or_create(&[("probe", probe.name()), ("reason", reason.word())]);
                }
            }
        }
        totals
    }

    /// Counts a request that was refused before there was a run.
    pub(crate) fn refuse(&self, probe: &'static str, reason: SkipReason) {
        self.skips.get_or_create(&[("probe", probe), ("reason", reason.word())]).inc();
    }

    pub(crate) fn count(&self, run: &Run) {
        self.runs.get_or_create(&[("probe", run.probe), ("outcome", run.outcome.word())]).inc();
        match &run.outcome {
            Outcome::Skipped(skip) => self.refuse(run.probe, skip.reason),
            Outcome::Unsupported(_) => {}
            Outcome::Completed | Outcome::Failed(_) | Outcome::Unreadable(_) => {
                self.durations.get_or_create(&[("probe", run.probe)]).observe(run.took.as_secs_f64());
            }
        }
    }
}

#[derive(Debug)]
struct Lanes(Arc<Agent>);

impl Collector for Lanes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let agent = &self.0;
        let lanes = agent.lanes();
        let views: Vec<(&Lane, Arc<View>, f64)> = lanes
            .iter()
            .filter(|lane| lane.probe.schedule() == Schedule::Interval)
            .map(|lane| (&**lane, lane.view(), agent.timing(lane).interval.as_secs_f64()))
            .collect();
        info(&mut encoder, "build", "The version of the agent.", &[("version", env!("CARGO_PKG_VERSION"))])?;
        agent_state(&mut encoder, agent)?;

        let mut intervals = encoder.encode_descriptor(
            "probe_interval",
            "Seconds between two periodic runs of a probe; 0 where it is switched off.",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        for probe in PROBES.iter().filter(|probe| probe.schedule() == Schedule::Interval) {
            gauge(
                &mut intervals,
                &[("probe", probe.name())],
                agent.probe_interval(probe.name()).as_secs_f64(),
            )?;
        }
        standings(
            &mut encoder,
            &views,
            "lane_verdict",
            "What the newest judged run says of the target: 0 pass, 1 degraded, 2 fail, 3 unknown.",
            None,
            |s| Some(verdict_number(s.verdict)),
        )?;
        standings(
            &mut encoder,
            &views,
            "lane_last_run_timestamp",
            "When the newest run ended, however it ended.",
            Some(&Unit::Seconds),
            |s| Some(s.last_run).filter(|at| *at > 0.0),
        )?;
        standings(
            &mut encoder,
            &views,
            "lane_last_completed_timestamp",
            "When the newest run ended that measured the target.",
            Some(&Unit::Seconds),
            |s| s.completed.as_ref().map(|(at, _)| *at),
        )?;

        let now = epoch_seconds();
        let mut told: Vec<Told<'_>> = Vec::new();
        for probe in PROBES {
            let mut fresh: Vec<&Report> = Vec::new();
            let mut runs: HashSet<u64> = HashSet::new();
            for (_, view, interval) in views.iter().filter(|(lane, ..)| lane.probe.name() == probe.name()) {
                for (target, standing) in &view.standings {
                    if let Some((ended, run)) = &standing.completed
                        && now - ended < SHOWN_INTERVALS * interval
                        && let Some(report) = run.report(target)
                    {
                        runs.insert(run.id);
                        fresh.push(report);
                    }
                }
            }
            told.push(Told { specs: probe.metrics(), reports: fresh, mixed: runs.len() > 1 });
        }
        values(&mut encoder, &told)
    }
}

/// What one probe tells.
struct Told<'a> {
    specs: &'static [&'static MetricSpec],
    reports: Vec<&'a Report>,
    /// A bridge above several targets is told with one of them. After a run that left out a target,
    /// two runs can both tell it: only the first is then kept.
    mixed: bool,
}

impl<'a> Told<'a> {
    fn of_family(&self, spec: &MetricSpec) -> impl Iterator<Item = &'a Measurement> {
        let mut seen: HashSet<&[String]> = HashSet::new();
        let all = self.reports.iter().flat_map(|report| &report.measurements);
        all.filter(move |m| m.metric.name == spec.name && (!self.mixed || seen.insert(&m.labels)))
    }
}

/// All values, family by family: one that two probes share is told once.
fn values(encoder: &mut DescriptorEncoder<'_>, told: &[Told<'_>]) -> fmt::Result {
    let mut names = HashSet::new();
    for spec in told.iter().flat_map(|told| told.specs).filter(|spec| names.insert(spec.name)) {
        let mut of_family = told.iter().flat_map(|told| told.of_family(spec)).peekable();
        if of_family.peek().is_some() {
            family(encoder, spec, of_family)?;
        }
    }
    Ok(())
}

fn family<'a>(
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

fn gauge(family: &mut MetricEncoder<'_>, labels: &[(&str, &str)], value: f64) -> fmt::Result {
    ConstGauge::new(value).encode(family.encode_family(&labels)?)
}

fn info(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, labels: &[(&str, &str)]) -> fmt::Result {
    encoder.encode_descriptor(name, help, None, MetricType::Info)?.encode_info(&labels)
}

fn standings(
    encoder: &mut DescriptorEncoder<'_>,
    views: &[(&Lane, Arc<View>, f64)],
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: impl Fn(&Standing) -> Option<f64>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
    for (lane, view, _) in views {
        for (target, standing) in &view.standings {
            if let Some(value) = value(standing) {
                gauge(&mut family, &[("probe", lane.probe.name()), ("target", target.id())], value)?;
            }
        }
    }
    Ok(())
}

fn agent_state(encoder: &mut DescriptorEncoder<'_>, agent: &Agent) -> fmt::Result {
    let held = agent.hold().map_or(0.0, |hold| hold.until);
    let reload = agent.last_reload();
    let singles = [
        ("active", "Whether active probes are switched on.", None, f64::from(u8::from(agent.active()))),
        ("hold_until_timestamp", "When the maintenance hold ends; 0 without one.", Some(Unit::Seconds), held),
        (
            "config_last_reload_successful",
            "Whether the newest reading of the configuration succeeded.",
            None,
            f64::from(u8::from(reload.good)),
        ),
        (
            "config_last_reload_success_timestamp",
            "When the configuration was last read with success.",
            Some(Unit::Seconds),
            reload.good_at,
        ),
        (
            "inventory_last_success_timestamp",
            "When the node's parts were last listed; 0 if never.",
            Some(Unit::Seconds),
            agent.listed_at(),
        ),
    ];
    for (name, help, unit, value) in singles {
        let metric = ConstGauge::new(value);
        metric.encode(encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?)?;
    }
    Ok(())
}

fn verdict_number(verdict: Verdict) -> f64 {
    f64::from(verdict as u8)
}

#[derive(Debug)]
struct Own([(&'static str, &'static str, f64); 3]);

impl Collector for Own {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, value) in self.0 {
            ConstGauge::new(value).encode(encoder.encode_descriptor(
                name,
                help,
                None,
                MetricType::Gauge,
            )?)?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Answer {
    probe: &'static str,
    reports: Vec<Report>,
}

impl Collector for Answer {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if !self.reports.is_empty() {
            let mut verdicts = encoder.encode_descriptor(
                "lane_verdict",
                "What this run says of the target: 0 pass, 1 degraded, 2 fail, 3 unknown.",
                None,
                MetricType::Gauge,
            )?;
            for report in &self.reports {
                gauge(
                    &mut verdicts,
                    &[("probe", self.probe), ("target", report.target.id())],
                    verdict_number(report.verdict),
                )?;
            }
        }
        let reports: Vec<&Report> = self.reports.iter().collect();
        let specs = probes::find(self.probe).map_or(&[][..], |probe| probe.metrics());
        values(&mut encoder, &[Told { specs, reports, mixed: false }])
    }
}

/// When and how the configuration was last read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reload {
    pub(crate) good: bool,
    /// Seconds since the epoch.
    pub(crate) good_at: f64,
}

/// How often the process's own use is sampled: a quarter of the usual scrape interval.
pub(crate) const PROCESS_INTERVAL: Duration = Duration::from_secs(15);

/// A value that is written rarely and read at each scrape.
#[derive(Debug, Default)]
pub(crate) struct Cell<T>(Mutex<T>);

impl<T: Copy> Cell<T> {
    pub(crate) fn of(value: T) -> Cell<T> {
        Cell(Mutex::new(value))
    }

    pub(crate) fn get(&self) -> T {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }
}
