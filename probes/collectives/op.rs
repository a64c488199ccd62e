//! The collectives, and what nccl-tests takes a size of each to mean.
//!
//! From `src/*.cu` of nccl-tests 2.19.6: `…GetCollByteCount` and `…GetBw`.

use serde::{Deserialize, Serialize};

/// Bytes of an element: all of them exchange `ncclFloat`.
pub const ELEMENT: usize = 4;

/// Elements that nccl-tests rounds a rank's part down to, which is 16 bytes.
const PART: usize = 4;

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Every rank gets the sum of all inputs.
    AllReduce,
    /// Every rank sends each one its own part.
    AllToAll,
    /// Every rank gets all inputs, one after the other.
    AllGather,
    /// Every rank gets its part of the sum of all inputs.
    ReduceScatter,
    /// Every rank gets the input of the first.
    Broadcast,
    /// Every rank sends to the next one and receives from the one before.
    #[serde(rename = "sendrecv")]
    SendRecv,
}

/// How many elements an exchange has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What the call is given as count.
    pub count: usize,
    /// What each rank sends.
    pub sent: usize,
    /// What each rank receives.
    pub received: usize,
}

impl Shape {
    /// The larger of what a rank sends and what it receives, in bytes: the `size` that nccl-tests
    /// prints, and what its bandwidth counts.
    pub fn bytes(self) -> usize {
        self.sent.max(self.received) * ELEMENT
    }
}

impl Op {
    /// All of them, in the order in which they run.
    pub const ALL: [Op; 6] =
        [Op::AllReduce, Op::AllToAll, Op::AllGather, Op::ReduceScatter, Op::Broadcast, Op::SendRecv];

    /// The label's value.
    pub fn name(self) -> &'static str {
        match self {
            Op::AllReduce => "all_reduce",
            Op::AllToAll => "all_to_all",
            Op::AllGather => "all_gather",
            Op::ReduceScatter => "reduce_scatter",
            Op::Broadcast => "broadcast",
            Op::SendRecv => "sendrecv",
        }
    }

    /// What `size` bytes come to between `ranks` GPUs; none where nccl-tests would exchange
    /// nothing, as with 8 bytes that are to be cut into parts.
    pub fn shape(self, size: usize, ranks: usize) -> Option<Shape> {
        let count = size / ELEMENT;
        let part = count.checked_div(ranks)? / PART * PART;
        let shape = match self {
            Op::AllReduce | Op::Broadcast | Op::SendRecv => Shape { count, sent: count, received: count },
            Op::AllGather => Shape { count: part, sent: part, received: part * ranks },
            Op::ReduceScatter => Shape { count: part, sent: part * ranks, received: part },
            Op::AllToAll => Shape { count: part, sent: part * ranks, received: part * ranks },
        };
        (shape.count > 0).then_some(shape)
    }

    /// The least size in bytes that comes to anything between `ranks` GPUs.
    pub fn least(self, ranks: usize) -> usize {
        match self {
            Op::AllReduce | Op::Broadcast | Op::SendRecv => ELEMENT,
            Op::AllGather | Op::ReduceScatter | Op::AllToAll => PART * ELEMENT * ranks,
        }
    }

    /// What [`Shape::bytes`] over the time is multiplied with to give the bus bandwidth. Of one
    /// GPU it is 0 where nothing leaves the GPU.
    #[expect(clippy::cast_precision_loss, reason = "a number of GPUs")]
    pub fn bus_factor(self, ranks: usize) -> f64 {
        let others = ranks.saturating_sub(1) as f64 / ranks.max(1) as f64;
        match self {
            Op::AllReduce => 2.0 * others,
            Op::AllToAll | Op::AllGather | Op::ReduceScatter => others,
            Op::Broadcast | Op::SendRecv => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_to_the_counts_of_nccl_tests() {
        let mib = 1 << 20;
        let table = [
            (Op::AllReduce, 256 * mib, 2, Some((67_108_864, 67_108_864, 67_108_864))),
            (Op::Broadcast, 8, 8, Some((2, 2, 2))),
            (Op::SendRecv, 8, 8, Some((2, 2, 2))),
            (Op::AllGather, 256 * mib, 2, Some((33_554_432, 33_554_432, 67_108_864))),
            (Op::ReduceScatter, 256 * mib, 2, Some((33_554_432, 67_108_864, 33_554_432))),
            (Op::AllToAll, 256 * mib, 2, Some((33_554_432, 67_108_864, 67_108_864))),
            // 262,144 elements are no multiple of 3 parts of 16 bytes.
            (Op::AllGather, mib, 3, Some((87_380, 87_380, 262_140))),
            (Op::AllToAll, mib, 6, Some((43_688, 262_128, 262_128))),
            (Op::AllGather, 8, 2, None),
            (Op::AllToAll, 127, 8, None),
            (Op::AllToAll, 128, 8, Some((4, 32, 32))),
            (Op::AllReduce, 3, 2, None),
            (Op::AllReduce, 8, 0, None),
        ];
        for (op, size, ranks, expected) in table {
            let got = op.shape(size, ranks).map(|shape| (shape.count, shape.sent, shape.received));
            assert_eq!(got, expected, "{op:?} of {size} bytes between {ranks}");
        }
    }

    #[test]
    fn the_least_size_is_the_first_that_comes_to_anything() {
        for op in Op::ALL {
            for ranks in 1..=16 {
                let least = op.least(ranks);
                assert_eq!(op.shape(least - 1, ranks), None, "{op:?} between {ranks}");
                assert_eq!(op.shape(least, ranks).map(Shape::bytes), Some(least), "{op:?} between {ranks}");
            }
        }
    }

    #[test]
    fn bus_bandwidth_is_that_of_nccl_tests() {
        for (op, expected) in [
            (Op::AllReduce, [0.0, 1.0, 1.75]),
            (Op::AllToAll, [0.0, 0.5, 0.875]),
            (Op::AllGather, [0.0, 0.5, 0.875]),
            (Op::ReduceScatter, [0.0, 0.5, 0.875]),
            (Op::Broadcast, [1.0; 3]),
            (Op::SendRecv, [1.0; 3]),
        ] {
            assert_eq!([1, 2, 8].map(|ranks| op.bus_factor(ranks)), expected, "{op:?}");
        }
    }

    #[test]
    fn names_are_the_same_in_labels_and_in_json() {
        for op in Op::ALL {
            assert_eq!(serde_json::to_value(op).unwrap(), op.name());
        }
    }
}
