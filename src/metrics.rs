//! Everything that Prometheus sees. The only module that knows the prefix.
//!
//! Results are collected from the lanes' views at each scrape, so a series lives exactly as long as
//! its target: nothing is left behind in a registry. A scrape reads memory only; what the process
//! itself uses is sampled beside it.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use probes::{PROBES, Resource, Schedule, Scope, Use, Verdict};
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

mod pairs;
mod process;
mod speed;
mod values;

pub(crate) use process::{Process, sample as sample_process};
use values::Values;

/// What every name of ours begins with.
pub(crate) const PREFIX: &str = "fabricpulse";
/// For how many intervals without a completed run a value is still shown.
const SHOWN_INTERVALS: f64 = 3.0;
/// A passive or light run, a heavy one, and what took longer.
const DURATION_BUCKETS: [f64; 2] = [1.0, 10.0];

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
    ours.register_with_unit(
        "probe_gpu",
        "Seconds of GPU time that active probes were given",
        Unit::Seconds,
        totals.gpu_seconds.clone(),
    );
    ours.register_with_unit(
        "probe_network",
        "Bytes on the wire, in one direction, that active probes were given",
        Unit::Bytes,
        totals.network_bytes.clone(),
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
    gpu_seconds: Family<[(&'static str, String); 1], Counter<f64, AtomicU64>>,
    network_bytes: Family<[(&'static str, String); 1], Counter>,
}

impl Totals {
    /// Every series exists from the start, at 0: a rate can't be taken of a series that begins at 1.
    /// What runs only when somebody asks has none before somebody does: nobody waits for it.
    pub(crate) fn new() -> Totals {
        let totals = Totals {
            runs: Family::default(),
            skips: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            gpu_seconds: Family::default(),
            network_bytes: Family::default(),
        };
        for probe in PROBES.iter().filter(|probe| probe.schedule() == Schedule::Interval) {
            for outcome in Outcome::WORDS {
                let _ = totals.runs.get_or_create(&[("probe", probe.name()), ("outcome", outcome)]);
            }
            let _ = totals.durations.get_or_create(&[("probe", probe.name())]);
            if probe.scope() != Scope::AllTargets {
                let possible =
                    |reason: &SkipReason| probe.scope() == Scope::EachPair || !reason.is_of_partners();
                for reason in SkipReason::ALL.into_iter().filter(possible) {
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

    /// Counts what runs that may start will take.
    pub(crate) fn spend(&self, uses: &[Use]) {
        for used in uses {
            match &used.resource {
                Resource::Gpu(pci) => {
                    let seconds = f64::from(used.amount) / 1000.0;
                    self.gpu_seconds.get_or_create(&[("gpu", pci.clone())]).inc_by(seconds);
                }
                Resource::Nic(device) => {
                    let bytes = u64::from(used.amount) << 20;
                    self.network_bytes.get_or_create(&[("device", device.clone())]).inc_by(bytes);
                }
                Resource::Node => {}
            }
        }
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
        // What runs only when somebody asks would come and go with the asking, and what is switched
        // off is not unknown.
        let views: Vec<(&Lane, Arc<View>, f64)> = lanes
            .iter()
            .filter(|lane| agent.off(lane).is_none())
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

        speed::encode(&mut encoder, &views)?;
        corrupt_results(&mut encoder, &views)?;
        pairs::encode(&mut encoder, agent, &views)?;
        let mut fresh = Values::default();
        let now = epoch_seconds();
        for (lane, view, interval) in &views {
            let shown = |ended: f64| now - ended < SHOWN_INTERVALS * interval;
            for (target, standing) in &view.standings {
                let single = standing.completed.iter().map(|(ended, run)| (*ended, run));
                let runs: Vec<&Arc<Run>> = match lane.probe.scope() {
                    Scope::AllTargets | Scope::EachTarget => {
                        single.filter(|(ended, _)| shown(*ended)).map(|(_, run)| run).collect()
                    }
                    Scope::EachPair => {
                        standing.partners.recent().filter(|(at, _)| shown(*at)).map(|(_, run)| run).collect()
                    }
                };
                for run in runs {
                    fresh.add(run.id, run.report(target));
                }
            }
        }
        fresh.encode(&mut encoder)
    }
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

/// From 0 on, since a rate can't be taken of a series that begins at 1.
fn corrupt_results(encoder: &mut DescriptorEncoder<'_>, views: &[(&Lane, Arc<View>, f64)]) -> fmt::Result {
    let mut family = encoder.encode_descriptor(
        "corrupt_results",
        "Runs that found wrong numbers, as far back as the agent's journal goes.",
        None,
        MetricType::Counter,
    )?;
    for (lane, view, _) in views.iter().filter(|(lane, _, _)| lane.probe.checks_results()) {
        for (target, standing) in &view.standings {
            let labels = [("probe", lane.probe.name()), ("target", target.id())];
            ConstCounter::new(standing.corrupt).encode(family.encode_family(&labels)?)?;
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
        speed::of_reports(&mut encoder, self.probe, &self.reports)?;
        let mut values = Values::default();
        for report in &self.reports {
            values.add(0, Some(report));
        }
        values.encode(&mut encoder)
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
