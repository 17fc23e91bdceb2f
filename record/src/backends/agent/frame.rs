//! Finds frames in a stream of arbitrary bytes (docs/agent-protocol.md, section 2).
//!
//! Input: untrusted bytes. Output: frames with a correct checksum. Must not allocate after it was made, and gives up if
//! too many bytes are not frames.

/// Bytes before a payload.
const HEADER_BYTES: usize = 12;
/// Longest payload.
pub const MOST_PAYLOAD_BYTES: usize = 32768;
/// Bytes taken from the stream before they are decoded.
const BUFFER_BYTES: usize = 4 * (HEADER_BYTES + MOST_PAYLOAD_BYTES);
/// Frames with a wrong checksum before we give up. Each costs as much as a sound one, and decoding then starts again at
/// the byte after its first.
pub const MOST_DAMAGED: u64 = 1000;
/// Bytes between frames before we give up.
pub const MOST_GARBAGE_BYTES: u64 = 1 << 20;
const TABLE: [u32; 256] = table();

/// CRC-32C, a byte at a time (RFC 3720, 12.1).
const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut value = 0;
    while value < 256 {
        let mut rest = value as u32;
        let mut bit = 0;
        while bit < 8 {
            rest = rest >> 1 ^ if rest & 1 == 1 { 0x82f6_3b78 } else { 0 };
            bit += 1;
        }
        table[value] = rest;
        value += 1;
    }
    table
}

fn checksum(parts: [&[u8]; 2]) -> u32 {
    let bytes = parts.into_iter().flatten();
    !bytes.fold(u32::MAX, |sum, byte| {
        sum >> 8 ^ TABLE[usize::from(sum as u8 ^ byte)]
    })
}

/// Writes a frame into `into`, which has room for it; returns its length in bytes.
pub fn frame(kind: u8, payload: &[u8], into: &mut [u8]) -> usize {
    let (header, rest) = into.split_at_mut(HEADER_BYTES);
    header.copy_from_slice(&[b'u', b'A', kind, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    header[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    let sum = checksum([&header[..8], payload]);
    header[8..].copy_from_slice(&sum.to_le_bytes());
    rest[..payload.len()].copy_from_slice(payload);
    HEADER_BYTES + payload.len()
}

/// The little-endian number of `N` bytes at `at`.
pub(super) fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(N)?)?.iter();
    Some(
        bytes
            .rev()
            .fold(0, |number, &byte| number << 8 | u64::from(byte)),
    )
}

/// Finds frames.
pub struct Decoder {
    bytes: Box<[u8]>,
    from: usize,
    to: usize,
    /// Bytes between frames.
    pub garbage_bytes: u64,
    /// Frames with a wrong checksum.
    pub damaged: u64,
}

impl Decoder {
    /// Allocates all the memory that it will need.
    pub fn new() -> Self {
        Decoder {
            bytes: vec![0; BUFFER_BYTES].into(),
            from: 0,
            to: 0,
            garbage_bytes: 0,
            damaged: 0,
        }
    }

    /// The buffer for the next bytes; never empty once all frames were taken.
    pub fn room(&mut self) -> &mut [u8] {
        self.bytes.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        &mut self.bytes[self.to..]
    }

    /// Adds `count` bytes that were received into the room.
    pub fn grow(&mut self, count: usize) {
        self.to = (self.to + count).min(self.bytes.len());
    }

    /// Kind and payload of the next frame that is complete.
    pub fn next_frame(&mut self) -> Option<(u8, &[u8])> {
        loop {
            let here = &self.bytes[self.from..self.to];
            let is_start = |at: &usize| {
                here[*at] == b'u' && here.get(at + 1).is_none_or(|&second| second == b'A')
            };
            let start = (0..here.len()).find(is_start).unwrap_or(here.len());
            self.from += start;
            self.garbage_bytes += start as u64;
            let here = &self.bytes[self.from..self.to];
            let header = here.get(..HEADER_BYTES)?;
            let length = number::<4>(header, 4)? as usize;
            if length > MOST_PAYLOAD_BYTES {
                self.skip();
                continue;
            }
            let end = HEADER_BYTES + length;
            let payload = here.get(HEADER_BYTES..end)?;
            if number::<4>(header, 8) != Some(u64::from(checksum([&header[..8], payload]))) {
                self.damaged += 1;
                self.skip();
                if self.gives_up() {
                    return None;
                }
                continue;
            }
            let (kind, payload_from) = (header[2], self.from + HEADER_BYTES);
            self.from += end;
            return Some((kind, &self.bytes[payload_from..self.from]));
        }
    }

    fn skip(&mut self) {
        self.from += 1;
        self.garbage_bytes += 1;
    }

    /// Whether so many bytes are not frames that the sender can't be an agent.
    pub fn gives_up(&self) -> bool {
        self.damaged > MOST_DAMAGED || self.garbage_bytes > MOST_GARBAGE_BYTES
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::agent::message::{CLOCK, SAMPLE};

    fn framed(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES + payload.len()];
        assert_eq!(frame(kind, payload, &mut bytes), bytes.len());
        bytes
    }

    #[test]
    fn the_sum_of_the_standard() {
        assert_eq!(checksum([b"1234", b"56789"]), 0xe306_9283);
    }

    #[test]
    fn frames_are_found_among_garbage_in_pieces_of_any_size() {
        let long = vec![7; MOST_PAYLOAD_BYTES];
        let mut damaged = framed(SAMPLE, &[1; 100]);
        damaged[50] ^= 4;
        let bytes = [
            &b"noise uuA"[..],
            &framed(CLOCK, &[1; 16]),
            &damaged,
            &framed(SAMPLE, &long),
            b"u",
            &framed(9, b""),
        ]
        .concat();
        for piece in [1, 13, 1000, 1 << 20] {
            let (mut decoder, mut found) = (Decoder::new(), Vec::new());
            for piece in bytes.chunks(piece) {
                decoder.room()[..piece.len()].copy_from_slice(piece);
                decoder.grow(piece.len());
                while let Some((kind, payload)) = decoder.next_frame() {
                    found.push((kind, payload.len()));
                }
            }
            assert_eq!(
                found,
                [(CLOCK, 16), (SAMPLE, MOST_PAYLOAD_BYTES), (9, 0)],
                "{piece}"
            );
            assert_eq!(
                (decoder.damaged, decoder.garbage_bytes),
                (1, 7 + 2 - 2 + 2 + 112 + 1)
            );
        }
    }

    #[test]
    fn who_sends_garbage_without_end_is_given_up() {
        for noise in [
            &b"uA\x84\0\0\x40\0\0"[..],
            b"uA\x84\0\xff\xff\xff\xff",
            b"noise",
        ] {
            let (mut decoder, mut taken) = (Decoder::new(), 0);
            while !decoder.gives_up() {
                assert!(decoder.next_frame().is_none());
                let room = decoder.room();
                let count = room.len();
                room.iter_mut()
                    .zip(noise.iter().cycle())
                    .for_each(|(to, from)| *to = *from);
                decoder.grow(count);
                taken += count;
                assert!(taken < 8 << 20);
            }
        }
    }
}
