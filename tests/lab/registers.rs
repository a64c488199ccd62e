//! The registers of the machine's PCI functions, where QEMU keeps them.
//!
//! A guest can't write LnkSta or LnkCap, and QEMU has no command for it. But QEMU answers each read
//! of config space from a plain array in its own memory, so that a byte written there is a register
//! changed at run time. `struct PCIDevice` points at that array, at a mask of bits that QEMU tests
//! and at the mask of bits that the guest may write, in this order.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
};

/// All of a PCI Express function's config space.
pub(crate) const SIZE: usize = 4096;

/// What malloc aligns to.
const ALIGNMENT: usize = 16;
/// The size of a pointer.
const WORD: usize = 8;

/// Larger maps of QEMU are guest memory, which holds copies of config space.
const LARGEST_HEAP: u64 = 128 << 20;

/// Where in config space a register is, and its size in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Register {
    pub(crate) offset: u16,
    pub(crate) size: usize,
}

#[derive(Clone, Copy, Debug)]
struct Arrays {
    config: u64,
    writable: u64,
}

#[derive(Debug)]
pub(crate) struct Registers {
    memory: File,
    functions: BTreeMap<String, Arrays>,
}

impl Registers {
    /// Finds the arrays in process `pid` of functions whose config space the guest has read.
    pub(crate) fn find(pid: u32, guest: &BTreeMap<String, Vec<u8>>) -> io::Result<Registers> {
        let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        let heaps = heaps(&memory, &fs::read_to_string(format!("/proc/{pid}/maps"))?);

        // Millions of words are looked at: the cheap questions come first.
        let known = |id: &[u8]| guest.values().any(|config| config[..4] == *id);
        let mut copies: BTreeMap<u64, &String> = BTreeMap::new();
        for (start, bytes) in &heaps {
            // Arrays are allocated on their own, hence aligned.
            for (place, candidate) in (*start..).step_by(ALIGNMENT).zip(bytes.chunks_exact(ALIGNMENT)) {
                if candidate[..2] == [0, 0] || !known(&candidate[..4]) {
                    continue;
                }
                let index = usize::try_from(place - start).expect("a place in the map");
                let Some(config) = bytes.get(index..index + SIZE) else { continue };
                let like = guest.iter().filter(|(_, read)| identity(read) == identity(config));
                copies.extend(like.map(|(pci, _)| (place, pci)));
            }
        }

        // Of all copies the one that a PCIDevice points at is the live one.
        let mut functions: BTreeMap<String, Arrays> = BTreeMap::new();
        let (Some(&lowest), Some(&highest)) = (copies.keys().next(), copies.keys().next_back()) else {
            panic!("QEMU's memory shows no PCI function of the guest");
        };
        let held =
            |at: u64| heaps.iter().any(|(start, bytes)| (*start..start + bytes.len() as u64).contains(&at));
        for (_, bytes) in &heaps {
            for (index, candidate) in bytes.chunks_exact(WORD).enumerate() {
                let pointer = word(candidate);
                if pointer < lowest || pointer > highest {
                    continue;
                }
                let Some(&pci) = copies.get(&pointer) else { continue };
                let Some(next) = bytes.get((index + 1) * WORD..(index + 3) * WORD) else { continue };
                let (checked, writable) = (word(&next[..WORD]), word(&next[WORD..]));
                if held(checked) && held(writable) {
                    let before = functions.insert(pci.clone(), Arrays { config: pointer, writable });
                    assert!(before.is_none(), "two functions of QEMU look like {pci}");
                }
            }
        }
        for pci in guest.keys() {
            assert!(functions.contains_key(pci), "QEMU's memory shows no function like {pci}");
        }
        Ok(Registers { memory, functions })
    }

    /// The functions that were found.
    pub(crate) fn functions(&self) -> Vec<String> {
        self.functions.keys().cloned().collect()
    }

    pub(crate) fn get(&self, pci: &str, register: Register) -> u32 {
        self.word(self.arrays(pci).config, register)
    }

    /// Gives the bits of `mask` the value `bits`; whether anything changed.
    pub(crate) fn set(&self, pci: &str, register: Register, mask: u32, bits: u32) -> bool {
        self.change(self.arrays(pci).config, register, mask, bits)
    }

    /// Lets the guest write the bits of `mask`.
    pub(crate) fn allow(&self, pci: &str, register: Register, mask: u32) {
        self.change(self.arrays(pci).writable, register, mask, mask);
    }

    /// A register of the PCI Express capability.
    pub(crate) fn express(&self, pci: &str, offset: u16, size: usize) -> Option<Register> {
        let byte = |offset| self.get(pci, Register { offset, size: 1 });
        let mut at = byte(0x34);
        // A list of more than 48 capabilities has no end.
        for _ in 0..48 {
            let place = u16::try_from(at).ok().filter(|&at| at != 0)?;
            if byte(place) == 0x10 {
                return Some(Register { offset: place + offset, size });
            }
            at = byte(place + 1);
        }
        None
    }

    /// A register of an extended capability.
    pub(crate) fn extended(&self, pci: &str, id: u32, offset: u16, size: usize) -> Option<Register> {
        let mut at: u16 = 0x100;
        for _ in 0..64 {
            let head = self.get(pci, Register { offset: at, size: 4 });
            if head & 0xffff == id {
                return Some(Register { offset: at + offset, size });
            }
            at = u16::try_from(head >> 20).ok().filter(|&next| next >= 0x100)?;
        }
        None
    }

    fn arrays(&self, pci: &str) -> Arrays {
        *self.functions.get(pci).unwrap_or_else(|| panic!("{pci} was not looked for in QEMU's memory"))
    }

    fn word(&self, array: u64, register: Register) -> u32 {
        let mut bytes = [0; 4];
        self.memory
            .read_exact_at(&mut bytes[..register.size], array + u64::from(register.offset))
            .expect("QEMU's memory can be read");
        u32::from_le_bytes(bytes)
    }

    fn change(&self, array: u64, register: Register, mask: u32, bits: u32) -> bool {
        let before = self.word(array, register);
        let after = before & !mask | bits & mask;
        self.memory
            .write_all_at(&after.to_le_bytes()[..register.size], array + u64::from(register.offset))
            .expect("QEMU's memory can be written");
        before != after
    }
}

/// What tells functions apart: ids, class, addresses and bus numbers, but not command and status.
fn identity(config: &[u8]) -> (&[u8], &[u8], &[u8]) {
    (&config[..4], &config[8..0x40], &config[0x100..0x104])
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// QEMU's private writable memory.
fn heaps(memory: &File, maps: &str) -> Vec<(u64, Vec<u8>)> {
    let mut heaps = Vec::new();
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(range), Some(&"rw-p")) = (words.first(), words.get(1)) else { continue };
        if !matches!(words.get(5), None | Some(&"[heap]")) {
            continue;
        }
        let bound = |text| u64::from_str_radix(text, 16).ok();
        let Some((Some(start), Some(end))) = range.split_once('-').map(|(a, b)| (bound(a), bound(b))) else {
            continue;
        };
        if end - start >= LARGEST_HEAP {
            continue;
        }
        let mut bytes = vec![0; usize::try_from(end - start).expect("a map's size")];
        // Guard pages and the like can't be read, and hold no device.
        if memory.read_exact_at(&mut bytes, start).is_ok() {
            heaps.push((start, bytes));
        }
    }
    heaps
}
