//! What perftest says when it fails, and what that probably means.
//!
//! Only a text decides: which line explains the failure best, and what is known of that line. A
//! likely cause is given as one, never as a fact.

mod completion;
mod errno;

pub use completion::Completion;
pub use errno::Errno;

/// What the lines say of a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// The line that explains most, and its kind.
    pub line: Option<(Kind, String)>,
    /// A work completion that failed.
    pub completion: Option<Completion>,
    /// The system's error number, if one was printed.
    pub errno: Option<Errno>,
    /// An option in which the two sides differ.
    pub mismatch: Option<Mismatch>,
    /// The tool's own watchdog saw no message for two minutes.
    pub stalled: bool,
    /// The line of a limit that the operator gave and the result missed.
    pub limit: Option<String>,
    /// The line that tells of wrong data.
    pub corrupt: Option<String>,
}

/// `report_fmt mismatch: local=MBS, remote=GBS`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The option.
    pub field: String,
    /// This side's value.
    pub local: String,
    /// The other side's value.
    pub remote: String,
}

/// What kind of failure a line tells of, the best explanation first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A completion with an error status.
    Completion,
    /// The two sides differ in an option.
    Mismatch,
    /// Memory could not be registered with the NIC.
    Registration,
    /// The GPU or its runtime refused.
    Gpu,
    /// The port is not active.
    Port,
    /// No such RDMA device, or none at all.
    Device,
    /// The GID index or type does not fit.
    Gid,
    /// The queue pair could not be connected.
    QueuePair,
    /// The TCP connection was refused or not answered.
    Connect,
    /// The TCP port is in use.
    Listen,
    /// The name does not resolve.
    Resolve,
    /// `rdma_cm` did not connect.
    RdmaCm,
    /// The other side's program is too old, or no perftest.
    Version,
    /// An option is wrong.
    Usage,
    /// The program is not there or does not start.
    Program,
    /// The usage page.
    Help,
    /// The other side went away.
    Peer,
    /// It crashed.
    Crash,
    /// Something else.
    Other,
}

/// How a line of text bears on the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Say {
    /// It fails, in words that only perftest uses.
    Error(Kind),
    /// It fails, in words that any program may use.
    Perhaps(Kind),
    /// The watchdog.
    Stalled,
    /// A limit of the operator was missed.
    Limit,
    /// Wrong data.
    Corrupt,
}

