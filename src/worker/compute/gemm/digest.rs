//! A digest of a whole result: equal results have equal digests, on every machine and for ever.
//!
//! It has to keep up with the copy from the GPU, so eight numbers are mixed side by side. It guards
//! against broken hardware, not against somebody who looks for two results of one digest.

/// Bytes that are taken at a time: eight lanes of eight bytes.
const BLOCK: usize = 64;
/// The multiplier of SplitMix64's last step: odd, so that no bit is lost.
const MIX: u64 = 0x94d0_49bb_1331_11eb;

/// A digest under way.
#[derive(Clone, Debug)]
pub(super) struct Digest {
    lanes: [u64; 8],
    bytes: u64,
}

impl Digest {
    pub(super) fn new() -> Digest {
        Digest { lanes: std::array::from_fn(|lane| (lane as u64 + 1).wrapping_mul(MIX)), bytes: 0 }
    }

    /// Takes the next bytes: whole blocks, except at the end.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for block in blocks {
            self.mix(block);
        }
        if !rest.is_empty() {
            let mut last = [0; BLOCK];
            last[..rest.len()].copy_from_slice(rest);
            self.mix(&last);
        }
    }

    fn mix(&mut self, block: &[u8; BLOCK]) {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in self.lanes.iter_mut().zip(words) {
            let mixed = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(MIX);
            *lane = mixed.rotate_left(29);
        }
    }

    /// Sixteen digits.
    pub(super) fn text(&self) -> String {
        let fold = |sum: u64, lane: &u64| (sum ^ lane).wrapping_mul(MIX).rotate_left(31);
        let folded = self.lanes.iter().fold(self.bytes, fold);
        format!("{:016x}", folded ^ folded >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(parts: &[&[u8]]) -> String {
        let mut digest = Digest::new();
        parts.iter().for_each(|part| digest.take(part));
        digest.text()
    }

    #[test]
    fn it_is_the_same_for_ever_and_however_the_bytes_come() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(digest(&[]), EMPTY);
        assert_eq!(digest(&[&bytes]), COUNTED);
        assert_eq!(digest(&[&bytes[..64], &bytes[64..192], &bytes[192..]]), COUNTED);
    }

    const EMPTY: &str = "0ed80a48579ea04d";
    const COUNTED: &str = "f79d2ab44e56c18a";

    #[test]
    fn every_bit_and_every_place_counts() {
        let mut bytes = vec![7_u8; 200];
        let whole = digest(&[&bytes]);
        for at in [0, 63, 64, 199] {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                assert_ne!(digest(&[&bytes]), whole, "bit {bit} of byte {at}");
                bytes[at] ^= 1 << bit;
            }
        }
        bytes.swap(3, 4);
        assert_eq!(digest(&[&bytes]), whole, "equal bytes");
        bytes.push(0);
        assert_ne!(digest(&[&bytes]), whole, "a length of its own");
    }
}
