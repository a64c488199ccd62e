//! The sentence for a person: the figure that decides, what it is compared with, and what to do.
//!
//! A likely cause is called likely. What the input does not show is not said.

use super::{
    super::{
        Expectation,
        words::{clip_to, ending, short},
    },
    Case, Content,
    judge::{Apart, Fall, Finding, Placed},
    rows,
};
use crate::nccl_tests::{Half, Row, Run};

/// Lines of a tool that are quoted are cut here, so that the rest of the sentence has room.
const QUOTED: usize = 110;

/// Sizes that are named, of those with wrong data.
const NAMED: usize = 4;

/// The sentence, without the class.
pub(super) fn verdict(case: &Case<'_>, finding: &Finding<'_>) -> String {
    match finding {
        Finding::Corrupt(run) => corrupt(run),
        Finding::Said => said(case),
        Finding::Stalled => {
            let line = case.log.fault.stalled.as_deref().unwrap_or_default();
            format!("the test's own watchdog ended it ({}){}", clip_to(line, QUOTED), progress(case))
        }
        Finding::Killed => killed(case),
        Finding::Silent => silent(case),
        Finding::Negative(row) => {
            format!("negative figures at {}: no measurement; discard it and repeat the run", size(row.size))
        }
        Finding::Alone(run) => alone(run),
        Finding::Zero(run) => format!(
            "busbw is zero at every size{} though algbw is not, which the formula gives for one rank: no measurement between GPUs; save the header too, and start it with more ranks",
            on(run)
        ),
        Finding::Slow(run, ratio) => slow(case, run, *ratio),
        Finding::Limit(line) => format!(
            "below the limit that NCCL_TESTS_MIN_BW gave ({}){}; the average counts small sizes too, so compare the limit with the same sweep",
            clip_to(line, QUOTED),
            peak(case).map(|peak| format!(", {peak}")).unwrap_or_default()
        ),
        Finding::Cliff(run, fall) => format!(
            "busbw falls from {} GB/s at {} B to {} GB/s at {} B{} and stays low; the mean over sizes hides it; repeat it, and look at NCCL's algorithm, buffers and channels for that size",
            short(fall.at_before),
            fall.before,
            short(fall.busbw),
            fall.size,
            on(run)
        ),
        Finding::Dip(run, fall) => dip(run, fall),
        Finding::Placed(placed) => uneven(placed),
        Finding::Foreign => {
            "this is not what nccl-tests or rccl-tests print; save the whole output, standard error too"
                .into()
        }
        Finding::Truncated => format!(
            "only a part of the input was read, since it is too long{}; cut it to one run{}",
            progress(case),
            unchecked(case)
        ),
        Finding::Nothing => nothing(case),
        Finding::Open => format!(
            "the end is missing{}: the log is cut or the run did not end; save all of it, and the exit code{}",
            progress(case),
            unchecked(case)
        ),
        Finding::Apart(apart) => format!("{}{}", differ(apart), unchecked(case)),
        Finding::Tcp(run) => format!(
            "NCCL had no RDMA{}, so only TCP was measured, not the fabric{}; look for the verbs library and the NICs, and repeat until NCCL_DEBUG=INFO says NET/IB{}",
            on(run),
            run.peak().map(|(row, half)| format!(" ({})", figure(row, half))).unwrap_or_default(),
            unchecked(case)
        ),
        Finding::Healthy => healthy(case),
    }
}

fn corrupt(run: &Run) -> String {
    let sizes = run.bad_sizes();
    let checks = run.out_of_bounds.filter(|count| *count > 0);
    let checks = checks.map(|count| format!("{count} checks failed by the footer")).unwrap_or_default();
    let advice = "repeat it on fewer hosts and GPUs to find the part";
    if sizes.is_empty() {
        return format!("wrong data{}: {checks}, but no row tells at which size; {advice}", on(run));
    }
    let named: Vec<String> = sizes.iter().take(NAMED).map(|at| wrong_at(run, *at)).collect();
    let more = sizes.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more sizes") } else { String::new() };
    let checks = if checks.is_empty() { checks } else { format!("; {checks}") };
    format!("wrong data{}: {}{more}{checks}; {advice}", on(run), named.join(", "))
}

/// `1048576 B (262144 elements out-of-place)`
fn wrong_at(run: &Run, size: i128) -> String {
    let row = run.rows.iter().find(|row| {
        row.size == Some(size) && row.halves().iter().any(|half| half.wrong.is_some_and(|wrong| wrong > 0))
    });
    let halves = row.map(|row| [(&row.out_of_place, "out-of-place"), (&row.in_place, "in-place")]);
    let counts: Vec<String> = halves
        .into_iter()
        .flatten()
        .filter_map(|(half, place)| {
            let wrong = half.wrong.filter(|wrong| *wrong > 0)?;
            Some(format!("{wrong} {} {place}", if wrong == 1 { "element" } else { "elements" }))
        })
        .collect();
    format!("{size} B ({})", counts.join(", "))
}

