//! The output of a bundle. Input: blocks and tables, in order. Output: the same, or only what may be kept of
//! them: a redacted bundle has its own writer, which no other code can reach.

use super::BundledImage;
use crate::recording::rows::EffectiveRows;
use crate::stacks::embedded::Embedded;
use crate::stacks::idle::Idle;
use crate::work;
use std::io::{self, Write};
use uprof::cold::{End, ModuleEvent};
use uprof::layout::MAX_PAYLOAD_BYTES;
use uprof::{Block, Payload, Writer};

/// The file that a bundle is written to.
pub(super) trait Output {
    /// Writes a block of the recording. End records and tables of an earlier bundle are not passed to it.
    ///
    /// # Errors
    /// The block can't be decoded, or writing failed.
    fn block(&mut self, block: &Block<'_>) -> io::Result<()>;

    /// Writes mappings of images that the recording doesn't have.
    ///
    /// # Errors
    /// The errors of the file.
    fn modules(&mut self, events: &[ModuleEvent]) -> io::Result<()>;

    /// Writes the tables of an image.
    ///
    /// # Errors
    /// The errors of the file.
    fn image(&mut self, image: Embedded, now_ns: u64) -> io::Result<BundledImage>;

    /// Writes the end record.
    ///
    /// # Errors
    /// The errors of the file.
    fn finish(self, end: &End) -> io::Result<RedactionSummary>;
}

/// The summary of a redacted recording.
#[derive(Debug, Default)]
pub(super) struct RedactionSummary {
    /// What was removed, one line each.
    pub removed: Vec<String>,
    /// What remains that may identify someone, one line each.
    pub left: Vec<String>,
}

/// Writes everything unchanged.
pub(super) struct Whole<'a, W: Write> {
    pub writer: Writer<W>,
    pub idle: &'a Idle<'a, 'a>,
    /// Whether samples may be idle according to code that the bundle no longer has.
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

    fn finish(self, end: &End) -> io::Result<RedactionSummary> {
        self.writer.finish(end)?;
        Ok(RedactionSummary::default())
    }
}

/// Writes the parts of an image that a block has room for, and returns a summary of them.
///
/// # Errors
/// The errors of the file.
pub(super) fn write_image<W: Write>(
    writer: &mut Writer<W>,
    image: &Embedded,
    now_ns: u64,
) -> io::Result<BundledImage> {
    let (mut size_bytes, mut left_out_bytes) = (0, 0);
    let mut bytes = Vec::new();
    for part in image.parts() {
        bytes.clear();
        part.put(&mut bytes);
        if bytes.len() > MAX_PAYLOAD_BYTES {
            left_out_bytes += bytes.len();
        } else {
            size_bytes += bytes.len();
            writer.image_part(&part, now_ns)?;
        }
    }
    Ok(BundledImage {
        path: image.identity.path.clone(),
        symbols: image.symbols.len(),
        lines: image.lines.len(),
        rules: image.rules.table().ranges(),
        size_bytes,
        left_out_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::symbols::{Line, SymbolTable};
    use crate::images::{ImageAddress, Segments};
    use crate::stacks::embedded::LineTable;
    use uprof::cold::{EndReason, Metadata};
    use uprof::image::ImageIdentity;
    use uprof::{Arch, Item, SliceReader};

    #[test]
    fn tables_that_no_block_has_room_for_are_left_out() {
        let mut lines = LineTable::default();
        let long = |text: &str| Some(text.repeat(9 << 20));
        for (address, function, file) in [
            (0x1000, long("f"), long("c")),
            (0x1001, Some("g".into()), None),
        ] {
            let line = Line {
                function,
                file,
                ..Line::default()
            };
            lines.insert(ImageAddress(address), &[line]);
        }
        let image = Embedded {
            identity: ImageIdentity {
                path: "/a".into(),
                build_id: Vec::new(),
                arch: Arch::X86_64,
                load_bias: 0,
                origin: "test".into(),
            },
            segments: Segments::default(),
            symbols: SymbolTable::from_symbols([(0x1000, 7, "main")].into_iter()),
            lines,
            rules: Default::default(),
            image: None,
            callers: Vec::new(),
        };
        let mut writer = Writer::create(Vec::new(), [1; 16], &Metadata::default(), 0).unwrap();
        let written = write_image(&mut writer, &image, 0).unwrap();
        assert!(written.left_out_bytes > MAX_PAYLOAD_BYTES);
        assert!(written.size_bytes < 1000, "{}", written.size_bytes);
        let end = End {
            time_ns: 0,
            reason: EndReason::Stopped,
            message: String::new(),
            totals: Vec::new(),
        };
        let bytes = writer.finish(&end).unwrap();
        let items = SliceReader::open(&bytes).unwrap().blocks();
        let parts: Vec<_> = items
            .filter_map(|item| match item {
                Item::Block(block) => match block.payload().unwrap() {
                    Payload::Image(part) => Some(part),
                    _ => None,
                },
                Item::Damage(damage) => panic!("{damage}"),
            })
            .collect();
        assert_eq!(parts.len(), 1);
        assert_eq!(parts[0].symbols().count(), 1);
        assert_eq!(parts[0].sections().count(), 1);
    }
}
