//! The parts of this node: what is there now, and what was accepted once.
//!
//! The agent asks a worker, like everything else. A part that was seen is accepted and stays so in
//! the state directory; when it is gone, its targets stay with a failing verdict until the operator
//! accepts that. A part whose files could not be read is not gone: nobody could look.

use std::{
    fs, io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use probes::{Inventory, Output, Program, Step, inventory::Perftest, lines, lines::Problem, rdma};
use tokio::sync::watch;

use crate::{
    config::Config,
    files,
    runner::{self, Stop},
};

/// How long the inventory worker may take; it answers in milliseconds.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long perftest may take to say what it can do: it looks at no device for that.
const HELP_DEADLINE: Duration = Duration::from_secs(5);
/// The file in the state directory.
const FILE: &str = "inventory.json";

/// The parts of this node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Parts {
    pub(crate) present: Inventory,
    /// Everything present, and what was present once and has not been given up.
    pub(crate) accepted: Inventory,
    /// Whether `present` comes from a listing. Before the first one nothing is known to be absent.
    pub(crate) listed: bool,
}

impl Parts {
    /// The names of the parts that are there now.
    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.present)
    }
}

/// Keeps [`Parts`] up to date.
#[derive(Debug)]
pub(crate) struct Keeper {
    file: PathBuf,
    parts: watch::Sender<Arc<Parts>>,
    /// What could not be read last time, so that it is told once.
    told: Mutex<Vec<Problem>>,
}

impl Keeper {
    /// Begins with what an earlier process accepted.
    pub(crate) fn open(state: &std::path::Path) -> Keeper {
        let file = state.join(FILE);
        let accepted = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!(file = %file.display(), %error, "the accepted inventory can't be read, so it begins anew");
                Inventory::default()
            }),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(file = %file.display(), %error, "the accepted inventory can't be read, so it begins anew");
                }
                Inventory::default()
            }
        };
        let (parts, _) =
            watch::channel(Arc::new(Parts { present: Inventory::default(), accepted, listed: false }));
        Keeper { file, parts, told: Mutex::default() }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Parts>> {
        self.parts.subscribe()
    }

    /// Asks the worker, and tells everybody if something changed.
    pub(crate) async fn refresh(&self, config: &Config, stop: &Stop) -> anyhow::Result<()> {
        let (mut present, problems) = ask(config, stop).await?;
        let known = self.parts.borrow().present.perftest.clone();
        describe(&mut present, known.as_ref(), stop).await;
        self.tell(&problems);
        let mut save = None;
        self.parts.send_if_modified(|parts| {
            let present = keep_unreadable(present, &parts.accepted, &problems);
            let accepted = union(&parts.accepted, &present);
            if names(&accepted) != names(&parts.accepted) {
                save = Some(accepted.clone());
            }
            let after = Parts { present, accepted, listed: true };
            let changed = **parts != after;
            if changed {
                *parts = Arc::new(after);
            }
            changed
        });
        if let Some(accepted) = save {
            self.save(&accepted);
        }
        Ok(())
    }

    /// Gives up everything that is gone. Returns how many parts that were.
    pub(crate) fn accept(&self) -> usize {
        let mut gone = 0;
        self.parts.send_modify(|parts| {
            if !parts.listed {
                return;
            }
            gone = names(&parts.accepted).len() - names(&parts.present).len();
            let present = parts.present.clone();
            *parts = Arc::new(Parts { accepted: present.clone(), present, listed: parts.listed });
        });
        self.save(&self.parts.borrow().accepted.clone());
        gone
    }

    fn save(&self, accepted: &Inventory) {
        let saved = serde_json::to_vec(accepted)
            .map_err(io::Error::from)
            .and_then(|text| files::replace(&self.file, &text));
        if let Err(error) = saved {
            tracing::warn!(file = %self.file.display(), %error, "the accepted inventory can't be written, so it is forgotten at the end");
        }
    }

    fn tell(&self, problems: &[Problem]) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        for problem in problems.iter().filter(|problem| !told.contains(problem)) {
            tracing::warn!(
                part = problem.part,
                file = problem.path,
                error = problem.error,
                "a part can't be listed"
            );
        }
        *told = problems.to_vec();
    }
}

