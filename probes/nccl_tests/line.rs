//! Lines that mean the same in every kind of file: failures, warnings, what NCCL tells of networks.

use super::{Failure, Log};

/// What a line of this kind says.
pub(super) fn take(log: &mut Log, line: &str) -> bool {
    let line = line.trim();
    if let Some(failure) = failure(line) {
        // The first host that fails says why; others say that they were told.
        if log.failure.as_ref().is_none_or(|known| known.text.is_none() && failure.text.is_some()) {
            log.failure = Some(failure);
        }
        log.errors.push(line.to_string());
        return true;
    }
    if line.contains(": Test timeout (") {
        log.timed_out.get_or_insert_with(|| line.to_string());
        return true;
    }
    if ERRORS.iter().any(|text| line.contains(text)) || line.starts_with("USAGE:") {
        log.errors.push(line.to_string());
        return true;
    }
    if CRASHES.iter().any(|text| line.contains(text)) {
        log.crashed = true;
        log.errors.push(line.to_string());
        return true;
    }
    if line.contains("NCCL WARN") || line.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("warning"))
    {
        log.warnings.push(line.to_string());
    }
    false
}

/// Texts of a run that failed, of these programs, of the loader and of launchers.
const ERRORS: [&str; 15] = [
    "Invalid number of GPUs:",
    "[ERROR] The number of requested GPUs",
    "invalid size specified for",
    "invalid sizes for 'minbytes'",
    "invalid option '",
    ": unrecognized option '",
    ": invalid option -- '",
    "error while loading shared libraries:",
    "symbol lookup error:",
    "command not found",
    "There are not enough slots available",
    "mpirun was unable to launch",
    "ORTE was unable to reliably start",
    "Out of bounds values check failed",
    "MPI_ABORT was invoked",
];

/// Texts of a crash.
const CRASHES: [&str; 5] =
    ["Segmentation fault", "(core dumped)", "Caught signal 11", "Signal: Segmentation fault", "Bus error"];

/// `HOST: Test NCCL failure file:line 'text / last error'`, with CUDA or HIP for NCCL, and
/// ` .. HOST pid N: Test failure file:line`.
fn failure(line: &str) -> Option<Failure> {
    let (before, after) = line.split_once(": Test ")?;
    let (kind, rest) = after.split_once("failure")?;
    if !["", "NCCL ", "CUDA ", "HIP ", "RCCL "].contains(&kind) {
        return None;
    }
    let host = before.trim_start_matches(['.', ' ']);
    let host = host.split(" pid ").next().unwrap_or(host).rsplit(' ').next().unwrap_or(host);
    let quoted = rest.split_once('\'').map(|(_, text)| text.strip_suffix('\'').unwrap_or(text));
    let text = quoted.map(|text| text.trim().trim_end_matches('/').trim().to_string());
    Some(Failure { host: host.to_string(), text: text.filter(|text| !text.is_empty()) })
}

/// Whether NCCL says that its network is RDMA; none where the line says nothing of it.
pub(super) fn rdma(line: &str) -> Option<bool> {
    if line.contains("NET/IB : Using") {
        Some(true)
    } else if line.contains("Failed to open libibverbs") || line.contains("NET/Socket : Using") {
        Some(false)
    } else {
        None
    }
}

/// A number as the tools print it; `N/A`, `nan` and the like are none.
pub(super) fn number(word: &str) -> Option<f64> {
    word.trim_end_matches('*').parse().ok().filter(|number: &f64| number.is_finite())
}

/// A whole number, also as `1.31072e+06`.
pub(super) fn whole(word: &str) -> Option<i64> {
    if let Ok(exact) = word.parse() {
        return Some(exact);
    }
    let number = number(word).filter(|number| number.fract() == 0.0 && number.abs() < 9e18)?;
    #[expect(clippy::cast_possible_truncation, reason = "a whole number of this size")]
    Some(number as i64)
}
