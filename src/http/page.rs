//! The pages, for a person at night: first in words what is wrong, then the parts, then the rest.
//!
//! Pure functions of what the agent knows. Everything shown is escaped; no script, nothing loaded.

use std::{collections::BTreeMap, fmt::Write as _};

use probes::{Finding, Verdict};

use crate::{
    http::{
        api::outcome_for,
        evidence,
        query::encode,
        status::{LaneStatus, Snapshot, Status},
        style::{Esc, ago, count, date, frame, glyph, human, sign, span},
        tree,
    },
    run::Run,
    words,
};

/// Faults told in full; a node that has more has one cause, and the rest is in the tree.
const CARDS: usize = 8;

/// Runs listed on the first page.
const RECENT: usize = 12;

/// Runs in a part's strip of history.
const STRIP: usize = 32;

/// The first page.
pub(crate) fn front(snapshot: &Snapshot) -> String {
    let status = &snapshot.status;
    let mut out = String::new();
    headline(&mut out, status);
    if let Some(hold) = &status.hold {
        let _ = write!(
            out,
            "<p class=\"note\"><b>Held</b> by {} until {} ({}): {}. No active probe starts; \
             <code>fabricpulse release</code> ends it.</p>",
            Esc(&hold.by),
            Esc(&date(hold.until)),
            Esc(&ago(status.now, hold.until)),
            Esc(&hold.reason)
        );
    }
    cards(&mut out, status);
    unknowns(&mut out, status);
    out.push_str("<h2>Parts</h2>");
    out.push_str(&tree::draw(snapshot));
    others(&mut out, snapshot);
    off(&mut out, status);
    recent(&mut out, snapshot);
    out.push_str(
        "<footer><a href=\"/metrics\">metrics</a><a href=\"/api/v1/status\">status as JSON</a>\
         <a href=\"/api/v1/runs\">runs as JSON</a><a href=\"/config\">configuration</a></footer>",
    );
    frame(&format!("{}: {}", status.node, status.verdict), &crumbs(status, ""), &out)
}

fn crumbs(status: &Status, here: &str) -> String {
    let here = if here.is_empty() { String::new() } else { format!("<span>{}</span>", Esc(here)) };
    format!(
        "<b><a href=\"/\">{}</a></b>{here}<span class=\"r\">fabricpulse {} · {}</span>",
        Esc(&status.node),
        status.version,
        Esc(&date(status.now))
    )
}

/// What is not measured here, and why: each reason once.
fn off(out: &mut String, status: &Status) {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for off in &status.off {
        match reasons.iter_mut().find(|(reason, _)| *reason == off.reason) {
            Some((_, probes)) if probes.contains(&off.probe) => {}
            Some((_, probes)) => probes.push(off.probe),
            None => reasons.push((&off.reason, vec![off.probe])),
        }
    }
    if reasons.is_empty() {
        return;
    }
    out.push_str("<h2>Not measured by itself</h2>");
    for (reason, probes) in reasons {
        let _ = write!(out, "<p class=\"note\"><b>{}</b>: {}</p>", Esc(&probes.join(", ")), Esc(reason));
    }
}

/// The lanes of one verdict.
fn of(status: &Status, verdict: Verdict) -> Vec<&LaneStatus> {
    status.lanes.iter().filter(|lane| lane.verdict == verdict).collect()
}

/// The targets of lanes, each once.
fn parts(lanes: &[&LaneStatus]) -> usize {
    lanes.iter().map(|lane| lane.target.as_str()).collect::<std::collections::BTreeSet<_>>().len()
}

