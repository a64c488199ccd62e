//! The runs that survive a restart: append-only JSON lines of bounded size.
//!
//! A passive lane says mostly the same every minute, so a run is written when it says something
//! new, or when the lane's last line is half an hour old. When the file is full it becomes the older
//! piece and a new one begins. What can't be read is told and left out: a torn last line after a
//! crash costs that line. A file of another version is put aside under another name, never
//! overwritten.

use std::{
    collections::{HashMap, VecDeque},
    fs::{self, File},
    io::{self, BufRead as _, BufReader},
    path::Path,
    sync::{
        Mutex, PoisonError,
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::run::Run;

mod line;
mod pieces;

use line::Line;
use pieces::Pieces;

/// The form of the lines. Another number is another form.
const VERSION: u32 = 1;
/// The file in the state directory.
const FILE: &str = "journal.jsonl";
/// The older piece.
const OLDER: &str = "journal.1.jsonl";
/// The longest time between two lines of a lane, in seconds: after a restart, the budgets ask what
/// ran within the hour.
const KEEPALIVE: f64 = 1800.0;
/// Runs of one lane that are taken up at start: what its history keeps.
const REPLAYED: usize = 32;
/// The longest line that is read; a run with its evidence is some 20 kB.
const LONGEST_LINE: u64 = 4 << 20;

/// Lines that wait for the disk; more are left out. A node writes one in minutes.
const WAITING: usize = 256;
/// How long the end waits for the disk.
const FLUSH: Duration = Duration::from_secs(2);

/// The journal of a node.
#[derive(Debug)]
pub(crate) struct Journal {
    lines: Option<SyncSender<Vec<u8>>>,
    flushed: Mutex<Receiver<()>>,
    written: Mutex<HashMap<String, Written>>,
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

impl Journal {
    /// Opens the journal below `state` and reads what it holds, oldest first.
    ///
    /// A state directory that can't be used is told; the agent then runs without memory.
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
        let (lines, waiting) = mpsc::sync_channel(WAITING);
        let (ended, flushed) = mpsc::channel();
        thread::spawn(move || {
            Pieces::new(file, limit).serve(&waiting);
            let _ = ended.send(());
        });
        (Journal { lines: Some(lines), flushed: Mutex::new(flushed), written: Mutex::default() }, past.runs())
    }

    /// Writes the run, if it says something new. A run that was refused or cut short before it said
    /// anything is written only if it used something that is budgeted.
    pub(crate) fn append(&self, run: &Run) {
        if run.reports.is_empty() && !(run.target.is_some() && run.began()) {
            return;
        }
        let lane = lane_name(run);
        let says = digest(run);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let known = written.get(&lane);
        if known.is_some_and(|known| {
            known.says == says && run.started - known.at < KEEPALIVE && run.started >= known.at
        }) {
            return;
        }
        written.insert(lane, Written { at: run.started, says });
        drop(written);
        let line = serde_json::to_vec(&Line::of(run)).map(|mut line| {
            line.push(b'\n');
            line
        });
        let sent =
            line.is_ok_and(|line| self.lines.as_ref().is_some_and(|lines| lines.try_send(line).is_ok()));
        if !sent {
            tracing::warn!(run = run.id, "a run was left out of the journal: the disk does not keep up");
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.lines = None;
        let flushed = self.flushed.get_mut().unwrap_or_else(PoisonError::into_inner);
        if flushed.recv_timeout(FLUSH).is_err() {
            tracing::warn!("the journal's last lines could not be written in time");
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
    match &run.target {
        Some(target) => format!("{} {target}", run.probe),
        None => run.probe.to_string(),
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
    use std::{fs::OpenOptions, io::Write as _};

    use probes::{Finding, Target, Verdict};

    use super::*;
    use crate::run::{Outcome, Report, Trigger};

    fn run(id: u64, verdict: Verdict) -> Run {
        let report = Report {
            target: Target::Node,
            verdict,
            reason: verdict.to_string(),
            findings: vec![Finding::new("numa_balancing", "node", verdict, "1", "0")],
            measurements: vec![],
            speed: None,
        };
        Run {
            id,
            probe: "exec",
            target: None,
            trigger: Trigger::Periodic,
            peer: None,
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
        drop(journal);
        // The first, the change and the change back, then one in half an hour.
        assert_eq!(replayed(state.path()), [0, 7, 8, 38, 68, 98, 128, 158, 188]);
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
            drop(journal);
            assert_eq!(replayed(state.path()).last(), Some(&3), "cut at {cut}");
        }
    }

    #[test]
    fn garbage_in_the_middle_costs_only_itself() {
        let state = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(state.path(), 1 << 20);
        journal.append(&run(1, Verdict::Pass));
        drop(journal);
        let mut file = OpenOptions::new().append(true).open(state.path().join(FILE)).unwrap();
        file.write_all(b"\xff\x00 garbage\n{}\n").unwrap();
        let (journal, _) = Journal::open(state.path(), 1 << 20);
        journal.append(&run(2, Verdict::Fail));
        drop(journal);
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
        for id in 0..200 {
            journal.append(&run(id, if id % 2 == 0 { Verdict::Fail } else { Verdict::Pass }));
        }
        drop(journal);
        let size: u64 =
            [FILE, OLDER].iter().map(|name| fs::metadata(state.path().join(name)).unwrap().len()).sum();
        assert!(size < 2 * 4096 + 1024, "{size}");
        assert_eq!(replayed(state.path()).last(), Some(&199));
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
