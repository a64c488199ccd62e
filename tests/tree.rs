//! Text archives of `/sys` and `/proc` trees: what a recorded machine looks like to a worker.
//!
//! Each entry begins with `=== PATH`, followed by the file's lines. Instead of lines an entry may
//! say what it is behind its path:
//!
//! ```text
//! === sys/class/net/eth0/speed
//! -1
//! === sys/class/net/eth0/device -> ../../../0000:c1:00.0
//! === sys/devices/pci0000:c0/0000:c1:00.0/config hex 4096
//! b3 15 21 10
//! === sys/class/infiniband/mlx5_0/ports/1/rate error
//! === sys/class/infiniband/mlx5_1/ports/1/rate blocks
//! === sys/kernel/empty/
//! ```
//!
//! `hex N` is binary, filled with zeros up to N bytes. `error` is a file that can't be read (a
//! folder stands in for EIO) and `blocks` one whose read never returns (a FIFO). Lines before the
//! first entry are remarks.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Writes the archive `text` below `root`.
///
/// # Panics
///
/// When the archive is not well formed: a test can't go on without it.
pub(crate) fn unpack(text: &str, root: &Path) {
    let mut entries: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("=== ") {
            entries.push((head, Vec::new()));
        } else if let Some((_, lines)) = entries.last_mut() {
            lines.push(line);
        }
    }
    for (head, lines) in entries {
        write_entry(head, &lines, root).unwrap_or_else(|error| panic!("entry {head:?}: {error}"));
    }
}

fn write_entry(head: &str, lines: &[&str], root: &Path) -> std::io::Result<()> {
    let place = |path: &str| -> std::io::Result<PathBuf> {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        Ok(path)
    };
    if let Some((path, target)) = head.split_once(" -> ") {
        return symlink(target, place(path)?);
    }
    if let Some((path, size)) = head.split_once(" hex ") {
        let mut bytes: Vec<u8> = lines
            .iter()
            .flat_map(|line| line.split_whitespace())
            .map(|byte| u8::from_str_radix(byte, 16).expect("two hexadecimal digits"))
            .collect();
        bytes.resize(size.parse().expect("a size in bytes"), 0);
        return fs::write(place(path)?, bytes);
    }
    if let Some(path) = head.strip_suffix(" error") {
        return fs::create_dir_all(root.join(path));
    }
    if let Some(path) = head.strip_suffix(" blocks") {
        return Ok(mknodat(CWD, place(path)?, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?);
    }
    if let Some(path) = head.strip_suffix('/') {
        return fs::create_dir_all(root.join(path));
    }
    let mut content = lines.join("\n");
    if !content.is_empty() {
        content.push('\n');
    }
    fs::write(place(head)?, content)
}