/// The parts that are there now, for somebody who asks once.
pub(crate) async fn list(config: &Config, stop: &Stop) -> anyhow::Result<(Inventory, Vec<Problem>)> {
    let (mut present, problems) = ask(config, stop).await?;
    describe(&mut present, None, stop).await;
    Ok((present, problems))
}

/// Says what the installed perftest can do. It is run for that, unless it is the one that is known.
async fn describe(present: &mut Inventory, known: Option<&Perftest>, stop: &Stop) {
    let Some(found) = &mut present.perftest else { return };
    let same = |known: &&Perftest| {
        (&known.directory, known.modified) == (&found.directory, found.modified) && known.version.is_some()
    };
    if let Some(known) = known.filter(same) {
        found.version.clone_from(&known.version);
        found.gpu_options.clone_from(&known.gpu_options);
        return;
    }
    let program = format!("{}/{}", found.directory, rdma::PROGRAMS[0]);
    found.version = rdma::help::version(&said(&program, "--version", stop).await);
    found.gpu_options = rdma::help::gpu_options(&said(&program, "--help", stop).await);
}

/// What a program prints of itself. perftest ends with 1 after that, which is no failure.
async fn said(program: &str, option: &str, stop: &Stop) -> String {
    let step = Step {
        program: Program::Command(vec![program.to_string(), option.to_string()]),
        env: Vec::new(),
        stdin: String::new(),
        deadline: HELP_DEADLINE,
        cpus: Vec::new(),
    };
    let Output { stdout, .. } = match runner::run(&step, stop).await.0 {
        Ok(output) => output,
        Err(unfinished) => unfinished.output,
    };
    stdout
}

/// Asks the inventory worker once.
async fn ask(config: &Config, stop: &Stop) -> anyhow::Result<(Inventory, Vec<Problem>)> {
    let step = Step {
        program: Program::Worker("inventory"),
        env: Vec::new(),
        stdin: probes::passive::request(&config.settings),
        deadline: DEADLINE,
        cpus: Vec::new(),
    };
    let (result, evidence) = runner::run(&step, stop).await;
    let output =
        result.map_err(|unfinished| anyhow::anyhow!("{}: {}", unfinished.failure, evidence.stderr.trim()))?;
    let answer = lines::read::<Inventory>(&output.stdout)?;
    // Where the list itself can't be read, nothing is known to be gone.
    if let Some(problem) = answer.problems.iter().find(|problem| problem.part == lines::NODE) {
        anyhow::bail!("{}: {}", problem.path, problem.error);
    }
    Ok((answer.items.into_iter().next().unwrap_or_default(), answer.problems))
}

/// A part that was accepted and whose files could not be read this time counts as present.
fn keep_unreadable(mut present: Inventory, accepted: &Inventory, problems: &[Problem]) -> Inventory {
    let kept = |name: &str| problems.iter().any(|problem| problem.part == name);
    let known = names(&present);
    let lost = |name: &str| kept(name) && !known.iter().any(|known| known == name);
    present.gpus.extend(accepted.gpus.iter().filter(|gpu| lost(&gpu.function.pci)).cloned());
    present.nics.extend(accepted.nics.iter().filter(|nic| lost(&nic.function.pci)).cloned());
    present.rdma.extend(accepted.rdma.iter().filter(|rdma| lost(&rdma.name)).cloned());
    sorted(present)
}

