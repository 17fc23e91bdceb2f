//! CRC-32C of frames (docs/agent-protocol.md, section 2), four bits at a time with a table of 64 bytes.

/// The reflected polynomial (RFC 3720, 12.1).
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 16] = table();

const fn table() -> [u32; 16] {
    let mut table = [0; 16];
    let mut value = 0;
    while value < 16 {
        let mut rest = value as u32;
        let mut bit = 0;
        while bit < 4 {
            rest = rest >> 1 ^ if rest & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[value] = rest;
        value += 1;
    }
    table
}

/// State of a checksum.
#[derive(Clone, Copy)]
pub(crate) struct Checksum(u32);

impl Checksum {
    pub fn new() -> Self {
        Checksum(u32::MAX)
    }

    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 ^= u32::from(*byte);
            for _ in 0..2 {
                self.0 = self.0 >> 4 ^ TABLE[(self.0 & 15) as usize];
            }
        }
    }

    pub fn value(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_the_standard() {
        let mut sum = Checksum::new();
        sum.add(b"1234");
        sum.add(b"56789");
        assert_eq!(sum.value(), 0xe306_9283);
    }
}
