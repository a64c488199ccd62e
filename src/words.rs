//! Words that are said in several places, and must be the same in all of them.

use probes::{Finding, Verdict};

/// What a finding says, each with its label; what it does not say is left out. A command is for
/// looking into a fault, so what passed has none.
pub(crate) fn finding(finding: &Finding) -> impl Iterator<Item = (&'static str, &str)> {
    let command = match finding.verdict {
        Some(Verdict::Degraded | Verdict::Fail | Verdict::Unknown) => finding.command.as_str(),
        Some(Verdict::Pass) | None => "",
    };
    [("found", &*finding.found), ("expected", &*finding.expected), ("why", &*finding.why), (TRY, command)]
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
}

/// The label of a command.
pub(crate) const TRY: &str = "try";

/// A finding for a terminal: one line, and indented below it what it says.
pub(crate) fn lines(of: &Finding) -> String {
    let verdict = of.verdict.map_or("not applicable", Verdict::word);
    let mut out = format!("  {} of {}: {verdict}\n", of.check, of.part);
    for (label, text) in finding(of) {
        out.push_str(&format!("    {label}: {text}\n"));
    }
    out
}

/// The names of all tests.
pub(crate) fn known_tests() -> String {
    probes::PROBES.iter().map(|probe| probe.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_what_it_has_and_a_command_only_where_there_is_a_fault() {
        let table = [
            (Some(Verdict::Fail), true),
            (Some(Verdict::Degraded), true),
            (Some(Verdict::Unknown), true),
            (Some(Verdict::Pass), false),
            (None, false),
        ];
        for (verdict, command) in table {
            let made = Finding::new("large_bar", "0000:05:00.0", Verdict::Pass, "256 GiB", "all memory")
                .try_command("lspci -vvv -s 0000:05:00.0");
            let made = Finding { verdict, ..made };
            let labels: Vec<_> = finding(&made).map(|(label, _)| label).collect();
            let expected = if command { vec!["found", "expected", "try"] } else { vec!["found", "expected"] };
            assert_eq!(labels, expected, "{verdict:?}");
            assert_eq!(lines(&made).contains("    try: lspci -vvv"), command);
        }
    }
}
