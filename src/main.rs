//! fabricpulse: a Prometheus exporter and continuous health prober for GPU nodes.

mod agent;
mod config;
mod core;
mod files;
mod gate;
mod history;
mod hold;
mod inventory;
mod journal;
mod judge;
mod lane;
mod metrics;
mod read;
mod run;
mod runner;
mod sysfs;
mod worker;

fn main() -> std::process::ExitCode {
    worker::main("x")
}
