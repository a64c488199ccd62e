//! The node's parts as PCIe connects them: root complex, bridges, GPUs and NICs.
//!
//! A fault on a bridge hurts everything below it, so a flat list hides what matters at night. A
//! chain of bridges with one child each says nothing by its length, so it is one line.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use probes::{Inventory, Verdict, inventory::Function};

use crate::http::{
    query::encode,
    status::{Snapshot, Status},
    style::{Esc, digits, glyph, human, sign},
};

/// How deep the tree is drawn. PCIe allows 256 buses; a loop in a broken answer has no end.
const DEPTH: usize = 64;

/// What is known of the parts, by their names.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// The worst that any probe says of it as a target, or any finding of it as a part.
    verdicts: BTreeMap<String, Verdict>,
}

impl Marks {
    pub(crate) fn of(status: &Status) -> Marks {
        let mut marks = Marks::default();
        for lane in &status.lanes {
            marks.add(&lane.target, lane.verdict);
            for finding in &lane.findings {
                if let Some(verdict) = finding.verdict
                    && finding.part != lane.target
                {
                    marks.add(&finding.part, verdict);
                }
            }
        }
        marks
    }

    fn add(&mut self, name: &str, verdict: Verdict) {
        let worst = self.verdicts.entry(name.to_string()).or_insert(verdict);
        *worst = Verdict::worst([*worst, verdict]);
    }

    /// The worst of all of a part's names; none if no probe looks at it.
    pub(crate) fn worst<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<Verdict> {
        let mut known = names.into_iter().filter_map(|name| self.verdicts.get(name)).copied().peekable();
        known.peek().is_some().then(|| Verdict::worst(known))
    }
}

/// Every name that the probes may call the part at this address.
pub(crate) fn names<'a>(inventory: &'a Inventory, pci: &'a str) -> Vec<&'a str> {
    let nic = inventory.nics.iter().find(|nic| nic.function.pci == pci);
    [pci].into_iter().chain(nic.into_iter().flat_map(|nic| nic.rdma.iter().map(String::as_str))).collect()
}

/// What a part is, and what people call it.
pub(crate) fn title(inventory: &Inventory, pci: &str) -> (&'static str, String) {
    if let Some(gpu) = inventory.gpus.iter().find(|gpu| gpu.function.pci == pci) {
        return ("GPU", gpu.model.clone().unwrap_or_else(|| ids(&gpu.function)));
    }
    if let Some(nic) = inventory.nics.iter().find(|nic| nic.function.pci == pci) {
        let names: Vec<_> = nic.rdma.iter().chain(&nic.netdevs).map(String::as_str).collect();
        let name = if names.is_empty() { ids(&nic.function) } else { names.join(", ") };
        return ("NIC", name);
    }
    // What is neither is a bridge, listed or only named in a path.
    ("bridge", String::new())
}

fn ids(function: &Function) -> String {
    format!("{:04x}:{:04x}", function.vendor, function.device)
}

/// The last known link: as the `pcie` probe measured it, or as the kernel tells it.
pub(crate) fn link(status: &Status, inventory: &Inventory, pci: &str) -> Option<String> {
    let value = |metric: &str| {
        let values = status.lanes.iter().flat_map(|lane| &lane.values);
        values
            .filter(|value| value.metric == metric)
            .find(|value| value.labels.values().any(|label| label == pci))
            .map(|value| value.value)
    };
    const SPEED: &str = "pcie_link_speed_transfers_per_second";
    let known = inventory.function(pci).and_then(|function| function.link);
    let speed = value(SPEED).or(known.and_then(|link| link.speed).map(|speed| speed * 1e9));
    let width = value("pcie_link_width_lanes").or(known.and_then(|link| link.width).map(f64::from));
    let max = value("pcie_link_max_width_lanes").or(known.and_then(|link| link.max_width).map(f64::from));
    let (speed, width) = (speed?, width?);
    let mut text = format!("{} ×{}", human(SPEED, speed), digits(width));
    if let Some(max) = max.filter(|max| *max > width) {
        let _ = write!(text, " of ×{}", digits(max));
    }
    Some(text)
}

/// The ports of a NIC: `up, 50 GB/s`; none if the `nic` probe has not measured them.
fn ports(status: &Status, inventory: &Inventory, pci: &str) -> Option<String> {
    let nic = inventory.nics.iter().find(|nic| nic.function.pci == pci)?;
    let values = |metric: &'static str| {
        let values = status.lanes.iter().flat_map(|lane| &lane.values);
        values.filter(move |value| {
            value.metric == metric
                && value.labels.get("device").is_some_and(|device| nic.rdma.contains(device))
        })
    };
    let up: Vec<_> = values("nic_port_up").map(|value| value.value > 0.0).collect();
    let rate = values("nic_rate_bytes_per_second").map(|value| value.value).reduce(f64::max);
    let state = match (up.len(), up.iter().filter(|up| **up).count()) {
        (0, _) => return None,
        (all, up) if all == up => "up".to_string(),
        (_, 0) => "down".to_string(),
        (all, up) => format!("{up} of {all} ports up"),
    };
    let rate = rate.map(|rate| format!(", {}", human("_bytes_per_second", rate)));
    Some(state + &rate.unwrap_or_default())
}

