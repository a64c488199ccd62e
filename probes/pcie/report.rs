//! The values that a run exports, each part's once.
//!
//! A bridge above several targets is told with the first of them. Only the lower end of a link has
//! link series: the port above shows the same link again.

use std::collections::BTreeSet;

use super::{Config, Function, errors::Severity, hop::Hop, judge::Node, metrics};
use crate::{Inventory, Reading, config_space::Kind};

/// Bridges whose error counts are exported, those with the most errors first. Without a bound a
/// node with many switches would export more zeros than facts.
const BRIDGES_WITH_ERRORS: usize = 4;

pub(super) fn measure(node: &Node<'_>, readings: &mut [Reading]) {
    let mut told = BTreeSet::new();
    let failing = failing_bridges(node, readings);
    for reading in readings {
        let pci = reading.target.id().to_string();
        let Some(function) = node.function(&pci) else { continue };
        let bridges = node.bridges(&pci);
        let hops = Hop::all(function, &bridges);
        for hop in &hops {
            if told.insert(format!("link {}", hop.lower.pci)) {
                link(reading, hop);
            }
        }
        requests(reading, function);
        if let Some(narrowest) = hops
            .iter()
            .map(Hop::bandwidth)
            .collect::<Option<Vec<_>>>()
            .and_then(|all| all.into_iter().min_by(f64::total_cmp))
        {
            reading.measure(&metrics::PATH_BANDWIDTH, [&pci], narrowest);
        }
        for bridge in bridges.into_iter().flatten() {
            if let Config::Read(space) = &bridge.config
                && let Some(acs) = space.acs
                && told.insert(format!("acs {}", bridge.pci))
            {
                reading.measure(&metrics::ACS_REDIRECT, [&bridge.pci], f64::from(u8::from(acs.redirects())));
            }
            if failing.contains(&bridge.pci) && told.insert(format!("errors {}", bridge.pci)) {
                errors(reading, bridge);
            }
        }
        errors(reading, function);
        info(reading, function, node.ctx.inventory);
    }
}

fn failing_bridges(node: &Node<'_>, readings: &[Reading]) -> Vec<String> {
    let mut counts: Vec<(u64, String)> = Vec::new();
    let targets = readings.iter().map(|reading| reading.target.id());
    for bridge in targets.flat_map(|pci| node.bridges(pci)).flatten() {
        let errors = bridge.errors.unwrap_or_default();
        let count: u64 = Severity::ALL.iter().filter_map(|severity| errors.count(*severity)).sum();
        if count > 0 {
            counts.push((count, bridge.pci.clone()));
        }
    }
    counts.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    counts.dedup();
    counts.into_iter().take(BRIDGES_WITH_ERRORS).map(|(_, pci)| pci).collect()
}

fn link(reading: &mut Reading, hop: &Hop<'_>) {
    let Some(link) = hop.link() else { return };
    let pci = [hop.lower.pci.as_str()];
    if let Some(speed) = link.speed {
        reading.measure(&metrics::SPEED, pci, speed * 1e9);
    }
    if let Some(speed) = link.max_speed {
        reading.measure(&metrics::MAX_SPEED, pci, speed * 1e9);
    }
    if let Some(width) = link.max_width {
        // A zero that was read: down above a bridge, and not told by a virtual function.
        reading.measure(&metrics::WIDTH, pci, f64::from(link.width.unwrap_or(0)));
        reading.measure(&metrics::MAX_WIDTH, pci, f64::from(width));
    }
}

fn requests(reading: &mut Reading, function: &Function) {
    let Some(express) = function.express() else { return };
    let pci = [function.pci.as_str()];
    if let Some(bytes) = express.max_read_request {
        reading.measure(&metrics::MAX_READ_REQUEST, pci, f64::from(bytes));
    }
    if let Some(bytes) = express.max_payload {
        reading.measure(&metrics::MAX_PAYLOAD, pci, f64::from(bytes));
    }
}

#[expect(clippy::cast_precision_loss, reason = "2^53 errors do not happen, and metrics are floats")]
fn errors(reading: &mut Reading, function: &Function) {
    let Some(errors) = function.errors else { return };
    for severity in Severity::ALL {
        if let Some(count) = errors.count(severity) {
            reading.measure(&metrics::AER_ERRORS, [&function.pci, severity.word()], count as f64);
        }
    }
}

fn info(reading: &mut Reading, function: &Function, inventory: &Inventory) {
    let pci = function.pci.as_str();
    let Some(known) = inventory.function(pci) else { return };
    let gpu = inventory.gpus.iter().find(|gpu| gpu.function.pci == pci).and_then(|gpu| gpu.model.clone());
    let nic = inventory.nics.iter().find(|nic| nic.function.pci == pci).map(|nic| nic.rdma.join(","));
    let express = function.express();
    let on_off = |state: Option<bool>| match state {
        Some(true) => "on",
        Some(false) => "off",
        None => "",
    };
    let labels = [
        pci,
        express.and_then(|express| express.kind).map_or("", Kind::words),
        &format!("{:04x}", known.vendor),
        &format!("{:04x}", known.device),
        known.driver.as_deref().unwrap_or(""),
        &gpu.or(nic).unwrap_or_default(),
        on_off(express.and_then(|express| express.relaxed_ordering)),
        on_off(express.and_then(|express| express.extended_tags)),
        on_off(express.and_then(|express| express.ten_bit_tags)),
    ];
    reading.measure(&metrics::FUNCTION, labels, 1.0);
}
