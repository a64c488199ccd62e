//! The hash that all agents share. It is part of the protocol between them: change it, and agents
//! of two versions compute different pairs.
//!
//! A name's hash is FNV-1a of its bytes, 64 bits wide, then mixed. FNV-1a mixes its high bits
//! poorly on short names, and pairing looks at the high bits first. The mixer is the output
//! function of splitmix64. Two values are joined by mixing the first and XORing the second.

/// The hash of a name.
pub(crate) fn name(name: &str) -> u64 {
    mix(name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
}

/// A value that depends on both, the first and the second not being alike.
pub(crate) fn join(first: u64, second: u64) -> u64 {
    mix(mix(first) ^ second)
}

/// A hash as a part of one: 0 or more, and less than 1.
pub(crate) fn fraction(hash: u64) -> f64 {
    // A double holds 53 bits.
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

/// A hash as a number below `count`; 0 if there is none.
pub(crate) fn below(hash: u64, count: usize) -> usize {
    ((u128::from(hash) * count as u128) >> 64) as usize
}

fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_is_as_it_was() {
        // The first outputs of splitmix64 from the seeds 0 and 1, as its author publishes them.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(1), 0x910a_2dec_8902_5cc1);
        // FNV-1a of nothing is its offset.
        assert_eq!(name(""), mix(0xcbf2_9ce4_8422_2325));
        assert_eq!(name("node-b"), 0x071e_8516_d311_06ee);
        assert_eq!(join(1, 2), 0xbcd9_dbb4_9673_066b);
        assert_ne!(join(1, 2), join(2, 1));
    }

    #[test]
    fn fractions_spread_over_the_whole_of_one() {
        assert_eq!((fraction(0), fraction(1 << 63)), (0.0, 0.5));
        assert!(fraction(u64::MAX) < 1.0);
        let bounds = [below(0, 8), below(u64::MAX, 8), below(1 << 63, 8), below(7, 0)];
        assert_eq!(bounds, [0, 7, 4, 0]);
        let sum: f64 = (0..1000).map(|node| fraction(name(&format!("node-{node}")))).sum();
        assert!((450.0..550.0).contains(&sum), "{sum}");
    }
}
