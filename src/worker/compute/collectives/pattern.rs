//! What each rank puts in, and so what each has to get.
//!
//! All inputs are one tile of numbers, repeated, which each rank begins at another place. So every
//! output is made of stretches that repeat the tile, or the sum of the ranks' tiles. The numbers
//! are whole and so small that their sums are exact in any order, so the bits can be compared.
//! The tile's length is a prime: data that a library puts a chunk too far, or that is left of
//! another step, never happens to be right.

use probes::collectives::{ELEMENT, Op, Shape};

/// Elements of the tile; 256 KiB, which stays in a core's cache.
pub(super) const TILE: usize = 65_521;
/// How much further in the tile each rank begins.
const SHIFT: usize = 8_191;
/// Whole numbers up to this power of two are exact in a float.
const EXACT_BITS: u32 = 24;

/// The tiles, as bytes of floats.
#[derive(Debug)]
pub(super) struct Pattern {
    ranks: usize,
    plain: Vec<u8>,
    sums: Vec<u8>,
}

/// Part of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Elements.
    length: usize,
    of: Tile,
    /// Where in the tile it begins.
    phase: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tile {
    Plain,
    Sums,
}

/// What a comparison found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// Elements that were compared.
    pub(super) checked: usize,
    /// Those that are not as expected.
    pub(super) wrong: usize,
    /// The first of those.
    pub(super) first: Option<Difference>,
}

/// An element that is not as expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// In the output, in elements.
    pub(super) index: usize,
    pub(super) found: u32,
    pub(super) expected: u32,
}

impl Differences {
    /// Adds those of a later part of the same output.
    pub(super) fn add(&mut self, later: Differences) {
        self.checked += later.checked;
        self.wrong += later.wrong;
        self.first = self.first.or(later.first);
    }
}

impl Pattern {
    pub(super) fn new(ranks: usize) -> Pattern {
        // The sum of as many has to be exact.
        let bits = EXACT_BITS - 1 - ranks.next_power_of_two().trailing_zeros().min(EXACT_BITS - 2);
        let values: Vec<i64> = (0..TILE).map(|at| value(at, bits)).collect();
        let sum = |at: usize| (0..ranks).map(|rank| values[(at + begin(rank)) % TILE]).sum();
        Pattern { ranks, plain: bytes(values.iter().copied()), sums: bytes((0..TILE).map(sum)) }
    }

    /// The first tile of a rank's input, in bytes; it is repeated after that.
    pub(super) fn input(&self, rank: usize) -> impl Iterator<Item = u8> {
        let (before, after) = self.plain.split_at(begin(rank) * ELEMENT);
        after.iter().chain(before).copied()
    }

    /// What a rank has to get.
    pub(super) fn output(&self, op: Op, rank: usize, shape: Shape) -> Vec<Stretch> {
        let stretch = |of: Tile, at: usize| Stretch { length: shape.count, of, phase: at % TILE };
        match op {
            Op::AllReduce => vec![stretch(Tile::Sums, 0)],
            Op::Broadcast => vec![stretch(Tile::Plain, begin(0))],
            Op::SendRecv => vec![stretch(Tile::Plain, begin((rank + self.ranks - 1) % self.ranks))],
            Op::ReduceScatter => vec![stretch(Tile::Sums, rank * shape.count)],
            Op::AllGather => (0..self.ranks).map(|from| stretch(Tile::Plain, begin(from))).collect(),
            Op::AllToAll => {
                let from = |from| stretch(Tile::Plain, rank * shape.count + begin(from));
                (0..self.ranks).map(from).collect()
            }
        }
    }

    /// Compares the part of an output that begins at element `at`.
    pub(super) fn compare(&self, output: &[Stretch], at: usize, found: &[u8]) -> Differences {
        let mut all = Differences { checked: found.len() / ELEMENT, ..Differences::default() };
        let (mut at, mut left, mut begin) = (at, found, 0);
        for stretch in output {
            let end = begin + stretch.length;
            while (begin..end).contains(&at) && !left.is_empty() {
                let tile = match stretch.of {
                    Tile::Plain => &self.plain,
                    Tile::Sums => &self.sums,
                };
                let place = (stretch.phase + at - begin) % TILE;
                let length = (TILE - place).min(end - at).min(left.len() / ELEMENT);
                let (now, later) = left.split_at(length * ELEMENT);
                let expected = &tile[place * ELEMENT..][..length * ELEMENT];
                if now != expected {
                    all.add(differences(at, now, expected));
                }
                (at, left) = (at + length, later);
            }
            begin = end;
        }
        assert!(left.is_empty(), "the part is within the output");
        all
    }
}

/// Where in the tile a rank begins.
fn begin(rank: usize) -> usize {
    rank * SHIFT % TILE
}

/// A whole number of so many bits, with a sign, that looks like any other.
fn value(at: usize, bits: u32) -> i64 {
    let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let range = 1_i64 << bits;
    i64::try_from(mixed >> (63 - bits)).unwrap_or_default() - range
}

#[expect(clippy::cast_precision_loss, reason = "they are small enough, which is what they are for")]
fn bytes(values: impl Iterator<Item = i64>) -> Vec<u8> {
    values.flat_map(|value| (value as f32).to_ne_bytes()).collect()
}