fn said(case: &Case<'_>) -> String {
    let fault = &case.log.fault;
    let Some(failure) = &fault.failure else {
        let line = fault.cause().unwrap_or_default();
        let low = line.to_ascii_lowercase();
        let advice = if low.starts_with("usage:") {
            ": an option is wrong, and this page ends with 0, so nothing was measured; read the options of this release"
        } else if low.starts_with("invalid number of gpus") || low.contains("requested gpus") {
            ": fewer GPUs are visible than -g and -t ask for; look at the launcher's device settings"
        } else {
            ""
        };
        return format!("{}{advice}{}", clip_to(line, QUOTED), progress(case));
    };
    let last = failure.last.as_deref().map(|last| format!(" ({})", clip_to(last, 60))).unwrap_or_default();
    let text = format!("{} {}", failure.library, clip_to(&failure.text, 70));
    format!(
        "{text}{last}, reported by {}{}; {}",
        clip_to(&failure.host, 40),
        progress(case),
        advice(&failure.library, &failure.text)
    )
}

/// What NCCL's words probably mean, by its list of results.
fn advice(library: &str, text: &str) -> &'static str {
    if library != "NCCL" {
        return "look at the GPUs of that host: memory in use, driver, Xid or RAS messages";
    }
    let low = text.to_ascii_lowercase();
    if low.contains("remote") {
        "likely a peer that ended or a network fault; read the other hosts' output"
    } else if low.contains("system error") {
        "likely a socket, interface or device that failed; repeat with NCCL_DEBUG=WARN for the call"
    } else if low.contains("cuda") || low.contains("hip") {
        "look at the GPUs of that host: memory in use, driver, Xid or RAS messages"
    } else if low.contains("invalid") {
        "likely two versions of the library, or options that do not fit the GPUs"
    } else {
        "repeat with NCCL_DEBUG=WARN for the call that failed"
    }
}

/// How far it came.
fn progress(case: &Case<'_>) -> String {
    let Some(run) = case.log.runs.iter().rev().find(|run| !run.rows.is_empty()) else {
        let who = case.log.last().and_then(who).map(|who| format!(" from {who}")).unwrap_or_default();
        return format!("; no row came{who}");
    };
    let count = run.rows.len();
    let rows = if count == 1 { "1 row".to_string() } else { format!("{count} rows") };
    let last = match run.last_size() {
        Some(last) => format!(", the last at {last} B"),
        None => ", all of size 0".into(),
    };
    format!("; {rows} came{last}{}", on(run))
}

fn killed(case: &Case<'_>) -> String {
    let how = ending(case.known.exit_code);
    let stuck = case.log.last().and_then(Run::next_size).filter(|_| case.has_rows());
    let stuck = stuck.map(|size| format!(", so it hung at {size} B")).unwrap_or_default();
    format!(
        "{how}{}{stuck}; a row in progress is never printed; look at each rank's stack, NCCL_DEBUG=INFO and the links",
        progress(case)
    )
}

fn silent(case: &Case<'_>) -> String {
    let code = case.known.exit_code.unwrap_or_default();
    let crashed = matches!(code, 132 | 134 | 135 | 136 | 139);
    // The programs' own results, by common.h.
    let meaning = match code {
        2 => ", which is a CUDA or HIP failure",
        3 => ", which is an NCCL failure",
        4 => ", which is a timeout",
        5 => ", which is something not implemented",
        6 => ", which is wrong usage",
        7 => ", which is wrong data or too low a bandwidth",
        _ => "",
    };
    let how = if crashed {
        format!("crashed (exit {code})")
    } else {
        format!("exit {code} without an error text{meaning}")
    };
    format!("{how}{}; save standard error and every rank's output", progress(case))
}

fn alone(run: &Run) -> String {
    match run.copies() {
        Some(copies) => format!(
            "{copies} copies of one rank each ran side by side, most likely built without MPI: their busbw is zero by its formula, and no network was measured; build with MPI=1 and repeat"
        ),
        None => format!(
            "one rank{}, so nothing moved between GPUs: busbw is zero by its formula; it shows only that the program runs; start it with two ranks or more",
            test(run)
        ),
    }
}

fn slow(case: &Case<'_>, run: &Run, ratio: f64) -> String {
    let expected = match case.known.expect {
        Some(Expectation::Bandwidth(bits)) => bits / 8e9,
        Some(Expectation::Latency(_)) | None => 0.0,
    };
    let network = match (run.rdma, run.hosts()) {
        (Some(false), _) => "NCCL says that it has no RDMA, so look at the verbs library first",
        (Some(true) | None, Some(1)) => "look at the GPUs' links (NVLink, xGMI, PCIe) and clocks",
        (Some(true), _) => "look at the NICs' rates and errors, and at GPUDirect RDMA",
        (None, _) => "look whether NCCL uses the RDMA NICs (NET/IB with NCCL_DEBUG=INFO) and all of them",
    };
    let figure = run.peak().map(|(row, half)| figure(row, half)).unwrap_or_default();
    format!(
        "{figure}{}, {:.0} % of the expected {} GB/s{}; {network}",
        on(run),
        ratio * 100.0,
        short(expected),
        correct(run)
    )
}

