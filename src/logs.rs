//! Where log lines go and how they look.

use tracing_subscriber::{EnvFilter, fmt};

use crate::config::{Log, LogFormat};

/// Sends log lines to standard error, where systemd and container runtimes look.
pub(crate) fn start(log: &Log) {
    let filter = EnvFilter::try_new(&log.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    // A subscriber that is set already is one of a test.
    let _ = match log.format {
        LogFormat::Logfmt => lines.with_target(false).try_init(),
        LogFormat::Json => lines.json().with_target(false).flatten_event(true).try_init(),
    };
}
