//! Packets of the remote protocol: `$payload#checksum`, acknowledgements, notifications.
//!
//! Input: any bytes. Output: payloads with escapes and runs expanded. Never panics, holds at most
//! [`MOST_PAYLOAD_BYTES`] and doesn't allocate after it was made. Source: "Debugging with GDB", appendix E.1
//! (Overview).

/// Longest payload, expanded: 16 KiB of memory in hexadecimal, or a long register description.
pub const MOST_PAYLOAD_BYTES: usize = 64 << 10;

/// The event that a byte completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A whole packet; [`Decoder::payload`] has it.
    Packet,
    /// The stub received our last packet.
    Ack,
    /// The stub requests our last packet again.
    Nack,
}

/// The reason why bytes are not a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The checksum of the bytes differs from the packet's.
    #[error("a packet's checksum is wrong: it says {said:02x}, its bytes give {summed:02x}")]
    Checksum {
        /// The checksum in the packet.
        said: u8,
        /// The checksum of its bytes.
        summed: u8,
    },
    /// The two characters after `#` are not hexadecimal digits.
    #[error("a packet ends without a checksum")]
    NoChecksum,
    /// Longer than [`MOST_PAYLOAD_BYTES`].
    #[error("a packet is longer than {MOST_PAYLOAD_BYTES} bytes")]
    TooLong,
    /// A run without a character to repeat, or with an invalid length.
    #[error("a run-length code has nothing to repeat")]
    BadRun,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Between,
    Payload,
    Escaped,
    Run,
    FirstDigit,
    SecondDigit(u8),
}

/// Takes bytes one after the other; keeps the payload of the last packet.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    /// A `%` packet: a notification, not a reply.
    notification: bool,
    sum: u8,
    payload: Vec<u8>,
}

impl Decoder {
    /// Room for the longest payload.
    pub fn new() -> Self {
        Decoder {
            state: State::Between,
            notification: false,
            sum: 0,
            payload: Vec::with_capacity(MOST_PAYLOAD_BYTES),
        }
    }

    /// The payload of the last [`Event::Packet`].
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Takes one byte. After a fault the decoder waits for the next packet.
    ///
    /// # Errors
    /// Says why the packet of this byte is not valid.
    pub fn push(&mut self, byte: u8) -> Result<Option<Event>, Fault> {
        let result = self.step(byte);
        if result.is_err() {
            self.state = State::Between;
        }
        result
    }

    fn step(&mut self, byte: u8) -> Result<Option<Event>, Fault> {
        if matches!(self.state, State::Payload | State::Escaped | State::Run) && byte != b'#' {
            self.sum = self.sum.wrapping_add(byte);
        }
        match self.state {
            State::Between => return Ok(self.begin(byte)),
            State::Payload => match byte {
                b'#' => self.state = State::FirstDigit,
                b'}' => self.state = State::Escaped,
                b'*' => self.state = State::Run,
                // A packet begins inside another: the stub was restarted, or a byte was lost.
                b'$' => drop(self.begin(byte)),
                _ => self.add(byte, 1)?,
            },
            State::Escaped => {
                if byte == b'#' {
                    self.sum = self.sum.wrapping_add(byte);
                }
                self.add(byte ^ 0x20, 1)?;
                self.state = State::Payload;
            }
            State::Run => {
                let count = byte.checked_sub(29).filter(|&count| count >= 3);
                let count = count.filter(|_| byte != b'#' && byte != b'$');
                let (Some(count), Some(&last)) = (count, self.payload.last()) else {
                    return Err(Fault::BadRun);
                };
                self.add(last, usize::from(count))?;
                self.state = State::Payload;
            }
            State::FirstDigit => {
                let digit = hex_digit(byte).ok_or(Fault::NoChecksum)?;
                self.state = State::SecondDigit(digit);
            }
            State::SecondDigit(first) => {
                let said = first << 4 | hex_digit(byte).ok_or(Fault::NoChecksum)?;
                self.state = State::Between;
                let summed = self.sum;
                if said != summed {
                    return Err(Fault::Checksum { said, summed });
                }
                return Ok((!self.notification).then_some(Event::Packet));
            }
        }
        Ok(None)
    }

    fn begin(&mut self, byte: u8) -> Option<Event> {
        match byte {
            b'$' | b'%' => {
                self.notification = byte == b'%';
                self.state = State::Payload;
                self.sum = 0;
                self.payload.clear();
                None
            }
            b'+' => Some(Event::Ack),
            b'-' => Some(Event::Nack),
            // Noise between packets is skipped, since a serial line may carry anything.
            _ => None,
        }
    }

