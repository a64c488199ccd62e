//! The sentence for a person: the figure that decides, what it is compared with, and what to do.
//!
//! A likely cause is called likely. What the input does not show is not said.

use super::{
    super::{
        Expectation,
        words::{clip_to, ending, short},
    },
    Case, Content,
    judge::{Apart, Fall, Finding, Invalid, failing},
    rows,
};
use crate::perftest::{Dialect, Row, Run, Section, Unit};

/// Lines of a tool that are quoted are cut here, so that the rest of the sentence has room.
const QUOTED: usize = 150;

/// The sentence, without the class.
pub(super) fn verdict(case: &Case<'_>, finding: &Finding<'_>) -> String {
    match finding {
        Finding::Corrupt => corrupt(case),
        Finding::Said => said(case),
        Finding::Stalled => {
            let so_far = if case.has_rows() { so_far(case) } else { "; no row came".into() };
            format!("{}{so_far}", case.log.cause().unwrap_or_default())
        }
        Finding::Killed => killed(case),
        Finding::Silent => silent(case),
        Finding::Invalid(run, row, why) => invalid(run, *row, *why),
        Finding::Slow(run, ratio) => slow(case, run, *ratio),
        Finding::Limit => {
            let measured = best(case).map(|text| format!(", measured {text}")).unwrap_or_default();
            let limit = case.log.fault.limit.as_deref().unwrap_or_default();
            format!(
                "below the limit that the command gave ({limit}){measured}; compare the limit with the link's rate"
            )
        }
        Finding::Fallen(fall) => fallen(fall),
        Finding::Uneven(run, row) => {
            let minimum = row.minimum.map_or(0.0, |minimum| minimum.printed);
            let average = row.average.map_or(0.0, |average| average.printed);
            format!(
                "minimum {minimum:.2} {unit} at {size}, below 75 % of the average {average:.2} {unit}{on}: the rate is uneven; look for congestion or a busy host",
                unit = unit(run),
                size = size(row),
                on = on(run),
            )
        }
        Finding::Foreign => {
            "this is not what perftest prints; save its whole output, standard error too".into()
        }
        Finding::Nothing => nothing(case),
        Finding::Truncated => {
            format!(
                "only a part of the input was read, since it is too long{}; cut it to one run",
                so_far(case)
            )
        }
        Finding::Open => {
            format!(
                "the closing rule is missing{}: the log is cut or the run did not end; save all of it, and the exit code",
                so_far(case)
            )
        }
        Finding::Apart(apart) => differ(apart),
        Finding::NoUnit(run) => {
            let figure = run.best().and_then(|row| row.average).map_or(0.0, |average| average.printed);
            format!(
                "{figure} without a unit{}: the header is missing; give --cmdline, or save the header too",
                on(run)
            )
        }
        Finding::Healthy => healthy(case),
    }
}

fn corrupt(case: &Case<'_>) -> String {
    let line = clip(case.log.fault.corrupt.as_deref().unwrap_or_default());
    let size = case.log.runs.iter().flat_map(|run| &run.rows).find_map(|row| row.size);
    let at = size.map(|size| format!(" at {size} B")).unwrap_or_default();
    format!("wrong data{at}: {line}; repeat it with host memory and over another device to find the part")
}

fn said(case: &Case<'_>) -> String {
    let cause = clip_to(&case.log.cause().unwrap_or_default(), 230);
    format!("{cause}{}", so_far(case))
}

