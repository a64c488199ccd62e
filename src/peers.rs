//! Who measures with whom, and when: every agent works it out by itself, and all come to the same.
//!
//! There is no coordinator. Agents that have the same list of members and about the same time
//! compute the same pairs for a slot. Where lists differ, a few pairs differ, and the agents
//! concerned find each other by asking.

pub(crate) mod coverage;
pub(crate) mod hash;
pub(crate) mod membership;
pub(crate) mod pairing;
pub(crate) mod plan;
pub(crate) mod slot;
pub(crate) mod watch;
