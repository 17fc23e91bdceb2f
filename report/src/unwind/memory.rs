//! Recorded memory. Input: an address. Output: eight bytes, or nothing if they were not recorded.

/// Bytes of a stopped guest.
pub trait Memory {
    /// The little-endian word at `address`, if all of it was recorded.
    fn word(&self, address: u64) -> Option<u64>;
}

/// One run of recorded bytes: the raw stack of a sample.
#[derive(Clone, Copy, Debug)]
pub struct Stack<'a> {
    /// Guest address of the first byte.
    pub base: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Memory for Stack<'_> {
    #[inline]
    fn word(&self, address: u64) -> Option<u64> {
        let into = usize::try_from(address.wrapping_sub(self.base)).ok()?;
        let word = self.bytes.get(into..)?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*word))
    }
}

/// Several runs, such as a kernel's stack and the interrupted one. The first that has a word wins.
impl Memory for [Stack<'_>] {
    fn word(&self, address: u64) -> Option<u64> {
        self.iter().find_map(|stack| stack.word(address))
    }
}

/// No memory: only registers were recorded.
#[derive(Clone, Copy, Debug)]
pub struct NoMemory;

impl Memory for NoMemory {
    fn word(&self, _address: u64) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_recorded_bytes_are_read() {
        let bytes: Vec<u8> = (0..16).collect();
        let stack = Stack {
            base: u64::MAX - 15,
            bytes: &bytes,
        };
        assert_eq!(stack.word(u64::MAX - 15), Some(0x0706_0504_0302_0100));
        assert_eq!(stack.word(u64::MAX - 7), Some(0x0f0e_0d0c_0b0a_0908));
        assert_eq!(stack.word(u64::MAX - 6), None);
        assert_eq!(stack.word(u64::MAX - 16), None);
        assert_eq!(stack.word(0), None);
        let both = [
            Stack {
                base: 0,
                bytes: &bytes[..8],
            },
            stack,
        ];
        assert_eq!(both[..].word(0), Some(0x0706_0504_0302_0100));
        assert_eq!(both[..].word(u64::MAX - 7), Some(0x0f0e_0d0c_0b0a_0908));
    }
}
