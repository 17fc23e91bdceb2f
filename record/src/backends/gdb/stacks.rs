//! Fetches stack bytes of all vCPUs of a frozen guest in as few round trips as possible.
//!
//! Input: registers. Output: a copy of each stack, from the stack pointer up. How much of a stack is needed depends on
//! its contents. The first batch requests as much as recent samples needed, and only a chain of frame pointers that
//! leaves the copy costs another. Does not allocate after it was made.

use super::client::{Client, StopReply};
use super::error::GdbError;
use super::handshake::{Guest, Thread};
use super::packet::hex_bytes;
use crate::guest::walk;
use crate::source::Vcpu;
use crate::sys::clock::monotonic_ns;
use uprof::{Arch, RawStack};

/// Bytes requested of a stack at first.
const FIRST_BYTES: usize = 1024;
/// Most batches for one sample.
const MOST_ROUNDS: usize = 6;
/// Characters of the requests for one vCPU: `Hg` and sixteen `m`.
const ROOM_BYTES: usize = 64 + 16 * 40;
const PAGE_BYTES: u64 = 4096;

/// Limits of fetching.
#[derive(Debug, Clone, Copy)]
pub struct FetchLimits {
    /// Most bytes of a stack.
    pub window_bytes: usize,
    /// How many of them are fetched even if no chain of frame pointers spans them.
    pub kept_bytes: usize,
    /// Most frames of a chain.
    pub most_frames: usize,
    /// How long fetching may go on.
    pub budget_ns: u64,
}

/// The copy of one stack.
#[derive(Debug)]
struct Copy {
    address: u64,
    bytes: Vec<u8>,
    filled: usize,
    /// Bytes to fetch in all.
    goal: usize,
    /// Bytes that there will be after the current batch.
    asked: usize,
    /// The initial goal, by the needs of recent samples.
    usual: usize,
    /// Whether memory ends at `filled`.
    ended: bool,
}

/// The copies of all stacks.
#[derive(Debug)]
pub struct Stacks {
    wanted: FetchLimits,
    copies: Vec<Copy>,
}

impl Stacks {
    /// Room for `vcpus` stacks.
    pub fn new(vcpus: usize, wanted: FetchLimits) -> Self {
        let copy = || Copy {
            address: 0,
            bytes: vec![0; wanted.window_bytes],
            filled: 0,
            goal: 0,
            asked: 0,
            usual: FIRST_BYTES,
            ended: false,
        };
        Stacks {
            wanted,
            copies: std::iter::repeat_with(copy).take(vcpus).collect(),
        }
    }

