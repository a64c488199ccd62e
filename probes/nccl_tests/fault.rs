//! What nccl-tests says when it fails: which host, and NCCL's own words.
//!
//! Lines of NCCL itself (`NCCL INFO`, `NCCL WARN`) decide nothing, since many runs go on after them.

/// How a line of text bears on the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Say {
    /// It fails, in words that only these programs use.
    Error,
    /// It fails, in words that any program may use.
    Perhaps,
    /// The way that a failure took through the program; also after a timeout.
    Trail,
    /// The program's own watchdog.
    Stalled,
    /// The operator's `NCCL_TESTS_MIN_BW` was missed.
    Limit,
    /// Wrong data.
    Corrupt,
}

/// What the lines say of a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// The line that explains most.
    pub line: Option<String>,
    /// What it says.
    pub failure: Option<Failure>,
    /// The watchdog's line.
    pub stalled: Option<String>,
    /// The line of a limit that the operator gave and the result missed.
    pub limit: Option<String>,
    /// Only words of any program tell of the failure so far.
    perhaps: bool,
    /// The first line of the way that a failure took.
    trail: Option<String>,
}

/// `HOST: Test NCCL failure file:line 'text / last error'`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// The host that reports it, which is not always the one to blame.
    pub host: String,
    /// `NCCL`, `CUDA`: whose call failed.
    pub library: String,
    /// What the call returned.
    pub text: String,
    /// NCCL's last error, printed since 2.13.
    pub last: Option<String>,
}

impl Fault {
    /// An error text was seen, and not only the watchdog's.
    pub fn failed(&self) -> bool {
        self.cause().is_some()
    }

    /// The line that tells of a failure; none if no text does.
    pub fn cause(&self) -> Option<&str> {
        let trail = self.trail.as_deref().filter(|_| self.stalled.is_none());
        self.line.as_deref().or(trail)
    }

    pub(super) fn add(&mut self, say: Say, line: &str) {
        let first = |place: &mut Option<String>| {
            if place.is_none() {
                *place = Some(line.to_string());
            }
        };
        match say {
            Say::Error => {
                let failure = failure(line);
                // The program's own sentence explains more than a word before it.
                if self.perhaps || (failure.is_some() && self.failure.is_none()) {
                    self.line = None;
                    self.perhaps = false;
                }
                first(&mut self.line);
                self.failure = self.failure.take().or(failure);
            }
            Say::Perhaps => {
                self.perhaps |= self.line.is_none();
                first(&mut self.line);
            }
            Say::Trail => first(&mut self.trail),
            Say::Stalled => first(&mut self.stalled),
            Say::Limit => first(&mut self.limit),
            Say::Corrupt => {}
        }
    }
}

/// Beginnings of lines, in lower case, with which these programs refuse their options (common.cu).
const OWN: [&str; 4] =
    ["invalid number of gpus", "invalid size specified", "[error] the number of requested gpus", "usage: "];

/// Parts of lines, in lower case, with which any program fails to start or crashes.
const ANY: [&str; 5] = [
    "error while loading shared libraries",
    "command not found",
    ": no such file or directory",
    ": invalid option -- ",
    ": unrecognized option ",
];

/// Parts of lines, in lower case, that tell of a crash.
const CRASHES: [&str; 10] = [
    "segmentation fault",
    "bus error",
    "aborted (core",
    "floating point exception",
    "illegal instruction",
    "stack smashing",
    "double free or corruption",
    "exited on signal 6 ",
    "exited on signal 11 ",
    "exited on signal 7 ",
];

pub(super) fn is_crash(line: &str) -> bool {
    let low = line.to_ascii_lowercase();
    CRASHES.iter().any(|part| low.contains(part))
}

/// What a line says; none if it tells of no failure. The footer is not among them.
pub(super) fn say(line: &str) -> Option<Say> {
    if ["NCCL INFO", "NCCL WARN", "NCCL TRACE"].iter().any(|part| line.contains(part)) {
        return None;
    }
    if failure(line).is_some() {
        return Some(Say::Error);
    }
    if let Some((_, rest)) = line.split_once(": Test timeout")
        && (rest.is_empty() || rest.trim_start().starts_with('('))
    {
        return Some(Say::Stalled);
    }
    if line.starts_with("..") && line.contains(": Test failure ") {
        return Some(Say::Trail);
    }
    let low = line.to_ascii_lowercase();
    if low.starts_with("usage: ") {
        // Another program's page, such as the launcher's, says nothing of these.
        let own = low.split_whitespace().any(|word| super::command::program(word).is_some());
        return Some(if own { Say::Error } else { Say::Perhaps });
    }
    if OWN.iter().any(|beginning| low.starts_with(beginning)) {
        return Some(Say::Error);
    }
    let any = low.starts_with("[error]") || ANY.iter().any(|part| low.contains(part)) || is_crash(&low);
    any.then_some(Say::Perhaps)
}

