//! What is known of other nodes: who they are, and how well they cover this node's rails.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
    registry::Unit,
};

use super::{gauge, info};
use crate::{
    agent::Agent,
    lane::{Lane, View},
    runner::epoch_seconds,
};

/// What is known of one rail.
#[derive(Debug, Default)]
struct Rail<'a> {
    partners: BTreeSet<&'a str>,
    oldest: Option<f64>,
}

pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    agent: &Agent,
    views: &[(&Lane, Arc<View>, f64)],
) -> fmt::Result {
    let now = epoch_seconds();
    let mut rails: BTreeMap<&str, Rail<'_>> = BTreeMap::new();
    for (lane, view, _) in views.iter().filter(|(lane, ..)| lane.is_scheduled_pair()) {
        let Some(target) = &lane.target else { continue };
        // What a node can't do is not waited for.
        if view.impossible {
            continue;
        }
        let rail = rails.entry(target.id()).or_default();
        let standing = view.standings.get(target);
        rail.partners
            .extend(standing.into_iter().flat_map(|standing| standing.partners.coverage().names(now)));
        let at = standing.and_then(|standing| standing.completed.as_ref()).map_or(0.0, |(at, _)| *at);
        rail.oldest = Some(rail.oldest.map_or(at, |oldest| oldest.min(at)));
    }
    let single = |encoder: &mut DescriptorEncoder<'_>, name, help, unit: Option<Unit>, value: f64| {
        ConstGauge::new(value).encode(encoder.encode_descriptor(
            name,
            help,
            unit.as_ref(),
            MetricType::Gauge,
        )?)
    };
    #[expect(clippy::cast_precision_loss, reason = "counts")]
    let (members, leases) = (agent.members().members().len() as f64, agent.leases().count() as f64);
    single(encoder, "peer_members", "Agents in the membership, this one included.", None, members)?;
    single(encoder, "peer_leases", "Leases that partners have here now.", None, leases)?;
    let good = f64::from(u8::from(agent.list_problem().is_none()));
    single(
        encoder,
        "peer_list_last_read_successful",
        "Whether the list of peers could be read.",
        None,
        good,
    )?;
    let digest = format!("{:016x}", agent.members().digest());
    let help = "The names in the list of peers, as a hash: agents with different ones make different pairs.";
    info(encoder, "peer_list", help, &[("digest", &digest)])?;
    if let Some(skew) = agent.core().skew.seconds() {
        let help = "How far the clock of the newest partner is ahead of ours.";
        single(encoder, "peer_clock_skew", help, Some(Unit::Seconds), skew)?;
    }
    let help = "Different nodes that this device was measured with in the last 24 hours.";
    let mut family = encoder.encode_descriptor("coverage_partners", help, None, MetricType::Gauge)?;
    for (device, rail) in &rails {
        #[expect(clippy::cast_precision_loss, reason = "at most some hundred")]
        gauge(&mut family, &[("device", device)], rail.partners.len() as f64)?;
    }
    let help =
        "When the probe of this device that waits longest was last measured with a partner; 0 if never.";
    let mut family = encoder.encode_descriptor(
        "coverage_oldest_timestamp",
        help,
        Some(&Unit::Seconds),
        MetricType::Gauge,
    )?;
    for (device, rail) in &rails {
        gauge(&mut family, &[("device", device)], rail.oldest.unwrap_or(0.0))?;
    }
    Ok(())
}
