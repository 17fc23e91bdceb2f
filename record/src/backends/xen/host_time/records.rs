//! Decodes the records of one processor's trace buffer (Xen, public/trace.h).
//!
//! Input: bytes between two positions of the ring. Output: events in the order of the ring, with time stamps that
//! never run backwards. Any bytes are taken; what makes no sense counts as lost records.

use uprof::cold::{ExitCause, ExitKind};

/// Events that are needed: runstates (`TRC_SCHED_MIN`), entries and exits (`TRC_HVM_ENTRYEXIT`, `TRC_PV_ENTRY`). The
/// buffers' mask is one of classes and of subclasses.
pub const EVENTS: u32 = 0x0002_1000 | 0x0008_1000 | 0x0020_1000;

/// Event numbers: `TRC_LOST_RECORDS`, `TRC_SCHED_RUNSTATE_CHANGE`, and so on.
const LOST_RECORDS: u32 = 0x0001_f001;
const RUNSTATE_CHANGE: u32 = 0x0002_1001;
const CONTINUE_RUNNING: u32 = 0x0002_1002;
const VM_ENTRY: u32 = 0x0008_1001;
const VM_EXIT: u32 = 0x0008_1002;
/// Since Xen 4.18 only of AMD; before, both have [`VM_EXIT`].
const SVM_EXIT: u32 = 0x0008_1003;
const PV_TRAP: u32 = 0x0020_1003;
const PV_PAGE_FAULT: u32 = 0x0020_1004;
const PV_INVALID_OPERATION: u32 = 0x0020_1005;
const PV_PRIVILEGED: u32 = 0x0020_1006;
const PV_HYPERCALL: u32 = 0x0020_100d;
/// `TRC_64_FLAG`: addresses have 64 bits.
const WIDE: u32 = 0x100;
/// `TRC_HVM_NESTEDFLAG`.
const NESTED: u32 = 0x400;
/// Old and new state in a [`RUNSTATE_CHANGE`].
const STATES: u32 = 0x330;

/// Vectors of faults.
const INVALID_OPCODE: u64 = 6;
const GENERAL_PROTECTION: u64 = 13;
const PAGE_FAULT: u64 = 14;

/// A vCPU of any domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnyVcpu {
    /// Its domain.
    pub domain: u16,
    /// Its number there.
    pub vcpu: u16,
}

/// `RUNSTATE_*` of vcpu.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// Has a processor.
    Running,
    /// Waits for one.
    Runnable,
    /// Waits for an event.
    Blocked,
    /// Paused, or not started.
    Offline,
}

/// A record of interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A vCPU's state changed. If either state is [`RunState::Running`], it is on the buffer's processor.
    Changed {
        /// The vCPU.
        of: AnyVcpu,
        /// State before.
        old: RunState,
        /// State from now on.
        new: RunState,
    },
    /// A vCPU keeps the processor.
    Continues(AnyVcpu),
    /// The processor goes on with the code of an HVM or PVH guest.
    Entry,
    /// It left that code.
    Exit(ExitCause),
    /// A PV guest called Xen, or faulted.
    PvEntry(ExitCause),
    /// From here on records were lost.
    LossBegins,
    /// Here they are complete again.
    LossEnds {
        /// How many were lost.
        count: u64,
        /// Who has the processor, if that is known.
        running: Option<AnyVcpu>,
    },
}

/// An event with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamped {
    /// Cycle counter.
    pub cycles: u64,
    /// Index of the buffer.
    pub ring: usize,
    /// The event.
    pub event: Event,
}

/// Decodes one ring from one call to the next.
#[derive(Debug)]
pub struct Decoder {
    ring: usize,
    /// Whose exit codes Xen writes.
    exit_kind: ExitKind,
    /// The latest time stamp.
    cycles: u64,
}

/// What to read of a ring: one piece, or two if it goes on at the ring's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Offset of the first piece, and its length.
    pub first: (u32, u32),
    /// Length of the second.
    pub second_bytes: u32,
}

/// The bytes between two positions of a ring of `ring_bytes`; `None` if there can't be such positions.
pub fn stretch(read: u32, written: u32, ring_bytes: u32) -> Option<Stretch> {
    let twice = ring_bytes.checked_mul(2)?;
    let is_position = |at: u32| at < twice && at.is_multiple_of(4);
    if !is_position(read) || !is_position(written) {
        return None;
    }
    let count = (written + if written < read { twice } else { 0 }) - read;
    let from = read % ring_bytes;
    let first_bytes = count.min(ring_bytes - from);
    (count <= ring_bytes).then_some(Stretch {
        first: (from, first_bytes),
        second_bytes: count - first_bytes,
    })
}

