//! What two readings of a counter say: growth within a window, resets, and fields that stick.
//!
//! Hardware counters run since boot or since somebody cleared them, so a value alone says nothing
//! of today. The first reading is only a base; after it, each rise is remembered with its time
//! until it leaves the window. A counter that fell was reset and counts from zero again.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// Rises kept for each counter; older ones are merged, which keeps the sum and shortens memory.
const RISES_KEPT: usize = 32;

/// A counter not seen for this long is forgotten, in seconds.
const FORGOTTEN_AFTER: f64 = 86_400.0;

/// What a lane remembers of counters between its runs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Memory {
    tracks: BTreeMap<String, Track>,
}

/// What the newest reading of a counter says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// How much it rose within the window.
    pub rise: u64,
    /// For how long it has been watched, in seconds, at most the window.
    pub watched: f64,
    /// It is smaller than before: the device, its driver or a person has cleared it.
    pub reset: bool,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct Track {
    first: f64,
    last: f64,
    value: u64,
    rises: VecDeque<(f64, u64)>,
}

impl Memory {
    /// Takes a reading of the counter `key` at `now`, in seconds since the epoch.
    pub fn observe(&mut self, key: &str, now: f64, value: u64, window: Duration) -> Change {
        self.tracks.retain(|_, track| now - track.last < FORGOTTEN_AFTER);
        let Some(track) = self.tracks.get_mut(key) else {
            self.tracks
                .insert(key.to_string(), Track { first: now, last: now, value, rises: VecDeque::new() });
            return Change { rise: 0, watched: 0.0, reset: false };
        };
        let reset = value < track.value;
        let rise = if reset { value } else { value - track.value };
        track.value = value;
        track.last = now;
        if rise > 0 {
            track.rises.push_back((now, rise));
        }
        let window = window.as_secs_f64();
        while track.rises.front().is_some_and(|(at, _)| now - at >= window) {
            track.rises.pop_front();
        }
        if track.rises.len() > RISES_KEPT
            && let (Some((_, merged)), Some(second)) = (track.rises.pop_front(), track.rises.front_mut())
        {
            second.1 += merged;
        }
        Change {
            rise: track.rises.iter().map(|(_, rise)| rise).sum(),
            watched: (now - track.first).min(window),
            reset,
        }
    }

    /// For how long a state has been there at every look, in seconds, this one at `now` included;
    /// none where it is not there now.
    pub fn held(&mut self, key: &str, now: f64, there: bool) -> Option<f64> {
        if !there {
            self.tracks.remove(key);
            return None;
        }
        // A value that stays has a beginning and no rises.
        Some(self.observe(key, now, 1, Duration::MAX).watched)
    }
}

/// Whether a counter of `bits` width stands at its maximum, where old adapters stop counting.
pub fn saturated(value: u64, bits: u32) -> bool {
    bits < 64 && value == (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn the_first_reading_is_only_a_base() {
        assert_eq!(
            Memory::default().observe("x", 1e9, 4711, HOUR),
            Change { rise: 0, watched: 0.0, reset: false }
        );
    }

    #[test]
    fn rises_leave_the_window_and_resets_count_from_zero() {
        let mut memory = Memory::default();
        let table = [
            (0.0, 4, 0, 0.0, false),
            (60.0, 6, 2, 60.0, false),
            (1800.0, 17, 13, 1800.0, false),
            (3659.0, 17, 13, 3600.0, false),
            (3660.0, 17, 11, 3600.0, false),
            (3700.0, 3, 14, 3600.0, true),
            (9000.0, 3, 0, 3600.0, false),
        ];
        for (now, value, rise, watched, reset) in table {
            assert_eq!(memory.observe("x", now, value, HOUR), Change { rise, watched, reset }, "at {now}");
        }
    }

    #[test]
    fn a_counter_that_rises_always_is_remembered_in_bounded_space() {
        let mut memory = Memory::default();
        for second in 0..1000_u32 {
            let change = memory.observe("x", f64::from(second), u64::from(second), HOUR);
            assert_eq!(change.rise, u64::from(second));
        }
        assert!(memory.tracks["x"].rises.len() <= RISES_KEPT);
    }

    #[test]
    fn a_state_is_held_as_long_as_every_look_sees_it() {
        let mut memory = Memory::default();
        let table = [
            (0.0, false, None),
            (60.0, true, Some(0.0)),
            (120.0, true, Some(60.0)),
            (9000.0, true, Some(8940.0)),
            (9060.0, false, None),
            (9120.0, true, Some(0.0)),
        ];
        for (now, there, want) in table {
            assert_eq!(memory.held("x", now, there), want, "at {now}");
        }
    }

    #[test]
    fn only_a_full_narrow_field_is_saturated() {
        for (value, bits, want) in [
            (255, 8, true),
            (254, 8, false),
            (65_535, 16, true),
            (u64::from(u32::MAX), 32, true),
            (u64::MAX, 64, false),
        ] {
            assert_eq!(saturated(value, bits), want, "{value} of {bits} bits");
        }
    }
}
