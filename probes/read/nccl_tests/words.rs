//! The sentence for a person: the figure that decides, what it is compared with, and what to do.
//!
//! A likely cause is called likely. What the input does not show is not said.

use super::{
    super::Expectation,
    Case,
    judge::{Fall, Finding},
    rows,
};
use crate::nccl_tests::{Row, Run};

/// Lines of a tool that are quoted are cut here, so that the rest of the sentence has room.
const QUOTED: usize = 140;

/// The sentence, without the class.
pub(super) fn verdict(case: &Case<'_>, finding: &Finding<'_>) -> String {
    match finding {
        Finding::Corrupt => corrupt(case),
        Finding::Said => said(case),
        Finding::Stalled => {
            let line = clip(case.log.timed_out.as_deref().unwrap_or_default());
            format!("{line}{}; look for a rank that does not take part", so_far(case))
        }
        Finding::Killed => killed(case),
        Finding::Silent => {
            let code = case.known.exit_code.unwrap_or_default();
            format!("exit {code}{} and no error text{}; save standard error too", meaning(code), so_far(case))
        }
        Finding::Negative(row) => {
            format!(
                "a negative figure at {}: a counter overflowed; discard it and use fewer iterations",
                size(row.size)
            )
        }
        Finding::Alone(run) => alone(run),
        Finding::Slow(run, ratio) => slow(case, run, *ratio),
        Finding::Limit(run) => {
            let mean = run.average.map(|mean| format!("{mean:.2} GB/s")).unwrap_or_default();
            format!(
                "the mean over all sizes, {mean}, is below the limit that NCCL_TESTS_MIN_BW gave{}; small sizes count in it, so compare the largest",
                peak(run)
            )
        }
        Finding::Fallen(fall) => fallen(fall),
        Finding::Placed(unequal, equal) => format!(
            "{unequal:.2} GB/s busbw with unequal ranks on the hosts, {equal:.2} GB/s with equal ones: slowed by the placement of ranks, no fault of a part; use equal ranks on each host"
        ),
        Finding::Foreign => {
            "this is not what nccl-tests or rccl-tests print; save their whole output, standard error too"
                .into()
        }
        Finding::Nothing => nothing(case),
        Finding::Truncated => {
            format!("the input ends in the middle{}; save all of it, and the exit code", so_far(case))
        }
        Finding::Open => format!(
            "the footer is missing{}: the log is cut or the run did not end; save all of it, and the exit code{}",
            so_far(case),
            unvalidated(case)
        ),
        Finding::Apart(apart) => format!(
            "two runs over the same ranks give {:.2} and {:.2} GB/s busbw at {}: they can't both be right; repeat both on idle nodes",
            apart.figures.0,
            apart.figures.1,
            size(Some(apart.size))
        ),
        Finding::Sockets(run) => {
            let hosts = run.hosts().unwrap_or_default();
            format!(
                "{hosts} hosts without RDMA, so TCP was measured and not the fabric{}; install libibverbs or look why NCCL does not use it (NCCL_DEBUG=INFO){}",
                peak(run),
                unvalidated(case)
            )
        }
        Finding::Healthy => healthy(case),
    }
}

fn corrupt(case: &Case<'_>) -> String {
    let bad = case.log.runs.iter().flat_map(|run| &run.rows).find_map(|row| {
        let wrong = |half: &crate::nccl_tests::Half| half.wrong.filter(|wrong| *wrong > 0);
        match (wrong(&row.out), wrong(&row.inside)) {
            (Some(wrong), _) => Some((row, wrong, "out-of-place")),
            (None, Some(wrong)) => Some((row, wrong, "in-place")),
            (None, None) => None,
        }
    });
    let sizes = case.log.runs.iter().flat_map(|run| &run.rows);
    let count = sizes
        .filter(|row| row.halves().into_iter().any(|half| half.wrong.is_some_and(|wrong| wrong > 0)))
        .count();
    match bad {
        Some((row, wrong, way)) => {
            let more =
                if count > 1 { format!(", and at {} more", sizes_word(count - 1)) } else { String::new() };
            format!(
                "{wrong} wrong elements at {} ({way}){more}; speed says nothing of that: take these nodes out of service and repeat on halves of them to find the part",
                size(row.size)
            )
        }
        None => {
            let failed: i64 = case.log.runs.iter().filter_map(|run| run.out_of_bounds).sum();
            format!("{failed} checks failed by the footer, and no row tells where; repeat it with all sizes")
        }
    }
}

