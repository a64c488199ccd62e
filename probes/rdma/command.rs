//! The command lines of perftest: a server's and a client's are the same but for the host.
//!
//! Each option is there in all versions from 4.4 to 26.04. Figures are read in MiB/s, which have
//! the finer resolution at low rates; `-N` leaves out the peak, whose search costs a second of
//! CPU after each repeat and changes no average; `-F` silences a remark on the CPU's clock.

use super::{
    End,
    amount::Amount,
    cpu::{Process, cpus},
    gid::is_infiniband,
    gpu::GpuMemory,
};
use crate::{Context, Program, Step, Unsupported};

/// One transfer as this node's end makes it.
#[derive(Clone, Debug)]
pub(super) struct Command<'a> {
    ctx: &'a Context<'a>,
    end: &'a End<'a>,
    path: String,
    load: Load,
    gpu: Option<&'a GpuMemory>,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Load {
    /// Large messages over all queue pairs.
    Bandwidth(Amount),
    /// Small messages, one after the other.
    Latency,
}

impl<'a> Command<'a> {
    pub(super) fn of(
        ctx: &'a Context<'a>,
        end: &'a End<'a>,
        program: &str,
        load: Load,
        gpu: Option<&'a GpuMemory>,
    ) -> Result<Command<'a>, Unsupported> {
        Ok(Command { ctx, end, path: end.program(program)?, load, gpu })
    }

    /// A server at our own port.
    pub(super) fn serve(&self, process: Process) -> Step {
        self.step(self.argv(self.ctx.port, None), process)
    }

    /// A client of the server at `host`.
    pub(super) fn call(&self, host: &str, port: u16, process: Process) -> Step {
        self.step(self.argv(port, Some(host)), process)
    }

    /// What a person types to repeat it: here, and at the other end.
    pub(super) fn by_hand(&self, host: &str, port: u16, node: &str, device: &str) -> String {
        let here = self.argv(port, Some(host)).join(" ");
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        let common = self.symmetric().join(" ");
        format!("{here} # while {node} runs: {name} -d {device} -p {port} {common}")
    }

    fn step(&self, argv: Vec<String>, process: Process) -> Step {
        let Context { inventory, settings, timeout, .. } = self.ctx;
        Step {
            program: Program::Command(argv),
            env: self.gpu.map_or_else(Vec::new, |gpu| gpu.env.clone()),
            stdin: String::new(),
            deadline: *timeout,
            cpus: cpus(inventory, &settings.rdma, self.end.name(), process),
        }
    }

    fn argv(&self, port: u16, host: Option<&str>) -> Vec<String> {
        let settings = &self.ctx.settings.rdma;
        let own = [
            self.path.as_str(),
            "-d",
            self.end.name(),
            "-i",
            &self.end.wire.port.to_string(),
            "-p",
            &port.to_string(),
        ];
        let mut argv: Vec<String> = own.map(str::to_string).into();
        argv.extend(self.symmetric());
        if let Some(gid) = self.end.gid {
            argv.extend(["-x".to_string(), gid.index.to_string()]);
        }
        if let Some(class) = settings.traffic_class
            && !is_infiniband(self.end.wire)
        {
            argv.push(format!("--tclass={class}"));
        }
        argv.extend(self.gpu.iter().flat_map(|gpu| gpu.options.iter().cloned()));
        argv.extend(host.map(str::to_string));
        argv
    }

    /// The options that must be the same at both ends.
    fn symmetric(&self) -> Vec<String> {
        let settings = &self.ctx.settings.rdma;
        let (size, messages) = match self.load {
            Load::Bandwidth(amount) => (settings.size, amount.iterations),
            Load::Latency => (settings.latency_size, settings.latency_messages.into()),
        };
        let mut options = vec!["-s".to_string(), size.to_string(), "-n".to_string(), messages.to_string()];
        match self.load {
            Load::Bandwidth(_) => {
                options.extend(["-q".to_string(), settings.queue_pairs.to_string(), "-N".to_string()]);
            }
            Load::Latency => {}
        }
        options.push("-F".to_string());
        if let Some(mtu) = settings.mtu {
            options.extend(["-m".to_string(), mtu.to_string()]);
        }
        options
    }
}
