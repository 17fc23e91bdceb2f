//! Fields of protobuf messages, one after another: from a stream, of which no more than one field is in memory, and
//! from the bytes of a field. Nothing here knows what a field means.

use super::PprofError;
use crate::work;
use std::io::{BufRead, Read};

/// Longest field of the file (bytes): a sample with its labels, a location, a string.
const FIELD_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a varint.
const VARINT_BYTES_MAX: u32 = 10;
/// Bytes read that cost one step of a run's budget.
const BYTES_PER_STEP: u64 = 16;

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'b> {
    /// A varint, or a number of fixed length.
    Number(u64),
    /// A string, a message or packed numbers.
    Bytes(&'b [u8]),
}

impl Value<'_> {
    /// The number; 0 for bytes.
    pub(super) fn number(self) -> u64 {
        match self {
            Value::Number(number) => number,
            Value::Bytes(_) => 0,
        }
    }

    /// Appends the number, or all of the packed numbers.
    pub(super) fn numbers(self, into: &mut Vec<u64>) -> Result<(), PprofError> {
        match self {
            Value::Number(number) => into.push(number),
            Value::Bytes(mut packed) => {
                while !packed.is_empty() {
                    into.push(varint(&mut packed)?.ok_or(PprofError::Cut)?);
                }
            }
        }
        Ok(())
    }
}

/// The fields of a file.
pub(super) struct Stream<R> {
    input: R,
    field: Vec<u8>,
    most_bytes: u64,
}

impl<R: BufRead> Stream<R> {
    /// Reads at most `most_bytes`.
    pub(super) fn new(input: R, most_bytes: u64) -> Self {
        Stream {
            input,
            field: Vec::new(),
            most_bytes,
        }
    }

    /// The next field with its number; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Value<'_>)>, PprofError> {
        let Some((key, length)) = start(&mut self.input)? else {
            return Ok(None);
        };
        if key & 7 == 0 {
            self.take(1)?;
            return Ok(Some((key >> 3, Value::Number(length))));
        }
        if length > FIELD_BYTES_MAX {
            return Err(PprofError::LongField(length));
        }
        self.take(length)?;
        self.field.clear();
        let mut part = (&mut self.input).take(length);
        if part.read_to_end(&mut self.field)? as u64 != length {
            return Err(PprofError::Cut);
        }
        Ok(Some((key >> 3, value(key & 7, &self.field))))
    }

    fn take(&mut self, bytes: u64) -> Result<(), PprofError> {
        work::take(1 + bytes / BYTES_PER_STEP);
        let left = self.most_bytes.checked_sub(bytes.saturating_add(1));
        self.most_bytes = left.ok_or(PprofError::TooLong)?;
        Ok(())
    }
}

/// The fields of a message in memory.
pub(super) struct Message<'b>(pub(super) &'b [u8]);

impl<'b> Message<'b> {
    /// The next field with its number; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Value<'b>)>, PprofError> {
        let Some((key, length)) = start(&mut self.0)? else {
            return Ok(None);
        };
        if key & 7 == 0 {
            return Ok(Some((key >> 3, Value::Number(length))));
        }
        let length = usize::try_from(length).map_err(|_| PprofError::Cut)?;
        let (field, rest) = self.0.split_at_checked(length).ok_or(PprofError::Cut)?;
        self.0 = rest;
        Ok(Some((key >> 3, value(key & 7, field))))
    }

    /// The numbers of its fields 1 and 2.
    pub(super) fn pair(mut self) -> Result<[u64; 2], PprofError> {
        let mut found = [0; 2];
        while let Some((number, value)) = self.next()? {
            if let 1 | 2 = number {
                found[number as usize - 1] = value.number();
            }
        }
        Ok(found)
    }
}

/// The key of a field, and its length, or its value if it is a varint; `None` at the end.
fn start(input: &mut impl BufRead) -> Result<Option<(u64, u64)>, PprofError> {
    let Some(key) = varint(input)? else {
        return Ok(None);
    };
    let length = match key & 7 {
        0 | 2 => varint(input)?.ok_or(PprofError::Cut)?,
        1 => 8,
        5 => 4,
        other => return Err(PprofError::WireType(other)),
    };
    Ok(Some((key, length)))
}

fn value(wire_type: u64, field: &[u8]) -> Value<'_> {
    match (wire_type, field.first_chunk(), field.first_chunk()) {
        (1, Some(number), _) => Value::Number(u64::from_le_bytes(*number)),
        (5, _, Some(number)) => Value::Number(u64::from(u32::from_le_bytes(*number))),
        _ => Value::Bytes(field),
    }
}

/// Reads a varint; `None` if nothing is left.
fn varint<R: BufRead + ?Sized>(input: &mut R) -> Result<Option<u64>, PprofError> {
    let mut number = 0;
    for at in 0..VARINT_BYTES_MAX {
        let Some(&byte) = input.fill_buf()?.first() else {
            return if at == 0 {
                Ok(None)
            } else {
                Err(PprofError::Cut)
            };
        };
        input.consume(1);
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Ok(Some(number));
        }
    }
    Err(PprofError::LongNumber)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All fields of a message, as a stream and in memory, which must agree.
    fn fields(bytes: &[u8]) -> Result<Vec<(u64, u64)>, String> {
        let mut message = Message(bytes);
        let mut stream = Stream::new(bytes, 1 << 20);
        let mut found = Vec::new();
        loop {
            let own = message.next().map_err(|error| error.to_string());
            let read = stream.next().map_err(|error| error.to_string());
            assert_eq!(own, read);
            match own? {
                Some((number, value)) => found.push((number, value.number())),
                None => return Ok(found),
            }
        }
    }

    #[test]
    fn fields_of_all_wire_types_are_read_and_what_is_cut_is_an_error() {
        let bytes = [
            0x08, 0xac, 0x02, 0x12, 1, b'x', 0x1d, 4, 0, 0, 0, 0x21, 5, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(fields(&bytes).unwrap(), [(1, 300), (2, 0), (3, 4), (4, 5)]);
        for end in [1, 2, 4, 5, 8, 12, 19] {
            assert!(fields(&bytes[..end]).is_err(), "{end}");
        }
        assert!(fields(&[0x0b]).is_err(), "a group");
        assert!(fields(&[0x08; 12]).is_ok());
        assert!(fields(&[[0x08].as_slice(), &[0xff; 11]].concat()).is_err());
        let mut packed = Vec::new();
        Value::Bytes(&[1, 0xac, 2]).numbers(&mut packed).unwrap();
        assert_eq!(packed, [1, 300]);
    }

    #[test]
    fn a_field_of_a_gigabyte_is_refused_before_it_is_read() {
        let mut stream = Stream::new(&[0x32, 0x80, 0x80, 0x80, 0x80, 0x04][..], u64::MAX);
        assert!(matches!(
            stream.next(),
            Err(PprofError::LongField(0x4000_0000))
        ));
    }
}
