//! Recorded machines for the tests of workers.

use std::path::{Path, PathBuf};

use probes::settings::{InventorySettings, Roots};
use tempfile::TempDir;

use super::Request;
use crate::tree;

/// A machine of a text archive, below a folder that goes with it.
pub(super) struct Machine {
    root: TempDir,
}

impl Machine {
    pub(super) fn of(archive: &str) -> Machine {
        let root = tempfile::tempdir().unwrap();
        tree::unpack(archive, root.path());
        Machine { root }
    }

    /// Adds or replaces entries.
    pub(super) fn change(&self, archive: &str) {
        tree::unpack(archive, self.root.path());
    }

    pub(super) fn path(&self) -> &Path {
        self.root.path()
    }

    pub(super) fn roots(&self) -> Roots {
        let at = |name| self.root.path().join(name);
        Roots { sysfs: at("sys"), proc: at("proc"), etc: at("etc") }
    }

    /// A file of a PCI function.
    pub(super) fn file(&self, pci: &str, name: &str) -> PathBuf {
        self.root.path().join("sys/bus/pci/devices").join(pci).join(name)
    }

    pub(super) fn request(&self, nic_drivers: &[&str]) -> Request {
        let nic_drivers = nic_drivers.iter().map(ToString::to_string).collect();
        Request {
            roots: self.roots(),
            inventory: InventorySettings { nic_drivers },
            targets: Vec::new(),
            // The machine of the test itself may have one.
            perftest: self.root.path().join("perftest"),
            libraries: Vec::new(),
            pcie: probes::pcie::Wanted::default(),
        }
    }
}
