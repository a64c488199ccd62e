//! The maintenance hold: while it lasts, no active probe starts.
//!
//! It is a file in the state directory, so it survives a restart, and it ends by the wall clock,
//! so it can't be forgotten.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::files;

/// A longer hold is a typing error.
pub(crate) const LONGEST: Duration = Duration::from_secs(30 * 86_400);
/// What fits in a log line and on the page.
const LONGEST_REASON: usize = 200;
/// The file in the state directory.
const FILE: &str = "hold.json";

/// A hold that is in force.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Hold {
    /// Seconds since the epoch.
    pub(crate) since: f64,
    /// Seconds since the epoch.
    pub(crate) until: f64,
    pub(crate) reason: String,
    /// Who placed it.
    pub(crate) by: String,
}

/// Where the hold is kept.
#[derive(Debug)]
pub(crate) struct Holds {
    file: PathBuf,
    hold: Mutex<Option<Hold>>,
}

/// Why a hold could not be placed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HoldError {
    #[error("a hold of {0:?} is impossible: from 1 s to 30 days")]
    Length(Duration),
    #[error("the reason is longer than {LONGEST_REASON} characters")]
    Reason,
    #[error("{}", file.display())]
    File { file: PathBuf, source: io::Error },
}

impl Holds {
    /// Takes up the hold that an earlier process left. A file that can't be read holds, since a
    /// person wanted one: for an hour, in which somebody can look.
    pub(crate) fn open(state: &Path, now: f64) -> Holds {
        let file = state.join(FILE);
        let hold = match fs::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(unreadable(&file, &error, now)),
            Ok(bytes) => {
                Some(serde_json::from_slice(&bytes).unwrap_or_else(|error| unreadable(&file, &error, now)))
            }
        };
        // A file that was written by hand holds no longer than a command could.
        let bounded = |hold: Hold| Hold { until: hold.until.min(now + LONGEST.as_secs_f64()), ..hold };
        Holds { file, hold: Mutex::new(hold.map(bounded)) }
    }

    /// The hold in force at `now`.
    pub(crate) fn current(&self, now: f64) -> Option<Hold> {
        self.lock().clone().filter(|hold| now < hold.until)
    }

    /// Places a hold, in the place of an earlier one.
    pub(crate) fn place(
        &self,
        now: f64,
        length: Duration,
        reason: String,
        by: String,
    ) -> Result<Hold, HoldError> {
        if !(Duration::from_secs(1)..=LONGEST).contains(&length) {
            return Err(HoldError::Length(length));
        }
        if reason.chars().count() > LONGEST_REASON {
            return Err(HoldError::Reason);
        }
        let hold = Hold { since: now, until: now + length.as_secs_f64(), reason, by };
        let text = serde_json::to_vec(&hold).map_err(io::Error::from);
        text.and_then(|text| files::replace(&self.file, &text))
            .map_err(|source| HoldError::File { file: self.file.clone(), source })?;
        *self.lock() = Some(hold.clone());
        Ok(hold)
    }

    /// Ends the hold. False if there was none.
    pub(crate) fn release(&self, now: f64) -> Result<bool, HoldError> {
        let was = self.current(now).is_some();
        match fs::remove_file(&self.file) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(HoldError::File { file: self.file.clone(), source });
            }
            Ok(()) | Err(_) => {}
        }
        *self.lock() = None;
        Ok(was)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Hold>> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unreadable(file: &Path, error: &dyn std::error::Error, now: f64) -> Hold {
    tracing::warn!(file = %file.display(), %error, "the hold file can't be read, so it holds for an hour");
    let reason = format!("{} can't be read: {error}", file.display());
    Hold { since: now, until: now + 3600.0, reason, by: "fabricpulse".to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_hold_survives_a_restart_and_ends_by_itself() {
        let state = tempfile::tempdir().unwrap();
        let holds = Holds::open(state.path(), 100.0);
        assert_eq!(holds.current(100.0), None);
        let placed = holds.place(100.0, HOUR, "job-4711".into(), "uid 0".into()).unwrap();
        let again = Holds::open(state.path(), 200.0);
        assert_eq!(again.current(200.0), Some(placed));
        assert_eq!(again.current(3700.0), None);
        assert!(again.release(200.0).unwrap());
        assert!(!again.release(200.0).unwrap());
        assert_eq!(Holds::open(state.path(), 200.0).current(200.0), None);
    }

    #[test]
    fn an_unreadable_hold_holds() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join(FILE), "{\"since\":").unwrap();
        let hold = Holds::open(state.path(), 100.0).current(100.0).unwrap();
        assert!(hold.reason.contains("hold.json can't be read"), "{hold:?}");
    }

    #[test]
    fn an_impossible_hold_is_refused_with_the_reason() {
        let state = tempfile::tempdir().unwrap();
        let holds = Holds::open(state.path(), 0.0);
        assert!(matches!(
            holds.place(0.0, Duration::ZERO, String::new(), String::new()),
            Err(HoldError::Length(_))
        ));
        assert!(matches!(
            holds.place(0.0, LONGEST * 2, String::new(), String::new()),
            Err(HoldError::Length(_))
        ));
        assert!(matches!(holds.place(0.0, HOUR, "x".repeat(201), String::new()), Err(HoldError::Reason)));
        assert_eq!(holds.current(0.0), None);
    }
}
