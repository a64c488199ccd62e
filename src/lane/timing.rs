//! When a lane runs.

use std::time::Duration;

use probes::Target;

use crate::config::{Config, Timing};

/// When and for how long a lane runs: the operator's own checks have times of their own.
pub(crate) fn timing(config: &Config, probe: &str, target: Option<&Target>) -> Option<Timing> {
    match target {
        Some(Target::Check(name)) => config
            .settings
            .exec
            .iter()
            .find(|check| check.name == *name)
            .map(|check| Timing { enabled: true, interval: check.interval, timeout: check.timeout }),
        Some(Target::Node | Target::Pci(_) | Target::Rdma(_)) | None => config.timings.get(probe).copied(),
    }
}

/// Where in its interval a lane runs, from 0 to 1: the same after a restart, spread over the nodes.
pub(super) fn phase(node: &str, probe: &str, target: &Target) -> f64 {
    // FNV-1a: std's hashers promise no stable value.
    let text = format!("{node} {probe} {target}");
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // FNV's high bits mix poorly on short texts; fold them.
    f64::from(u32::try_from((hash ^ (hash >> 32)) & 0xffff_ffff).unwrap_or(0)) / f64::from(u32::MAX)
}

/// The time from `now` to the next point of that phase.
pub(super) fn until_phase(now: f64, interval: Duration, phase: f64) -> Duration {
    let interval = interval.as_secs_f64();
    let into = (now / interval).fract();
    let wait = if phase > into { phase - into } else { 1.0 + phase - into };
    Duration::from_secs_f64(wait * interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_spread_over_the_interval_and_are_met_within_it() {
        let mut tenths = [0; 10];
        for node in 0..1000 {
            let phase = phase(&format!("node-{node}"), "exec", &Target::Check("raid".into()));
            let wait = until_phase(1_000_000.25, Duration::from_secs(600), phase);
            assert!(wait > Duration::ZERO && wait <= Duration::from_secs(600), "{wait:?}");
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 9")]
            let tenth = ((phase * 10.0) as usize).min(9);
            tenths[tenth] += 1;
        }
        assert!(tenths.iter().all(|count| (60..140).contains(count)), "{tenths:?}");
    }
}
