//! Bundling. Input: a recording and the images that it needs. Output: a recording that needs no image. Every
//! sample is unwound and symbolized once. The bundle embeds the parts of each image that this needed:
//! segments, and the symbols, lines and unwind rules of the sampled addresses. A redacted bundle holds the
//! unwound stacks in place of the memory that they were unwound from.

mod needs;
mod output;
mod redact;

use crate::images::library::Library;
use crate::profile::advice::advice;
use crate::recording::Recording;
use crate::stacks::embedded::Embedded;
use crate::stacks::idle::Idle;
use crate::stacks::symbolizer::Symbolizer;
use crate::stacks::unwinders::Unwinders;
use crate::unwind::Options;
use crate::work;
use output::{Output, RedactionSummary, Whole};
use redact::Redactor;
use std::io::{self, Write};
use uprof::cold::{End, EndReason};
use uprof::{Block, BlockType, Item, Payload, Writer};

/// The origin that marks embedded tables as written by a bundle.
pub(crate) const ORIGIN: &str = "bundle";

/// What a bundle embeds of one image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundledImage {
    /// Path as the recorder saw it.
    pub path: String,
    /// Number of functions.
    pub symbols: usize,
    /// Number of addresses with source lines.
    pub lines: usize,
    /// Number of address ranges with an unwind rule.
    pub rules: usize,
    /// Its size before compression (bytes).
    pub size_bytes: usize,
    /// The size of what no block has room for, and that is left out (bytes).
    pub left_out_bytes: usize,
}

/// The result of bundling.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleSummary {
    /// Images, by path.
    pub images: Vec<BundledImage>,
    /// Sampled modules without an image or embedded tables.
    pub missing: Vec<String>,
    /// If redacted: what was removed, one line each.
    pub removed: Vec<String>,
    /// If redacted: what remains that may identify someone, one line each.
    pub left: Vec<String>,
    /// Warnings: images that were refused, blocks that can't be decoded.
    pub warnings: Vec<String>,
    /// Advice for recordings with few or poor stacks.
    pub advice: Vec<String>,
}

/// Why a recording can't be bundled.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The recording is damaged, so that some of it can't be read.
    #[error("cannot bundle {name}: it is damaged ({what}); run `uniprof recover` on it first")]
    Damaged {
        /// Name of the recording.
        name: String,
        /// The damage, in words.
        what: String,
    },
    /// The bundle can't be written.
    #[error("cannot write the bundle: {0}")]
    Write(#[from] io::Error),
}

/// Writes `recording` to `out`, with what it needs of the images that `library` finds. If `redact` is set,
/// raw memory, registers, paths, host names and user names are left out.
///
/// # Errors
/// [`BundleError`]: the recording is damaged, or `out` returns an error.
pub fn bundle(
    recording: &Recording,
    library: &Library,
    redact: bool,
    out: impl Write,
) -> Result<BundleSummary, BundleError> {
    let damaged = |what: String| BundleError::Damaged {
        name: recording.name().to_owned(),
        what,
    };
    // The bundle of a damaged recording would look complete.
    if let Some(what) = recording.damages().first() {
        return Err(damaged(what));
    }
    let symbolizer = Symbolizer::new(recording, library, false);
    let unwinders = Unwinders::new(recording, &symbolizer, Options::default());
    let idle = Idle::new(recording, &symbolizer);
    let stacks = needs::stacks(recording, &unwinders, &idle);
    let stacks = stacks.map_err(|error| damaged(error.to_string()))?;
    let stack_bytes = recording.metadata().sampling.stack_bytes;
    let advice = advice(&stacks.counts(&symbolizer, stack_bytes));
    let images = needs::images(recording, &symbolizer, &stacks);
    let mut bundled = BundleSummary {
        missing: needs::missing(recording, &symbolizer, &stacks.places),
        warnings: symbolizer.warnings(),
        advice,
        ..BundleSummary::default()
    };
    let uuid = recording.uuid().unwrap_or_default();
    let opened = uprof::StreamReader::open_to_end(recording.reader());
    let opened = opened.map_err(|error| damaged(error.to_string()))?;
    let writer = Writer::without_metadata(out, uuid)?;
    let written = if redact {
        let redactor = Redactor::new(recording, &unwinders, &idle, writer);
        write(recording, opened, images, redactor, &mut bundled)
    } else {
        let whole = Whole {
            writer,
            idle: &idle,
            tells_idle: Idle::may_tell(recording),
        };
        write(recording, opened, images, whole, &mut bundled)
    };
    let RedactionSummary { removed, left } = written?;
    (bundled.removed, bundled.left) = (removed, left);
    Ok(bundled)
}

/// Writes the blocks of `recording`, then the tables of the bundle.
fn write(
    recording: &Recording,
    blocks: impl Iterator<Item = io::Result<Item<'static>>>,
    images: Vec<Embedded>,
    mut output: impl Output,
    bundled: &mut BundleSummary,
) -> io::Result<RedactionSummary> {
    for item in blocks {
        match item? {
            Item::Block(block) if !is_written_anew(&block) => output.block(&block)?,
            _ => {}
        }
    }
    output.modules(recording.assumed())?;
    for image in images {
        let image = output.image(image, recording.end_ns())?;
        if image.left_out_bytes > 0 {
            bundled.warnings.push(format!(
                "{}: {} MiB of its tables are left out, since no block has room for names or unwind rules of that \
                 length: reports need the image",
                image.path,
                image.left_out_bytes >> 20,
            ));
        }
        bundled.images.push(image);
    }
    let end = recording.end().cloned();
    output.finish(&end.unwrap_or_else(|| no_end(recording)))
}

/// Whether a block is not copied: the end record, which has to come last, or a table of an earlier bundle.
fn is_written_anew(block: &Block<'_>) -> bool {
    match block.known_type() {
        Some(BlockType::End) => true,
        Some(BlockType::Image) => {
            matches!(work::payload(block), Ok(Payload::Image(part)) if part.identity.origin == ORIGIN)
        }
        _ => false,
    }
}

fn no_end(recording: &Recording) -> End {
    End {
        time_ns: recording.end_ns(),
        reason: EndReason::Cut,
        message: "the recording had no end record".to_owned(),
        totals: Vec::new(),
    }
}
