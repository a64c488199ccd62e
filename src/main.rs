//! fabricpulse: a Prometheus exporter and continuous health prober for GPU nodes.

use std::process::ExitCode;

use clap::Parser as _;

mod agent;
mod baseline;
mod check;
mod cli;
mod client;
mod config;
mod confirm;
mod core;
mod expected;
mod files;
mod gate;
mod history;
mod hold;
mod http;
mod inventory;
mod journal;
mod judge;
mod lane;
mod logs;
mod metrics;
mod peer;
mod peers;
mod read;
mod run;
mod runner;
#[cfg(test)]
#[path = "../tests/bench/scale.rs"]
mod scale;
mod serve;
mod siblings;
mod sysfs;
mod tls;
#[cfg(test)]
#[path = "../tests/tree.rs"]
mod tree;
mod web_config;
mod words;
mod worker;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match cli.command {
        // What needs neither configuration nor a runtime comes first: workers start every minute.
        Some(cli::Command::Worker { name }) => worker::main(&name),
        Some(cli::Command::Limits(args)) => worker::limits::main(&args),
        Some(cli::Command::Pcid(args)) => worker::pcid::main(&args),
        Some(cli::Command::Read(args)) => read::main(&args),
        Some(cli::Command::Generate { what }) => cli::generate::main(what),
        Some(cli::Command::Expected { model }) => cli::expected::main(model.as_deref()),
        Some(cli::Command::Client(command)) => cli::client::main(&cli.flags.overrides(), command),
        None => serve::main(cli.flags),
    }
}