/// Beginnings of error lines in lower case, and whether they are perftest's own.
const BEGINNINGS: [(&str, Kind, bool); 78] = [
    ("completion with ", Kind::Completion, true),
    ("failed status ", Kind::Completion, true),
    ("failed status-", Kind::Completion, true),
    ("bad wc status", Kind::Completion, true),
    ("poll send cq error", Kind::Completion, true),
    ("couldn't allocate mr", Kind::Registration, true),
    ("failed to create mr", Kind::Registration, true),
    ("failed to create mkey", Kind::Registration, true),
    ("cuinit(", Kind::Gpu, true),
    ("cudevice", Kind::Gpu, true),
    ("cumem", Kind::Gpu, true),
    ("cuctx", Kind::Gpu, true),
    ("hipmalloc error", Kind::Gpu, true),
    ("hipgetdevice", Kind::Gpu, true),
    ("there are no available device(s) that support cuda", Kind::Gpu, true),
    ("no such device id", Kind::Gpu, true),
    ("requested rocm device", Kind::Gpu, true),
    ("couldn't init gpu context", Kind::Gpu, true),
    ("couldn't initialize rocm", Kind::Gpu, true),
    ("could not verify dmabuf support", Kind::Gpu, true),
    ("dma-buf is not supported on this gpu", Kind::Gpu, true),
    ("failed to export dmabuf", Kind::Gpu, true),
    ("failed to load cuda", Kind::Gpu, false),
    ("port number ", Kind::Port, true),
    ("did not detect devices", Kind::Device, true),
    ("unable to find the infiniband/roce device", Kind::Device, true),
    ("no ib devices found", Kind::Device, true),
    ("if device exists, check if driver is up", Kind::Device, true),
    ("unable to query port", Kind::Device, true),
    ("couldn't open ib device", Kind::Device, true),
    ("gid index should be", Kind::Gid, true),
    ("found incompatibility issue with gid", Kind::Gid, true),
    ("please try to use a different ip version", Kind::Gid, true),
    ("failed to modify qp", Kind::QueuePair, true),
    ("unable to connect the hca", Kind::QueuePair, true),
    ("unable to create qp", Kind::QueuePair, true),
    ("couldn't connect to ", Kind::Connect, true),
    ("unable to open file descriptor for socket", Kind::Peer, true),
    ("unable to init the socket connection", Kind::Peer, true),
    ("couldn't listen to port", Kind::Listen, true),
    ("temporary failure in name resolution", Kind::Resolve, false),
    ("name or service not known", Kind::Resolve, false),
    ("problem in resolving basic address", Kind::Resolve, true),
    ("unexpected cm event", Kind::RdmaCm, true),
    ("failed to handle rdma cm event", Kind::RdmaCm, true),
    ("failed to connect rdma cm", Kind::RdmaCm, true),
    ("failed to initialize rdma contexts", Kind::RdmaCm, true),
    ("unable to perform rdma_", Kind::RdmaCm, true),
    ("rdma_", Kind::RdmaCm, false),
    ("function rdma_", Kind::RdmaCm, true),
    ("current implementation is not compatible", Kind::Version, true),
    ("invalid command or flag", Kind::Usage, true),
    ("please check command line and run again", Kind::Usage, true),
    ("parser function exited with error", Kind::Usage, true),
    ("events feature not available", Kind::Usage, true),
    ("ethernet_read_keys:", Kind::Peer, true),
    ("ethernet_read_data:", Kind::Peer, true),
    ("ethernet_write_keys:", Kind::Peer, true),
    ("ethernet_write_data:", Kind::Peer, true),
    ("failed to exchange data between", Kind::Peer, true),
    ("failed to close connection between", Kind::Peer, true),
    ("failed to sync between", Kind::Peer, true),
    ("unable to read ", Kind::Peer, false),
    ("unable to write ", Kind::Peer, false),
    ("failed to negotiate parameters", Kind::Mismatch, true),
    ("couldn't get context for the device", Kind::Other, true),
    ("failed to complete run_iter", Kind::Other, true),
    ("error occurred while running", Kind::Other, true),
    ("error occurred in run_iter", Kind::Other, true),
    ("segmentation fault", Kind::Crash, false),
    ("bus error", Kind::Crash, false),
    ("aborted (core", Kind::Crash, false),
    ("floating point exception", Kind::Crash, false),
    ("illegal instruction", Kind::Crash, false),
    ("*** stack smashing", Kind::Crash, false),
    ("double free or corruption", Kind::Crash, false),
    ("errno: ", Kind::Other, false),
    ("error", Kind::Other, false),
];

/// First words with which an error of any program begins.
const FIRST_WORDS: [&str; 11] = [
    "failed",
    "failed:",
    "failure",
    "couldn't",
    "could",
    "unable",
    "cannot",
    "can't",
    "invalid",
    "unexpected",
    "unsupported",
];

/// What is not there, in the lines of any program.
const NOT: [&str; 3] = ["supported", "available", "found"];

/// Notices that look like errors; the run goes on.
const NOTICES: [&str; 9] = [
    "falling back",
    "disabling",
    "changing to",
    "changing msg size",
    "providing sw rate limit",
    "inline size set to",
    "skipping",
    "might be too big",
    "validator[",
];

/// What a line says. It is trimmed.
pub(super) fn say(line: &str) -> Option<Say> {
    // The shortest text that means anything is longer.
    if line.len() < 5 {
        return None;
    }
    let low = line.to_ascii_lowercase();
    let low = low.as_str();
    if low.starts_with("did not get message for ") || low.starts_with("test timeout") {
        return Some(Say::Stalled);
    }
    if low.starts_with("error: bw result is below") || low.starts_with("error: msg rate") {
        return Some(Say::Limit);
    }
    if low.starts_with("[data_validation]") || low.starts_with("validation: ") {
        return validation(low);
    }
    let said = failure(line, low)?;
    // A notice is longer than most lines, so it is looked for last.
    NOTICES.iter().all(|notice| !low.contains(notice)).then_some(said)
}

