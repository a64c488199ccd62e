//! The worker `p2p`: every GPU to every other, in rounds in which each GPU has one partner.

use std::time::Duration;

use probes::{
    compute::Repeats,
    p2p::{Pair, Task, Way},
};

use super::{
    Bench, Out, Stop,
    device::{Buffer, Device, Event, Stream},
    effort::Effort,
};

/// How long a round is repeated.
const TIME: Duration = Duration::from_millis(60);

/// What a GPU brings into each round.
struct Seat<'d> {
    device: &'d Device<'d>,
    from: Buffer<'d>,
    to: Buffer<'d>,
    stream: Stream<'d>,
    start: Event<'d>,
    end: Event<'d>,
}

impl<'d> Seat<'d> {
    fn new(device: &'d Device<'d>, bytes: usize) -> Result<Seat<'d>, Stop> {
        let seat = Seat {
            device,
            from: device.buffer(bytes)?,
            to: device.buffer(bytes)?,
            stream: device.stream()?,
            start: device.event()?,
            end: device.event()?,
        };
        seat.stream.fill(&seat.from, 0x5a)?;
        seat.stream.synchronize()?;
        Ok(seat)
    }
}

pub(super) fn measure(bench: &Bench<'_>, task: &Task, out: &mut Out<Pair>) -> Result<(), Stop> {
    let bytes = task.bytes;
    let seats = bench.devices.iter().map(|device| Seat::new(device, bytes));
    let seats = seats.collect::<Result<Vec<_>, Stop>>()?;
    for round in rounds(seats.len()) {
        let mut direct = Vec::new();
        for (a, b) in round {
            let (a, b) = (&seats[a], &seats[b]);
            if a.device.reaches(b.device)? && b.device.reaches(a.device)? {
                direct.push((a, b));
            } else {
                for (src, dst) in [(a, b), (b, a)] {
                    out.value(pair(src, dst, Way::One, bytes, None))?;
                }
            }
        }
        let swapped: Vec<_> = direct.iter().map(|(a, b)| (*b, *a)).collect();
        for (pairs, way) in [(&direct, Way::One), (&swapped, Way::One), (&direct, Way::Both)] {
            for ((src, dst), bandwidth) in pairs.iter().zip(run(bench, pairs, way, bytes)?) {
                out.value(pair(src, dst, way, bytes, bandwidth))?;
            }
        }
    }
    Ok(())
}

fn pair(src: &Seat<'_>, dst: &Seat<'_>, way: Way, bytes: usize, bandwidth: Option<Repeats>) -> Pair {
    Pair { src: src.device.pci.clone(), dst: dst.device.pci.clone(), way, bytes, bandwidth }
}

/// All pairs of a round at the same time, until each one's repeats agree.
fn run(
    bench: &Bench<'_>,
    pairs: &[(&Seat<'_>, &Seat<'_>)],
    way: Way,
    bytes: usize,
) -> Result<Vec<Option<Repeats>>, Stop> {
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    let mut all: Vec<Vec<f64>> = vec![Vec::new(); pairs.len()];
    let effort = Effort::new(TIME, bench.deadline);
    let warm_up = usize::try_from(effort.warm_up).unwrap_or_default();
    effort.repeat(|| {
        for (a, b) in pairs {
            a.stream.record(&a.start)?;
            match way {
                Way::One => a.stream.copy_peer(&b.to, &a.from, bytes)?,
                Way::Both => {
                    b.stream.wait(&a.start)?;
                    a.stream.copy_peer(&b.to, &a.from, bytes)?;
                    b.stream.copy_peer(&a.to, &b.from, bytes)?;
                    b.stream.record(&b.end)?;
                    a.stream.wait(&b.end)?;
                }
            }
            a.stream.record(&a.end)?;
        }
        let mut slowest: f64 = 0.0;
        for ((a, _), seconds) in pairs.iter().zip(&mut all) {
            let took = a.end.seconds_since(&a.start)?;
            seconds.push(took);
            slowest = slowest.max(took);
        }
        Ok(slowest)
    })?;
    let moved = match way {
        Way::One => bytes,
        Way::Both => 2 * bytes,
    };
    Ok(all.iter().map(|seconds| Repeats::rate(moved as f64, &seconds[warm_up..])).collect())
}

/// Every pair once, in rounds in which nobody is twice: one stands still and the others turn.
fn rounds(count: usize) -> Vec<Vec<(usize, usize)>> {
    let seats = count + count % 2;
    (1..seats.max(1))
        .map(|round| {
            let turn = |seat: usize| if seat == 0 { 0 } else { (seat + round - 1) % (seats - 1) + 1 };
            let pairs = (0..seats / 2).map(|seat| (turn(seat), turn(seats - 1 - seat)));
            pairs.filter(|(a, b)| *a < count && *b < count).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::rounds;

    #[test]
    fn every_pair_meets_once_and_nobody_is_twice_in_a_round() {
        for count in 0..=16 {
            let rounds = rounds(count);
            let mut met = BTreeSet::new();
            for round in &rounds {
                let mut busy = BTreeSet::new();
                for (a, b) in round {
                    assert!(busy.insert(*a) && busy.insert(*b), "{count}: {rounds:?}");
                    assert!(met.insert((*a.min(b), *a.max(b))), "{count}: {rounds:?}");
                }
            }
            assert_eq!(met.len(), count * count.saturating_sub(1) / 2);
        }
    }
}
