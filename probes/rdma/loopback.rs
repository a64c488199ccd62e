//! `loopback`: a NIC to itself. Data goes from memory through the NIC and back, and never meets the
//! network, so a figure that is low here too is this node's own.
//!
//! The neighbour NIC of this node can be measured beside it, where the network lets rails through.

use super::{
    End,
    amount::amount,
    command::{Command, Load},
    cpu::Process,
    device_of,
    gpu::{self, GpuMemory},
    judge::{self, gigabits},
    metrics::{COMPARED_LOOPBACK, LOOPBACK, OF_LOOPBACK},
    outputs::{Outputs, Repeats, Wanted},
    rail_of, rails,
};
use crate::{
    Compared, Context, Cost, Finding, Inventory, Memory, MetricSpec, Output, ParseError, Plan, Probe,
    Reading, Resource, Scope, Settings, Stage, Target, Unsupported, Use,
};

/// The probe.
#[derive(Debug)]
pub struct Loopback;

/// What is run.
const PROGRAM: &str = "ib_write_bw";

/// Where the client finds the server: only their first words go this way.
const HERE: &str = "127.0.0.1";

impl Probe for Loopback {
    fn name(&self) -> &'static str {
        "loopback"
    }

    fn summary(&self) -> &'static str {
        "Bandwidth of a NIC to itself, host and GPU memory: the way between memory and NIC without the network"
    }

    fn cost(&self, _: &Settings, _: &Target) -> Cost {
        Cost::Light
    }

    fn scope(&self) -> Scope {
        Scope::EachTarget
    }

    fn metrics(&self) -> &'static [&'static MetricSpec] {
        &OF_LOOPBACK
    }

    fn compared(&self) -> &'static [Compared] {
        &COMPARED_LOOPBACK
    }

    fn targets(&self, inventory: &Inventory, settings: &Settings) -> Vec<Target> {
        super::targets(inventory, settings)
    }

    fn plan(&self, ctx: &Context<'_>) -> Result<Plan, Unsupported> {
        let legs = Legs::of(ctx)?;
        let settings = &ctx.settings.rdma;
        let own = amount(settings, legs.end.bits_per_second, None);
        let repeats = settings.repeats;
        let mut stages = Vec::new();
        let mut uses = Vec::new();
        let mut runs = repeats;
        stages.extend(legs.stages(ctx, &legs.end, None)?);
        if let Ok(gpu) = &legs.gpu {
            stages.extend(legs.stages(ctx, &legs.end, Some(gpu))?);
            runs += repeats;
            uses.push(Use { resource: Resource::Gpu(gpu.pci.clone()), amount: own.milliseconds(repeats) });
        }
        let mut mib = own.mib(runs);
        if let Some(Ok(neighbour)) = &legs.neighbour {
            stages.extend(legs.stages(ctx, neighbour, None)?);
            let there =
                amount(settings, legs.end.bits_per_second, Some(neighbour.bits_per_second)).mib(repeats);
            mib = mib.saturating_add(there);
            uses.push(Use { resource: Resource::Nic(neighbour.name().to_string()), amount: there });
        }
        uses.push(Use { resource: Resource::Nic(legs.end.name().to_string()), amount: mib });
        Ok(Plan { stages, uses })
    }

    fn explain(&self, output: &Output) -> Option<String> {
        super::explain(output)
    }

    fn parse(
        &self,
        ctx: &Context<'_>,
        outputs: &[Output],
        _: &mut Memory,
    ) -> Result<Vec<Reading>, ParseError> {
        let foreign = |why: Unsupported| ParseError::Foreign(why.0);
        let legs = Legs::of(ctx).map_err(foreign)?;
        let rdma = &ctx.settings.rdma;
        let device = legs.end.name();
        let mut outputs = Outputs::of(outputs);
        let mut read =
            |to: &End<'_>, gpu| outputs.bandwidths(rdma.repeats, &Wanted::here(to, rdma.size, gpu));

        let mut reading = Reading::of(Target::Rdma(device.to_string()));
        let host = read(&legs.end, None)?;
        reading.measure(&LOOPBACK, [device, "host"], host.best);
        reading.expect(&LOOPBACK, "probe.loopback", ctx.settings.expected.loopback, rdma.tolerance);
        let mut words = vec![format!("{} host memory", gigabits(host.best))];
        let mut spreads = vec![("host", host)];
        let mut left_out = Vec::new();
        match &legs.gpu {
            Ok(gpu) => {
                let repeats: Repeats = read(&legs.end, Some(gpu))?;
                reading.measure(&LOOPBACK, [device, "gpu"], repeats.best);
                words.push(format!("{} {}", gigabits(repeats.best), gpu.words(ctx.inventory, &legs.end)));
                spreads.push(("gpu", repeats));
            }
            Err(why) => left_out.push(Finding::not_applicable("gpu_memory", device, why.0.clone())),
        }
        match &legs.neighbour {
            Some(Ok(neighbour)) => {
                let repeats = read(neighbour, None)?;
                words.push(format!("{} to {}", gigabits(repeats.best), neighbour.name()));
                spreads.push(("neighbour", repeats));
            }
            Some(Err(why)) => left_out.push(Finding::not_applicable("neighbour", device, why.0.clone())),
            None => {}
        }
        outputs.end()?;
        let again =
            legs.command(ctx, &legs.end, None).map_err(foreign)?.by_hand(HERE, ctx.port, "this node", device);
        reading.findings.push(judge::transfer(device, words.join(", "), again));
        reading.findings.push(judge::spread(device, &spreads));
        reading.findings.extend(left_out);
        Ok(vec![reading])
    }
}

