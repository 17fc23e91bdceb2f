//! Checks whether the frames of a stack fit together: the call before a return address must lead to the function that
//! the next inner frame is in.
//!
//! Input: a chain that was read while its vCPU may have run on. Output: how many of its frames, from the innermost,
//! fit. Function starts are learned from calls, as nothing else is known of the guest. After a tail call, or where
//! code can't be read, frames don't fit; the target of an indirect call is not known, and passes. Must not allocate,
//! nor assume that what it reads is code.

use crate::source::Vcpu;
use uprof::{Arch, Frame};

/// Return addresses remembered, a power of two. Of two that share a slot, each replaces the other.
const SITES: usize = 1024;
/// Most function starts remembered. When there are more, all are discarded.
const MOST_STARTS: usize = 4096;
/// No function is longer: an address further behind a start is in another function, not seen yet.
const MOST_FUNCTION_BYTES: u64 = 1 << 16;
/// An empty slot.
const UNSEEN: (Place, Site) = ((0, 0), Site::None);
/// The longest call on x86-64 (Intel SDM volume 2, "CALL", without needless prefixes).
const CALL_BYTES: usize = 7;
/// Address space and address.
type Place = (u32, u64);

/// What precedes a return address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Site {
    /// No call, or unreadable memory.
    None,
    /// A call to somewhere.
    Indirect,
    /// A call to this address.
    Direct(u64),
}

/// The calls and functions seen so far.
pub struct CallSites {
    arch: Arch,
    sites: Vec<(Place, Site)>,
    /// In order.
    starts: Vec<Place>,
}

impl CallSites {
    /// Without call sites; allocates all memory.
    pub fn new(arch: Arch) -> Self {
        CallSites {
            arch,
            sites: vec![UNSEEN; SITES],
            starts: Vec::with_capacity(MOST_STARTS),
        }
    }

    /// How many frames of `chain`, from the innermost, fit together in the code that `vcpu` sees. `read` reads the
    /// guest's memory and returns the bytes read.
    pub fn fitting(
        &mut self,
        vcpu: &Vcpu,
        chain: &[Frame],
        mut read: impl FnMut(u64, &mut [u8]) -> usize,
    ) -> usize {
        // All calls first: their targets show where the functions before them end.
        let mut callers = chain.iter().skip(1);
        callers.all(|caller| self.site_before(vcpu, caller.address, &mut read) != Site::None);
        let pairs = chain.iter().zip(chain.iter().skip(1));
        let fit = pairs.take_while(|(inside, caller)| {
            let inside = inside.lookup_address();
            match self.site_before(vcpu, caller.address, &mut read) {
                Site::None => false,
                Site::Indirect => true,
                Site::Direct(start) => self.is_within(vcpu, inside, start),
            }
        });
        chain.len().min(1 + fit.count())
    }

    fn site_before(
        &mut self,
        vcpu: &Vcpu,
        address: u64,
        read: &mut impl FnMut(u64, &mut [u8]) -> usize,
    ) -> Site {
        let place = (vcpu.space_of(address), address);
        let known = &mut self.sites[index(place)];
        if known.0 == place {
            return known.1;
        }
        let mut bytes = [0; CALL_BYTES];
        // Memory may be there a moment later, so that this is not remembered.
        if read(address.wrapping_sub(CALL_BYTES as u64), &mut bytes) < CALL_BYTES {
            return Site::None;
        }
        let site = call_before(self.arch, address, bytes);
        *known = (place, site);
        if let Site::Direct(start) = site {
            self.learn((vcpu.space_of(start), start));
        }
        site
    }

    fn learn(&mut self, start: Place) {
        if self.starts.len() == MOST_STARTS {
            self.starts.clear();
            self.sites.fill(UNSEEN);
        }
        if let Err(at) = self.starts.binary_search(&start) {
            self.starts.insert(at, start);
        }
    }

    /// Whether `address` is after `start` with no other function in between.
    fn is_within(&self, vcpu: &Vcpu, address: u64, start: u64) -> bool {
        let space = vcpu.space_of(start);
        let after = self
            .starts
            .partition_point(|&other| other <= (space, start));
        let next = self.starts.get(after);
        let is_near = |start| {
            address
                .checked_sub(start)
                .is_some_and(|by| by < MOST_FUNCTION_BYTES)
        };
        is_near(start) && next.is_none_or(|&next| (space, address) < next)
    }
}

