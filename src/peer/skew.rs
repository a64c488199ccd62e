//! How far the clocks of partners are from ours, as leases show it.

use std::sync::{Mutex, PoisonError};

/// The difference seen in the newest lease.
#[derive(Debug, Default)]
pub(crate) struct Skew(Mutex<Option<f64>>);

impl Skew {
    /// Takes the difference of a partner's clock to ours, in seconds.
    pub(crate) fn note(&self, seconds: f64) {
        if seconds.is_finite() {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(seconds);
        }
    }

    /// The difference in seconds; none before the first lease.
    pub(crate) fn seconds(&self) -> Option<f64> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
