//! A GPU's clock, power and temperature around a load. What can't be read is absent.

use probes::gemm::{State, When};

use super::super::{Bench, device::Device};
use crate::{
    sysfs::Progress,
    worker::{gpu, nvml::Session},
};

/// Looks, as the passive worker `gpu` does.
pub(super) fn read(bench: &Bench<'_>, nvml: &Session, device: &Device<'_>, when: When) -> State {
    let roots = bench.roots;
    let told = gpu::look(&roots.sysfs, &roots.proc, nvml, &device.pci, &Progress::default());
    let told = told.ok().flatten().unwrap_or_default();
    State {
        gpu: device.pci.clone(),
        when,
        clock_hertz: told.clock.map(|hertz| hertz as f64),
        power_watts: told.power.map(|microwatts| microwatts as f64 / 1e6),
        temperature_celsius: told.temperature.map(|thousandths| thousandths as f64 / 1000.0),
    }
}
