//! Copies the sound parts of a damaged recording into a new one (format-spec.md, section 9).
//!
//! Input: blocks and damages, from a file or a pipe. Output: a sound recording that says what is missing. Payloads
//! are copied unchanged, those of unknown types included.

use crate::block::{Block, Payload};
use crate::cold::{End, EndReason, Loss, LossReason, Metadata};
use crate::damage::Damage;
use crate::error::{DecodeError, Fault};
use crate::layout::BlockType;
use crate::samples::Frame;
use crate::scanner::Item;
use crate::spans::SpanBlock;
use crate::writer::Writer;
use std::io::{self, Write};

/// What a recovery found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Blocks copied.
    pub blocks: u64,
    /// Samples in them.
    pub samples: u64,
    /// Each damage, in file order.
    pub damages: Vec<Damage>,
    /// Further damages, beyond those listed.
    pub more_damages: u64,
    /// Blocks with right checksums that can't be decoded; some are listed.
    pub undecodable: Vec<DecodeError>,
    /// Bytes that were skipped.
    pub skipped_bytes: u64,
    /// Samples known to be lost; where a damage has no number, more may be.
    pub lost_samples: u64,
    /// How the recording ended, if its end record was sound.
    pub end: Option<End>,
    /// Whether the metadata was sound.
    pub has_metadata: bool,
}

/// Most damages that are listed one by one.
const LISTED_DAMAGES: usize = 1024;
/// Most frames of samples that are written anew, since their block can't be decoded to its end. A block copied as it is
/// costs what its bytes do, but a few bytes may stand for a million deep stacks.
const REWRITTEN_FRAMES: u64 = 1 << 27;

impl Recovered {
    /// Whether nothing was wrong with the recording.
    pub fn is_whole(&self) -> bool {
        self.damages.is_empty() && self.undecodable.is_empty()
    }

    fn damage(&mut self, damage: Damage) -> Loss {
        let count = damage.samples.unwrap_or(damage.samples_at_least);
        self.lost_samples = self.lost_samples.saturating_add(count);
        self.skipped_bytes = self.skipped_bytes.saturating_add(damage.bytes);
        let first_ns = damage.gap_ns.0.unwrap_or(0);
        let loss = Loss {
            first_ns,
            last_ns: damage.gap_ns.1.unwrap_or(first_ns),
            task: None,
            reason: LossReason::Damaged,
            count,
        };
        match self.damages.len() < LISTED_DAMAGES {
            true => self.damages.push(damage),
            false => self.more_damages += 1,
        }
        loss
    }

    fn undecodable(&mut self, block: &Block<'_>, fault: Fault, samples: u64) -> Loss {
        let count = u64::from(block.samples).saturating_sub(samples);
        self.lost_samples = self.lost_samples.saturating_add(count);
        if self.undecodable.len() < LISTED_DAMAGES {
            self.undecodable.push(block.error(fault));
        }
        Loss {
            first_ns: block.first_ns,
            last_ns: block.last_ns,
            task: None,
            reason: LossReason::Damaged,
            count,
        }
    }

