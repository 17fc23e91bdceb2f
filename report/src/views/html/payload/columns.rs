//! Encodes columns of numbers as bytes, and compresses them.

use flate2::Compression;
use flate2::write::DeflateEncoder;
use std::io::{self, Write};

/// Bytes of columns, one after the other.
#[derive(Debug, Default)]
pub(super) struct Columns {
    bytes: Vec<u8>,
}

impl Columns {
    /// Adds a number (LEB128).
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// Adds bytes, preceded by their length.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds a column, preceded by its length.
    pub(super) fn column(&mut self, numbers: impl ExactSizeIterator<Item = u64>) {
        self.number(numbers.len() as u64);
        numbers.for_each(|number| self.number(number));
    }

    /// All columns, compressed.
    pub(super) fn packed(self) -> io::Result<Vec<u8>> {
        let mut packer = DeflateEncoder::new(Vec::new(), Compression::best());
        packer.write_all(&self.bytes)?;
        packer.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::DeflateDecoder;
    use std::io::Read;

    #[test]
    fn numbers_are_leb128_behind_their_count() {
        let mut columns = Columns::default();
        columns.column([0, 127, 128, 300, u64::MAX].into_iter());
        columns.bytes(b"ab");
        let mut bytes = Vec::new();
        let packed = columns.packed().unwrap();
        DeflateDecoder::new(packed.as_slice())
            .read_to_end(&mut bytes)
            .unwrap();
        let largest = [[0xff; 9].as_slice(), &[1]].concat();
        let numbers = [[5, 0, 127, 0x80, 1, 0xac, 2].as_slice(), &largest].concat();
        assert_eq!(bytes, [numbers.as_slice(), &[2, b'a', b'b']].concat());
    }
}
