//! What a series was measured on: another driver, firmware, kernel or part, or other parameters,
//! begin it anew, since what was usual before is no measure of it.

use std::collections::BTreeMap;

use probes::{
    Inventory, Settings, Target,
    inventory::{Gpu, Rdma},
};
use serde::{Deserialize, Serialize};

/// Names and values of all that matters. What could not be read is not in it, and changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Epoch(BTreeMap<String, String>);

impl Epoch {
    /// What a run of this probe on this target is measured on now.
    pub(crate) fn of(probe: &str, target: &Target, inventory: &Inventory, settings: &Settings) -> Epoch {
        let mut epoch = Epoch::default();
        epoch.note("kernel", inventory.kernel.as_deref());
        epoch.note("parameters", parameters(probe, settings).as_deref());
        match target {
            Target::Pci(pci) => {
                let gpu = inventory.gpus.iter().find(|gpu| gpu.function.pci == *pci);
                gpu.into_iter().for_each(|gpu| epoch.gpu("", gpu));
            }
            Target::Rdma(name) => {
                let rdma = inventory.rdma.iter().find(|rdma| rdma.name == *name);
                rdma.into_iter().for_each(|rdma| epoch.rdma(rdma));
            }
            Target::Node => {
                inventory.gpus.iter().for_each(|gpu| epoch.gpu(&format!("{} ", gpu.function.pci), gpu));
                epoch.note("GPUs", Some(&inventory.gpus.len().to_string()));
            }
            Target::Check(_) => {}
        }
        epoch
    }

    /// What is different, in words; nothing where only more or less is known.
    pub(crate) fn changes(&self, now: &Epoch) -> Vec<String> {
        let changed = |(name, was): (&String, &String)| {
            let is = now.0.get(name).filter(|is| *is != was)?;
            Some(format!("{name} {was} became {is}"))
        };
        self.0.iter().filter_map(changed).collect()
    }

    /// Takes what is known now, and keeps what is not known any more.
    pub(crate) fn renew(&mut self, now: Epoch) {
        self.0.extend(now.0);
    }

    /// `kernel 6.8.0, driver 6.12.12`
    pub(crate) fn words(&self) -> String {
        let words = self.0.iter().map(|(name, value)| format!("{name} {value}"));
        words.collect::<Vec<_>>().join(", ")
    }

    fn note(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.0.insert(name.to_string(), value.to_string());
        }
    }

    fn gpu(&mut self, prefix: &str, gpu: &Gpu) {
        self.note(&format!("{prefix}driver"), gpu.driver_version.as_deref());
        self.note(&format!("{prefix}firmware"), gpu.firmware.as_deref());
        self.note(&format!("{prefix}part"), gpu.serial.as_deref());
    }

    fn rdma(&mut self, rdma: &Rdma) {
        self.note("firmware", rdma.firmware.as_deref());
        self.note("part", rdma.guid.as_deref());
    }
}

/// The settings that a value depends on.
pub(crate) fn parameters(probe: &str, settings: &Settings) -> Option<String> {
    let (compute, rdma) = (&settings.compute, &settings.rdma);
    match probe {
        "gemm" => Some(format!("{} for {} s", compute.gemm.size, compute.gemm.burst)),
        "hbm" => Some(format!("{} B", compute.hbm_bytes)),
        "host_copy" => Some(format!("{} B", compute.host_copy_bytes)),
        "p2p" => Some(format!("{} B", compute.p2p_bytes)),
        "collectives" => {
            let largest = compute.collectives.bytes.iter().max().copied().unwrap_or_default();
            Some(format!("{} B and {largest} B", compute.collectives.latency_bytes))
        }
        "ib_write_lat" => Some(format!("{} B", rdma.latency_size)),
        "ib_write_bw" | "gdr" | "loopback" => {
            Some(format!("{} B on {} queue pairs", rdma.size, rdma.queue_pairs))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(pairs: &[(&str, &str)]) -> Epoch {
        Epoch(pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    #[test]
    fn another_driver_is_another_epoch_and_an_unread_file_is_not() {
        let before = epoch(&[("kernel", "6.8"), ("driver", "580")]);
        assert_eq!(
            before.changes(&epoch(&[("kernel", "6.8"), ("driver", "590")])),
            ["driver 580 became 590"]
        );
        assert_eq!(before.changes(&epoch(&[("kernel", "6.8")])), Vec::<String>::new());
        let mut renewed = before.clone();
        renewed.renew(epoch(&[("part", "17")]));
        assert_eq!(renewed.words(), "driver 580, kernel 6.8, part 17");
    }

    #[test]
    fn a_target_has_what_it_is_measured_on_and_nothing_of_others() {
        let settings = crate::config::built_in().settings;
        let gpu = |pci: &str, serial: &str| {
            let mut gpu = Gpu { serial: Some(serial.into()), ..Gpu::default() };
            gpu.function.pci = pci.into();
            gpu
        };
        let inventory = Inventory {
            kernel: Some("6.8".into()),
            gpus: vec![gpu("0000:05:00.0", "a"), gpu("0000:06:00.0", "b")],
            rdma: vec![Rdma { name: "mlx5_0".into(), firmware: Some("28.43".into()), ..Rdma::default() }],
            ..Inventory::default()
        };
        let of = |probe, target| Epoch::of(probe, &target, &inventory, &settings).words();
        assert_eq!(
            of("gemm", Target::Pci("0000:05:00.0".into())),
            "kernel 6.8, parameters 8192 for 0.03 s, part a"
        );
        assert_eq!(
            of("gdr", Target::Rdma("mlx5_0".into())),
            "firmware 28.43, kernel 6.8, parameters 1048576 B on 4 queue pairs"
        );
        assert!(of("p2p", Target::Node).contains("0000:06:00.0 part b"));
    }
}
