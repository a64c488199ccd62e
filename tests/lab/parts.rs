//! Registers of the PCI Express capability by name, as both suites change them.

use crate::registers::{Register, Registers};

/// The extended capability of Access Control Services.
const ACS: u32 = 0x000d;

/// Fields of a PCI Express function that say what its link and its requests can do and do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// What the function can do: speed code, then width, as [`link`] puts them together.
    Capability,
    /// What the link does, likewise.
    Status,
    PayloadCapability,
    Payload,
    ReadRequest,
    RelaxedOrdering,
    ExtendedTags,
    TenBitTags,
    AccessControl,
}

impl Field {
    pub(crate) const ALL: [Field; 9] = [
        Field::Capability,
        Field::Status,
        Field::PayloadCapability,
        Field::Payload,
        Field::ReadRequest,
        Field::RelaxedOrdering,
        Field::ExtendedTags,
        Field::TenBitTags,
        Field::AccessControl,
    ];

    /// Its register and its lowest and highest bit; none if the function lacks it.
    fn place(self, registers: &Registers, pci: &str) -> Option<(Register, u32, u32)> {
        let express = |offset, size| registers.express(pci, offset, size);
        let (register, lowest, highest) = match self {
            Field::Capability => (express(0x0c, 4), 0, 9),
            // QEMU lets that of an upper end follow the function below.
            Field::Status => (express(0x12, 2).filter(|_| !is_upper_end(registers, pci)), 0, 9),
            Field::PayloadCapability => (express(0x04, 4), 0, 2),
            Field::Payload => (express(0x08, 2), 5, 7),
            Field::ReadRequest => (express(0x08, 2), 12, 14),
            Field::RelaxedOrdering => (express(0x08, 2), 4, 4),
            Field::ExtendedTags => (express(0x08, 2), 8, 8),
            Field::TenBitTags => (express(0x28, 2).filter(|_| version(registers, pci) >= 2), 12, 12),
            Field::AccessControl => (registers.extended(pci, ACS, 6, 2), 0, 6),
        };
        Some((register?, lowest, highest))
    }
}

/// The version of the PCI Express capability. From 2 on the kernel knows speeds from LnkCap2 alone,
/// before it only those up to 5 GT/s.
pub(crate) fn version(registers: &Registers, pci: &str) -> u32 {
    registers.express(pci, 2, 2).map_or(0, |register| registers.get(pci, register) & 0xf)
}

/// Whether it is a root port or a switch's downstream port.
fn is_upper_end(registers: &Registers, pci: &str) -> bool {
    let kind = registers.express(pci, 2, 2).map(|register| registers.get(pci, register) >> 4 & 0xf);
    matches!(kind, Some(4 | 6))
}

/// Speed code (1 is 2.5 GT/s, 5 is 32) and lanes, as LnkCap and LnkSta hold them.
pub(crate) fn link(speed: u32, width: u32) -> u32 {
    speed | width << 4
}

/// Sets a field; whether anything changed. False too where the function lacks it.
pub(crate) fn set(registers: &Registers, pci: &str, field: Field, value: u32) -> bool {
    let Some((register, lowest, highest)) = field.place(registers, pci) else { return false };
    let mask = u32::MAX >> (31 - highest) & u32::MAX << lowest;
    let changed = registers.set(pci, register, mask, value << lowest);
    if field == Field::Capability
        && version(registers, pci) >= 2
        && let Some(supported) = registers.express(pci, 0x2c, 4)
    {
        let speeds = (1 << (value & 0xf)) - 1;
        registers.set(pci, supported, 0xfe, speeds << 1);
    }
    changed
}

/// Turns a function into another maker's: ids, base class and subclass. The guest sees it after
/// `remove` and `rescan`.
pub(crate) fn disguise(registers: &Registers, pci: &str, vendor: u32, device: u32, class: u32) {
    registers.set(pci, Register { offset: 0, size: 4 }, u32::MAX, vendor | device << 16);
    registers.set(pci, Register { offset: 8, size: 4 }, 0xffff_ff00, class << 16);
}

/// Lets `setpci` in the guest write all of DevCtl but the reset bit, as real functions do.
pub(crate) fn open_device_control(registers: &Registers, pci: &str) {
    if let Some(register) = registers.express(pci, 8, 2) {
        registers.allow(pci, register, 0x7fff);
    }
}
