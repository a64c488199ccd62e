//! A passive probe without an agent: the same plan, child, parser and judge, once.

use std::process::ExitCode;

use probes::{Context, Cost, LoadedLinks, Memory, Scope, Target, Verdict};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::client::print;
use crate::{agent, config::Config, inventory, judge, lane, run::Report, runner::Stop, words};

pub(super) async fn main(
    config: &Config,
    test: &str,
    target: Option<&str>,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let probe = probes::find(test)
        .ok_or_else(|| anyhow::anyhow!("there is no test {test:?}; known are {}", words::known_tests()))?;
    let stop = Stop::at_shutdown(CancellationToken::new());
    let (inventory, _) = inventory::list(config, &stop).await?;
    let mut targets: Vec<Target> = probe.targets(&inventory, &config.settings);
    if let Some(target) = target {
        let known = targets.iter().map(Target::id).collect::<Vec<_>>().join(", ");
        let alias = agent::pci_of(&inventory, target);
        targets.retain(|known| known.id() == target || alias.as_deref() == Some(known.id()));
        anyhow::ensure!(!targets.is_empty(), "{test} has no target {target:?}; known are {known}");
    }
    anyhow::ensure!(!targets.is_empty(), "{test}: nothing on this node that it measures");
    anyhow::ensure!(probe.scope() == Scope::AllTargets || targets.len() == 1, "{test} needs a --target");
    anyhow::ensure!(
        probe.cost(&config.settings, &targets[0]) == Cost::Passive,
        "{test} uses the device, so it runs only through an agent, which knows whether a job is on it"
    );
    let timeout = lane::timing(config, probe.name(), targets.first())
        .map_or(std::time::Duration::ZERO, |timing| timing.timeout);
    let ctx = Context {
        targets: &targets,
        inventory: &inventory,
        settings: &config.settings,
        timeout,
        port: 0,
        partner: None,
        loaded: LoadedLinks::none(),
    };
    let plan = probe.plan(&ctx).map_err(|why| anyhow::anyhow!("{test}: {}", why.0))?;
    let mut evidence = Vec::new();
    let measured = lane::measure(probe, &ctx, &plan, &mut Memory::default(), &stop, &mut evidence).await;
    let readings = measured.map_err(|outcome| {
        let said: Vec<&str> = evidence.iter().map(|step| step.stderr.trim()).collect();
        anyhow::anyhow!("{test}: {outcome} {}", said.join(" "))
    })?;
    let reports = judge::completed(&targets, readings);
    let worst = Verdict::worst(reports.iter().map(|report| report.verdict));
    if as_json {
        let reports: Vec<_> = reports.iter().map(object).collect();
        print(&json!({ "probe": test, "verdict": worst, "reports": reports }).to_string())?;
    } else {
        print(reports.iter().map(lines).collect::<String>().trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn object(report: &Report) -> serde_json::Value {
    json!({ "target": report.target.id(), "verdict": report.verdict, "reason": report.reason, "findings": report.findings })
}

fn lines(report: &Report) -> String {
    let mut out = format!("{}: {}: {}\n", report.target, report.verdict, report.reason);
    for finding in report.findings.iter().filter(|finding| finding.verdict != Some(Verdict::Pass)) {
        out.push_str(&words::lines(finding));
    }
    out
}
