//! `/config`: the configuration in force, for a person who wonders what the layers came to.
//!
//! An operator's own command may carry a token in its arguments, so these are masked for everybody.

use std::time::Duration;

use probes::{
    Settings,
    settings::{ComputeSettings, ExecCheck},
};
use serde_json::{Map, Value, json};

use crate::config::{Budget, Config, Identity, Log, Peers, State, Timing, Web};

const MASKED: &str = "<masked>";

/// The configuration as JSON. Taken apart by name, so that a new key can't be forgotten here.
pub(crate) fn view(config: &Config) -> Value {
    let Config {
        node_name,
        active,
        web,
        state,
        log,
        budget,
        baseline,
        occupancy,
        peers,
        inventory_interval,
        timings,
        settings,
    } = config;
    let Web { listen, config_file, socket, max_requests } = web;
    let State { directory, journal_bytes } = state;
    let Log { level, format } = log;
    let Budget { gpu_milliseconds, network_mib, heavy_runs } = budget;
    let Settings { roots, inventory, node, pcie, nic, gpu, compute, rdma, expected, exec } = settings;
    json!({
        "node_name": node_name,
        "active": active,
        "web": {
            "listen_address": listen,
            "config_file": config_file,
            "socket": socket,
            "max_requests": max_requests,
        },
        "state": { "directory": directory, "journal_bytes": journal_bytes },
        "log": { "level": level, "format": format },
        "budget": {
            "gpu_milliseconds_per_hour": gpu_milliseconds,
            "network_mib_per_hour": network_mib,
            "heavy_runs_per_hour": heavy_runs,
        },
        "baseline": { "samples": baseline.samples, "confirm_every_seconds": baseline.every },
        "occupancy": { "check": occupancy },
        "peers": self::peers(peers),
        "compute": self::compute(compute),
        "rdma": rdma,
        "expected": expected,
        "roots": roots,
        "inventory": { "interval": words(*inventory_interval), "settings": inventory },
        "timings": timings
            .iter()
            .map(|(probe, Timing { enabled, interval, timeout })| {
                let timing =
                    json!({ "enabled": enabled, "interval": words(*interval), "timeout": words(*timeout) });
                ((*probe).to_string(), timing)
            })
            .collect::<Map<_, _>>(),
        "probe": {
            "node": node,
            "pcie": pcie,
            "nic": nic,
            "gpu": gpu,
            "exec": exec.iter().map(check).collect::<Vec<_>>(),
        },
    })
}

fn peers(peers: &Peers) -> Value {
    let Peers { members, file_sd, listen, port, identity, ports, slot, lease } = peers;
    let identity = identity.as_ref().map(|Identity { certificate, key, authority }| {
        json!({ "certificate_file": certificate, "key_file": key, "ca_file": authority })
    });
    json!({
        "static": members,
        "file_sd": file_sd,
        "listen_address": listen,
        "port": port,
        "identity": identity,
        "perftest_ports": format!("{}-{}", ports.start, ports.end - 1),
        "slot": words(*slot),
        "lease": words(*lease),
    })
}

/// What is in a variable may be secret.
fn compute(compute: &ComputeSettings) -> Value {
    let ComputeSettings {
        library_directories,
        environment,
        gemm,
        hbm_bytes,
        host_copy_bytes,
        p2p_bytes,
        collectives,
    } = compute;
    let variables = environment.iter().map(|(name, _)| format!("{name}={MASKED}"));
    json!({
        "library_directories": library_directories,
        "environment": variables.collect::<Vec<_>>(),
        "gemm": gemm,
        "hbm_bytes": hbm_bytes,
        "host_copy_bytes": host_copy_bytes,
        "p2p_bytes": p2p_bytes,
        "collectives": collectives,
    })
}

fn check(check: &ExecCheck) -> Value {
    let ExecCheck { name, argv, cost, interval, timeout, gpu_seconds, network_mib } = check;
    let argv: Vec<_> = argv
        .iter()
        .enumerate()
        .map(|(index, argument)| if index == 0 { argument.as_str() } else { MASKED })
        .collect();
    json!({
        "name": name,
        "argv": argv,
        "cost": cost,
        "interval": words(*interval),
        "timeout": words(*timeout),
        "gpu_seconds": gpu_seconds,
        "network_mib": network_mib,
    })
}

fn words(duration: Duration) -> String {
    humantime_serde::re::humantime::format_duration(duration).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operators_program_is_shown_and_its_arguments_are_not() {
        let shown = check(&ExecCheck {
            name: "disk".to_string(),
            argv: vec!["/opt/check".to_string(), "--token".to_string(), "s3cret".to_string()],
            cost: probes::Cost::Passive,
            interval: Duration::from_secs(90),
            timeout: Duration::from_secs(5),
            gpu_seconds: 0.0,
            network_mib: 0,
        });
        assert_eq!(shown["argv"], json!(["/opt/check", MASKED, MASKED]));
        assert_eq!(shown["interval"], "1m 30s");
        assert!(!shown.to_string().contains("s3cret"));
    }
}