impl Decoder {
    /// A decoder of ring `ring`.
    pub fn new(ring: usize, exit_kind: ExitKind) -> Self {
        Decoder {
            ring,
            exit_kind,
            cycles: 0,
        }
    }

    /// Appends the events of `bytes` to `events`. They were read before the counter was at `now`, so a later stamp is
    /// wrong.
    pub fn decode(&mut self, bytes: &[u8], now: u64, events: &mut Vec<Stamped>) {
        let (words, rest) = bytes.as_chunks::<4>();
        let mut left: &[[u8; 4]] = words;
        while let Some((record, after)) = Record::split(left) {
            left = after;
            let stamp = record.cycles.map_or(0, |stamp| stamp.min(now));
            self.cycles = self.cycles.max(stamp);
            if let Some(event) = self.event(&record, events) {
                self.push(event, events);
            }
        }
        if !left.is_empty() || !rest.is_empty() {
            self.lose(events);
        }
    }

    /// Notes that what follows the latest record is unknown.
    pub fn lose(&mut self, events: &mut Vec<Stamped>) {
        self.push(Event::LossBegins, events);
        let (count, running) = (1, None);
        self.push(Event::LossEnds { count, running }, events);
    }

    fn push(&self, event: Event, events: &mut Vec<Stamped>) {
        events.push(Stamped {
            cycles: self.cycles,
            ring: self.ring,
            event,
        });
    }

    fn event(&self, record: &Record, events: &mut Vec<Stamped>) -> Option<Event> {
        let word = |index: usize| {
            record
                .words
                .get(index)
                .map(|word| u32::from_ne_bytes(*word))
        };
        let wide = |index: usize| Some(u64::from(word(index)?) | u64::from(word(index + 1)?) << 32);
        let is_wide = record.event & WIDE != 0;
        let address = |index: usize| {
            if is_wide {
                wide(index)
            } else {
                word(index).map(u64::from)
            }
        };
        let after_address = if is_wide { 2 } else { 1 };
        if record.event & !STATES == RUNSTATE_CHANGE {
            return Some(Event::Changed {
                of: vcpu(word(0)?, false),
                old: run_state(record.event >> 8),
                new: run_state(record.event >> 4),
            });
        }
        let trap = |vector: u64, address: Option<u64>| {
            Some(Event::PvEntry(ExitCause {
                kind: ExitKind::XenTrap,
                reason: vector,
                address,
                argument: None,
            }))
        };
        match record.event & !(WIDE | NESTED) {
            CONTINUE_RUNNING => Some(Event::Continues(vcpu(word(0)?, false))),
            VM_ENTRY => Some(Event::Entry),
            number @ (VM_EXIT | SVM_EXIT) => Some(Event::Exit(ExitCause {
                kind: if number == SVM_EXIT {
                    ExitKind::Svm
                } else {
                    self.exit_kind
                },
                reason: u64::from(word(0)?),
                address: address(1),
                argument: None,
            })),
            PV_TRAP => trap(u64::from(word(after_address)? & 0x7fff), address(0)),
            PV_PAGE_FAULT => trap(PAGE_FAULT, address(0)),
            PV_INVALID_OPERATION => trap(INVALID_OPCODE, address(0)),
            PV_PRIVILEGED => trap(GENERAL_PROTECTION, address(0)),
            PV_HYPERCALL => {
                // The first argument is there if its two bits say that it has 32 bits.
                let call = word(0)?;
                Some(Event::PvEntry(ExitCause {
                    kind: ExitKind::XenHypercall,
                    reason: u64::from(call & 0xf_ffff),
                    address: None,
                    argument: (call >> 20 & 3 == 1)
                        .then(|| word(1))
                        .flatten()
                        .map(u64::from),
                }))
            }
            LOST_RECORDS => {
                let began = wide(2)?.min(self.cycles);
                // Other records of the ring may be later than that by a clock that differs.
                let last = events.iter().rfind(|last| last.ring == self.ring);
                events.push(Stamped {
                    cycles: last.map_or(began, |last| began.max(last.cycles)),
                    ring: self.ring,
                    event: Event::LossBegins,
                });
                Some(Event::LossEnds {
                    count: u64::from(word(0)?),
                    running: Some(vcpu(word(1)?, true)),
                })
            }
            _ => None,
        }
    }
}