/// Draws the tree.
pub(crate) fn draw(snapshot: &Snapshot) -> String {
    let tree = Tree::of(snapshot);
    let mut out = String::new();
    if tree.roots.is_empty() {
        out.push_str("<p class=\"lede\">No GPU, no NIC and no bridge above one was found on this node.</p>");
        return out;
    }
    out.push_str("<ul class=\"tree\">");
    for (root, children) in &tree.roots {
        let _ =
            write!(out, "<li><div class=\"root\">root complex <span class=\"m\">{}</span></div>", Esc(root));
        tree.children(&mut out, children, 0);
        out.push_str("</li>");
    }
    out.push_str("</ul>");
    out
}

struct Tree<'a> {
    snapshot: &'a Snapshot,
    marks: Marks,
    /// By root bus.
    roots: BTreeMap<String, BTreeSet<&'a str>>,
    /// By the bridge above.
    below: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> Tree<'a> {
    fn of(snapshot: &'a Snapshot) -> Tree<'a> {
        let inventory = &snapshot.inventory;
        let mut tree = Tree {
            snapshot,
            marks: Marks::of(&snapshot.status),
            roots: BTreeMap::new(),
            below: BTreeMap::new(),
        };
        let gpus = inventory.gpus.iter().map(|gpu| &gpu.function);
        let nics = inventory.nics.iter().map(|nic| &nic.function);
        for function in gpus.chain(nics) {
            let mut child = function.pci.as_str();
            for bridge in &function.path {
                tree.below.entry(bridge).or_default().insert(child);
                child = bridge;
            }
            // 0000:00:01.0 hangs on root bus 0000:00.
            let root = child.rsplit_once(':').map_or(child, |(bus, _)| bus);
            tree.roots.entry(root.to_string()).or_default().insert(child);
        }
        tree
    }

    fn children(&self, out: &mut String, children: &BTreeSet<&'a str>, depth: usize) {
        if depth > DEPTH {
            return;
        }
        out.push_str("<ul>");
        for child in children {
            let mut chain = vec![*child];
            while let Some(below) = chain.last().and_then(|last| self.below.get(last))
                && below.len() == 1
                && chain.len() < DEPTH
                && let Some(only) = below.first()
                && self.below.contains_key(only)
            {
                chain.push(only);
            }
            out.push_str("<li>");
            self.row(out, &chain);
            if let Some(below) = chain.last().and_then(|last| self.below.get(last)) {
                self.children(out, below, depth + 1);
            }
            out.push_str("</li>");
        }
        out.push_str("</ul>");
    }

    fn row(&self, out: &mut String, chain: &[&str]) {
        let inventory = &self.snapshot.inventory;
        out.push_str("<div class=\"row\">");
        for (index, pci) in chain.iter().enumerate() {
            let (kind, title) = title(inventory, pci);
            if index == 0 {
                let _ = write!(out, "<span class=\"d\">{kind}</span> ");
            } else {
                out.push_str("<span class=\"d\">›</span> ");
            }
            let verdict =
                self.marks.worst([*pci]).filter(|verdict| chain.len() > 1 && verdict.severity() > 1);
            let mark = verdict.map(glyph).unwrap_or_default();
            let href = encode(pci);
            if title.is_empty() {
                let _ = write!(out, "<a class=\"m\" href=\"/part/{href}\">{mark}{}</a> ", Esc(pci));
            } else {
                let _ = write!(
                    out,
                    "<a class=\"n\" href=\"/part/{href}\">{}</a> <span class=\"m d\">{}</span> ",
                    Esc(&title),
                    Esc(pci)
                );
            }
        }
        out.push_str("<span class=\"e\">");
        for port in chain.iter().filter_map(|pci| ports(&self.snapshot.status, inventory, pci)) {
            let _ = write!(out, "<span class=\"d\">{}</span>", Esc(&port));
        }
        if let [only] = chain
            && let Some(link) = link(&self.snapshot.status, inventory, only)
        {
            let _ = write!(out, "<span class=\"m d\">{}</span>", Esc(&link));
        }
        let names = chain.iter().flat_map(|pci| names(inventory, pci));
        match self.marks.worst(names) {
            Some(verdict) => out.push_str(&sign(verdict)),
            // Bridges are judged by what is found on them; nothing found is nothing to say.
            None if chain.iter().all(|pci| self.below.contains_key(pci)) => {
                out.push_str("<span class=\"v\"></span>");
            }
            None => out.push_str("<span class=\"v d\">not probed</span>"),
        }
        out.push_str("</span></div>");
    }
}