fn headline(out: &mut String, status: &Status) {
    let failed = parts(&of(status, Verdict::Fail));
    let degraded = parts(&of(status, Verdict::Degraded));
    let (passed, unknown) = (of(status, Verdict::Pass).len(), of(status, Verdict::Unknown).len());
    let (sign, title): (Verdict, String) = match (failed, degraded, passed, unknown) {
        (0, 0, 0, 0) => (Verdict::Unknown, "Nothing has been probed yet".to_string()),
        (0, 0, 0, _) => (Verdict::Unknown, "Nothing could be judged yet".to_string()),
        (0, 0, _, 0) => (Verdict::Pass, "Everything is as it should be".to_string()),
        (0, 0, _, _) => (Verdict::Pass, "Everything that could be judged is as it should be".to_string()),
        (0, degraded, _, _) => {
            let verb = if degraded == 1 { "is" } else { "are" };
            (
                Verdict::Degraded,
                capital(&format!("{} {verb} worse than it should be", count(degraded, "part", "parts"))),
            )
        }
        (failed, 0, _, _) => {
            let verb = if failed == 1 { "has" } else { "have" };
            (Verdict::Fail, capital(&format!("{} {verb} failed", count(failed, "part", "parts"))))
        }
        (failed, degraded, _, _) => {
            let verb = if failed == 1 { "has" } else { "have" };
            let more = if degraded == 1 { "one is" } else { &format!("{degraded} are") };
            (
                Verdict::Fail,
                capital(&format!("{} {verb} failed, {more} degraded", count(failed, "part", "parts"))),
            )
        }
    };
    let title = title.replace("are worse than it should", "are worse than they should");
    let stale = status.lanes.iter().filter(|lane| lane.stale(status.now)).count();
    let mut facts = vec![format!("{} passed", count(passed, "check", "checks"))];
    facts.push(match unknown {
        0 => "nothing is unknown".to_string(),
        unknown => format!("{unknown} unknown"),
    });
    if stale > 0 {
        facts.push(format!("{stale} not judged for three intervals"));
    }
    let _ = write!(
        out,
        "<h1><span class=\"{}\">{}</span>{}</h1><p class=\"lede\">{}.</p>",
        sign.word(),
        glyph(sign),
        Esc(&title),
        Esc(&capital(&facts.join(", ")))
    );
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}

/// A fault: a lane, and the finding that made it one if there is one.
fn faults(status: &Status) -> Vec<(&LaneStatus, Option<&Finding>, Verdict)> {
    let mut faults = Vec::new();
    for lane in status.lanes.iter().filter(|lane| matches!(lane.verdict, Verdict::Fail | Verdict::Degraded)) {
        let before = faults.len();
        for finding in &lane.findings {
            match finding.verdict {
                Some(verdict @ (Verdict::Fail | Verdict::Degraded)) => {
                    faults.push((lane, Some(finding), verdict));
                }
                Some(Verdict::Pass | Verdict::Unknown) | None => {}
            }
        }
        if faults.len() == before {
            faults.push((lane, None, lane.verdict));
        }
    }
    faults.sort_by_key(|(_, _, verdict)| std::cmp::Reverse(verdict.severity()));
    // A bridge above eight GPUs is one fault and not eight.
    let mut seen = std::collections::BTreeSet::new();
    faults.retain(|(lane, finding, _)| match finding {
        Some(finding) => seen.insert((finding.part.clone(), finding.check.clone())),
        None => seen.insert((lane.target.clone(), lane.probe.to_string())),
    });
    faults
}

fn cards(out: &mut String, status: &Status) {
    let faults = faults(status);
    if faults.is_empty() {
        return;
    }
    out.push_str("<ul class=\"cards\">");
    for (lane, finding, verdict) in faults.iter().take(CARDS) {
        let part = finding.map_or(lane.target.as_str(), |finding| finding.part.as_str());
        let check = finding.map_or(lane.probe, |finding| finding.check.as_str()).replace('_', " ");
        let _ = write!(
            out,
            "<li class=\"card {}\"><div class=\"t\">{}<b><a href=\"/part/{}\">{}</a></b><span>{}</span>\
             <span class=\"d\">{}, for {}</span></div>",
            verdict.word(),
            sign(*verdict),
            encode(&lane.target),
            Esc(part),
            Esc(&check),
            lane.probe,
            Esc(&span(status.now - lane.since))
        );
        match finding {
            Some(finding) => facts(out, finding),
            None => {
                let _ = write!(out, "<dl><dt>reason</dt><dd>{}</dd></dl>", Esc(&lane.reason));
            }
        }
        out.push_str("</li>");
    }
    out.push_str("</ul>");
    if faults.len() > CARDS {
        let _ = write!(out, "<p class=\"lede\">And {} more, marked below.</p>", faults.len() - CARDS);
    }
}