fn sizes_word(count: usize) -> String {
    if count == 1 { "1 size".into() } else { format!("{count} sizes") }
}

fn said(case: &Case<'_>) -> String {
    let log = case.log;
    match &log.failure {
        Some(failure) => {
            let text = failure.text.as_deref().map(|text| format!(" {}", clip(text))).unwrap_or_default();
            let advice = advice(&text);
            let when = if case.has_rows() {
                so_far(case)
            } else {
                " before the first row, so most likely while the ranks connect".into()
            };
            format!("{}:{text}{when}; {advice}", failure.host)
        }
        None => {
            let line = clip(log.errors.first().map(String::as_str).unwrap_or_default());
            format!("{line}{}", so_far(case))
        }
    }
}

/// What to do, by what NCCL says.
fn advice(text: &str) -> &'static str {
    if text.contains("system error") {
        "a call to the system or a connection failed: NCCL_DEBUG=WARN names it, often the network between hosts"
    } else if text.contains("remote process") {
        "another rank has gone: look at the first host that failed"
    } else if text.contains("cuda error") || text.contains("out of memory") {
        "a GPU call failed: look at the driver's log on this host"
    } else {
        "run it again with NCCL_DEBUG=WARN on this host"
    }
}

/// What the exit codes of these programs mean.
fn meaning(code: i32) -> &'static str {
    match code {
        1 => " (internal error, or a limit of versions before 2.17.3)",
        2 => " (a CUDA call failed)",
        3 => " (an NCCL call failed)",
        4 => " (timeout)",
        5 => " (not implemented)",
        6 => " (wrong usage)",
        7 => " (wrong results or a missed limit)",
        _ => "",
    }
}

fn killed(case: &Case<'_>) -> String {
    let how = match case.known.exit_code {
        Some(124) => "ended by a deadline",
        Some(137) => "killed",
        Some(143) => "ended by a signal",
        Some(_) | None => "ended from outside",
    };
    let Some(run) = case.log.runs.last() else { return format!("{how}; nothing was printed") };
    let last = run.rows.iter().rev().find(|row| row.is_usable());
    let stuck = rows::stuck_at(run).map(|at| format!(", next was {}", size(Some(at)))).unwrap_or_default();
    match last {
        Some(row) => format!(
            "{how}; {} was the last size that finished{stuck}: a row under way is never seen; look for a rank that does not move",
            size(row.size)
        ),
        None => format!(
            "{how}; no row came{stuck}: it may hang while the ranks connect or at the first size; NCCL_DEBUG=INFO tells which"
        ),
    }
}

fn alone(run: &Run) -> String {
    match run.copies() {
        Some(copies) => format!(
            "{copies} programs with one rank each, built without MPI: busbw is 0 by its formula, and nothing crossed a link; build with MPI=1"
        ),
        None => "one rank, so nothing crossed a link and busbw is 0 by its formula: it proves only that the program runs; use two GPUs or more".into(),
    }
}

fn slow(case: &Case<'_>, run: &Run, ratio: f64) -> String {
    let expected = match case.known.expect {
        Some(Expectation::Bandwidth(bits)) => format!("{:.2} GB/s", bits / 8e9),
        Some(Expectation::Latency(_)) | None => "what is expected".into(),
    };
    let measured = run.peak().map_or(0.0, |(_, _, busbw)| busbw);
    let hosts = match run.hosts() {
        Some(hosts) if hosts > 1 => {
            let rdma = match run.rdma {
                Some(false) => "NCCL uses TCP and not RDMA",
                Some(true) => "RDMA is used: look at NICs, GID, PFC and the rails",
                None => "see with NCCL_DEBUG=INFO whether RDMA is used, and by how many NICs",
            };
            format!(" over {hosts} hosts ({:.1} Gb/s); {rdma}", measured * 8.0)
        }
        Some(_) | None => "; look at the links between the GPUs".into(),
    };
    format!(
        "{measured:.2} GB/s busbw{}, {:.0} % of the expected {expected}{hosts}",
        ranks(run),
        ratio * 100.0
    )
}

