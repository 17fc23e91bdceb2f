//! Bundling. Input: a recording and the images it needs. Output: a recording that needs no image. Every sample is
//! unwound and symbolized once, and what that needed of each image is embedded: segments, symbols, lines and unwind
//! rules of the sampled addresses only. A redacted bundle holds the unwound stacks instead of the memory they were
//! unwound from.

mod needs;
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
use redact::Redactor;
use std::io::{self, Write};
use uprof::cold::{End, EndReason};
use uprof::image::ImagePart;
use uprof::{Block, BlockType, Item, Payload, Sample, Writer};

/// The origin that embedded tables made here are marked with.
pub(crate) const ORIGIN: &str = "bundle";

/// What a bundle has of one image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundledImage {
    /// Path as the recorder saw it.
    pub path: String,
    /// Functions.
    pub symbols: usize,
    /// Addresses with lines.
    pub lines: usize,
    /// Address ranges with an unwind rule.
    pub rules: usize,
    /// Its size before compression (bytes).
    pub size_bytes: usize,
}

/// The result of bundling.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bundled {
    /// Images, by path.
    pub images: Vec<BundledImage>,
    /// Sampled modules without an image or embedded tables.
    pub missing: Vec<String>,
    /// Redacted: what was removed, a line each.
    pub removed: Vec<String>,
    /// Redacted: what is left that may identify someone, a line each.
    pub left: Vec<String>,
    /// Warnings: images refused, blocks that can't be decoded.
    pub warnings: Vec<String>,
    /// Advice for recordings with few or poor stacks.
    pub advice: Vec<String>,
}

/// Why a recording can't be bundled.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// It can't be read completely.
    #[error("cannot bundle {name}: it is damaged ({what}); run `uniprof recover` on it first")]
    Damaged {
        /// The recording.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// The result can't be written.
    #[error("cannot write the bundle: {0}")]
    Write(#[from] io::Error),
}

/// Writes `recording` to `out` with what it needs of its images, which `library` finds. With `redact`, raw memory,
/// registers, paths, host and user names are left out.
///
/// # Errors
/// [`BundleError`]: the recording is damaged, or `out` returns an error.
pub fn bundle(
    recording: &Recording,
    library: &Library,
    redact: bool,
    out: impl Write,
) -> Result<Bundled, BundleError> {
    let damaged = |what: String| BundleError::Damaged {
        name: recording.name().to_owned(),
        what,
    };
    if let Some(what) = recording.damages().first() {
        return Err(damaged(what));
    }
    let symbolizer = Symbolizer::new(recording, library, false);
    let unwinders = Unwinders::new(recording, &symbolizer, Options::default());
    let idle = Idle::new(recording, &symbolizer);
    let stacks = needs::stacks(recording, &unwinders, &idle).map_err(damaged)?;
    let stack_bytes = recording.metadata().sampling.stack_bytes;
    let advice = advice(&stacks.counts(&symbolizer, stack_bytes));
    let places = stacks.places;
    let images = needs::images(recording, &symbolizer, &places);
    let mut bundled = Bundled {
        missing: needs::missing(recording, &symbolizer, &places),
        warnings: symbolizer.warnings(),
        advice,
        ..Bundled::default()
    };
    let uuid = recording.uuid().unwrap_or_default();
    let opened = uprof::StreamReader::open(recording.reader());
    let opened = opened.map_err(|error| damaged(error.to_string()))?;
    let mut writer = Writer::without_metadata(out, uuid)?;
    let mut redactor = redact.then(|| Redactor::new(recording, &unwinders, &idle));
    for item in opened {
        let Item::Block(block) = item? else {
            continue;
        };
        match (&mut redactor, kind(&block)) {
            (_, Kind::Made | Kind::Last) => {}
            (None, Kind::Samples) if Idle::may_tell(recording) => {
                write_samples(&block, &idle, &mut writer)?;
            }
            (None, Kind::Other | Kind::Samples) => writer.copy(&block)?,
            (Some(redactor), Kind::Other | Kind::Samples) => redactor.write(&block, &mut writer)?,
        }
    }
    let assumed = recording.assumed().iter().cloned();
    let assumed: Vec<_> = match &redactor {
        Some(redactor) => assumed.map(|event| redactor.module(event)).collect(),
        None => assumed.collect(),
    };
    writer.modules(&assumed)?;
    for embedded in images {
        let embedded = match &redactor {
            Some(redactor) => redactor.embedded(embedded),
            None => embedded,
        };
        let parts = embedded.parts();
        bundled.images.push(describe(&embedded, &parts));
        for part in &parts {
            writer.image_part(part, recording.end_ns())?;
        }
    }
    let end = recording
        .end()
        .cloned()
        .unwrap_or_else(|| no_end(recording));
    let end = match &redactor {
        Some(redactor) => redactor.end(&end),
        None => end,
    };
    if let Some(redactor) = redactor {
        bundled.removed = redactor.removed();
        bundled.left = redactor.left(recording);
    }
    writer.finish(&end)?;
    Ok(bundled)
}

/// What to do with a block.
enum Kind {
    /// A bundle's own table: written anew.
    Made,
    /// The end: written last.
    Last,
    /// Samples.
    Samples,
    /// Anything else.
    Other,
}

fn kind(block: &Block<'_>) -> Kind {
    match block.known_type() {
        Some(BlockType::End) => Kind::Last,
        Some(BlockType::Samples) => Kind::Samples,
        Some(BlockType::Image) => match work::payload(block) {
            Ok(Payload::Image(part)) if part.identity.origin == ORIGIN => Kind::Made,
            _ => Kind::Other,
        },
        _ => Kind::Other,
    }
}

/// Copies a block of samples; one with samples that are found to be idle by code that a bundle has no more is written
/// anew, with their state.
fn write_samples<W: Write>(
    block: &Block<'_>,
    idle: &Idle<'_, '_>,
    writer: &mut Writer<W>,
) -> io::Result<()> {
    let samples = match work::payload(block).map_err(io::Error::other)? {
        Payload::Samples(samples) if idle.changes(&samples).map_err(io::Error::other)? => samples,
        _ => return writer.copy(block),
    };
    let (mut rows, mut chain) = (samples.rows(), Vec::new());
    while let Some(row) = rows.next_row().map_err(io::Error::other)? {
        chain.clear();
        chain.extend(samples.chain(row.node));
        work::take(chain.len() as u64);
        let state = idle.state(&samples, &row);
        writer.sample(&Sample {
            state,
            ..row.with_chain(&chain)
        })?;
    }
    writer.flush()
}

fn describe(embedded: &Embedded, parts: &[ImagePart]) -> BundledImage {
    let mut bytes = Vec::new();
    parts.iter().for_each(|part| part.put(&mut bytes));
    BundledImage {
        path: embedded.identity.path.clone(),
        symbols: embedded.symbols.len(),
        lines: embedded.lines.len(),
        rules: embedded.rules.ranges(),
        size_bytes: bytes.len(),
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
