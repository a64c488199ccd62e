//! A failed work completion: the status number of verbs, its name, and what it probably means.

/// A failed work completion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The status number of verbs.
    pub status: u32,
    /// Its name in verbs, or as printed if we know none.
    pub name: Option<String>,
    /// The vendor's code as printed: `0x81`.
    pub vendor: Option<String>,
    /// Messages posted.
    pub sent: Option<i64>,
    /// Messages completed.
    pub completed: Option<i64>,
}

/// The names of verbs for completion statuses, from 0.
const STATUSES: [&str; 24] = [
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "Work Request Flushed Error",
    "memory management operation error",
    "bad response error",
    "local access error",
    "remote invalid request error",
    "remote access error",
    "remote operation error",
    "transport retry counter exceeded",
    "RNR retry counter exceeded",
    "local RDD violation error",
    "remote invalid RD request",
    "aborted error",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout error",
    "general error",
    "TM error",
    "TM software rendezvous",
];

impl Completion {
    /// `Failed status 12: wr_id 0 syndrom 0x81`, or since 26.01
    /// `Failed status-transport retry counter exceeded (12): wr_id ..`
    pub(super) fn of(line: &str) -> Option<Completion> {
        let rest =
            line.get(.."Failed status".len()).filter(|text| text.eq_ignore_ascii_case("failed status"));
        let rest = &line[rest?.len()..];
        let (status, printed) = match rest.strip_prefix('-') {
            Some(rest) => {
                let (name, rest) = rest.split_once('(')?;
                (rest.split_once(')')?.0, Some(name.trim()).filter(|name| !name.is_empty()))
            }
            None => (rest.split_once(':')?.0, None),
        };
        let status: u32 = status.trim().parse().ok()?;
        let known = usize::try_from(status).ok().and_then(|at| STATUSES.get(at)).copied();
        let vendor = rest.split_once("syndrom").and_then(|(_, code)| code.split_whitespace().next());
        Some(Completion {
            status,
            name: known.or(printed).map(str::to_string),
            vendor: vendor.map(str::to_string),
            sent: None,
            completed: None,
        })
    }

    /// The number, its name and what it probably means.
    pub fn words(&self) -> String {
        let name = self.name.as_deref().unwrap_or("unknown status");
        let hint = match self.status {
            2 => "this side's queue pair refused the request: driver or options",
            4 => "the NIC may not use this memory: registration or GPU memory",
            5 => {
                "flushed because the queue pair had failed before: look for the first error, here or at the peer"
            }
            9 => "the peer refused the request: the two sides probably run different tests or options",
            10 => {
                "the peer's memory refused the access: sizes or options of the two sides, or memory registration; no proof of a bad link"
            }
            11 => "the peer could not carry it out: read its output",
            12 => "the peer did not answer: peer, link, GID or MTU",
            13 => "the peer had no buffer ready in time: it is too slow, stopped, or has another queue depth",
            _ => "read the peer's output and the port's counters",
        };
        format!("completion status {} ({name}): {hint}", self.status)
    }
}
