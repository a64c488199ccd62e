//! What a run executes, and what its steps leave behind.

use std::time::Duration;

use crate::ParseError;

/// The steps of one run, executed one after the other, and what they use up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One child process each.
    pub steps: Vec<Step>,
    /// What the run takes from the hourly budgets; empty for passive probes.
    pub uses: Vec<Use>,
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

/// What one step left behind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// Standard output, as far as it was kept.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// When the step ended, in seconds since the epoch.
    pub ended_at: f64,
}

/// The only output of a plan with one step.
///
/// # Errors
///
/// When there isn't one.
pub fn only(outputs: &[Output]) -> Result<&Output, ParseError> {
    outputs.first().ok_or(ParseError::Missing("step"))
}
