//! Lays the layers of the configuration over each other, and tells all mistakes at once.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use config::{Environment, File, FileFormat, Source};

use super::{Config, LogFormat, check, raw::Raw};

/// The lowest layer, which is also the documentation of every key.
pub(crate) const DEFAULT_TOML: &str = include_str!("default.toml");

/// The file that is read if none is named.
const USUAL_FILE: &str = "/etc/fabricpulse/config.toml";

/// The prefix of variables that set a key.
const VARIABLES: &str = "FABRICPULSE";

/// Keys that a variable sets as a list, separated by commas.
const LISTS: [&str; 9] = [
    "web.listen_address",
    "inventory.nic_drivers",
    "peers.static",
    "peers.file_sd",
    "peers.listen_address",
    "rdma.rails",
    "rdma.gid_networks",
    "probe.node.ignore",
    "probe.nic.unused",
];

/// What the command line says; the highest layer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) file: Option<PathBuf>,
    pub(crate) listen: Vec<String>,
    pub(crate) web_config: Option<PathBuf>,
    pub(crate) log_level: Option<String>,
    pub(crate) log_format: Option<LogFormat>,
    pub(crate) active: bool,
}

/// Everything that is wrong with the configuration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConfigError(pub(crate) Vec<String>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is wrong")?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl std::error::Error for ConfigError {}

/// Reads every layer and checks the result.
pub(crate) fn load(overrides: &Overrides) -> Result<Config, ConfigError> {
    let one = |problem: String| ConfigError(vec![problem]);
    let files = files(overrides.file.as_deref()).map_err(one)?;
    let mut builder = config::Config::builder().add_source(File::from_str(DEFAULT_TOML, FileFormat::Toml));
    for file in &files {
        builder = builder.add_source(file_source(file));
    }
    builder = builder.add_source(variables());
    builder = flags(builder, overrides).map_err(|error| one(format!("the command line: {error}")))?;
    let merged = builder.build().map_err(|error| one(error.to_string()))?;

    let mut unknown = Vec::new();
    let mut note = |path: serde_ignored::Path<'_>| unknown.push(path.to_string());
    let raw: Raw = serde_path_to_error::deserialize(serde_ignored::Deserializer::new(merged, &mut note))
        .map_err(|error| one(format!("{}: {}", error.path(), error.inner())))?;
    let mut problems: Vec<String> =
        unknown.iter().map(|key| format!("{key}: unknown key{}", origin(key, &files))).collect();
    let config = check::check(raw, &mut problems);
    if problems.is_empty() { Ok(config) } else { Err(ConfigError(problems)) }
}

/// The built-in configuration, whatever the operator wants.
pub(crate) fn built_in() -> Config {
    let text = config::Config::builder().add_source(File::from_str(DEFAULT_TOML, FileFormat::Toml));
    let raw: Raw = text.build().unwrap().try_deserialize().unwrap();
    let mut problems = Vec::new();
    let config = check::check(raw, &mut problems);
    assert!(problems.is_empty(), "{problems:?}");
    config
}

/// The named file, or the usual one if it exists, and the pieces of `conf.d` beside it.
fn files(named: Option<&Path>) -> Result<Vec<PathBuf>, String> {
    let main = named.unwrap_or(Path::new(USUAL_FILE));
    let mut files = Vec::new();
    if named.is_some() || main.exists() {
        files.push(main.to_path_buf());
    }
    let pieces = main.with_file_name("conf.d");
    if pieces.is_dir() {
        let entries = std::fs::read_dir(&pieces).map_err(|error| format!("{}: {error}", pieces.display()))?;
        let mut found: Vec<PathBuf> = entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
            .collect();
        found.sort();
        files.extend(found);
    }
    match files.iter().find_map(|file| std::fs::read_to_string(file).err().map(|error| (file, error))) {
        Some((file, error)) => Err(format!("{}: {error}", file.display())),
        None => Ok(files),
    }
}

fn file_source(file: &Path) -> File<config::FileSourceFile, FileFormat> {
    File::new(&file.to_string_lossy(), FileFormat::Toml)
}

fn variables() -> Environment {
    let mut variables = Environment::with_prefix(VARIABLES)
        .prefix_separator("__")
        .separator("__")
        .list_separator(",")
        .try_parsing(true);
    for list in LISTS {
        variables = variables.with_list_parse_key(list);
    }
    variables
}

type Builder = config::ConfigBuilder<config::builder::DefaultState>;

fn flags(mut builder: Builder, overrides: &Overrides) -> Result<Builder, config::ConfigError> {
    if overrides.active {
        builder = builder.set_override("active", true)?;
    }
    if !overrides.listen.is_empty() {
        builder = builder.set_override("web.listen_address", overrides.listen.clone())?;
    }
    if let Some(file) = &overrides.web_config {
        builder = builder.set_override("web.config_file", file.to_string_lossy().into_owned())?;
    }
    if let Some(level) = &overrides.log_level {
        builder = builder.set_override("log.level", level.clone())?;
    }
    if let Some(format) = overrides.log_format {
        let word = match format {
            LogFormat::Logfmt => "logfmt",
            LogFormat::Json => "json",
        };
        builder = builder.set_override("log.format", word)?;
    }
    Ok(builder)
}

/// Which layer brought a key in, for the error message.
fn origin(key: &str, files: &[PathBuf]) -> String {
    // serde_ignored writes `probe.exec.check.0.nam`; the layers know the table's first keys.
    let has = |source: &dyn Source| {
        let mut at = source.collect().ok().map(|map| config::Value::new(None, config::ValueKind::Table(map)));
        for part in key.split('.') {
            at = at.and_then(|value| match part.parse::<usize>() {
                Ok(index) => value.into_array().ok()?.into_iter().nth(index),
                Err(_) => value.into_table().ok()?.remove(part),
            });
        }
        at.is_some()
    };
    // Variables are collected under their whole keys.
    if variables().collect().is_ok_and(|variables| variables.contains_key(key)) {
        return format!(" in the variable {VARIABLES}__{}", key.to_uppercase().replace('.', "__"));
    }
    match files.iter().rev().find(|file| has(&file_source(file))) {
        Some(file) => format!(" in {}", file.display()),
        None => String::new(),
    }
}
