//! Which CPU a perftest process runs on: one of the NIC's own NUMA node, its own for each rail.
//!
//! Across NUMA nodes both bandwidth and latency drop, and differently from run to run. The first
//! CPU of a node is left to the kernel, whose housekeeping prefers it.

use super::rails;
use crate::{inventory::Inventory, settings::RdmaSettings};

/// The two processes that a rail can have at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Process {
    /// The only one, or the one that serves.
    First,
    /// The client of a server on this node.
    Second,
}

/// The CPU of a rail's process; empty where the NUMA node or its CPUs are not known.
pub(super) fn cpus(
    inventory: &Inventory,
    settings: &RdmaSettings,
    device: &str,
    process: Process,
) -> Vec<u32> {
    let node = |name: &str| {
        let rdma = inventory.rdma.iter().find(|rdma| rdma.name == name)?;
        inventory.function(rdma.pci.as_deref()?)?.numa
    };
    let Some(numa) = node(device) else { return Vec::new() };
    let cpus = inventory.cpus.get(&numa).map_or(&[][..], Vec::as_slice);
    let mut neighbours = rails(inventory, settings).into_iter().filter(|rail| node(&rail.name) == Some(numa));
    let place = neighbours.position(|rail| rail.name == device).unwrap_or(0) * 2;
    let place = match process {
        Process::First => place,
        Process::Second => place + 1,
    };
    match cpus {
        [] => Vec::new(),
        [only] => vec![*only],
        [_, usable @ ..] => vec![usable[place % usable.len()]],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        inventory::{Function, Nic, Rdma},
        sample,
    };

    type Cpus<'a> = &'a [(u32, &'a [u32])];
    /// CPUs by node, the NICs' node, the device, its process, and the CPUs that it gets.
    type Row<'a> = (Cpus<'a>, Option<u32>, &'a str, Process, &'a [u32]);

    fn inventory(cpus: Cpus<'_>, numa: Option<u32>) -> Inventory {
        let function = |pci: &str| Function { pci: pci.into(), numa, ..Function::default() };
        let device =
            |name: &str, pci: &str| Rdma { name: name.into(), pci: Some(pci.into()), ..Rdma::default() };
        Inventory {
            nics: ["0000:01:00.0", "0000:02:00.0"]
                .map(|pci| Nic { function: function(pci), ..Nic::default() })
                .into(),
            rdma: vec![device("mlx5_0", "0000:02:00.0"), device("mlx5_1", "0000:01:00.0")],
            cpus: cpus.iter().map(|(node, cpus)| (*node, cpus.to_vec())).collect::<BTreeMap<_, _>>(),
            ..Inventory::default()
        }
    }

    #[test]
    fn each_process_of_each_rail_has_a_cpu_of_the_nic_s_node() {
        let two: Cpus = &[(0, &[0, 1, 2, 3]), (1, &[8, 9, 10, 11, 12, 13])];
        let table: [Row<'_>; 9] = [
            (two, Some(1), "mlx5_1", Process::First, &[9]),
            (two, Some(1), "mlx5_1", Process::Second, &[10]),
            (two, Some(1), "mlx5_0", Process::First, &[11]),
            (two, Some(1), "mlx5_0", Process::Second, &[12]),
            (two, Some(0), "mlx5_0", Process::Second, &[1]),
            (two, None, "mlx5_0", Process::First, &[]),
            (two, Some(7), "mlx5_0", Process::First, &[]),
            (&[(0, &[5])], Some(0), "mlx5_0", Process::Second, &[5]),
            (two, Some(1), "none", Process::First, &[]),
        ];
        for (cpus_of, numa, device, process, want) in table {
            let inventory = inventory(cpus_of, numa);
            let found = cpus(&inventory, &sample::settings().rdma, device, process);
            assert_eq!(found, want, "{device} {process:?} of {numa:?}");
        }
    }
}
