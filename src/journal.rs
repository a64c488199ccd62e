//! The runs that survive a restart: append-only JSON lines of bounded size.
//!
//! A passive lane says mostly the same every minute, so a run is written when it says something
//! new, or when the lane's last line is an hour old. When the file is full it becomes the older
//! piece and a new one begins. What can't be read is told and left out: a torn last line after a
//! crash costs that line. A file of another version is put aside under another name, never
//! overwritten.

use std::{
    collections::{HashMap, VecDeque},
    fs::{self, File, OpenOptions},
    io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use probes::{Finding, Measurement, Target, Verdict};
use serde::{Deserialize, Serialize};

use crate::run::{Evidence, Outcome, Report, Run, Trigger};

/// The form of the lines. Another number is another form.
const VERSION: u32 = 1;
/// The file in the state directory.
const FILE: &str = "journal.jsonl";
/// The older piece.
const OLDER: &str = "journal.1.jsonl";
/// The longest time between two lines of a lane, in seconds.
const KEEPALIVE: f64 = 3600.0;
/// Runs of one lane that are taken up at start: what its history keeps.
const REPLAYED: usize = 32;
/// The longest line that is read; a run with its evidence is some 20 kB.
const LONGEST_LINE: u64 = 4 << 20;

/// The journal of a node.
#[derive(Debug)]
pub(crate) struct Journal {
    file: PathBuf,
    limit: u64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    out: Option<File>,
    size: u64,
    written: HashMap<String, Written>,
}

/// What the last line of a lane said, and when.
#[derive(Debug)]
struct Written {
    at: f64,
    says: u64,
}

#[derive(Deserialize, Serialize)]
struct Header {
    fabricpulse_journal: u32,
}

#[derive(Deserialize, Serialize)]
struct Line {
    id: u64,
    probe: String,
    trigger: Trigger,
    started: f64,
    took: Duration,
    outcome: Outcome,
    reports: Vec<ReportLine>,
    evidence: Vec<Evidence>,
}

#[derive(Deserialize, Serialize)]
struct ReportLine {
    target: Target,
    verdict: Verdict,
    reason: String,
    findings: Vec<Finding>,
    values: Vec<ValueLine>,
}

#[derive(Deserialize, Serialize)]
struct ValueLine {
    metric: String,
    labels: Vec<String>,
    value: f64,
}

impl Journal {
    /// Opens the journal below `state` and reads what it holds, oldest first.
    ///
    /// A state directory that can't be used is told once; the agent then runs without memory.
    pub(crate) fn open(state: &Path, limit: u64) -> (Journal, Vec<Run>) {
        let file = state.join(FILE);
        let mut past = Past::default();
        for piece in [state.join(OLDER), file.clone()] {
            match replay(&piece, &mut past) {
                Ok(Replay::Whole) => {}
                Ok(Replay::OtherVersion(version)) => put_aside(&piece, version),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::warn!(file = %piece.display(), %error, "the journal can't be read"),
            }
        }
        let (out, size) = match append_to(&file) {
            Ok((out, size)) => (Some(out), size),
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "the journal can't be written, so nothing survives a restart");
                (None, 0)
            }
        };
        let written = HashMap::new();
        (Journal { file, limit, inner: Mutex::new(Inner { out, size, written }) }, past.runs())
    }

    /// Writes the run, if it says something new or active probes must be accounted for.
    pub(crate) fn append(&self, run: &Run) {
        let mut inner = self.lock();
        let lane = lane_name(run);
        let says = digest(run);
        let known = inner.written.get(&lane);
        if known.is_some_and(|known| {
            known.says == says && run.started - known.at < KEEPALIVE && run.started >= known.at
        }) {
            return;
        }
        inner.written.insert(lane, Written { at: run.started, says });
        if let Err(error) = self.write(&mut inner, run) {
            tracing::warn!(file = %self.file.display(), %error, "a run could not be written to the journal");
        }
    }

    fn write(&self, inner: &mut Inner, run: &Run) -> io::Result<()> {
        if inner.size >= self.limit {
            inner.out = None;
            fs::rename(&self.file, self.file.with_file_name(OLDER))?;
            let (out, size) = append_to(&self.file)?;
            (inner.out, inner.size) = (Some(out), size);
        }
        let Some(out) = &mut inner.out else { return Ok(()) };
        let mut line = serde_json::to_vec(&Line::of(run))?;
        line.push(b'\n');
        // One write a line: a crash tears the last line at most.
        out.write_all(&line)?;
        inner.size += line.len() as u64;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn of(run: &Run) -> Line {
        Line {
            id: run.id,
            probe: run.probe.to_string(),
            trigger: run.trigger,
            started: run.started,
            took: run.took,
            outcome: run.outcome.clone(),
            reports: run.reports.iter().map(ReportLine::of).collect(),
            evidence: run.evidence.clone(),
        }
    }

    /// None for a probe that this version does not know any more.
    fn run(self) -> Option<Run> {
        Some(Run {
            id: self.id,
            probe: probes::find(&self.probe)?.name(),
            trigger: self.trigger,
            started: self.started,
            took: self.took,
            outcome: self.outcome,
            reports: self.reports.into_iter().map(ReportLine::report).collect(),
            evidence: self.evidence,
        })
    }
}

