//! Records of uftrace, 16 bytes each.

/// Size of a record (bytes): a time, and a word of bit fields.
pub(super) const RECORD_BYTES: usize = 16;

/// Kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Entry,
    Exit,
    Lost,
    Event,
}

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub time_ns: u64,
    pub what: What,
    pub depth: u16,
    pub address: u64,
}

impl Record {
    /// Parses a record. Fields of its word, from the lowest bit: kind (2 bits), whether data follows (1), a magic
    /// number (3), depth (10), address (48).
    pub(super) fn of(bytes: [u8; RECORD_BYTES]) -> Result<Record, &'static str> {
        let (time, word) = bytes.split_at(8);
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .rev()
                .fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let (time_ns, word) = (number(time), number(word));
        if word >> 3 & 7 != 5 {
            return Err("no record of uftrace's, with which the thread's records end");
        }
        let what = match word & 3 {
            0 => What::Entry,
            1 => What::Exit,
            2 => What::Lost,
            _ => What::Event,
        };
        if word & 4 != 0 {
            return Err(
                "a record with arguments, of a size that this file doesn't tell; import what `uftrace dump` prints",
            );
        }
        // Addresses of the kernel are in the upper half.
        let address = word >> 16;
        let address = if address >> 47 == 1 {
            address | 0xffff << 48
        } else {
            address
        };
        Ok(Record {
            time_ns,
            what,
            depth: (word >> 6 & 0x3ff) as u16,
            address,
        })
    }
}
