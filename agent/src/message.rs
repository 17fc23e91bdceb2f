//! Frames of the protocol (docs/agent-protocol.md, sections 2 and 3). Finds a client's messages in an untrusted byte
//! stream, and writes the headers of the agent's messages.

use crate::checksum::Checksum;

/// Size of a frame's header (bytes): magic, kind, 0, length, checksum.
pub(crate) const HEADER_BYTES: usize = 12;
const MAGIC: [u8; 2] = *b"uA";
/// Longest payload of a client's message (bytes).
const MOST_ASKED_BYTES: usize = 32;
/// Version of the protocol.
pub(crate) const VERSION: u16 = 1;

/// Kinds of the agent's messages.
pub(crate) const HELLO: u8 = 0x81;
pub(crate) const BUSY: u8 = 0x82;
pub(crate) const STATE: u8 = 0x83;
pub(crate) const SAMPLE: u8 = 0x84;
pub(crate) const LOSSES: u8 = 0x85;
pub(crate) const CLOCK: u8 = 0x86;

/// A client's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Attach {
        nonce: u64,
    },
    Start {
        period_ns: u64,
        frames: u32,
        stack_bytes: u32,
    },
    Stop,
    Ping {
        number: u64,
    },
    Detach,
    /// A valid message of a later version's kind.
    Unknown,
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl Request {
    /// Parses a payload. It may be longer than expected, as later versions add fields.
    fn of(kind: u8, payload: &[u8]) -> Option<Request> {
        Some(match kind {
            1 => Request::Attach {
                nonce: number(payload, 8)?,
            },
            2 => Request::Start {
                period_ns: number(payload, 0)?,
                frames: half(payload, 8)?,
                stack_bytes: half(payload, 12)?,
            },
            3 => Request::Stop,
            4 => Request::Ping {
                number: number(payload, 0)?,
            },
            5 => Request::Detach,
            _ => Request::Unknown,
        })
    }
}

/// Received bytes that are not parsed yet: at most one message.
pub(crate) struct Input {
    bytes: [u8; HEADER_BYTES + MOST_ASKED_BYTES],
    count: usize,
}

impl Input {
    pub const fn new() -> Self {
        Input {
            bytes: [0; HEADER_BYTES + MOST_ASKED_BYTES],
            count: 0,
        }
    }

    /// The free part, for the next bytes.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.count..]
    }

    /// Adds `count` bytes that were written to [`Self::room`].
    pub fn grow(&mut self, count: usize) {
        self.count = (self.count + count).min(self.bytes.len());
    }

    /// Whether there are enough bytes for a message.
    pub fn may_have_message(&self) -> bool {
        self.count >= HEADER_BYTES
    }

    fn drop_first(&mut self, count: usize) {
        self.bytes.copy_within(count..self.count, 0);
        self.count -= count;
    }

    /// The next complete message. Bytes that don't begin a message are discarded.
    pub fn next(&mut self) -> Option<Request> {
        loop {
            let here = &self.bytes[..self.count];
            // The next position at which a message can begin.
            let is_start = |&at: &usize| {
                let rest = &here[at..];
                rest[0] == MAGIC[0] && rest.get(1).is_none_or(|&second| second == MAGIC[1])
            };
            let start = (0..here.len()).find(is_start).unwrap_or(here.len());
            self.drop_first(start);
            let here = &self.bytes[..self.count];
            let length = half(here.get(..HEADER_BYTES)?, 4)? as usize;
            if length > MOST_ASKED_BYTES {
                self.drop_first(1);
                continue;
            }
            let payload = here.get(HEADER_BYTES..HEADER_BYTES + length)?;
            let mut sum = Checksum::new();
            sum.add(&here[..8]);
            sum.add(payload);
            let asked =
                Request::of(here[2], payload).filter(|_| half(here, 8) == Some(sum.value()));
            self.drop_first(if asked.is_some() {
                HEADER_BYTES + length
            } else {
                1
            });
            if asked.is_some() {
                return asked;
            }
        }
    }
}

/// The header of a message of `kind` with a payload of `length` bytes, which `payload_of` adds to the checksum.
pub(crate) fn header(
    kind: u8,
    length: u32,
    payload_of: impl FnOnce(&mut Checksum),
) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..2].copy_from_slice(&MAGIC);
    header[2] = kind;
    header[4..8].copy_from_slice(&length.to_le_bytes());
    let mut sum = Checksum::new();
    sum.add(&header[..8]);
    payload_of(&mut sum);
    header[8..].copy_from_slice(&sum.value().to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, payload: &[u8]) -> Vec<u8> {
        let header = header(kind, payload.len() as u32, |sum| sum.add(payload));
        [&header[..], payload].concat()
    }

    fn all(bytes: &[u8], piece: usize) -> Vec<Request> {
        let (mut input, mut found) = (Input::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            let mut rest = piece;
            while !rest.is_empty() {
                let room = input.room();
                let count = room.len().min(rest.len());
                assert!(count > 0, "no room, and no message");
                room[..count].copy_from_slice(&rest[..count]);
                input.grow(count);
                rest = &rest[count..];
                while let Some(asked) = input.next() {
                    found.push(asked);
                }
            }
        }
        found
    }

    #[test]
    fn messages_are_found_among_garbage_in_pieces_of_any_size() {
        let mut start = [0; 16];
        start[..8].copy_from_slice(&1_000_000u64.to_le_bytes());
        start[8..12].copy_from_slice(&64u32.to_le_bytes());
        start[12..].copy_from_slice(&128u32.to_le_bytes());
        let mut damaged = message(4, &[1; 8]);
        damaged[14] ^= 1;
        let too_long = header(4, u32::MAX, |_| ());
        let bytes = [
            &b"noise u uA"[..],
            &message(1, &[7; 16]),
            &damaged,
            &message(2, &start),
            b"uu",
            &too_long,
            &message(4, &[2; 20]),
            &message(99, &[]),
            &message(3, &[]),
            &message(4, &[2; 3]),
            &message(5, &[]),
        ]
        .concat();
        let expected = [
            Request::Attach {
                nonce: 0x0707_0707_0707_0707,
            },
            Request::Start {
                period_ns: 1_000_000,
                frames: 64,
                stack_bytes: 128,
            },
            Request::Ping {
                number: 0x0202_0202_0202_0202,
            },
            Request::Unknown,
            Request::Stop,
            Request::Detach,
        ];
        for piece in 1..60 {
            assert_eq!(all(&bytes, piece), expected, "{piece}");
        }
    }
}