impl ReportLine {
    fn of(report: &Report) -> ReportLine {
        let value = |m: &Measurement| ValueLine {
            metric: m.metric.name.to_string(),
            labels: m.labels.clone(),
            value: m.value,
        };
        ReportLine {
            target: report.target.clone(),
            verdict: report.verdict,
            reason: report.reason.clone(),
            findings: report.findings.clone(),
            values: report.measurements.iter().map(value).collect(),
        }
    }

    fn report(self) -> Report {
        let measurement = |line: ValueLine| {
            let metric = probes::find_metric(&line.metric)?;
            let known = metric.labels.len() == line.labels.len();
            known.then_some(Measurement { metric, labels: line.labels, value: line.value })
        };
        Report {
            target: self.target,
            verdict: self.verdict,
            reason: self.reason,
            findings: self.findings,
            measurements: self.values.into_iter().filter_map(measurement).collect(),
        }
    }
}

/// The newest runs of each lane, however long the journal is.
#[derive(Default)]
struct Past(HashMap<String, VecDeque<Run>>);

impl Past {
    fn push(&mut self, run: Run) {
        let lane = self.0.entry(lane_name(&run)).or_default();
        lane.push_back(run);
        if lane.len() > REPLAYED {
            lane.pop_front();
        }
    }

    fn runs(self) -> Vec<Run> {
        let mut runs: Vec<Run> = self.0.into_values().flatten().collect();
        runs.sort_by_key(|run| run.id);
        runs
    }
}

enum Replay {
    Whole,
    OtherVersion(u32),
}

fn replay(file: &Path, past: &mut Past) -> io::Result<Replay> {
    let mut lines = BufReader::new(File::open(file)?);
    let (mut number, mut line) = (0, Vec::new());
    loop {
        line.clear();
        number += 1;
        if io::Read::take(&mut lines, LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(Replay::Whole);
        }
        if number == 1
            && let Ok(header) = serde_json::from_slice::<Header>(&line)
        {
            if header.fabricpulse_journal != VERSION {
                return Ok(Replay::OtherVersion(header.fabricpulse_journal));
            }
            continue;
        }
        match serde_json::from_slice::<Line>(&line) {
            Ok(line) => line.run().into_iter().for_each(|run| past.push(run)),
            Err(error) if line.ends_with(b"\n") => {
                tracing::warn!(file = %file.display(), line = number, %error, "a journal line was skipped");
            }
            Err(_) => {
                tracing::warn!(file = %file.display(), line = number, "the last journal line is torn and was skipped");
            }
        }
    }
}

/// Opens the file for appending, with its header, and with a torn last line closed off.
fn append_to(file: &Path) -> io::Result<(File, u64)> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut out = OpenOptions::new().create(true).append(true).read(true).open(file)?;
    let mut size = out.metadata()?.len();
    let mut fix = Vec::new();
    if size == 0 {
        serde_json::to_writer(&mut fix, &Header { fabricpulse_journal: VERSION })?;
        fix.push(b'\n');
    } else {
        let mut last = [0];
        out.seek(SeekFrom::End(-1))?;
        io::Read::read_exact(&mut out, &mut last)?;
        if last != *b"\n" {
            fix.push(b'\n');
        }
    }
    out.write_all(&fix)?;
    size += fix.len() as u64;
    Ok((out, size))
}

fn put_aside(file: &Path, version: u32) {
    let aside = file.with_extension(format!("v{version}.jsonl"));
    match fs::rename(file, &aside) {
        Ok(()) => tracing::warn!(
            file = %file.display(), version, aside = %aside.display(),
            "the journal is of another version and was put aside; a new one begins"
        ),
        Err(error) => {
            tracing::warn!(file = %file.display(), version, %error, "the journal is of another version");
        }
    }
}

