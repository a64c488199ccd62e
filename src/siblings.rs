//! Results of GPUs of the same kind, side by side: all of them have to come to the same bits.
//!
//! A GPU that repeats its own wrong result can only be found so. Where most of a kind agree, the
//! one that differs is wrong. Where two differ and there is no third, one of the two is, and nobody
//! knows which.

use std::collections::BTreeMap;

use probes::{Digest, Finding, Verdict, compute::CORRUPT_RESULT};

/// The newest digest of each part, by kind.
#[derive(Debug, Default)]
pub(crate) struct Siblings {
    kinds: BTreeMap<String, BTreeMap<String, String>>,
}

/// Kinds that are remembered: five types on one model are five, and a new driver makes new ones.
const MOST_KINDS: usize = 64;

impl Siblings {
    /// Takes a digest of a part; a finding if those of its siblings are others.
    pub(crate) fn compare(&mut self, part: &str, digest: &Digest) -> Option<Finding> {
        if !self.kinds.contains_key(&digest.kind) && self.kinds.len() >= MOST_KINDS {
            self.kinds.clear();
        }
        let kind = self.kinds.entry(digest.kind.clone()).or_default();
        kind.insert(part.to_string(), digest.value.clone());
        let alike = kind.values().filter(|value| **value == digest.value).count();
        let others: Vec<&String> = kind.values().filter(|value| **value != digest.value).collect();
        let most = others.iter().map(|value| others.iter().filter(|other| *other == value).count()).max()?;
        let verdict = if most > alike {
            Verdict::Fail
        } else if alike == 1 {
            Verdict::Degraded
        } else {
            // Most are like this one: the finding is about another part.
            return None;
        };
        let told: Vec<String> = kind.iter().map(|(part, value)| format!("{part} {value}")).collect();
        let found = format!("other bits than GPUs of the same kind: {}", told.join(", "));
        let why = match verdict {
            Verdict::Fail => {
                "it repeats a result that no other GPU of its kind comes to: it computes wrong numbers"
            }
            Verdict::Pass | Verdict::Degraded | Verdict::Unknown => {
                "one of the GPUs computes wrong numbers, and it takes a third of the kind to say which"
            }
        };
        Some(
            Finding::new(CORRUPT_RESULT, part, verdict, found, "the same bits on all of them")
                .because(format!("{why}; kind: {}", digest.kind))
                .try_command(format!("fabricpulse probe gemm --target {part}")),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each of these digests leads to, in their order.
    fn verdicts(told: &[(&str, &str)]) -> Vec<Option<Verdict>> {
        let mut siblings = Siblings::default();
        let compare = |(part, value): &(&str, &str)| {
            let digest = Digest { kind: "bf16".into(), value: (*value).into() };
            siblings.compare(part, &digest).and_then(|finding| finding.verdict)
        };
        told.iter().map(compare).collect()
    }

    #[test]
    fn the_one_that_differs_from_most_is_wrong() {
        use Verdict::{Degraded, Fail};
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a [Option<Verdict>]);
        let table: [Row<'_>; 6] = [
            (&[("a", "1")], &[None]),
            (&[("a", "1"), ("b", "1"), ("c", "1")], &[None; 3]),
            (&[("a", "1"), ("b", "2"), ("a", "1")], &[None, Some(Degraded), Some(Degraded)]),
            (&[("a", "1"), ("b", "1"), ("c", "2")], &[None, None, Some(Fail)]),
            (&[("a", "2"), ("b", "1"), ("c", "1"), ("a", "2")], &[None, Some(Degraded), None, Some(Fail)]),
            (&[("a", "2"), ("b", "1"), ("a", "1"), ("b", "1")], &[None, Some(Degraded), None, None]),
        ];
        for (told, expected) in table {
            assert_eq!(verdicts(told), expected, "{told:?}");
        }
    }

    #[test]
    fn other_kinds_are_not_compared_and_not_collected_without_end() {
        let mut siblings = Siblings::default();
        for kind in 0..1000 {
            let digest = Digest { kind: kind.to_string(), value: kind.to_string() };
            assert_eq!(siblings.compare("a", &digest), None);
            assert!(siblings.kinds.len() <= MOST_KINDS);
        }
    }
}