/// A record: `struct t_rec`.
struct Record<'a> {
    event: u32,
    cycles: Option<u64>,
    words: &'a [[u8; 4]],
}

impl Record<'_> {
    /// The first record of `words`, and what follows it; `None` if there is no whole one.
    fn split(words: &[[u8; 4]]) -> Option<(Record<'_>, &[[u8; 4]])> {
        let (head, mut rest) = words.split_first()?;
        let head = u32::from_ne_bytes(*head);
        let mut cycles = None;
        if head >> 31 != 0 {
            let (stamp, after) = rest.split_first_chunk::<2>()?;
            let [low, high] = stamp.map(|word| u64::from(u32::from_ne_bytes(word)));
            (cycles, rest) = (Some(low | high << 32), after);
        }
        let (words, rest) = rest.split_at_checked((head >> 28 & 7) as usize)?;
        let event = head & 0x0fff_ffff;
        let record = Record {
            event,
            cycles,
            words,
        };
        Some((record, rest))
    }
}

/// Domain and vCPU from a word: the domain is in the upper half, in some records in the lower.
fn vcpu(word: u32, is_domain_first: bool) -> AnyVcpu {
    let [low, high] = [word as u16, (word >> 16) as u16];
    let [domain, vcpu] = if is_domain_first {
        [low, high]
    } else {
        [high, low]
    };
    AnyVcpu { domain, vcpu }
}

