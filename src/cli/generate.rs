//! `generate`: what is made from the program itself, so that it can't differ from it.

use std::{fmt::Write as _, process::ExitCode};

use probes::MetricKind;

use super::client::print;
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
        What::Config => print(DEFAULT_TOML.trim_end()),
        What::Metrics => print(reference().trim_end()),
    }
    ExitCode::SUCCESS
}

/// The metric reference.
fn reference() -> String {
    let mut out = String::from("| metric | labels | probe | meaning |\n|---|---|---|---|\n");
    for probe in probes::PROBES {
        for metric in probe.metrics() {
            let suffix = match metric.kind {
                MetricKind::Gauge => "",
                MetricKind::Counter => "_total",
                MetricKind::Info => "_info",
            };
            let _ = writeln!(
                out,
                "| `{PREFIX}_{}{suffix}` | {} | `{}` | {} |",
                metric.name,
                metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(" "),
                probe.name(),
                metric.help
            );
        }
    }
    out
}
