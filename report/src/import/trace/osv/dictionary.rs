//! The dictionary of tracepoints. Input: its bytes. Output: what the records of each tracepoint mean.

use crate::import::trace::{NameId, SpanSink};
use crate::work;
use std::collections::HashMap;

/// Most tracepoints of a file.
const TRACEPOINTS_MAX: usize = 1 << 16;
/// The cost of pairing one, of a run's budget of steps.
const STEPS_PER_TRACEPOINT: u64 = 32;

/// The part of a call that a record stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Begins,
    Ends,
    /// The call ends with an error.
    Fails,
    /// Not part of a call: an instant.
    Alone,
}

/// A tracepoint.
#[derive(Debug, Clone)]
pub(super) struct Tracepoint {
    name: Vec<u8>,
    /// The types of its arguments, one letter each.
    pub signature: Vec<u8>,
    /// The name of the call that its records are part of, and which part.
    call: Option<(NameId, Part)>,
}

/// All tracepoints.
#[derive(Default)]
pub(super) struct Dictionary {
    tracepoints: HashMap<u64, Tracepoint>,
    /// Whether some were added since they were paired.
    are_unpaired: bool,
    /// Number of addresses of a backtrace.
    pub backtrace: u32,
}

impl Dictionary {
    pub(super) fn tracepoint(&self, key: u64) -> Option<&Tracepoint> {
        self.tracepoints.get(&key)
    }

    /// Parses the content of a chunk; `false` if it is truncated or exceeds the limits.
    pub(super) fn add(&mut self, content: &[u8]) -> bool {
        let mut values = Values { content, at: 0 };
        self.tracepoints_of(&mut values).is_some()
    }

    fn tracepoints_of(&mut self, values: &mut Values<'_>) -> Option<()> {
        self.backtrace = values.u32()?;
        if self.backtrace > 1024 {
            return None;
        }
        for _ in 0..values.u32()? {
            let key = values.u64()?;
            values.string()?;
            let name = values.string()?.to_vec();
            values.string()?;
            values.string()?;
            let mut signature = Vec::new();
            for _ in 0..values.u32()? {
                values.string()?;
                signature.push(values.byte()?);
            }
            if self.tracepoints.len() >= TRACEPOINTS_MAX {
                return None;
            }
            self.are_unpaired = true;
            self.tracepoints.insert(
                key,
                Tracepoint {
                    name,
                    signature,
                    call: None,
                },
            );
        }
        Some(())
    }

    /// Pairs tracepoints that begin a call with those that end it. To be called before records are read: a file may
    /// have many dictionaries.
    pub(super) fn pair(&mut self, sink: &mut dyn SpanSink) {
        if !std::mem::take(&mut self.are_unpaired) {
            return;
        }
        work::take(STEPS_PER_TRACEPOINT * self.tracepoints.len() as u64);
        let ended: Vec<Vec<u8>> = self
            .tracepoints
            .values()
            .filter_map(|tracepoint| ended(&tracepoint.name).map(|(name, _)| name.to_vec()))
            .collect();
        let ended: std::collections::HashSet<Vec<u8>> = ended.into_iter().collect();
        for tracepoint in self.tracepoints.values_mut() {
            let name = &tracepoint.name[..];
            tracepoint.call = match name {
                // The first argument of these is the function.
                b"function entry" | b"function exit" => None,
                b"mutex_lock_wait" => Some((sink.name(b"mutex_lock_wait"), Part::Begins)),
                b"mutex_lock_wake" => Some((sink.name(b"mutex_lock_wait"), Part::Ends)),
                _ => Some(match ended_call(name, &ended) {
                    Some((name, part)) => (sink.name(name), part),
                    None if ended.contains(name) => (sink.name(name), Part::Begins),
                    None => (sink.name(name), Part::Alone),
                }),
            };
        }
    }

    /// Name and part of the call that a record belongs to. `pointer` is its first argument if that is a
    /// pointer.
    pub(super) fn call(
        &self,
        tracepoint: u64,
        pointer: Option<u64>,
        sink: &mut dyn SpanSink,
    ) -> (NameId, Part) {
        let tracepoint = self.tracepoints.get(&tracepoint);
        if let Some(call) = tracepoint.and_then(|tracepoint| tracepoint.call) {
            return call;
        }
        let is_exit = tracepoint.is_some_and(|tracepoint| tracepoint.name == b"function exit");
        let name = format!("0x{:x}", pointer.unwrap_or(0));
        let part = if is_exit { Part::Ends } else { Part::Begins };
        (sink.name(name.as_bytes()), part)
    }
}

fn ended_call<'n>(
    name: &'n [u8],
    known: &std::collections::HashSet<Vec<u8>>,
) -> Option<(&'n [u8], Part)> {
    ended(name).filter(|(name, _)| known.contains(*name))
}

/// The tracepoint that a name ends: `vfs_read_ret` ends `vfs_read`, and so does `vfs_read_err`.
fn ended(name: &[u8]) -> Option<(&[u8], Part)> {
    let returned = name.strip_suffix(b"_ret").map(|name| (name, Part::Ends));
    returned.or_else(|| name.strip_suffix(b"_err").map(|name| (name, Part::Fails)))
}

/// Values of a chunk, each aligned to its size.
struct Values<'a> {
    content: &'a [u8],
    at: usize,
}

impl<'a> Values<'a> {
    fn take(&mut self, count: usize, alignment: usize) -> Option<&'a [u8]> {
        let from = self.at.next_multiple_of(alignment);
        let end = from.checked_add(count)?;
        let bytes = self.content.get(from..end)?;
        self.at = end;
        Some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1, 1)?.first().copied()
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4, 4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8, 8)?.try_into().ok()?))
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let length = u16::from_le_bytes(self.take(2, 2)?.try_into().ok()?);
        self.take(usize::from(length), 1)
    }
}
