//! The worker `collectives`: each collective over all GPUs of the node, by one process and thread.
//!
//! An exchange is timed as nccl-tests 2.19.6 does it (`BenchTime` in src/common.cu), so that figures
//! can be compared: out of place, a batch of exchanges back to back, by the host's clock from before
//! the first is enqueued until every GPU's stream is found idle. Events would leave out what a
//! batch takes to start and to be noticed, which is a tenth of a small exchange. nccl-tests makes
//! batches of 20; here they are shorter where 20 would be long, which adds some 0.2 %.

use std::{
    ffi::c_void,
    mem, thread,
    time::{Duration, Instant},
};

use probes::{
    collectives::{Exchange, Op, Shape, Task},
    compute::{Fault, Repeats},
    lines::NODE,
};

use super::{
    Bench, Out, Stop,
    device::{Buffer, Device, Pinned, Stream},
    effort::Effort,
    nccl::{self, Communicators},
};
use pattern::{Pattern, TILE};

mod check;
mod pattern;

/// How long batches of one exchange are repeated.
const TIME: Duration = Duration::from_millis(50);
/// How long a batch should take: a start and an end of some 15 µs are 0.3 % of it.
const BATCH: Duration = Duration::from_millis(5);
/// Exchanges of a batch, at most: what nccl-tests makes.
const MOST_OF_A_BATCH: u32 = 20;
/// Bytes that are compared at once. Two buffers of it belong to each GPU.
const CHUNK: usize = 8 << 20;

/// What a GPU brings into each exchange.
struct Seat<'d> {
    device: &'d Device<'d>,
    from: Buffer<'d>,
    to: Buffer<'d>,
    stream: Stream<'d>,
    /// Where its output is looked at, in turns.
    host: [Pinned<'d>; 2],
}

/// All GPUs, ready to exchange.
struct Table<'b> {
    bench: &'b Bench<'b>,
    seats: Vec<Seat<'b>>,
    communicators: Communicators<'b>,
    pattern: Pattern,
}

pub(super) fn measure(bench: &Bench<'_>, task: &Task, out: &mut Out<Exchange>) -> Result<(), Stop> {
    let table = Table::lay(bench, task, |library| out.library(library))?;
    let done = table.run(task, out);
    // A GPU that hangs would not let go of its memory. All of it goes with the process.
    mem::forget(table);
    done
}

