//! A flight recorder's window at the moment when it is saved.
//!
//! Input: its files, open, so that they can be read when they are deleted. Output: one recording of all.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use uprof::cold::{End, Loss, LossReason, Metadata};
use uprof::{BlockType, Item, Joined, OpenError, StreamReader, Writer};

/// The name of the note that says why a window was saved.
pub const SAVED: &str = "saved";

/// A window.
#[derive(Debug)]
pub struct Capture {
    /// Why it is saved.
    pub reason: String,
    /// Facts about the recording.
    pub metadata: Metadata,
    /// When its oldest segment began.
    pub first_ns: u64,
    /// Its end record.
    pub end: End,
    /// The files of what is older than the window, and how many bytes of each belong to it.
    pub before: Vec<(File, u64)>,
    /// The segments, the oldest first.
    pub segments: Vec<(File, u64)>,
    /// Who waits for the result.
    pub replies: Vec<UnixStream>,
    /// Counts the windows that have not been written.
    pub(super) _unwritten: Arc<()>,
}

/// What a saved window holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    /// Bytes of the file.
    pub bytes: u64,
    /// Samples and waits.
    pub samples: u64,
    /// Length of the window.
    pub length_ns: u64,
}

type Part = io::Take<BufReader<File>>;

/// Reads the first bytes of a file; `None` if the disk was full before anything was written to it.
fn part((file, bytes): (File, u64)) -> io::Result<Option<StreamReader<Part>>> {
    match StreamReader::open(BufReader::new(file).take(bytes)) {
        Ok(reader) => Ok(Some(reader)),
        Err(OpenError::Read(error)) => Err(io::Error::other(error)),
        Err(_) => Ok(None),
    }
}

fn parts(files: Vec<(File, u64)>) -> io::Result<Vec<StreamReader<Part>>> {
    files
        .into_iter()
        .filter_map(|file| part(file).transpose())
        .collect()
}

impl Capture {
    /// Writes the window to `out` as one recording.
    ///
    /// # Errors
    /// Those of reading and writing.
    pub fn write<W: Write>(self, out: W) -> io::Result<Saved> {
        let mut metadata = self.metadata;
        metadata.notes.push((SAVED.into(), self.reason));
        let uuid = fastrand::u128(..).to_le_bytes();
        let mut writer = Writer::create(out, uuid, &metadata, self.first_ns)?;
        let mut lost = 0;
        for item in Joined::new(parts(self.before)?, parts(self.segments)?)? {
            match item? {
                Item::Block(block) => match block.known_type() {
                    Some(BlockType::Metadata | BlockType::End) => {}
                    _ => writer.copy(&block)?,
                },
                Item::Damage(damage) => {
                    lost += damage.samples.unwrap_or(damage.samples_at_least);
                }
            }
        }
        if lost > 0 {
            let times = [self.first_ns, self.end.time_ns];
            writer.losses(&[Loss::new(LossReason::Damaged, lost, times)])?;
        }
        let mut end = self.end;
        writer.flush()?;
        let samples = writer.written_samples();
        // Totals of the whole recording, such as its cost, are not the window's.
        end.totals = Vec::new();
        let bytes = writer.written_bytes();
        let length_ns = end.time_ns.saturating_sub(self.first_ns);
        writer.finish(&end)?.flush()?;
        Ok(Saved {
            bytes,
            samples,
            length_ns,
        })
    }
}
