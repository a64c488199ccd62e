//! Who the other agents are, and with whom this one measures when. Pure: no clock, no I/O but for
//! the files of the membership.

pub(crate) mod hash;
pub(crate) mod membership;
pub(crate) mod pairing;
pub(crate) mod plan;
pub(crate) mod slot;
pub(crate) mod watch;
