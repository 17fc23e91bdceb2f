//! Idle samples of guests whose recorder could not detect idleness: they are recognized by the guest's code
//! alone.

mod listing;
mod made;

use made::{KERNEL, open};
use std::collections::BTreeSet;
use uniprof_report::bundle::bundle;
use uniprof_report::images::Library;
use uniprof_report::profile::{Options, Profile, gather};
use uniprof_report::recording::Recording;
use uniprof_report::views::info;
use uprof::cold::{Code, End, EndReason, Mapping, Metadata, ModuleChange, ModuleEvent, TargetKind};
use uprof::image::{ImageIdentity, ImagePart, Symbol};
use uprof::{Arch, Frame, Sample, State, Task, Writer};

/// `push %rbp; mov -0xc(%rbp),%eax; sti; hlt; ret`. The constants below are offsets of its last three
/// instructions.
const CODE: [u8; 7] = [0x55, 0x8b, 0x45, 0xf4, 0xfb, 0xf4, 0xc3];
const BEHIND_LOAD: u64 = 4;
const AT_HALT: u64 = 5;
const BEHIND_HALT: u64 = 6;

/// A recording with a function `idle` of `size_bytes` at [`KERNEL`], and a sample at each of `ips`. Its code
/// comes from `code`, each piece with its address, or from `image`, which begins at [`KERNEL`].
struct Guest<'a> {
    kind: TargetKind,
    arch: Arch,
    named: bool,
    size_bytes: u64,
    code: &'a [(u64, &'a [u8])],
    image: Option<Vec<u8>>,
    ips: &'a [u64],
}

impl Default for Guest<'_> {
    fn default() -> Self {
        Guest {
            kind: TargetKind::Qemu,
            arch: Arch::X86_64,
            named: true,
            size_bytes: 0x1000,
            code: &[(KERNEL, &CODE)],
            image: None,
            ips: &[],
        }
    }
}

impl Guest<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut metadata = Metadata::default();
        metadata.target.kind = self.kind;
        metadata.target.arch = self.arch;
        let mut writer = Writer::create(Vec::new(), [7; 16], &metadata, 1).unwrap();
        let path = "[kernel]".to_owned();
        let mapping = Mapping {
            start: KERNEL,
            length: 4 << 20,
            file_offset: if self.image.is_some() {
                listing::NOPS
            } else {
                KERNEL
            },
            path: path.clone(),
            build_id: Vec::new(),
            file: None,
        };
        let mapped = ModuleEvent {
            time_ns: 1,
            space: 0,
            what: ModuleChange::Mapped(mapping),
        };
        writer.modules(&[mapped]).unwrap();
        let mut part = ImagePart::new(ImageIdentity {
            path,
            build_id: Vec::new(),
            arch: self.arch,
            load_bias: 0,
            origin: "kallsyms".into(),
        });
        let idle = Symbol {
            address: KERNEL,
            size_bytes: self.size_bytes,
            name: "idle",
        };
        assert!(!self.named || part.push(idle));
        if let Some(bytes) = &self.image {
            part.set_file(bytes.clone());
        }
        writer.image_part(&part, 1).unwrap();
        let code = self.code.iter().map(|(address, bytes)| Code {
            time_ns: 1,
            space: 0,
            address: *address,
            bytes: bytes.to_vec(),
        });
        writer.code(&code.collect::<Vec<_>>()).unwrap();
        let task = Task { space: 0, vcpu: 0 };
        for (number, ip) in (1..).zip(self.ips) {
            let chain = [Frame::exact(*ip), Frame::return_address(KERNEL + 0x800)];
            let sample = Sample::bare(number * 1_000_000, task, &chain);
            writer.sample(&sample).unwrap();
        }
        let end = End {
            time_ns: 1_000_000_000,
            reason: EndReason::Duration,
            message: String::new(),
            totals: Vec::new(),
        };
        writer.finish(&end).unwrap()
    }

    /// The number of running samples, and of idle ones.
    fn counts(&self) -> (u64, u64) {
        counts(&open(self.bytes()))
    }
}

fn profile(recording: &Recording, states: &[State]) -> Profile {
    let mut options = Options::default();
    options.filter.states = states.iter().copied().collect::<BTreeSet<_>>();
    gather(&[recording], &library(), &options, &|_, _| {}, None)
}

fn library() -> Library {
    let mut library = Library::default();
    library.only_given = true;
    library
}

fn counts(recording: &Recording) -> (u64, u64) {
    let account = profile(recording, &[]).account;
    let idle = account.by_state.get(&State::Blocked).copied();
    assert_eq!(account.by_state.len(), usize::from(idle.is_some()));
    let counts = (account.counted, idle.unwrap_or(0));
    let survey = info::survey(recording, &library(), &|_, _| {});
    let surveyed = |state| survey.states.get(&state).copied().unwrap_or(0);
    let info = (surveyed(State::Running), surveyed(State::Blocked));
    assert_eq!(info, counts, "`info` and `report` differ");
    counts
}

#[test]
fn only_what_stands_behind_an_idle_instruction_is_idle() {
    let of_ip = |into| {
        Guest {
            ips: &[KERNEL + into],
            ..Guest::default()
        }
        .counts()
    };
    assert_eq!(of_ip(BEHIND_HALT), (0, 1));
    // At the instruction itself, the vCPU has not halted yet.
    assert_eq!(of_ip(AT_HALT), (1, 0));
    // The last byte of the load equals hlt.
    assert_eq!(of_ip(BEHIND_LOAD), (1, 0));
    assert_eq!([of_ip(0), of_ip(7), of_ip(8)], [(1, 0); 3]);
}

