//! `list`: what this node has, and what of it can be measured.

use std::process::ExitCode;

use probes::{
    Context, Inventory, LoadedLinks, Partner, Probe, Scope, Target, distance,
    inventory::{Function, Perftest},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::client::print;
use crate::{config::Config, inventory, lane, runner::Stop};

/// One line of the list.
struct Row {
    probe: &'static str,
    target: String,
    /// Why it can't be measured.
    unsupported: Option<String>,
}

pub(super) async fn main(config: &Config, as_json: bool) -> anyhow::Result<ExitCode> {
    let stop = Stop::at_shutdown(CancellationToken::new());
    let (inventory, problems) = inventory::list(config, &stop).await?;
    for problem in &problems {
        eprintln!("fabricpulse: {}: {}: {}", problem.part, problem.path, problem.error);
    }
    let rows = rows(config, &inventory);
    if as_json {
        print(&serde_json::to_string_pretty(&object(config, &inventory, &rows))?)?;
    } else {
        let rows = rows.iter().map(words).collect::<Vec<_>>().join("\n");
        print(&format!("{}\n\n{rows}", parts(&inventory).join("\n")))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn rows(config: &Config, inventory: &Inventory) -> Vec<Row> {
    let mut rows = Vec::new();
    for probe in probes::PROBES.iter().copied() {
        let targets = probe.targets(inventory, &config.settings);
        if targets.is_empty() {
            let why = "nothing on this node that it measures".to_string();
            rows.push(Row { probe: probe.name(), target: String::new(), unsupported: Some(why) });
        }
        let sets: Vec<&[Target]> = match probe.scope() {
            Scope::AllTargets => vec![&targets],
            Scope::EachTarget | Scope::EachPair => targets.chunks(1).collect(),
        };
        for set in sets {
            let unsupported = unsupported(config, inventory, probe, set);
            let row = |target: &Target| Row {
                probe: probe.name(),
                target: target.to_string(),
                unsupported: unsupported.clone(),
            };
            rows.extend(set.iter().map(row));
        }
    }
    rows
}

fn unsupported(
    config: &Config,
    inventory: &Inventory,
    probe: &dyn Probe,
    targets: &[Target],
) -> Option<String> {
    let timing = lane::timing(config, probe.name(), targets.first())?;
    if !timing.enabled {
        return Some(format!("switched off: [probe.{}] enabled = false", probe.name()));
    }
    let nobody = Partner::nobody();
    let ctx = Context {
        targets,
        inventory,
        settings: &config.settings,
        timeout: timing.timeout,
        port: 0,
        partner: (probe.scope() == Scope::EachPair).then_some(&nobody),
        loaded: LoadedLinks::none(),
    };
    probe.plan(&ctx).err().map(|why| why.0)
}

fn words(row: &Row) -> String {
    match &row.unsupported {
        None => format!("{:<12} {:<14} supported", row.probe, row.target),
        Some(why) => format!("{:<12} {:<14} not supported: {why}", row.probe, row.target),
    }
}

fn parts(inventory: &Inventory) -> Vec<String> {
    let gpu = |gpu: &probes::inventory::Gpu| {
        format!("GPU    {}  {}", function(&gpu.function), gpu.model.as_deref().unwrap_or("unknown model"))
    };
    let nic = |nic: &probes::inventory::Nic| {
        let to = |gpu: &probes::inventory::Gpu| {
            let distance = distance::between(inventory, &nic.function.pci, &gpu.function.pci)?;
            Some((distance, gpu.function.pci.clone()))
        };
        let near = inventory.gpus.iter().filter_map(to).min();
        let near = near
            .map_or(String::new(), |(distance, gpu)| format!("  nearest GPU {gpu} ({})", distance.word()));
        format!("NIC    {}  {} {}{near}", function(&nic.function), nic.rdma.join(","), nic.netdevs.join(","))
    };
    let soft = inventory.rdma.iter().filter(|rdma| rdma.pci.is_none());
    let mut lines: Vec<String> =
        inventory.gpus.iter().map(gpu).chain(inventory.nics.iter().map(nic)).collect();
    lines.extend(soft.map(|rdma| format!("RDMA   {}  (no PCI device)", rdma.name)));
    if lines.is_empty() {
        lines.push("no GPU and no RDMA device on this node".to_string());
    }
    lines.push(perftest(inventory.perftest.as_ref()));
    lines
}

fn perftest(installed: Option<&Perftest>) -> String {
    let Some(Perftest { directory, version, gpu_options, .. }) = installed else {
        return "perftest is not installed".to_string();
    };
    let version =
        version.as_deref().map_or("unknown version".to_string(), |version| format!("version {version}"));
    let gpu = match gpu_options.as_slice() {
        [] => "no GPU support".to_string(),
        options => format!("GPU memory by {}", options.join(", ")),
    };
    format!("perftest {directory}, {version}, {gpu}")
}

fn function(function: &Function) -> String {
    let link = function.link.unwrap_or_default();
    let speed = |speed: Option<f64>| speed.map_or("?".to_string(), |speed| speed.to_string());
    let width = |width: Option<u32>| width.map_or("?".to_string(), |width| width.to_string());
    format!(
        "{}  {:04x}:{:04x}  {} GT/s x{} of {} GT/s x{}  {}",
        function.pci,
        function.vendor,
        function.device,
        speed(link.speed),
        width(link.width),
        speed(link.max_speed),
        width(link.max_width),
        function.numa.map_or("no NUMA node".to_string(), |node| format!("NUMA {node}")),
    )
}

fn object(config: &Config, inventory: &Inventory, rows: &[Row]) -> serde_json::Value {
    let probes: Vec<serde_json::Value> = probes::PROBES
        .iter()
        .map(|probe| {
            let targets: Vec<_> = rows
                .iter()
                .filter(|row| row.probe == probe.name() && !row.target.is_empty())
                .map(|row| json!({ "target": row.target, "supported": row.unsupported.is_none(), "why": row.unsupported }))
                .collect();
            json!({ "probe": probe.name(), "summary": probe.summary(), "targets": targets })
        })
        .collect();
    json!({ "node": config.node_name, "inventory": inventory, "probes": probes })
}
