//! The configuration as it is written: every leaf by itself, right or wrong.
//!
//! A wrong leaf does not stop the reading, so that all mistakes are told at once.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use humantime_serde::re::humantime;
use probes::Cost;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};

use super::LogFormat;

#[derive(Deserialize)]
pub(super) struct Raw {
    pub(super) node_name: Leaf<String>,
    pub(super) active: Leaf<bool>,
    pub(super) web: Web,
    pub(super) state: State,
    pub(super) log: Log,
    pub(super) roots: Roots,
    pub(super) inventory: Inventory,
    pub(super) budget: Budget,
    pub(super) probe: Probe,
}

#[derive(Deserialize)]
pub(super) struct Web {
    pub(super) listen_address: Leaf<Vec<Address>>,
    pub(super) config_file: Leaf<PathBuf>,
    pub(super) socket: Leaf<PathBuf>,
    pub(super) max_requests: Leaf<usize>,
}

#[derive(Deserialize)]
pub(super) struct State {
    pub(super) directory: Leaf<PathBuf>,
    pub(super) journal_mib: Leaf<u64>,
}

#[derive(Deserialize)]
pub(super) struct Log {
    pub(super) level: Leaf<String>,
    pub(super) format: Leaf<Format>,
}

#[derive(Deserialize)]
pub(super) struct Roots {
    pub(super) sysfs: Leaf<PathBuf>,
    pub(super) proc: Leaf<PathBuf>,
    pub(super) etc: Leaf<PathBuf>,
}

#[derive(Deserialize)]
pub(super) struct Inventory {
    pub(super) interval: Leaf<Span>,
    pub(super) nic_drivers: Leaf<Vec<String>>,
}

#[derive(Deserialize)]
pub(super) struct Budget {
    pub(super) gpu_seconds_per_hour: Leaf<f64>,
    pub(super) network_mib_per_hour: Leaf<u32>,
    pub(super) heavy_runs_per_hour: Leaf<u32>,
}

#[derive(Deserialize)]
pub(super) struct Probe {
    pub(super) node: Node,
    pub(super) pcie: Pcie,
    pub(super) nic: Nic,
    pub(super) gpu: Gpu,
    pub(super) exec: Exec,
}

#[derive(Deserialize)]
pub(super) struct Node {
    pub(super) enabled: Leaf<bool>,
    pub(super) interval: Leaf<Span>,
    pub(super) timeout: Leaf<Span>,
    pub(super) ignore: Leaf<Vec<String>>,
    pub(super) user: Leaf<String>,
    pub(super) cpu_governor: Leaf<String>,
    pub(super) huge_pages: Leaf<u64>,
}

#[derive(Deserialize)]
pub(super) struct Pcie {
    pub(super) enabled: Leaf<bool>,
    pub(super) interval: Leaf<Span>,
    pub(super) timeout: Leaf<Span>,
    pub(super) pcid_socket: Leaf<PathBuf>,
    pub(super) nic_max_read_request: Leaf<u32>,
    pub(super) error_window: Leaf<Span>,
    pub(super) correctable_errors: Leaf<u64>,
    pub(super) busy_percent: Leaf<u32>,
}

#[derive(Deserialize)]
pub(super) struct Nic {
    pub(super) enabled: Leaf<bool>,
    pub(super) interval: Leaf<Span>,
    pub(super) timeout: Leaf<Span>,
    pub(super) error_window: Leaf<Span>,
    pub(super) flaps: Leaf<u64>,
    pub(super) errors: Leaf<u64>,
    pub(super) unused: Leaf<Vec<String>>,
}

#[derive(Deserialize)]
pub(super) struct Gpu {
    pub(super) enabled: Leaf<bool>,
    pub(super) interval: Leaf<Span>,
    pub(super) timeout: Leaf<Span>,
    pub(super) error_window: Leaf<Span>,
    pub(super) correctable_errors: Leaf<u64>,
}

#[derive(Deserialize)]
pub(super) struct Exec {
    pub(super) enabled: Leaf<bool>,
    #[serde(default)]
    pub(super) check: Vec<Check>,
}

#[derive(Deserialize)]
pub(super) struct Check {
    pub(super) name: Option<Leaf<String>>,
    pub(super) argv: Option<Leaf<Vec<String>>>,
    pub(super) cost: Option<Leaf<CheckCost>>,
    pub(super) interval: Option<Leaf<Span>>,
    pub(super) timeout: Option<Leaf<Span>>,
    pub(super) gpu_seconds: Option<Leaf<f64>>,
    pub(super) network_mib: Option<Leaf<u32>>,
}

/// A value that may be wrong.
pub(super) struct Leaf<T>(pub(super) Result<T, String>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Leaf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Leaf<T>, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Ok(Leaf(T::deserialize(value).map_err(|error| error.to_string())))
    }
}

/// A duration with its unit.
#[derive(Default)]
pub(super) struct Span(pub(super) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Span, D::Error> {
        let text = String::deserialize(deserializer)
            .map_err(|_| serde::de::Error::custom("not a duration: write \"90s\", \"10m\" or \"6h\""))?;
        humantime::parse_duration(&text)
            .map(Span)
            .map_err(|error| serde::de::Error::custom(format!("{text:?} is not a duration: {error}")))
    }
}

/// A socket address; `:10950` is any IPv4 address.
pub(super) struct Address(pub(super) SocketAddr);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Address, D::Error> {
        let text = String::deserialize(deserializer)?;
        let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.clone() };
        full.parse().map(Address).map_err(|_| {
            serde::de::Error::custom(format!(
                "{text:?} is not an address: write \"0.0.0.0:10950\" or \"[::]:10950\""
            ))
        })
    }
}

#[derive(Deserialize)]
pub(super) struct Format(pub(super) LogFormat);

impl Default for Format {
    fn default() -> Format {
        Format(LogFormat::Logfmt)
    }
}

#[derive(Deserialize)]
pub(super) struct CheckCost(pub(super) Cost);

impl Default for CheckCost {
    fn default() -> CheckCost {
        CheckCost(Cost::Passive)
    }
}
