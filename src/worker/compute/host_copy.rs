//! The worker `host_copy`: pinned host memory to a GPU and back.

use std::time::Duration;

use probes::{
    compute::Repeats,
    host_copy::{Direction, Task, Told, Transfer},
};

use super::{Bench, Out, Stop, effort::Effort};
use crate::sysfs::pci;

/// How long copies of one direction are repeated.
const TIME: Duration = Duration::from_millis(100);

pub(super) fn measure(bench: &Bench<'_>, task: &Task, out: &mut Out<Told>) -> Result<(), Stop> {
    let bytes = task.bytes;
    for device in &bench.devices {
        let (up, down) = (device.buffer(bytes)?, device.buffer(bytes)?);
        let (source, sink) = (device.pinned(bytes)?, device.pinned(bytes)?);
        let (there, back) = (device.stream()?, device.stream()?);
        let (start, end, other) = (device.event()?, device.event()?, device.event()?);
        there.fill(&down, 0x5a)?;
        there.synchronize()?;
        for direction in Direction::ALL {
            let once = || {
                there.time([&start, &end], || {
                    match direction {
                        Direction::HostToDevice => there.upload(&up, &source, bytes)?,
                        Direction::DeviceToHost => there.download(&sink, (&down, 0), bytes)?,
                        Direction::Both => {
                            back.wait(&start)?;
                            there.upload(&up, &source, bytes)?;
                            back.download(&sink, (&down, 0), bytes)?;
                            back.record(&other)?;
                            there.wait(&other)?;
                        }
                    }
                    Ok(())
                })
            };
            let seconds = Effort::new(TIME, bench.deadline).repeat(once)?;
            let moved = if direction == Direction::Both { 2 * bytes } else { bytes };
            if let Some(bandwidth) = Repeats::rate(moved as f64, &seconds) {
                out.value(Told::Transfer(Transfer { gpu: device.pci.clone(), direction, bytes, bandwidth }))?;
            }
        }
        // The link is awake now, and stays so while a copy is under way.
        there.upload(&up, &source, bytes)?;
        there.upload(&up, &source, bytes)?;
        let folder = bench.sysfs.dir("bus/pci/devices").dir(&device.pci);
        if let Ok(Some(link)) = pci::link(&folder) {
            out.value(Told::Link { gpu: device.pci.clone(), link })?;
        }
        there.synchronize()?;
    }
    Ok(())
}