/// Right data beside low speed.
fn correct(run: &Run) -> &'static str {
    if run.wrong_total() == Some(0) { ", though the data is right" } else { "" }
}

fn dip(run: &Run, fall: &Fall) -> String {
    format!(
        "busbw dips to {} GB/s at {} B, below half of the {} GB/s at smaller sizes{}, and recovers; repeat it, and look at NCCL's choice of algorithm and protocol for that size",
        short(fall.busbw),
        fall.size,
        short(fall.best),
        on(run)
    )
}

fn uneven(placed: &Placed) -> String {
    let Placed { even, uneven, ranks: (most, fewest) } = placed;
    format!(
        "{} GB/s with {most} and {fewest} ranks on the hosts, {} GB/s with as many on each: by placement, and no sign of a faulty part; spread the ranks evenly",
        short(*uneven),
        short(*even)
    )
}

fn nothing(case: &Case<'_>) -> String {
    match case.content {
        Content::Empty => match case.known.exit_code {
            Some(code) => format!("no output and exit {code}: nothing was measured; repeat it to its end"),
            None => "no output: nothing was measured; give --exit-code, and save standard error too".into(),
        },
        Content::Foreign | Content::Words => {
            "nothing that nccl-tests prints: nothing was measured; save its whole output".into()
        }
        Content::Own if case.has_rows() => format!(
            "no row with a size above 0 and a time: nothing was measured; repeat it with larger sizes{}",
            unchecked(case)
        ),
        Content::Own => format!(
            "no row{}: the log is cut, or the run had not ended; save all of it, standard error and the exit code too{}",
            case.log.last().and_then(who).map(|who| format!(" from {who}")).unwrap_or_default(),
            unchecked(case)
        ),
    }
}

fn differ(apart: &Apart<'_>) -> String {
    let Apart { run, size, ratio, figures: (low, high) } = apart;
    format!(
        "two runs{}{} differ at {size} B: {} and {} GB/s ({:.0} %); they can't both be right, so repeat it",
        test(run),
        on(run),
        short(*low),
        short(*high),
        ratio * 100.0
    )
}

fn healthy(case: &Case<'_>) -> String {
    let log = case.log;
    // The run that says most of the speed: the lowest against what is expected.
    let ratios = log.runs.iter().filter_map(|run| rows::expect_ratio(run, case.known.expect));
    let worst = ratios.min_by(f64::total_cmp);
    let mut parts: Vec<String> = peak(case).into_iter().collect();
    match (worst, case.known.expect) {
        (Some(ratio), Some(Expectation::Bandwidth(bits))) => {
            parts.push(format!("{:.0} % of the expected {} GB/s", ratio * 100.0, short(bits / 8e9)));
        }
        (_, Some(_)) => parts.push("speed not judged, --expect does not fit this output".into()),
        (_, None) => parts.push("speed not judged, no --expect".into()),
    }
    if log.runs.len() > 1 {
        parts.push(format!("{} runs", log.runs.len()));
    }
    if let Some(copies) = log.runs.iter().map(Run::side_by_side).find(|copies| *copies > 1) {
        parts.push(format!(
            "{copies} copies ran side by side, likely built without MPI, so each measured its own ranks only"
        ));
    }
    if log.valid_json == Some(false) {
        parts.push("no valid JSON, but read whole".into());
    }
    parts.join("; ") + unchecked(case)
}

/// The highest bandwidth, or where there is none the smallest time, of the first run that has one.
fn peak(case: &Case<'_>) -> Option<String> {
    let runs = &case.log.runs;
    let best = runs.iter().find_map(|run| run.peak().map(|(row, half)| figure(row, half) + &on(run)));
    best.or_else(|| {
        runs.iter().find_map(|run| Some(format!("smallest time {} us{}", short(run.min_latency()?), on(run))))
    })
}

/// What must be said where nothing was compared.
fn unchecked(case: &Case<'_>) -> &'static str {
    let unchecked = case.log.runs.iter().any(|run| run.validated() == Some(false));
    if unchecked { "; results not validated" } else { "" }
}

fn figure(row: &Row, half: &Half) -> String {
    format!("busbw {} GB/s at {}", short(half.busbw.unwrap_or_default()), size(row.size))
}

fn size(size: Option<i128>) -> String {
    size.map_or_else(|| "an unknown size".into(), |size| format!("{size} B"))
}

/// Who took part, behind a figure.
fn on(run: &Run) -> String {
    who(run).map(|who| format!(" with {who}")).unwrap_or_default()
}

/// `16 ranks on 2 hosts`
fn who(run: &Run) -> Option<String> {
    let plural = |count: u64, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let ranks = run.nranks().map(|ranks| plural(ranks, "rank"));
    let hosts = run.hosts().map(|hosts| plural(hosts, "host"));
    match (ranks, hosts) {
        (Some(ranks), Some(hosts)) => Some(format!("{ranks} on {hosts}")),
        (ranks, hosts) => ranks.or(hosts),
    }
}

fn test(run: &Run) -> String {
    run.test.as_deref().map(|test| format!(" of {}", clip_to(test, 40))).unwrap_or_default()
}