    /// The end record of the new recording.
    fn new_end(&self, last_ns: u64) -> End {
        let end = self.end.clone().unwrap_or(End {
            time_ns: last_ns,
            reason: EndReason::Cut,
            message: "the recording had no end record".into(),
            totals: Vec::new(),
        });
        let places = self.damages.len() as u64 + self.more_damages;
        let mut totals = end.totals;
        totals.push(("damaged places".into(), places));
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

/// Writes the sound blocks among `items` to `out` as a new recording with the identity `uuid`, and records what was
/// lost. Returns the output.
///
/// # Errors
/// What reading or writing returns.
pub fn recover<'a, W: Write>(
    items: impl IntoIterator<Item = io::Result<Item<'a>>>,
    out: W,
    uuid: [u8; 16],
) -> io::Result<(W, Recovered)> {
    let mut recovered = Recovered::default();
    let mut writer = Writer::without_metadata(out, uuid)?;
    let mut losses = Vec::new();
    let mut last_ns = 0;
    let mut frames_left = REWRITTEN_FRAMES;
    for item in items {
        let block = match item? {
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
        match block.known_type() {
            Some(BlockType::End) => {
                if let Ok(Payload::End(end)) = block.payload() {
                    recovered.end = Some(end);
                }
                continue;
            }
            Some(BlockType::Metadata) => recovered.has_metadata = true,
            _ if recovered.blocks == 0 => writer.metadata(&lost_metadata(), block.first_ns)?,
            _ => {}
        }
        let samples = match whole(&block) {
            // Unknown numbers are of a newer version, which may be able to read the block.
            Ok(()) | Err(Fault::Unknown { .. }) => {
                writer.copy(&block)?;
                u64::from(block.samples)
            }
            Err(fault) => {
                let samples = rewrite(&mut writer, &block, &mut frames_left)?;
                losses.push(recovered.undecodable(&block, fault, samples));
                samples
            }
        };
        recovered.blocks += 1;
        recovered.samples += samples;
        if losses.len() >= LISTED_DAMAGES {
            writer.losses(&losses)?;
            losses.clear();
        }
    }
    writer.losses(&losses)?;
    let out = writer.finish(&recovered.new_end(last_ns))?;
    Ok((out, recovered))
}

/// Decodes all of a block's payload.
fn whole(block: &Block<'_>) -> Result<(), Fault> {
    match block.payload().map_err(|error| error.what)? {
        Payload::Samples(samples) => {
            let mut rows = samples.rows();
            while rows.next_row()?.is_some() {}
        }
        Payload::Spans(spans) => {
            let mut rows = spans.rows();
            while rows.next_row()?.is_some() {}
        }
        _ => {}
    }
    Ok(())
}

/// Writes the rows of a block that can be decoded, as long as frames are left; returns how many samples those are.
fn rewrite<W: Write>(
    writer: &mut Writer<W>,
    block: &Block<'_>,
    frames_left: &mut u64,
) -> io::Result<u64> {
    let samples = match block.payload() {
        Ok(Payload::Samples(samples)) => samples,
        Ok(Payload::Spans(spans)) => return rewrite_spans(writer, &spans).map(|()| 0),
        _ => return Ok(0),
    };
    let mut rows = samples.rows();
    let mut count = 0;
    while let Ok(Some(row)) = rows.next_row() {
        let chain: Vec<Frame> = samples.chain(row.node).collect();
        let Some(left) = frames_left.checked_sub(chain.len() as u64) else {
            break;
        };
        *frames_left = left;
        writer.sample(&row.with_chain(&chain))?;
        count += 1;
    }
    writer.flush()?;
    Ok(count)
}

fn rewrite_spans<W: Write>(writer: &mut Writer<W>, block: &SpanBlock) -> io::Result<()> {
    writer.spans_before(block.before());
    let mut rows = block.rows();
    while let Ok(Some(row)) = rows.next_row() {
        writer.span(&block.named(row))?;
    }
    writer.flush()
}

/// Replaces damaged metadata.
fn lost_metadata() -> Metadata {
    let note = "the metadata of the recording was damaged; what it said is not known";
    Metadata {
        notes: vec![("recovered".into(), note.into())],
        ..Metadata::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::StreamReader;
    use crate::{Sample, Task};

    #[test]
    fn frames_of_blocks_that_are_written_anew() {
        let mut writer = Writer::create(Vec::new(), [7; 16], &Metadata::default(), 0).unwrap();
        let chain = [1, 2, 3].map(Frame::exact);
        for time_ns in 0..10 {
            let task = Task { space: 0, vcpu: 0 };
            writer.sample(&Sample::bare(time_ns, task, &chain)).unwrap();
        }
        let end = Recovered::default().new_end(10);
        let bytes = writer.finish(&end).unwrap();
        for (most, samples, left) in [(30, 10, 0), (29, 9, 2), (2, 0, 2)] {
            let mut frames_left = most;
            let mut out = Writer::without_metadata(Vec::new(), [8; 16]).unwrap();
            let mut written = 0;
            for item in StreamReader::open(&bytes[..]).unwrap() {
                if let Item::Block(block) = item.unwrap() {
                    written += rewrite(&mut out, &block, &mut frames_left).unwrap();
                }
            }
            assert_eq!((written, frames_left), (samples, left), "{most}");
        }
    }
}
