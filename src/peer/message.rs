//! What agents say to each other. Versioned by the path `/peer/v1`.
//!
//! Nothing in a message becomes a path, a flag or an address. A name is looked up among what the
//! receiver knows, a number is checked against its own bounds, and everything else is for people.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

/// The largest message that is read, in bytes: a few names and numbers.
pub(crate) const MESSAGE_BYTES: usize = 16 * 1024;

/// The most of a partner's words that are kept, in characters: a sentence.
const WORDS: usize = 300;

/// Refusals that the opener acts upon, beside the words of its own gate's skips.
pub(crate) const NOT_DUE: &str = "not_due";
pub(crate) const NO_RAIL: &str = "no_rail";
pub(crate) const UNSUPPORTED: &str = "unsupported";

/// Asks for a lease.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct LeaseRequest {
    /// Who asks; its certificate must say the same.
    pub(crate) opener: String,
    /// Who is meant: an agent of another name at this address refuses.
    pub(crate) partner: String,
    /// Which rail, counted from 0.
    pub(crate) rail: usize,
    /// What the lease is for.
    pub(crate) probes: Vec<String>,
    /// Whether a person asks. Otherwise the partner may say that its own rail needs none.
    pub(crate) on_demand: bool,
    /// Whether the opener's own rail has to be measured now.
    pub(crate) due: bool,
    /// What has to be equal on both sides.
    pub(crate) parameters: BTreeMap<String, serde_json::Value>,
    pub(crate) end: End,
}

/// What one side says of its own end of the wire.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct End {
    /// The name of its RDMA device, for people.
    pub(crate) device: String,
    /// Where its servers listen.
    pub(crate) port: u16,
    /// The GID that its device uses; none on InfiniBand.
    pub(crate) gid: Option<std::net::Ipv6Addr>,
    pub(crate) bits_per_second: Option<f64>,
    /// Its wall clock, in seconds since the epoch.
    pub(crate) now: f64,
}

/// A lease that was granted.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct LeaseGranted {
    pub(crate) id: u64,
    pub(crate) end: End,
    /// What can't be done in this lease, and why.
    pub(crate) unsupported: BTreeMap<String, String>,
    /// When the granting side ends the lease by itself, in seconds from now.
    pub(crate) seconds: f64,
}

/// Asks for the partner's half of a stage. Stages come in order; the first one begins a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct StageRequest {
    pub(crate) probe: String,
    pub(crate) stage: usize,
    /// Host memory bandwidth was measured in this lease already.
    pub(crate) host_known: bool,
}

/// Why not.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Refusal {
    /// A word: that of a skip, or [`NOT_DUE`], `unknown_peer`, `parameters_differ` ..
    pub(crate) reason: String,
    /// The same for a person.
    pub(crate) detail: String,
    /// When asking again makes sense, in seconds.
    pub(crate) retry_after: f64,
}

impl Refusal {
    pub(crate) fn new(reason: &str, detail: impl Into<String>, retry_after: Duration) -> Refusal {
        Refusal { reason: reason.into(), detail: detail.into(), retry_after: retry_after.as_secs_f64() }
    }
}

/// A partner's words on one line of bounded length: they end up in logs and on pages.
pub(crate) fn plain(words: &str) -> String {
    words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partners_words_are_one_short_line() {
        assert_eq!(plain("a\nb\u{1b}[31m"), "a b [31m");
        assert_eq!(plain(&"é".repeat(1000)).chars().count(), WORDS);
    }

    #[test]
    fn a_newer_agent_may_say_more() {
        let text = r#"{"probe":"gdr","stage":1,"host_known":false,"colour":"blue"}"#;
        assert_eq!(serde_json::from_str::<StageRequest>(text).unwrap().stage, 1);
    }
}