    /// Fetches the stacks of `vcpus`, whose handles are the indices of their threads.
    ///
    /// # Errors
    /// The stub does not answer; missing memory is not an error.
    pub fn fetch(
        &mut self,
        client: &mut Client,
        guest: &Guest,
        vcpus: &[Vcpu],
        start_ns: u64,
    ) -> Result<(), GdbError> {
        self.begin(guest.layout.arch, vcpus);
        for _ in 0..MOST_ROUNDS {
            if !self.ask(client, guest) {
                break;
            }
            self.take(client, guest)?;
            if monotonic_ns() > start_ns + self.wanted.budget_ns {
                break;
            }
            for vcpu in vcpus {
                if let Some(copy) = self.copies.get_mut(vcpu.handle as usize) {
                    copy.aim(guest.layout.arch, vcpu, self.wanted);
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, arch: Arch, vcpus: &[Vcpu]) {
        for copy in &mut self.copies {
            copy.filled = 0;
            copy.goal = 0;
        }
        let sp = arch.special_registers().sp;
        for vcpu in vcpus {
            let copy = self.copies.get_mut(vcpu.handle as usize);
            let (Some(sp), Some(copy)) = (vcpu.registers.get(sp), copy) else {
                continue;
            };
            copy.address = sp;
            copy.ended = false;
            let first = copy.usual.max(self.wanted.kept_bytes);
            copy.goal = first.min(self.wanted.window_bytes);
        }
    }

    /// Writes the requests of one batch; `false` if no bytes are missing.
    fn ask(&mut self, client: &mut Client, guest: &Guest) -> bool {
        client.begin("for stack bytes");
        let mut any = false;
        for (copy, thread) in self.copies.iter_mut().zip(&guest.threads) {
            copy.asked = copy.filled;
            if copy.ended || copy.filled >= copy.goal || !client.has_room(ROOM_BYTES) {
                continue;
            }
            let most_bytes = 15 * guest.piece_bytes.min(PAGE_BYTES as usize);
            copy.asked = copy.goal.min(copy.filled + most_bytes);
            choose(client, thread);
            let missing = copy.address.wrapping_add(copy.filled as u64);
            ask_memory(client, guest, missing, copy.asked - copy.filled);
            any = true;
        }
        any
    }

    fn take(&mut self, client: &mut Client, guest: &Guest) -> Result<(), GdbError> {
        for (copy, thread) in self.copies.iter_mut().zip(&guest.threads) {
            if copy.asked == copy.filled {
                continue;
            }
            expect_chosen(client, thread)?;
            let missing = copy.address.wrapping_add(copy.filled as u64);
            let into = &mut copy.bytes[copy.filled..copy.asked];
            let taken = take_memory(client, guest, missing, into)?;
            copy.filled += taken;
            copy.ended = copy.filled < copy.asked;
        }
        Ok(())
    }

    /// Copies fetched bytes from `address` on; `None` if they were not requested.
    pub fn read(&self, vcpu: &Vcpu, address: u64, into: &mut [u8]) -> Option<usize> {
        let copy = self.copies.get(vcpu.handle as usize)?;
        let offset = usize::try_from(address.wrapping_sub(copy.address)).ok()?;
        if offset >= self.wanted.window_bytes {
            return None;
        }
        let there = copy.bytes.get(offset..copy.filled).unwrap_or_default();
        let count = there.len().min(into.len());
        into[..count].copy_from_slice(&there[..count]);
        Some(count)
    }
}

impl Copy {
    /// Sets the goal according to the chain of frame pointers.
    fn aim(&mut self, arch: Arch, vcpu: &Vcpu, wanted: FetchLimits) {
        let fp = arch.special_registers().fp;
        if self.filled == 0 {
            return;
        }
        let raw = RawStack {
            address: self.address,
            bytes: &self.bytes[..self.filled],
        };
        let start = vcpu.registers.get(fp).unwrap_or(0);
        let leaves = walk::leaves_window(start, raw, wanted.most_frames);
        let beyond = leaves
            .and_then(|at| usize::try_from(at.wrapping_sub(self.address)).ok())
            .filter(|&offset| offset < wanted.window_bytes);
        match beyond {
            // Twice as much, or up to the missing frame if that is farther.
            Some(offset) => {
                let needed = (self.filled * 2).max(offset + 64);
                let needed = needed.next_multiple_of(256).max(self.goal);
                self.goal = needed.min(wanted.window_bytes);
                self.usual = self.usual.max(self.goal);
            }
            None => self.usual = (self.usual - self.usual / 64).max(FIRST_BYTES),
        }
    }
}

/// Selects `thread`, as the one that a stop reply selected is not reliable.
pub fn choose(client: &mut Client, thread: &Thread) {
    if !thread.id.is_empty() {
        client.add(format_args!("Hg{}", thread.id));
    }
}

/// Takes the reply to [`choose`]; returns whether there is such a vCPU.
///
/// # Errors
/// Says why there is no reply.
pub fn expect_chosen(client: &mut Client, thread: &Thread) -> Result<bool, GdbError> {
    if thread.id.is_empty() {
        return Ok(true);
    }
    let reply = client.reply()?;
    // gdbserver may report a further thread's stop late, in front of the reply.
    let is_late_stop = matches!(StopReply::parse(reply), Some(StopReply::Stopped(_)));
    let mut is_there = is_chosen(reply);
    if is_late_stop {
        is_there = is_chosen(client.extra_reply()?);
    }
    is_there.ok_or_else(|| client.nonsense("it did not say whether there is such a vCPU"))
}

fn is_chosen(reply: &[u8]) -> Option<bool> {
    match reply {
        b"OK" => Some(true),
        [b'E', ..] => Some(false),
        _ => None,
    }
}

/// Splits a range of memory into requests. None crosses a page, so that a missing page affects no other.
fn pieces(address: u64, bytes: usize, piece_bytes: usize) -> impl Iterator<Item = (u64, usize)> {
    let piece_bytes = (piece_bytes as u64).min(PAGE_BYTES);
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = address.wrapping_add(done as u64);
        let to_boundary = piece_bytes - (at & (piece_bytes - 1));
        let length = (bytes - done).min(to_boundary as usize);
        done += length;
        (length > 0).then_some((at, length))
    })
}

/// Requests memory of the selected vCPU.
pub fn ask_memory(client: &mut Client, guest: &Guest, address: u64, bytes: usize) {
    let letter = if guest.binary { 'x' } else { 'm' };
    for (at, length) in pieces(address, bytes, guest.piece_bytes) {
        client.add(format_args!("{letter}{at:x},{length:x}"));
    }
}

/// Takes the replies to [`ask_memory`]; returns the number of bytes before the first missing one.
///
/// # Errors
/// Says why there are no replies.
pub fn take_memory(
    client: &mut Client,
    guest: &Guest,
    address: u64,
    into: &mut [u8],
) -> Result<usize, GdbError> {
    let mut filled = 0;
    let mut offset = 0;
    for (_, length) in pieces(address, into.len(), guest.piece_bytes) {
        let reply = client.reply()?;
        let place = &mut into[offset..offset + length];
        let taken = match (guest.binary, reply) {
            (true, [b'b', bytes @ ..]) => {
                let count = bytes.len().min(length);
                place[..count].copy_from_slice(&bytes[..count]);
                count
            }
            // An error has three characters, an odd number.
            (false, digits) if digits.len() % 2 == 0 => hex_bytes(digits, place),
            _ => 0,
        };
        if filled == offset {
            filled += taken;
        }
        offset += length;
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_and_cross_no_page() {
        let all: Vec<_> = pieces(0x1ff0, 0x2020, 2048).collect();
        let expected = [
            (0x1ff0, 0x10),
            (0x2000, 0x800),
            (0x2800, 0x800),
            (0x3000, 0x800),
            (0x3800, 0x800),
            (0x4000, 0x10),
        ];
        assert_eq!(all, expected);
        assert_eq!(
            pieces(u64::MAX - 3, 8, 2048).collect::<Vec<_>>(),
            [(u64::MAX - 3, 4), (0, 4)]
        );
        assert_eq!(pieces(0, 0, 64).count(), 0);
    }
}
