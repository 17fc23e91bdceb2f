//! Variable-length integers (format-spec.md, section 1): LEB128, and zigzag for signed differences.
//!
//! Encoding and decoding are side by side; decoding is total.

use crate::error::Fault;

/// Appends `value`, 7 bits a byte, low bits first.
#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the difference `to - from`, wrapping, so that small steps in either direction are short.
#[inline]
pub fn put_delta(out: &mut Vec<u8>, from: u64, to: u64) {
    put(out, zigzag(from, to));
}

/// Greatest zigzag difference that is stored as such. A word whose difference takes more than two bytes is stored
/// itself: pointers recur, and a compressor can use that.
const MOST_ZIGZAG: u64 = (1 << 14) - 2;

/// Appends a word: the difference from `from` if that is small, otherwise the word itself.
#[inline]
pub fn put_word(out: &mut Vec<u8>, from: u64, to: u64) {
    let zigzag = zigzag(from, to);
    if zigzag <= MOST_ZIGZAG {
        put(out, zigzag + 1);
    } else {
        out.push(0);
        out.extend_from_slice(&to.to_le_bytes());
    }
}

/// The difference `to - from`, wrapping, as a number that is small for small steps in either direction.
pub fn zigzag(from: u64, to: u64) -> u64 {
    let delta = to.wrapping_sub(from) as i64;
    ((delta << 1) ^ (delta >> 63)) as u64
}

/// Reads varints from the front of a column.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    name: &'static str,
}

impl<'a> Cursor<'a> {
    /// A cursor over `bytes`; `name` is for messages.
    pub fn new(bytes: &'a [u8], name: &'static str) -> Self {
        Cursor { bytes, name }
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Number of bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Out of line, since building and dropping a [`Fault`] inline would slow the readers down.
    #[cold]
    fn short(&self) -> Fault {
        Fault::Short(self.name)
    }

    /// Next byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, Fault> {
        let (&first, rest) = self.bytes.split_first().ok_or_else(|| self.short())?;
        self.bytes = rest;
        Ok(first)
    }

    /// Next varint.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Fault> {
        match self.bytes.split_first() {
            Some((&byte, rest)) if byte < 0x80 => {
                self.bytes = rest;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    /// Next varint, of any length.
    fn long_varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Fault::Range {
            what: self.name,
            value,
            rule: "a varint has at most 64 bits",
        })
    }

    /// Next varint, no larger than `most`.
    pub fn varint_up_to(&mut self, most: usize, rule: &'static str) -> Result<usize, Fault> {
        let value = self.varint()?;
        match usize::try_from(value) {
            Ok(small) if small <= most => Ok(small),
            _ => Err(Fault::Range {
                what: self.name,
                value,
                rule,
            }),
        }
    }

    /// Next difference, applied to `from`.
    #[inline]
    pub fn delta(&mut self, from: u64) -> Result<u64, Fault> {
        Ok(undo_zigzag(from, self.varint()?))
    }

    /// Next word, encoded as such or as its difference from `from`. Always inline: stacks have hundreds of words, and a
    /// call would cost more than decoding most of them.
    #[inline(always)]
    pub fn word(&mut self, from: u64) -> Result<u64, Fault> {
        if let Some(zigzag) = self.varint()?.checked_sub(1) {
            return Ok(undo_zigzag(from, zigzag));
        }
        let bytes = self.bytes.split_first_chunk();
        let (word, rest) = bytes.ok_or_else(|| self.short())?;
        self.bytes = rest;
        Ok(u64::from_le_bytes(*word))
    }

    /// Next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        if count > self.bytes.len() {
            return Err(self.short());
        }
        let (head, rest) = self.bytes.split_at(count);
        self.bytes = rest;
        Ok(head)
    }
}

fn undo_zigzag(from: u64, zigzag: u64) -> u64 {
    let delta = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
    from.wrapping_add(delta as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_survive(values: Vec<u64>) {
            let mut bytes = Vec::new();
            values.iter().for_each(|&value| put(&mut bytes, value));
            let mut cursor = Cursor::new(&bytes, "test");
            for value in values {
                prop_assert_eq!(cursor.varint().unwrap(), value);
            }
            prop_assert!(cursor.is_empty());
        }

        #[test]
        fn differences_survive(from: u64, to: u64) {
            let mut bytes = Vec::new();
            put_delta(&mut bytes, from, to);
            prop_assert_eq!(Cursor::new(&bytes, "test").delta(from).unwrap(), to);
        }

        #[test]
        fn words_survive(from: u64, to: u64, near in -9000i64..9000) {
            let mut bytes = Vec::new();
            let near = from.wrapping_add_signed(near);
            put_word(&mut bytes, from, to);
            put_word(&mut bytes, from, near);
            let mut cursor = Cursor::new(&bytes, "test");
            prop_assert_eq!(cursor.word(from).unwrap(), to);
            prop_assert_eq!(cursor.word(from).unwrap(), near);
            prop_assert!(cursor.is_empty());
        }

        #[test]
        fn any_bytes_end_in_a_value_or_an_error(bytes: Vec<u8>) {
            let mut cursor = Cursor::new(&bytes, "test");
            while cursor.varint().is_ok() {}
        }
    }

    #[test]
    fn too_many_bits_are_refused() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert!(matches!(
            Cursor::new(&bytes, "test").varint(),
            Err(Fault::Range { .. })
        ));
    }
}
