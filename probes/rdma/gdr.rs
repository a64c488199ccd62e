//! `gdr`: bandwidth with a partner from GPU memory to GPU memory, and its ratio to host memory.
//!
//! The wire is the same for both kinds of memory, so the ratio is what the way between GPU and NIC
//! costs. It is taken of one lease: minutes later the network may be another.

use super::{
    End,
    command::{Command, Load},
    gpu::{self, GpuMemory},
    judge,
    metrics::{COMPARED_GDR, OF_GDR, RATIO, WRITE},
    outputs::{Outputs, Wanted, Ways},
    pair::{Agreed, Client, amount_of, no_partner_gpu},
};
use crate::{
    Compared, Context, Cost, Inventory, Memory, MetricSpec, Output, ParseError, Plan, Probe, Reading,
    Resource, Scope, Settings, Target, Unsupported, Use, partner::HostBandwidth,
};

/// The probe.
#[derive(Debug)]
pub struct Gdr;

/// Where the operator says what is expected.
const SECTION: &str = "probe.gdr";
/// What is run.
const PROGRAM: &str = "ib_write_bw";

impl Probe for Gdr {
    fn name(&self) -> &'static str {
        "gdr"
    }

    fn summary(&self) -> &'static str {
        "Bandwidth of RDMA writes with a partner from GPU memory, and its ratio to host memory"
    }

    fn cost(&self, _: &Settings, _: &Target) -> Cost {
        Cost::Light
    }

    fn scope(&self) -> Scope {
        Scope::EachPair
    }

    fn metrics(&self) -> &'static [&'static MetricSpec] {
        &OF_GDR
    }

    fn compared(&self) -> &'static [Compared] {
        &COMPARED_GDR
    }

    fn targets(&self, inventory: &Inventory, settings: &Settings) -> Vec<Target> {
        super::targets(inventory, settings)
    }

    fn plan(&self, ctx: &Context<'_>) -> Result<Plan, Unsupported> {
        let end = End::at_target(ctx)?;
        let gpu = gpu::near(ctx.inventory, &ctx.settings.rdma, &end)?;
        let agreed = Agreed::of(ctx);
        if let Some(agreed) = agreed
            && !agreed.terms.gpu
        {
            return Err(no_partner_gpu(agreed.partner));
        }
        let amount = amount_of(ctx, &end);
        let repeats = ctx.settings.rdma.repeats;
        let memories = memories(ctx, &gpu);
        let mut stages = Vec::new();
        for memory in &memories {
            let command = Command::of(ctx, &end, PROGRAM, Load::Bandwidth(amount), *memory)?;
            if let Some(agreed) = &agreed {
                stages.extend(agreed.both_ways(&command, Client::Sends, repeats));
            }
        }
        let runs = repeats * u32::try_from(memories.len()).unwrap_or(1);
        let nic = Use { resource: Resource::Nic(end.name().to_string()), amount: amount.mib(runs) };
        // Its memory is in use both ways, one after the other.
        let gpu = Use { resource: Resource::Gpu(gpu.pci), amount: amount.milliseconds(repeats * 2) };
        Ok(Plan { stages, uses: vec![nic, gpu] })
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
        let (end, agreed) = super::measured_with(ctx)?;
        let gpu = gpu::near(ctx.inventory, &ctx.settings.rdma, &end).map_err(foreign)?;
        let rdma = &ctx.settings.rdma;
        let load = Load::Bandwidth(amount_of(ctx, &end));
        let command = Command::of(ctx, &end, PROGRAM, load, Some(&gpu)).map_err(foreign)?;
        let mut outputs = Outputs::of(outputs);
        let mut read = |memory| {
            let wanted = Wanted::partner(&agreed, rdma.size, memory);
            outputs.both_ways(agreed.partner.side, rdma.repeats, &wanted)
        };
        let host = match agreed.terms.host {
            Some(host) => host,
            None => of_host(read(None)?),
        };
        let ways = read(Some(&gpu))?;
        outputs.end()?;

        let (device, peer) = (end.name(), agreed.partner.name.as_str());
        let mut reading = Reading::of(Target::Rdma(device.to_string()));
        for (direction, repeats) in ways.each() {
            reading.measure(&WRITE, [device, peer, "gpu", direction.word()], repeats.best);
        }
        let words = format!("{}, with {peer}, {}", ways.words(), gpu.words(ctx.inventory, &end));
        reading.findings.push(judge::transfer(device, words, super::by_hand(&command, &agreed)));
        reading.findings.push(judge::spread(device, &ways.each().map(|(way, of)| (way.word(), of))));
        let expected = &ctx.settings.expected;
        let one_way = expected.gdr.map(|expected| agreed.scaled(expected, &end));
        reading.expect(&WRITE, SECTION, one_way, rdma.tolerance);
        if let Some(ratio) = ratio(&ways, host) {
            reading.measure(&RATIO, [device, peer], ratio);
            // The operator's ratio is itself the least.
            reading.expect(&RATIO, SECTION, expected.gdr_host_ratio, 1.0);
        }
        Ok(vec![reading])
    }
}

/// The memories that are measured, none for the host's: a lease that has the host's figure already
/// measures it no second time.
fn memories<'a>(ctx: &Context<'_>, gpu: &'a GpuMemory) -> Vec<Option<&'a GpuMemory>> {
    let measured = ctx.partner.is_some_and(|partner| match &partner.terms {
        Some(terms) => terms.host.is_some(),
        None => partner.host_measured,
    });
    if measured { vec![Some(gpu)] } else { vec![None, Some(gpu)] }
}

fn of_host(ways: Ways) -> HostBandwidth {
    HostBandwidth { sent: ways.sent.best, received: ways.received.best }
}

/// The worse direction's ratio; none if the host's figures are none.
fn ratio(gpu: &Ways, host: HostBandwidth) -> Option<f64> {
    let ratios = [gpu.sent.best / host.sent, gpu.received.best / host.received];
    ratios.into_iter().reduce(f64::min).filter(|ratio| ratio.is_finite() && *ratio > 0.0)
}
