//! Keeps the book of series in the state directory, so that what was learned and what is suspected
//! outlive the process.
//!
//! It is one small file, written whole after each run that is compared, by a thread of its own. The
//! one before is kept beside it: where the newer can't be read, the older is taken. It is no part of
//! the journal, which forgets runs after days while 64 samples of a rare probe take weeks.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{files, judge::book::Book};

/// The form of the file. Another number is another form.
const VERSION: u32 = 1;
/// The file in the state directory.
const FILE: &str = "baseline.json";
/// The one before.
const OLDER: &str = "baseline.1.json";
/// How long the end waits for the disk.
const FLUSH: Duration = Duration::from_secs(2);

/// The book, and the thread that writes it.
#[derive(Debug)]
pub(crate) struct Baseline {
    book: Arc<Mutex<Book>>,
    changed: Option<SyncSender<()>>,
    flushed: Mutex<Receiver<()>>,
}

#[derive(Deserialize, Serialize)]
struct Kept<B> {
    fabricpulse_baseline: u32,
    lanes: B,
}

#[derive(Deserialize)]
struct Header {
    fabricpulse_baseline: u32,
}

impl Baseline {
    /// Takes up what an earlier process knew.
    pub(crate) fn open(state: &Path) -> Baseline {
        let (file, older) = (state.join(FILE), state.join(OLDER));
        let book = [&file, &older].into_iter().find_map(|file| read(file)).unwrap_or_default();
        let book = Arc::new(Mutex::new(book));
        let (changed, waiting) = mpsc::sync_channel(1);
        let (ended, flushed) = mpsc::channel();
        let written = book.clone();
        thread::spawn(move || {
            while waiting.recv().is_ok() {
                write(&file, &older, &written);
            }
            let _ = ended.send(());
        });
        Baseline { book, changed: Some(changed), flushed: Mutex::new(flushed) }
    }

    /// To look at.
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To change: what comes of it is written.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        let result = change(&mut self.book());
        if let Some(changed) = &self.changed {
            // One that waits already will see this change too.
            let _ = changed.try_send(());
        }
        result
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        self.changed = None;
        let flushed = self.flushed.get_mut().unwrap_or_else(PoisonError::into_inner);
        if flushed.recv_timeout(FLUSH).is_err() {
            tracing::warn!("the newest baselines could not be written in time");
        }
    }
}

/// What a file holds; none where that can't be read, which is told.
fn read(file: &Path) -> Option<Book> {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "the baselines can't be read");
            return None;
        }
    };
    let error = match serde_json::from_slice::<Header>(&bytes) {
        Ok(header) if header.fabricpulse_baseline == VERSION => {
            match serde_json::from_slice::<Kept<Book>>(&bytes) {
                Ok(kept) => return Some(kept.lanes),
                Err(error) => error.to_string(),
            }
        }
        Ok(header) => format!("it is of version {}", header.fabricpulse_baseline),
        Err(error) => error.to_string(),
    };
    let aside = aside(file);
    let kept = fs::rename(file, &aside).is_ok();
    tracing::warn!(file = %file.display(), error, aside = %aside.display(), kept, "the baselines can't be used and were put aside");
    None
}

fn aside(file: &Path) -> PathBuf {
    file.with_extension("unreadable.json")
}

fn write(file: &Path, older: &Path, book: &Mutex<Book>) {
    let text = {
        let book = book.lock().unwrap_or_else(PoisonError::into_inner);
        serde_json::to_vec(&Kept { fabricpulse_baseline: VERSION, lanes: &*book })
    };
    let kept = text.map_err(io::Error::from).and_then(|text| {
        match fs::rename(file, older) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        files::replace(file, &text)
    });
    if let Err(error) = kept {
        tracing::warn!(file = %file.display(), %error, "the baselines can't be written, so a restart forgets them");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::book::sample_book;

    #[test]
    fn what_was_learned_outlives_the_process() {
        let state = tempfile::tempdir().unwrap();
        let baseline = Baseline::open(state.path());
        baseline.change(|book| *book = sample_book());
        drop(baseline);
        assert_eq!(*Baseline::open(state.path()).book(), sample_book());
    }

    #[test]
    fn a_file_that_is_torn_anywhere_costs_nothing_that_the_one_before_has() {
        let state = tempfile::tempdir().unwrap();
        let (file, older) = (state.path().join(FILE), state.path().join(OLDER));
        let whole =
            serde_json::to_vec(&Kept { fabricpulse_baseline: VERSION, lanes: sample_book() }).unwrap();
        for cut in [0, 1, 10, 30, whole.len() / 2, whole.len() - 1] {
            fs::write(&older, &whole).unwrap();
            fs::write(&file, &whole[..cut]).unwrap();
            assert_eq!(*Baseline::open(state.path()).book(), sample_book(), "cut at {cut}");
            assert_eq!(fs::read(aside(&file)).unwrap(), &whole[..cut]);
        }
    }

    #[test]
    fn another_version_is_put_aside_and_not_overwritten() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join(FILE);
        let text = "{\"fabricpulse_baseline\":9,\"lanes\":{\"future\":true}}";
        fs::write(&file, text).unwrap();
        let baseline = Baseline::open(state.path());
        baseline.change(|book| *book = sample_book());
        drop(baseline);
        assert_eq!(fs::read_to_string(aside(&file)).unwrap(), text);
    }

    #[test]
    fn a_directory_that_cannot_be_used_leaves_the_agent_without_memory_only() {
        let state = tempfile::tempdir().unwrap();
        let blocked = state.path().join("file");
        fs::write(&blocked, "").unwrap();
        let baseline = Baseline::open(&blocked);
        baseline.change(|book| *book = sample_book());
        assert_eq!(*baseline.book(), sample_book());
    }
}
