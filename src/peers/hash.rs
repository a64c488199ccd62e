//! The hash that all agents share. It is a part of the protocol: another one makes other pairs.

/// FNV-1a's constants for 64 bits.
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// The hash of a name. FNV-1a, and then mixed, since its high bits vary little on short texts.
pub(crate) fn name(text: &str) -> u64 {
    mix(text.bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME)))
}

/// The hash of several numbers, in their order.
pub(crate) fn numbers<const N: usize>(numbers: [u64; N]) -> u64 {
    numbers.into_iter().fold(OFFSET, |hash, number| mix(hash ^ number))
}

/// A hash as a number from 0 to 1, 1 left out.
pub(crate) fn unit(hash: u64) -> f64 {
    // 53 bits are what a float holds.
    #[expect(clippy::cast_precision_loss, reason = "exact: 53 bits")]
    let whole = (hash >> 11) as f64;
    whole / (1_u64 << 53) as f64
}

/// The finalizer of SplitMix64: every bit of the input changes half of the output's.
fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_keeps_its_hash() {
        assert_eq!(name("node-a"), 0x40a3_6dc3_72da_b80a);
        assert_eq!(numbers([1, 2]), 0xf09a_2d76_c972_c159);
        assert_ne!(numbers([1, 2]), numbers([2, 1]));
    }

    #[test]
    fn units_are_spread_over_their_range() {
        let mut tenths = [0; 10];
        for number in 0..10_000 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 9")]
            let tenth = (unit(numbers([number])) * 10.0) as usize;
            tenths[tenth] += 1;
        }
        assert!(tenths.iter().all(|count| (900..1100).contains(count)), "{tenths:?}");
    }
}
