//! The worker `hbm`: copies within a GPU's memory.

use std::time::Duration;

use probes::{
    compute::Repeats,
    hbm::{Copy, Task},
};

use super::{Bench, Out, Stop, effort::Effort};

/// How long copies of one GPU are repeated.
const TIME: Duration = Duration::from_millis(100);

pub(super) fn measure(bench: &Bench<'_>, task: &Task, out: &mut Out<Copy>) -> Result<(), Stop> {
    for device in &bench.devices {
        let (from, to) = (device.buffer(task.bytes)?, device.buffer(task.bytes)?);
        let stream = device.stream()?;
        let (start, end) = (device.event()?, device.event()?);
        // Memory that was never written may not be there yet.
        stream.fill(&from, 0x5a)?;
        let seconds = Effort::new(TIME, bench.deadline)
            .repeat(|| stream.time([&start, &end], || stream.copy((&to, 0), (&from, 0), task.bytes)))?;
        // Each byte is read once and written once.
        if let Some(bandwidth) = Repeats::rate(2.0 * task.bytes as f64, &seconds) {
            out.value(Copy { gpu: device.pci.clone(), bytes: task.bytes, bandwidth })?;
        }
    }
    Ok(())
}
