//! PCI config space, from bytes to what they mean.
//!
//! The bytes come from a device that may be dying, a dump that may be cut, or a kernel that shows
//! the first 64 of them only. So every read is bounded, every list is walked once at most, and what
//! is not there is absent: a width of zero or a speed code that nobody has defined is no number.
//! All ones is what a bus reads where no device answers, and is refused before anything is decoded.

use serde::{Deserialize, Serialize};

/// The header that every function has, and all that an unprivileged reader gets.
pub const HEADER_BYTES: usize = 64;
/// Config space of conventional PCI.
pub const LEGACY_BYTES: usize = 256;
/// Config space of PCI Express.
pub const EXTENDED_BYTES: usize = 4096;

/// `ReqRedir`, `CmpltRedir` and `UpstreamFwd` of an ACS control register: the bits that send
/// traffic between two devices below a switch up to the root complex.
pub const ACS_REDIRECT: u16 = 0x1c;

/// The capability list bit of the status register.
const STATUS_CAPABILITIES: u16 = 1 << 4;

/// What the bytes say.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ConfigSpace {
    /// How many bytes there were.
    pub bytes: usize,
    /// Vendor id; none on a virtual function, which reads all ones there.
    pub vendor: Option<u16>,
    /// Device id; none on a virtual function.
    pub device: Option<u16>,
    /// Base class, subclass and interface, `0x020000`.
    pub class: Option<u32>,
    /// The buses behind a bridge.
    pub buses: Option<Buses>,
    /// Whether the capabilities are there to be read. None where the bytes end before the answer.
    pub capabilities: Option<Capabilities>,
    /// The PCI Express capability.
    pub express: Option<Express>,
    /// Access control services; none without the capability or without extended config space.
    pub acs: Option<Acs>,
    /// Advanced error reporting; none without the capability or without extended config space.
    pub aer: Option<Aer>,
}

/// Whether capabilities could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Capabilities {
    /// The function has no list.
    None,
    /// There is a list, and the header only to read: the reader lacks the privilege.
    Hidden,
    /// There is a list, and bytes beyond the header.
    Readable,
}

/// The bus numbers of a bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Buses {
    /// The bus that the bridge is on.
    pub primary: u8,
    /// The bus right behind it.
    pub secondary: u8,
    /// The highest bus behind it.
    pub subordinate: u8,
}

/// The PCI Express capability.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Express {
    /// Where it begins in config space.
    pub offset: u16,
    /// Its version.
    pub version: u8,
    /// What kind of function it is; none for a code that is not defined.
    pub kind: Option<Kind>,
    /// The largest payload that the function can take, in bytes.
    pub max_payload_cap: Option<u32>,
    /// Whether it can use 8-bit tags.
    pub extended_tags_cap: Option<bool>,
    /// The device control register as it is, to compute what to write.
    pub device_control: Option<u16>,
    /// The largest payload that it sends, in bytes.
    pub max_payload: Option<u32>,
    /// The largest read that it asks for, in bytes.
    pub max_read_request: Option<u32>,
    /// Whether it may mark requests as relaxed in order.
    pub relaxed_ordering: Option<bool>,
    /// Whether it uses 8-bit tags.
    pub extended_tags: Option<bool>,
    /// Whether it can ask with 10-bit tags; none before version 2.
    pub ten_bit_tags_cap: Option<bool>,
    /// Whether it asks with 10-bit tags; none before version 2.
    pub ten_bit_tags: Option<bool>,
    /// The highest speed that it can do, in GT/s.
    pub max_speed: Option<f64>,
    /// The greatest width that it can do, in lanes.
    pub max_width: Option<u32>,
    /// The speed of its link, in GT/s.
    pub speed: Option<f64>,
    /// The width of its link, in lanes.
    pub width: Option<u32>,
}

/// What a PCI Express function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A device.
    Endpoint,
    /// A device that needs I/O space or locked reads.
    LegacyEndpoint,
    /// A link's upper end, at the root complex.
    RootPort,
    /// A switch's end of the link towards the root complex.
    UpstreamPort,
    /// A switch's end of a link away from the root complex.
    DownstreamPort,
    /// From PCI Express above to PCI below.
    ExpressToPciBridge,
    /// From PCI above to PCI Express below.
    PciToExpressBridge,
    /// A device inside the root complex, without a link.
    IntegratedEndpoint,
    /// Collects errors of integrated endpoints, without a link.
    EventCollector,
}

/// Access control services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Acs {
    /// Where the capability begins in config space.
    pub offset: u16,
    /// What the function can do.
    pub capability: u16,
    /// What is switched on.
    pub control: u16,
}

