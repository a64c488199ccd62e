//! What one run measures, and the word for it in labels, `list` and `/probe?target=`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What one run measures. Never an enumeration index: those change with a driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The node as a whole.
    Node,
    /// A PCI function by its address, `0000:c1:00.0`. GPUs always; NICs where the PCIe link, not
    /// the RDMA device, is measured.
    Pci(String),
    /// An RDMA device by its name, `mlx5_0`.
    Rdma(String),
    /// One of the operator's own checks.
    Check(String),
}

impl Target {
    /// The label value.
    pub fn id(&self) -> &str {
        match self {
            Target::Node => "node",
            Target::Pci(id) | Target::Rdma(id) | Target::Check(id) => id,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}
