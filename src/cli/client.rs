//! The commands that ask the running agent.

use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Baseline, Client as Command, baseline, list, offline};
use crate::{
    check::{self, CheckFormat, Seen},
    client::{Client, ClientError},
    config::{self, Config, Overrides},
    http::query::encode,
    runner::epoch_seconds,
};

/// The agent answers from memory.
const ANSWER: Duration = Duration::from_secs(5);
/// A run that was asked for may be a sweep over the whole node.
const RUN: Duration = Duration::from_secs(600);
/// How often it is asked whether a run has ended.
const POLL: Duration = Duration::from_millis(100);
/// The configuration is wrong.
const BAD_CONFIG: u8 = 2;
/// Nothing could be found out.
const UNKNOWN: u8 = 3;

/// Runs one command.
pub(crate) fn main(overrides: &Overrides, command: Command) -> ExitCode {
    let config = match config::load(overrides) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("fabricpulse: {error}");
            return ExitCode::from(BAD_CONFIG);
        }
    };
    let done = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime")
        .and_then(|runtime| runtime.block_on(run(&config, command)));
    done.unwrap_or_else(|error| {
        eprintln!("fabricpulse: {error:#}");
        ExitCode::from(UNKNOWN)
    })
}

async fn run(config: &Config, command: Command) -> anyhow::Result<ExitCode> {
    let socket = &config.web.socket;
    let client = Client::new(socket, ANSWER);
    match command {
        Command::List { json } => list::main(config, json).await,
        Command::Check { format, max_age } => check(&client, format, max_age).await,
        Command::Probe { test, target, peer, json } => {
            let wanted = Wanted { test, target, peer };
            probe(config, &wanted, json).await
        }
        Command::Hold { length, reason } => {
            let seconds = format!("{}s", length.as_secs());
            post(&client, "/api/v1/hold", &json!({ "for": seconds, "reason": reason })).await
        }
        Command::Release => post(&client, "/api/v1/release", &json!({})).await,
        Command::Baseline(Baseline::Show { json }) => baseline::show(&client, json).await,
        Command::Baseline(Baseline::Accept(which)) => {
            post(&client, "/api/v1/baseline/accept", &json!({ "test": which.test, "target": which.target }))
                .await
        }
        Command::Baseline(Baseline::Reset(which)) => {
            post(&client, "/api/v1/baseline/reset", &json!({ "test": which.test, "target": which.target }))
                .await
        }
        Command::Accept => post(&client, "/api/v1/inventory/accept", &json!({})).await,
    }
}

async fn check(client: &Client, format: CheckFormat, max_age: Option<Duration>) -> anyhow::Result<ExitCode> {
    let seen = match client.get("/api/v1/status").await {
        Ok((status, text)) if status.is_success() => serde_json::from_str::<Seen>(&text)
            .map_err(|error| format!("the agent's answer is not understood: {error}")),
        Ok((status, text)) => Err(format!("the agent answers {status}: {}", text.trim())),
        Err(error) => Err(format!("{:#}", anyhow::Error::from(error))),
    };
    let seen = seen.as_ref().map_err(String::as_str);
    let (text, code) = check::check(seen, format, max_age.map(|age| age.as_secs_f64()), epoch_seconds());
    print(&text)?;
    Ok(ExitCode::from(code))
}

/// Asks the agent for a run; without one, a passive probe is run here.
async fn probe(config: &Config, wanted: &Wanted, json: bool) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config.web.socket, RUN);
    let asked = if json { run_as_json(&client, wanted).await } else { run_as_text(&client, wanted).await };
    match asked {
        Ok((status, text)) => {
            print(text.trim_end())?;
            Ok(if status.is_success() { ExitCode::SUCCESS } else { ExitCode::from(UNKNOWN) })
        }
        Err(error) if error.away() && wanted.peer.is_none() => {
            eprintln!("fabricpulse: {error}; running it here");
            offline::main(config, &wanted.test, wanted.target.as_deref(), json).await
        }
        Err(error) => Err(error.into()),
    }
}

type Answer = Result<(StatusCode, String), ClientError>;

async fn run_as_text(client: &Client, wanted: &Wanted) -> Answer {
    let given = [("target", &wanted.target), ("peer", &wanted.peer)];
    let given = given.map(|(key, value)| {
        value.as_ref().map_or(String::new(), |value| format!("&{key}={}", encode(value)))
    });
    client.get(&format!("/probe?test={}&debug=true{}", encode(&wanted.test), given.concat())).await
}

/// Starts the run and asks for it until it has ended.
async fn run_as_json(client: &Client, wanted: &Wanted) -> Answer {
    let (status, text) = client.post("/api/v1/runs", wanted).await?;
    let started: Option<Started> = serde_json::from_str(&text).ok();
    let Some(started) = started.filter(|_| status == StatusCode::ACCEPTED) else { return Ok((status, text)) };
    loop {
        let (status, text) = client.get(&started.location).await?;
        let waiting = serde_json::from_str::<State>(&text).is_ok_and(|answer| answer.state == "waiting");
        if !waiting {
            return Ok((status, text));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// What is asked for, as the agent reads it.
#[derive(Debug, Serialize)]
struct Wanted {
    test: String,
    target: Option<String>,
    peer: Option<String>,
}

#[derive(Deserialize)]
struct Started {
    location: String,
}

#[derive(Deserialize)]
struct State {
    state: String,
}

async fn post(client: &Client, path: &str, body: &serde_json::Value) -> anyhow::Result<ExitCode> {
    let (status, text) = client.post(path, body).await?;
    print(text.trim_end())?;
    Ok(if status.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints for people and pipes; a closed pipe is no error.
///
/// # Errors
///
/// When it can't be written: a full disk.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// The same for commands that do nothing else.
pub(super) fn printed(text: &str) -> ExitCode {
    match print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fabricpulse: {error:#}");
            ExitCode::FAILURE
        }
    }
}
