//! `expected`: what a healthy part does, and who says so.

use std::process::ExitCode;

use probes::expected::{Expected, Sku, Source};

use super::client::printed;
use crate::expected;

/// The name of a table, or part of a model's name, is not known.
const USAGE: u8 = 2;

/// Prints the tables of these models, or all.
pub(crate) fn main(wanted: Option<&str>) -> ExitCode {
    let tables = expected::tables();
    let wanted = wanted.map(str::to_lowercase);
    let is = |(name, sku): &&(&str, Sku)| {
        wanted.as_deref().is_none_or(|wanted| *name == wanted || sku.name.to_lowercase().contains(wanted))
    };
    let chosen: Vec<_> = tables.iter().filter(is).collect();
    if chosen.is_empty() {
        let known = tables.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        eprintln!("fabricpulse: there is no table of {:?}; known are {known}", wanted.unwrap_or_default());
        return ExitCode::from(USAGE);
    }
    printed(&chosen.iter().map(|(_, sku)| table(sku)).collect::<Vec<_>>().join("\n\n"))
}

fn table(sku: &Sku) -> String {
    let values = sku.expected.iter().map(line);
    let sources = sku.sources.iter().map(|(word, source)| origin(word, source));
    let name = std::iter::once(sku.name.clone());
    name.chain(values).chain(sources).collect::<Vec<_>>().join("\n")
}

fn line(expected: &Expected) -> String {
    let mut labels: Vec<String> =
        expected.labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    labels.extend(expected.gpus.map(|gpus| format!("{gpus} GPUs")));
    labels.extend(expected.bytes.map(|bytes| format!("{bytes} B")));
    let (value, kind) = (quantity(expected), expected.kind.word());
    let told = format!("[{}] {}", expected.source, expected.conditions);
    let metric = format!("{}{{{}}}", expected.metric, labels.join(","));
    format!("  {kind:<9} {value:>14}  {metric}\n            {}", told.trim_end())
}

fn origin(word: &str, source: &Source) -> String {
    let at = source.url.as_ref().map(|url| format!("\n            {url}")).unwrap_or_default();
    format!("  [{word}] {}{at}", source.title)
}

/// The value in the unit that people use.
fn quantity(expected: &Expected) -> String {
    if expected.metric.ends_with("flops") {
        format!("{:.1} TFLOP/s", expected.value / 1e12)
    } else if expected.metric.ends_with("bytes_per_second") {
        format!("{:.1} GB/s", expected.value / 1e9)
    } else {
        format!("{:.1} us", expected.value * 1e6)
    }
}
