//! Guests that lie.

use super::memory::{MOST_BANNER_BYTES, MOST_READ_BYTES, MOST_TIME_NS};
use super::*;
use crate::source::ring::Sink;
use crate::source::{Facts, Life, SourceError, Vcpu, Vcpus};
use uprof::cold::Target;
use uprof::{Details, Registers, State, Task};

/// A fake guest whose memory, from an address on, consists of this many equal bytes.
struct FakeGuest {
    facts: Facts,
    start: u64,
    length: u64,
    fill: &'static [u8],
    read: u64,
    freezes: u32,
    frozen: bool,
    reads_running: bool,
    /// Instruction pointer of its vCPU.
    ip: u64,
    /// Its exception level (AArch64).
    level: u64,
    /// Address of an AArch64 guest's tables for the kernel's half.
    tables: Option<u64>,
    /// Duration of a freeze.
    takes: Duration,
}

impl FakeGuest {
    fn new(start: u64, length: u64, fill: &'static [u8]) -> Self {
        FakeGuest {
            facts: Facts::new(Target::default()),
            start,
            length,
            fill,
            read: 0,
            takes: Duration::ZERO,
            freezes: 0,
            frozen: false,
            reads_running: true,
            ip: IMAGES,
            level: 0,
            tables: None,
        }
    }

    /// A guest for AArch64, whose vCPU is in a process.
    fn arm64(start: u64, length: u64, fill: &'static [u8]) -> Self {
        let mut guest = FakeGuest::new(start, length, fill);
        guest.facts.target.arch = Arch::Aarch64;
        guest.ip = 0x40_0000;
        guest
    }
}

impl StopWorld for FakeGuest {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn freeze(&mut self, _: u64, vcpus: &mut Vcpus) -> Result<(), SourceError> {
        std::thread::sleep(self.takes);
        let mut registers = Registers::default();
        let ip = self.facts.target.arch.special_registers().ip;
        registers.set(ip, self.ip);
        registers.set(33, self.level << 2); // PSTATE of AArch64
        vcpus.push(Vcpu {
            task: Task { space: 0, vcpu: 0 },
            state: State::Running,
            registers,
            handle: 0,
            details: Details::default(),
        });
        self.freezes += 1;
        self.frozen = true;
        Ok(())
    }

    fn read(&mut self, _: &Vcpu, address: u64, into: &mut [u8]) -> usize {
        assert!(self.frozen || self.reads_running);
        let rest = self.length.saturating_sub(address.wrapping_sub(self.start));
        let count = into.len().min(rest as usize);
        let pieces = into[..count].chunks_mut(self.fill.len());
        pieces.for_each(|piece| piece.copy_from_slice(&self.fill[..piece.len()]));
        self.read += count as u64;
        count
    }

    fn reads_running(&self) -> bool {
        self.reads_running
    }

    fn resume(&mut self) -> Result<(), SourceError> {
        self.frozen = false;
        Ok(())
    }

    fn physical(&mut self, _: &Vcpu, address: u64) -> Option<u64> {
        let at = address.wrapping_sub(self.start);
        (at < self.length).then_some(at)
    }

    fn kernel_tables(&mut self, _: &Vcpu) -> Option<u64> {
        self.tables
    }

    fn between(&mut self, _: &mut Sink) -> Result<Life, SourceError> {
        Ok(Life::Alive)
    }
}

#[test]
fn a_process_is_not_named_after_its_neighbour_where_roots_are_single() {
    let process = |root| {
        let (pid, name) = (7, "web".to_owned());
        let tables = root;
        (root, Process { pid, name, tables })
    };
    let found = |processes: &HashMap<u64, Process>, arch, root| {
        let found = find_process(processes, has_second(processes, arch), root);
        found.map(|process| process.tables)
    };
    let isolated = HashMap::from([0x4000, 0x8000].map(process));
    assert_eq!(found(&isolated, Arch::X86_64, 0x8000), Some(0x8000));
    assert_eq!(found(&isolated, Arch::X86_64, 0x9000), Some(0x8000));
    assert_eq!(found(&isolated, Arch::X86_64, 0xa000), None);
    assert_eq!(found(&isolated, Arch::Aarch64, 0x9000), None);
    let single = HashMap::from([0x5000, 0x8000].map(process));
    assert_eq!(found(&single, Arch::X86_64, 0x5000), Some(0x5000));
    assert_eq!(found(&single, Arch::X86_64, 0x9000), None);
}

#[test]
fn a_guest_without_a_kernel_is_left_after_a_few_attempts() {
    let mut guest = FakeGuest::new(0x10_0000, 1 << 20, b"unikernel");
    assert!(read(&mut guest).unwrap().is_none());
    assert_eq!(
        (guest.freezes, guest.read, guest.frozen),
        (ATTEMPTS, 0, false)
    );
}