fn fallen(fall: &Fall<'_>) -> String {
    let (low, high) = (fall.row.busbw().unwrap_or_default(), fall.best.busbw().unwrap_or_default());
    if fall.lasts {
        format!(
            "busbw falls from {high:.2} to {low:.2} GB/s above {}: {} was the last good size; another algorithm or protocol may begin there, compare NCCL_ALGO and NCCL_PROTO",
            size(fall.last_good.size),
            size(fall.last_good.size)
        )
    } else {
        format!(
            "busbw dips to {low:.2} GB/s at {}, where {} gave {high:.2} and larger sizes recover; repeat it, and look at what the algorithm changes there",
            size(fall.row.size),
            size(fall.best.size)
        )
    }
}

fn nothing(case: &Case<'_>) -> String {
    if case.empty {
        "the input is empty; save the program's output".into()
    } else if case.has_rows() {
        "no row carries a bandwidth; use larger sizes (-b, -e)".into()
    } else {
        "a header and no row; save all of the output, and the exit code".into()
    }
}

fn healthy(case: &Case<'_>) -> String {
    let Some(run) = case.log.runs.iter().max_by(|a, b| {
        let of = |run: &Run| run.peak().map_or(0.0, |(_, _, busbw)| busbw);
        of(a).total_cmp(&of(b))
    }) else {
        return "nothing to say".into();
    };
    let figure = run.peak().map(|(row, _, busbw)| format!("{busbw:.2} GB/s busbw at {}", size(row.size)));
    let judged = match (case.known.expect, rows::expect_ratio(run, case.known.expect)) {
        (Some(Expectation::Bandwidth(bits)), Some(ratio)) => {
            format!("{:.0} % of the expected {:.2} GB/s", ratio * 100.0, bits / 8e9)
        }
        _ => "speed not judged, no --expect".into(),
    };
    format!("{}{}; {judged}{}", figure.unwrap_or_default(), ranks(run), unvalidated(case))
}

/// ` of 16 ranks on 2 hosts`
fn ranks(run: &Run) -> String {
    match (run.ranks(), run.hosts()) {
        (Some(ranks), Some(hosts)) if hosts > 1 => format!(" of {ranks} ranks on {hosts} hosts"),
        (Some(ranks), Some(_)) => match run.ranks_of.keys().next() {
            Some(host) => format!(" of {ranks} ranks on {host}"),
            None => format!(" of {ranks} ranks"),
        },
        (Some(ranks), None) => format!(" of {ranks} ranks"),
        (None, _) => String::new(),
    }
}

fn peak(run: &Run) -> String {
    run.peak()
        .map(|(row, _, busbw)| format!("; {busbw:.2} GB/s busbw at {}", size(row.size)))
        .unwrap_or_default()
}

fn unvalidated(case: &Case<'_>) -> &'static str {
    let with_rows = || case.log.runs.iter().filter(|run| !run.rows.is_empty());
    if with_rows().next().is_some() && with_rows().any(|run| !run.validated()) {
        "; results not validated"
    } else {
        ""
    }
}

/// The rows before a run ended badly.
fn so_far(case: &Case<'_>) -> String {
    let Some(run) = case.log.runs.iter().rev().find(|run| !run.rows.is_empty()) else { return String::new() };
    let count = run.rows.len();
    let word = if count == 1 { "1 row".to_string() } else { format!("{count} rows") };
    let last = run.rows.iter().rev().find(|row: &&Row| row.is_usable());
    let last = last.map(|row| format!(", last {}", size(row.size))).unwrap_or_default();
    format!("; {word} before{last}{}", peak(run).replace("; ", ", peak "))
}

fn size(bytes: Option<i64>) -> String {
    bytes.map_or_else(|| "an unknown size".into(), |bytes| format!("{bytes} B"))
}

fn clip(text: &str) -> String {
    if text.chars().count() <= QUOTED {
        return text.to_string();
    }
    let mut cut: String = text.chars().take(QUOTED - 3).collect();
    cut.push_str("...");
    cut
}
