//! The worker `host_copy`: pinned host memory to a GPU and back.

use std::time::Duration;

use probes::{
    compute::Repeats,
    host_copy::{Direction, Task, Told, Transfer},
    inventory::{AMD, Link},
};

use super::{Bench, Out, Stop, effort::Effort};
use crate::sysfs::{Dir, pci};

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
                        Direction::HostToDevice => there.upload((&up, 0), &source, bytes)?,
                        Direction::DeviceToHost => there.download(&sink, (&down, 0), bytes)?,
                        Direction::Both => {
                            back.wait(&start)?;
                            there.upload((&up, 0), &source, bytes)?;
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
        there.upload((&up, 0), &source, bytes)?;
        there.upload((&up, 0), &source, bytes)?;
        for (lower, link) in links(&bench.sysfs, &device.pci) {
            out.value(Told::Link { lower, link })?;
        }
        there.synchronize()?;
    }
    Ok(())
}

/// The links that follow a GPU's power state, as far as they can be read: its own, and those of the
/// bridges inside an AMD GPU.
fn links(sysfs: &Dir, pci: &str) -> Vec<(String, Link)> {
    let devices = sysfs.dir("bus/pci/devices");
    let own = pci::identity(&devices.dir(pci)).ok().flatten();
    let above = own.map(|own| own.path).unwrap_or_default();
    let inside = above
        .into_iter()
        .take_while(|bridge| devices.dir(bridge).number("vendor").is_ok_and(|vendor| vendor == Some(AMD)));
    std::iter::once(pci.to_string())
        .chain(inside)
        .filter_map(|lower| Some((lower.clone(), pci::link(&devices.dir(&lower)).ok()??)))
        .collect()
}
