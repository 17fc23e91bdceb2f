//! Stack bytes of all vCPUs of a frozen guest, fetched in as few round trips as will do.
//!
//! Enters: registers. Leaves: a copy of each stack, from the stack pointer up. How much of a stack is
//! needed is known only from its contents; so the first batch asks for what the last samples needed,
//! and only a chain of frame pointers that leaves it costs another. Must not allocate once made.

use super::client::Client;
use super::error::GdbError;
use super::handshake::{Guest, Thread};
use super::packet::hex_bytes;
use crate::source::Vcpu;
use crate::sys::clock::monotonic_ns;
use crate::walk;
use uprof::{Arch, RawStack};

/// Bytes asked for of a stack that nothing is known of yet.
const FIRST_BYTES: usize = 1024;
/// Most batches for one sample.
const MOST_ROUNDS: usize = 6;
/// Questions of one vCPU in characters: `Hg` and sixteen `m`.
const ROOM_BYTES: usize = 64 + 16 * 40;
const PAGE_BYTES: u64 = 4096;

/// What to fetch.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Most bytes of a stack.
    pub window_bytes: usize,
    /// How many of them are wanted whether or not a chain of frame pointers spans them.
    pub kept_bytes: usize,
    /// Most frames of a chain.
    pub most_frames: usize,
    /// How long fetching may go on.
    pub budget_ns: u64,
}

/// One stack's copy.
#[derive(Debug)]
struct Copy {
    address: u64,
    bytes: Vec<u8>,
    filled: usize,
    /// Bytes to have.
    goal: usize,
    /// Bytes that the batch under way ends at.
    asked: usize,
    /// The goal to begin with, by what was needed lately.
    usual: usize,
    /// Memory ends at `filled`.
    ended: bool,
}

/// The stacks' copies.
#[derive(Debug)]
pub struct Stacks {
    wanted: Wanted,
    copies: Vec<Copy>,
}

impl Stacks {
    /// Room for `vcpus` stacks.
    pub fn new(vcpus: usize, wanted: Wanted) -> Self {
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

    /// Fetches the stacks of `vcpus`, whose handles are the places of their threads.
    ///
    /// # Errors
    /// That the stub does not answer; memory that isn't there is no error.
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
        let (_, sp, _) = arch.special_registers();
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

    /// Writes the questions of one batch; `false`: nothing is missing.
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

    /// Copies what was fetched of a stack from `address` on; `None`: that was not asked for.
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
    /// Sets the goal by where the chain of frame pointers leads.
    fn aim(&mut self, arch: Arch, vcpu: &Vcpu, wanted: Wanted) {
        let (_, _, fp) = arch.special_registers();
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
            // Twice as much, or up to the frame that is missing if that is farther.
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

/// Asks the stub to mean `thread` from now on: never trust the one of a stop reply.
pub fn choose(client: &mut Client, thread: &Thread) {
    if !thread.id.is_empty() {
        client.add(format_args!("Hg{}", thread.id));
    }
}

/// Takes the answer to [`choose`]; says whether there is such a vCPU.
///
/// # Errors
/// Why there is no answer.
pub fn expect_chosen(client: &mut Client, thread: &Thread) -> Result<bool, GdbError> {
    if thread.id.is_empty() {
        return Ok(true);
    }
    match client.reply()? {
        b"OK" => Ok(true),
        [b'E', ..] => Ok(false),
        _ => Err(client.nonsense("it did not say whether there is such a vCPU")),
    }
}

/// The pieces in which memory is asked for: none crosses a page, so that a page that isn't there
/// costs no other.
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

/// Asks for memory of the chosen vCPU.
pub fn ask_memory(client: &mut Client, guest: &Guest, address: u64, bytes: usize) {
    let letter = if guest.binary { 'x' } else { 'm' };
    for (at, length) in pieces(address, bytes, guest.piece_bytes) {
        client.add(format_args!("{letter}{at:x},{length:x}"));
    }
}

/// Takes the answers to [`ask_memory`]; returns the bytes before the first that is missing.
///
/// # Errors
/// Why there are no answers.
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
            // An error has three characters: no number of bytes has.
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
