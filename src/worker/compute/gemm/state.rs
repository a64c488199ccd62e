//! A GPU's clock, power and temperature around a load. What can't be read is absent.

use probes::{
    gemm::{State, When},
    settings::Roots,
};

use crate::{
    sysfs::Progress,
    worker::{gpu, nvml::Session},
};

/// Looks, as the passive worker `gpu` does.
pub(super) fn read(roots: &Roots, nvml: &Session, pci: &str, when: When) -> State {
    let told = gpu::look(&roots.sysfs, &roots.proc, nvml, pci, &Progress::default());
    let told = told.ok().flatten().unwrap_or_default();
    State {
        gpu: pci.to_string(),
        when,
        clock_hertz: told.clock.map(|hertz| hertz as f64),
        power_watts: told.power.map(|microwatts| microwatts as f64 / 1e6),
        temperature_celsius: told.temperature.map(|thousandths| thousandths as f64 / 1000.0),
    }
}
