//! Whether every rank got what it has to get, element by element, from the GPU's own output.
//!
//! One thread tells all GPUs to copy a chunk to the host while another thread for each GPU compares
//! the chunk before.

use std::thread;

use probes::collectives::{Check, Corrupt, ELEMENT, Op, Shape};

use super::{
    CHUNK, Seat,
    pattern::{Differences, Pattern, Stretch},
};
use crate::worker::compute::Stop;

/// Elements of a chunk.
const ELEMENTS: usize = CHUNK / ELEMENT;
/// Chunks that are looked at where not all are.
const STRIPES: usize = 8;

/// Looks at the last exchange's output: at all of it, or at stripes.
pub(super) fn check(
    seats: &[Seat<'_>],
    pattern: &Pattern,
    op: Op,
    shape: Shape,
    whole: bool,
) -> Result<Check, Stop> {
    let outputs: Vec<Vec<Stretch>> = (0..seats.len()).map(|rank| pattern.output(op, rank, shape)).collect();
    let mut found = vec![Differences::default(); seats.len()];
    let parts = parts(shape.received, whole);
    for (turn, (at, length)) in parts.iter().copied().enumerate() {
        if turn == 0 {
            download(seats, turn, (at, length))?;
        }
        let chunks = seats.iter().map(|seat| seat.host[turn % 2].bytes(&seat.stream));
        let chunks = chunks.collect::<Result<Vec<&[u8]>, Stop>>()?;
        if let Some(next) = parts.get(turn + 1) {
            download(seats, turn + 1, *next)?;
        }
        thread::scope(|scope| {
            for ((chunk, output), found) in chunks.iter().zip(&outputs).zip(&mut found) {
                let mut compare = move || found.add(pattern.compare(output, at, &chunk[..length * ELEMENT]));
                if length * ELEMENT < CHUNK {
                    compare();
                } else {
                    scope.spawn(compare);
                }
            }
        });
    }
    let bad = seats.iter().zip(&found).filter_map(|(seat, found)| {
        found.first.map(|first| Corrupt {
            gpu: seat.device.pci.clone(),
            elements: found.wrong as u64,
            index: first.index as u64,
            found: first.found,
            expected: first.expected,
        })
    });
    Ok(Check {
        elements: found.iter().map(|found| found.checked as u64).sum(),
        of: (shape.received * seats.len()) as u64,
        corrupt: bad.collect(),
    })
}

fn download(seats: &[Seat<'_>], turn: usize, (at, length): (usize, usize)) -> Result<(), Stop> {
    for seat in seats {
        seat.stream.download(&seat.host[turn % 2], (&seat.to, at * ELEMENT), length * ELEMENT)?;
    }
    Ok(())
}

/// Which elements are looked at: each part's first, and how many. Stripes are the first, the last,
/// and some between them at equal distances.
fn parts(elements: usize, whole: bool) -> Vec<(usize, usize)> {
    if whole || elements <= STRIPES * ELEMENTS {
        let starts = (0..elements).step_by(ELEMENTS);
        return starts.map(|at| (at, ELEMENTS.min(elements - at))).collect();
    }
    let last = elements - ELEMENTS;
    (0..STRIPES).map(|stripe| (last * stripe / (STRIPES - 1), ELEMENTS)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_small_output_is_looked_at_and_of_a_large_one_its_ends() {
        for elements in [0, 1, 4, ELEMENTS - 1, ELEMENTS, ELEMENTS + 1, 9 * ELEMENTS] {
            let parts = parts(elements, true);
            let next = parts.iter().fold(0, |next, (at, length)| {
                assert_eq!(*at, next, "without a gap");
                assert!((1..=ELEMENTS).contains(length));
                at + length
            });
            assert_eq!(next, elements);
        }
        for elements in [8 * ELEMENTS + 1, 9 * ELEMENTS, 268_435_456, 100_000_007] {
            let parts = parts(elements, false);
            assert_eq!(parts.len(), STRIPES);
            assert_eq!(parts[0].0, 0);
            assert_eq!(parts[STRIPES - 1].0 + ELEMENTS, elements);
            assert!(parts.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
        assert_eq!(parts(8 * ELEMENTS, false), parts(8 * ELEMENTS, true));
    }
}
