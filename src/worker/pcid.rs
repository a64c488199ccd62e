//! `fabricpulse pcid`: the one privileged reader.
//!
//! The kernel shows config space beyond 64 bytes only to CAP_SYS_ADMIN, which no exporter should
//! hold. This program holds it and does one thing: it takes a list of PCI addresses from a Unix
//! socket, reads their config space, and answers what it means. It writes nothing, starts nothing,
//! opens no network, and no byte of a request becomes a part of a path but a whole, checked address.
//! systemd starts it at a request and it ends by itself when nobody asks.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    os::{
        fd::AsFd,
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use probes::{lines::Problem, pcie::Config};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::{Deserialize, Serialize};

use super::{STUCK, each_part};
use crate::sysfs::pci;

/// Functions of one request. A node with more GPUs, NICs and bridges than this isn't known.
const FUNCTIONS: usize = 1024;

/// A request of [`FUNCTIONS`] addresses is 20 KiB.
const REQUEST_BYTES: u64 = 64 * 1024;

/// An answer of [`FUNCTIONS`] functions is under 1 MiB.
const ANSWER_BYTES: u64 = 4 * 1024 * 1024;

/// How long a client may take to send its request, and to take the answer.
const CLIENT_TIME: Duration = Duration::from_secs(2);

/// How long the worker waits for the answer: a little more than all reads together may take.
const ANSWER_TIME: Duration = Duration::from_secs(4);

/// How long nobody has to ask before the program ends. Longer than the interval of the probe, or
/// it would be started anew each time.
const IDLE_TIME: Duration = Duration::from_secs(180);

/// How long a function whose read hung is left alone: a few dozen threads a day at the worst.
const AVOIDED: Duration = Duration::from_secs(3600);

/// Base classes that it reads: network, display, bridge, accelerator.
const CLASSES: [u32; 4] = [0x02, 0x03, 0x06, 0x12];

/// Options of `fabricpulse pcid`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Listen on this Unix socket; without it, standard input is the listening socket, as systemd
    /// hands it over with `StandardInput=socket`.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Where the kernel's files are.
    #[arg(long, value_name = "DIR", default_value = "/sys", hide = true)]
    sysfs: PathBuf,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    functions: Vec<String>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Functions(BTreeMap<String, Config>),
    Refused(String),
}

/// Why the privileged reader did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("pcid at {}", path.display())]
    Socket { path: PathBuf, source: io::Error },
    #[error("pcid at {} answered something else", path.display())]
    Answer { path: PathBuf, source: serde_json::Error },
    #[error("pcid at {} refused: {why}", path.display())]
    Refused { path: PathBuf, why: String },
}

/// Asks the privileged reader at `path` for the config space of `functions`.
pub(super) fn ask(path: &Path, functions: &[String]) -> Result<BTreeMap<String, Config>, AskError> {
    let exchange = || -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(ANSWER_TIME))?;
        stream.set_write_timeout(Some(CLIENT_TIME))?;
        serde_json::to_writer(&mut stream, &Ask { functions: functions.to_vec() })?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES).read_to_end(&mut answer)?;
        Ok(answer)
    };
    let path = path.to_path_buf();
    let answer = exchange().map_err(|source| AskError::Socket { path: path.clone(), source })?;
    match serde_json::from_slice(&answer) {
        Ok(Answer::Functions(functions)) => Ok(functions),
        Ok(Answer::Refused(why)) => Err(AskError::Refused { path, why }),
        Err(source) => Err(AskError::Answer { path, source }),
    }
}

/// Serves until nobody has asked for a while.
pub(crate) fn main(args: &Args) -> ExitCode {
    let served =
        listener(args.socket.as_deref()).and_then(|listener| serve(&listener, &args.sysfs, IDLE_TIME));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fabricpulse pcid: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn listener(socket: Option<&Path>) -> anyhow::Result<UnixListener> {
    let Some(path) = socket else {
        let stdin = io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
        let listener = UnixListener::from(stdin);
        listener.local_addr().context(
            "standard input is no Unix socket: start fabricpulse-pcid.socket, or give --socket PATH",
        )?;
        return Ok(listener);
    };
    let listener = UnixListener::bind(path).with_context(|| path.display().to_string())?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))
        .with_context(|| path.display().to_string())?;
    Ok(listener)
}

