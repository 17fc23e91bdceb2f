//! The contents of frames (docs/agent-protocol.md, sections 3 to 6).
//!
//! Input: an untrusted payload. Output: its fields, if they are valid.

use super::frame::number;
use uprof::is_control_character;

/// The protocol version of the recorder.
pub const VERSION: u16 = 1;
/// Most vCPUs of a guest.
pub const MOST_VCPUS: u32 = 256;

/// Kinds of frames (section 3).
pub const ATTACH: u8 = 0x01;
/// As above.
pub const START: u8 = 0x02;
/// As above.
pub const STOP: u8 = 0x03;
/// As above.
pub const PING: u8 = 0x04;
/// As above.
pub const DETACH: u8 = 0x05;
/// As above.
pub const HELLO: u8 = 0x81;
/// As above.
pub const BUSY: u8 = 0x82;
/// As above.
pub const STATE: u8 = 0x83;
/// As above.
pub const SAMPLE: u8 = 0x84;
/// As above.
pub const LOSSES: u8 = 0x85;
/// As above.
pub const CLOCK: u8 = 0x86;

/// An agent's description of its guest (section 5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table of section 5.1 has the words")]
pub struct Hello {
    pub nonce: u64,
    pub version: u16,
    pub is_aarch64: bool,
    pub vcpus: u32,
    pub clock_hz: u64,
    pub cycles_hz: u64,
    pub code_start: u64,
    pub code_bytes: u64,
    pub code_offset: u64,
    pub timer_hz: u32,
    pub most_frames: u32,
    pub most_stack_bytes: u32,
    pub build_id: Vec<u8>,
    pub name: String,
}

/// What is invalid in a [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// Its fields don't fit.
    #[error("a hello of {0} bytes")]
    Short(usize),
    /// An unknown processor.
    #[error("instruction set {0}")]
    InstructionSet(u8),
    /// No vCPU, or more than [`MOST_VCPUS`].
    #[error("{0} vCPUs")]
    Vcpus(u32),
    /// A clock that stands, or is faster than any.
    #[error("a clock of {0} ticks a second")]
    Clock(u64),
    /// Code that goes beyond the last address.
    #[error("code of {bytes} bytes at {start:#x}")]
    Code {
        /// Its first address.
        start: u64,
        /// Its length.
        bytes: u64,
    },
}

impl Hello {
    /// Parses a payload.
    ///
    /// # Errors
    /// Says what is invalid.
    pub fn read(payload: &[u8]) -> Result<Hello, HelloError> {
        let word = |at| number::<8>(payload, at);
        let half = |at| number::<4>(payload, at).map(|number| number as u32);
        let read = || {
            Some(Hello {
                nonce: word(0)?,
                version: number::<2>(payload, 8)? as u16,
                is_aarch64: *payload.get(10)? == 1,
                vcpus: half(12)?,
                clock_hz: word(16)?,
                cycles_hz: word(24)?,
                code_start: word(32)?,
                code_bytes: word(40)?,
                code_offset: word(48)?,
                timer_hz: half(56)?,
                most_frames: half(60)?,
                most_stack_bytes: half(64)?,
                build_id: payload
                    .get(72..104)?
                    .get(..usize::from(*payload.get(11)?))?
                    .to_vec(),
                name: printable(payload.get(104..)?.get(..half(68)?.min(64) as usize)?),
            })
        };
        let hello = read().ok_or(HelloError::Short(payload.len()))?;
        let problem = match &hello {
            _ if payload[10] > 1 => HelloError::InstructionSet(payload[10]),
            Hello { vcpus, .. } if !(1..=MOST_VCPUS).contains(vcpus) => HelloError::Vcpus(*vcpus),
            Hello { clock_hz, .. } if !(1..=1 << 40).contains(clock_hz) => {
                HelloError::Clock(*clock_hz)
            }
            Hello {
                code_start,
                code_bytes,
                ..
            } if code_start.checked_add(*code_bytes).is_none() => HelloError::Code {
                start: *code_start,
                bytes: *code_bytes,
            },
            _ => return Ok(hello),
        };
        Err(problem)
    }

    /// Whether both describe the same guest; the client's number may differ.
    pub fn is_of_the_same_guest(&self, other: &Hello) -> bool {
        let nonce = self.nonce;
        *self
            == Hello {
                nonce,
                ..other.clone()
            }
    }
}

