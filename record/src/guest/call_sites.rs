//! Checks whether the frames of a stack are consistent: the call before a return address must lead to the function of
//! the next inner frame.
//!
//! Input: a chain that was read while its vCPU may have run on. Output: how many of its frames, from the innermost,
//! fit. Function starts are learned from calls, as nothing else is known of the guest: from the calls before return
//! addresses, and from those in the functions that these lead to, since the caller of a function without a frame is in
//! no chain. A function with a frame ends where another one sets up its own. After a tail call, or where code can't be
//! read, frames don't fit. The target of an indirect call is unknown, so such a call passes. Must not allocate, nor
//! assume that the bytes it reads are code.

use crate::source::Vcpu;
use uprof::cpu::{CALL_BYTES, Call};
use uprof::{Arch, Frame};

/// Return addresses remembered, a power of two. If two share a slot, each replaces the other.
const SITES: usize = 1024;
/// Most function starts remembered. When there are more, all are discarded.
const MOST_STARTS: usize = 4096;
/// Longest function: an address further behind a start belongs to another function, not seen yet.
const MOST_FUNCTION_BYTES: u64 = 1 << 16;
/// Bytes read from a function that a call leads to.
const READ_BYTES: usize = 1024;
/// Functions begin at multiples of this, where compilers don't optimise for size.
const ALIGNMENT: u64 = 16;
/// A call to an address further away than this is not taken as evidence of a function.
const MOST_CALL_BYTES: u64 = 1 << 20;
/// Outermost frames remembered; when there are more, all are discarded.
const MOST_ENDS: usize = 64;
/// An end is usual if at least one of so many stacks ends there.
const USUAL_END_OF: u32 = 32;
/// An empty slot.
const UNSEEN: (Place, Option<Call>) = ((0, 0), None);
/// Address space and address.
type Place = (u32, u64);

/// The calls and functions seen so far.
pub struct CallSites {
    arch: Arch,
    sites: Vec<(Place, Option<Call>)>,
    /// Function starts in order, each with whether its code was read.
    starts: Vec<(Place, bool)>,
    /// The outermost frames of whole stacks, with their counts; and the sum of these.
    ends: Vec<(Place, u32)>,
    ends_seen: u32,
}

impl CallSites {
    /// Without call sites; allocates all memory.
    pub fn new(arch: Arch) -> Self {
        CallSites {
            arch,
            sites: vec![UNSEEN; SITES],
            starts: Vec::with_capacity(MOST_STARTS),
            ends: Vec::with_capacity(MOST_ENDS),
            ends_seen: 0,
        }
    }

    /// Whether a stack that seems to be whole may be: the chain ends where others have ended. A frame that is being set
    /// up may show zeros, too, but not often at the same call.
    pub fn ends_usually(&mut self, vcpu: &Vcpu, outermost: u64) -> bool {
        let place = (vcpu.space_of(outermost), outermost);
        let known = self.ends.iter().position(|(end, _)| *end == place);
        let at = known.unwrap_or_else(|| {
            if self.ends.len() == MOST_ENDS {
                self.ends.clear();
                self.ends_seen = 0;
            }
            self.ends.push((place, 0));
            self.ends.len() - 1
        });
        let count = &mut self.ends[at].1;
        *count = count.saturating_add(1);
        self.ends_seen = self.ends_seen.saturating_add(1);
        *count > 1 && *count >= self.ends_seen / USUAL_END_OF
    }

    /// The number of frames of `chain`, from the innermost, that are consistent with the code that `vcpu` sees. `read`
    /// reads the guest's memory and returns the number of bytes read.
    pub fn fitting(
        &mut self,
        vcpu: &Vcpu,
        chain: &[Frame],
        mut read: impl FnMut(u64, &mut [u8]) -> usize,
    ) -> usize {
        // All calls are read first: their targets show where the functions before them end.
        let mut callers = chain.iter().skip(1);
        callers.all(|caller| self.call_before(vcpu, caller.address, &mut read).is_some());
        let pairs = chain.iter().zip(chain.iter().skip(1));
        let fit = pairs.take_while(|(inside, caller)| {
            let inside = inside.lookup_address();
            match self.call_before(vcpu, caller.address, &mut read) {
                None => false,
                Some(Call::Indirect) => true,
                Some(Call::Direct(start)) => self.is_within(vcpu, inside, start),
            }
        });
        chain.len().min(1 + fit.count())
    }

