//! Measuring together with another agent: leases, asked for and granted.
//!
//! The opener's lane leads: it asks for the partner's half of each stage, and makes its own. Either
//! side's gate decides for its own node. A lease locks the device on both sides, ends by itself,
//! and ends with the connection that it was asked for on.

pub(crate) mod grant;
pub(crate) mod half;
pub(crate) mod identity;
pub(crate) mod lease;
mod link;
mod message;
pub(crate) mod ports;
pub(crate) mod rounds;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod skew;
pub(crate) mod stage;
