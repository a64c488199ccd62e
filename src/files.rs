//! Writes small files of state so that a crash leaves the old content or the new, never a piece.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

/// Puts `content` in the place of whatever the file holds.
pub(crate) fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let fresh = file.with_extension("new");
    let mut out = File::create(&fresh)?;
    out.write_all(content)?;
    out.sync_all()?;
    fs::rename(&fresh, file)
}