/// Advanced error reporting: errors since the status was last cleared, one bit a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Aer {
    /// Uncorrectable errors.
    pub uncorrectable: Option<u32>,
    /// Correctable errors.
    pub correctable: Option<u32>,
}

/// Why there is nothing to decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unreadable {
    /// There are no bytes.
    #[error("config space is empty")]
    Empty,
    /// No device answers.
    #[error("config space reads all ones: no device answers")]
    AllOnes,
}

/// Decodes config space, however much of it there is.
///
/// # Errors
///
/// When there is nothing, or when it is what a bus reads where no device answers.
pub fn decode(bytes: &[u8]) -> Result<ConfigSpace, Unreadable> {
    if bytes.is_empty() {
        return Err(Unreadable::Empty);
    }
    if bytes.iter().take(HEADER_BYTES).all(|byte| *byte == 0xff) {
        return Err(Unreadable::AllOnes);
    }
    let space = Bytes(bytes);
    let header = space.u8(0x0e).map(|kind| kind & 0x7f);
    let mut decoded = ConfigSpace {
        bytes: bytes.len(),
        vendor: space.u16(0).filter(|id| *id != 0xffff),
        device: space.u16(2).filter(|id| *id != 0xffff),
        class: space.u32(8).map(|word| word >> 8),
        buses: (header == Some(1)).then(|| space.buses()).flatten(),
        ..ConfigSpace::default()
    };
    decoded.capabilities = match space.u16(6) {
        Some(status) if status & STATUS_CAPABILITIES == 0 => Some(Capabilities::None),
        Some(_) if bytes.len() == HEADER_BYTES => Some(Capabilities::Hidden),
        Some(_) if bytes.len() > HEADER_BYTES => Some(Capabilities::Readable),
        Some(_) | None => None,
    };
    if decoded.capabilities == Some(Capabilities::Readable) {
        let first = if header == Some(2) { 0x14 } else { 0x34 };
        decoded.express = space.capability(first, 0x10).and_then(|at| space.express(at));
    }
    if decoded.express.is_some() {
        decoded.acs = space.extended_capability(0x0d).and_then(|at| space.acs(at));
        decoded.aer = space.extended_capability(0x01).map(|at| Aer {
            uncorrectable: space.u32(usize::from(at) + 4),
            correctable: space.u32(usize::from(at) + 0x10),
        });
    }
    Ok(decoded)
}

impl ConfigSpace {
    /// Base class and subclass, `0x0200`.
    pub fn short_class(&self) -> Option<u16> {
        self.class.and_then(|class| u16::try_from(class >> 8).ok())
    }
}

impl Acs {
    /// Whether traffic between devices below is sent up to the root complex. Source validation
    /// and translation blocking do not do that.
    pub fn redirects(self) -> bool {
        self.control & ACS_REDIRECT != 0
    }

    /// The names of the bits that redirect and are on.
    pub fn redirect_bits(self) -> Vec<&'static str> {
        let bits = [(0x04, "ReqRedir"), (0x08, "CmpltRedir"), (0x10, "UpstreamFwd")];
        bits.iter().filter(|(bit, _)| self.control & bit != 0).map(|(_, name)| *name).collect()
    }
}

impl Kind {
    /// The words that `lspci` prints.
    pub fn words(self) -> &'static str {
        match self {
            Kind::Endpoint => "Endpoint",
            Kind::LegacyEndpoint => "Legacy Endpoint",
            Kind::RootPort => "Root Port",
            Kind::UpstreamPort => "Upstream Port",
            Kind::DownstreamPort => "Downstream Port",
            Kind::ExpressToPciBridge => "PCI-Express to PCI/PCI-X Bridge",
            Kind::PciToExpressBridge => "PCI/PCI-X to PCI-Express Bridge",
            Kind::IntegratedEndpoint => "Root Complex Integrated Endpoint",
            Kind::EventCollector => "Root Complex Event Collector",
        }
    }

    /// A device at the lower end of a link.
    pub fn is_endpoint(self) -> bool {
        matches!(self, Kind::Endpoint | Kind::LegacyEndpoint)
    }

    /// The upper end of a link: it shows the link's state, and its partner below is what matters.
    pub fn is_upper_end(self) -> bool {
        matches!(self, Kind::RootPort | Kind::DownstreamPort | Kind::PciToExpressBridge)
    }

    fn from_code(code: u16) -> Option<Kind> {
        Some(match code {
            0x0 => Kind::Endpoint,
            0x1 => Kind::LegacyEndpoint,
            0x4 => Kind::RootPort,
            0x5 => Kind::UpstreamPort,
            0x6 => Kind::DownstreamPort,
            0x7 => Kind::ExpressToPciBridge,
            0x8 => Kind::PciToExpressBridge,
            0x9 => Kind::IntegratedEndpoint,
            0xa => Kind::EventCollector,
            _ => return None,
        })
    }

    fn has_link(self) -> bool {
        !matches!(self, Kind::IntegratedEndpoint | Kind::EventCollector)
    }
}