/// What a line says that is an error, if it is no notice.
fn failure(line: &str, low: &str) -> Option<Say> {
    if let Some((_, kind, own)) = BEGINNINGS.iter().find(|(text, ..)| low.starts_with(text)) {
        if *kind == Kind::Port && !low.contains(" state is ") {
            return None;
        }
        return Some(if *own { Say::Error(*kind) } else { Say::Perhaps(*kind) });
    }
    if low.starts_with("ib device ") && low.ends_with("not found") {
        return Some(Say::Error(Kind::Device));
    }
    if low.contains("mismatch: ") && mismatch(line).is_some() {
        return Some(Say::Error(Kind::Mismatch));
    }
    if low.contains("ib_") || low.contains("raw_ethernet_") {
        return of_a_program(low);
    }
    let first = low.split(' ').next().unwrap_or_default();
    let missing = |at: usize| NOT.iter().any(|word| low[at..].contains(word));
    let any = FIRST_WORDS.contains(&first)
        || low.contains(" failed")
        || low.contains(" error=")
        || low.find("not ").or_else(|| low.find("n't ")).is_some_and(missing);
    any.then_some(Say::Perhaps(Kind::Other))
}

/// Lines that name the program: its usage page, the shell's or the loader's complaint.
fn of_a_program(low: &str) -> Option<Say> {
    let named = low.split([' ', ':', '\'', '"', '`']).any(|word| super::command::tool(word).is_some());
    let kind = if low.contains("start a server and wait for connection") {
        Kind::Help
    } else if low.contains("option") {
        Kind::Usage
    } else if ["not found", "no such file", "permission denied", "shared librar", "failed to run"]
        .iter()
        .any(|text| low.contains(text))
    {
        Kind::Program
    } else {
        return None;
    };
    named.then_some(Say::Error(kind))
}

/// A line of the data validation: most are its diary.
fn validation(low: &str) -> Option<Say> {
    let fails = ["mismatch", "corrupt", "miscompare", "wrong data", "error(s)", "errors found", "got 0x"]
        .iter()
        .any(|text| low.contains(text));
    let none =
        ["no mismatch", "0 mismatch", "0 error", "mismatches: 0", "mismatches=0", "errors: 0", "errors=0"]
            .iter()
            .any(|text| low.split(text).nth(1).is_some_and(|_| preceded_by_no_digit(low, text)));
    let judged = low.contains("failed") && !low.contains("failed to ") && !low.contains("() failed");
    let broken_tool = ["allocation failed", "launch"].iter().any(|text| low.contains(text));
    if (fails || judged) && !none && !broken_tool {
        return Some(Say::Corrupt);
    }
    let broken = ["failed", "error"].iter().any(|text| low.contains(text)) && !none;
    let unchecked = low.contains("no data validated");
    (broken && !low.contains("failed to pin") || unchecked).then_some(Say::Error(Kind::Other))
}

/// `10 errors` does not hold `0 errors`.
fn preceded_by_no_digit(low: &str, text: &str) -> bool {
    low.match_indices(text).any(|(at, _)| !low[..at].ends_with(|c: char| c.is_ascii_digit()))
}

/// `report_fmt mismatch: local=MBS, remote=GBS`
pub(super) fn mismatch(line: &str) -> Option<Mismatch> {
    let (field, rest) = line.split_once(" mismatch: local=")?;
    let (local, remote) = rest.split_once(", remote=")?;
    let field = field.trim().to_string();
    Some(Mismatch { field, local: local.trim().into(), remote: remote.trim().into() })
}

impl Fault {
    /// Whether a text says that the run failed.
    pub fn failed(&self) -> bool {
        self.line.is_some()
    }

    pub(super) fn add(&mut self, kind: Kind, line: &str) {
        if self.line.as_ref().is_none_or(|(known, _)| kind < *known) {
            self.line = Some((kind, line.to_string()));
        }
        if self.mismatch.is_none() {
            self.mismatch = mismatch(line);
        }
        if self.errno.is_none() {
            self.errno = Errno::of(line);
        }
        if self.completion.is_none() {
            self.completion = Completion::of(line);
        }
    }

