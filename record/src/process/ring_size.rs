//! Size of the kernel's ring buffers, by the size of samples.

/// How long the recorder may be delayed without losses.
const RESERVE_SECONDS: f64 = 0.5;
/// Bytes of a sample without its stack: chain, registers and header.
const SAMPLE_BYTES: u64 = 1536;
/// Smallest and largest buffer of a processor.
const LEAST_BYTES: u64 = 2 << 20;
const MOST_BYTES: u64 = 32 << 20;
/// Most bytes for all processors, unless each has only [`LEAST_BYTES`].
const MOST_TOGETHER_BYTES: u64 = 512 << 20;

/// Bytes of the ring buffer of each of so many processors: a power of two.
pub fn ring_bytes(stack_bytes: u32, rate_hz: u64, processors: usize) -> usize {
    let sample_bytes = SAMPLE_BYTES + u64::from(stack_bytes);
    let needed = (sample_bytes as f64 * rate_hz as f64 * RESERVE_SECONDS) as u64;
    let share = MOST_TOGETHER_BYTES / processors.max(1) as u64;
    let most = MOST_BYTES.min(share).max(LEAST_BYTES);
    let bytes = needed.clamp(LEAST_BYTES, most).next_power_of_two();
    // The next power of two may be beyond the share.
    match bytes > most {
        true => bytes as usize / 2,
        false => bytes as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_kernels_buffers() {
        // By default; fast; with whole stacks, slow and fast.
        assert_eq!(ring_bytes(128, 99, 2), 2 << 20);
        assert_eq!(ring_bytes(128, 20_000, 2), 16 << 20);
        assert_eq!(ring_bytes(65_528, 99, 2), 4 << 20);
        assert_eq!(ring_bytes(65_528, 997, 2), 32 << 20);
        assert_eq!(ring_bytes(u32::MAX, u64::MAX, 1), MOST_BYTES as usize);
        for processors in [1, 16, 17, 64, 100, 256, 8192] {
            let each = ring_bytes(65_528, 100_000, processors) as u64;
            assert!(each.is_power_of_two() && each >= LEAST_BYTES);
            let together = each * processors as u64;
            assert!(together <= MOST_TOGETHER_BYTES.max(LEAST_BYTES * processors as u64));
        }
    }
}
