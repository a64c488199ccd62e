//! Writes small files of state so that a crash leaves the old content or the new, never a piece.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

/// Puts `content` in the place of whatever the file holds.
pub(crate) fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let fresh = file.with_extension("new");
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    out.write_all(content)?;
    out.sync_all()?;
    fs::rename(&fresh, file)
}