/// A finding's words as a list; empty ones are left out.
pub(crate) fn facts(out: &mut String, finding: &Finding) {
    out.push_str("<dl>");
    for (label, text) in words::finding(finding) {
        let (open, close) = if label == words::TRY { ("<code>", "</code>") } else { ("", "") };
        let _ = write!(out, "<dt>{label}</dt><dd>{open}{}{close}</dd>", Esc(text));
    }
    out.push_str("</dl>");
}

/// What is unknown, by reason: one missing privilege is one line, not sixteen.
fn unknowns(out: &mut String, status: &Status) {
    let unknown = of(status, Verdict::Unknown);
    if unknown.is_empty() {
        return;
    }
    let mut reasons: BTreeMap<&str, Vec<&LaneStatus>> = BTreeMap::new();
    for lane in &unknown {
        reasons.entry(&lane.reason).or_default().push(lane);
    }
    let nothing_else = unknown.len() == status.lanes.len();
    let open = if nothing_else { " open" } else { "" };
    let _ =
        write!(out, "<details{open}><summary>{} unknown, and why</summary><ul class=\"why\">", unknown.len());
    for (reason, lanes) in reasons {
        let links: Vec<_> = lanes
            .iter()
            .map(|lane| {
                format!(
                    "<a class=\"nw\" href=\"/part/{}\">{} {}</a>",
                    encode(&lane.target),
                    lane.probe,
                    Esc(&lane.target)
                )
            })
            .collect();
        let _ = write!(out, "<li>{}<br><span class=\"d\">{}</span></li>", Esc(reason), links.join(", "));
    }
    out.push_str("</ul></details>");
}

/// Targets that have no place in the tree: the node, operators' checks, and parts that are gone.
fn others(out: &mut String, snapshot: &Snapshot) {
    let inventory = &snapshot.inventory;
    let in_tree = |lane: &&LaneStatus| {
        let on_pci = inventory.function(&lane.target).is_some();
        on_pci || inventory.nics.iter().any(|nic| nic.rdma.contains(&lane.target))
    };
    let lanes: Vec<_> = snapshot.status.lanes.iter().filter(|lane| !in_tree(lane)).collect();
    if lanes.is_empty() {
        return;
    }
    out.push_str("<h2>Node and other checks</h2><table><tbody>");
    for lane in lanes {
        let _ = write!(
            out,
            "<tr><td class=\"nw\"><a href=\"/part/{}\">{}</a></td><td class=\"d\">{}</td><td>{}</td><td class=\"w\">{}</td></tr>",
            encode(&lane.target),
            Esc(&lane.target),
            lane.probe,
            sign(lane.verdict),
            Esc(&lane.reason)
        );
    }
    out.push_str("</tbody></table>");
}

fn recent(out: &mut String, snapshot: &Snapshot) {
    if snapshot.runs.is_empty() {
        return;
    }
    out.push_str(
        "<h2>Last runs</h2><table><thead><tr><th>run</th><th>probe</th><th>when</th><th class=\"wide\">trigger</th>\
         <th class=\"wide\">took</th><th>outcome</th><th>verdict</th></tr></thead><tbody>",
    );
    for run in snapshot.runs.iter().take(RECENT) {
        let verdict = if run.reports.is_empty() {
            "<span class=\"d\">none</span>".to_string()
        } else {
            sign(run.worst())
        };
        let _ = write!(
            out,
            "<tr><td><a href=\"/run/{0}\">{0}</a></td><td>{1}</td><td class=\"nw\">{2}</td><td class=\"d wide\">{3}</td>\
             <td class=\"d wide nw\">{4}</td><td>{5}</td><td>{6}</td></tr>",
            run.id,
            run.probe,
            Esc(&ago(snapshot.status.now, run.started)),
            Esc(&run.occasion()),
            Esc(&human("_seconds", run.took.as_secs_f64())),
            run.outcome.word(),
            verdict
        );
    }
    out.push_str("</tbody></table>");
}

