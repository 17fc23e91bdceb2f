//! The section "segments" of an embedded image (format-spec.md, section 7).

use crate::images::{ImageAddress, Segment, Segments};
use uprof::varint::{self, Cursor};

const EXECUTABLE: u64 = 1;
/// What one segment takes at least (bytes).
const SEGMENT_BYTES_MIN: usize = 5;

pub(super) fn write(segments: &Segments) -> Vec<u8> {
    let mut out = Vec::new();
    if segments.is_empty() {
        return out;
    }
    varint::put(&mut out, segments.len() as u64);
    for segment in segments.iter() {
        varint::put(&mut out, segment.address.0);
        varint::put(&mut out, segment.file_offset);
        varint::put(&mut out, segment.file_bytes);
        varint::put(&mut out, segment.memory_bytes);
        varint::put(&mut out, if segment.executable { EXECUTABLE } else { 0 });
    }
    out
}

pub(super) fn parse(bytes: &[u8]) -> Option<Segments> {
    let mut cursor = Cursor::new(bytes, "segment");
    let count = cursor
        .varint_up_to(bytes.len() / SEGMENT_BYTES_MIN, "segments fit")
        .ok()?;
    let mut segments = Vec::with_capacity(count);
    for _ in 0..count {
        let mut next = || cursor.varint().ok();
        segments.push(Segment {
            address: ImageAddress(next()?),
            file_offset: next()?,
            file_bytes: next()?,
            memory_bytes: next()?,
            executable: next()? & EXECUTABLE != 0,
        });
    }
    Some(Segments(segments))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn segments_survive() {
        let segment = Segment {
            address: ImageAddress(u64::MAX),
            file_offset: 0x1000,
            file_bytes: 7,
            memory_bytes: 9,
            executable: true,
        };
        let segments = Segments(vec![
            segment,
            Segment {
                executable: false,
                ..segment
            },
        ]);
        assert_eq!(parse(&write(&segments)), Some(segments));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