/// The rows before a run ended badly.
fn so_far(case: &Case<'_>) -> String {
    let Some(run) = case.log.last() else { return String::new() };
    let Some(last) = run.rows.last() else { return String::new() };
    let count = run.rows.len();
    let rows = if count == 1 { "1 row".to_string() } else { format!("{count} rows") };
    let figures: Vec<String> = if run.repeats && count <= 4 {
        run.rows
            .iter()
            .filter_map(|row| row.average)
            .map(|average| format!("{:.2}", average.printed))
            .collect()
    } else {
        figure(run, last).into_iter().collect()
    };
    let figures = match (figures.as_slice(), run.repeats && count <= 4) {
        ([], _) => String::new(),
        (figures, true) => format!(", {} {}", figures.join(", "), unit(run)),
        (figures, false) => format!(", {}", figures.join(", ")),
    };
    let fails = match failing(case.log) {
        Some((_, Some(failing))) => format!(", none at {failing} B"),
        Some((_, None)) | None => String::new(),
    };
    format!("; {rows} before, last {}{figures}{fails}", size(last))
}

fn killed(case: &Case<'_>) -> String {
    let how = ending(case.known.exit_code);
    let Some(run) = case.log.runs.iter().rev().find(|run| !run.rows.is_empty()) else {
        let waited = case.log.runs.iter().any(|run| run.waited && run.device.is_none());
        let what = if waited {
            "no row came: no client connected"
        } else if case.content == Content::Empty {
            "no row came: it printed nothing, which a piped run that is killed may have lost"
        } else {
            "no row came"
        };
        return format!("{how}; {what}; look at the other side's output and the port's state");
    };
    let last = run.rows.last().map(|row| {
        format!("{}{}", size(row), figure(run, row).map(|f| format!(" with {f}")).unwrap_or_default())
    });
    format!(
        "{how} after {}{}; look at the other side, the link and its counters",
        last.unwrap_or_default(),
        on(run)
    )
}

fn silent(case: &Case<'_>) -> String {
    let code = case.known.exit_code.unwrap_or_default();
    let crashed = matches!(code, 132 | 134 | 135 | 136 | 139);
    let how =
        if crashed { format!("crashed (exit {code})") } else { format!("exit {code} without an error text") };
    format!("{how}{}; save standard error too, and read the other side's output", so_far(case))
}

fn invalid(run: &Run, row: Option<&Row>, why: Invalid) -> String {
    let at = row.map(|row| format!(" at {}", size(row))).unwrap_or_default();
    let average = row.and_then(|row| row.average).map_or(0.0, |average| average.printed);
    let iterations = row.and_then(|row| row.iterations).unwrap_or_default();
    match why {
        Invalid::Negative => format!(
            "{iterations} iterations and {average:.2} {}{at}{}: no measurement; a counter has probably wrapped; discard it and repeat a shorter run",
            unit(run),
            on(run)
        ),
        Invalid::Zero => format!(
            "average and rate are 0 over {iterations} iterations{at}{}: nothing was measured, also where it exits with 0; repeat it",
            on(run)
        ),
        Invalid::NoUnitFits => {
            let rate = row.and_then(|row| row.rate).unwrap_or_default();
            format!(
                "{average:.2}{at}{} and {rate} M messages/s contradict each other in Gb/s and in MiB/s: no measurement; start both sides with the same options",
                on(run)
            )
        }
    }
}

fn slow(case: &Case<'_>, run: &Run, ratio: f64) -> String {
    let percent = ratio * 100.0;
    match case.known.expect {
        Some(Expectation::Latency(seconds)) => {
            let row = run.smallest();
            let typical = row.and_then(|row| row.times.typical).map_or(0.0, |typical| typical.printed);
            let at = row.map(size).unwrap_or_default();
            format!(
                "typical latency {typical:.2} us at {at}{}, expected {:.2} us; look at CPU frequency, NUMA node and the way through the fabric",
                on(run),
                seconds * 1e6
            )
        }
        Some(Expectation::Bandwidth(bits)) => {
            let row = run.best();
            let gbps = row.and_then(|row| rows::one_way(run, row)).unwrap_or_default();
            let way = if run.bidirectional == Some(true) { " in one direction" } else { "" };
            let cm = if run.rdma_cm == Some(true) { " with rdma_cm (compare a run without -R)" } else { "" };
            format!(
                "{} Gb/s{way}{} at {}{cm}, {percent:.0} % of the expected {} Gb/s; look at link rate, MTU{}, PCIe width and the CPU's load",
                short(gbps),
                on(run),
                row.map(size).unwrap_or_default(),
                short(bits / 1e9),
                mtu(run),
            )
        }
        None => format!("{percent:.0} % of what is expected"),
    }
}

