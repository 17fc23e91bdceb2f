//! Chooses the size of the kernel's ring buffers by the size of samples, and the size of samples by that of buffers.

/// How long the recorder may be delayed without losses.
const RESERVE_SECONDS: f64 = 0.5;
/// The least of that delay. Samples that would leave less get fewer stack bytes, if that is allowed.
const LEAST_RESERVE_SECONDS: f64 = 0.25;
/// Bytes of a sample without its stack: chain, registers and header.
const SAMPLE_BYTES: u64 = 1536;
/// Smallest and largest buffer of a processor.
const LEAST_BYTES: u64 = 2 << 20;
const MOST_BYTES: u64 = 32 << 20;
/// Most bytes for all processors, unless each has only [`LEAST_BYTES`].
const MOST_TOGETHER_BYTES: u64 = 512 << 20;
/// Fewest stack bytes of a sample, however small the buffers are.
const LEAST_STACK_BYTES: u32 = 4 << 10;

/// Bytes of the ring buffer of each of `processors` processors: a power of two.
pub fn ring_bytes(stack_bytes: u32, rate_hz: u64, processors: usize) -> usize {
    let sample_bytes = SAMPLE_BYTES + u64::from(stack_bytes);
    let needed = (sample_bytes as f64 * rate_hz as f64 * RESERVE_SECONDS) as u64;
    let share = MOST_TOGETHER_BYTES / processors.max(1) as u64;
    let most = MOST_BYTES.min(share).max(LEAST_BYTES);
    let bytes = needed.clamp(LEAST_BYTES, most).next_power_of_two();
    // The next power of two may exceed the processor's share.
    if bytes > most {
        bytes as usize / 2
    } else {
        bytes as usize
    }
}

/// How many of the `wanted` stack bytes leave enough samples in a buffer of `ring_bytes`: a multiple of 8.
pub fn fitting_stack_bytes(wanted: u32, rate_hz: u64, ring_bytes: usize) -> u32 {
    let samples = (rate_hz as f64 * LEAST_RESERVE_SECONDS).max(1.0);
    let room = (ring_bytes as f64 / samples) as u64;
    let room = u32::try_from(room.saturating_sub(SAMPLE_BYTES)).unwrap_or(u32::MAX);
    wanted.min(room.max(LEAST_STACK_BYTES)) & !7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_kernels_buffers() {
        // By frame pointers; fast; with whole stacks, slow (the default) and fast.
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

    #[test]
    fn stack_bytes_that_buffers_have_room_for() {
        let fitting = |rate_hz, processors| {
            let ring = ring_bytes(65_528, rate_hz, processors);
            fitting_stack_bytes(65_528, rate_hz, ring)
        };
        // As many as the kernel gives at all usual rates, and on large machines.
        assert_eq!(fitting(99, 2), 65_528);
        assert_eq!(fitting(997, 2), 65_528);
        assert_eq!(fitting(99, 128), 65_528);
        assert!((20_000..30_000).contains(&fitting(4999, 2)));
        assert!((30_000..40_000).contains(&fitting(997, 64)));
        // The limit on locked memory of an unprivileged user: 512 KiB a processor (perf_event_mlock_kb).
        let few = fitting_stack_bytes(65_528, 99, 512 << 10);
        assert!((16_000..24_000).contains(&few), "{few}");
        assert_eq!(
            fitting_stack_bytes(65_528, 100_000, 64 << 10),
            LEAST_STACK_BYTES
        );
        assert_eq!(fitting_stack_bytes(128, 100_000, 64 << 10), 128);
    }
}