impl<'b> Table<'b> {
    fn lay(
        bench: &'b Bench<'b>,
        task: &Task,
        used: impl FnOnce(probes::compute::Library) -> Result<(), Stop>,
    ) -> Result<Table<'b>, Stop> {
        let devices = &bench.devices;
        let communicators = Communicators::meet(bench.vendor, bench.search, bench.runtime, devices, used)?;
        let pattern = Pattern::new(devices.len());
        let least = Op::ALL.map(|op| op.least(devices.len())).into_iter().max().unwrap_or_default();
        let bytes = task.sizes.iter().copied().max().unwrap_or_default().max(least);
        let seats = devices.iter().enumerate().map(|(rank, device)| Seat::new(device, rank, bytes, &pattern));
        let seats = seats.collect::<Result<_, Stop>>()?;
        Ok(Table { bench, seats, communicators, pattern })
    }

    fn run(&self, task: &Task, out: &mut Out<Exchange>) -> Result<(), Stop> {
        for op in Op::ALL {
            for size in &task.sizes {
                if let Some(shape) = self.shape(op, *size, task) {
                    out.value(self.measure(op, *size, shape, *size <= task.whole)?)?;
                }
            }
        }
        Ok(())
    }

    /// What a size comes to. The latency of a collective that cuts its data into parts is that of the
    /// least that has any.
    fn shape(&self, op: Op, size: usize, task: &Task) -> Option<Shape> {
        let ranks = self.seats.len();
        let latency = task.latency == Some(size);
        op.shape(if latency { size.max(op.least(ranks)) } else { size }, ranks)
    }

    fn measure(&self, op: Op, size: usize, shape: Shape, whole: bool) -> Result<Exchange, Stop> {
        for seat in &self.seats {
            // No output that was there before can pass: it is NaN.
            seat.stream.fill(&seat.to, 0xff)?;
        }
        self.wait(op, shape)?;
        self.batch(op, shape, 1)?;
        let check = check::check(&self.seats, &self.pattern, op, shape, whole)?;

        let one = self.batch(op, shape, 1)?;
        let iterations = iterations(one);
        let effort = Effort { warm_up: 1, ..Effort::new(TIME, self.bench.deadline) };
        let seconds = effort.repeat(|| Ok(self.batch(op, shape, iterations)? / f64::from(iterations)))?;
        let moved = shape.bytes() as f64 * op.bus_factor(self.seats.len());
        let none = || self.fault(op, shape, "the clock stood still");
        Ok(Exchange {
            op,
            size,
            bytes: shape.bytes(),
            count: shape.count,
            iterations,
            seconds: Repeats::of(&seconds).ok_or_else(none)?,
            bus_bandwidth: Repeats::rate(moved, &seconds).ok_or_else(none)?,
            check,
        })
    }

    /// How long some exchanges, back to back, take together, in seconds.
    fn batch(&self, op: Op, shape: Shape, times: u32) -> Result<f64, Stop> {
        let started = Instant::now();
        let seats: Vec<nccl::Seat<'_>> = self.seats.iter().map(Seat::exchanging).collect();
        self.communicators.exchange(op, shape, &seats, times)?;
        self.wait(op, shape)?;
        Ok(started.elapsed().as_secs_f64())
    }

    /// Until all streams are idle. Asks without a pause, as nccl-tests does: to sleep and be woken
    /// takes as long as a small exchange. The library's own threads may have the CPU in between.
    fn wait(&self, op: Op, shape: Shape) -> Result<(), Stop> {
        let mut busy: Vec<&Seat<'_>> = self.seats.iter().collect();
        loop {
            let mut still = Vec::new();
            for seat in busy {
                if !seat.stream.is_idle()? {
                    still.push(seat);
                }
            }
            if still.is_empty() {
                return Ok(());
            }
            self.communicators.check()?;
            if Instant::now() >= self.bench.deadline {
                let late: Vec<&str> = still.iter().map(|seat| seat.device.pci.as_str()).collect();
                let words = format!("it had not ended on {} when the time was spent", late.join(", "));
                return Err(self.fault(op, shape, &words));
            }
            busy = still;
            thread::yield_now();
        }
    }

    fn fault(&self, op: Op, shape: Shape, error: &str) -> Stop {
        Stop::Fault(Fault {
            part: NODE.to_string(),
            call: format!("{} of {} bytes between {} GPUs", op.name(), shape.bytes(), self.seats.len()),
            error: error.to_string(),
            hardware: false,
        })
    }
}

impl<'d> Seat<'d> {
    /// With the input of a rank in its memory.
    fn new(device: &'d Device<'d>, rank: usize, bytes: usize, pattern: &Pattern) -> Result<Seat<'d>, Stop> {
        let mut seat = Seat {
            device,
            from: device.buffer(bytes)?,
            to: device.buffer(bytes)?,
            stream: device.stream()?,
            host: [device.pinned(CHUNK)?, device.pinned(CHUNK)?],
        };
        for (to, byte) in seat.host[0].bytes_mut(&seat.stream)?.iter_mut().zip(pattern.input(rank)) {
            *to = byte;
        }
        let mut written = bytes.min(TILE * probes::collectives::ELEMENT);
        seat.stream.upload((&seat.from, 0), &seat.host[0], written)?;
        // What is there is copied behind itself, so it doubles each time and stays in step.
        while written < bytes {
            let more = written.min(bytes - written);
            seat.stream.copy((&seat.from, written), (&seat.from, 0), more)?;
            written += more;
        }
        Ok(seat)
    }

    fn exchanging(&self) -> nccl::Seat<'_> {
        let (from, to): (*const c_void, *mut c_void) = (self.from.pointer(), self.to.pointer());
        nccl::Seat { from, to, stream: &self.stream }
    }
}

/// How many exchanges make a batch, where one alone took so many seconds.
fn iterations(one: f64) -> u32 {
    (1..MOST_OF_A_BATCH)
        .find(|count| f64::from(*count) * one >= BATCH.as_secs_f64())
        .unwrap_or(MOST_OF_A_BATCH)
}

#[cfg(test)]
mod tests {
    use super::iterations;

    #[test]
    fn a_batch_is_as_long_as_its_ends_are_short() {
        for (one, expected) in [(0.0, 20), (10e-6, 20), (0.75e-3, 7), (3e-3, 2), (5e-3, 1), (1.0, 1)] {
            assert_eq!(iterations(one), expected, "{one}");
        }
    }
}
