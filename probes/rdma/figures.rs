//! One output of perftest, down to what the probes take of it.

use std::{fmt, net::Ipv6Addr};

use crate::{Output, ParseError, perftest};

/// What one perftest process printed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
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

impl Times {
    fn of(row: &perftest::Times) -> Option<Times> {
        let seconds = |figure: Option<perftest::Figure>| figure.and_then(|figure| figure.base);
        Some(Times {
            typical: seconds(row.typical).filter(|typical| *typical > 0.0)?,
            average: seconds(row.average),
            p99: seconds(row.p99),
            p999: seconds(row.p999),
        })
    }
}

/// What perftest says of a GPU's place: parts of a PCI address, since it prints no domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UsedGpu {
    pub(super) bus: u8,
    /// Printed for CUDA only.
    pub(super) device: Option<u8>,
}

impl UsedGpu {
    /// Reads `29:00`, as printed for CUDA, or `0x9`, for ROCm.
    fn parse(text: &str) -> Option<UsedGpu> {
        let hex = |text: &str| u8::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        let (bus, device) = match text.split_once(':') {
            Some((bus, device)) => (bus, Some(hex(device)?)),
            None => (text, None),
        };
        Some(UsedGpu { bus: hex(bus)?, device })
    }

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

/// Reads what one process printed of messages of `size` bytes.
pub(super) fn figures(output: &Output, size: u64) -> Result<Figures, ParseError> {
    let log = perftest::read(&output.stdout, &output.stderr, None);
    if let Some(cause) = log.cause() {
        return Err(ParseError::Foreign(cause));
    }
    let run = log.last().filter(|_| log.complete).ok_or(ParseError::Missing("closed table of perftest"))?;
    let row = run.rows.iter().find(|row| row.size == Some(size.into())).ok_or_else(|| {
        ParseError::Foreign(format!(
            "perftest printed no row for the {size} bytes that were asked for: the other end runs with other \
             options"
        ))
    })?;
    let average = run.one_way(row).filter(|average| *average > 0.0);
    Ok(Figures {
        bytes_per_second: average.and_then(|average| run.unit?.base(average)),
        times: Times::of(&row.times),
        remote_gid: run.remote.gid.map(Ipv6Addr::from),
        gpu: run.gpu.bdf.as_deref().and_then(UsedGpu::parse),
    })
}