/// What a run goes over.
#[derive(Debug)]
struct Legs<'a> {
    end: End<'a>,
    gpu: Result<GpuMemory, Unsupported>,
    /// The next rail of this node; none if it is not wanted.
    neighbour: Option<Result<End<'a>, Unsupported>>,
}

impl<'a> Legs<'a> {
    fn of(ctx: &Context<'a>) -> Result<Legs<'a>, Unsupported> {
        let (inventory, settings) = (ctx.inventory, &ctx.settings.rdma);
        let end = End::at_target(ctx)?;
        end.program(PROGRAM)?;
        let gpu = gpu::near(inventory, settings, &end);
        let neighbour = settings.loopback_neighbour.then(|| {
            let count = rails(inventory, settings).len().max(1);
            let rail = rail_of(inventory, settings, end.name()).map_or(0, |rail| (rail + 1) % count);
            match device_of(inventory, settings, rail) {
                Some(next) if next.name != end.name() => End::of(inventory, settings, &next.name),
                Some(_) | None => Err(Unsupported("this node has no other rail".into())),
            }
        });
        Ok(Legs { end, gpu, neighbour })
    }

    /// The client's side of a transfer to `to`, which is this device or its neighbour.
    fn command<'b>(
        &'b self,
        ctx: &'b Context<'a>,
        to: &End<'_>,
        gpu: Option<&'b GpuMemory>,
    ) -> Result<Command<'b>, Unsupported> {
        let amount = amount(&ctx.settings.rdma, self.end.bits_per_second, Some(to.bits_per_second));
        Command::of(ctx, &self.end, PROGRAM, Load::Bandwidth(amount), gpu)
    }

    fn stages(
        &self,
        ctx: &Context<'_>,
        to: &End<'_>,
        gpu: Option<&GpuMemory>,
    ) -> Result<Vec<Stage>, Unsupported> {
        let settings = &ctx.settings.rdma;
        let amount = amount(settings, self.end.bits_per_second, Some(to.bits_per_second));
        let server = Command::of(ctx, to, PROGRAM, Load::Bandwidth(amount), gpu)?;
        let client = Command::of(ctx, &self.end, PROGRAM, Load::Bandwidth(amount), gpu)?;
        let stage = || Stage::Both {
            server: server.serve(Process::First),
            client: client.call(HERE, ctx.port, Process::Second),
        };
        Ok((0..settings.repeats).map(|_| stage()).collect())
    }
}