    /// The call before a return address, if there is one that can be read.
    fn call_before(
        &mut self,
        vcpu: &Vcpu,
        address: u64,
        read: &mut impl FnMut(u64, &mut [u8]) -> usize,
    ) -> Option<Call> {
        let place = (vcpu.space_of(address), address);
        let known = self.sites[index(place)];
        if known.0 == place {
            return known.1;
        }
        let mut bytes = [0; CALL_BYTES];
        // The memory may be mapped a moment later, so this is not remembered.
        if read(address.wrapping_sub(CALL_BYTES as u64), &mut bytes) < CALL_BYTES {
            return None;
        }
        let call = self.arch.call_before(address, &bytes);
        if let Some(Call::Direct(start)) = call {
            let function = (vcpu.space_of(start), start);
            let at = self.learn(function);
            // The start may be known only from another function's code.
            if !self.starts[at].1 {
                // Its end is unknown until it is read: any code behind it would be taken for a part of it.
                if !self.learn_from(vcpu, start, read) {
                    return None;
                }
                let at = self.learn(function);
                self.starts[at].1 = true;
            }
        }
        self.sites[index(place)] = (place, call);
        call
    }

    /// Remembers the start of a function; returns its index in `starts`.
    fn learn(&mut self, start: Place) -> usize {
        match self.starts.binary_search_by_key(&start, |known| known.0) {
            Ok(at) => at,
            Err(_) if self.starts.len() == MOST_STARTS => {
                self.starts.clear();
                self.sites.fill(UNSEEN);
                self.starts.push((start, false));
                0
            }
            Err(at) => {
                self.starts.insert(at, (start, false));
                at
            }
        }
    }

    /// Learns from the code of the function at `start` which functions it calls and where the next one begins. Returns
    /// whether any code could be read.
    fn learn_from(
        &mut self,
        vcpu: &Vcpu,
        start: u64,
        read: &mut impl FnMut(u64, &mut [u8]) -> usize,
    ) -> bool {
        let mut code = [0; READ_BYTES];
        let length_bytes = read(start, &mut code).min(READ_BYTES);
        let mut code = &code[..length_bytes];
        // No function sets up two frames. A function that sets up its own late may do so behind a first return.
        let mut frames = (0..code.len()).filter(|at| sets_up_frame(self.arch, code, *at));
        let own = frames.next().filter(|at| (*at as u64) < ALIGNMENT);
        if let Some(end) = own.and_then(|_| frames.next()) {
            code = &code[..end];
            let next = start.wrapping_add(end as u64);
            self.learn((vcpu.space_of(next), next));
        }
        for end in 1..=code.len() {
            let after = start.wrapping_add(end as u64);
            let is_instruction = self.arch == Arch::X86_64 || end.is_multiple_of(4);
            let call = self.arch.call_before(after, &code[..end]);
            if let Some(Call::Direct(to)) = call.filter(|_| is_instruction)
                // Bytes that aren't a call hardly ever lead to such an address.
                && (self.arch != Arch::X86_64 || to.is_multiple_of(ALIGNMENT))
                && to.abs_diff(after) < MOST_CALL_BYTES
            {
                self.learn((vcpu.space_of(to), to));
            }
        }
        length_bytes > 0
    }

    /// Whether `address` is after `start` with no other function in between.
    fn is_within(&self, vcpu: &Vcpu, address: u64, start: u64) -> bool {
        let space = vcpu.space_of(start);
        // A start that seems to be in its first bytes is its own frame setup.
        let first_bytes = start.saturating_add(ALIGNMENT - 1);
        let after = self
            .starts
            .partition_point(|(other, _)| *other <= (space, first_bytes));
        let next = self.starts.get(after);
        let is_near = |start| {
            address
                .checked_sub(start)
                .is_some_and(|by| by < MOST_FUNCTION_BYTES)
        };
        is_near(start) && next.is_none_or(|(next, _)| (space, address) < *next)
    }
}

