//! PCIe links of GPUs and NICs, from each device up to the root complex.
//!
//! A link that trained at half its width, a bridge that sends peer traffic through the root
//! complex, or a read request size that a reboot has reset costs half of a node's bandwidth and
//! raises no error. All of it can be read beside a running job. What can't be told from state alone
//! is a GPU at low speed: idle GPUs slow their links to save power, so that is unknown, never bad.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Context, Cost, Inventory, Memory, MetricSpec, Output, ParseError, Plan, Probe, Program, Reading,
    Settings, Step, Target, Unsupported,
    config_space::{ConfigSpace, Express, Kind},
    inventory::Link,
    lines, plan,
};

mod errors;
mod hop;
mod judge;
mod metrics;
mod report;

/// What the worker found of one PCI function.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Function {
    /// `0000:c1:00.0`
    pub pci: String,
    /// Its config space.
    pub config: Config,
    /// The link by text attributes, which need no privilege; none without PCIe.
    pub text_link: Option<Link>,
    /// Errors counted by the kernel; none where it counts none.
    pub errors: Option<Errors>,
    /// How busy a GPU says it is, in percent.
    pub busy_percent: Option<u32>,
}

/// What could be read of config space.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Config {
    /// All of it.
    Read(Box<ConfigSpace>),
    /// It reads all ones: no device answers.
    AllOnes,
    /// The capabilities could not be read, and why.
    Hidden(String),
}

/// Errors that the kernel has counted since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Errors {
    /// Corrected by the hardware; they cost bandwidth.
    pub correctable: Option<u64>,
    /// A transaction was lost.
    pub nonfatal: Option<u64>,
    /// The link is not reliable any more.
    pub fatal: Option<u64>,
}

/// What the worker is asked. `roots`, `inventory` and this are one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Wanted {
    /// The functions to read, by PCI address.
    pub functions: Vec<String>,
    /// Where `fabricpulse pcid` listens.
    pub pcid: std::path::PathBuf,
}

impl Default for Config {
    fn default() -> Config {
        Config::Hidden("it was not read".into())
    }
}

impl Function {
    /// The PCI Express capability, if it could be read.
    pub fn express(&self) -> Option<&Express> {
        match &self.config {
            Config::Read(space) => space.express.as_ref(),
            Config::AllOnes | Config::Hidden(_) => None,
        }
    }

    /// Whether it answers and shows no lanes: a link that is down lets nothing be read of the device
    /// below it, so this one does not tell its link, as a virtual function does not. Of a bridge
    /// this says nothing.
    pub fn hides_link(&self) -> bool {
        match (&self.config, self.express()) {
            (Config::Read(_), Some(express)) => {
                express.kind.is_some_and(Kind::is_endpoint) && express.width.is_none()
            }
            (Config::Read(_), None) | (Config::AllOnes, _) => false,
            (Config::Hidden(_), _) => self.text_link.is_some_and(|link| link.width.is_none()),
        }
    }

    /// The link: from config space, else from the text attributes.
    pub fn link(&self) -> Option<Link> {
        match (&self.config, self.express()) {
            (Config::AllOnes, _) => None,
            (Config::Read(_), Some(express)) => {
                let link = Link {
                    speed: express.speed,
                    width: express.width,
                    max_speed: express.max_speed,
                    max_width: express.max_width,
                };
                (link != Link::default()).then_some(link)
            }
            (Config::Read(_), None) => None,
            (Config::Hidden(_), _) => self.text_link,
        }
    }
}

/// The probe.
#[derive(Debug)]
pub struct Pcie;

impl Probe for Pcie {
    fn name(&self) -> &'static str {
        "pcie"
    }

    fn summary(&self) -> &'static str {
        "PCIe link speed and width up to the root complex, request sizes, ACS redirection and AER errors"
    }

    fn cost(&self, _settings: &Settings, _target: &Target) -> Cost {
        Cost::Passive
    }

    fn metrics(&self) -> &'static [&'static MetricSpec] {
        metrics::ALL
    }

    fn targets(&self, inventory: &Inventory, _settings: &Settings) -> Vec<Target> {
        let gpus = inventory.gpus.iter().map(|gpu| &gpu.function);
        let nics = inventory.nics.iter().map(|nic| &nic.function);
        gpus.chain(nics).map(|function| Target::Pci(function.pci.clone())).collect()
    }

    fn plan(&self, ctx: &Context<'_>) -> Result<Plan, Unsupported> {
        if ctx.targets.is_empty() {
            return Err(Unsupported("this node has no GPU and no NIC on PCI".into()));
        }
        let mut functions: Vec<String> = Vec::new();
        for target in ctx.targets {
            functions.push(target.id().to_string());
            functions.extend(ctx.inventory.function(target.id()).into_iter().flat_map(|f| f.path.clone()));
        }
        functions.sort();
        functions.dedup();
        let request = serde_json::json!({
            "roots": ctx.settings.roots,
            "inventory": ctx.settings.inventory,
            "pcie": Wanted { functions, pcid: ctx.settings.pcie.pcid.clone() },
        });
        Ok(Plan::alone(Step {
            program: Program::Worker("pcie"),
            env: Vec::new(),
            stdin: request.to_string(),
            deadline: ctx.timeout,
            cpus: Vec::new(),
        }))
    }

    fn parse(
        &self,
        ctx: &Context<'_>,
        outputs: &[Output],
        memory: &mut Memory,
    ) -> Result<Vec<Reading>, ParseError> {
        let output = plan::only(outputs)?;
        let answer = lines::read::<Function>(&output.stdout)?;
        let functions: BTreeMap<&str, &Function> =
            answer.items.iter().map(|function| (function.pci.as_str(), function)).collect();
        let rises = errors::observe(&answer.items, memory, output.ended_at, &ctx.settings.pcie);
        let node = judge::Node { ctx, now: output.ended_at, functions, rises, problems: &answer.problems };
        let mut readings = Vec::new();
        for target in ctx.targets {
            let mut reading = Reading::of(target.clone());
            reading.findings = node.findings(target.id());
            readings.push(reading);
        }
        report::measure(&node, &mut readings);
        Ok(readings)
    }
}

#[cfg(test)]
mod tests;
