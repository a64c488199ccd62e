//! The real binary on recorded machines: one test binary, since linking is what takes the time.

mod agent;
mod catalogue;
mod cli;
mod compute;
mod config;
mod faults;
mod fixtures;
mod nvml;
mod page;
mod peers;
mod scrape;
mod series;
mod shutdown;
mod systemd;
#[path = "../tree.rs"]
mod tree;
mod vendor;
mod web;
