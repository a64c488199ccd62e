//! `ib_write_lat`: latency of small writes with a partner.

use super::{
    End,
    command::{Command, Load},
    judge::{self, microseconds},
    metrics::{COMPARED_LATENCY, LATENCY, OF_LATENCY},
    outputs::{Outputs, Wanted},
    pair::Agreed,
};
use crate::{
    Compared, Context, Cost, Inventory, Memory, MetricSpec, Output, ParseError, Plan, Probe, Reading,
    Resource, Scope, Settings, Target, Unsupported, Use,
};

/// The probe.
#[derive(Debug)]
pub struct Latency;

/// The program, and the probe's name.
const NAME: &str = "ib_write_lat";

/// Bytes that a message costs on the wire beside its own, with its acknowledgement.
const OVERHEAD: u64 = 160;

impl Probe for Latency {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "Latency of small RDMA writes with a partner: typical, 99 % and 99.9 %"
    }

    fn cost(&self, _: &Settings, _: &Target) -> Cost {
        Cost::Light
    }

    fn scope(&self) -> Scope {
        Scope::EachPair
    }

    fn metrics(&self) -> &'static [&'static MetricSpec] {
        &OF_LATENCY
    }

    fn compared(&self) -> &'static [Compared] {
        &COMPARED_LATENCY
    }

    fn targets(&self, inventory: &Inventory, settings: &Settings) -> Vec<Target> {
        super::targets(inventory, settings)
    }

    fn plan(&self, ctx: &Context<'_>) -> Result<Plan, Unsupported> {
        let end = End::at_target(ctx)?;
        let command = Command::of(ctx, &end, NAME, Load::Latency, None)?;
        let settings = &ctx.settings.rdma;
        let stages =
            Agreed::of(ctx).map_or_else(Vec::new, |agreed| agreed.one_way(&command, settings.repeats));
        let messages = u64::from(settings.latency_messages) * u64::from(settings.repeats);
        let mib = (messages * (u64::from(settings.latency_size) + OVERHEAD)).div_ceil(1 << 20);
        let amount = u32::try_from(mib).unwrap_or(u32::MAX);
        Ok(Plan { stages, uses: vec![Use { resource: Resource::Nic(end.name().to_string()), amount }] })
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
        let (end, agreed) = super::measured_with(ctx)?;
        let settings = ctx.settings;
        let command =
            Command::of(ctx, &end, NAME, Load::Latency, None).map_err(|why| ParseError::Foreign(why.0))?;
        let wanted = Wanted::partner(&agreed, settings.rdma.latency_size, None);
        let mut outputs = Outputs::of(outputs);
        let repeats = outputs.latencies(settings.rdma.repeats, &wanted)?;
        outputs.end()?;

        let (device, peer) = (end.name(), agreed.partner.name.as_str());
        let mut reading = Reading::of(Target::Rdma(device.to_string()));
        let best = repeats.best;
        let mut words = format!("{} typical", microseconds(best.typical));
        reading.measure(&LATENCY, [device, peer, "0.5"], best.typical);
        reading.expect(&LATENCY, "probe.ib_write_lat", settings.expected.latency, settings.rdma.tolerance);
        if let Some(p99) = best.p99 {
            reading.measure(&LATENCY, [device, peer, "0.99"], p99);
            words.push_str(&format!(", {} for 99 %", microseconds(p99)));
        }
        if let Some(p999) = best.p999 {
            words.push_str(&format!(", {} for 99.9 %", microseconds(p999)));
        }
        if let Some(average) = best.average {
            words.push_str(&format!(", {} on average", microseconds(average)));
        }
        words.push_str(&format!(", with {peer}"));
        reading.findings.push(judge::transfer(device, words, super::by_hand(&command, &agreed)));
        reading.findings.push(judge::spread(device, &[("typical", repeats.typical)]));
        Ok(vec![reading])
    }
}
