//! What the passive probes share: one child of our own that reads the node's files for all targets.

use serde_json::json;

use crate::{Context, Finding, Plan, Program, Settings, Step, Target, Verdict, lines::Problem};

/// The plan of a passive probe: `fabricpulse worker <name>`, told where the kernel's files are and
/// which parts to read. A worker that found its parts by itself could not tell one that is gone
/// from one whose identity it failed to read.
pub fn plan(worker: &'static str, ctx: &Context<'_>) -> Plan {
    let step = Step {
        program: Program::Worker(worker),
        env: Vec::new(),
        stdin: json!({
            "roots": ctx.settings.roots,
            "inventory": ctx.settings.inventory,
            "libraries": ctx.settings.compute.library_directories,
            "targets": ctx.targets.iter().map(Target::id).collect::<Vec<_>>(),
        })
        .to_string(),
        deadline: ctx.timeout,
        cpus: Vec::new(),
    };
    Plan::alone(step)
}

/// What a worker is asked that looks for the parts.
pub fn request(settings: &Settings) -> String {
    json!({ "roots": settings.roots, "inventory": settings.inventory, "perftest": settings.rdma.perftest })
        .to_string()
}

/// What a file that could not be read says of a part: nothing, and why.
pub fn unread(check: &str, part: &str, problem: &Problem) -> Finding {
    Finding::new(
        check,
        part,
        Verdict::Unknown,
        format!("{}: {}", problem.path, problem.error),
        "a file that can be read",
    )
    .because("what can't be read can't be judged")
    // A name without a folder is no file but a call of a library.
    .try_command(if problem.path.starts_with('/') {
        format!("cat {}", problem.path)
    } else {
        String::new()
    })
}

/// A span of seconds for a person: `45 s`, `12 min`, `1 h`, `3 days`.
pub fn span(seconds: f64) -> String {
    match seconds.max(0.0) {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}
