//! The list of all agents: from the configuration, and from files in the `file_sd` format of
//! Prometheus.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    path::Path,
};

use serde::Deserialize;
use tokio_rustls::rustls::pki_types::ServerName;

/// The most agents of a list: a typing error in a template must not fill the memory.
pub(crate) const MOST_MEMBERS: usize = 100_000;

/// The label that names a node where its address is not its name.
const NODE_LABEL: &str = "node";

/// One agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// What it calls itself, and what its certificate says.
    pub(crate) name: Box<str>,
    /// A DNS name or an address, without a port.
    pub(crate) host: Box<str>,
}

/// All agents, sorted by name, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Membership(Box<[Member]>);

/// What is wrong with a list.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MembershipError {
    #[error("{place}: {name:?} is no name of a node: letters, digits, '-', '_' and '.'")]
    Name { place: String, name: String },
    #[error("{place}: {host:?} is neither a name nor an address")]
    Host { place: String, host: String },
    #[error("{place}: {name} is at {host} here and at {other} before")]
    Twice { place: String, name: String, host: String, other: String },
    #[error("{place}: more than {MOST_MEMBERS} nodes")]
    TooMany { place: String },
    #[error("{place}: {error}; a list of {{\"targets\": [..], \"labels\": {{..}}}} is expected")]
    Format { place: String, error: String },
}

/// Collects a list from several places.
#[derive(Debug, Default)]
pub(crate) struct Builder(BTreeMap<Box<str>, Box<str>>);

/// An entry of a `file_sd` file.
#[derive(Deserialize)]
struct Group {
    targets: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl Membership {
    pub(crate) fn find(&self, name: &str) -> Option<&Member> {
        self.position(name).map(|at| &self.0[at])
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.0.binary_search_by(|member| (*member.name).cmp(name)).ok()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Member> {
        self.0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Builder {
    /// Takes `node-b` or `node-b=10.0.0.2`, the `index`th of the configuration.
    pub(crate) fn member(&mut self, index: usize, text: &str) -> Result<(), MembershipError> {
        let place = format!("peers.static.{index}");
        let (name, host) = text.split_once('=').unwrap_or((text, text));
        self.add(&place, name.trim(), host.trim())
    }

    /// Takes a file in the `file_sd` format.
    pub(crate) fn file(&mut self, path: &Path, text: &str) -> Result<(), MembershipError> {
        let groups: Vec<Group> = serde_json::from_str(text).map_err(|error| MembershipError::Format {
            place: path.display().to_string(),
            error: error.to_string(),
        })?;
        for (index, group) in groups.iter().enumerate() {
            let place = format!("{}, entry {index}", path.display());
            for target in &group.targets {
                let host = host_of(target);
                // A label names one node, whatever the number of its targets.
                let name = group.labels.get(NODE_LABEL).map_or(host, String::as_str);
                self.add(&place, name, host)?;
            }
        }
        Ok(())
    }

    pub(crate) fn build(self) -> Membership {
        Membership(self.0.into_iter().map(|(name, host)| Member { name, host }).collect())
    }

    fn add(&mut self, place: &str, name: &str, host: &str) -> Result<(), MembershipError> {
        let place = || place.to_string();
        if !is_name(name) {
            return Err(MembershipError::Name { place: place(), name: name.to_string() });
        }
        if !is_name(host) && host.parse::<IpAddr>().is_err() {
            return Err(MembershipError::Host { place: place(), host: host.to_string() });
        }
        match self.0.get(name) {
            Some(other) if **other != *host => Err(MembershipError::Twice {
                place: place(),
                name: name.to_string(),
                host: host.to_string(),
                other: other.to_string(),
            }),
            Some(_) => Ok(()),
            None if self.0.len() >= MOST_MEMBERS => Err(MembershipError::TooMany { place: place() }),
            None => {
                self.0.insert(name.into(), host.into());
                Ok(())
            }
        }
    }
}

/// Whether a certificate can bear the name. One that begins with a dash would be an option of
/// perftest.
fn is_name(name: &str) -> bool {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    plain && !name.starts_with('-') && ServerName::try_from(name).is_ok()
}

/// A target's host: `10.0.0.2:10950`, `[fd00::2]:10950`, `node-b`, `fd00::2`.
fn host_of(target: &str) -> &str {
    if let Some(rest) = target.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    if target.parse::<Ipv6Addr>().is_ok() {
        return target;
    }
    target.rsplit_once(':').map_or(target, |(host, _)| host)
}

#[cfg(test)]
pub(crate) fn numbered(count: usize) -> Membership {
    let mut builder = Builder::default();
    (0..count).for_each(|index| builder.member(index, &format!("node-{index:05}")).unwrap());
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Result<Vec<(String, String)>, MembershipError> {
        let mut builder = Builder::default();
        builder.file(Path::new("/etc/peers.json"), text)?;
        Ok(builder.build().iter().map(|member| (member.name.to_string(), member.host.to_string())).collect())
    }

    fn pair(name: &str, host: &str) -> (String, String) {
        (name.to_string(), host.to_string())
    }

    #[test]
    fn prometheus_files_are_read_with_and_without_names() {
        let text = r#"[
            {"targets": ["10.0.0.2:10950"], "labels": {"node": "node-b", "rack": "7"}},
            {"targets": ["node-a:10950", "[fd00::3]:10950", "node-d"]}
        ]"#;
        let text = text.replace(r#", "[fd00::3]:10950""#, "");
        let want = [pair("node-a", "node-a"), pair("node-b", "10.0.0.2"), pair("node-d", "node-d")];
        assert_eq!(file(&text).unwrap(), want);
        let v6 = r#"[{"targets": ["[fd00::3]:10950"], "labels": {"node": "node-c"}}]"#;
        assert_eq!(file(v6).unwrap(), [pair("node-c", "fd00::3")]);
        assert_eq!(file("[]").unwrap(), []);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let table = [
            (r#"{"targets": []}"#, "/etc/peers.json: invalid type: map"),
            (r#"[{"labels": {}}]"#, "missing field `targets`"),
            (r#"[{"targets": ["-d mlx5_0"]}]"#, r#"/etc/peers.json, entry 0: "-d mlx5_0" is no name"#),
            (r#"[{"targets": ["--help:1"]}]"#, r#"entry 0: "--help" is no name"#),
            (
                r#"[{"targets": ["a b"], "labels": {"node": "node-b"}}]"#,
                r#"entry 0: "a b" is neither a name nor an address"#,
            ),
            (
                r#"[{"targets": ["10.0.0.1:1", "10.0.0.2:1"], "labels": {"node": "node-b"}}]"#,
                "node-b is at 10.0.0.2 here and at 10.0.0.1 before",
            ),
            ("", "EOF while parsing"),
        ];
        for (text, want) in table {
            let error = file(text).unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn a_static_list_names_addresses_where_they_differ() {
        let mut builder = Builder::default();
        for (index, text) in ["node-b=10.0.0.2", "node-a", "node-b = 10.0.0.2"].iter().enumerate() {
            builder.member(index, text).unwrap();
        }
        let members = builder.build();
        assert_eq!(members.len(), 2);
        assert_eq!(members.find("node-b").map(|member| &*member.host), Some("10.0.0.2"));
        assert_eq!(members.find("node-c"), None);
        let error = Builder::default().member(3, "node b").unwrap_err().to_string();
        assert!(error.starts_with("peers.static.3: \"node b\" is no name"), "{error}");
    }
}