/// Reads `HOST: Test NCCL failure file:line 'text / last error'`.
pub fn failure(line: &str) -> Option<Failure> {
    let (before, rest) = line.split_once(": Test ")?;
    let host = before.split_whitespace().next_back()?;
    let (library, place) = rest.split_once(" failure ")?;
    if library.is_empty() || library.contains(char::is_whitespace) {
        return None;
    }
    let quoted = place.split_once('\'').map_or("", |(_, quoted)| quoted);
    let quoted = quoted.trim_end().trim_end_matches('\'');
    let (text, last) = match quoted.split_once(" / ") {
        Some((text, last)) => (text, Some(last.trim())),
        None => (quoted, None),
    };
    Some(Failure {
        host: host.into(),
        library: library.into(),
        text: text.trim().into(),
        last: last.filter(|last| !last.is_empty()).map(str::to_string),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_failures_are_told_from_noise() {
        let table = [
            ("node-c: Test NCCL failure common.cu:1125 'unhandled system error'", Some(Say::Error)),
            ("node-c: Test CUDA failure common.cu:894 'out of memory'", Some(Say::Error)),
            (".. node-c pid 3590858: Test failure common.cu:1017", Some(Say::Trail)),
            ("node-c: Test timeout (300s) common.cu:500", Some(Say::Stalled)),
            ("Invalid number of GPUs: 9 requested but only 8 were found.", Some(Say::Error)),
            ("USAGE: all_reduce_perf", Some(Say::Error)),
            ("Usage: srun [OPTIONS..]", Some(Say::Perhaps)),
            ("bash: all_reduce_perf: command not found", Some(Say::Perhaps)),
            ("Segmentation fault (core dumped)", Some(Say::Perhaps)),
            ("node-a:1:1 [0] transport.cc:1 NCCL WARN Cuda failure 'out of memory'", None),
            ("node-a:1:1 [0] NCCL INFO x: Test NCCL failure a 'b'", None),
            ("mpirun detected that one or more processes exited with non-zero status", None),
            ("# Collective test starting: all_reduce_perf", None),
            ("", None),
        ];
        for (line, want) in table {
            assert_eq!(say(line), want, "{line}");
        }
    }

    #[test]
    fn a_failure_names_its_host_and_nccl_s_words() {
        let new = failure(
            "node-b: Test NCCL failure all_reduce.cu:44 'remote process exited or there was a network error / Call to ibv_modify_qp failed'",
        );
        let want = Failure {
            host: "node-b".into(),
            library: "NCCL".into(),
            text: "remote process exited or there was a network error".into(),
            last: Some("Call to ibv_modify_qp failed".into()),
        };
        assert_eq!(new, Some(want));
        let old = failure("a: Test CUDA failure x.cu:1 'out of memory").unwrap();
        assert_eq!((old.text.as_str(), old.last), ("out of memory", None));
        assert_eq!(failure("a: Test of a failure b"), None);
    }

    #[test]
    fn the_line_that_explains_most_is_kept() {
        let mut fault = Fault::default();
        fault.add(Say::Trail, ".. n pid 1: Test failure x");
        assert_eq!(fault.cause(), Some(".. n pid 1: Test failure x"));
        fault.add(Say::Perhaps, "Segmentation fault");
        fault.add(Say::Error, "n: Test NCCL failure f:1 'internal error'");
        fault.add(Say::Error, "m: Test NCCL failure f:1 'other'");
        assert_eq!(fault.cause(), Some("n: Test NCCL failure f:1 'internal error'"));
        let mut timeout = Fault::default();
        timeout.add(Say::Stalled, "n: Test timeout (3s)");
        timeout.add(Say::Trail, ".. n pid 1: Test failure x");
        assert!(!timeout.failed());
    }
}