/// Functions whose read hung, and since when. Each such read keeps a thread until the driver lets
/// go, so they are left alone for a while.
#[derive(Debug, Default)]
struct Stuck(BTreeMap<String, Instant>);

impl Stuck {
    fn avoids(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|since| since.elapsed() < AVOIDED)
    }

    fn note(&mut self, problems: &[Problem]) {
        self.0.retain(|_, since| since.elapsed() < AVOIDED);
        let hung = problems.iter().filter(|problem| problem.error == STUCK);
        self.0.extend(hung.map(|problem| (problem.part.clone(), Instant::now())));
    }
}

fn serve(listener: &UnixListener, sysfs: &Path, idle: Duration) -> anyhow::Result<()> {
    set_socket_timeout(listener, Timeout::Recv, Some(idle)).context("the listening socket")?;
    let mut stuck = Stuck::default();
    loop {
        match listener.accept() {
            // One client at a time, each bounded: a client that fails concerns itself only.
            Ok((stream, _)) => {
                if let Err(error) = client(stream, sysfs, &mut stuck) {
                    eprintln!("fabricpulse pcid: client: {error}");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("accepting a client"),
        }
    }
}

fn client(mut stream: UnixStream, sysfs: &Path, stuck: &mut Stuck) -> io::Result<()> {
    let request = receive(&mut stream)?;
    let answer = match serde_json::from_slice::<Ask>(&request) {
        Ok(ask) => answer(ask, sysfs, stuck),
        Err(error) => Answer::Refused(format!("the request is not {{\"functions\": [..]}}: {error}")),
    };
    stream.set_write_timeout(Some(CLIENT_TIME))?;
    stream.write_all(&serde_json::to_vec(&answer)?)
}

/// The whole request, or an error when it is too large or too slow. The time is that of the whole
/// request, so that a client can't hold the reader by sending a byte now and then.
fn receive(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + CLIENT_TIME;
    let (mut request, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the request took too long"));
        }
        stream.set_read_timeout(Some(left))?;
        let read = stream.read(&mut chunk)?;
        if read == 0 {
            return Ok(request);
        }
        request.extend_from_slice(&chunk[..read]);
        if request.len() as u64 > REQUEST_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the request is too large"));
        }
    }
}

fn answer(ask: Ask, sysfs: &Path, stuck: &mut Stuck) -> Answer {
    if ask.functions.len() > FUNCTIONS {
        return Answer::Refused(format!("more than {FUNCTIONS} functions"));
    }
    if let Some(odd) = ask.functions.iter().find(|name| !pci::is_address(name)) {
        return Answer::Refused(format!("{odd:?} is not a PCI address such as 0000:c1:00.0"));
    }
    let sysfs = sysfs.to_path_buf();
    let (avoided, names): (Vec<String>, Vec<String>) =
        ask.functions.into_iter().partition(|name| stuck.avoids(name));
    let (read, problems) = each_part(names, move |name, progress| {
        let dir = pci::devices(&sysfs, progress).dir(name);
        let class: Option<u32> = dir.number("class")?;
        let config = match class {
            Some(class) if CLASSES.contains(&(class >> 16)) => super::pcie::config(&dir)?,
            Some(_) => Config::Hidden("it is no GPU, NIC or bridge".into()),
            None => Config::Hidden("there is no such function".into()),
        };
        Ok((name.to_string(), config))
    });
    stuck.note(&problems);
    let avoided = avoided.into_iter().map(|name| (name, Config::Hidden(format!("earlier: {STUCK}"))));
    let unread = problems
        .into_iter()
        .map(|found| (found.part, Config::Hidden(format!("{}: {}", found.path, found.error))));
    Answer::Functions(read.into_iter().chain(unread).chain(avoided).collect())
}

#[cfg(test)]
mod tests;