    /// `scnt=650798, ccnt=650670`, the line after the status.
    pub(super) fn counts(&mut self, line: &str) {
        let Some(completion) = &mut self.completion else { return };
        for part in line.split(',') {
            match part.trim().split_once('=') {
                Some(("scnt", count)) => completion.sent = completion.sent.or(count.parse().ok()),
                Some(("ccnt", count)) => completion.completed = completion.completed.or(count.parse().ok()),
                _ => {}
            }
        }
    }

    /// The failure and its likely cause, for a person. `gpu`: the memory was a GPU's. None if no
    /// text says that it failed.
    pub fn cause(&self, gpu: bool) -> Option<String> {
        let cause = self.explained(gpu)?;
        let missing = |errno: &&Errno| !errno.name.is_some_and(|name| cause.contains(name));
        match self.errno.as_ref().filter(missing) {
            Some(errno) if self.failed() => Some(format!("{cause} ({errno})")),
            Some(_) | None => Some(cause),
        }
    }

    fn explained(&self, gpu: bool) -> Option<String> {
        if let Some(line) = &self.corrupt {
            return Some(format!("{line}: the data that arrived is not the data that was sent"));
        }
        let Some((kind, line)) = &self.line else {
            let stalled =
                "no message for 120 s: the traffic stopped; look at the peer, the link and its counters";
            return self.stalled.then(|| stalled.to_string()).or_else(|| self.limit.clone());
        };
        let errno = self.errno.as_ref().map(|errno| format!(" ({errno})")).unwrap_or_default();
        let says = |hint: &str| format!("{}: {hint}", line.trim_end_matches('.'));
        Some(match kind {
            Kind::Completion => match &self.completion {
                Some(completion) => completion.words(),
                None => line.clone(),
            },
            Kind::Mismatch => match &self.mismatch {
                Some(Mismatch { field, local, remote }) => format!(
                    "the two sides were started with different options: {field} is {local} here and {remote} at the other side; start both alike"
                ),
                None => says("the two sides were started with different options"),
            },
            Kind::Registration => format!("{}{errno}: {}", self.memory(gpu), self.memory_hint(gpu)),
            Kind::Gpu => format!("the GPU's runtime refused: {line}"),
            Kind::Port => says("look at cable, switch port and subnet manager"),
            Kind::Device => says("look at the name and the driver; ibv_devices lists what there is"),
            Kind::Gid => says("the GID indexes of the two sides probably don't fit each other; show_gids lists them"),
            Kind::QueuePair => says("probably the sides can't reach each other with these GIDs; look at GID index, subnet and MTU"),
            Kind::Connect => says("probably no server is listening there yet, or the address or a firewall is wrong"),
            Kind::Listen => says("another server probably has the TCP port"),
            Kind::Resolve => says("look at the server's name and at DNS"),
            Kind::RdmaCm => format!(
                "{line}: rdma_cm did not connect; does the server have -R too, and is the address the RDMA interface's?"
            ),
            Kind::Version => says("the other side is probably of another version, or no perftest"),
            Kind::Usage => says("an option is wrong or not known to this version; nothing was measured"),
            Kind::Program => says("the program does not start"),
            Kind::Help => "the usage page was printed: an option is wrong or not known to this version; nothing was measured".into(),
            Kind::Peer => says(
                "the connection to the other side ended: it failed, or its options differ; read its output",
            ),
            Kind::Crash => says("the program crashed"),
            Kind::Other => line.clone(),
        })
    }

    fn memory(&self, gpu: bool) -> &'static str {
        if gpu {
            "GPU memory could not be registered with the NIC"
        } else {
            "memory could not be registered with the NIC"
        }
    }

    fn memory_hint(&self, gpu: bool) -> &'static str {
        match (self.errno.as_ref().and_then(|errno| errno.name), gpu) {
            (Some("EPROTONOSUPPORT" | "EOPNOTSUPP"), _) => {
                "the kernel's RDMA stack or the NIC's driver probably lacks dmabuf registration"
            }
            (Some("ENOMEM"), false) => "the memlock limit (ulimit -l) is probably too low",
            (_, true) => "peer memory or dmabuf support is probably missing",
            (_, false) => "memlock limit too low, or for GPU memory no peer memory or dmabuf support",
        }
    }
}
