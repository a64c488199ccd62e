//! The web configuration file of Prometheus's exporters: TLS, client certificates and basic
//! authentication in one YAML file, in the format of exporter-toolkit.
//!
//! The same file serves every exporter of a node, so what `promtool check web-config` accepts is
//! accepted here too, but for what would only pretend to protect: certificates that nobody
//! verifies, and TLS below 1.2. The file is read again when it or a file that it names changes; a
//! broken one is logged, and the one before stays in force.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant, SystemTime},
};

use config::Format as _;
use hyper::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use tokio_rustls::rustls::ServerConfig;
use tracing::{error, info};

use crate::tls;

/// How long a look at the files' times is believed: a burst of requests looks once.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The response headers that the file may set, and the values that they may have; none is any.
const HEADERS: [(&str, Option<&[&str]>); 5] = [
    ("Content-Security-Policy", None),
    ("Strict-Transport-Security", None),
    ("X-Content-Type-Options", Some(&["nosniff"])),
    ("X-Frame-Options", Some(&["deny", "sameorigin"])),
    ("X-XSS-Protection", None),
];

/// What is wrong with the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebConfigError {
    #[error("{}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: {what}", path.display())]
    Syntax { path: PathBuf, what: String },
    #[error("{}: {key}: {what}", path.display())]
    Value { path: PathBuf, key: String, what: String },
}

/// A checked file.
#[derive(Debug, Default)]
pub(crate) struct WebConfig {
    /// None is plain HTTP.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// bcrypt hashes by user name. With none, nobody is asked for a password.
    pub(crate) users: BTreeMap<String, String>,
    /// Set on every response.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// The file and every file that it names.
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    tls_server_config: Option<RawTls>,
    http_server_config: Option<RawHttp>,
    basic_auth_users: Option<BTreeMap<String, Option<String>>>,
}

/// The section `tls_server_config`, as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTls {
    pub(crate) cert_file: Option<PathBuf>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) client_auth_type: Option<String>,
    pub(crate) client_ca_file: Option<PathBuf>,
    pub(crate) client_allowed_sans: Option<Vec<String>>,
    pub(crate) cipher_suites: Option<Vec<String>>,
    pub(crate) curve_preferences: Option<Vec<String>>,
    pub(crate) min_version: Option<String>,
    pub(crate) max_version: Option<String>,
    /// Without effect: the order of the suites is ours, and all of them are good.
    #[serde(rename = "prefer_server_cipher_suites")]
    pub(crate) _prefer_server_cipher_suites: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHttp {
    /// Without effect: a scrape and a page of one request gain nothing from HTTP/2.
    #[serde(rename = "http2")]
    _http2: Option<bool>,
    headers: Option<BTreeMap<String, Option<String>>>,
}

impl WebConfig {
    /// Reads and checks a file and the files that it names.
    pub(crate) fn load(path: &Path) -> Result<WebConfig, WebConfigError> {
        let text = fs::read_to_string(path)
            .map_err(|source| WebConfigError::Read { path: path.to_path_buf(), source })?;
        let value = |key: &str, what: String| WebConfigError::Value {
            path: path.to_path_buf(),
            key: key.to_string(),
            what,
        };
        let raw = parse(path, &text)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let mut files = vec![path.to_path_buf()];
        let mut tls = None;
        if let Some(section) = &raw.tls_server_config {
            let built = tls::server(section, directory)
                .map_err(|wrong| value(&format!("tls_server_config.{}", wrong.key), wrong.what))?;
            if let Some(built) = built {
                files.extend(built.files);
                tls = Some(built.server);
            }
        }
        let mut users = BTreeMap::new();
        for (name, hash) in raw.basic_auth_users.unwrap_or_default() {
            let hash = hash.unwrap_or_default();
            hash.parse::<bcrypt::HashParts>().map_err(|error| {
                let what = format!("not a bcrypt hash, as `htpasswd -nB {name}` prints it: {error}");
                value(&format!("basic_auth_users.{name}"), what)
            })?;
            users.insert(name, hash);
        }
        let headers = raw.http_server_config.and_then(|section| section.headers).unwrap_or_default();
        let headers = headers
            .into_iter()
            .map(|(name, text)| {
                let text = text.unwrap_or_default();
                header(&name, &text)
                    .map_err(|what| value(&format!("http_server_config.headers.{name}"), what))
            })
            .collect::<Result<_, _>>()?;
        Ok(WebConfig { tls, users, headers, files })
    }
}

