//! What the stages of a run printed: the figures of each repeat, and whether they are of the two
//! ends that were meant.

use std::{net::Ipv6Addr, slice};

use super::{
    figures::{Figures, Times, figures},
    gpu::GpuMemory,
    judge::gigabits,
    pair::{Agreed, Direction},
};
use crate::{Output, ParseError, partner::Side};

/// Repeats of one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Repeats {
    /// The best of those that measured something.
    pub(super) best: f64,
    /// The worst of them.
    pub(super) worst: f64,
    /// How many measured something.
    pub(super) measured: usize,
    /// How many there were.
    pub(super) of: usize,
}

impl Repeats {
    /// How far the worst is from the best, as a part of the larger figure.
    pub(super) fn spread(&self) -> f64 {
        (self.best - self.worst).abs() / self.best.max(self.worst)
    }
}

/// Repeats of both directions, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ways {
    pub(super) sent: Repeats,
    pub(super) received: Repeats,
}

impl Ways {
    pub(super) fn each(&self) -> [(Direction, Repeats); 2] {
        [(Direction::Sent, self.sent), (Direction::Received, self.received)]
    }

    /// `388.1 Gb/s sent, 387.2 Gb/s received`
    pub(super) fn words(&self) -> String {
        self.each().map(|(way, repeats)| format!("{} {}", gigabits(repeats.best), way.word())).join(", ")
    }
}

/// Repeats of a latency test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Latencies {
    /// The repeat with the best median.
    pub(super) best: Times,
    /// The medians, in seconds.
    pub(super) typical: Repeats,
}

/// What an output must be of.
#[derive(Clone, Debug)]
pub(super) struct Wanted<'a> {
    /// The node at the other end.
    node: &'a str,
    /// The device at the other end.
    device: &'a str,
    /// The GID at the other end; none on InfiniBand.
    gid: Option<Ipv6Addr>,
    /// The message size, in bytes.
    size: u64,
    /// The GPU at this end.
    gpu: Option<&'a GpuMemory>,
}

impl<'a> Wanted<'a> {
    /// A transfer with a partner.
    pub(super) fn partner(agreed: &Agreed<'a>, size: u32, gpu: Option<&'a GpuMemory>) -> Wanted<'a> {
        let Agreed { partner, terms } = *agreed;
        let gid = terms.gid.map(Ipv6Addr::from);
        Wanted { node: &partner.name, device: &terms.device, gid, size: size.into(), gpu }
    }

    /// A transfer to a device of this node.
    pub(super) fn here(to: &super::End<'a>, size: u32, gpu: Option<&'a GpuMemory>) -> Wanted<'a> {
        let gid = to.gid.map(|gid| gid.address);
        Wanted { node: "this node", device: to.name(), gid, size: size.into(), gpu }
    }

    fn check(&self, figures: &Figures) -> Result<(), ParseError> {
        let Wanted { node, device, .. } = self;
        if let (Some(wanted), Some(found)) = (self.gid, figures.remote_gid)
            && wanted != found
        {
            return Err(ParseError::Foreign(format!(
                "the other end has the GID {found}, and {device} of {node} has {wanted}: another program \
                 answered at its port, or it used another GID"
            )));
        }
        if let Some(gpu) = self.gpu
            && let Some(used) = &figures.gpu
            && !used.is(&gpu.pci)
        {
            return Err(ParseError::Foreign(format!(
                "perftest used the GPU at {used}, and {} was meant: its runtime counts the GPUs of this node \
                 in another order",
                gpu.pci
            )));
        }
        Ok(())
    }
}

/// The outputs that have not been read yet.
#[derive(Clone, Debug)]
pub(super) struct Outputs<'a> {
    rest: slice::Iter<'a, Output>,
}

impl<'a> Outputs<'a> {
    pub(super) fn of(outputs: &'a [Output]) -> Outputs<'a> {
        Outputs { rest: outputs.iter() }
    }

    /// The repeats of both directions, in the order in which a side measures them.
    pub(super) fn both_ways(
        &mut self,
        side: Side,
        repeats: u32,
        wanted: &Wanted<'_>,
    ) -> Result<Ways, ParseError> {
        let first = self.bandwidths(repeats, wanted)?;
        let second = self.bandwidths(repeats, wanted)?;
        Ok(match Direction::order(side) {
            [Direction::Sent, _] => Ways { sent: first, received: second },
            [Direction::Received, _] => Ways { sent: second, received: first },
        })
    }

    /// The repeats of one direction. One that measured nothing, which perftest prints as 0.00, is
    /// left out.
    pub(super) fn bandwidths(&mut self, repeats: u32, wanted: &Wanted<'_>) -> Result<Repeats, ParseError> {
        let mut found = Vec::new();
        for _ in 0..repeats {
            found.extend(self.next(wanted)?.bytes_per_second);
        }
        let best = found.iter().copied().reduce(f64::max);
        let worst = found.iter().copied().reduce(f64::min);
        let (Some(best), Some(worst)) = (best, worst) else {
            return Err(ParseError::Missing("bandwidth other than 0.00"));
        };
        Ok(Repeats { best, worst, measured: found.len(), of: repeats as usize })
    }

    /// The repeats of a latency test.
    pub(super) fn latencies(&mut self, repeats: u32, wanted: &Wanted<'_>) -> Result<Latencies, ParseError> {
        let mut found = Vec::new();
        for _ in 0..repeats {
            found.extend(self.next(wanted)?.times);
        }
        let by_typical = |a: &&Times, b: &&Times| a.typical.total_cmp(&b.typical);
        let (Some(best), Some(worst)) = (found.iter().min_by(by_typical), found.iter().max_by(by_typical))
        else {
            return Err(ParseError::Missing("latency"));
        };
        let typical =
            Repeats { best: best.typical, worst: worst.typical, measured: found.len(), of: repeats as usize };
        Ok(Latencies { best: *best, typical })
    }

    /// That nothing is left.
    pub(super) fn end(mut self) -> Result<(), ParseError> {
        match self.rest.next() {
            None => Ok(()),
            Some(_) => Err(ParseError::Foreign("there are more outputs than stages".into())),
        }
    }

    fn next(&mut self, wanted: &Wanted<'_>) -> Result<Figures, ParseError> {
        let output = self.rest.next().ok_or(ParseError::Missing("output of a stage"))?;
        let figures = figures(output, wanted.size)?;
        wanted.check(&figures)?;
        Ok(figures)
    }
}
