//! Keeps the membership up to date: what the configuration says, and files that are read again when
//! they change. A file that is broken or gone leaves the list as it was.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use tokio::{
    select,
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::membership::{Builder, Membership};
use crate::config::Config;

/// How often it is looked whether a file has changed.
const LOOK: Duration = Duration::from_secs(5);
/// The largest file that is read, in bytes: 100,000 nodes with labels.
const FILE_BYTES: u64 = 32 << 20;

/// What tells that a file has changed: when, its size, and which file it is.
type Stamp = Vec<Option<(SystemTime, u64, u64)>>;

/// Follows configuration and files until `shutdown`.
pub(crate) async fn follow(
    mut config: watch::Receiver<Arc<Config>>,
    members: watch::Sender<Arc<Membership>>,
    shutdown: CancellationToken,
) {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut seen, mut told) = (None, String::new());
    loop {
        let now = config.borrow_and_update().clone();
        let before = seen.clone();
        let read = tokio::task::spawn_blocking(move || {
            let stamp = (now.peers.members.clone(), stamp(&now.peers.file_sd));
            (before.as_ref() != Some(&stamp)).then(|| (stamp, load(&now)))
        });
        if let Ok(Some((stamp, loaded))) = read.await {
            seen = Some(stamp);
            match loaded {
                Ok(list) => {
                    told.clear();
                    let count = list.len();
                    members.send_if_modified(|members| {
                        let changed = **members != list;
                        if changed {
                            *members = Arc::new(list);
                            tracing::info!(nodes = count, "the list of peers was read");
                        }
                        changed
                    });
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    if error != told {
                        tracing::error!(error, "the list of peers can't be read, so the one before stays");
                        told = error;
                    }
                }
            }
        }
        select! {
            () = shutdown.cancelled() => return,
            Ok(()) = config.changed() => {}
            _ = ticks.tick() => {}
        }
    }
}

/// The whole list, or what is wrong with it.
pub(crate) fn load(config: &Config) -> anyhow::Result<Membership> {
    let mut builder = Builder::default();
    for (index, member) in config.peers.members.iter().enumerate() {
        builder.member(index, member)?;
    }
    for path in &config.peers.file_sd {
        builder.file(path, &text(path).with_context(|| path.display().to_string())?)?;
    }
    Ok(builder.build())
}

fn text(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = fs::File::open(path)?.take(FILE_BYTES + 1).read_to_string(&mut text)?;
    anyhow::ensure!(read as u64 <= FILE_BYTES, "it is larger than {} MiB", FILE_BYTES >> 20);
    Ok(text)
}

fn stamp(files: &[PathBuf]) -> Stamp {
    use std::os::unix::fs::MetadataExt as _;
    let of = |path: &PathBuf| {
        let about = fs::metadata(path).ok()?;
        Some((about.modified().ok()?, about.len(), about.ino()))
    };
    files.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_broken_file_leaves_the_list_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("peers.json");
        fs::write(&path, r#"[{"targets": ["node-a:1", "node-b:1"]}]"#).unwrap();
        let mut config = crate::config::built_in();
        config.peers.file_sd = vec![path.clone()];
        let (publish, config) = watch::channel(Arc::new(config));
        let (sender, mut members) = watch::channel(Arc::default());
        let shutdown = CancellationToken::new();
        let following = tokio::spawn(follow(config, sender, shutdown.clone()));
        members.wait_for(|members| members.len() == 2).await.unwrap();
        fs::write(&path, "[{").unwrap();
        // A reload of the configuration looks at once.
        publish.send_modify(|_| {});
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(members.borrow().len(), 2);
        fs::write(&path, r#"[{"targets": ["node-a:1", "node-b:1", "node-c:1"]}]"#).unwrap();
        publish.send_modify(|_| {});
        members.wait_for(|members| members.len() == 3).await.unwrap();
        shutdown.cancel();
        following.await.unwrap();
    }
}