fn run_state(bits: u32) -> RunState {
    match bits & 3 {
        0 => RunState::Running,
        1 => RunState::Runnable,
        2 => RunState::Blocked,
        _ => RunState::Offline,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A record's bytes.
    pub fn record(event: u32, cycles: Option<u64>, words: &[u32]) -> Vec<u8> {
        let head = event | (words.len() as u32) << 28 | u32::from(cycles.is_some()) << 31;
        let stamp = cycles.map(|cycles| [cycles as u32, (cycles >> 32) as u32]);
        let all = [head].into_iter().chain(stamp.into_iter().flatten());
        all.chain(words.iter().copied())
            .flat_map(u32::to_ne_bytes)
            .collect()
    }

    fn decoded(bytes: &[u8]) -> Vec<(u64, Event)> {
        let mut events = Vec::new();
        Decoder::new(3, ExitKind::Svm).decode(bytes, NOW, &mut events);
        assert!(events.iter().all(|one| one.ring == 3));
        events.iter().map(|one| (one.cycles, one.event)).collect()
    }

    /// Later than all records that make sense.
    const NOW: u64 = 1 << 41;
    const LOST: Event = Event::LossEnds {
        count: 1,
        running: None,
    };

    #[test]
    fn records_of_each_kind_are_read() {
        let of = AnyVcpu { domain: 7, vcpu: 2 };
        let exit = |address| {
            Event::Exit(ExitCause {
                kind: ExitKind::Svm,
                reason: 0x72,
                address: Some(address),
                argument: None,
            })
        };
        let bytes = [
            record(RUNSTATE_CHANGE | 1 << 8, Some(10), &[7 << 16 | 2]),
            record(VM_ENTRY, Some(20), &[0]),
            record(VM_EXIT | WIDE, Some(30), &[0x72, 0x8000_1234, 0xffff_ffff]),
            record(SVM_EXIT | NESTED, Some(31), &[0x72, 0x1234]),
            record(CONTINUE_RUNNING, Some(40), &[7 << 16 | 2]),
            record(0x0002_8003, Some(50), &[1, 2, 3]),
            record(RUNSTATE_CHANGE | 3 << 4, Some(1 << 40), &[7 << 16 | 2]),
        ];
        let (old, new) = (RunState::Runnable, RunState::Running);
        let begins = Event::Changed { of, old, new };
        let (old, new) = (RunState::Running, RunState::Offline);
        let ends = Event::Changed { of, old, new };
        let all = [
            (10, begins),
            (20, Event::Entry),
            (30, exit(0xffff_ffff_8000_1234)),
            (31, exit(0x1234)),
            (40, Event::Continues(of)),
            (1 << 40, ends),
        ];
        assert_eq!(decoded(&bytes.concat()), all);
    }

    #[test]
    fn faults_and_calls_of_a_pv_guest_are_read() {
        let bytes = [
            record(PV_TRAP | WIDE, Some(1), &[0x1000, 0, 1 << 15 | 13]),
            record(PV_TRAP, Some(1), &[0x1000, 6]),
            record(PV_PAGE_FAULT | WIDE, Some(1), &[0x1000, 1, 0x5000, 0, 2]),
            record(PV_HYPERCALL, Some(1), &[1 << 20 | 29, 1]),
            record(PV_HYPERCALL, Some(1), &[1 << 22 | 1, 5]),
            record(PV_TRAP | WIDE, Some(1), &[0x1000, 0]),
        ];
        let cause = |kind, reason, address, argument| {
            let cause = ExitCause {
                kind,
                reason,
                address,
                argument,
            };
            (1, Event::PvEntry(cause))
        };
        let all = [
            cause(ExitKind::XenTrap, 13, Some(0x1000), None),
            cause(ExitKind::XenTrap, 6, Some(0x1000), None),
            cause(ExitKind::XenTrap, 14, Some(0x1_0000_1000), None),
            cause(ExitKind::XenHypercall, 29, None, Some(1)),
            cause(ExitKind::XenHypercall, 1, None, None),
        ];
        assert_eq!(decoded(&bytes.concat()), all);
    }

    #[test]
    fn a_record_that_is_cut_counts_as_lost() {
        let whole = record(VM_EXIT | WIDE, Some(30), &[0x72, 1, 0]);
        let before = record(VM_ENTRY, Some(20), &[]);
        for count in 1..whole.len() {
            let bytes = [&before[..], &whole[..count]].concat();
            let all = [(20, Event::Entry), (20, Event::LossBegins), (20, LOST)];
            assert_eq!(decoded(&bytes), all, "{count} bytes");
        }
        // Sizes that lead beyond the bytes, and bytes that are no records at all.
        assert_eq!(decoded(&[0xff; 12])[0], (0, Event::LossBegins));
        for seed in 0..2000u64 {
            let mut random = fastrand::Rng::with_seed(seed);
            let bytes: Vec<u8> = (0..random.usize(..200)).map(|_| random.u8(..)).collect();
            let times = decoded(&bytes);
            assert!(times.is_sorted_by_key(|(cycles, _)| *cycles), "{seed}");
            assert!(times.iter().all(|(cycles, _)| *cycles <= NOW), "{seed}");
        }
    }

    #[test]
    fn times_never_run_backwards() {
        let bytes = [
            record(VM_ENTRY, Some(30), &[]),
            record(VM_ENTRY, Some(20), &[]),
            record(VM_ENTRY, None, &[]),
            record(LOST_RECORDS, Some(50), &[9, 7 | 2 << 16, 25, 0]),
            record(LOST_RECORDS, Some(60), &[1, 7 | 2 << 16, 90, 0]),
            record(VM_ENTRY, Some(u64::MAX), &[]),
        ];
        let running = Some(AnyVcpu { domain: 7, vcpu: 2 });
        let ends = |count| Event::LossEnds { count, running };
        let all = [
            (30, Event::Entry),
            (30, Event::Entry),
            (30, Event::Entry),
            (30, Event::LossBegins),
            (50, ends(9)),
            (60, Event::LossBegins),
            (60, ends(1)),
            (NOW, Event::Entry),
        ];
        assert_eq!(decoded(&bytes.concat()), all);
    }

    #[test]
    fn positions_beyond_the_ring_are_refused() {
        let piece = |first, second_bytes| {
            Some(Stretch {
                first,
                second_bytes,
            })
        };
        assert_eq!(stretch(0, 0, 400), piece((0, 0), 0));
        assert_eq!(stretch(40, 100, 400), piece((40, 60), 0));
        assert_eq!(stretch(380, 420, 400), piece((380, 20), 20));
        assert_eq!(stretch(780, 20, 400), piece((380, 20), 20));
        assert_eq!(stretch(0, 400, 400), piece((0, 400), 0));
        assert_eq!(stretch(400, 0, 400), piece((0, 400), 0));
        assert_eq!(stretch(0, 404, 400), None);
        assert_eq!(stretch(8, 4, 400), None);
        assert_eq!(stretch(0, 800, 400), None);
        assert_eq!(stretch(u32::MAX - 3, 0, 400), None);
        assert_eq!(stretch(0, 2, 400), None);
        assert_eq!(stretch(0, 0, 0), None);
        assert_eq!(stretch(0, 0, u32::MAX - 3), None);
    }
}
