//! What one device has been measured with: the proof that it is measured at all.

use std::sync::Arc;

/// How long a partner counts.
const DAY: f64 = 86_400.0;
/// A device has at most seven leases an hour by its budget, 168 a day, and each may be with
/// another partner.
const MOST: usize = 168;
/// A partner of so long ago is likely still idle: it is worth asking again.
const RECENT: f64 = 3600.0;

/// The coverage of one device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    last: Option<f64>,
    /// Each once with the time of the last measurement, oldest first.
    partners: Vec<(Arc<str>, f64)>,
}

impl Coverage {
    /// A measurement with this partner was completed at `now`, in seconds since the epoch.
    pub(crate) fn completed(&mut self, partner: &Arc<str>, now: f64) {
        self.last = Some(now);
        self.partners.retain(|(known, at)| known != partner && within(*at, now, DAY));
        if self.partners.len() == MOST {
            self.partners.remove(0);
        }
        self.partners.push((partner.clone(), now));
    }

    /// When a measurement was last completed, with whomever.
    pub(crate) fn last(&self) -> Option<f64> {
        self.last
    }

    /// The partners of the last 24 hours.
    pub(crate) fn names(&self, now: f64) -> impl Iterator<Item = &str> {
        self.partners.iter().filter(move |(_, at)| within(*at, now, DAY)).map(|(partner, _)| &**partner)
    }

    /// How many those are.
    #[cfg(test)]
    pub(crate) fn partners(&self, now: f64) -> usize {
        self.partners.iter().filter(|(_, at)| within(*at, now, DAY)).count()
    }
}

/// The partners that any of these devices had within the last hour, newest first, each once.
pub(crate) fn recent<'a>(devices: impl IntoIterator<Item = &'a Coverage>, now: f64) -> Vec<Arc<str>> {
    let within = |(_, at): &&(Arc<str>, f64)| within(*at, now, RECENT);
    let mut all: Vec<_> =
        devices.into_iter().flat_map(|device| device.partners.iter().rev().take_while(within)).collect();
    all.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let mut partners: Vec<Arc<str>> = Vec::new();
    for (partner, _) in all {
        if !partners.contains(partner) {
            partners.push(partner.clone());
        }
    }
    partners
}

/// A time that is yet to come was written by a clock that has since been set back.
fn within(at: f64, now: f64, span: f64) -> bool {
    (0.0..span).contains(&(now - at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partner(number: usize) -> Arc<str> {
        format!("node-{number}").into()
    }

    #[test]
    fn partners_count_once_and_for_a_day() {
        let mut coverage = Coverage::default();
        assert_eq!((coverage.last(), coverage.partners(0.0)), (None, 0));
        coverage.completed(&partner(1), 1000.0);
        coverage.completed(&partner(2), 2000.0);
        coverage.completed(&partner(1), 3000.0);
        assert_eq!(coverage.last(), Some(3000.0));
        for (now, count) in [(3000.0, 2), (88_399.0, 2), (88_400.0, 1), (89_400.0, 0)] {
            assert_eq!(coverage.partners(now), count, "at {now}");
        }
        let mut other = Coverage::default();
        other.completed(&partner(2), 2500.0);
        other.completed(&partner(3), 2600.0);
        let recent = |now| recent([&coverage, &other], now);
        assert_eq!(recent(3000.0), [partner(1), partner(3), partner(2)]);
        assert_eq!(recent(6150.0), [partner(1), partner(3)]);
        assert_eq!(recent(7000.0), []);
        // A clock that is set back makes nobody a partner of tomorrow.
        assert_eq!(coverage.partners(2500.0), 1);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut coverage = Coverage::default();
        for number in 0..1000 {
            coverage.completed(&partner(number), number as f64);
        }
        assert_eq!((coverage.partners.len(), coverage.partners(999.0)), (MOST, MOST));
        assert_eq!(recent([&coverage], 999.0)[0], partner(999));
        coverage.completed(&partner(0), 200_000.0);
        assert_eq!(coverage.partners.len(), 1);
    }
}