/// The slot of `place`.
fn index((space, address): Place) -> usize {
    let mixed = (address ^ u64::from(space) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize % SITES
}

/// The call whose last byte is the last of `bytes`, before `address`.
fn call_before(arch: Arch, address: u64, bytes: [u8; CALL_BYTES]) -> Site {
    let [.., a, b, c, d] = bytes;
    let last = u32::from_le_bytes([a, b, c, d]);
    match arch {
        Arch::X86_64 if is_indirect(&bytes) => Site::Indirect,
        Arch::X86_64 if bytes[2] == 0xe8 => {
            Site::Direct(address.wrapping_add_signed(i64::from(last.cast_signed())))
        }
        Arch::X86_64 => Site::None,
        // BL: a signed offset of 26 bits, in words (Arm ARM, C6.2.34).
        Arch::Aarch64 if last >> 26 == 0b10_0101 => {
            let words = i64::from((last << 6).cast_signed() >> 6);
            Site::Direct(address.wrapping_sub(4).wrapping_add_signed(4 * words))
        }
        // BLR and its authenticated forms.
        Arch::Aarch64 if last & 0xfeff_f000 == 0xd63f_0000 => Site::Indirect,
        Arch::Aarch64 => Site::None,
    }
}

/// Whether `bytes` end with a call through a register or memory: FF /2, whose ModR/M byte determines its length
/// (Intel SDM volume 2, 2.1.5).
fn is_indirect(bytes: &[u8]) -> bool {
    (2..=bytes.len()).any(|length| {
        let call = &bytes[bytes.len() - length..];
        let (form, operand) = (call[1] >> 6, call[1] & 7);
        let scale = usize::from(form != 3 && operand == 4);
        let offset = match form {
            1 => 1,
            2 => 4,
            0 if operand == 5 => 4,
            _ => 0,
        };
        call[0] == 0xff && call[1] >> 3 & 7 == 2 && length == 2 + scale + offset
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::layout::MAX_FRAMES;
    use uprof::{Details, Registers, State, Task};

    /// Calls by return address.
    fn code(calls: &[(u64, Vec<u8>)]) -> impl FnMut(u64, &mut [u8]) -> usize {
        move |from, into| {
            into.fill(0x90);
            let end = from + into.len() as u64;
            let call = calls.iter().find(|(address, _)| *address == end);
            let Some((_, call)) = call else { return 0 };
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

    /// One that runs under the page tables at `root`.
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
        // Nothing was seen yet: that a was called tells where leaf, before it, ends.
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
        // Return addresses into nowhere, and at the ends of the address space.
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
        assert_eq!(reads, 1);
        // All memory is calls, each time to elsewhere.
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let mut next = || random.u64(..);
            let callers: Vec<u64> = (0..255).map(|_| next()).collect();
            let frames = chain(next(), &callers);
            let mut reads = 0;
            let read = |_, into: &mut [u8]| {
                reads += 1;
                into.copy_from_slice(&next().to_le_bytes()[..into.len()]);
                match reads % 2 {
                    0 => into[2] = 0xe8,
                    _ => into[5..].copy_from_slice(&[0xff, 0xd0]),
                }
                into.len()
            };
            let fitting = sites.fitting(&vcpu(0), &frames, read);
            assert!((1..=frames.len()).contains(&fitting) && reads < 2 * frames.len());
        }
        for start in 0..2 * MOST_STARTS as u64 {
            sites.learn((0, start));
        }
        assert_eq!((sites.sites.capacity(), sites.starts.capacity()), room);
    }

    #[test]
    fn calls_of_all_forms() {
        let form = |call: &[u8]| {
            let mut bytes = [0x90; CALL_BYTES];
            bytes[CALL_BYTES - call.len()..].copy_from_slice(call);
            call_before(Arch::X86_64, 0x1000, bytes)
        };
        for indirect in [
            &[0xff, 0xd0][..],                  // call *%rax
            &[0x41, 0xff, 0xd3],                // call *%r11
            &[0xff, 0x50, 0x10],                // call *16(%rax)
            &[0xff, 0x15, 1, 2, 3, 4],          // call *…(%rip)
            &[0xff, 0x54, 0xd8, 0x10],          // call *16(%rax,%rbx,8)
            &[0xff, 0x94, 0x24, 0x80, 0, 0, 0], // call *128(%rsp)
        ] {
            assert_eq!(form(indirect), Site::Indirect, "{indirect:x?}");
        }
        assert_eq!(form(&[0xe8, 0, 1, 0, 0]), Site::Direct(0x1100));
        assert_eq!(form(&[0xe9, 0, 1, 0, 0]), Site::None);
        let arm = |word: u32| {
            let mut bytes = [0; CALL_BYTES];
            bytes[3..].copy_from_slice(&word.to_le_bytes());
            call_before(Arch::Aarch64, 0x1000, bytes)
        };
        assert_eq!(arm(0x9400_0002), Site::Direct(0x1004));
        assert_eq!(arm(0x97ff_ffff), Site::Direct(0xff8));
        assert_eq!(arm(0xd63f_0020), Site::Indirect);
        assert_eq!(arm(0xd61f_0020), Site::None, "br");
    }
}
