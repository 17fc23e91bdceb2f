//! Several recordings read as one: the files of a flight recorder's window (format-spec.md, section 9).
//!
//! Input: readers of whole recordings, the oldest first. Output: their blocks and damages in file order, with the
//! metadata of the first and the end of the last. Never decodes a payload.

use crate::damage::DamageKind;
use crate::layout::BlockType;
use crate::scanner::Item;
use crate::stream::StreamReader;
use std::collections::VecDeque;
use std::io::{self, Read};

/// Iterates over the blocks of several recordings.
pub struct Joined<R: Read> {
    readers: VecDeque<StreamReader<R>>,
    /// The first item of the first segment, until it was read.
    first: Option<Item<'static>>,
    has_metadata: bool,
}

impl<R: Read> Joined<R> {
    /// Reads the `segments` of a window, the oldest first. The blocks of `before`, which describe what is older than
    /// the window, come behind the first segment's metadata and before everything else.
    ///
    /// # Errors
    /// Those of the first segment's input.
    pub fn new(
        before: impl IntoIterator<Item = StreamReader<R>>,
        segments: impl IntoIterator<Item = StreamReader<R>>,
    ) -> io::Result<Self> {
        let mut segments = segments.into_iter();
        let mut oldest = segments.next();
        let first = match &mut oldest {
            Some(segment) => segment.next_item()?,
            None => None,
        };
        Ok(Joined {
            readers: before.into_iter().chain(oldest).chain(segments).collect(),
            has_metadata: first
                .as_ref()
                .is_some_and(|item| is(item, BlockType::Metadata)),
            first,
        })
    }

    /// Whether the item belongs to the joined recording.
    fn is_kept(&mut self, item: &Item<'_>) -> bool {
        if is(item, BlockType::Metadata) {
            return !std::mem::replace(&mut self.has_metadata, true);
        }
        // Only the last file says how the recording ended, or does not say so.
        let is_end = match item {
            Item::Block(_) => is(item, BlockType::End),
            Item::Damage(damage) => damage.kind == DamageKind::Unfinished,
        };
        self.readers.len() == 1 || !is_end
    }
}

fn is(item: &Item<'_>, block_type: BlockType) -> bool {
    matches!(item, Item::Block(block) if block.known_type() == Some(block_type))
}

impl<R: Read> Iterator for Joined<R> {
    type Item = io::Result<Item<'static>>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        loop {
            match self.readers.front_mut()?.next_item() {
                Ok(Some(item)) if self.is_kept(&item) => return Some(Ok(item)),
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.readers.pop_front();
                }
                Err(error) => {
                    // Nothing more comes from an input that failed.
                    self.readers.clear();
                    return Some(Err(error));
                }
            }
        }
    }
}
