//! The command line.

use std::{path::PathBuf, time::Duration};

use crate::{
    check::CheckFormat,
    config::{LogFormat, Overrides},
    read,
    worker::{limits, pcid},
};

mod baseline;
pub(crate) mod client;
pub(crate) mod expected;
pub(crate) mod generate;
mod list;
mod offline;

/// Proves, all day and beside running jobs, that this node's GPUs, PCIe links and NICs perform.
///
/// Without a command it serves: /metrics for Prometheus, /probe on demand, and a page for people.
#[derive(Debug, clap::Parser)]
#[command(version, args_conflicts_with_subcommands = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) flags: Flags,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Flags in the manner of Prometheus's exporters.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// The configuration file; conf.d/*.toml beside it is read too.
    #[arg(long = "config.file", value_name = "FILE", global = true)]
    file: Option<PathBuf>,
    /// Check the configuration and exit: 0 if it is good, 2 with every mistake if not.
    #[arg(long = "config.check")]
    pub(crate) check: bool,
    /// Where to serve; may be given several times.
    #[arg(long = "web.listen-address", value_name = "ADDRESS")]
    listen: Vec<String>,
    /// TLS and authentication, in the format of Prometheus's exporter-toolkit.
    #[arg(long = "web.config.file", value_name = "FILE")]
    web_config: Option<PathBuf>,
    /// error, warn, info, debug, trace, or a filter.
    #[arg(long = "log.level", value_name = "LEVEL")]
    log_level: Option<String>,
    /// How log lines are written.
    #[arg(long = "log.format", value_name = "FORMAT", value_enum)]
    log_format: Option<LogFormat>,
    /// Let probes run that use a GPU, a link or the whole node.
    #[arg(long)]
    active: bool,
}

/// What to do instead of serving.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Client(Client),
    /// Say what a saved output means, as one JSON object.
    Read(read::Args),
    /// Print what a healthy GPU does, and who says so.
    Expected {
        /// A model, as `mi300x` or `H200`; without it all that are known.
        model: Option<String>,
    },
    /// Print what is made from the program itself.
    Generate {
        /// What to print.
        #[arg(value_enum)]
        what: generate::What,
    },
    /// One of the programs that the agent starts.
    #[command(hide = true)]
    Worker {
        /// Its name.
        name: String,
    },
    /// Becomes a program that the agent starts, and goes when the agent goes.
    #[command(hide = true)]
    Limits(limits::Args),
    /// The small privileged reader of PCI config space.
    #[command(hide = true)]
    Pcid(pcid::Args),
}

/// What asks the running agent, or does without one.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Client {
    /// Run a test now and show what it found.
    Probe {
        /// The probe: pcie, nic, gpu, node, ib_write_bw, gdr ..
        test: String,
        /// A GPU by PCI address, an RDMA device, a check; without it all of them.
        #[arg(long)]
        target: Option<String>,
        /// The node to measure with.
        #[arg(long)]
        peer: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List every probe and target, supported or why not. Needs no agent.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Say what the agent knows, for another program. Starts nothing.
    Check {
        /// Whom the answer is for.
        #[arg(long, value_enum, default_value = "nagios")]
        format: CheckFormat,
        /// A verdict older than this counts as unknown; without it, three intervals.
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        max_age: Option<Duration>,
    },
    /// Stop active probes from starting.
    Hold {
        /// For how long: 30m, 12h.
        #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
        length: Duration,
        /// Why, for others to see.
        #[arg(long)]
        reason: String,
    },
    /// End a hold.
    Release,
    /// Accept that parts are gone: the present ones are complete.
    Accept,
    /// What is usual for each measured series, and the baseline that it is held against.
    #[command(subcommand)]
    Baseline(Baseline),
}

/// What to do with baselines.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Baseline {
    /// Show them.
    Show {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Freeze what is usual now as the baseline.
    Accept(Which),
    /// Forget what was learned, and begin anew: after a repair, or where a part is meant to be slower.
    Reset(Which),
}

/// Which baselines.
#[derive(Debug, clap::Args)]
pub(crate) struct Which {
    /// Those of this probe; without it, of all.
    #[arg(long, value_name = "PROBE")]
    pub(crate) test: Option<String>,
    /// Those of this GPU, RDMA device or `node`; without it, of all.
    #[arg(long)]
    pub(crate) target: Option<String>,
}

impl Flags {
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            file: self.file.clone(),
            listen: self.listen.clone(),
            web_config: self.web_config.clone(),
            log_level: self.log_level.clone(),
            log_format: self.log_format,
            active: self.active,
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime_serde::re::humantime::parse_duration(text)
        .map_err(|error| format!("{error}: write 90s, 10m or 6h"))
}
