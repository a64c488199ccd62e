//! One output of perftest, down to what the probes take of it.

use std::{fmt, net::Ipv6Addr};

use crate::{Output, ParseError};

/// What one perftest process printed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    /// The message size, in bytes.
    pub(super) size: u64,
    /// One direction's payload; none if it measured nothing.
    pub(super) bytes_per_second: Option<f64>,
    /// Latencies; none in a bandwidth test.
    pub(super) times: Option<Times>,
    /// The other end's GID; none on InfiniBand.
    pub(super) remote_gid: Option<Ipv6Addr>,
    /// The GPU whose memory it used, as far as it says.
    pub(super) gpu: Option<UsedGpu>,
}

/// Latencies, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Times {
    /// The median.
    pub(super) typical: f64,
    pub(super) average: Option<f64>,
    pub(super) p99: Option<f64>,
    pub(super) p999: Option<f64>,
}

/// What perftest says of a GPU's place: parts of a PCI address, since it prints no domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UsedGpu {
    pub(super) bus: u8,
    /// Printed for CUDA only.
    pub(super) device: Option<u8>,
}

impl UsedGpu {
    /// Whether it can be the GPU at this address.
    pub(super) fn is(self, pci: &str) -> bool {
        let mut parts = pci.split([':', '.']).skip(1).map(|part| u8::from_str_radix(part, 16).ok());
        let (bus, device) = (parts.next().flatten(), parts.next().flatten());
        bus == Some(self.bus) && self.device.is_none_or(|own| device == Some(own))
    }
}

impl fmt::Display for UsedGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.device {
            Some(device) => write!(f, "{:02x}:{device:02x}", self.bus),
            None => write!(f, "bus {:02x}", self.bus),
        }
    }
}

/// Reads what one process printed.
pub(super) fn figures(output: &Output) -> Result<Figures, ParseError> {
    let _ = output;
    Err(ParseError::Missing("row of figures"))
}
