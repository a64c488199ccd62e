//! The members: every node that this one may measure with, by name.
//!
//! They come from the configuration and from Prometheus's `file_sd` files. A list that has a
//! mistake is refused as a whole: a part of it would give other pairs than the other agents have.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Deserialize;
use tokio_rustls::rustls::pki_types::DnsName;

use super::hash;

/// The largest `file_sd` file that is read: 100,000 members with many labels need less.
pub(crate) const LARGEST_FILE: u64 = 16 << 20;
/// Ten times the largest fleet that this is made for. More is a mistake of whoever wrote the file.
const MOST: usize = 100_000;

/// A node to measure with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// What its certificate must say.
    pub(crate) name: Arc<str>,
    /// Where it is: a DNS name or an IP address, without a port.
    pub(crate) host: Box<str>,
    /// The hash of the name.
    pub(crate) hash: u64,
}

/// All members, sorted by name, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Membership {
    members: Box<[Arc<Member>]>,
    digest: u64,
}

/// Collects members from several lists.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    members: Vec<(Arc<Member>, Place)>,
}

/// Where an entry was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    list: Arc<str>,
    index: usize,
}

/// What is wrong with a list of members.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MembershipError {
    #[error("{}: more than {LARGEST_FILE} bytes", file.display())]
    Size { file: PathBuf },
    #[error("{}: not a file_sd list of targets and labels, at {at}", file.display())]
    Shape { file: PathBuf, at: String, source: serde_json::Error },
    #[error(
        "{place}: {name:?} is no name that a certificate can have: letters, digits, dots, - and _, and not only digits at the end"
    )]
    Name { place: Place, name: String },
    #[error(
        "{place}: {host} is an address and the node has no name: add the label node with the name in its certificate"
    )]
    Nameless { place: Place, host: String },
    #[error("{place}: {host:?} is no host name and no IP address; write it without a port")]
    Host { place: Place, host: String },
    #[error("{place}: {name} is at {host} here and at {other} in {other_place}; take one of them out")]
    Twice { place: Place, name: Arc<str>, host: Box<str>, other: Box<str>, other_place: Place },
    #[error("{0} members, at most {MOST}")]
    Many(usize),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} [{}]", self.list, self.index)
    }
}

/// A group of targets in a `file_sd` file.
#[derive(Deserialize)]
struct Group {
    targets: Vec<String>,
    #[serde(default)]
    labels: Labels,
}

/// The labels of a group; others than `node` are for Prometheus.
#[derive(Default, Deserialize)]
struct Labels {
    node: Option<String>,
}

impl Membership {
    /// The member of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Member>> {
        self.index(name).map(|index| &self.members[index])
    }

    /// All members, by name.
    pub(crate) fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    /// The same number wherever the same names are listed. Hosts do not count: agents may know
    /// a node by different addresses.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) fn index(&self, name: &str) -> Option<usize> {
        self.members.binary_search_by(|member| (*member.name).cmp(name)).ok()
    }
}

impl Builder {
    /// Adds the entries of the configuration: `node-b` or `node-b=10.0.0.2`. `key` is their key.
    pub(crate) fn entries(&mut self, key: &str, entries: &[String]) -> Result<(), MembershipError> {
        let list: Arc<str> = key.into();
        for (index, entry) in entries.iter().enumerate() {
            let (name, host) = entry.split_once('=').unwrap_or((entry, entry));
            self.add(name.trim(), host.trim(), Place { list: list.clone(), index })?;
        }
        Ok(())
    }

    /// Adds what a `file_sd` file says: a JSON list of `{"targets": [...], "labels": {...}}`.
    pub(crate) fn file_sd(&mut self, file: &Path, text: &str) -> Result<(), MembershipError> {
        if text.len() as u64 > LARGEST_FILE {
            return Err(MembershipError::Size { file: file.to_path_buf() });
        }
        let mut json = serde_json::Deserializer::from_str(text);
        let shape = |at: String, source| MembershipError::Shape { file: file.to_path_buf(), at, source };
        let groups: Vec<Group> = serde_path_to_error::deserialize(&mut json)
            .map_err(|error| shape(error.path().to_string(), error.into_inner()))?;
        json.end().map_err(|source| shape("the end".to_string(), source))?;
        let list: Arc<str> = file.display().to_string().into();
        for (index, group) in groups.iter().enumerate() {
            for target in &group.targets {
                let (host, place) = (without_port(target), Place { list: list.clone(), index });
                match &group.labels.node {
                    Some(name) => self.add(name, host, place)?,
                    None if address(host).is_some() => {
                        return Err(MembershipError::Nameless { place, host: host.to_string() });
                    }
                    None => self.add(host, host, place)?,
                }
            }
        }
        Ok(())
    }

    /// The members, if no two of them have one name and different hosts.
    pub(crate) fn build(mut self) -> Result<Membership, MembershipError> {
        self.members.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        for pair in self.members.windows(2) {
            let [(one, one_place), (other, place)] = pair else { continue };
            if one.name == other.name && one.host != other.host {
                return Err(MembershipError::Twice {
                    place: place.clone(),
                    name: other.name.clone(),
                    host: other.host.clone(),
                    other: one.host.clone(),
                    other_place: one_place.clone(),
                });
            }
        }
        self.members.dedup_by(|(one, _), (other, _)| one.name == other.name);
        let members: Box<[Arc<Member>]> = self.members.into_iter().map(|(member, _)| member).collect();
        if members.len() > MOST {
            return Err(MembershipError::Many(members.len()));
        }
        let digest = members.iter().fold(0, |digest, member| hash::join(digest, member.hash));
        Ok(Membership { members, digest })
    }

    fn add(&mut self, name: &str, host: &str, place: Place) -> Result<(), MembershipError> {
        // Names are found in certificates by rustls, so what it can't look for is no name.
        if DnsName::try_from(name).is_err() {
            return Err(MembershipError::Name { place, name: name.to_string() });
        }
        let host: Box<str> = match address(host) {
            Some(address) => address.to_string().into(),
            None if DnsName::try_from(host).is_ok() => host.into(),
            None => return Err(MembershipError::Host { place, host: host.to_string() }),
        };
        self.members.push((Arc::new(Member { name: name.into(), host, hash: hash::name(name) }), place));
        Ok(())
    }
}

/// The IP address that this is, with or without the brackets of IPv6.
fn address(host: &str) -> Option<IpAddr> {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host).parse().ok()
}

/// The host of a target: `node-b:9100`, `10.0.0.2:10950`, `[fd00::2]:10950` or without a port.
fn without_port(target: &str) -> &str {
    if address(target).is_some() {
        return target;
    }
    match target.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        Some(_) | None => target,
    }
}

#[cfg(test)]
mod tests;
