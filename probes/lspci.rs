//! Saved output of `lspci -x`, `-xxx` and `-xxxx`: device lines, each with its bytes below it.
//!
//! `-v` text between them is skipped, but for the signs of a device that does not answer. A dump
//! that was cut, pasted with blanks in front, or tagged with a rank by a launcher is still read.

/// A device of a dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// `0000:c1:00.0`
    pub bdf: String,
    /// The class and ids that the text gives, where `-n` or `-nn` printed them.
    pub ids: Option<(u16, u16)>,
    /// The class by text, likewise.
    pub class: Option<u16>,
    /// Its config space, as far as the dump has it.
    pub bytes: Vec<u8>,
    /// The text says that the device does not answer.
    pub dead: bool,
    /// Lines of bytes are missing or broken.
    pub damaged: bool,
    /// Which of the runs in the file it belongs to, from 1.
    pub run: usize,
}

/// What a dump holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    /// In the order in which they came.
    pub devices: Vec<Device>,
    /// How often a device list began anew.
    pub runs: usize,
    /// It ends inside a device.
    pub cut: bool,
    /// It is what `lspci` prints, bytes or not.
    pub recognised: bool,
}

/// As many functions as a PCI domain can have; a longer list is not a machine's, and is cut here.
const DEVICES: usize = 65_536;

/// What `lspci -v` prints of any device; enough to know its text by.
const TEXT_SIGNS: [&str; 6] =
    ["Capabilities: ", "Control: I/O", "Subsystem: ", "Flags: ", "LnkCap:", "Kernel driver in use: "];

/// Reads a dump from its lines.
pub fn read(lines: impl Iterator<Item = impl AsRef<str>>) -> Dump {
    let mut dump = Dump::default();
    let mut names = std::collections::HashSet::new();
    let (mut last, mut after_bytes) = (Last::Other, false);
    for line in lines {
        last = match classify(line.as_ref()) {
            Row::Device { .. } if dump.devices.len() == DEVICES => {
                dump.cut = true;
                return dump;
            }
            Row::Device { bdf, rest } => {
                if dump.runs == 0 || !names.insert(bdf.clone()) {
                    names.clear();
                    names.insert(bdf.clone());
                    dump.runs += 1;
                }
                dump.recognised |= rest.contains(": ");
                let (class, ids) = numbers(rest);
                let dead = rest.contains("(rev ff)");
                dump.devices.push(Device { bdf, ids, class, dead, run: dump.runs, ..Device::default() });
                Last::Name
            }
            Row::Bytes { offset, bytes, whole } => match dump.devices.last_mut() {
                Some(device) if device.bytes.len() == offset && bytes.len() + offset <= 4096 => {
                    dump.recognised = true;
                    device.bytes.extend(bytes);
                    device.damaged |= !whole;
                    Last::Bytes
                }
                Some(device) => {
                    device.damaged = true;
                    Last::Bytes
                }
                None => Last::Other,
            },
            Row::Other(text) => {
                dump.recognised |= TEXT_SIGNS.iter().any(|sign| text.starts_with(sign));
                if let Some(device) = dump.devices.last_mut() {
                    device.dead |= text.contains("Unknown header type 7f");
                    device.damaged |= after_bytes && !text.is_empty() && looks_like_bytes(text);
                }
                if text.is_empty() && matches!(last, Last::Bytes) { Last::Blank } else { Last::Other }
            }
        };
        after_bytes = matches!(last, Last::Bytes);
    }
    // A device line that is the last one is all that a cut has left of a device.
    dump.recognised |= matches!(last, Last::Name);
    dump.cut = dump.ends_inside(last);
    dump
}

/// What the last line was.
#[derive(Clone, Copy)]
enum Last {
    Name,
    Bytes,
    Blank,
    Other,
}