fn fallen(fall: &Fall<'_>) -> String {
    let Fall { run, row, best } = fall;
    let figure = |row: &Row| run.one_way(row).unwrap_or_default();
    let place = |row: &Row| match row.interval {
        Some(interval) if row.size == best.size => format!("interval {interval}"),
        Some(_) | None => size(row),
    };
    format!(
        "{:.2} {unit} at {}, below half of the {:.2} {unit} at {}{}; repeat it, and look at errors, discards and pauses of the port",
        figure(row),
        place(row),
        figure(best),
        place(best),
        on(run),
        unit = unit(run),
    )
}

fn nothing(case: &Case<'_>) -> String {
    match case.content {
        Content::Empty => match case.known.exit_code {
            Some(code) => format!("no output and exit {code}: nothing was measured; repeat it to its end"),
            None => "no output: nothing was measured; give --exit-code, and save standard error too".into(),
        },
        Content::Foreign | Content::Words => {
            "nothing that perftest prints: nothing was measured; save its whole output".into()
        }
        Content::Own if case.has_rows() => {
            "the rows hold no figure: nothing was measured; repeat it with more iterations".into()
        }
        Content::Own if case.log.runs.iter().all(Run::is_silent) => {
            "no row: a server of this test prints none; read the client's output".into()
        }
        Content::Own => {
            "no row: the log is cut, or the run had not ended; save all of it, standard error and the exit code too".into()
        }
    }
}

fn differ(apart: &Apart<'_>) -> String {
    let Apart { run, size, ratio, figures } = apart;
    let (low, high, unit) = match run.unit {
        Some(Unit::Gigabits | Unit::Mebibytes) => (figures.0 / 1.25e8, figures.1 / 1.25e8, "Gb/s"),
        Some(Unit::Microseconds) => (figures.0 * 1e6, figures.1 * 1e6, "us"),
        Some(Unit::Cycles) => (figures.0, figures.1, "cycles"),
        None => (figures.0, figures.1, ""),
    };
    format!(
        "two runs of {}{} differ at {size} B: {low:.2} and {high:.2} {unit} ({:.0} %); they can't both be right, so repeat it",
        run.test.as_deref().unwrap_or("the test"),
        on(run),
        ratio * 100.0,
    )
}

fn healthy(case: &Case<'_>) -> String {
    let log = case.log;
    // The run that says most of the speed: the lowest against what is expected, or else the first.
    let ratio = |run: &Run| rows::expect_ratio(run, case.known.expect);
    let judged = log.runs.iter().filter_map(|run| Some((run, ratio(run)?)));
    let worst = judged.min_by(|a, b| a.1.total_cmp(&b.1));
    let mut parts = Vec::new();
    parts.extend(best(case));
    match (worst, case.known.expect) {
        (Some((_, ratio)), Some(Expectation::Bandwidth(bits))) => {
            parts.push(format!("{:.0} % of the expected {} Gb/s", ratio * 100.0, short(bits / 1e9)));
        }
        (Some(_), Some(Expectation::Latency(seconds))) => {
            parts.push(format!("expected {:.2} us", seconds * 1e6));
        }
        (None, Some(_)) => parts.push("speed not judged, --expect does not fit this test".into()),
        (_, None) => parts.push("speed not judged, no --expect".into()),
    }
    let run = worst.map(|(run, _)| run).or(log.runs.first());
    if let Some(run) = run {
        if run.unit.zip(run.header_unit).is_some_and(|(unit, label)| unit != label && !run.is_latency()) {
            let label = run.header_unit.map_or("", Unit::word);
            parts.push(format!("size x rate shows {}, though the header says {label}", unit(run)));
        }
        if run.unit == Some(Unit::Cycles) {
            parts.push("CPU cycles because of -C, though the header says usec".into());
        }
        if run.mtu.is_some()
            && log.warnings.iter().any(|line| line.to_ascii_lowercase().contains("active mtu"))
        {
            parts.push(format!("active MTU {}", run.mtu.unwrap_or_default()));
        }
    }
    if log.valid_json == Some(false) {
        let why = match log.dialect {
            Some(Dialect::Legacy) => "bare keys",
            Some(Dialect::TrailingComma) => "a trailing comma",
            Some(Dialect::Json | Dialect::Text) | None => "not strict",
        };
        parts.push(format!("no valid JSON ({why}), but read whole"));
    }
    if log.runs.len() > 1 {
        parts.push(format!("{} runs", log.runs.len()));
    }
    parts.join("; ")
}

