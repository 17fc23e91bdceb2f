//! Where results go: a file that appears only when it is whole, or standard output.

use anyhow::Context;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Runs `write` on the output at `path`, or on standard output for `-`.
///
/// A file is written under another name beside its place and renamed when it is whole, so that a
/// full disk leaves the old one.
pub fn write_to(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    write_with_mode(path, 0o666, write)
}

/// As [`write_to`], for what holds a guest's memory: only its owner may read a new file.
pub fn write_private(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    write_with_mode(path, 0o600, write)
}

fn write_with_mode(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return write_to_stdout(write);
    }
    let is_special = fs::metadata(path).is_ok_and(|found| !found.is_file());
    let describe = || format!("cannot write {}", path.display());
    if is_special {
        let mut file = BufWriter::new(
            fs::OpenOptions::new()
                .write(true)
                .open(path)
                .with_context(describe)?,
        );
        return write(&mut file)
            .and_then(|()| file.flush())
            .with_context(describe);
    }
    let part = part_path(path);
    // What an earlier run left goes; a link that someone has laid there is not followed.
    let _ = fs::remove_file(&part);
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let file = options.open(&part).with_context(describe)?;
    let mut file = BufWriter::new(file);
    let written = write(&mut file).and_then(|()| file.flush());
    drop(file);
    let done = written.and_then(|()| fs::rename(&part, path));
    if done.is_err() {
        // The error that brought us here is the one to tell.
        let _ = fs::remove_file(&part);
    }
    done.with_context(describe)
}

/// Runs `write` on standard output, buffered.
pub fn write_to_stdout(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    write(&mut out)
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

fn part_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}