fn lane_name(run: &Run) -> String {
    match run.reports.as_slice() {
        [only] => format!("{} {}", run.probe, only.target),
        _ => run.probe.to_string(),
    }
}

/// A digest of what a run says.
fn digest(run: &Run) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut digest = DefaultHasher::new();
    run.gist().hash(&mut digest);
    digest.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: u64, verdict: Verdict) -> Run {
        let report = Report {
            target: Target::Node,
            verdict,
            reason: verdict.to_string(),
            findings: vec![Finding::new("numa_balancing", "node", verdict, "1", "0")],
            measurements: vec![],
        };
        Run {
            id,
            probe: "exec",
            trigger: Trigger::Periodic,
            started: id as f64 * 60.0,
            took: Duration::from_millis(5),
            outcome: Outcome::Completed,
            reports: vec![report],
            evidence: vec![],
        }
    }

    fn replayed(state: &Path) -> Vec<u64> {
        Journal::open(state, 1 << 20).1.iter().map(|run| run.id).collect()
    }

    #[test]
    fn what_says_something_new_survives_a_restart() {
        let state = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(state.path(), 1 << 20);
        for id in 0..200 {
            journal.append(&run(id, if id == 7 { Verdict::Fail } else { Verdict::Pass }));
        }
        // The first, the change and the change back, then one an hour.
        assert_eq!(replayed(state.path()), [0, 7, 8, 68, 128, 188]);
        let (_, runs) = Journal::open(state.path(), 1 << 20);
        assert_eq!(runs[1].reports[0].findings, run(7, Verdict::Fail).reports[0].findings);
    }

    #[test]
    fn a_torn_last_line_costs_that_line_and_no_later_one() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join(FILE);
        let (journal, _) = Journal::open(state.path(), 1 << 20);
        journal.append(&run(1, Verdict::Pass));
        journal.append(&run(2, Verdict::Fail));
        drop(journal);
        let whole = fs::read(&file).unwrap();
        for cut in (whole.len() - 40..whole.len()).rev() {
            fs::write(&file, &whole[..cut]).unwrap();
            let (journal, runs) = Journal::open(state.path(), 1 << 20);
            let kept: Vec<u64> = runs.iter().map(|run| run.id).collect();
            assert!(kept == [1] || (kept == [1, 2] && cut == whole.len() - 1), "cut at {cut}: {kept:?}");
            journal.append(&run(3, Verdict::Degraded));
            assert_eq!(replayed(state.path()).last(), Some(&3), "cut at {cut}");
        }
    }

    #[test]
    fn garbage_in_the_middle_costs_only_itself() {
        let state = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(state.path(), 1 << 20);
        journal.append(&run(1, Verdict::Pass));
        let mut file = OpenOptions::new().append(true).open(state.path().join(FILE)).unwrap();
        file.write_all(b"\xff\x00 garbage\n{}\n").unwrap();
        journal.append(&run(2, Verdict::Fail));
        assert_eq!(replayed(state.path()), [1, 2]);
    }

    #[test]
    fn another_version_is_put_aside_and_not_overwritten() {
        let state = tempfile::tempdir().unwrap();
        let text = "{\"fabricpulse_journal\":9}\n{\"future\":true}\n";
        fs::write(state.path().join(FILE), text).unwrap();
        assert_eq!(replayed(state.path()), Vec::<u64>::new());
        assert_eq!(fs::read_to_string(state.path().join("journal.v9.jsonl")).unwrap(), text);
    }

    #[test]
    fn the_size_is_bounded_and_the_newest_runs_stay() {
        let state = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(state.path(), 4096);
        for id in 0..500 {
            journal.append(&run(id, if id % 2 == 0 { Verdict::Fail } else { Verdict::Pass }));
        }
        let size: u64 =
            [FILE, OLDER].iter().map(|name| fs::metadata(state.path().join(name)).unwrap().len()).sum();
        assert!(size < 2 * 4096 + 1024, "{size}");
        assert_eq!(replayed(state.path()).last(), Some(&499));
    }

    #[test]
    fn a_directory_that_cannot_be_used_leaves_the_agent_without_memory_only() {
        let state = tempfile::tempdir().unwrap();
        let blocked = state.path().join("file");
        fs::write(&blocked, "").unwrap();
        let (journal, runs) = Journal::open(&blocked, 1 << 20);
        assert!(runs.is_empty());
        journal.append(&run(1, Verdict::Pass));
    }
}
