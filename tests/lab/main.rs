//! The lab: the agent in a virtual machine whose PCIe tree changes while it runs. See README.md.

#![expect(clippy::print_stdout, reason = "the comparisons and latencies are part of the result")]

use std::sync::{Mutex, MutexGuard, PoisonError};

mod agent;
mod differential;
mod faults;
mod lspci;
mod machine;
mod pair;
mod parts;
mod rdma;
mod registers;
mod tally;

/// One machine at a time: two would share the host's processors, and the latencies are measured.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn every_field_equals_lspci() {
    let _alone = alone();
    differential::run();
}

#[test]
fn faults_are_seen_named_and_cleared() {
    let _alone = alone();
    faults::run();
}

#[test]
fn two_agents_measure_their_wire_and_survive_it() {
    let _alone = alone();
    pair::run();
}

#[test]
fn nics_are_known_by_their_rdma_devices() {
    let _alone = alone();
    rdma::run();
}
