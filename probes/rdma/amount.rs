//! How much a repeat sends. It is counted in messages, so that what a run costs is known before it
//! begins, and both ends come to the same number.

use crate::settings::RdmaSettings;

/// Fewer messages say little: the first ones find everything cold.
const LEAST_MESSAGES: u64 = 100;

/// perftest takes no fewer messages for a queue pair.
const LEAST_ITERATIONS: u64 = 5;

/// The unit of budgets, in bytes.
const MIB: u64 = 1 << 20;

/// What one repeat sends in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amount {
    /// Messages of each queue pair, which is what perftest's `-n` counts.
    pub iterations: u64,
    /// Of all queue pairs.
    pub bytes: u64,
    /// How long that takes at line rate.
    pub seconds: f64,
}

/// The amount that keeps the slower of two ports busy for the configured time.
///
/// `partner` is the other port's rate, in bits per second like `own`; none where it is not told.
pub fn amount(settings: &RdmaSettings, own: f64, partner: Option<f64>) -> Amount {
    let rate = partner.map_or(own, |partner| own.min(partner)) / 8.0;
    let size = u64::from(settings.size.max(1));
    let queue_pairs = u64::from(settings.queue_pairs.max(1));
    let most = u64::from(settings.most_messages).max(LEAST_MESSAGES);
    let messages = whole(settings.seconds * rate).checked_div(size).unwrap_or(0).clamp(LEAST_MESSAGES, most);
    let iterations = (messages / queue_pairs).max(LEAST_ITERATIONS);
    let bytes = iterations * queue_pairs * size;
    Amount { iterations, bytes, seconds: number(bytes) / rate.max(1.0) }
}

impl Amount {
    /// What `repeats` of it take of a NIC's budget, in MiB.
    pub(super) fn mib(self, repeats: u32) -> u32 {
        u32::try_from((self.bytes * u64::from(repeats)).div_ceil(MIB)).unwrap_or(u32::MAX)
    }

    /// How long `repeats` of it take at line rate, in milliseconds.
    pub(super) fn milliseconds(self, repeats: u32) -> u32 {
        u32::try_from(whole((self.seconds * f64::from(repeats) * 1000.0).ceil())).unwrap_or(u32::MAX)
    }
}

fn whole(value: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    let whole = value as u64;
    whole
}

fn number(value: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "amounts are far below 2^53")]
    let number = value as f64;
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn settings(size: u32, queue_pairs: u32, seconds: f64) -> RdmaSettings {
        RdmaSettings { size, queue_pairs, seconds, most_messages: 20_000, ..sample::settings().rdma }
    }

    #[test]
    fn messages_follow_the_slower_port_and_stay_between_their_bounds() {
        let table = [
            // 0.4 s of 400 Gb/s are 20 GB, in messages of 1 MiB over 4 queue pairs.
            (settings(1 << 20, 4, 0.4), 400e9, None, 4768),
            (settings(1 << 20, 4, 0.4), 400e9, Some(400e9), 4768),
            (settings(1 << 20, 4, 0.4), 400e9, Some(200e9), 2384),
            (settings(1 << 20, 4, 0.4), 200e9, Some(400e9), 2384),
            (settings(65_536, 4, 0.4), 400e9, None, 5000),
            (settings(1 << 20, 4, 0.4), 1e9, None, 25),
            (settings(1 << 20, 128, 0.4), 1e9, None, 5),
            (settings(1 << 20, 1, 0.4), 0.0, None, 100),
        ];
        for (settings, own, partner, iterations) in table {
            let found = amount(&settings, own, partner);
            assert_eq!(found.iterations, iterations, "{own} {partner:?} {settings:?}");
            let messages = iterations * u64::from(settings.queue_pairs);
            assert_eq!(found.bytes, messages * u64::from(settings.size));
        }
    }

    #[test]
    fn costs_are_counted_in_mib_and_milliseconds() {
        let found = amount(&settings(1 << 20, 4, 0.4), 400e9, None);
        assert_eq!((found.mib(3), found.milliseconds(6)), (57_216, 2400));
    }
}
