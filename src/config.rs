//! The checked configuration: a value of [`Config`] can't be wrong.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use probes::Settings;

mod check;
mod load;
mod raw;

pub(crate) use load::{DEFAULT_TOML, Overrides, load};

/// What the operator wants, with every default filled in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// How peers and people call this node.
    pub(crate) node_name: String,
    /// Whether active probes may run at all.
    pub(crate) active: bool,
    pub(crate) web: Web,
    pub(crate) state: State,
    pub(crate) log: Log,
    pub(crate) budget: Budget,
    /// How often the node's parts are listed.
    pub(crate) inventory_interval: Duration,
    /// By probe name.
    pub(crate) timings: BTreeMap<&'static str, Timing>,
    pub(crate) settings: Settings,
}

/// Where the agent listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Web {
    pub(crate) listen: Vec<SocketAddr>,
    /// TLS and authentication, in the format of Prometheus's exporter-toolkit.
    pub(crate) config_file: Option<PathBuf>,
    /// The Unix socket of the command line.
    pub(crate) socket: PathBuf,
    /// Requests served at the same time.
    pub(crate) max_requests: usize,
}

/// What survives a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) directory: PathBuf,
    /// The size of the journal, in bytes, at which it begins anew.
    pub(crate) journal_bytes: u64,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    /// A filter of the tracing kind: `info`, `fabricpulse=debug`.
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    Logfmt,
    Json,
}

/// What active probes may take in an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Of each GPU's time, in milliseconds.
    pub(crate) gpu_milliseconds: u32,
    /// On each NIC's wire, in MiB.
    pub(crate) network_mib: u32,
    /// Runs that use the whole node.
    pub(crate) heavy_runs: u32,
}

/// When and for how long a probe runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) enabled: bool,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
}
