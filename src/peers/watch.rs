//! Keeps the membership up to date: the `file_sd` files are read again when they change.
//!
//! A list that is gone, or has a mistake, leaves the members as they were: other agents still have
//! them. What is wrong is logged once, and shown as long as it lasts.

use std::{
    fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{select, sync::watch, task::spawn_blocking, time::sleep};
use tokio_util::sync::CancellationToken;

use super::membership::{Builder, LARGEST_FILE, Membership};
use crate::config::Config;

/// How often the files are looked at, which takes one `stat` each.
pub(crate) const POLL: Duration = Duration::from_secs(5);
/// The configuration key of the listed members, as errors name it.
const KEY: &str = "peers.static";

/// Where members are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    /// `node-b` or `node-b=10.0.0.2`.
    pub(crate) entries: Vec<String>,
    /// `file_sd` files.
    pub(crate) files: Vec<PathBuf>,
}

/// Follows the lists that the configuration names.
#[derive(Debug)]
pub(crate) struct Watcher {
    config: watch::Receiver<Arc<Config>>,
    /// What was read last, and the files as they were then.
    seen: Option<(Lists, Vec<Option<Stamp>>)>,
    members: watch::Sender<Arc<Membership>>,
    problem: watch::Sender<Option<Arc<str>>>,
}

/// What tells that a file was written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// Likewise; it also tells that a file may be read now which could not before.
    changed: (i64, i64),
}

impl Watcher {
    /// `problem` is told what is wrong with the lists, while it is.
    pub(crate) fn new(
        config: watch::Receiver<Arc<Config>>,
        members: watch::Sender<Arc<Membership>>,
        problem: watch::Sender<Option<Arc<str>>>,
    ) -> Watcher {
        Watcher { config, seen: None, members, problem }
    }

    /// Reads the lists, and again whenever a file or the configuration changes.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let lists = {
                let peers = &self.config.borrow_and_update().peers;
                Lists { entries: peers.members.clone(), files: peers.file_sd.clone() }
            };
            let files = lists.files.clone();
            let stamps = spawn_blocking(move || files.iter().map(|file| stamp(file).ok()).collect());
            let seen = Some((lists.clone(), stamps.await.unwrap_or_default()));
            if seen != self.seen {
                self.seen = seen;
                self.read(lists).await;
            }
            select! {
                () = shutdown.cancelled() => return,
                Ok(()) = self.config.changed() => {}
                () = sleep(POLL) => {}
            }
        }
    }

    async fn read(&mut self, lists: Lists) {
        let read = spawn_blocking(move || membership(&lists).map_err(|error| format!("{error:#}")));
        let read = read.await.unwrap_or_else(|error| Err(error.to_string()));
        let problem: Option<Arc<str>> = match read {
            Ok(members) => {
                self.members.send_if_modified(|known| {
                    let changed = **known != members;
                    if changed {
                        tracing::info!(members = members.members().len(), "the membership changed");
                        *known = Arc::new(members);
                    }
                    changed
                });
                None
            }
            Err(error) => Some(error.into()),
        };
        self.problem.send_if_modified(|known| {
            let changed = *known != problem;
            if let Some(error) = problem.as_ref().filter(|_| changed) {
                tracing::warn!(
                    error = &**error,
                    "a list of members can't be used, so the members stay as they were"
                );
            }
            *known = problem;
            changed
        });
    }
}

/// Reads all lists.
fn membership(lists: &Lists) -> anyhow::Result<Membership> {
    let mut builder = Builder::default();
    builder.entries(KEY, &lists.entries)?;
    for file in &lists.files {
        let text = text(file).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
        builder.file_sd(file, &text)?;
    }
    Ok(builder.build()?)
}

/// One byte more than may be, at most, so that a file that is too large is noticed.
fn text(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(file)?.take(LARGEST_FILE + 1).read_to_string(&mut text)?;
    Ok(text)
}

fn stamp(file: &Path) -> io::Result<Stamp> {
    let known = fs::metadata(file)?;
    let (modified, changed) = ((known.mtime(), known.mtime_nsec()), (known.ctime(), known.ctime_nsec()));
    Ok(Stamp { inode: known.ino(), size: known.size(), modified, changed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(members: &watch::Receiver<Arc<Membership>>) -> Vec<String> {
        members.borrow().members().iter().map(|member| member.name.to_string()).collect()
    }

    fn group(name: &str) -> String {
        format!("{{\"targets\": [\"{name}:10950\"]}}")
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_read_again_and_a_bad_one_leaves_what_was() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nodes.json");
        let mut config = crate::config::built_in();
        config.peers.members = vec!["node-a".into()];
        config.peers.file_sd = vec![file.clone()];
        let (_config, config) = watch::channel(Arc::new(config));
        let (members, problem) = (watch::Sender::default(), watch::Sender::default());
        let watcher = Watcher::new(config, members.clone(), problem.clone());
        let (mut members, mut problem) = (members.subscribe(), problem.subscribe());
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(watcher.run(shutdown.clone()));
        problem.changed().await.unwrap();
        let missing = format!("{}: No such file or directory (os error 2)", file.display());
        assert_eq!(problem.borrow_and_update().as_deref(), Some(&*missing));
        assert_eq!(names(&members), [] as [&str; 0]);

        fs::write(&file, format!("[{}]", group("node-b"))).unwrap();
        members.changed().await.unwrap();
        assert_eq!(names(&members), ["node-a", "node-b"]);
        problem.changed().await.unwrap();
        assert_eq!(*problem.borrow_and_update(), None);

        fs::write(&file, "[").unwrap();
        problem.changed().await.unwrap();
        let told = problem.borrow_and_update().clone().unwrap();
        assert!(told.contains("nodes.json: not a file_sd list"), "{told}");
        assert_eq!(names(&members), ["node-a", "node-b"]);
        fs::remove_file(&file).unwrap();
        problem.changed().await.unwrap();
        assert_eq!(problem.borrow_and_update().as_deref(), Some(&*missing));
        assert_eq!(names(&members), ["node-a", "node-b"]);

        fs::write(&file, format!("[{}, {}]", group("node-b"), group("node-c"))).unwrap();
        members.changed().await.unwrap();
        assert_eq!(names(&members), ["node-a", "node-b", "node-c"]);
        shutdown.cancel();
        running.await.unwrap();
    }

    #[test]
    fn a_file_that_is_too_large_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nodes.json");
        fs::write(&file, " ".repeat(LARGEST_FILE as usize + 10)).unwrap();
        let lists = Lists { entries: Vec::new(), files: vec![file.clone()] };
        let told = membership(&lists).unwrap_err().to_string();
        assert_eq!(told, format!("{}: more than {LARGEST_FILE} bytes", file.display()));
    }
}
