//! PCIe links as they were while data moved: what tells a link that is asleep from one that is slow.

use std::collections::BTreeMap;

use crate::inventory::Link;

/// For how long it says something, in seconds: a link that trained badly since then is found when
/// data next moves.
const HOLDS: f64 = 86_400.0;

/// What `host_copy` last saw, by the function at the lower end of the link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadedLinks(BTreeMap<String, (f64, Link)>);

impl LoadedLinks {
    /// Nothing is known.
    pub const fn none() -> &'static LoadedLinks {
        static NONE: LoadedLinks = LoadedLinks(BTreeMap::new());
        &NONE
    }

    /// Takes what was seen at `now`, in seconds since the epoch.
    pub fn see(&mut self, now: f64, seen: impl IntoIterator<Item = (String, Link)>) {
        self.0.extend(seen.into_iter().map(|(pci, link)| (pci, (now, link))));
    }

    /// The link above this function, and how long ago it was seen, in seconds.
    pub fn get(&self, pci: &str, now: f64) -> Option<(f64, &Link)> {
        let (at, link) = self.0.get(pci)?;
        let age = now - at;
        (0.0..HOLDS).contains(&age).then_some((age, link))
    }
}
