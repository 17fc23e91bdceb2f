//! Copies the sound parts of a damaged recording into a new one (format-spec.md, section 9).
//!
//! Input: blocks and damages, from a file or a pipe. Output: a sound recording that says what is missing. Payloads
//! are copied unchanged, those of unknown types included.

mod joined;

pub use joined::Joined;

use crate::block::{Block, Payload};
use crate::cold::{DAMAGED_PLACES, End, EndReason, Loss, LossReason, Metadata};
use crate::damage::{Damage, DamageKind};
use crate::error::{DecodeError, Fault};
use crate::layout::BlockType;
use crate::scanner::Item;
use crate::spans::SpanBlock;
use crate::writer::Writer;
use std::io::{self, Write};

/// The result of a recovery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Blocks copied.
    pub blocks: u64,
    /// Samples in them.
    pub samples: u64,
    /// Damages, in file order.
    pub damages: Vec<Damage>,
    /// Further damages, beyond those listed.
    pub more_damages: u64,
    /// Blocks with right checksums that can't be decoded; some are listed.
    pub undecodable: Vec<DecodeError>,
    /// Bytes that were skipped.
    pub skipped_bytes: u64,
    /// Samples known to be lost. If a damage has no number, more may be lost.
    pub lost_samples: u64,
    /// The end record, if it was sound.
    pub end: Option<End>,
    /// Whether the metadata was sound.
    pub has_metadata: bool,
}

/// Most damages that are listed one by one.
const LISTED_DAMAGES: usize = 1024;
impl Recovered {
    /// Whether the recording was sound.
    pub fn is_whole(&self) -> bool {
        self.damages.is_empty() && self.undecodable.is_empty()
    }

    fn damage(&mut self, damage: Damage) -> Loss {
        let count = damage.samples.unwrap_or(damage.samples_at_least);
        self.lost_samples = self.lost_samples.saturating_add(count);
        self.skipped_bytes = self.skipped_bytes.saturating_add(damage.bytes);
        let first_ns = damage.gap_ns.0.unwrap_or(0);
        let gap_ns = [first_ns, damage.gap_ns.1.unwrap_or(first_ns)];
        if self.damages.len() < LISTED_DAMAGES {
            self.damages.push(damage)
        } else {
            self.more_damages += 1
        }
        Loss::new(LossReason::Damaged, count, gap_ns)
    }

    fn undecodable(&mut self, block: &Block<'_>, fault: Fault, samples: u32) -> Loss {
        let count = u64::from(block.samples.saturating_sub(samples));
        self.lost_samples = self.lost_samples.saturating_add(count);
        if self.undecodable.len() < LISTED_DAMAGES {
            self.undecodable.push(block.error(fault));
        }
        Loss::new(LossReason::Damaged, count, [block.first_ns, block.last_ns])
    }

    /// The number of damaged places. A missing end is none; the reason of the new recording's end says it.
    pub fn damaged_places(&self) -> u64 {
        let damages = self.damages.iter();
        let damages = damages.filter(|damage| damage.kind != DamageKind::Unfinished);
        let listed = damages.count() + self.undecodable.len();
        self.more_damages.saturating_add(listed as u64)
    }

    /// The end record of the new recording.
    fn new_end(&self, last_ns: u64) -> End {
        let end = self.end.clone().unwrap_or(End {
            time_ns: last_ns,
            reason: EndReason::Cut,
            message: "the recording had no end record".into(),
            totals: Vec::new(),
        });
        let places = self.damaged_places();
        let mut totals = end.totals;
        totals.push((DAMAGED_PLACES.into(), places));
        totals.push(("bytes skipped in recovery".into(), self.skipped_bytes));
        totals.push(("samples lost with damage".into(), self.lost_samples));
        let lost = self.lost_samples;
        End {
            message: format!(
                "{}; recovered: damaged at {places} places, at least {lost} samples lost",
                end.message
            ),
            totals,
            ..end
        }
    }
}

