//! Which unit the bandwidths of a run are in.
//!
//! The label can be wrong: before 26.01 a server prints the client's figure under its own header.
//! Size times message rate says what the figure is, since both are printed beside it.

use super::{Row, command::Command};

/// What the figures of a run are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 10^9 bit a second.
    Gigabits,
    /// 2^20 byte a second, which old versions label `MB/sec`.
    Mebibytes,
    /// Microseconds.
    Microseconds,
    /// CPU cycles, because of `-C`.
    Cycles,
}

/// Bytes a second in 1 Gb/s.
pub(super) const GIGABIT: f64 = 1.25e8;
/// Bytes a second in 1 MiB/s.
pub(super) const MEBIBYTE: f64 = 1_048_576.0;

/// Figures below these have too few digits to tell a unit from.
const LEAST_AVERAGE: f64 = 0.2;
const LEAST_RATE: f64 = 0.0005;

/// How far size times rate may be from the figure. The units are apart by a factor of 119.
const TOLERANCE: f64 = 0.05;

/// What size times rate says of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The figures are too small, or something is not printed.
    NotPossible,
    /// It fits this unit.
    Fits(Unit),
    /// It fits neither: the figures can't all be right.
    FitsNeither,
}

impl Unit {
    /// The word in the object and in texts.
    pub fn word(self) -> &'static str {
        match self {
            Unit::Gigabits => "Gb/s",
            Unit::Mebibytes => "MiB/s",
            Unit::Microseconds => "us",
            Unit::Cycles => "cycles",
        }
    }

    /// A figure in base units: bytes a second, or seconds. None for cycles.
    pub fn base(self, printed: f64) -> Option<f64> {
        match self {
            Unit::Gigabits => Some(printed * GIGABIT),
            Unit::Mebibytes => Some(printed * MEBIBYTE),
            Unit::Microseconds => Some(printed * 1e-6),
            Unit::Cycles => None,
        }
    }
}

/// Compares the average of the fastest row with its size and message rate.
pub fn check(rows: &[Row]) -> Check {
    let usable = rows.iter().filter_map(|row| {
        let (size, average, rate) = (row.size?, row.average?.printed, row.rate?);
        (average >= LEAST_AVERAGE && rate >= LEAST_RATE).then_some((size, average, rate))
    });
    let Some((size, average, rate)) = usable.max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return Check::NotPossible;
    };
    #[expect(clippy::cast_precision_loss, reason = "six digits are enough for a comparison")]
    let bytes = size as f64 * rate * 1e6;
    let fits = |unit: f64| (bytes / unit / average - 1.0).abs() <= TOLERANCE;
    if fits(GIGABIT) {
        Check::Fits(Unit::Gigabits)
    } else if fits(MEBIBYTE) {
        Check::Fits(Unit::Mebibytes)
    } else {
        Check::FitsNeither
    }
}

/// The unit of a run's bandwidths: by size and rate, by the label, by the command.
pub(super) fn bandwidth(check: Check, label: Option<Unit>, command: Option<&Command>) -> Option<Unit> {
    let by_command = command.map(|c| if c.gigabits { Unit::Gigabits } else { Unit::Mebibytes });
    match check {
        Check::Fits(unit) => Some(unit),
        Check::NotPossible | Check::FitsNeither => label.or(by_command),
    }
}