/// If a process's page tables hide the kernel, only the usual attempts read memory; the others wait for the kernel.
#[test]
fn a_kernel_that_is_hidden_from_processes_is_waited_for() {
    let mut guest = FakeGuest::new(IMAGES, 1 << 20, b"entry");
    guest.ip = 0x40_0000;
    assert!(matches!(read(&mut guest), Err(NotRead::Hidden)));
    assert!((ATTEMPTS + 1..=KERNEL_ATTEMPTS).contains(&guest.freezes));
    let mut other = FakeGuest::new(IMAGES, 1 << 20, b"entry");
    assert!(read(&mut other).unwrap().is_none());
    assert_eq!((other.freezes, other.read), (ATTEMPTS, guest.read));
}

/// In an emulated guest each pause takes this long.
#[test]
fn a_hidden_kernel_is_not_waited_for_much_longer_where_stops_are_slow() {
    let mut guest = FakeGuest::new(IMAGES, 1 << 20, b"entry");
    guest.ip = 0x40_0000;
    guest.takes = Duration::from_millis(20);
    assert!(matches!(read(&mut guest), Err(NotRead::Hidden)));
    let most = HIDDEN_NS / 20_000_000 + 1;
    let all = u64::from(ATTEMPTS) + 1..=most;
    assert!(all.contains(&guest.freezes.into()), "{}", guest.freezes);
}

/// A process's tables that hide the kernel of AArch64 don't map themselves. Where they do, the kernel is before them.
#[test]
fn a_kernel_for_aarch64_is_looked_for_before_its_page_tables() {
    let start = 0xffff_8000_0800_0000;
    let mut hidden = FakeGuest::arm64(start, 1 << 20, b"entry");
    assert!(matches!(read(&mut hidden), Err(NotRead::Hidden)));
    assert!((ATTEMPTS + 1..=KERNEL_ATTEMPTS).contains(&hidden.freezes));
    assert_eq!(hidden.read, 0);
    let mut privileged = FakeGuest::arm64(start, 1 << 20, b"unikernel");
    privileged.level = 1;
    assert!(read(&mut privileged).unwrap().is_none());
    assert_eq!((privileged.freezes, privileged.read), (ATTEMPTS, 0));
    let mut seen = FakeGuest::arm64(start, 1 << 20, b"entry");
    seen.tables = Some(start + 0xf_8123);
    assert!(read(&mut seen).unwrap().is_none());
    let all = u64::from(ATTEMPTS) << 20;
    assert_eq!(seen.freezes, ATTEMPTS);
    assert!((all..2 * all).contains(&seen.read), "{} bytes", seen.read);
}

#[test]
fn what_is_read_of_a_guest_that_has_memory_everywhere_is_bounded() {
    let digits: &[u8] =
        b"0\x001\x002\x003\x004\x005\x006\x007\x008\x009\0....................................";
    for reads_running in [true, false] {
        for fill in [&[0; 64][..], digits] {
            let mut guest = FakeGuest::new(IMAGES, 1 << 30, fill);
            guest.reads_running = reads_running;
            let start_ns = monotonic_ns();
            // Nothing shows that it is Linux.
            assert!(matches!(read(&mut guest), Ok(None)));
            assert!(
                guest.read < MOST_READ_BYTES + MOST_BANNER_BYTES + (1 << 20),
                "{} bytes",
                guest.read
            );
            assert!(monotonic_ns() - start_ns < 2 * MOST_TIME_NS);
            assert!(!guest.frozen);
        }
    }
}

/// With a version text, unreadable tables are reported as a kernel that isn't understood.
#[test]
fn only_what_says_so_is_taken_for_linux() {
    let fill: &[u8] = b"Linux version 9.9.9 (someone)...";
    let mut guest = FakeGuest::new(IMAGES, 1 << 30, fill);
    let found = read(&mut guest);
    let Err(NotRead::NotUnderstood(why)) = found else {
        panic!("{:?}", found.map(|_| ()))
    };
    assert_eq!(why.to_string(), "it takes too long to read");
}

#[test]
fn stacks_end_where_the_kernels_do() {
    assert_eq!(stack_bytes(IMAGES + 0x3f00, 16 << 10), 0x100);
    assert_eq!(stack_bytes(0xffff_c900_0000_3f00, 16 << 10), 16 << 10);
    let sp = 0xffff_c900_0001_0000;
    let with_last = |word: u64| [7, 8, word].map(u64::to_le_bytes).concat();
    let other = 0xffff_c900_0000_4000;
    assert_eq!(interrupted_stack(sp, &with_last(other)), Some(other));
    for word in [0x2b, other + 1, sp + 16, u64::MAX] {
        assert_eq!(interrupted_stack(sp, &with_last(word)), None, "{word:#x}");
    }
    assert_eq!(interrupted_stack(sp, &[1]), None);
}