/// Little-endian reads that end where the bytes do.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u8(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn u16(self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(self.0.get(at..at.checked_add(2)?)?.try_into().ok()?))
    }

    fn u32(self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.0.get(at..at.checked_add(4)?)?.try_into().ok()?))
    }

    fn buses(self) -> Option<Buses> {
        Some(Buses { primary: self.u8(0x18)?, secondary: self.u8(0x19)?, subordinate: self.u8(0x1a)? })
    }

    /// Where the capability `id` begins. The list can't be longer than the space it lies in, which
    /// also ends one that loops.
    fn capability(self, first: usize, id: u8) -> Option<u16> {
        let mut at = self.u8(first)? & !3;
        for _ in 0..LEGACY_BYTES / 4 {
            if usize::from(at) < HEADER_BYTES {
                return None;
            }
            match self.u8(at.into())? {
                0xff => return None,
                found if found == id => return Some(at.into()),
                _ => at = self.u8(usize::from(at) + 1)? & !3,
            }
        }
        None
    }

    /// Where the extended capability `id` begins.
    fn extended_capability(self, id: u32) -> Option<u16> {
        let mut at = LEGACY_BYTES;
        for _ in 0..(EXTENDED_BYTES - LEGACY_BYTES) / 4 {
            let header = self.u32(at)?;
            if at < LEGACY_BYTES || header == 0 || header == u32::MAX {
                return None;
            }
            if header & 0xffff == id {
                return u16::try_from(at).ok();
            }
            at = usize::try_from(header >> 20).ok()? & !3;
        }
        None
    }

    fn express(self, offset: u16) -> Option<Express> {
        let at = usize::from(offset);
        let flags = self.u16(at + 2)?;
        let kind = Kind::from_code(flags >> 4 & 0xf);
        let device = self.u32(at + 4);
        let control = self.u16(at + 8);
        let second = flags & 0xf >= 2;
        let device2 = self.u32(at + 0x24).filter(|_| second);
        let control2 = self.u16(at + 0x28).filter(|_| second);
        let has_link = kind.is_none_or(Kind::has_link);
        let link = self.u32(at + 0x0c).filter(|_| has_link);
        let status = self.u16(at + 0x12).filter(|_| has_link).map(u32::from);
        Some(Express {
            offset,
            version: (flags & 0xf).try_into().ok()?,
            kind,
            max_payload_cap: device.and_then(|word| size(word & 7)),
            extended_tags_cap: device.map(|word| word & 1 << 5 != 0),
            device_control: control,
            max_payload: control.and_then(|word| size(u32::from(word >> 5 & 7))),
            max_read_request: control.and_then(|word| size(u32::from(word >> 12 & 7))),
            relaxed_ordering: control.map(|word| word & 1 << 4 != 0),
            extended_tags: control.map(|word| word & 1 << 8 != 0),
            ten_bit_tags_cap: device2.map(|word| word & 1 << 17 != 0),
            ten_bit_tags: control2.map(|word| word & 1 << 12 != 0),
            max_speed: link.and_then(speed),
            max_width: link.and_then(width),
            speed: status.and_then(speed),
            width: status.and_then(width),
        })
    }

    fn acs(self, offset: u16) -> Option<Acs> {
        let at = usize::from(offset);
        Some(Acs { offset, capability: self.u16(at + 4)?, control: self.u16(at + 6)? })
    }
}

/// A payload or read request size by its code, in bytes.
fn size(code: u32) -> Option<u32> {
    (code <= 5).then(|| 128 << code)
}

/// The speed code of a link register, in GT/s.
fn speed(register: u32) -> Option<f64> {
    let speeds = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0];
    let code = usize::try_from(register & 0xf).ok()?;
    speeds.get(code.checked_sub(1)?).copied()
}

/// The width of a link register, in lanes; none for a number that no link can have.
fn width(register: u32) -> Option<u32> {
    Some(register >> 4 & 0x3f).filter(|lanes| [1, 2, 4, 8, 12, 16, 32].contains(lanes))
}

#[cfg(test)]
mod tests;
