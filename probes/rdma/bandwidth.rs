//! `ib_write_bw`, `ib_read_bw`, `ib_send_bw`: bandwidth of host memory with a partner, both ways.

use super::{
    End,
    command::{Command, Load},
    judge,
    metrics::{BY_READS, BY_SENDS, BY_WRITES, COMPARED_WRITES, READ, SEND, WRITE},
    outputs::{Outputs, Wanted},
    pair::{Agreed, Client, amount_of},
};
use crate::{
    Compared, Context, Cost, Inventory, Memory, MetricSpec, Output, ParseError, Plan, Probe, Reading,
    Resource, Schedule, Scope, Settings, Target, Unsupported, Use,
};

/// Bandwidth by one verb.
#[derive(Debug)]
pub struct Bandwidth {
    verb: Verb,
}

/// What RDMA calls the ways to move data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Write,
    Read,
    Send,
}

/// `ib_write_bw`, which runs by itself.
pub static WRITE_BW: Bandwidth = Bandwidth { verb: Verb::Write };
/// `ib_read_bw`, on demand.
pub static READ_BW: Bandwidth = Bandwidth { verb: Verb::Read };
/// `ib_send_bw`, on demand.
pub static SEND_BW: Bandwidth = Bandwidth { verb: Verb::Send };

impl Verb {
    fn metric(self) -> &'static MetricSpec {
        match self {
            Verb::Write => &WRITE,
            Verb::Read => &READ,
            Verb::Send => &SEND,
        }
    }

    fn client(self) -> Client {
        match self {
            Verb::Write | Verb::Send => Client::Sends,
            Verb::Read => Client::Receives,
        }
    }
}

impl Probe for Bandwidth {
    fn name(&self) -> &'static str {
        match self.verb {
            Verb::Write => "ib_write_bw",
            Verb::Read => "ib_read_bw",
            Verb::Send => "ib_send_bw",
        }
    }

    fn summary(&self) -> &'static str {
        match self.verb {
            Verb::Write => "Bandwidth of RDMA writes with a partner, host memory, both ways",
            Verb::Read => "Bandwidth of RDMA reads with a partner, host memory, both ways; on demand",
            Verb::Send => "Bandwidth of RDMA sends with a partner, host memory, both ways; on demand",
        }
    }

    fn cost(&self, _: &Settings, _: &Target) -> Cost {
        Cost::Light
    }

    fn schedule(&self) -> Schedule {
        match self.verb {
            Verb::Write => Schedule::Interval,
            Verb::Read | Verb::Send => Schedule::OnDemand,
        }
    }

    fn scope(&self) -> Scope {
        Scope::EachPair
    }

    fn metrics(&self) -> &'static [&'static MetricSpec] {
        match self.verb {
            Verb::Write => &BY_WRITES,
            Verb::Read => &BY_READS,
            Verb::Send => &BY_SENDS,
        }
    }

    fn compared(&self) -> &'static [Compared] {
        match self.verb {
            Verb::Write => &COMPARED_WRITES,
            Verb::Read | Verb::Send => &[],
        }
    }

    fn targets(&self, inventory: &Inventory, settings: &Settings) -> Vec<Target> {
        super::targets(inventory, settings)
    }

    fn plan(&self, ctx: &Context<'_>) -> Result<Plan, Unsupported> {
        let end = End::at_target(ctx)?;
        let amount = amount_of(ctx, &end);
        let command = Command::of(ctx, &end, self.name(), Load::Bandwidth(amount), None)?;
        let repeats = ctx.settings.rdma.repeats;
        let stages = Agreed::of(ctx)
            .map_or_else(Vec::new, |agreed| agreed.both_ways(&command, self.verb.client(), repeats));
        let nic = Use { resource: Resource::Nic(end.name().to_string()), amount: amount.mib(repeats) };
        Ok(Plan { stages, uses: vec![nic] })
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
        let load = Load::Bandwidth(amount_of(ctx, &end));
        let command =
            Command::of(ctx, &end, self.name(), load, None).map_err(|why| ParseError::Foreign(why.0))?;
        let wanted = Wanted::partner(&agreed, settings.rdma.size, None);
        let mut outputs = Outputs::of(outputs);
        let ways = outputs.both_ways(agreed.partner.side, settings.rdma.repeats, &wanted)?;
        outputs.end()?;

        let (device, peer) = (end.name(), agreed.partner.name.as_str());
        let mut reading = Reading::of(Target::Rdma(device.to_string()));
        for (direction, repeats) in ways.each() {
            let labels = [device, peer, "host", direction.word()];
            reading.measure(self.verb.metric(), labels, repeats.best);
        }
        let again = super::by_hand(&command, &agreed);
        reading.findings.push(judge::transfer(device, format!("{}, with {peer}", ways.words()), again));
        reading.findings.push(judge::spread(device, &ways.each().map(|(way, of)| (way.word(), of))));
        if self.verb == Verb::Write {
            let expected = settings.expected.write.map(|expected| agreed.scaled(expected, &end));
            reading.expect(&WRITE, "probe.ib_write_bw", expected, settings.rdma.tolerance);
        }
        Ok(vec![reading])
    }
}
