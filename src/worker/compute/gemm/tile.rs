//! What matrices are filled with: random numbers, the same on every GPU, in every run.
//!
//! Numbers are made for a tile only, and the matrix is the tile over and over. Its length is a prime,
//! so no two rows of the matrix begin at the same place of it.

/// Lengths of a tile; the longest that fits twice into the matrix is used.
const PRIMES: [usize; 4] = [1_048_573, 65_521, 4_093, 251];

/// Random numbers of mean 0 and deviation 1: sums of four that are equally likely, which is near
/// enough to a normal distribution for the chip to draw the power that real numbers make it draw.
pub(super) fn tile(seed: u64, elements: usize) -> Vec<f32> {
    let length = PRIMES.into_iter().find(|prime| 2 * prime <= elements).unwrap_or(PRIMES[PRIMES.len() - 1]);
    let mut state = seed;
    (0..length)
        .map(|_| {
            let bits = next(&mut state);
            let sum: f32 = (0..4_u32).map(|part| f32::from(low(bits >> (16 * part)))).sum();
            // Each part has the mean 32767.5 and the variance (65536^2 - 1) / 12.
            (sum - 131_070.0) / 37_837.227
        })
        .collect()
}

#[expect(clippy::cast_possible_truncation, reason = "the lower 16 bits")]
fn low(bits: u64) -> u16 {
    bits as u16
}

/// SplitMix64 (Steele, Lea, Flood, 2014): two multiplications a number, and good in all bits.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_same_for_ever_and_spread_as_they_should() {
        // The first numbers of the published generator with seed 1234567.
        let mut state = 1_234_567;
        assert_eq!(
            [next(&mut state), next(&mut state)],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
        );
        let tile = tile(1, 1 << 20);
        assert_eq!(tile.len(), 65_521);
        let mean = tile.iter().map(|value| f64::from(*value)).sum::<f64>() / 65_521.0;
        let variance = tile.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>() / 65_521.0;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn a_tile_fits_twice_into_its_matrix() {
        for (elements, length) in [(8192 * 8192, 1_048_573), (256 * 256, 4_093), (32 * 32, 251), (1, 251)] {
            assert_eq!(tile(7, elements).len(), length, "{elements}");
        }
    }
}
