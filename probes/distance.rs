//! How far a GPU is from a NIC, in the words of `nvidia-smi topo` and NCCL.

use serde::{Deserialize, Serialize};

use crate::inventory::{AMD, Function, Inventory};

/// What traffic between two functions has to pass, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Distance {
    /// At most one switch.
    Pix,
    /// Several switches, but not the root complex.
    Pxb,
    /// The root complex that both are on.
    Phb,
    /// Between root complexes of one NUMA node.
    Node,
    /// Between NUMA nodes.
    Sys,
}

impl Distance {
    /// The word that operators know.
    pub fn word(self) -> &'static str {
        match self {
            Distance::Pix => "PIX",
            Distance::Pxb => "PXB",
            Distance::Phb => "PHB",
            Distance::Node => "NODE",
            Distance::Sys => "SYS",
        }
    }
}

/// The distance between two functions of a node; none if one of them is not known.
///
/// Where the kernel tells no NUMA node of either, the machine has one.
pub fn between(inventory: &Inventory, a: &str, b: &str) -> Option<Distance> {
    let (a, b) = (inventory.function(a)?, inventory.function(b)?);
    let (way_a, way_b) = (outside(inventory, a), outside(inventory, b));
    let common = way_a.iter().enumerate().find_map(|(steps, bridge)| {
        let other = way_b.iter().position(|found| found == bridge)?;
        Some((steps, other, *bridge))
    });
    if let Some((steps, other, bridge)) = common {
        // The ports of a root complex are on its own bus: two functions that meet in one of them,
        // and not in a switch below, are the functions of one card.
        let switches = |steps: usize| steps.div_ceil(2);
        let root_only = way_a.last().is_some_and(|root| *root == bridge);
        let far = switches(steps) > 1 || switches(other) > 1;
        return Some(if far && !root_only { Distance::Pxb } else { Distance::Pix });
    }
    Some(if root_bus(a) == root_bus(b) {
        Distance::Phb
    } else if a.numa == b.numa {
        Distance::Node
    } else {
        Distance::Sys
    })
}

/// The bridges above a function, without those that are a part of an AMD GPU.
fn outside<'a>(inventory: &Inventory, function: &'a Function) -> Vec<&'a str> {
    let inside = |bridge: &&String| {
        function.vendor == AMD && inventory.function(bridge).is_some_and(|bridge| bridge.vendor == AMD)
    };
    function.path.iter().skip_while(inside).map(String::as_str).collect()
}

/// Domain and bus of the root complex that a function hangs on.
fn root_bus(function: &Function) -> Option<&str> {
    let top = function.path.last().unwrap_or(&function.pci);
    top.rsplit_once(':').map(|(bus, _)| bus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{Gpu, Nic};

    fn function(pci: &str, vendor: u16, numa: Option<u32>, path: &str) -> Function {
        let path = path.split_whitespace().map(str::to_string).collect();
        Function { pci: pci.into(), vendor, numa, path, ..Function::default() }
    }

    #[test]
    fn each_way_has_its_word() {
        let switch = "0000:22:01.0 0000:21:00.0 0000:20:00.0";
        let amd = "0000:31:00.0 0000:30:00.0 0000:22:02.0 0000:21:00.0 0000:20:00.0";
        let cascade = "0000:52:00.0 0000:51:00.0 0000:22:03.0 0000:21:00.0 0000:20:00.0";
        let nic = |pci, numa, path| Nic { function: function(pci, 0x15b3, numa, path), ..Nic::default() };
        let inventory = Inventory {
            gpus: vec![
                Gpu { function: function("gpu", 0x10de, Some(0), switch), ..Gpu::default() },
                Gpu { function: function("amd", 0x1002, Some(0), amd), ..Gpu::default() },
            ],
            nics: vec![
                nic("same", Some(0), "0000:22:00.0 0000:21:00.0 0000:20:00.0"),
                nic("cascade", Some(0), cascade),
                nic("root", Some(0), "0000:20:01.0"),
                nic("node", Some(0), "0000:60:00.0"),
                nic("sys", Some(1), "0000:40:00.0"),
            ],
            bridges: vec![
                function("0000:31:00.0", 0x1002, None, ""),
                function("0000:30:00.0", 0x1002, None, ""),
                function("0000:22:02.0", 0x104c, None, ""),
            ],
            ..Inventory::default()
        };
        let table = [
            ("gpu", "same", "PIX"),
            ("amd", "same", "PIX"),
            ("gpu", "cascade", "PXB"),
            ("amd", "cascade", "PXB"),
            ("gpu", "root", "PHB"),
            ("gpu", "node", "NODE"),
            ("gpu", "sys", "SYS"),
        ];
        for (a, b, want) in table {
            assert_eq!(between(&inventory, a, b).map(Distance::word), Some(want), "{a} {b}");
            assert_eq!(between(&inventory, b, a).map(Distance::word), Some(want), "{b} {a}");
        }
        assert_eq!(between(&inventory, "gpu", "none"), None);
    }
}