    fn add(&mut self, byte: u8, count: usize) -> Result<(), Fault> {
        if self.payload.len() + count > MOST_PAYLOAD_BYTES {
            return Err(Fault::TooLong);
        }
        for _ in 0..count {
            self.payload.push(byte);
        }
        Ok(())
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Appends a packet. `payload` must not contain `$`, `#`, `}` or `*`; no request does.
pub fn put(out: &mut Vec<u8>, payload: std::fmt::Arguments<'_>) {
    out.push(b'$');
    let start = out.len();
    // Writing to a Vec can't fail.
    let _ = std::io::Write::write_fmt(out, payload);
    let sum = out[start..]
        .iter()
        .fold(0u8, |sum, &byte| sum.wrapping_add(byte));
    let _ = std::io::Write::write_fmt(out, format_args!("#{sum:02x}"));
}

/// The value of one hexadecimal digit, of either case.
pub fn hex_digit(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}

/// A number in the protocol: hexadecimal, most significant digit first.
pub fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    text.iter().try_fold(0, |number, &byte| {
        Some(number << 4 | u64::from(hex_digit(byte)?))
    })
}

/// Decodes hexadecimal bytes into `out`; returns how many, up to the end of either or the first character that is not
/// a digit.
pub fn hex_bytes(text: &[u8], out: &mut [u8]) -> usize {
    let mut filled = 0;
    for (pair, byte) in text.chunks_exact(2).zip(out) {
        let (Some(high), Some(low)) = (hex_digit(pair[0]), hex_digit(pair[1])) else {
            break;
        };
        *byte = high << 4 | low;
        filled += 1;
    }
    filled
}

/// The value of a register in the protocol: bytes in the guest's order, which is little-endian. `None` if the value is
/// unavailable (`xx`) or exceeds 64 bits.
pub fn register_value(text: &[u8]) -> Option<u64> {
    let mut bytes = [0; 64];
    let length = text.len() / 2;
    let filled = hex_bytes(text, bytes.get_mut(..length)?);
    let (low, high) = bytes.split_first_chunk::<8>()?;
    let fits = high.iter().all(|&byte| byte == 0);
    (filled == length && length > 0 && fits).then(|| u64::from_le_bytes(*low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Vec<Result<String, Fault>> {
        let mut decoder = Decoder::new();
        let mut out = Vec::new();
        for &byte in bytes {
            match decoder.push(byte) {
                Ok(Some(Event::Packet)) => {
                    out.push(Ok(String::from_utf8_lossy(decoder.payload()).into_owned()));
                }
                Ok(_) => {}
                Err(fault) => out.push(Err(fault)),
            }
        }
        out
    }

    fn packet(payload: &[u8]) -> Vec<u8> {
        let sum = payload.iter().fold(0u8, |sum, &b| sum.wrapping_add(b));
        [b"$", payload, format!("#{sum:02x}").as_bytes()].concat()
    }

    #[test]
    fn payloads_escapes_and_runs() {
        assert_eq!(decode(b"+$OK#9a"), [Ok("OK".into())]);
        assert_eq!(decode(b"noise$#00+"), [Ok(String::new())]);
        // "0* " is "0000" (the manual's own example), "}\x03" is "#".
        assert_eq!(decode(b"$0* #7a"), [Ok("0000".into())]);
        assert_eq!(decode(&packet(b"a}\x03b}\x0a")), [Ok("a#b*".into())]);
        assert_eq!(decode(b"%Stop:T05#99$OK#9a"), [Ok("OK".into())]);
        assert_eq!(decode(b"$lost$OK#9a"), [Ok("OK".into())]);
    }

    #[test]
    fn what_is_no_packet_is_a_fault_and_the_next_one_is_read() {
        let wrong = Err(Fault::Checksum {
            said: 0x9b,
            summed: 0x9a,
        });
        assert_eq!(decode(b"$OK#9b$OK#9a"), [wrong, Ok("OK".into())]);
        assert_eq!(decode(b"$OK#zz"), [Err(Fault::NoChecksum)]);
        assert_eq!(decode(b"$* #4a"), [Err(Fault::BadRun)]);
        assert_eq!(decode(b"$a*\x01"), [Err(Fault::BadRun)]);
        let endless: Vec<u8> = [b"$a".to_vec(), b"*~".repeat(1000)].concat();
        assert_eq!(decode(&endless)[0], Err(Fault::TooLong));
    }

    #[test]
    fn any_bytes_are_survived_without_growth() {
        let mut decoder = Decoder::new();
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..2_000_000 {
            // Mostly bytes with a meaning in the protocol.
            let byte = match random.u8(..16) {
                0..12 => b"$#*}+-%0a~ \x03"[random.usize(..12)],
                _ => random.u8(..),
            };
            let _ = decoder.push(byte);
        }
        assert_eq!(decoder.payload.capacity(), MOST_PAYLOAD_BYTES);
    }

    #[test]
    fn text_of_either_case_and_order() {
        let mut out = Vec::new();
        put(&mut out, format_args!("m{:x},{:x}", 0xffff_8000u64, 16));
        assert_eq!(out, packet(b"mffff8000,10"));
        assert_eq!(number(b"1aF"), Some(0x1af));
        assert_eq!(number(b"11112222333344445"), None);
        // A number has its most significant digit first, a register's bytes are in guest order.
        assert_eq!(register_value(b"78563412"), Some(0x1234_5678));
        assert_eq!(
            register_value(b"EFcdAB8967452301"),
            Some(0x0123_4567_89ab_cdef)
        );
        assert_eq!(register_value(b"xxxxxxxx"), None);
        assert_eq!(register_value(b""), None);
        assert_eq!(register_value(&b"0".repeat(1 << 10)), None);
    }
}
