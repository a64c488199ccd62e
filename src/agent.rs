//! Everything that the outside may see of the agent, and the few things it may ask of it.

use std::sync::Arc;

use probes::{Inventory, Target};
use tokio::sync::watch;

use crate::{config::Config, lane::Lane};

/// The running agent, shared by the web server and whoever else looks at it.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) config: watch::Receiver<Arc<Config>>,
    pub(crate) inventory: watch::Receiver<Arc<Inventory>>,
    lanes: watch::Receiver<Vec<Arc<Lane>>>,
}

/// Why a probe or target could not be found; the words are for the caller.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lookup {
    #[error("there is no test {0:?}; known are {1}")]
    Test(String, String),
    #[error("{test} has no target {target:?}; known are {known}")]
    Target { test: String, target: String, known: String },
    #[error("{test} needs a target; known are {known}")]
    TargetMissing { test: String, known: String },
}

impl Agent {
    /// Every lane, in the order of the catalogue.
    pub(crate) fn lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes.borrow().clone()
    }

    /// The lane that runs a test, and which of its targets is asked for; none means all of them.
    ///
    /// A target may be named by its label or by another name that the inventory knows it by: an
    /// RDMA device where the target is its PCI function.
    pub(crate) fn find(
        &self,
        test: &str,
        target: Option<&str>,
    ) -> Result<(Arc<Lane>, Option<Target>), Lookup> {
        todo!("{test} {target:?}")
    }
}