fn parse(path: &Path, text: &str) -> Result<Raw, WebConfigError> {
    let syntax = |what: String| WebConfigError::Syntax { path: path.to_path_buf(), what };
    // A file with nothing in it is a map with nothing in it, as it is to the toolkit.
    let blank = text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    if blank {
        return Ok(Raw::default());
    }
    let table = config::FileFormat::Yaml.parse(None, text).map_err(|error| syntax(error.to_string()))?;
    let value = config::Value::new(None, config::ValueKind::Table(table));
    serde_path_to_error::deserialize(value).map_err(|error| {
        let key = error.path().to_string();
        let what = error.into_inner().to_string();
        match key.as_str() {
            "." => syntax(what),
            _ => WebConfigError::Value { path: path.to_path_buf(), key, what },
        }
    })
}

fn header(name: &str, text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let known = || HEADERS.map(|(name, _)| name).join(", ");
    let Some((_, values)) = HEADERS.iter().find(|(known, _)| *known == name) else {
        return Err(format!("this header can't be set; those that can are {}", known()));
    };
    if let Some(values) = values
        && !values.contains(&text)
    {
        return Err(format!("{text:?} is none of {}", values.join(", ")));
    }
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
    let text = HeaderValue::from_str(text).map_err(|_| format!("{text:?} can't stand in a header"))?;
    Ok((name, text))
}

/// The file in force, read again when it changes.
#[derive(Debug)]
pub(crate) struct WebConfigFile {
    path: PathBuf,
    current: RwLock<Arc<WebConfig>>,
    /// Held while the files are read, so that one request reads them and the others go on with what
    /// is in force.
    seen: tokio::sync::Mutex<Seen>,
}

/// What the last look at the files found.
#[derive(Debug)]
struct Seen {
    at: Instant,
    /// Of the files in force, from before they were read.
    stamp: Stamp,
    /// What was wrong with them, so that it is logged once.
    wrong: Option<String>,
}

/// The times and sizes of the files; equal while nothing changed.
type Stamp = Vec<Option<(SystemTime, u64)>>;

impl WebConfigFile {
    /// Reads the file for the first time, when a mistake is still the caller's to handle.
    pub(crate) fn open(path: &Path) -> Result<WebConfigFile, WebConfigError> {
        let (config, stamp) = read(path)?;
        Ok(WebConfigFile {
            path: path.to_path_buf(),
            current: RwLock::new(Arc::new(config)),
            seen: tokio::sync::Mutex::new(Seen { at: Instant::now(), stamp, wrong: None }),
        })
    }

    /// What is in force now.
    pub(crate) async fn current(&self) -> Arc<WebConfig> {
        if let Ok(mut seen) = self.seen.try_lock()
            && seen.at.elapsed() >= LOOK_AGAIN
        {
            self.look(&mut seen).await;
        }
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files if they changed. Broken ones are read at every look: what they lack may be
    /// in a file that is not known yet.
    async fn look(&self, seen: &mut Seen) {
        let (path, before, broken) = (self.path.clone(), seen.stamp.clone(), seen.wrong.is_some());
        let files = self.current.read().unwrap_or_else(PoisonError::into_inner).files.clone();
        let done =
            tokio::task::spawn_blocking(move || (broken || stamp(&files) != before).then(|| read(&path)));
        seen.at = Instant::now();
        let wrong = match done.await {
            Ok(None) => return,
            Ok(Some(Ok((config, stamp)))) => {
                seen.stamp = stamp;
                seen.wrong = None;
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                info!(path = %self.path.display(), "web configuration read again");
                return;
            }
            Ok(Some(Err(wrong))) => format!("{:#}", anyhow::Error::from(wrong)),
            Err(failed) => failed.to_string(),
        };
        if seen.wrong.as_ref() != Some(&wrong) {
            error!(error = wrong, "web configuration is broken, the one before stays");
            seen.wrong = Some(wrong);
        }
    }
}

/// Reads a file and what it names, and their stamp from before: what changes in between differs
/// from it at the next look. The first reading tells which files those are.
fn read(path: &Path) -> Result<(WebConfig, Stamp), WebConfigError> {
    let stamp = stamp(&WebConfig::load(path)?.files);
    Ok((WebConfig::load(path)?, stamp))
}

fn stamp(files: &[PathBuf]) -> Stamp {
    files
        .iter()
        .map(|file| {
            let metadata = fs::metadata(file).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        })
        .collect()
}

#[cfg(test)]
#[path = "web_config/tests.rs"]
mod tests;
