//! Writes results to a file, which appears only when it is complete, or to standard output.

use crate::new_file::{self, NewFile};
use anyhow::{Context, bail};
use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use uniprof_report::work;

/// Runs `write` on the output at `path`, or on standard output for `-`.
///
/// A file is written under another name in the same folder, and renamed when it is complete. A full disk thus leaves
/// the old file in place.
pub fn write_to<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> anyhow::Result<T> {
    write_with_mode(path, 0o666, write)
}

/// As [`write_to`], for recordings and what has a guest's memory: only the owner may read a new file.
pub fn write_private<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> anyhow::Result<T> {
    write_with_mode(path, 0o600, write)
}

/// Device and inode of each input file.
static READ: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());
/// The files that are being written.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Makes sure that no output replaces the file at `path`, since it is an input.
pub fn keep(path: &Path) {
    if let Ok(found) = fs::metadata(path)
        && found.is_file()
    {
        lock(&READ).push((found.dev(), found.ino()));
    }
}

fn is_read(found: &fs::Metadata) -> bool {
    lock(&READ).contains(&(found.dev(), found.ino()))
}

/// Removes the unfinished files when the program ends early.
pub fn abandon() {
    // Don't wait: the holder of the lock may be waiting for us.
    if let Ok(mut unfinished) = UNFINISHED.try_lock() {
        for part in unfinished.drain(..) {
            let _ = fs::remove_file(part);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_with_mode<T>(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> anyhow::Result<T> {
    if path == Path::new("-") {
        return write_to_stdout(write);
    }
    let describe = || format!("cannot write {}", path.display());
    let found = fs::metadata(path).ok();
    if found.as_ref().is_some_and(is_read) {
        bail!("{}: it is read to make this; name another file", describe());
    }
    if let Some(file) = new_file::special(path)? {
        return write_counted(BufWriter::new(file), write).with_context(describe);
    }
    let new = NewFile::beside(path, mode).with_context(describe)?;
    lock(&UNFINISHED).push(new.part().to_path_buf());
    let written = write_counted(BufWriter::new(&new.file), write);
    let done = written.and_then(|value| new.put(path).map(|()| value));
    lock(&UNFINISHED).clear();
    done.with_context(describe)
}

/// Runs `write` on `out`, whose bytes are counted.
fn write_counted<T>(
    out: BufWriter<impl Write>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> io::Result<T> {
    let mut out = CountingWriter(out);
    let value = write(&mut out)?;
    out.flush()?;
    Ok(value)
}

/// Files that appear when all of them are complete, in the order in which they were created.
#[derive(Default)]
pub struct NewFiles(Vec<(NewFile, PathBuf)>);

impl NewFiles {
    /// Creates a file that will be at `path`, and the folders above it.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn create(&mut self, path: &Path) -> io::Result<Box<dyn Write + Send>> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let new = NewFile::beside(path, 0o666)?;
        lock(&UNFINISHED).push(new.part().to_path_buf());
        let file = new.file.try_clone()?;
        self.0.push((new, path.to_owned()));
        Ok(Box::new(CountingWriter(BufWriter::new(file))))
    }

    /// Moves all files to their paths.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn put(mut self) -> io::Result<()> {
        let mut files = self.0.drain(..);
        files.try_for_each(|(new, path)| new.put(&path))
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        lock(&UNFINISHED).clear();
    }
}

/// Counts output as work, since a few kilobytes of samples can expand to terabytes.
struct CountingWriter<W: Write>(W);

/// Output bytes per step of work.
const BYTES_PER_STEP: usize = 4;

impl<W: Write> Write for CountingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        work::take(bytes.len().div_ceil(BYTES_PER_STEP) as u64);
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Runs `write` on standard output, buffered.
pub fn write_to_stdout<T>(
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> anyhow::Result<T> {
    let out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    write_counted(out, write).context("cannot write to standard output")
}