/// The page of one part, by any of its names; none if the node has nothing of this name.
pub(crate) fn part(snapshot: &Snapshot, name: &str) -> Option<String> {
    let (status, inventory) = (&snapshot.status, &snapshot.inventory);
    let behind = inventory.nics.iter().find(|nic| nic.rdma.iter().any(|rdma| rdma == name));
    let pci = behind.map_or(name, |nic| nic.function.pci.as_str());
    let names = tree::names(inventory, pci);
    let lanes: Vec<_> = status.lanes.iter().filter(|lane| names.contains(&lane.target.as_str())).collect();
    let about: Vec<_> = status
        .lanes
        .iter()
        .filter(|lane| !names.contains(&lane.target.as_str()))
        .flat_map(|lane| lane.findings.iter().map(move |finding| (lane, finding)))
        .filter(|(_, finding)| names.contains(&finding.part.as_str()))
        .collect();
    let function = inventory.function(pci);
    if lanes.is_empty() && about.is_empty() && function.is_none() {
        return None;
    }
    let (kind, title) = tree::title(inventory, pci);
    let kind = if function.is_none() { "" } else { kind };
    let title = if title.is_empty() { name.to_string() } else { title };
    let mut out = String::new();
    let worst = tree::Marks::of(status).worst(names.iter().copied());
    let mark = worst.map(|verdict| format!("<span class=\"{}\">{}</span>", verdict.word(), glyph(verdict)));
    let _ = write!(out, "<h1>{}{}</h1>", mark.unwrap_or_default(), Esc(&title));
    let mut facts_of = vec![kind.to_string(), pci.to_string()];
    if let Some(function) = function {
        facts_of.extend(function.driver.as_ref().map(|driver| format!("driver {driver}")));
        facts_of.extend(function.numa.map(|numa| format!("NUMA node {numa}")));
        facts_of.extend(tree::link(status, inventory, pci));
    }
    facts_of.retain(|fact| !fact.is_empty() && *fact != title);
    let _ = write!(out, "<p class=\"lede\">{}</p>", Esc(&facts_of.join(" · ")));
    if let Some(function) = function.filter(|function| !function.path.is_empty()) {
        let above: Vec<_> = function
            .path
            .iter()
            .rev()
            .map(|bridge| format!("<a class=\"m\" href=\"/part/{}\">{}</a>", encode(bridge), Esc(bridge)))
            .collect();
        let _ = write!(out, "<p class=\"lede\">below {}</p>", above.join(" › "));
    }
    for lane in &lanes {
        standing(&mut out, snapshot, lane);
    }
    if lanes.iter().any(|lane| run_of(snapshot, lane).is_some()) {
        evidence::not_for_everybody(&mut out, snapshot);
    }
    if !about.is_empty() {
        out.push_str("<h2>Said of it by probes of other parts</h2>");
        let mut seen = std::collections::BTreeSet::new();
        let about: Vec<Finding> = about
            .into_iter()
            .filter(|(lane, finding)| seen.insert((&finding.check, lane.probe)))
            .map(|(_, finding)| finding.clone())
            .collect();
        evidence::findings(&mut out, &about);
    }
    Some(frame(&format!("{title}, {}", status.node), &crumbs(status, kind), &out))
}

