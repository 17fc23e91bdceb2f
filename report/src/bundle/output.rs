//! Where a bundle goes. Input: blocks and tables, in order. Output: the same, or what may be kept of them: a redacted
//! bundle has a writer of its own, which nothing else reaches.

use super::BundledImage;
use crate::recording::rows::EffectiveRows;
use crate::stacks::embedded::Embedded;
use crate::stacks::idle::Idle;
use crate::work;
use std::io::{self, Write};
use uprof::cold::{End, ModuleEvent};
use uprof::{Block, Payload, Writer};

/// What a bundle is written to.
pub(super) trait Output {
    /// Writes a block of the recording, but no end and no tables of another bundle.
    ///
    /// # Errors
    /// The block can't be decoded, or what the file returns.
    fn block(&mut self, block: &Block<'_>) -> io::Result<()>;

    /// Writes places of images that the recording doesn't have.
    ///
    /// # Errors
    /// What the file returns.
    fn modules(&mut self, events: &[ModuleEvent]) -> io::Result<()>;

    /// Writes tables of an image.
    ///
    /// # Errors
    /// What the file returns.
    fn image(&mut self, image: Embedded, now_ns: u64) -> io::Result<BundledImage>;

    /// Writes the end.
    ///
    /// # Errors
    /// What the file returns.
    fn finish(self, end: &End) -> io::Result<Written>;
}

/// What was written of a redacted recording.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// What was removed, a line each.
    pub removed: Vec<String>,
    /// What is left that may identify someone, a line each.
    pub left: Vec<String>,
}

/// Writes everything as it is.
pub(super) struct Whole<'a, W: Write> {
    pub writer: Writer<W>,
    pub idle: &'a Idle<'a, 'a>,
    /// Whether samples may be idle by code that a bundle has no more.
    pub tells_idle: bool,
}

impl<W: Write> Output for Whole<'_, W> {
    fn block(&mut self, block: &Block<'_>) -> io::Result<()> {
        let samples = match work::payload(block) {
            Ok(Payload::Samples(samples)) if self.tells_idle => samples,
            _ => return self.writer.copy(block),
        };
        if !self.idle.changes(&samples).map_err(io::Error::other)? {
            return self.writer.copy(block);
        }
        let (mut rows, mut chain) = (EffectiveRows::new(&samples, self.idle), Vec::new());
        while let Some(row) = rows.next_row().map_err(io::Error::other)? {
            chain.clear();
            chain.extend(samples.chain(row.node));
            work::take(chain.len() as u64);
            self.writer.sample(&row.with_chain(&chain))?;
        }
        self.writer.flush()
    }

    fn modules(&mut self, events: &[ModuleEvent]) -> io::Result<()> {
        self.writer.modules(events)
    }

    fn image(&mut self, image: Embedded, now_ns: u64) -> io::Result<BundledImage> {
        write_image(&mut self.writer, &image, now_ns)
    }

    fn finish(self, end: &End) -> io::Result<Written> {
        self.writer.finish(end)?;
        Ok(Written::default())
    }
}

/// Writes the parts of an image, and says what they are.
///
/// # Errors
/// What the file returns.
pub(super) fn write_image<W: Write>(
    writer: &mut Writer<W>,
    image: &Embedded,
    now_ns: u64,
) -> io::Result<BundledImage> {
    let mut bytes = Vec::new();
    for part in image.parts() {
        part.put(&mut bytes);
        writer.image_part(&part, now_ns)?;
    }
    Ok(BundledImage {
        path: image.identity.path.clone(),
        symbols: image.symbols.len(),
        lines: image.lines.len(),
        rules: image.rules.table().ranges(),
        size_bytes: bytes.len(),
    })
}
