//! PCI functions as the kernel shows them: addresses, links in words, error counts, and the way up.

use probes::{
    inventory::{Function, Link},
    lspci::full_address,
    pcie::Errors,
};

use super::{Dir, Progress, ReadError};

/// Where the kernel lists every function, below `/sys`.
const DEVICES: &str = "bus/pci/devices";

/// How far above a device its PCI function can be; a class device is one or two levels below it.
const PARENTS: usize = 8;

/// The folder of all functions.
pub(crate) fn devices(sysfs: &std::path::Path, progress: Progress) -> Dir {
    Dir::at(sysfs, progress).dir(DEVICES)
}

/// Whether a name is a PCI address as the kernel writes it, and so safe as a part of a path.
pub(crate) fn is_address(name: &str) -> bool {
    full_address(name).as_deref() == Some(name)
}

/// What never changes and never touches the device: ids, class, driver and the bridges above.
/// None if it is not a PCI function.
pub(crate) fn identity(dir: &Dir) -> Result<Option<Function>, ReadError> {
    let (Some(vendor), Some(device), Some(class)) =
        (dir.number("vendor")?, dir.number("device")?, dir.number("class")?)
    else {
        return Ok(None);
    };
    Ok(Some(Function {
        pci: dir.name(),
        vendor,
        device,
        class,
        driver: dir.link_name("driver"),
        path: bridges(dir)?,
        ..Function::default()
    }))
}

/// The bridges above a function, nearest first: each is the folder that the next one is in.
fn bridges(dir: &Dir) -> Result<Vec<String>, ReadError> {
    let resolved = dir.resolved()?;
    let parts = resolved.path.components().rev().skip(1);
    Ok(parts
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .take_while(|name| is_address(name))
        .collect())
}

/// The PCI function that a device such as `class/net/eth0/device` belongs to. Some drivers put a
/// device of their own in between, so the nearest parent that is a PCI function is meant.
pub(crate) fn behind(device: &Dir) -> Result<Option<String>, ReadError> {
    if !device.has("") {
        return Ok(None);
    }
    let resolved = device.resolved()?;
    for path in resolved.path.ancestors().take(PARENTS) {
        let parent = Dir::at(path, resolved.progress.clone());
        if is_address(&parent.name()) && (parent.has("config") || parent.has("vendor")) {
            return Ok(Some(parent.name()));
        }
    }
    Ok(None)
}

/// The NUMA node; none where the kernel says -1.
pub(crate) fn numa(dir: &Dir) -> Result<Option<u32>, ReadError> {
    let text = dir.text("numa_node")?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// The link by text attributes; none without PCIe.
pub(crate) fn link(dir: &Dir) -> Result<Option<Link>, ReadError> {
    let (width, max_width) = (dir.text("current_link_width")?, dir.text("max_link_width")?);
    if width.is_none() && max_width.is_none() {
        return Ok(None);
    }
    let speed = |name| Ok(dir.text(name)?.as_deref().and_then(speed));
    Ok(Some(Link {
        speed: speed("current_link_speed")?,
        width: width.as_deref().and_then(lanes),
        max_speed: speed("max_link_speed")?,
        max_width: max_width.as_deref().and_then(lanes),
    }))
}

/// `16.0 GT/s PCIe`, of older kernels `16 GT/s`; `Unknown` and `Unknown speed` are none.
fn speed(text: &str) -> Option<f64> {
    let (number, _) = text.split_once(" GT/s")?;
    number.parse().ok().filter(|speed| *speed > 0.0)
}

/// Lanes. The kernel says 0 for a link that is down, and 255 for one that it can't tell.
fn lanes(text: &str) -> Option<u32> {
    text.parse().ok().filter(|lanes| (1..=32).contains(lanes))
}

/// AER counts, and what could not be read of them; none where the kernel counts none.
pub(crate) fn errors(dir: &Dir) -> (Option<Errors>, Vec<ReadError>) {
    let mut problems = Vec::new();
    let mut count = |file: &str, total: &str| {
        let text = dir.text(file).unwrap_or_else(|error| {
            problems.push(error);
            None
        })?;
        let number = text.lines().find_map(|line| line.strip_prefix(total)?.trim().parse().ok());
        if number.is_none() {
            problems.push(ReadError::NotANumber { path: dir.path.join(file), text });
        }
        number
    };
    let errors = Errors {
        correctable: count("aer_dev_correctable", "TOTAL_ERR_COR"),
        nonfatal: count("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL"),
        fatal: count("aer_dev_fatal", "TOTAL_ERR_FATAL"),
    };
    ((errors != Errors::default()).then_some(errors), problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_and_widths_of_every_kernel() {
        let table = [
            ("16.0 GT/s PCIe", Some(16.0)),
            ("16 GT/s", Some(16.0)),
            ("2.5 GT/s PCIe", Some(2.5)),
            ("Unknown", None),
            ("Unknown speed", None),
            ("", None),
        ];
        for (text, want) in table {
            assert_eq!(speed(text), want, "{text}");
        }
        for (text, want) in [("16", Some(16)), ("0", None), ("255", None), ("x8", None), ("", None)] {
            assert_eq!(lanes(text), want, "{text}");
        }
    }

    #[test]
    fn only_a_whole_address_is_one() {
        for name in ["0000:c1:00.0", "10000:01:1f.7"] {
            assert!(is_address(name), "{name}");
        }
        for name in ["c1:00.0", "0000:C1:00.0", "0000:c1:00.0/..", "..", "", "0000:c1:00.8", "0000:c1:00.0\n"]
        {
            assert!(!is_address(name), "{name:?}");
        }
    }
}
