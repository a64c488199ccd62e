//! Whether one series has become worse: pure, in constant time and memory for each sample.
//!
//! It asks for an effect that matters and not for what is improbable: ten thousand nodes take ten
//! million samples a day, and one in a million of these is improbable. A sample that is lower than
//! its series usually is by [`DELTA`], or many that are lower by less, open a *case*. Runs at 0, 10,
//! 20 and 30 minutes decide it: three low ones of four confirm it, two good ones close it. A case
//! that was confirmed ends with three good samples in a row. What is learned from is only what
//! came without a case.
//!
//! Values are such that more is better; who has latencies gives their reciprocals.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The drop that matters, as a part of what is usual.
pub(crate) const DELTA: f64 = 0.03;
/// Accepted samples that make up what is usual.
const WINDOW: usize = 64;
/// How many of them there must be before a drop can be told.
pub(crate) const WARM: u32 = 16;
/// Accepted samples between two looks at the window: what is usual changes slowly.
const REFRESH: u32 = 8;
/// The least spread, as a part of the median: a link that always gives the same figure has none.
const LEAST_SPREAD: f64 = 0.0025;
/// A series whose spread is this large a part of [`DELTA`] needs a larger drop to be seen.
const SPREADS: f64 = 2.5;
/// What makes a median of absolute deviations a standard deviation, for a normal distribution.
const MAD_TO_SIGMA: f64 = 1.4826;
/// A run that comes before its time by this part of that counts all the same.
const EARLY: f64 = 0.1;
/// Low samples that confirm a case.
const CONFIRMS: u8 = 3;
/// Good samples that close a case which is not confirmed: three low ones of four can't come any more.
const ACQUITS: u8 = 2;
/// Good samples in a row that end a confirmed case.
const CLEARS: u8 = 3;
/// The part of the drop that small drops must have to count as low, once many of them opened a case.
const LASTING: f64 = 2.0 / 3.0;

/// What is known of one series.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Detector {
    /// The last accepted samples, oldest first.
    accepted: VecDeque<f32>,
    /// How many were accepted in all.
    learned: u32,
    /// What is usual, as of the last look.
    usual: Option<Usual>,
    /// Sum of the drops beyond what is no matter, as parts of what is usual.
    sum: f64,
    case: Option<Case>,
}

/// What is usual for a series.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Usual {
    /// The median of the accepted samples.
    pub(crate) median: f64,
    /// Their spread, as a part of the median.
    pub(crate) spread: f64,
}

/// A suspicion and what became of it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Case {
    /// When the first low sample came, in seconds since the epoch.
    pub(crate) opened: f64,
    /// When it was confirmed; none before.
    pub(crate) confirmed: Option<f64>,
    /// From when on a sample counts, and is wanted.
    next: f64,
    /// The least value that is not low, as a part of what is usual.
    bar: f64,
    low: u8,
    good: u8,
}

/// What a series says of its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// Too few samples to tell a drop.
    Warming,
    /// As usual.
    Fine,
    /// It looks worse, and runs are under way that decide.
    Suspect,
    /// It is worse.
    Degraded,
}

impl State {
    /// The exported number.
    pub(crate) fn number(self) -> f64 {
        match self {
            State::Warming => -1.0,
            State::Fine => 0.0,
            State::Suspect => 1.0,
            State::Degraded => 2.0,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            State::Warming => "warming",
            State::Fine => "ok",
            State::Suspect => "suspect",
            State::Degraded => "degraded",
        }
    }
}

impl Detector {
    /// Takes a sample. `floor` is the least value that is expected whatever is usual; `every` is the
    /// time between two runs that decide a case.
    pub(crate) fn observe(&mut self, value: f64, at: f64, floor: Option<f64>, every: f64) -> State {
        if value.is_finite() && value > 0.0 {
            match self.case.take() {
                None => self.watch(value, at, floor),
                Some(case) => self.case = self.decide(case, value, at, floor, every),
            }
        }
        self.state()
    }

    /// Whether a value is low: for the case, while there is one.
    pub(crate) fn is_low(&self, value: f64, floor: Option<f64>) -> bool {
        floor.is_some_and(|floor| value < floor)
            || self.usual().zip(self.lowest_share()).is_some_and(|(usual, bar)| value < bar * usual.median)
    }

    /// The least part of what is usual that is not low; none before anything is.
    pub(crate) fn lowest_share(&self) -> Option<f64> {
        self.case.as_ref().map(|case| case.bar).or_else(|| self.bar())
    }

    pub(crate) fn state(&self) -> State {
        match &self.case {
            Some(case) if case.confirmed.is_some() => State::Degraded,
            Some(_) => State::Suspect,
            None if self.learned < WARM => State::Warming,
            None => State::Fine,
        }
    }