/// What a line is.
enum Row<'a> {
    Device { bdf: String, rest: &'a str },
    Bytes { offset: usize, bytes: Vec<u8>, whole: bool },
    Other(&'a str),
}

impl Device {
    /// No device answers at this address.
    pub fn unreachable(&self) -> bool {
        self.dead || crate::config_space::decode(&self.bytes) == Err(crate::config_space::Unreadable::AllOnes)
    }

    /// Its bytes are as many as one of lspci's options prints.
    pub fn complete(&self) -> bool {
        let cardbus = self.bytes.get(0x0e).is_some_and(|kind| kind & 0x7f == 2);
        let sizes: &[usize] = if cardbus { &[64, 128, 256, 4096] } else { &[64, 256, 4096] };
        self.unreachable() || (!self.damaged && sizes.contains(&self.bytes.len()))
    }
}

impl Dump {
    /// `lspci` closes every device with an empty line. Without one, a last device with fewer bytes
    /// than its neighbours was cut where a shorter dump would have ended.
    fn ends_inside(&self, last: Last) -> bool {
        let Some((device, others)) = self.devices.split_last() else { return false };
        match last {
            Last::Blank | Last::Other => false,
            Last::Name => others.iter().any(|other| !other.bytes.is_empty()),
            Last::Bytes if !device.complete() => true,
            Last::Bytes => {
                let longest = others.iter().map(|other| other.bytes.len()).max().unwrap_or(0);
                let express = crate::config_space::decode(&device.bytes)
                    .is_ok_and(|space| space.express.is_some() || space.bytes == 64);
                !device.unreachable() && device.bytes.len() < longest && express
            }
        }
    }
}

fn classify(line: &str) -> Row<'_> {
    let text = line.trim();
    let untagged = |text: &str| -> Option<usize> {
        let (rank, rest) = text.split_once(": ")?;
        let tag = !rank.is_empty() && rank.len() <= 6 && rank.bytes().all(|byte| byte.is_ascii_digit());
        tag.then(|| text.len() - rest.len())
    };
    device_line(text)
        .or_else(|| bytes_line(text))
        .or_else(|| {
            // `srun -l` puts the rank in front; a line of bytes looks like that by itself, so it
            // was tried first.
            let rest = text.get(untagged(text)?..)?.trim();
            device_line(rest).or_else(|| bytes_line(rest))
        })
        .unwrap_or(Row::Other(text))
}

/// `[domain:]bus:device.function`, then a blank or the end of the line.
fn device_line(text: &str) -> Option<Row<'_>> {
    let (name, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
    Some(Row::Device { bdf: full_address(name)?, rest })
}

/// A PCI address with its domain, in lower case; none if it is not one.
pub fn full_address(name: &str) -> Option<String> {
    let (rest, function) = name.rsplit_once('.')?;
    let mut parts = rest.rsplit(':');
    let (device, bus, domain) = (parts.next()?, parts.next()?, parts.next().unwrap_or("0000"));
    let hex = |text: &str, digits: std::ops::RangeInclusive<usize>| {
        digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let device_number = u8::from_str_radix(device, 16).ok()?;
    let right = parts.next().is_none()
        && hex(domain, 4..=8)
        && hex(bus, 2..=2)
        && hex(device, 2..=2)
        && device_number < 32
        && matches!(function.as_bytes(), [b'0'..=b'7']);
    right.then(|| format!("{domain}:{bus}:{device}.{function}").to_ascii_lowercase())
}

/// `offset: bytes`. A last word that is not a whole byte is where the line was cut.
fn bytes_line(text: &str) -> Option<Row<'_>> {
    let (offset, rest) = text.split_once(':')?;
    if !(2..=3).contains(&offset.len()) || !offset.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let offset = usize::from_str_radix(offset, 16).ok()?;
    let (mut bytes, mut whole) = (Vec::with_capacity(16), true);
    for word in rest.split_whitespace() {
        match u8::from_str_radix(word, 16) {
            Ok(byte) if whole && word.len() == 2 && bytes.len() < 16 => bytes.push(byte),
            Ok(_) if whole && word.len() == 1 => whole = false,
            Ok(_) | Err(_) => return None,
        }
    }
    whole &= bytes.len() == 16;
    (offset.is_multiple_of(16) && (!bytes.is_empty() || rest.trim().is_empty())).then_some(Row::Bytes {
        offset,
        bytes,
        whole,
    })
}

/// Whether a line that could not be read was meant to hold bytes.
fn looks_like_bytes(text: &str) -> bool {
    text.split_once(':').is_some_and(|(offset, _)| {
        (2..=3).contains(&offset.len())
            && offset.ends_with('0')
            && offset.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Class and ids of a device line, as `-n` (`0200: 15b3:1021`) or `-nn` (`[0200]: .. [15b3:1021]`)
/// print them.
fn numbers(rest: &str) -> (Option<u16>, Option<(u16, u16)>) {
    let hex = |text: &str| (text.len() == 4).then(|| u16::from_str_radix(text, 16).ok()).flatten();
    let pair = |text: &str| {
        let (vendor, device) = text.split_once(':')?;
        Some((hex(vendor)?, hex(device)?))
    };
    let mut words = rest.split_whitespace();
    if let Some(class) = words.next().and_then(|word| hex(word.strip_suffix(':')?)) {
        return (Some(class), words.next().and_then(pair));
    }
    let mut brackets = rest.split('[').skip(1).filter_map(|part| part.split(']').next());
    (brackets.clone().find_map(hex), brackets.find_map(pair))
}

#[cfg(test)]
mod tests;
