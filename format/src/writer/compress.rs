//! Compresses payloads as one zstd frame each (format-spec.md, section 3).
//!
//! The compressor ends its zstd block between columns, so that each column gets statistics of its own. A reader notices
//! nothing, and the frame is a seventh shorter than without.

use std::io;
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective::{self, ZSTD_e_end, ZSTD_e_flush};
use zstd::zstd_safe::{self, CCtx, CParameter, InBuffer, OutBuffer};

/// Level for most payloads: after the columns' own encodings, a higher level gains hardly anything.
const LEVEL: i32 = 1;
/// Level for payloads with raw stacks, in which the same pointers recur at great distances.
const STACK_LEVEL: i32 = 6;
/// Logarithms that replace those which the level would choose by the payload's size. For megabytes of stacks, its
/// tables and its window would take as much memory as everything else in a recorder.
const STACK_WINDOW_LOG: u32 = 20;
const STACK_HASH_LOG: u32 = 17;
/// Shortest column that is worth statistics of its own, in bytes.
const LEAST_OWN_BYTES: usize = 1024;

/// Compresses one payload after the other.
pub(crate) struct Compressor {
    context: CCtx<'static>,
    level: i32,
}

impl Compressor {
    pub fn new() -> io::Result<Self> {
        let mut compressor = Compressor {
            context: CCtx::create(),
            level: LEVEL,
        };
        compressor.set_level(LEVEL)?;
        Ok(compressor)
    }

    /// Sets whether the next payloads have raw stacks.
    pub fn expect_stacks(&mut self, has_stacks: bool) -> io::Result<()> {
        let level = if has_stacks { STACK_LEVEL } else { LEVEL };
        if level == self.level {
            Ok(())
        } else {
            self.set_level(level)
        }
    }

    fn set_level(&mut self, level: i32) -> io::Result<()> {
        self.level = level;
        let (window_log, hash_log) = match level {
            STACK_LEVEL => (STACK_WINDOW_LOG, STACK_HASH_LOG),
            _ => (0, 0), // as the level has them
        };
        for parameter in [
            CParameter::CompressionLevel(level),
            CParameter::WindowLog(window_log),
            CParameter::HashLog(hash_log),
        ] {
            self.context.set_parameter(parameter).map_err(failed)?;
        }
        Ok(())
    }

    /// Most bytes that [`Compressor::compress`] may need for a payload with `parts` parts.
    pub fn bound(payload_bytes: usize, parts: usize) -> usize {
        // Each part ends a zstd block, which has a header of 3 bytes and may end early.
        zstd_safe::compress_bound(payload_bytes) + 64 * (parts + 1)
    }

    /// Compresses `payload` to the start of `out` and returns the compressed length. `parts` are the lengths of its
    /// parts, in order; the rest of the payload is one more part.
    pub fn compress(
        &mut self,
        payload: &[u8],
        parts: &[usize],
        out: &mut [u8],
    ) -> io::Result<usize> {
        let size = Some(payload.len() as u64);
        self.context.set_pledged_src_size(size).map_err(failed)?;
        let mut out = OutBuffer::around(out);
        let mut rest = payload;
        let mut together = 0;
        for &part in parts {
            if part >= LEAST_OWN_BYTES {
                for length in [together, part] {
                    let (head, tail) = rest.split_at(length.min(rest.len()));
                    self.step(head, &mut out, ZSTD_e_flush)?;
                    rest = tail;
                }
                together = 0;
            } else {
                together += part;
            }
        }
        self.step(rest, &mut out, ZSTD_e_end)?;
        Ok(out.pos())
    }

    fn step(
        &mut self,
        input: &[u8],
        out: &mut OutBuffer<'_, [u8]>,
        directive: ZSTD_EndDirective,
    ) -> io::Result<()> {
        let mut input = InBuffer::around(input);
        loop {
            let before = out.pos();
            let left = self.context.compress_stream2(out, &mut input, directive);
            if left.map_err(failed)? == 0 {
                return Ok(());
            }
            if out.pos() == before {
                // Impossible, since the bound leaves enough room.
                return Err(io::Error::other("zstd needs more room than its bound"));
            }
        }
    }
}

fn failed(code: usize) -> io::Error {
    io::Error::other(format!("zstd: {}", zstd_safe::get_error_name(code)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A block of stacks with as many bytes as are allowed, in which words recur.
    #[test]
    fn a_large_block_of_stacks_takes_little_memory() {
        let mut random = 1u64;
        let words = (0..1 << 18).flat_map(|_| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (0xffff_8880_0000_0000 | random >> 52 << 6).to_le_bytes()
        });
        let payload: Vec<u8> = words.collect();
        let mut compressor = Compressor::new().unwrap();
        compressor.expect_stacks(true).unwrap();
        let parts = [1000, 2000, payload.len() - 100_000];
        let mut out = vec![0; Compressor::bound(payload.len(), parts.len())];
        let length = compressor.compress(&payload, &parts, &mut out).unwrap();
        let back = zstd::bulk::decompress(&out[..length], payload.len()).unwrap();
        assert!(back == payload, "other bytes");
        let bytes = compressor.context.sizeof();
        assert!(bytes <= 3 << 20, "{bytes} bytes");
    }

    proptest! {
        #[test]
        fn any_parts_give_one_frame(payload: Vec<u8>, parts in prop::collection::vec(0usize..3000, 0..9),
            repeat in 1usize..200) {
            let payload = payload.repeat(repeat);
            let mut out = vec![0; Compressor::bound(payload.len(), parts.len())];
            let mut compressor = Compressor::new().unwrap();
            for _ in 0..2 {
                let length = compressor.compress(&payload, &parts, &mut out).unwrap();
                let read = zstd::bulk::decompress(&out[..length], payload.len()).unwrap();
                prop_assert_eq!(&read, &payload);
            }
        }
    }
}
