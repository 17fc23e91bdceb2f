//! Finds kallsyms in a kernel's memory by its token table. That table holds the text that each byte value stands for in
//! a compressed name. Every kernel has names with all ten digits, and digits stand for themselves, so the texts `0\0`
//! to `9\0` follow each other there. Source: scripts/kallsyms.c of Linux.

use super::KernelMemory;
use std::ops::Range;

/// The digits in the token table.
const DIGITS: &[u8; 20] = b"0\x001\x002\x003\x004\x005\x006\x007\x008\x009\0";
/// Bytes read at a time.
const WINDOW_BYTES: usize = 64 << 10;
const PAGE_BYTES: u64 = 4096;

/// Searches `most_bytes` from `start` on for the digits and calls `found` with each address; missing pages are skipped.
/// Ends, and returns `true`, once `found` returns `true`.
#[cold]
pub fn find(
    memory: &mut dyn KernelMemory,
    start: u64,
    most_bytes: u64,
    found: &mut dyn FnMut(&mut dyn KernelMemory, u64) -> bool,
) -> bool {
    search(
        memory,
        start..start.saturating_add(most_bytes),
        position,
        found,
    )
}

/// As [`find`], for `wanted` (at most 20 bytes) at addresses that are multiples of 4.
#[cold]
pub fn find_bytes(
    memory: &mut dyn KernelMemory,
    range: Range<u64>,
    wanted: &[u8],
    found: &mut dyn FnMut(&mut dyn KernelMemory, u64) -> bool,
) -> bool {
    debug_assert!(wanted.len() <= DIGITS.len());
    let position = |bytes: &[u8]| {
        bytes
            .windows(wanted.len())
            .position(|piece| piece == wanted)
    };
    search(memory, range, position, &mut |memory, at| {
        at.is_multiple_of(4) && found(memory, at)
    })
}

fn search(
    memory: &mut dyn KernelMemory,
    range: Range<u64>,
    position: impl Fn(&[u8]) -> Option<usize>,
    found: &mut dyn FnMut(&mut dyn KernelMemory, u64) -> bool,
) -> bool {
    let mut window = vec![0; WINDOW_BYTES];
    let Range { start: mut at, end } = range;
    while at < end {
        let wanted = WINDOW_BYTES.min((end - at) as usize);
        let got = memory.read(at, &mut window[..wanted]).min(wanted);
        let mut from = 0;
        while let Some(place) = position(&window[from..got]) {
            if found(memory, at + (from + place) as u64) {
                return true;
            }
            from += place + 1;
        }
        at = if got < wanted {
            ((at + got as u64) & !(PAGE_BYTES - 1)).saturating_add(PAGE_BYTES)
        } else if got == WINDOW_BYTES {
            // Digits that cross the end are whole in the next window.
            at + (got - DIGITS.len()) as u64
        } else {
            end
        };
    }
    false
}

/// Bytes that [`likely`] reads at each probe, and the distance of probes; every kernel's table is longer.
const PROBE_BYTES: usize = 64;
const PROBES_APART: u64 = 128 << 10;
/// Length of the longest symbol.
const LONGEST_STEP: u32 = 64 << 10;

/// Addresses from `start` on where a table of symbol addresses may be: numbers that ascend or descend in small steps.
/// The digits are there or shortly before. A search of all memory would read ten times as much.
#[cold]
pub fn likely(memory: &mut dyn KernelMemory, start: u64, most_bytes: u64) -> Vec<u64> {
    let mut found: Vec<u64> = Vec::new();
    for place in 0..most_bytes / PROBES_APART {
        let at = start.saturating_add(place * PROBES_APART);
        let mut probe = [0; PROBE_BYTES];
        let is_table = memory.read(at, &mut probe) == PROBE_BYTES && are_places(&probe);
        // Only the first probe of a table counts.
        let is_new =
            found.len() < LIKELY_MAX && found.last().is_none_or(|last| at - last > TABLES_APART);
        if is_table && is_new {
            found.push(at);
        }
    }
    found
}

const LIKELY_MAX: usize = 8;
const TABLES_APART: u64 = 2 << 20;

fn are_places(bytes: &[u8; PROBE_BYTES]) -> bool {
    let (words, _) = bytes.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let goes = |step: fn(u32, u32) -> u32| {
        let mut pairs = words.windows(2).map(|pair| step(pair[0], pair[1]));
        pairs.all(|step| step <= LONGEST_STEP)
    };
    let differ = words.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let ascend = goes(|before, after| after.wrapping_sub(before));
    let descend = goes(|before, after| before.wrapping_sub(after));
    (ascend || descend) && differ > words.len() / 2
}

/// Position of [`DIGITS`] in `bytes`. They are 20 bytes long, so testing every 19th byte is sufficient. The tested byte
/// is then a digit or precedes one.
fn position(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < bytes.len() {
        let digit = match bytes[at] {
            0 => at + 1,
            _ => at,
        };
        if let Some(byte @ b'0'..=b'9') = bytes.get(digit)
            && let Some(start) = digit.checked_sub(usize::from(byte - b'0') * 2)
            && bytes[start..].starts_with(DIGITS)
        {
            return Some(start);
        }
        at += DIGITS.len() - 1;
    }
    None
}