/// Everything of both; what both have is taken from `fresh`.
fn union(old: &Inventory, fresh: &Inventory) -> Inventory {
    let known = names(fresh);
    let gone = |name: &str| !known.iter().any(|known| known == name);
    let mut both = fresh.clone();
    both.gpus.extend(old.gpus.iter().filter(|gpu| gone(&gpu.function.pci)).cloned());
    both.nics.extend(old.nics.iter().filter(|nic| gone(&nic.function.pci)).cloned());
    both.rdma.extend(old.rdma.iter().filter(|rdma| gone(&rdma.name)).cloned());
    sorted(both)
}

fn sorted(mut inventory: Inventory) -> Inventory {
    inventory.gpus.sort_by(|a, b| a.function.pci.cmp(&b.function.pci));
    inventory.nics.sort_by(|a, b| a.function.pci.cmp(&b.function.pci));
    inventory.rdma.sort_by(|a, b| a.name.cmp(&b.name));
    inventory
}

/// The names of all parts that can go missing.
fn names(inventory: &Inventory) -> Vec<String> {
    let gpus = inventory.gpus.iter().map(|gpu| gpu.function.pci.clone());
    let nics = inventory.nics.iter().map(|nic| nic.function.pci.clone());
    gpus.chain(nics).chain(inventory.rdma.iter().map(|rdma| rdma.name.clone())).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use probes::inventory::{Function, Gpu, Rdma};

    use super::*;

    fn inventory(gpus: &[&str], rdma: &[&str]) -> Inventory {
        let gpu = |pci: &&str| Gpu {
            function: Function { pci: pci.to_string(), ..Function::default() },
            ..Gpu::default()
        };
        let rdma_device = |name: &&str| Rdma { name: name.to_string(), ..Rdma::default() };
        Inventory {
            gpus: gpus.iter().map(gpu).collect(),
            rdma: rdma.iter().map(rdma_device).collect(),
            ..Inventory::default()
        }
    }

    #[test]
    fn what_is_gone_stays_accepted_and_what_is_new_joins() {
        let accepted = union(&inventory(&["a", "b"], &["x"]), &inventory(&["b", "c"], &[]));
        assert_eq!(accepted, inventory(&["a", "b", "c"], &["x"]));
    }

    #[tokio::test]
    async fn perftest_is_asked_only_when_it_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(rdma::PROGRAMS[0]);
        // Like the real one it ends with 1.
        let script = "#!/bin/sh\ncase $1 in --version) echo Version: 6.06 ;; --help) echo '  --use_rocm=<id> x' ;; esac\nexit 1\n";
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let installed = |modified| Perftest {
            directory: folder.path().display().to_string(),
            modified: Some(modified),
            ..Perftest::default()
        };
        let stop = Stop::at_shutdown(tokio_util::sync::CancellationToken::new());
        let asked = async |modified, known: Option<&Perftest>| {
            let mut present = Inventory { perftest: Some(installed(modified)), ..Inventory::default() };
            describe(&mut present, known, &stop).await;
            present.perftest.unwrap()
        };
        let first = asked(1, None).await;
        assert_eq!(
            (first.version.as_deref(), first.gpu_options.as_slice()),
            (Some("6.06"), &["use_rocm".into()][..])
        );
        let mut known = first;
        known.version = Some("known".into());
        assert_eq!(asked(1, Some(&known)).await, known);
        assert_eq!(asked(2, Some(&known)).await.version.as_deref(), Some("6.06"));
        known.version = None;
        assert_eq!(
            asked(1, Some(&known)).await.version.as_deref(),
            Some("6.06"),
            "it said nothing last time"
        );
    }

    #[test]
    fn a_part_that_could_not_be_read_is_not_gone() {
        let problem = Problem { part: "a".into(), path: "/sys/a/vendor".into(), error: "EIO".into() };
        let accepted = inventory(&["a", "b"], &[]);
        assert_eq!(keep_unreadable(inventory(&["b"], &[]), &accepted, &[problem]), accepted);
        assert_eq!(keep_unreadable(inventory(&["b"], &[]), &accepted, &[]), inventory(&["b"], &[]));
    }
}