/// Writes the sound blocks among `items` to `out` as a new recording with the identity `uuid`, and records the losses.
/// Returns the output.
///
/// # Errors
/// Those of reading or writing.
pub fn recover<'a, W: Write>(
    items: impl IntoIterator<Item = io::Result<Item<'a>>>,
    out: W,
    uuid: [u8; 16],
) -> io::Result<(W, Recovered)> {
    let mut recovered = Recovered::default();
    let mut writer = Writer::without_metadata(out, uuid)?;
    let mut losses = Vec::new();
    let mut last_ns = 0;
    for item in items {
        let mut block = match item? {
            Item::Block(block) => block,
            Item::Damage(damage) => {
                let loss = recovered.damage(damage);
                if loss.count > 0 {
                    losses.push(loss);
                }
                continue;
            }
        };
        last_ns = block.last_ns.max(last_ns);
        if block.known_type() == Some(BlockType::End) {
            if let Ok(Payload::End(end)) = block.payload() {
                recovered.end = Some(end);
            }
            continue;
        }
        let (samples, fault) = decode(&block);
        // Unknown numbers are from a newer version, which may be able to read the block.
        let fault = fault.filter(|fault| !matches!(fault, Fault::Unknown { .. }));
        if block.known_type() == Some(BlockType::Metadata) && fault.is_none() {
            recovered.has_metadata = true;
        } else if recovered.blocks == 0 {
            writer.metadata(&lost_metadata(), block.first_ns)?;
        }
        match fault {
            None => writer.copy(&block)?,
            Some(fault) => {
                let loss = recovered.undecodable(&block, fault, samples);
                losses.extend((loss.count > 0).then_some(loss));
                block.samples = samples;
                write_decodable(&mut writer, &block)?;
            }
        }
        recovered.blocks += 1;
        recovered.samples += u64::from(block.samples);
        if losses.len() >= LISTED_DAMAGES {
            writer.losses(&losses)?;
            losses.clear();
        }
    }
    writer.losses(&losses)?;
    let out = writer.finish(&recovered.new_end(last_ns))?;
    Ok((out, recovered))
}

/// Decodes all of a block's payload. Returns the number of samples up to the first fault, and the fault.
fn decode(block: &Block<'_>) -> (u32, Option<Fault>) {
    let mut samples = 0;
    let mut read = || match block.payload().map_err(|error| error.what)? {
        Payload::Samples(block) => {
            let mut rows = block.rows();
            while rows.next_row()?.is_some() {
                samples += 1;
            }
            Ok(())
        }
        Payload::Spans(block) => {
            let mut rows = block.rows();
            while rows.next_row()?.is_some() {}
            Ok(())
        }
        _ => Ok(()),
    };
    let fault = read().err();
    (samples, fault)
}

/// Writes the rows of a block that can be decoded. Its header states their number already, and readers ignore bytes
/// behind them.
fn write_decodable<W: Write>(writer: &mut Writer<W>, block: &Block<'_>) -> io::Result<()> {
    match block.known_type() {
        Some(BlockType::Samples) if block.samples > 0 => writer.copy(block),
        Some(BlockType::Spans) => match block.payload() {
            Ok(Payload::Spans(spans)) => rewrite_spans(writer, &spans),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn rewrite_spans<W: Write>(writer: &mut Writer<W>, block: &SpanBlock) -> io::Result<()> {
    writer.spans_before(block.before());
    let mut rows = block.rows();
    while let Ok(Some(row)) = rows.next_row() {
        writer.span(&block.named(row))?;
    }
    writer.flush()
}

/// The metadata that replace damaged ones.
fn lost_metadata() -> Metadata {
    let note = "the metadata of the recording was damaged; what it said is not known";
    Metadata {
        notes: vec![("recovered".into(), note.into())],
        ..Metadata::default()
    }
}