#[test]
fn code_that_is_not_known_is_not_idle() {
    let with = |guest: Guest<'_>| {
        Guest {
            ips: &[KERNEL + BEHIND_HALT],
            ..guest
        }
        .counts()
    };
    let guest = Guest::default;
    assert_eq!(with(guest()), (0, 1));
    assert_eq!(
        with(Guest {
            named: false,
            ..guest()
        }),
        (1, 0)
    );
    assert_eq!(
        with(Guest {
            code: &[],
            ..guest()
        }),
        (1, 0)
    );
    // A process; and a function whose first bytes are missing, or with a gap.
    let kind = TargetKind::Process;
    assert_eq!(with(Guest { kind, ..guest() }), (1, 0));
    let tail: [(u64, &[u8]); 1] = [(KERNEL + 1, &CODE[1..])];
    assert_eq!(
        with(Guest {
            code: &tail,
            ..guest()
        }),
        (1, 0)
    );
    let gap: [(u64, &[u8]); 2] = [(KERNEL, &CODE[..3]), (KERNEL + 4, &CODE[4..])];
    assert_eq!(
        with(Guest {
            code: &gap,
            ..guest()
        }),
        (1, 0)
    );
    let parts: [(u64, &[u8]); 2] = [(KERNEL + 3, &CODE[3..]), (KERNEL, &CODE[..4])];
    assert_eq!(
        with(Guest {
            code: &parts,
            ..guest()
        }),
        (0, 1)
    );
    // Bytes before it that are not an instruction.
    let bad: [(u64, &[u8]); 1] = [(KERNEL, &[0x06, 0x90, 0x90, 0x90, 0xfb, 0xf4])];
    assert_eq!(
        with(Guest {
            code: &bad,
            ..guest()
        }),
        (1, 0)
    );
}

#[test]
fn addresses_at_the_ends_of_memory_are_survived() {
    let ips = [0, 1, u64::MAX, KERNEL - 1, KERNEL + (4 << 20)];
    let code: [(u64, &[u8]); 3] = [(0, &[]), (u64::MAX, &[0xf4; 256]), (KERNEL, &[])];
    let counts = Guest {
        code: &code,
        ips: &ips,
        ..Guest::default()
    }
    .counts();
    assert_eq!(counts, (5, 0));
}

#[test]
fn idle_instructions_are_looked_for_so_far_into_a_function() {
    // An image with only `nop` and one `hlt`, which is byte `size_bytes` of the function, from 1.
    let counts = |size_bytes: u64| {
        let folder = tempfile::tempdir().unwrap();
        let path = listing::nops(folder.path(), 1 << 20);
        let mut image = std::fs::read(path).unwrap();
        image[(listing::NOPS + size_bytes - 1) as usize] = 0xf4;
        Guest {
            size_bytes: 1 << 20,
            code: &[],
            image: Some(image),
            ips: &[KERNEL + size_bytes],
            ..Guest::default()
        }
        .counts()
    };
    assert_eq!([1, 2, 64 << 10].map(counts), [(0, 1); 3]);
    assert_eq!([(64 << 10) + 1, 1 << 20].map(counts), [(1, 0); 2]);
}

#[test]
fn pieces_of_code_are_joined() {
    let (first, second) = ([0x90; 256], [&[0x90; 9][..], &[0xf4]].concat());
    let counts = Guest {
        code: &[(KERNEL + 256, &second), (KERNEL, &first)],
        ips: &[KERNEL + 266, KERNEL + 265],
        ..Guest::default()
    }
    .counts();
    assert_eq!(counts, (1, 1));
}

#[test]
fn on_aarch64_the_word_before_tells() {
    // wfi; nop; wfe
    let code = [0xd503_207f_u32, 0xd503_201f, 0xd503_205f].map(u32::to_le_bytes);
    let code: [(u64, &[u8]); 1] = [(KERNEL, code.as_flattened())];
    let of_ip = |into| {
        Guest {
            arch: Arch::Aarch64,
            named: false,
            code: &code,
            ips: &[KERNEL + into],
            ..Guest::default()
        }
        .counts()
    };
    assert_eq!([0, 4, 8, 12].map(of_ip), [(1, 0), (0, 1), (1, 0), (1, 0)]);
}

#[test]
fn what_is_left_out_is_told_and_a_bundle_says_the_same() {
    let ips = [BEHIND_HALT, BEHIND_LOAD, BEHIND_HALT, BEHIND_HALT].map(|into| KERNEL + into);
    let guest = Guest {
        ips: &ips,
        ..Guest::default()
    };
    let recording = open(guest.bytes());
    let found = profile(&recording, &[]);
    let lines = found.account.lines();
    assert_eq!(
        lines[1],
        "not counted: 3 idle (75.0% of the samples; --idle counts them too)"
    );
    let all = profile(&recording, &[State::Running, State::Blocked]);
    assert_eq!((all.account.counted, all.account.by_state.len()), (4, 0));
    assert_eq!(profile(&recording, &[State::Blocked]).account.counted, 3);
    for redact in [false, true] {
        let mut bundled = Vec::new();
        bundle(&recording, &library(), redact, &mut bundled).unwrap();
        assert_eq!(counts(&open(bundled)), (1, 3), "redacted: {redact}");
    }
}
