//! `generate`: what is made from the program itself, so that it can't differ from it.

use std::{collections::HashSet, fmt::Write as _, process::ExitCode};

use probes::{MetricKind, MetricSpec};

use super::client::printed;
use crate::{config::DEFAULT_TOML, metrics::PREFIX};

/// What can be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum What {
    /// The default configuration, with every key.
    Config,
    /// The reference of all probes and their metrics, in Markdown.
    Metrics,
}

pub(crate) fn main(what: What) -> ExitCode {
    match what {
        What::Config => printed(DEFAULT_TOML.trim_end()),
        What::Metrics => printed(reference().trim_end()),
    }
}

/// The metric reference.
fn reference() -> String {
    let mut out = String::from("| metric | labels | probe | meaning |\n|---|---|---|---|\n");
    let mut told = HashSet::new();
    for probe in probes::PROBES {
        for metric in probe.metrics().iter().filter(|metric| told.insert(metric.name)) {
            let suffix = match metric.kind {
                MetricKind::Gauge => "",
                MetricKind::Counter => "_total",
                MetricKind::Info => "_info",
            };
            let _ = writeln!(
                out,
                "| `{PREFIX}_{}{suffix}` | {} | {} | {} |",
                metric.name,
                metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(" "),
                probes_of(metric),
                metric.help
            );
        }
    }
    out
}

/// The probes that yield a metric: two may measure the same in different memory.
fn probes_of(metric: &MetricSpec) -> String {
    let yields = |probe: &&&dyn probes::Probe| probe.metrics().iter().any(|own| own.name == metric.name);
    let names = probes::PROBES.iter().filter(yields).map(|probe| format!("`{}`", probe.name()));
    names.collect::<Vec<_>>().join(" ")
}
