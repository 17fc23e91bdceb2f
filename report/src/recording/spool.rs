//! Spools a recording from a pipe into an unnamed temporary file, so that its blocks can be read in any order
//! without being held in memory.

use super::RecordingError;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;

/// Reads all of `input` into a private file, whose name is already removed when this returns.
pub(super) fn spool(mut input: impl Read) -> Result<File, RecordingError> {
    let folder = std::env::temp_dir();
    let mut attempt = 0;
    let (path, mut file) = loop {
        let name = format!("uniprof-{}-{attempt}.spool", std::process::id());
        let path = folder.join(name);
        let mut options = OpenOptions::new();
        match options
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
        {
            Ok(file) => break (path, file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 1000 => {
                attempt += 1;
            }
            Err(source) => return Err(RecordingError::Spool { source }),
        }
    };
    // The open file keeps the bytes. A named file would remain after a crash.
    std::fs::remove_file(&path)
        .and_then(|()| io::copy(&mut input, &mut file))
        .and_then(|_| file.flush())
        .map_err(|source| RecordingError::Spool { source })?;
    Ok(file)
}