/// What one probe knows of a part.
fn standing(out: &mut String, snapshot: &Snapshot, lane: &LaneStatus) {
    let now = snapshot.status.now;
    let _ = write!(out, "<h2>{}</h2><p>{} {}</p>", lane.probe, sign(lane.verdict), Esc(&lane.reason));
    let mut times = vec![format!("so for {}", span(now - lane.since))];
    if lane.since <= 0.0 {
        times.clear();
    }
    times.push(match (lane.last_completed, lane.last_judged) {
        (Some(at), _) => format!("last measured {}", ago(now, at)),
        (None, Some(at)) => format!("last judged {}", ago(now, at)),
        (None, None) => "never measured".to_string(),
    });
    times.push(format!("every {}", span(lane.interval)));
    if lane.running.is_some() {
        times.push("running now".to_string());
    }
    let link = lane.run.map(|run| format!(" · <a href=\"/run/{run}\">run {run}</a>")).unwrap_or_default();
    let _ = write!(out, "<p class=\"lede\">{}{link}</p>", Esc(&times.join(" · ")));
    strip(out, snapshot, lane);
    evidence::findings(out, &lane.findings);
    evidence::values(out, &lane.values);
    if let Some(run) = run_of(snapshot, lane) {
        evidence::steps(out, run, snapshot.trusted);
    }
}

/// The run that a lane's verdict is from, if it executed something.
fn run_of<'a>(snapshot: &'a Snapshot, lane: &LaneStatus) -> Option<&'a Run> {
    let mut runs = snapshot.runs.iter().map(|run| &**run);
    runs.find(|run| Some(run.id) == lane.run && !run.evidence.is_empty())
}

/// A lane's kept runs as bars, oldest left: the higher, the worse.
fn strip(out: &mut String, snapshot: &Snapshot, lane: &LaneStatus) {
    let mut runs: Vec<(&Run, Verdict)> = snapshot
        .runs
        .iter()
        .filter(|run| run.probe == lane.probe)
        .filter_map(|run| {
            let report = run.reports.iter().find(|report| report.target.id() == lane.target)?;
            Some((&**run, report.verdict))
        })
        .take(STRIP)
        .collect();
    if runs.len() < 2 {
        return;
    }
    runs.reverse();
    let _ = write!(
        out,
        "<svg class=\"strip\" viewBox=\"0 0 {} 34\" preserveAspectRatio=\"xMinYMid meet\" role=\"img\" aria-label=\"kept runs, oldest first\">",
        STRIP * 16
    );
    for (index, (run, verdict)) in runs.iter().enumerate() {
        let height = 10 + 8 * u32::from(verdict.severity());
        let _ = write!(
            out,
            "<a href=\"/run/{}\" class=\"{}\"><rect x=\"{}\" y=\"{}\" width=\"12\" height=\"{height}\" rx=\"2\"><title>{}, {}</title></rect></a>",
            run.id,
            verdict.word(),
            index * 16,
            34 - height,
            verdict.word(),
            Esc(&date(run.started))
        );
    }
    out.push_str("</svg>");
}

/// The page of one run.
pub(crate) fn run(snapshot: &Snapshot, run: &Run) -> String {
    let status = &snapshot.status;
    let mut out = String::new();
    let worst = run.worst();
    let _ = write!(
        out,
        "<h1><span class=\"{}\">{}</span>{} run {}</h1><p class=\"lede\">{}</p>",
        worst.word(),
        glyph(worst),
        run.probe,
        run.id,
        Esc(&format!(
            "{} · {} · began {}, took {} · {}",
            outcome_for(&run.outcome, snapshot.trusted),
            run.occasion(),
            date(run.started),
            human("_seconds", run.took.as_secs_f64()),
            ago(status.now, run.started)
        ))
    );
    let mut reports: Vec<_> = run.reports.iter().collect();
    reports.sort_by_key(|report| std::cmp::Reverse(report.verdict.severity()));
    for report in reports {
        let _ = write!(
            out,
            "<h2><a href=\"/part/{}\">{}</a></h2><p>{} {}</p>",
            encode(report.target.id()),
            Esc(report.target.id()),
            sign(report.verdict),
            Esc(&report.reason)
        );
        evidence::findings(&mut out, &report.findings);
        let values: Vec<_> = report.measurements.iter().map(crate::http::status::Value::of).collect();
        evidence::values(&mut out, &values);
    }
    evidence::steps(&mut out, run, snapshot.trusted);
    if !run.evidence.is_empty() {
        evidence::not_for_everybody(&mut out, snapshot);
    }
    frame(&format!("{} run {}, {}", run.probe, run.id, status.node), &crumbs(status, "run"), &out)
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
