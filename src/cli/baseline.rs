//! `fabricpulse baseline show`: every series with what is usual for it and its baseline.

use std::{collections::BTreeMap, process::ExitCode};

use serde::Deserialize;

use super::client::print;
use crate::{client::Client, http::style::date, judge::speed::amount};

#[derive(Deserialize)]
struct Answer {
    series: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    probe: String,
    target: String,
    metric: String,
    labels: BTreeMap<String, String>,
    state: String,
    frozen: Option<Frozen>,
    usual: Option<f64>,
    samples: u32,
    epoch: String,
}

#[derive(Deserialize)]
struct Frozen {
    value: f64,
    at: f64,
}

/// Asks the agent and prints a table.
pub(super) async fn show(client: &Client, json: bool) -> anyhow::Result<ExitCode> {
    let (status, text) = client.get("/api/v1/baseline").await?;
    anyhow::ensure!(status.is_success(), "the agent answers {status}: {}", text.trim());
    if json {
        print(text.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let answer: Answer = serde_json::from_str(&text)?;
    print(&table(&answer.series))?;
    Ok(ExitCode::SUCCESS)
}

fn table(series: &[Series]) -> String {
    if series.is_empty() {
        return "no series yet: active probes have not measured anything".to_string();
    }
    let mut lines = vec![[
        "PROBE".to_string(),
        "TARGET".into(),
        "SERIES".into(),
        "STATE".into(),
        "USUAL".into(),
        "BASELINE".into(),
        "SINCE".into(),
    ]];
    let mut epochs: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for series in series {
        let unit = probes::find_metric(&series.metric).map_or("", |metric| metric.unit);
        let labels = series.labels.values().filter(|value| **value != series.target);
        let labels = labels.cloned().collect::<Vec<_>>().join(" ");
        let usual = match series.usual {
            Some(usual) => amount(unit, usual),
            None => format!("{} samples", series.samples),
        };
        let (value, at) = match &series.frozen {
            Some(frozen) => (amount(unit, frozen.value), date(frozen.at)),
            None => ("-".into(), "-".into()),
        };
        let name = format!("{} {labels}", series.metric).trim_end().to_string();
        lines.push([
            series.probe.clone(),
            series.target.clone(),
            name,
            series.state.clone(),
            usual,
            value,
            at,
        ]);
        let of = epochs.entry(&series.epoch).or_default();
        let lane = format!("{} {}", series.probe, series.target);
        if !of.contains(&lane) {
            of.push(lane);
        }
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let mut out = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    for (epoch, lanes) in epochs {
        out.push_str(&format!("\nmeasured on {epoch}:\n  {}\n", lanes.join(", ")));
    }
    out.trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_is_a_line_and_each_epoch_is_told_once() {
        let of = |dtype: &str, frozen| Series {
            probe: "gemm".into(),
            target: "0000:05:00.0".into(),
            metric: "gemm_flops".into(),
            labels: BTreeMap::from([("gpu".into(), "0000:05:00.0".into()), ("dtype".into(), dtype.into())]),
            state: "ok".into(),
            frozen,
            usual: Some(7.9e14),
            samples: 20,
            epoch: "driver 580".into(),
        };
        let text = table(&[of("bf16", Some(Frozen { value: 8e14, at: 0.0 })), of("fp16", None)]);
        assert_eq!(text.matches("measured on driver 580:\n  gemm 0000:05:00.0").count(), 1, "{text}");
        assert!(text.contains("gemm_flops bf16  ok     790.0 TFLOP/s  800.0 TFLOP/s"), "{text}");
        assert!(table(&[]).starts_with("no series yet"));
    }
}