/// An untrusted name, without control characters.
fn printable(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    name.chars()
        .map(|letter| {
            if is_control_character(letter) {
                '.'
            } else {
                letter
            }
        })
        .collect()
}

/// The fields of a sample (section 6.1), not checked yet.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the table of section 6.1 has the words")]
pub struct SampleRecord<'a> {
    pub vcpu: u32,
    pub stop: u8,
    pub state: u8,
    pub ticks: u64,
    pub ip: u64,
    pub sp: u64,
    pub fp: u64,
    pub lr: u64,
    pub cost: u64,
    callers: &'a [u8],
    pub stack: &'a [u8],
}

impl<'a> SampleRecord<'a> {
    /// Parses a payload; `None` if its lengths are inconsistent.
    pub fn read(payload: &'a [u8]) -> Option<Self> {
        let word = |at| number::<8>(payload, at);
        let count = |at| number::<2>(payload, at).map(|count| count as usize);
        let (words, callers, stack_words) = (count(8)?, count(10)?, count(14)?);
        if words != 7 + callers + stack_words {
            return None;
        }
        let rest = payload.get(64..8 + 8 * words)?;
        let (callers, stack) = rest.split_at_checked(8 * callers)?;
        Some(SampleRecord {
            vcpu: number::<4>(payload, 0)? as u32,
            stop: payload[12],
            state: payload[13],
            ticks: word(16)?,
            ip: word(24)?,
            sp: word(32)?,
            fp: word(40)?,
            lr: word(48)?,
            cost: word(56)?,
            callers,
            stack,
        })
    }

    /// Return addresses, innermost first.
    pub fn callers(&self) -> impl Iterator<Item = u64> + 'a {
        let words = self.callers.chunks_exact(8);
        words.filter_map(|word| number::<8>(word, 0))
    }
}

/// The number after the first 8 bytes, and the number in these: losses (section 6.2) and clocks (section 6.3).
pub fn pair(payload: &[u8]) -> Option<(u64, u64)> {
    Some((number::<8>(payload, 0)?, number::<8>(payload, 8)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_that_lies_is_refused_by_what_it_says() {
        let mut payload = vec![0; 110];
        payload[8] = 1;
        payload[11] = 20;
        payload[12] = 4;
        payload[16] = 100;
        payload[68] = 6;
        payload[104..].copy_from_slice(b"gu\x1b[st");
        let hello = Hello::read(&payload).unwrap();
        assert_eq!(
            (hello.name.as_str(), hello.vcpus, hello.build_id.len()),
            ("gu.[st", 4, 20)
        );
        let with = |at: usize, byte: u8| {
            let mut payload = payload.clone();
            payload[at] = byte;
            Hello::read(&payload).unwrap_err().to_string()
        };
        assert_eq!(with(10, 2), "instruction set 2");
        assert_eq!(with(11, 33), "a hello of 110 bytes");
        assert_eq!(with(12, 0), "0 vCPUs");
        assert_eq!(with(14, 1), "65540 vCPUs");
        assert_eq!(with(16, 0), "a clock of 0 ticks a second");
        assert_eq!(with(68, 7), "a hello of 110 bytes");
        payload[32..48].fill(0xff);
        let error = Hello::read(&payload).unwrap_err();
        assert!(error.to_string().starts_with("code of"));
        assert!((0..110).all(|length| Hello::read(&payload[..length]).is_err()));
    }

    #[test]
    fn a_sample_whose_lengths_disagree_is_none() {
        let mut payload = vec![0; 64 + 24];
        payload[8] = 10;
        payload[10] = 2;
        payload[14] = 1;
        payload[64] = 5;
        let sample = SampleRecord::read(&payload).unwrap();
        assert_eq!(
            (sample.callers().collect::<Vec<_>>(), sample.stack.len()),
            (vec![5, 0], 8)
        );
        for (at, byte) in [(8, 11), (10, 3), (14, 0), (9, 1), (11, 1)] {
            let mut payload = payload.clone();
            payload[at] = byte;
            assert!(SampleRecord::read(&payload).is_none(), "{at}");
        }
        assert!((0..88).all(|length| SampleRecord::read(&payload[..length]).is_none()));
    }
}
