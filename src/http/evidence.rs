//! The parts of a page that show why: findings with what was expected, values, what was executed.

use std::fmt::Write as _;

use probes::{Finding, Verdict};

use crate::{
    http::{
        page::facts,
        route::how_to_be_trusted,
        status::{Snapshot, Value},
        style::{Esc, count, human, sign},
    },
    run::Run,
};

/// One finding in full.
pub(crate) fn finding(out: &mut String, finding: &Finding) {
    let verdict = finding.verdict.map_or("<span class=\"v d\">not applicable</span>".to_string(), sign);
    let _ = write!(
        out,
        "<h3>{} <span class=\"m d\">{}</span> {verdict}</h3>",
        Esc(&finding.check.replace('_', " ")),
        Esc(&finding.part)
    );
    facts(out, finding);
}

/// Findings, the worst first and in full; those that passed or do not apply in a table.
pub(crate) fn findings(out: &mut String, all: &[Finding]) {
    let severity = |finding: &Finding| finding.verdict.map_or(0, Verdict::severity);
    let (mut open, quiet): (Vec<_>, Vec<_>) =
        all.iter().partition(|finding| severity(finding) > Verdict::Pass.severity());
    open.sort_by_key(|finding| std::cmp::Reverse(severity(finding)));
    for bad in open {
        finding(out, bad);
    }
    if quiet.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "<details><summary>{}</summary><div class=\"scroll\"><table><thead><tr><th>check</th>\
         <th>part</th><th>verdict</th><th>found</th><th>expected</th></tr></thead><tbody>",
        count(quiet.len(), "check that passed or does not apply", "checks that passed or do not apply")
    );
    for good in quiet {
        let verdict = good.verdict.map_or("<span class=\"v d\">not applicable</span>".to_string(), sign);
        let _ = write!(
            out,
            "<tr><td>{}</td><td class=\"m\">{}</td><td>{verdict}</td><td class=\"w\">{}</td><td class=\"w d\">{}</td></tr>",
            Esc(&good.check.replace('_', " ")),
            Esc(&good.part),
            Esc(&good.found),
            Esc(&good.expected)
        );
    }
    out.push_str("</tbody></table></div></details>");
}

/// Measured values with their units.
pub(crate) fn values(out: &mut String, values: &[Value]) {
    if values.is_empty() {
        return;
    }
    let _ = write!(
        out,
        "<details><summary>{}</summary><div class=\"scroll\"><table><tbody>",
        count(values.len(), "value", "values")
    );
    for value in values {
        let labels: Vec<_> = value.labels.iter().map(|(name, text)| format!("{name}={text}")).collect();
        let _ = write!(
            out,
            "<tr><td class=\"m\">{}</td><td class=\"m d\">{}</td><td class=\"num\">{}</td></tr>",
            value.metric,
            Esc(&labels.join(" ")),
            Esc(&human(value.metric, value.value))
        );
    }
    out.push_str("</tbody></table></div></details>");
}

/// Tells other than trusted readers that there is more, and how to see it.
pub(crate) fn not_for_everybody(out: &mut String, snapshot: &Snapshot) {
    if !snapshot.trusted {
        let _ = write!(
            out,
            "<p class=\"lede\">Command lines, exit statuses and logs are not for everybody: {}.</p>",
            Esc(&how_to_be_trusted(&snapshot.socket))
        );
    }
}

/// What was executed, for trusted readers.
pub(crate) fn steps(out: &mut String, run: &Run, trusted: bool) {
    if !trusted {
        return;
    }
    for step in &run.evidence {
        let _ = write!(
            out,
            "<h3>Executed</h3><pre>{}</pre><p class=\"lede\">{}, after {}</p>",
            Esc(&step.argv.join(" ")),
            Esc(&step.exit),
            Esc(&human("_seconds", step.took.as_secs_f64()))
        );
        for (name, text) in [("standard output", &step.stdout), ("standard error", &step.stderr)] {
            if !text.trim().is_empty() {
                let _ = write!(
                    out,
                    "<details><summary>end of {name}</summary><pre>{}</pre></details>",
                    Esc(text.trim_end())
                );
            }
        }
    }
}