/// The slot of an address.
fn index((space, address): Place) -> usize {
    let mixed = (address ^ u64::from(space) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize % SITES
}

/// Whether a function's frame pointer is set up at `at` in `code`: push %rbp and mov %rsp, %rbp in one of its two
/// encodings, or stp x29, x30, [sp, #-n]! and mov x29, sp.
fn sets_up_frame(arch: Arch, code: &[u8], at: usize) -> bool {
    let code = code.get(at..).unwrap_or_default();
    match (arch, code) {
        (Arch::X86_64, [0x55, 0x48, 0x89, 0xe5, ..] | [0x55, 0x48, 0x8b, 0xec, ..]) => true,
        (Arch::Aarch64, [a, b, c, d, 0xfd, 0x03, 0x00, 0x91, ..]) if at.is_multiple_of(4) => {
            u32::from_le_bytes([*a, *b, *c, *d]) & 0xffe0_7fff == 0xa9a0_7bfd
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::layout::MAX_FRAMES;
    use uprof::{Details, Registers, State, Task};

    /// A reader of a guest's code, given its calls by return address.
    fn code(calls: &[(u64, Vec<u8>)]) -> impl FnMut(u64, &mut [u8]) -> usize {
        move |from, into| {
            into.fill(0x90);
            let end = from + into.len() as u64;
            let call = calls.iter().find(|(address, _)| *address == end);
            let Some((_, call)) = call else {
                // Functions have code, but no calls.
                return if into.len() > CALL_BYTES {
                    into.len()
                } else {
                    0
                };
            };
            let start = into.len() - call.len();
            into[start..].copy_from_slice(call);
            into.len()
        }
    }

    fn direct(address: u64, target: u64) -> (u64, Vec<u8>) {
        let by = (target as i64 - address as i64) as i32;
        (address, [&[0xe8][..], &by.to_le_bytes()].concat())
    }

    fn chain(ip: u64, callers: &[u64]) -> Vec<Frame> {
        let callers = callers
            .iter()
            .map(|&address| Frame::return_address(address));
        std::iter::once(Frame::exact(ip)).chain(callers).collect()
    }

    /// A vCPU that runs under the page tables at `root`.
    fn vcpu(root: u64) -> Vcpu {
        Vcpu {
            task: Task { space: 0, vcpu: 0 },
            state: State::Running,
            registers: Registers::default(),
            handle: 0,
            details: Details {
                root: Some(root),
                ..Details::default()
            },
        }
    }

    /// No chain has a return address behind a call of `burn`, which has no frame. Its start is only in the code.
    #[test]
    fn functions_are_known_from_the_code_of_others() {
        const FRAME: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
        // one_round at 0x1000 calls beta at 0x2000 and alpha at 0x2040; both call burn at 0x2060. Nothing calls the
        // function at 0x2080 directly.
        let mut memory = vec![0x90; 0x4000];
        let calls = [
            (0x1010, 0x2000),
            (0x1020, 0x2040),
            (0x2010, 0x2060),
            (0x2050, 0x2060),
        ];
        for (address, target) in calls {
            let (address, call) = direct(address, target);
            memory[address as usize - 5..address as usize].copy_from_slice(&call);
        }
        for start in [0x1000, 0x2000, 0x2040, 0x2080] {
            memory[start..start + 4].copy_from_slice(&FRAME);
        }
        let read = |from: u64, into: &mut [u8]| {
            into.copy_from_slice(&memory[from as usize..from as usize + into.len()]);
            into.len()
        };
        let fitting = |ip, callers: &[u64]| {
            let mut sites = CallSites::new(Arch::X86_64);
            sites.fitting(&vcpu(0), &chain(ip, callers), read)
        };
        // In burn, in alpha and in the last function, behind a call of beta or alpha: a frame is missing, or another's.
        assert_eq!(fitting(0x2064, &[0x1010]), 1);
        assert_eq!(fitting(0x2064, &[0x1020]), 1);
        assert_eq!(fitting(0x2044, &[0x1010]), 1);
        assert_eq!(fitting(0x2094, &[0x1020]), 1);
        assert_eq!(fitting(0x2014, &[0x1010]), 2);
        assert_eq!(fitting(0x2064, &[0x2050, 0x1020]), 3);
        assert_eq!(
            fitting(0x2064, &[0x2010, 0x1020]),
            2,
            "beta, called as alpha"
        );
    }

    /// Its pages may be mapped a moment later, for instance if each sample may map only so many.
    #[test]
    fn a_function_that_could_not_be_read_is_read_later() {
        // main at 0x1000 calls middle at 0x1800, which calls the function at 0x1840, behind it.
        let calls = [(0x1010, 0x1800), (0x1810, 0x1840)].map(|(at, to)| direct(at, to));
        let mut is_there = false;
        let mut sites = CallSites::new(Arch::X86_64);
        for _ in 0..2 {
            let fits = sites.fitting(&vcpu(0), &chain(0x1844, &[0x1010]), |from, into| {
                let is_function = into.len() > CALL_BYTES;
                if is_function && !is_there {
                    return 0;
                }
                into.fill(0x90);
                for (after, call) in &calls {
                    let at = (after - call.len() as u64).wrapping_sub(from) as usize;
                    if let Some(bytes) = into.get_mut(at..at.saturating_add(call.len())) {
                        bytes.copy_from_slice(call);
                    }
                }
                into.len()
            });
            // The innermost function is not the one that main calls.
            assert_eq!(fits, 1, "the code is there: {is_there}");
            is_there = true;
        }
    }

    #[test]
    fn a_stack_that_ends_where_hardly_any_other_does_is_not_whole() {
        let mut sites = CallSites::new(Arch::X86_64);
        let mut ends = |address| sites.ends_usually(&vcpu(0), address);
        assert!(!ends(0x1000), "none was seen before");
        for round in 0..1000_u64 {
            assert!(ends(0x1000));
            // Now and then a frame is being set up, at one of ten calls.
            assert!(
                round % 50 != 25 || !ends(0x2000 + round / 50 % 10),
                "{round}"
            );
        }
        // A guest that lies ends its stacks anywhere, and must not make our memory grow.
        let room = sites.ends.capacity();
        for address in 0..1000 {
            assert!(!sites.ends_usually(&vcpu(0), address));
        }
        assert_eq!(sites.ends.capacity(), room);
    }

    /// A function that was known only from another's code is read once a call leads to it. beta at 0x1800 calls
    /// beta_inner at 0x2000, which calls burn at 0x2040, and burn is no part of it.
    #[test]
    fn functions_that_others_call_are_read_once_they_are_on_a_stack() {
        let mut memory = vec![0x90; 0x4000];
        for (address, target) in [(0x1010, 0x1800), (0x1810, 0x2000), (0x2010, 0x2040)] {
            let (address, call) = direct(address, target);
            memory[address as usize - 5..address as usize].copy_from_slice(&call);
        }
        let read = |from: u64, into: &mut [u8]| {
            into.copy_from_slice(&memory[from as usize..from as usize + into.len()]);
            into.len()
        };
        let mut sites = CallSites::new(Arch::X86_64);
        assert_eq!(sites.fitting(&vcpu(0), &chain(0x1808, &[0x1010]), read), 2);
        let mixed = chain(0x2048, &[0x1810, 0x1010]);
        assert_eq!(sites.fitting(&vcpu(0), &mixed, read), 1);
    }

    #[test]
    fn a_frame_that_another_call_made_does_not_fit() {
        // main at 0x1000 calls a at 0x2000 and b at 0x3000, each of which calls leaf at 0x4000.
        let calls = [
            direct(0x1010, 0x2000),
            direct(0x1020, 0x3000),
            direct(0x2010, 0x4000),
            direct(0x3010, 0x4000),
        ];
        let mut sites = CallSites::new(Arch::X86_64);
        let mut fitting =
            |ip, callers: &[u64]| sites.fitting(&vcpu(0x1000), &chain(ip, callers), code(&calls));
        assert_eq!(fitting(0x4004, &[0x2010, 0x1010]), 3);
        assert_eq!(fitting(0x4004, &[0x3010, 0x1020]), 3);
        assert_eq!(fitting(0x4004, &[0x3010, 0x1010]), 2, "b, called as a");
        assert_eq!(fitting(0x4004, &[0x2010, 0x1020]), 2, "a, called as b");
        assert_eq!(fitting(0x3008, &[0x1010]), 1);
        assert_eq!(fitting(0x4004, &[0x1020]), 1, "a leaf without a frame yet");
        assert_eq!(fitting(0x4004, &[0x2010, 0x5555]), 2, "nothing is there");
        assert_eq!(fitting(0x1_4004, &[0x2010]), 1, "no function is so long");
        assert_eq!(fitting(0x4004, &[]), 1);
        assert_eq!(sites.fitting(&vcpu(0x1000), &[], code(&calls)), 0);
        // Nothing was seen yet. The call of a shows where leaf, before it, ends.
        let calls = [direct(0x2010, 0x1800), direct(0x1010, 0x2000)];
        let mut sites = CallSites::new(Arch::X86_64);
        let mixed = chain(0x2804, &[0x2010, 0x1010]);
        assert_eq!(sites.fitting(&vcpu(0x1000), &mixed, code(&calls)), 1);
        // Another process has other code there.
        let calls = [direct(0x2010, 0x7000)];
        let mut fitting = |ip| sites.fitting(&vcpu(0x8000), &chain(ip, &[0x2010]), code(&calls));
        assert_eq!((fitting(0x4004), fitting(0x7004)), (1, 2));
    }

    #[test]
    fn a_guest_that_lies_takes_two_reads_a_frame_and_no_memory() {
        let mut sites = CallSites::new(Arch::X86_64);
        let room = (sites.sites.capacity(), sites.starts.capacity());
        // Return addresses to unmapped memory, and at the ends of the address space.
        for address in [1, 3, 7, 0x1000, 1 << 47, u64::MAX] {
            for is_there in [false, true] {
                let read = |_, into: &mut [u8]| if is_there { into.len() } else { 0 };
                let frames = chain(address, &[address; 9]);
                assert_eq!(sites.fitting(&vcpu(0), &frames, read), 1, "{address:#x}");
            }
        }
        // A function that calls itself, as deep as a chain can be.
        let itself = [direct(0x1010, 0x1000)];
        let (mut reads, mut code) = (0, code(&itself));
        let frames = chain(0x1008, &[0x1010; MAX_FRAMES - 1]);
        let read = |from, into: &mut [u8]| {
            reads += 1;
            code(from, into)
        };
        assert_eq!(sites.fitting(&vcpu(0), &frames, read), MAX_FRAMES);
        assert_eq!(reads, 2, "the call, and what it calls");
        // All memory consists of calls, each to another address.
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20 {
            let mut next = || random.u64(..);
            let callers: Vec<u64> = (0..255).map(|_| next()).collect();
            let frames = chain(next(), &callers);
            let mut reads = 0;
            let read = |_, into: &mut [u8]| {
                reads += 1;
                into.fill_with(|| next() as u8);
                match reads % 2 {
                    0 => into[2] = 0xe8,
                    _ => into[5..7].copy_from_slice(&[0xff, 0xd0]),
                }
                into.len()
            };
            let fitting = sites.fitting(&vcpu(0), &frames, read);
            assert!((1..=frames.len()).contains(&fitting) && reads < 3 * frames.len());
        }
        for start in 0..2 * MOST_STARTS as u64 {
            _ = sites.learn((0, start));
        }
        assert_eq!((sites.sites.capacity(), sites.starts.capacity()), room);
    }
}
