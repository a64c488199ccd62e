//! The files of the journal: the one that grows, and the older piece.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::mpsc::Receiver,
};

use super::{Header, OLDER, VERSION};

/// Writes lines, on a thread of its own: a disk that hangs must hold up nothing else.
#[derive(Debug)]
pub(super) struct Pieces {
    file: PathBuf,
    limit: u64,
    out: Option<(File, u64)>,
    /// The last line could not be written, and that has been told.
    failing: bool,
}

impl Pieces {
    pub(super) fn new(file: PathBuf, limit: u64) -> Pieces {
        Pieces { file, limit, out: None, failing: false }
    }

    /// Writes every line until there are no more.
    pub(super) fn serve(mut self, lines: &Receiver<Vec<u8>>) {
        while let Ok(line) = lines.recv() {
            match self.write(&line) {
                Ok(()) => self.failing = false,
                Err(error) => {
                    // Opened anew for the next line, which also closes off a torn one.
                    self.out = None;
                    if !std::mem::replace(&mut self.failing, true) {
                        tracing::warn!(file = %self.file.display(), %error, "the journal can't be written, so what happens now does not survive a restart");
                    }
                }
            }
        }
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let (mut out, mut size) = match self.out.take() {
            Some(open) => open,
            None => append_to(&self.file)?,
        };
        if size >= self.limit {
            fs::rename(&self.file, self.file.with_file_name(OLDER))?;
            (out, size) = append_to(&self.file)?;
        }
        // One write a line: a crash tears the last line at most.
        out.write_all(line)?;
        self.out = Some((out, size + line.len() as u64));
        Ok(())
    }
}

/// Opens the file for appending, with its header, and with a torn last line closed off.
fn append_to(file: &Path) -> io::Result<(File, u64)> {
    if let Some(folder) = file.parent() {
        // Command lines and logs are for those who may read them.
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut out = OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(file)?;
    let mut size = out.metadata()?.len();
    let mut fix = Vec::new();
    if size == 0 {
        serde_json::to_writer(&mut fix, &Header { fabricpulse_journal: VERSION })?;
        fix.push(b'\n');
    } else {
        let mut last = [0];
        out.seek(SeekFrom::End(-1))?;
        out.read_exact(&mut last)?;
        if last != *b"\n" {
            fix.push(b'\n');
        }
    }
    out.write_all(&fix)?;
    size += fix.len() as u64;
    Ok((out, size))
}
