//! How numbers of a type are written as bits: what is put into matrices, and what a reference reads.
//!
//! bf16, fp16 and the 8-bit floats are the upper bits of a float with another exponent. Values are
//! rounded to the nearest that the type has, ties to even.

/// A floating point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// IEEE 754 single precision.
    F32,
    /// `bfloat16`: a single with 7 bits of mantissa.
    Bf16,
    /// IEEE 754 half precision.
    F16,
    /// OCP 8-bit, 4 bits of exponent, bias 7: NVIDIA, and AMD since gfx950.
    E4m3,
    /// The same with bias 8 and no negative zero: AMD's gfx940 to gfx942.
    E4m3Fnuz,
}

impl Format {
    pub(super) fn bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::Bf16 | Format::F16 => 2,
            Format::E4m3 | Format::E4m3Fnuz => 1,
        }
    }

    /// Bits of mantissa, and the bias of the exponent.
    fn shape(self) -> (u32, i32) {
        match self {
            Format::F32 => (23, 127),
            Format::Bf16 => (7, 127),
            Format::F16 => (10, 15),
            Format::E4m3 => (3, 7),
            Format::E4m3Fnuz => (3, 8),
        }
    }

    /// The greatest relative error of rounding to this type: half a unit of its last place.
    pub(super) fn rounding(self) -> f64 {
        0.5_f64.powi(i32::try_from(self.shape().0).unwrap_or_default() + 1)
    }

    /// The bits of the nearest number of this type. For values of the size that matrices get, far
    /// from overflow.
    pub(super) fn encode(self, value: f32) -> u32 {
        let (mantissa, bias) = match self {
            Format::F32 => return value.to_bits(),
            Format::Bf16 => {
                let (kept, odd) = (value.to_bits(), value.to_bits() >> 16 & 1);
                return (kept + 0x7fff + odd) >> 16;
            }
            Format::F16 | Format::E4m3 | Format::E4m3Fnuz => self.shape(),
        };
        let sign = value.to_bits() >> 31 << self.sign_at();
        let magnitude = value.to_bits() & (u32::MAX >> 1);
        let exponent = (magnitude >> 23).cast_signed() - 127;
        // Below the least exponent numbers have fewer digits.
        let least = 1 - bias;
        let missing = least.saturating_sub(exponent).clamp(0, 24).cast_unsigned();
        let whole = if magnitude >> 23 == 0 { 0 } else { magnitude & 0x007f_ffff | 0x0080_0000 };
        let dropped = 23 - mantissa + missing;
        let (steps, rest, half) =
            (u64::from(whole) >> dropped, u64::from(whole) & ((1 << dropped) - 1), 1_u64 << dropped >> 1);
        let up = rest > half || rest == half && rest > 0 && steps & 1 == 1;
        #[expect(clippy::cast_possible_truncation, reason = "at most 24 bits")]
        let steps = steps as u32 + u32::from(up);
        // A mantissa that rounds up to the next power of two carries into the exponent by itself.
        let field = (exponent.max(least) - least).cast_unsigned();
        let bits = (field << mantissa) + steps;
        if bits == 0 && self == Format::E4m3Fnuz { 0 } else { sign | bits }
    }

    /// The value that bits of this type stand for; infinities and what is no number are NaN.
    pub(super) fn decode(self, bits: u32) -> f32 {
        let (mantissa, bias) = match self {
            Format::F32 => return f32::from_bits(bits),
            Format::Bf16 => return f32::from_bits(bits << 16),
            Format::F16 | Format::E4m3 | Format::E4m3Fnuz => self.shape(),
        };
        let sign_at = self.sign_at();
        let sign = bits >> sign_at << 31;
        let magnitude = bits & ((1 << sign_at) - 1);
        let (field, fraction) = (magnitude >> mantissa, magnitude & ((1 << mantissa) - 1));
        let none = match self {
            Format::F32 | Format::Bf16 | Format::F16 => field == (1 << (sign_at - mantissa)) - 1,
            Format::E4m3 => magnitude == 0x7f,
            Format::E4m3Fnuz => bits == 0x80,
        };
        if none {
            return f32::NAN;
        }
        if field == 0 {
            #[expect(clippy::cast_precision_loss, reason = "at most 10 bits")]
            let value =
                fraction as f32 * f32::from_bits((128 - bias - mantissa.cast_signed()).cast_unsigned() << 23);
            return f32::from_bits(value.to_bits() | sign);
        }
        let exponent = (field.cast_signed() - bias + 127).cast_unsigned();
        f32::from_bits(sign | exponent << 23 | fraction << (23 - mantissa))
    }

    fn sign_at(self) -> u32 {
        match self {
            Format::F32 => 31,
            Format::Bf16 | Format::F16 => 15,
            Format::E4m3 | Format::E4m3Fnuz => 7,
        }
    }

    /// The bits of an element of a matrix that was copied to the host.
    pub(super) fn at(self, bytes: &[u8], index: usize) -> Option<f32> {
        let width = self.bytes();
        let mut bits = [0_u8; 4];
        bits[..width].copy_from_slice(bytes.get(index * width..(index + 1) * width)?);
        Some(self.decode(u32::from_le_bytes(bits)))
    }

    /// The values that bytes stand for.
    pub(super) fn values_of(self, bytes: &[u8]) -> Vec<f32> {
        (0..bytes.len() / self.bytes()).filter_map(|index| self.at(bytes, index)).collect()
    }

    /// Values as bytes, the way a GPU reads them: rounded to the nearest.
    pub(super) fn bytes_of(self, values: &[f32]) -> Vec<u8> {
        let width = self.bytes();
        let mut bytes = Vec::with_capacity(values.len() * width);
        for value in values {
            bytes.extend_from_slice(&self.encode(*value).to_le_bytes()[..width]);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_the_standards() {
        let table = [
            (Format::F32, 1.0, 0x3f80_0000),
            (Format::Bf16, 1.0, 0x3f80),
            (Format::Bf16, -2.5, 0xc020),
            (Format::Bf16, 3.140_625, 0x4049),
            (Format::F16, 1.0, 0x3c00),
            (Format::F16, -2.0, 0xc000),
            (Format::F16, 65504.0, 0x7bff),
            (Format::F16, 5.960_464_5e-8, 0x0001),
            (Format::E4m3, 1.0, 0x38),
            (Format::E4m3, 448.0, 0x7e),
            (Format::E4m3, -0.001_953_125, 0x81),
            (Format::E4m3Fnuz, 1.0, 0x40),
            (Format::E4m3Fnuz, 240.0, 0x7f),
            (Format::E4m3Fnuz, -1.5, 0xc4),
        ];
        for (format, value, bits) in table {
            assert_eq!(format.encode(value), bits, "{format:?} of {value}");
            assert_eq!(format.decode(bits), value, "{format:?} of {bits:#x}");
        }
    }

    #[test]
    fn rounding_is_to_the_nearest_and_ties_go_to_even() {
        let table = [
            (Format::Bf16, 1.003_906_3, 0x3f80),
            (Format::Bf16, 1.011_718_8, 0x3f82),
            (Format::Bf16, 1.998_046_9, 0x4000),
            (Format::E4m3, 1.0625, 0x38),
            (Format::E4m3, 1.1875, 0x3a),
            (Format::E4m3, 1e-9, 0x00),
            (Format::E4m3, -1e-9, 0x80),
            (Format::E4m3Fnuz, -1e-9, 0x00),
        ];
        for (format, value, bits) in table {
            assert_eq!(format.encode(value), bits, "{format:?} of {value}");
        }
    }

    #[test]
    fn every_number_of_a_small_type_is_read_and_written_alike() {
        for format in [Format::E4m3, Format::E4m3Fnuz, Format::F16, Format::Bf16] {
            for bits in 0..1_u32 << (8 * format.bytes()) {
                let value = format.decode(bits);
                if !value.is_nan() {
                    assert_eq!(format.encode(value), bits, "{format:?} {bits:#x}");
                }
            }
        }
        assert!(Format::E4m3.decode(0x7f).is_nan() && Format::E4m3Fnuz.decode(0x80).is_nan());
    }
}
