//! What a run executes, and what its stages leave behind.

use std::time::Duration;

use crate::ParseError;

/// The stages of one run, executed one after the other, and what they use up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What is executed, in this order.
    pub stages: Vec<Stage>,
    /// What the run takes from the hourly budgets; empty for passive probes.
    pub uses: Vec<Use>,
}

/// What is executed at one time. Each leaves one output: the client's where both are ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// One child.
    Alone(Step),
    /// A server of ours and, once it listens, a client of ours.
    Both {
        /// Started first.
        server: Step,
        /// Started when the server listens.
        client: Step,
    },
    /// A server of ours, which the partner's client connects to.
    Serve(Step),
    /// A client of ours, once the partner's server listens.
    Call(Step),
}

/// One child process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is started.
    pub program: Program,
    /// Variables set for the child, on top of a minimal environment.
    pub env: Vec<(String, String)>,
    /// What the child reads from standard input.
    pub stdin: String,
    /// When the child's process group is ended.
    pub deadline: Duration,
    /// The CPUs that it may run on; empty for all.
    pub cpus: Vec<u32>,
}

impl Plan {
    /// A plan of one child that takes nothing from the budgets.
    pub fn alone(step: Step) -> Plan {
        Plan { stages: vec![Stage::Alone(step)], uses: Vec::new() }
    }
}

impl Stage {
    /// The children of the stage, in the order in which they start.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        let (first, second) = match self {
            Stage::Alone(step) | Stage::Serve(step) | Stage::Call(step) => (step, None),
            Stage::Both { server, client } => (server, Some(client)),
        };
        std::iter::once(first).chain(second)
    }
}

/// What a step starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// `fabricpulse worker <name>`: the agent's own executable.
    Worker(&'static str),
    /// An external program: its path and arguments, never a shell line.
    Command(Vec<String>),
}

/// A part of an hourly budget that a run takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Whose budget.
    pub resource: Resource,
    /// How much, in the resource's own unit.
    pub amount: u32,
}

/// What is budgeted, and locked while a run uses it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// A GPU by PCI address; milliseconds.
    Gpu(String),
    /// An RDMA device by name; MiB on the wire.
    Nic(String),
    /// The whole node; heavy runs.
    Node,
}

/// What one child left behind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// Standard output, as far as it was kept.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// When it ended, in seconds since the epoch.
    pub ended_at: f64,
}

/// The only output of a plan with one stage.
///
/// # Errors
///
/// When there isn't one.
pub fn only(outputs: &[Output]) -> Result<&Output, ParseError> {
    outputs.first().ok_or(ParseError::Missing("output"))
}
