//! What amdgpu's `gpu_metrics` says of throttling.
//!
//! The file is a C structure whose first four bytes give its size and version. Only the layouts
//! below are known to tell; others, and fields that the firmware leaves at all ones, are absent.
//! 1.3 has a word of bits that mean the same on every chip. 1.6 to 1.8 (MI300) count for how many
//! of the firmware's samples each throttler was at work. 1.4 and 1.5 have only bits whose meaning
//! changed with the firmware.

use serde::{Deserialize, Serialize};

/// What holds the clocks back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Throttle {
    /// Now, yes or no.
    Status(Reasons<bool>),
    /// Samples of the firmware since the driver was loaded, and in how many of them.
    Samples {
        /// All samples.
        all: u32,
        /// Those in which a throttler was at work.
        throttled: Reasons<u32>,
    },
}

/// The kinds of throttlers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Reasons<T> {
    /// The power or current limit: usual under full load.
    pub power: T,
    /// Too hot: the chip, its memory or its voltage regulators.
    pub thermal: T,
    /// The board's own emergency signal.
    pub prochot: T,
}

impl<T> Reasons<T> {
    /// Each with its label value.
    pub fn each(self) -> [(&'static str, T); 3] {
        [("power", self.power), ("thermal", self.thermal), ("prochot", self.prochot)]
    }
}

/// Power bits 0 to 7 and current bits 16 to 23 of the word of 1.3.
const POWER: u64 = 0x00ff_00ff;
/// Temperature bits 32 to 43 and hot voltage regulators, 44 and 45.
const THERMAL: u64 = 0x3fff << 32;
/// PROCHOT of CPU and GPU, 46 and 47.
const PROCHOT: u64 = 0x3 << 46;

/// Reads the structure.
pub fn parse(bytes: &[u8]) -> Option<Throttle> {
    let size = usize::from(u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?));
    let bytes = bytes.get(..size)?;
    match (bytes.get(2)?, bytes.get(3)?) {
        (1, 3) => status(u64::from_le_bytes(bytes.get(112..120)?.try_into().ok()?)),
        (1, 6) => samples(bytes.get(104..128)?),
        (1, 7 | 8) => samples(bytes.get(40..64)?),
        (_, _) => None,
    }
}

fn status(bits: u64) -> Option<Throttle> {
    (bits != u64::MAX).then_some(Throttle::Status(Reasons {
        power: bits & POWER != 0,
        thermal: bits & THERMAL != 0,
        prochot: bits & PROCHOT != 0,
    }))
}

/// All samples, then those of PROCHOT, power, chip, voltage regulators and memory.
fn samples(bytes: &[u8]) -> Option<Throttle> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at * 4..at * 4 + 4)?.try_into().ok()?));
    let [all, prochot, power, chip, regulators, memory] =
        [word(0)?, word(1)?, word(2)?, word(3)?, word(4)?, word(5)?];
    let words = [all, prochot, power, chip, regulators, memory];
    let thermal = chip.max(regulators).max(memory);
    (!words.contains(&u32::MAX))
        .then_some(Throttle::Samples { all, throttled: Reasons { power, thermal, prochot } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(size: u16, version: (u8, u8), at: usize, words: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; usize::from(size)];
        bytes[..2].copy_from_slice(&size.to_le_bytes());
        (bytes[2], bytes[3]) = version;
        for (index, word) in words.iter().enumerate() {
            bytes[at + index * 4..at + index * 4 + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn each_known_layout_is_read_and_no_other() {
        let words = [1000, 1, 200, 30, 4, 50];
        let counted =
            Some(Throttle::Samples { all: 1000, throttled: Reasons { power: 200, thermal: 50, prochot: 1 } });
        let now = |power, thermal, prochot| Some(Throttle::Status(Reasons { power, thermal, prochot }));
        let known = [
            (table(380, (1, 6), 104, &words), counted),
            (table(2208, (1, 7), 40, &words), counted),
            (table(2208, (1, 8), 40, &words), counted),
            (table(120, (1, 3), 112, &[1, 0]), now(true, false, false)),
            (table(120, (1, 3), 112, &[0, 1 << 4]), now(false, true, false)),
            (table(120, (1, 3), 112, &[0, 1 << 15]), now(false, false, true)),
            (table(120, (1, 3), 112, &[u32::MAX, u32::MAX]), None),
            (table(380, (1, 6), 104, &[1000, 0, u32::MAX, 0, 0, 0]), None),
            (table(300, (1, 5), 104, &words), None),
            (table(120, (2, 4), 104, &[0]), None),
            (table(64, (1, 6), 4, &[0]), None),
            (Vec::new(), None),
        ];
        for (bytes, want) in known {
            assert_eq!(parse(&bytes), want, "{:?}", bytes.get(..4));
        }
        let cut = &table(380, (1, 6), 104, &words)[..200];
        assert_eq!(parse(cut), None, "shorter than it says");
    }
}
