//! What both ends of a pair do at the same time: the same list of stages, each with its own half.

use super::{
    End,
    amount::{Amount, amount},
    command::Command,
    cpu::Process,
};
use crate::{
    Context, Partner, Stage, Unsupported,
    partner::{Side, Terms},
};

/// Which way data goes, as this node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From this node to the partner.
    Sent,
    /// From the partner to this node.
    Received,
}

impl Direction {
    /// The label value.
    pub(super) fn word(self) -> &'static str {
        match self {
            Direction::Sent => "sent",
            Direction::Received => "received",
        }
    }

    /// The order in which both are measured: first the opener of the lease sends.
    pub(super) fn order(side: Side) -> [Direction; 2] {
        match side {
            Side::Opener => [Direction::Sent, Direction::Received],
            Side::Server => [Direction::Received, Direction::Sent],
        }
    }
}

/// Which end of a transfer runs perftest's client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// It writes or sends.
    Sends,
    /// It reads.
    Receives,
}

/// A partner that has told its terms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreed<'a> {
    pub(super) partner: &'a Partner,
    pub(super) terms: &'a Terms,
}

impl<'a> Agreed<'a> {
    /// None while the partner has not been asked.
    pub(super) fn of(ctx: &Context<'a>) -> Option<Agreed<'a>> {
        let partner = ctx.partner?;
        Some(Agreed { partner, terms: partner.terms.as_ref()? })
    }

    /// What is expected of this port, scaled down to the partner's if that is slower: a slow partner
    /// is no fault of this node.
    pub(super) fn scaled(&self, expected: f64, end: &End<'_>) -> f64 {
        let partner = self.terms.bits_per_second.unwrap_or(end.bits_per_second);
        expected * (partner / end.bits_per_second).min(1.0)
    }

    /// The stages of one kind of transfer, both ways.
    pub(super) fn both_ways(&self, command: &Command<'_>, client: Client, repeats: u32) -> Vec<Stage> {
        let mut stages = Vec::new();
        for direction in Direction::order(self.partner.side) {
            let calls = match (direction, client) {
                (Direction::Sent, Client::Sends) | (Direction::Received, Client::Receives) => true,
                (Direction::Sent, Client::Receives) | (Direction::Received, Client::Sends) => false,
            };
            stages.extend((0..repeats).map(|_| self.stage(command, calls)));
        }
        stages
    }

    /// The stages of one kind of transfer whose client the opener runs.
    pub(super) fn one_way(&self, command: &Command<'_>, repeats: u32) -> Vec<Stage> {
        let calls = match self.partner.side {
            Side::Opener => true,
            Side::Server => false,
        };
        (0..repeats).map(|_| self.stage(command, calls)).collect()
    }

    fn stage(&self, command: &Command<'_>, calls: bool) -> Stage {
        if calls {
            Stage::Call(command.call(&self.partner.host, self.terms.port, Process::First))
        } else {
            Stage::Serve(command.serve(Process::First))
        }
    }
}

/// What a repeat between these two ends sends.
pub(super) fn amount_of(ctx: &Context<'_>, end: &End<'_>) -> Amount {
    let partner = Agreed::of(ctx).and_then(|agreed| agreed.terms.bits_per_second);
    amount(&ctx.settings.rdma, end.bits_per_second, partner)
}

/// What is said where the partner can't use GPU memory.
pub(super) fn no_partner_gpu(partner: &Partner) -> Unsupported {
    Unsupported(format!(
        "{} can't use GPU memory for this rail: `fabricpulse list` there says why",
        partner.name
    ))
}
