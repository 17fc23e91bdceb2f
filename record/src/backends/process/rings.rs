//! Drains the ring buffers of all processors as one stream, in order of time.
//!
//! The order matters: the record of a fork is in the buffer of the parent's processor. It has to be read before the
//! child's samples, which may be in another buffer.

use crate::sys::ring_buffer::{Next, RingBuffer};

/// Passes the `wanted` records up to `until_ns`, which must have passed already, to `each`, and discards the others
/// without copying them. Both closures get the number of the buffer; `each` also gets a record's type, its `misc` field
/// and the bytes after the header.
pub fn drain(
    rings: &mut [RingBuffer],
    until_ns: u64,
    mut wanted: impl FnMut(usize, &Next) -> bool,
    mut each: impl FnMut(usize, u32, u16, &[u8]),
) {
    rings.iter_mut().for_each(RingBuffer::look);
    while let Some(Turn { at, ring, up_to_ns }) = next_turn(rings, until_ns) {
        while let Some(next) = ring.next().filter(|next| next.time_ns <= up_to_ns) {
            if wanted(at, &next) {
                ring.take(|kind, misc, body| each(at, kind, misc, body));
            } else {
                ring.skip();
            }
        }
    }
}

/// The buffer with the earliest record, and the time up to which no other buffer has one.
struct Turn<'a> {
    at: usize,
    ring: &'a mut RingBuffer,
    up_to_ns: u64,
}

fn next_turn(rings: &mut [RingBuffer], until_ns: u64) -> Option<Turn<'_>> {
    let mut first: Option<(usize, u64)> = None;
    let mut up_to_ns = until_ns;
    for (at, ring) in rings.iter().enumerate() {
        let Some(Next { time_ns, .. }) = ring.next() else {
            continue;
        };
        let later_ns = match first {
            Some((_, first_ns)) if first_ns <= time_ns => time_ns,
            other => {
                first = Some((at, time_ns));
                other.map_or(u64::MAX, |(_, before_ns)| before_ns)
            }
        };
        up_to_ns = up_to_ns.min(later_ns);
    }
    let (at, first_ns) = first?;
    (first_ns <= until_ns).then(|| Turn {
        at,
        ring: &mut rings[at],
        up_to_ns,
    })
}