/// The figure of the first run that has one.
fn best(case: &Case<'_>) -> Option<String> {
    let run = case
        .log
        .runs
        .iter()
        .find(|run| run.best().is_some() || run.rows.iter().any(|row| figure(run, row).is_some()))?;
    if run.is_latency() {
        let row = run.smallest().or(run.rows.first())?;
        let times = &row.times;
        let unit = unit(run);
        let (what, figure) = match (times.typical, times.average) {
            (Some(typical), _) => ("typical", typical),
            (None, Some(average)) => ("average", average),
            (None, None) => return None,
        };
        let tail = times.p999.map(|p999| format!(", 99.9 % {:.2} {unit}", p999.printed)).unwrap_or_default();
        let at = row.size.map(|_| format!(" at {}", size(row))).unwrap_or_default();
        return Some(format!("{what} {:.2} {unit}{tail}{at}{}", figure.printed, on(run)));
    }
    let Some(row) = run.best() else {
        let rate = run.rows.iter().find_map(|row| row.rate)?;
        return Some(format!("{rate} M messages/s{}", on(run)));
    };
    let both = row.average?.base.map(|base| base / 1.25e8);
    let one = rows::one_way(run, row);
    let mut text = match (both, one) {
        (Some(both), Some(one)) if both != one => {
            format!("{} Gb/s both directions together, {} each", short(both), short(one))
        }
        (Some(both), _) => format!("{} Gb/s", short(both)),
        (None, _) => format!("{}", row.average?.printed),
    };
    text += &on(run);
    match row.section {
        Some(Section::Local) => text += ", this side's direction",
        Some(Section::Remote) => text += ", the other side's direction",
        Some(Section::Total) | None => {}
    }
    // Small messages say little of the link.
    if row.size.is_some_and(|size| size < 4096) {
        text += &format!(" at {}", size(row));
    }
    Some(text)
}

/// A row's own figure with its unit.
fn figure(run: &Run, row: &Row) -> Option<String> {
    let figure = row.average.or(row.times.typical).or(row.times.average)?;
    Some(format!("{:.2} {}", figure.printed, unit(run)))
}

fn unit(run: &Run) -> &'static str {
    run.unit.map_or("(unit not known)", Unit::word)
}

fn size(row: &Row) -> String {
    row.size.map_or_else(|| "an unknown size".into(), |size| format!("{size} B"))
}

/// The device, and the GPU if its memory was used.
fn on(run: &Run) -> String {
    let device = run.device.as_deref().map(|device| format!(" from {}", clip_to(device, 40)));
    let gpu = run.gpu.name.as_deref().map(|gpu| format!(" with {} memory", clip_to(gpu, 40)));
    format!("{}{}", device.unwrap_or_default(), gpu.unwrap_or_default())
}

fn mtu(run: &Run) -> String {
    run.mtu.map(|mtu| format!(" ({mtu})")).unwrap_or_default()
}

fn clip(text: &str) -> String {
    clip_to(text, QUOTED)
}