/// One by one, where a comparison of all at once has failed.
fn differences(at: usize, found: &[u8], expected: &[u8]) -> Differences {
    let word = |bytes: &[u8]| bytes.try_into().map(u32::from_ne_bytes).unwrap_or_default();
    let pairs = found.chunks_exact(ELEMENT).zip(expected.chunks_exact(ELEMENT)).enumerate();
    let mut all = Differences::default();
    for (index, (found, expected)) in pairs.filter(|(_, (found, expected))| found != expected) {
        all.wrong += 1;
        let difference = Difference { index: at + index, found: word(found), expected: word(expected) };
        all.first = all.first.or(Some(difference));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the collectives do, by the words of `nccl.h`.
    fn simulate(op: Op, inputs: &[Vec<f32>], rank: usize, count: usize) -> Vec<f32> {
        let ranks = inputs.len();
        let sum = |at: usize| inputs.iter().map(|input| input[at]).sum::<f32>();
        match op {
            Op::AllReduce => (0..count).map(sum).collect(),
            Op::AllToAll => {
                let parts = inputs.iter().map(|input| &input[rank * count..][..count]);
                parts.flatten().copied().collect()
            }
            Op::AllGather => inputs.iter().flat_map(|input| &input[..count]).copied().collect(),
            Op::ReduceScatter => (rank * count..(rank + 1) * count).map(sum).collect(),
            Op::Broadcast => inputs[0][..count].to_vec(),
            Op::SendRecv => inputs[(rank + ranks - 1) % ranks][..count].to_vec(),
        }
    }

    fn floats(bytes: impl Iterator<Item = u8>) -> Vec<f32> {
        let bytes: Vec<u8> = bytes.collect();
        bytes.chunks_exact(4).map(|word| f32::from_ne_bytes(word.try_into().unwrap())).collect()
    }

    fn raw(floats: &[f32]) -> Vec<u8> {
        floats.iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    #[test]
    fn every_rank_of_every_collective_gets_what_is_expected_and_nothing_else_passes() {
        for ranks in [1, 2, 3, 8] {
            let pattern = Pattern::new(ranks);
            for op in Op::ALL {
                for size in [op.least(ranks), 1 << 19] {
                    let shape = op.shape(size, ranks).unwrap();
                    let input = |rank| floats(pattern.input(rank)).into_iter().cycle().take(shape.sent);
                    let inputs: Vec<Vec<f32>> = (0..ranks).map(|rank| input(rank).collect()).collect();
                    for rank in 0..ranks {
                        let output = pattern.output(op, rank, shape);
                        let got = simulate(op, &inputs, rank, shape.count);
                        assert_eq!(got.len(), shape.received);
                        let right = Differences { checked: shape.received, ..Differences::default() };
                        let what = format!("{op:?} of {size} bytes, rank {rank} of {ranks}");
                        assert_eq!(pattern.compare(&output, 0, &raw(&got)), right, "{what}");

                        let mut bad = raw(&got);
                        let at = shape.received / 2;
                        bad[at * 4] ^= 1;
                        let all = pattern.compare(&output, 0, &bad);
                        let first = all.first.unwrap();
                        assert_eq!((all.wrong, first.index), (1, at), "{what}");
                        assert_eq!(first.expected, got[at].to_bits(), "{what}");
                        assert_eq!((first.found ^ first.expected).count_ones(), 1, "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_part_is_compared_at_its_own_place_across_the_seams_of_the_tile_and_of_stretches() {
        let ranks = 3;
        let pattern = Pattern::new(ranks);
        let shape = Op::AllToAll.shape(1 << 20, ranks).unwrap();
        let inputs: Vec<Vec<f32>> = (0..ranks)
            .map(|rank| floats(pattern.input(rank)).into_iter().cycle().take(shape.sent).collect())
            .collect();
        let output = pattern.output(Op::AllToAll, 1, shape);
        let got = raw(&simulate(Op::AllToAll, &inputs, 1, shape.count));
        for (at, length) in
            [(0, 1), (shape.count - 1, 2), (TILE - 1, 2), (1000, 200_000), (shape.received, 0)]
        {
            let part = &got[at * 4..][..length * 4];
            assert_eq!(pattern.compare(&output, at, part).wrong, 0, "{length} elements at {at}");
            if length > 0 {
                let wrong = pattern.compare(&output, at + 1 - 2 * usize::from(at > 0), part).wrong;
                assert!(wrong > 0, "{length} elements at {at}, one off");
            }
        }
    }

    #[test]
    fn data_that_was_never_written_is_wrong_everywhere() {
        let pattern = Pattern::new(2);
        let shape = Op::AllReduce.shape(1 << 20, 2).unwrap();
        let stale = vec![0xff; shape.received * 4];
        let all = pattern.compare(&pattern.output(Op::AllReduce, 0, shape), 0, &stale);
        assert_eq!((all.checked, all.wrong), (shape.received, shape.received));
    }

    #[test]
    fn sums_are_exact_whatever_their_order() {
        for ranks in [1, 2, 3, 8, 16, 32, 72] {
            let pattern = Pattern::new(ranks);
            let largest =
                floats(pattern.plain.iter().copied()).into_iter().fold(0.0_f32, |a, b| a.max(b.abs()));
            assert!(f64::from(largest) * ranks as f64 <= f64::from(1 << 24), "{ranks}: {largest}");
            assert!(largest >= 1000.0, "{ranks}: {largest} leaves most bits unused");
        }
    }
}
