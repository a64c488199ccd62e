//! The tests of `src/judge/detector.rs`.

use super::*;

/// Between two runs that decide a case, in seconds.
const CONFIRM_EVERY: f64 = 600.0;

/// An hour between samples, and confirming runs when they are wanted: the states after each
/// sample of `values`, which begin after 64 samples of 100 that differ by 0.2 at most.
fn watch(values: &[f64], floor: Option<f64>) -> (Detector, Vec<State>) {
    let mut detector = Detector::default();
    for at in 0..64 {
        let value = 100.0 + 0.1 * f64::from(at % 5 - 2);
        assert_eq!(
            detector.observe(value, f64::from(at) * 3600.0, None, CONFIRM_EVERY),
            if at < 15 { State::Warming } else { State::Fine }
        );
    }
    let mut at = 64.0 * 3600.0;
    let mut states = Vec::new();
    for value in values {
        states.push(detector.observe(*value, at, floor, CONFIRM_EVERY));
        at = detector.wanted().map_or(at + 3600.0, |wanted| wanted.max(at + 5.0));
    }
    (detector, states)
}

#[test]
fn a_drop_of_five_percent_is_confirmed_within_half_an_hour_and_ends_with_three_good_ones() {
    use State::{Degraded, Fine, Suspect};
    let (_, states) = watch(&[100.0, 95.0, 95.0, 95.0, 95.0, 95.0, 100.0, 100.0, 100.0], None);
    assert_eq!(states, [Fine, Suspect, Suspect, Suspect, Degraded, Degraded, Degraded, Degraded, Fine]);
}

#[test]
fn what_decides_is_three_of_four() {
    use State::{Degraded, Fine, Suspect};
    let table: [(&[f64], State); 6] = [
        (&[90.0, 90.0, 100.0, 90.0], Suspect),
        (&[90.0, 90.0, 100.0, 90.0, 90.0], Degraded),
        (&[90.0, 90.0, 90.0, 100.0, 90.0], Degraded),
        (&[90.0, 100.0, 90.0, 100.0], Fine),
        (&[90.0, 100.0, 100.0], Fine),
        (&[97.5], Fine),
    ];
    for (values, state) in table {
        assert_eq!(*watch(values, None).1.last().unwrap(), state, "{values:?}");
    }
}

#[test]
fn many_small_drops_count_where_one_does_not() {
    let (detector, states) = watch(&[97.4; 16], None);
    assert_eq!(states[0], State::Fine);
    assert_eq!(states.last(), Some(&State::Degraded), "{states:?}");
    assert!(detector.case().unwrap().opened > 64.0 * 3600.0);
    assert_eq!(watch(&[99.0; 200], None).1.last(), Some(&State::Fine));
}

#[test]
fn what_came_with_a_case_is_not_learned() {
    let (detector, _) = watch(&[50.0; 100], None);
    assert_eq!(detector.learned(), 64);
    assert_eq!(detector.usual().unwrap().median, 100.0);
}

#[test]
fn a_floor_counts_whatever_is_usual_and_before_anything_is() {
    assert_eq!(watch(&[100.0; 5], Some(101.0)).1.last(), Some(&State::Degraded));
    let mut fresh = Detector::default();
    let states: Vec<State> =
        (0..4).map(|at| fresh.observe(80.0, f64::from(at) * 600.0, Some(90.0), CONFIRM_EVERY)).collect();
    assert_eq!(states, [State::Suspect, State::Suspect, State::Suspect, State::Degraded]);
}

#[test]
fn runs_in_the_same_minutes_are_no_more_evidence() {
    let (mut detector, _) = watch(&[90.0], None);
    let at = detector.case().unwrap().opened;
    for second in 0..10 {
        assert_eq!(detector.observe(90.0, at + f64::from(second), None, CONFIRM_EVERY), State::Suspect);
    }
}

#[test]
fn a_noisy_series_needs_a_larger_drop_and_nonsense_is_no_sample() {
    let mut noisy = Detector::default();
    for at in 0..64 {
        noisy.observe(100.0 + 3.0 * f64::from(at % 5 - 2), f64::from(at), None, CONFIRM_EVERY);
    }
    assert_eq!(noisy.observe(94.0, 100.0, None, CONFIRM_EVERY), State::Fine);
    for nonsense in [f64::NAN, f64::INFINITY, 0.0, -5.0] {
        assert_eq!(noisy.observe(nonsense, 101.0, Some(50.0), CONFIRM_EVERY), State::Fine);
    }
}

#[test]
fn a_better_part_becomes_the_usual_one() {
    let (detector, states) = watch(&[110.0; 64], None);
    assert!(states.iter().all(|state| *state == State::Fine));
    assert_eq!(detector.usual().unwrap().median, 110.0);
}

#[test]
fn what_is_kept_of_a_series_is_small_and_comes_back_as_it_was() {
    let (detector, _) = watch(&[90.0, 90.0], None);
    let text = serde_json::to_string(&detector).unwrap();
    assert!(text.len() < 1024, "{}", text.len());
    assert_eq!(serde_json::from_str::<Detector>(&text).unwrap(), detector);
}
