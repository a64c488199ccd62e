//! The checked configuration: a value of [`Config`] can't be wrong.

use std::{collections::BTreeMap, net::SocketAddr, ops::Range, path::PathBuf, time::Duration};

use probes::Settings;

use crate::judge::book::Manner;

mod check;
mod load;
mod raw;

pub(crate) use load::{DEFAULT_TOML, Overrides, built_in, load};

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
    /// How series are learned and suspicions decided.
    pub(crate) baseline: Manner,
    /// Whether active probes need idle devices.
    pub(crate) occupancy: bool,
    pub(crate) peers: Peers,
    /// How often the node's parts are listed.
    pub(crate) inventory_interval: Duration,
    /// By probe name.
    pub(crate) timings: BTreeMap<&'static str, Timing>,
    pub(crate) settings: Settings,
}

impl Config {
    /// How often a rail is to be measured with a partner.
    pub(crate) fn rail_interval(&self) -> Duration {
        self.timings.get("ib_write_bw").map_or(Duration::MAX, |timing| timing.interval)
    }
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

/// Who the other agents are, and how they are talked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peers {
    /// `node-b` or `node-b=10.0.0.2`.
    pub(crate) members: Vec<String>,
    /// Files in the `file_sd` format of Prometheus.
    pub(crate) file_sd: Vec<PathBuf>,
    /// Where other agents ask for leases.
    pub(crate) listen: Vec<SocketAddr>,
    /// Where the other agents answer.
    pub(crate) port: u16,
    /// This node's certificate and key, and the authority of all agents; none keeps peers off.
    pub(crate) identity: Option<Identity>,
    /// perftest's own TCP ports.
    pub(crate) ports: Range<u16>,
    /// How long partners stay the same.
    pub(crate) slot: Duration,
    /// The longest that a lease may take.
    pub(crate) lease: Duration,
}

/// The files of mutual TLS between agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) authority: PathBuf,
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
