//! Frames of docs/agent-protocol.md, written from that page alone.

#![allow(dead_code, reason = "each test uses a part")]

use std::io::{Read, Write};

pub const ATTACH: u8 = 1;
pub const START: u8 = 2;
pub const STOP: u8 = 3;
pub const PING: u8 = 4;
pub const DETACH: u8 = 5;
pub const HELLO: u8 = 0x81;
pub const BUSY: u8 = 0x82;
pub const STATE: u8 = 0x83;
pub const SAMPLE: u8 = 0x84;
pub const LOSSES: u8 = 0x85;
pub const CLOCK: u8 = 0x86;

/// CRC-32C, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = sum >> 1 ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !sum
}

/// A frame.
pub fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![b'u', b'A', kind, 0];
    frame.extend((payload.len() as u32).to_le_bytes());
    frame.extend(crc(&[&frame[..], payload].concat()).to_le_bytes());
    frame.extend(payload);
    frame
}

/// Reads a frame from a stream that contains nothing else.
pub fn read(stream: &mut impl Read) -> std::io::Result<(u8, Vec<u8>)> {
    let mut header = [0; 12];
    stream.read_exact(&mut header)?;
    let mut payload = vec![0; u32::from_le_bytes(header[4..8].try_into().unwrap()) as usize];
    stream.read_exact(&mut payload)?;
    assert_eq!(frame(header[2], &payload)[..12], header);
    Ok((header[2], payload))
}

/// Reads frames up to the first of this type.
pub fn read_kind(stream: &mut impl Read, kind: u8) -> std::io::Result<Vec<u8>> {
    loop {
        let (found, payload) = read(stream)?;
        if found == kind {
            return Ok(payload);
        }
    }
}

pub fn say(stream: &mut impl Write, kind: u8, payload: &[u8]) -> std::io::Result<()> {
    stream.write_all(&frame(kind, payload))
}

/// The payload of an attach.
pub fn attach(nonce: u64) -> Vec<u8> {
    [&[1, 0, 0, 0, 0, 0, 0, 0][..], &nonce.to_le_bytes()].concat()
}

/// The payload of a start.
pub fn start(period_ns: u64, frames: u32, stack_bytes: u32) -> Vec<u8> {
    [
        &period_ns.to_le_bytes()[..],
        &frames.to_le_bytes(),
        &stack_bytes.to_le_bytes(),
    ]
    .concat()
}

/// A number of 8 bytes in a payload.
pub fn word(payload: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(payload[at..at + 8].try_into().unwrap())
}
