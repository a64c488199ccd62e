//! The real binary on recorded machines: one test binary, since linking is what takes the time.

mod agent;
mod cli;
mod config;
mod faults;
mod fixtures;
mod scrape;
mod series;
mod shutdown;
#[path = "../tree.rs"]
mod tree;