    /// What is usual; none before there are samples enough.
    pub(crate) fn usual(&self) -> Option<Usual> {
        self.usual.filter(|_| self.learned >= WARM)
    }

    /// The suspicion, while there is one.
    pub(crate) fn case(&self) -> Option<&Case> {
        self.case.as_ref()
    }

    /// Samples that were accepted.
    pub(crate) fn learned(&self) -> u32 {
        self.learned
    }

    /// From when on a run is wanted that decides a case.
    pub(crate) fn wanted(&self) -> Option<f64> {
        self.case.as_ref().filter(|case| case.confirmed.is_none() || case.good > 0).map(|case| case.next)
    }

    /// The least value of this series that is not low.
    fn bar(&self) -> Option<f64> {
        self.usual().map(|usual| 1.0 - drop_that_matters(usual))
    }

    fn watch(&mut self, value: f64, at: f64, floor: Option<f64>) {
        let below = floor.is_some_and(|floor| value < floor);
        let Some((usual, bar)) = self.usual().zip(self.bar()) else {
            if below {
                self.open(at, 0.0);
            } else {
                self.accept(value);
            }
            return;
        };
        let matters = 1.0 - bar;
        let share = value / usual.median;
        if below || share < bar {
            self.open(at, bar);
            return;
        }
        let drop = (1.0 - share).max(-2.0 * matters);
        self.sum = (self.sum + drop - matters / 2.0).max(0.0);
        if self.sum > 3.0 * matters {
            self.open(at, 1.0 - LASTING * matters);
        } else {
            self.accept(value);
        }
    }

    fn open(&mut self, at: f64, bar: f64) {
        self.sum = 0.0;
        self.case = Some(Case { opened: at, confirmed: None, next: at, bar, low: 0, good: 0 });
    }

    /// What a case is after one more sample; none if that ends it.
    fn decide(&self, case: Case, value: f64, at: f64, floor: Option<f64>, every: f64) -> Option<Case> {
        // More runs in the same minutes are no more evidence.
        if at < case.next - EARLY * every && at >= case.opened {
            return Some(case);
        }
        let low = floor.is_some_and(|floor| value < floor)
            || self.usual().is_some_and(|usual| value < case.bar * usual.median);
        let next = at + every;
        match (case.confirmed, low) {
            (None, true) => {
                let low = case.low + 1;
                let confirmed = (low >= CONFIRMS).then_some(at);
                let good = if confirmed.is_some() { 0 } else { case.good };
                Some(Case { low, good, confirmed, next, ..case })
            }
            (None, false) => (case.good + 1 < ACQUITS).then(|| Case { good: case.good + 1, next, ..case }),
            (Some(_), true) => Some(Case { good: 0, next, ..case }),
            (Some(_), false) => (case.good + 1 < CLEARS).then(|| Case { good: case.good + 1, next, ..case }),
        }
    }

    fn accept(&mut self, value: f64) {
        #[expect(clippy::cast_possible_truncation, reason = "seven digits are more than any probe has")]
        self.accepted.push_back(value as f32);
        if self.accepted.len() > WINDOW {
            self.accepted.pop_front();
        }
        self.learned = self.learned.saturating_add(1);
        if self.learned <= WARM || self.learned.is_multiple_of(REFRESH) {
            self.usual = Some(usual(self.accepted.iter().copied()));
        }
    }
}

/// The drop that matters for a series with this spread.
fn drop_that_matters(usual: Usual) -> f64 {
    (SPREADS * usual.spread).clamp(DELTA, 0.5)
}

/// Median and spread of samples, of which there is at least one.
fn usual(samples: impl Iterator<Item = f32>) -> Usual {
    let mut sorted: Vec<f32> = samples.collect();
    let median = median(&mut sorted);
    let mut apart: Vec<f32> = sorted.iter().map(|value| (value - median).abs()).collect();
    let (median, spread) = (f64::from(median), f64::from(self::median(&mut apart)) * MAD_TO_SIGMA);
    Usual { median, spread: (spread / median).max(LEAST_SPREAD) }
}

fn median(values: &mut [f32]) -> f32 {
    let middle = values.len() / 2;
    let even = values.len().is_multiple_of(2);
    let (below, upper, _) = values.select_nth_unstable_by(middle, f32::total_cmp);
    let upper = *upper;
    let lower = below.iter().copied().max_by(f32::total_cmp).filter(|_| even);
    lower.map_or(upper, |lower| f32::midpoint(lower, upper))
}

#[cfg(test)]
mod tests;
