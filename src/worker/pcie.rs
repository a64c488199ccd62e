//! The worker `pcie`: config space, link, error counts and load of the functions that it is asked for.
//!
//! Beyond 64 bytes the kernel shows config space to privileged readers only. What this process may
//! not read it asks of `fabricpulse pcid`, once for all functions; without that, the text
//! attributes have to do, and the answer says why.

use std::collections::BTreeMap;

use probes::{
    config_space::{self, Capabilities, HEADER_BYTES, Unreadable},
    lines::Problem,
    pcie::{Config, Function},
};

use super::{Found, Request, each_target, pcid, problem};
use crate::sysfs::{Dir, ReadError, pci};

pub(crate) fn read(request: &Request) -> Found<Function> {
    let sysfs = request.roots.sysfs.clone();
    let (read, mut problems) =
        each_target(&request.pcie.functions, pci::is_address, move |name, progress| {
            function(&pci::devices(&sysfs, progress).dir(name)).map(Some)
        });
    let mut functions = Vec::new();
    for (function, found) in read {
        functions.push(function);
        problems.extend(found);
    }
    let hidden: Vec<String> = functions
        .iter()
        .filter(|function| matches!(function.config, Config::Hidden(_)))
        .map(|function| function.pci.clone())
        .collect();
    if !hidden.is_empty() {
        let answer = pcid::ask(&request.pcie.pcid, &hidden);
        for function in &mut functions {
            enrich(function, &answer);
        }
    }
    (functions, problems)
}

/// Puts the privileged reader's answer in place of what could not be read, or says why there is none.
fn enrich(function: &mut Function, answer: &Result<BTreeMap<String, Config>, pcid::AskError>) {
    let Config::Hidden(why) = &function.config else { return };
    function.config = match answer {
        Ok(configs) => match configs.get(&function.pci) {
            Some(config) => config.clone(),
            None => Config::Hidden(format!("{why}, and pcid did not answer for it")),
        },
        Err(error) => Config::Hidden(format!("{why}, and {}", chain(error))),
    };
}

fn chain(error: &pcid::AskError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn function(dir: &Dir) -> Result<(Function, Vec<Problem>), ReadError> {
    let config = config(dir)?;
    let pci = dir.name();
    let mut problems = Vec::new();
    let text_link = pci::link(dir).unwrap_or_else(|error| {
        problems.push(problem(&pci, &error));
        None
    });
    let (errors, odd) = pci::errors(dir);
    problems.extend(odd.iter().map(|error| problem(&pci, error)));
    let busy_percent = dir.number("gpu_busy_percent").unwrap_or_else(|error| {
        problems.push(problem(&pci, &error));
        None
    });
    Ok((Function { pci, config, text_link, errors, busy_percent }, problems))
}

/// Config space as far as this process may read it.
pub(super) fn config(dir: &Dir) -> Result<Config, ReadError> {
    let bytes = match dir.bytes("config") {
        Ok(Some(bytes)) => bytes,
        Ok(None) if dir.has("") => return Ok(Config::Hidden("the kernel shows no config space".into())),
        Ok(None) => {
            let source = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(ReadError::Io { path: dir.path().to_path_buf(), source });
        }
        Err(error) => return Ok(Config::Hidden(format!("{}: {}", error.path().display(), error.what()))),
    };
    if bytes.len() < HEADER_BYTES {
        // The kernel shows at least the header of every function that it can reach.
        let source = std::io::Error::other(format!("only {} bytes", bytes.len()));
        return Err(ReadError::Io { path: dir.path().join("config"), source });
    }
    Ok(match config_space::decode(&bytes) {
        Ok(space) if space.capabilities == Some(Capabilities::Hidden) => {
            Config::Hidden("only 64 bytes of config space are readable here".into())
        }
        Ok(space) => Config::Read(Box::new(space)),
        Err(Unreadable::AllOnes) => Config::AllOnes,
        Err(Unreadable::Empty) => Config::Hidden("config space is empty".into()),
    })
}

#[cfg(test)]
mod tests;
