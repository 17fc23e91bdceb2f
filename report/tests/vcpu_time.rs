//! Where the wall time of vCPUs went: the sum by place, the exits, and the flame graph of both; of records as a
//! recorder writes them, and of hostile ones.

mod exported;
mod made;

use exported::exported;
use made::open;
use uniprof_report::diff::{DiffOptions, diff};
use uniprof_report::export::folded;
use uniprof_report::images::Library;
use uniprof_report::profile::{Filter, Options, Profile, gather};
use uniprof_report::recording::{Recording, Unit};
use uniprof_report::stacks::Tables;
use uniprof_report::views::{Content, FlagValue, Form, Renderer, VIEWS};
use uprof::cold::{
    ClockPair, End, EndReason, ExitCause, ExitKind, Exits, GUEST_KERNEL_PATH, GUEST_PATH,
    GUEST_USER_PATH, HandledExit, Loss, LossReason, Mapping, Metadata, space_of_guest,
};
use uprof::cold::{ModuleChange, ModuleEvent, Place, TargetKind, TaskChange, TaskEvent, VcpuTime};
use uprof::image::{ImageIdentity, ImagePart, Symbol};
use uprof::{Arch, Details, Frame, Sample, Task, Writer};

const MS: u64 = 1_000_000;
const START: u64 = 1_000 * MS;
const GUEST: u64 = 0x10_0000;
const NAMES: [&str; 4] = ["main", "uart_putc", "virtio_notify", "idle"];

/// An address in a function of the guest.
fn address(function: usize, into: u64) -> u64 {
    GUEST + 0x100 * function as u64 + into
}

fn vcpu(number: u32) -> Task {
    Task {
        space: 0,
        vcpu: number,
    }
}

/// What a recording of a second has.
#[derive(Default)]
struct Guest<'a> {
    samples: &'a [(u32, &'a [u64])],
    /// What each of them stands for, where their rate changed.
    period_ns: Option<u64>,
    times: Vec<VcpuTime>,
    exits: Vec<Exits>,
    notes: Vec<(String, String)>,
    losses: Vec<Loss>,
    monitor: Vec<u8>,
    handled: Vec<HandledExit>,
}

fn recorded(guest: &Guest<'_>) -> Recording {
    let mut metadata = Metadata::default();
    metadata.recorder.program = "uniprof test".into();
    metadata.target.kind = TargetKind::Kvm;
    metadata.target.name = "made".into();
    metadata.target.arch = Arch::X86_64;
    metadata.sampling.rate_millihertz = 1_000_000;
    metadata.notes.clone_from(&guest.notes);
    let mut writer = Writer::create(Vec::new(), [7; 16], &metadata, START).unwrap();
    let pair = ClockPair {
        monotonic_ns: START,
        realtime_ns: 1_499_764_364_000_000_000,
        guest: None,
    };
    writer.clocks(&[pair]).unwrap();
    let named = [0, 1].map(|number| TaskEvent {
        time_ns: START,
        task: vcpu(number),
        what: TaskChange::Named(format!("vcpu {number}")),
    });
    writer.tasks(&named).unwrap();
    let mapped = ModuleEvent {
        time_ns: START,
        space: 0,
        what: ModuleChange::Mapped(Mapping {
            start: GUEST,
            length: 0x100 * NAMES.len() as u64,
            file_offset: GUEST,
            path: "/made/guest".into(),
            build_id: Vec::new(),
            file: None,
        }),
    };
    writer.modules(&[mapped]).unwrap();
    let mut part = ImagePart::new(ImageIdentity {
        path: "/made/guest".into(),
        build_id: Vec::new(),
        arch: Arch::X86_64,
        load_bias: 0,
        origin: "test".into(),
    });
    for (number, name) in NAMES.into_iter().enumerate() {
        assert!(part.push(Symbol {
            address: address(number, 0),
            size_bytes: 0x100,
            name,
        }));
    }
    writer.image_part(&part, START).unwrap();
    for (number, (task, stack)) in guest.samples.iter().enumerate() {
        let frames = stack.iter().enumerate();
        let frames = frames.map(|(depth, address)| match depth {
            0 => Frame::exact(*address),
            _ => Frame::return_address(*address),
        });
        let chain: Vec<Frame> = frames.collect();
        let time_ns = START + number as u64 * MS;
        let details = Details {
            period_ns: guest.period_ns,
            ..Details::default()
        };
        let sample = Sample {
            details,
            ..Sample::bare(time_ns, vcpu(*task), &chain)
        };
        writer.sample(&sample).unwrap();
    }
    writer.vcpu_times(&guest.times).unwrap();
    writer.losses(&guest.losses).unwrap();
    // In pieces that end anywhere.
    for piece in guest.monitor.chunks(700) {
        writer.monitor(piece, START).unwrap();
    }
    writer.handled(&guest.handled).unwrap();
    for exits in guest.exits.chunks(100_000) {
        writer.exits(exits).unwrap();
    }
    let end = End {
        time_ns: START + 1_000 * MS,
        reason: EndReason::Duration,
        message: String::new(),
        totals: Vec::new(),
    };
    open(writer.finish(&end).unwrap())
}

/// A record from and to milliseconds of the recording.
fn time(number: u32, from_ms: u64, to_ms: u64, spent: &[(Place, u64)]) -> VcpuTime {
    VcpuTime {
        task: vcpu(number),
        first_ns: START + from_ms * MS,
        last_ns: START + to_ms * MS,
        spent: spent.iter().map(|(place, ms)| (*place, ms * MS)).collect(),
    }
}

/// Exits of the first half second, a tenth of whose time is KVM's and the rest the monitor's.
fn exits(reason: u64, at: Option<u64>, argument: Option<u64>, count: u64, ms: u64) -> Exits {
    let mean_ns = ms * MS / count.max(1);
    Exits {
        task: vcpu(0),
        first_ns: START,
        last_ns: START + 500 * MS,
        cause: ExitCause {
            kind: ExitKind::Vmx,
            reason,
            address: at,
            argument,
        },
        count,
        seen: count,
        spent: vec![
            (Place::Hypervisor, ms * MS / 10),
            (Place::Monitor, ms * MS - ms * MS / 10),
        ],
        lengths: vec![(Exits::rounded(mean_ns), count)],
    }
}

fn library() -> Library {
    let mut library = Library::default();
    library.only_given = true;
    library
}

fn export(format: &str, recordings: &[&Recording], options: &Options) -> Vec<u8> {
    exported(format, recordings, &library(), options).unwrap()
}

fn filtered(recording: &Recording, filter: Filter) -> Profile {
    let options = Options {
        filter: Filter {
            unit: Some(Unit::VcpuTime),
            ..filter
        },
        ..Options::default()
    };
    gather(&[recording], &library(), &options, &|_, _| {}, None)
}

fn profile(recording: &Recording) -> Profile {
    filtered(recording, Filter::default())
}

fn view(name: &str, recording: Recording, filter: Filter) -> String {
    let profile = filtered(&recording, filter);
    shown(name, recording, &profile)
}

fn shown(name: &str, recording: Recording, profile: &Profile) -> String {
    let recordings = [recording];
    let view = VIEWS.iter().find(|view| view.name == name).unwrap();
    let form = Form {
        rows: 10,
        ..Form::default()
    };
    let mut renderer: Box<dyn Renderer> = (view.begin)(&recordings);
    let mut out = Vec::new();
    let content = Content {
        recordings: &recordings,
        profile,
        places: None,
        library: None,
        value: FlagValue::None,
        form: &form,
    };
    assert!(renderer.write(&content, &mut out).unwrap());
    String::from_utf8(out).unwrap()
}

fn folded(profile: &Profile) -> String {
    let mut out = Vec::new();
    folded::write(profile, folded::FoldedOptions::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Two vCPUs. The first has records for all of the second, the other for its first half.
fn two() -> Guest<'static> {
    let (guest, kvm, monitor) = (Place::Guest, Place::Hypervisor, Place::Monitor);
    let rest = [(Place::Ready, 20), (Place::Halted, 100), (Place::Paused, 5)];
    let first = [&[(guest, 300), (kvm, 25), (monitor, 50)][..], &rest].concat();
    let second = [&[(guest, 345), (kvm, 10), (monitor, 20)][..], &rest].concat();
    Guest {
        times: vec![
            time(0, 0, 500, &first),
            time(1, 0, 500, &[(guest, 500)]),
            time(0, 500, 1000, &second),
        ],
        ..Guest::default()
    }
}

/// Samples: 3 of `uart_putc` at its exit from `main`, 1 elsewhere in it from `virtio_notify`, 6 of `main`.
fn sampled() -> Vec<(u32, Vec<u64>)> {
    let mut samples = vec![(0, vec![address(1, 0x20), address(0, 0x40)]); 3];
    samples.push((0, vec![address(1, 0x60), address(2, 0x40)]));
    samples.extend(vec![(0, vec![address(0, 0x10)]); 6]);
    samples
}

fn with_exits(exits: Vec<Exits>) -> Recording {
    with_exits_at(None, exits)
}

fn with_exits_at(period_ns: Option<u64>, exits: Vec<Exits>) -> Recording {
    let samples = sampled();
    let samples: Vec<(u32, &[u64])> = samples
        .iter()
        .map(|(vcpu, stack)| (*vcpu, &stack[..]))
        .collect();
    recorded(&Guest {
        samples: &samples,
        period_ns,
        exits,
        ..two()
    })
}

#[test]
fn a_row_adds_up_and_what_no_record_has_is_unknown() {
    let table = view("time", recorded(&two()), Filter::default());
    let expected = "\
2.00 s of wall time of 2 vCPUs, in 1.0 s

     wall  guest handled handled in waiting        paused by        
     time   code  in KVM    monitor for CPU halted  recorder unknown  vCPU
   1.00 s  64.5%    3.5%       7.0%    4.0%  20.0%      1.0%    0.0%  vcpu 0
   1.00 s  50.0%    0.0%       0.0%    0.0%   0.0%      0.0%   50.0%  vcpu 1
   2.00 s  57.2%    1.8%       3.5%    2.0%  10.0%      0.5%   25.0%  all vCPUs

each row adds up to 100.0% of the vCPU's wall time
25.0% of the wall time is unknown: 500.0 ms is before the first record of a vCPU or after its last one
";
    assert!(table.starts_with(expected), "{table}");
}

#[test]
fn the_recorders_reason_for_unknown_time_is_shown() {
    let notes = vec![(
        uprof::cold::UNKNOWN_TIME.to_owned(),
        "no tracefs\x1b[31m here".to_owned(),
    )];
    let table = view(
        "time",
        recorded(&Guest { notes, ..two() }),
        Filter::default(),
    );
    assert!(
        table.contains("unknown: no tracefs\u{fffd}[31m here"),
        "{table}"
    );
}

/// Half a second from the middle of one record to the middle of the next.
#[test]
fn unknown_time_between_records_has_another_reason_than_at_the_ends() {
    let gap = [(0, 100), (900, 1000)].map(|(from_ms, to_ms)| time(0, from_ms, to_ms, &[]));
    let guest = Guest {
        times: gap.into(),
        ..Guest::default()
    };
    let table = view("time", recorded(&guest), Filter::default());
    let said = "100.0% of the wall time is unknown: the host reported nothing for it";
    assert!(table.contains(said), "{table}");
    let lost = Loss {
        first_ns: START,
        last_ns: START + MS,
        task: None,
        reason: LossReason::ExitsLost,
        count: 70,
    };
    let lossy = Guest {
        losses: vec![lost],
        ..guest
    };
    let table = view("time", recorded(&lossy), Filter::default());
    let said = "100.0% of the wall time is unknown: lost: 70 records of exits";
    assert!(table.contains(said), "{table}");
}

#[test]
fn the_page_of_a_recording_has_a_track_for_each_vcpu() {
    let samples = sampled();
    let samples: Vec<(u32, &[u64])> = samples
        .iter()
        .map(|(vcpu, stack)| (*vcpu, &stack[..]))
        .collect();
    let page = |times| {
        let recording = recorded(&Guest {
            samples: &samples,
            times,
            ..Guest::default()
        });
        let options = Options {
            survey: true,
            ..Options::default()
        };
        let profile = gather(&[&recording], &library(), &options, &|_, _| {}, None);
        let page = shown("html", recording, &profile);
        let wall = page.split_once("<section id=\"wall\">");
        wall.map(|(_, wall)| wall.split_once("</section>").unwrap().0.to_owned())
    };
    let wall = page(two().times).unwrap();
    assert_eq!(wall.matches("<svg class=\"wall\"").count(), 2, "{wall}");
    // Of the first half of the second vCPU, all is guest code. Of the other half nothing is known.
    let expected =
        "<rect x=\"0\" y=\"0\" width=\"1\" height=\"100\" fill=\"rgb(242,128,112)\"/></svg>";
    assert!(wall.contains(expected), "{wall}");
    for row in [
        "<td><bdi>vcpu 0</bdi></td><td class=\"number\">1.00 s</td><td class=\"number\">64.5%</td>",
        "<td><bdi>all vCPUs</bdi></td><td class=\"number\">2.00 s</td><td class=\"number\">57.2%</td>",
        "<th class=\"number\">handled in KVM</th>",
    ] {
        assert!(wall.contains(row), "{row}\n{wall}");
    }
    assert_eq!(page(Vec::new()), None);
}

#[test]
fn exits_that_were_only_counted_have_no_times() {
    let mut counted = exits(30, Some(address(1, 0x20)), Some(0x3f8), 3, 0);
    (counted.seen, counted.spent, counted.lengths) = (0, Vec::new(), Vec::new());
    let table = view("exits", with_exits(vec![counted]), Filter::default());
    assert!(table.starts_with("2.00 s of wall time"), "{table}");
    for expected in [
        "only their number was recorded\n",
        "  3      3.0         -         -         -         -      -         -         -  port 0x3f8\n",
    ] {
        assert!(table.contains(expected), "{table}");
    }
}

#[test]
fn time_is_chosen_in_proportion() {
    let filter = Filter {
        from_ns: Some(250 * MS),
        to_ns: Some(750 * MS),
        vcpus: [0].into(),
        ..Filter::default()
    };
    let recording = recorded(&two());
    let row = filtered(&recording, filter.clone()).vcpu_times.rows[0].clone();
    assert_eq!(row.wall_ns, 500 * MS);
    let half = [645, 35, 70, 40, 200, 10, 0].map(|ms| ms * MS / 2);
    assert_eq!(row.spent, half);
    let table = view("time", recording, filter);
    assert!(table.contains("counts in proportion"), "{table}");
}

#[test]
fn a_recording_without_such_records_has_no_row() {
    let samples = sampled();
    let samples: Vec<(u32, &[u64])> = samples.iter().map(|(vcpu, s)| (*vcpu, &s[..])).collect();
    let profile = profile(&recorded(&Guest {
        samples: &samples,
        ..Guest::default()
    }));
    assert_eq!((profile.account.vcpus, profile.account.counted), (0, 0));
}

#[test]
fn exits_are_shown_by_reason_by_function_and_by_both() {
    let port = exits(30, Some(address(1, 0x20)), Some(0x3f8), 800, 60);
    let mut few = exits(10, Some(address(3, 0x20)), Some(1), 30, 3);
    few.seen = 3;
    let unnamed = exits(12, Some(0x99_0000), None, 2, 1);
    let unknown = exits(1, None, None, 1, 2);
    let mut ours = exits(0, None, None, 7, 1);
    ours.cause.kind = ExitKind::Recorder;
    let recording = with_exits(vec![port, few, unnamed, unknown, ours]);
    let table = view("exits", recording, Filter::default());
    for expected in [
        "costliest reason: port 0x3f8, 3.0% of the wall time (6.0 ms in KVM, 54.0 ms in the monitor, 800 exits)\n",
        "costliest function: uart_putc, 3.0% of the wall time",
        "estimates: of 833 exits, the times of 806 were taken (96.8%)\n",
        "interrupted by the recorder: 7 times, 1.0 ms; these exits are not in the tables\n",
        "    exits a second   handled    in KVM   monitor     other      %      mean       p99  reason\n      \
         800    800.0   60.0 ms    6.0 ms   54.0 ms      0 ns   3.0%   75.0 us   81.9 us  port 0x3f8\n",
        "  CPUID\n",
        "  HLT\n",
        "p99  function\n      800 ",
        "81.9 us  uart_putc  [guest]\n",
        "  idle  [guest]\n",
        "  (address not known)\n",
        "  0x990000\n",
        "  uart_putc: port 0x3f8  [guest]\n",
    ] {
        assert!(table.contains(expected), "{expected}: {table}");
    }
    // The interrupted ones are in no row.
    assert!(!table.contains("exception"), "{table}");
}

/// The tree's stacks, without the shares of guest code.
fn stacks(profile: &Profile) -> Vec<String> {
    let lines = folded(profile);
    lines.lines().map(str::to_owned).collect()
}

#[test]
fn an_exit_is_above_the_stacks_of_its_address_or_else_of_its_function() {
    let at_the_address = exits(30, Some(address(1, 0x20)), Some(0x3f8), 800, 60);
    let profile = profile(&with_exits(vec![at_the_address]));
    let found = stacks(&profile);
    // Each of ten samples stands for 75 of the 750 ms in which the vCPU was busy. Those at the address of the exits
    // also stand for the 60 ms of these, so that 450, 225 - 60 and 75 ms share the 645 ms of guest code.
    let (kvm, monitor) = ("[handled in KVM]", "[handled in the monitor]");
    assert_eq!(
        found,
        [
            "[guest code without samples] 500000".to_owned(),
            "[halted] 200000".to_owned(),
            format!("{kvm} 29000"),
            format!("{monitor} 16000"),
            "[paused by the recorder] 10000".to_owned(),
            "[unknown] 500000".to_owned(),
            "[waiting for a processor] 40000".to_owned(),
            "main 420652".to_owned(),
            "main;uart_putc 154239".to_owned(),
            format!("main;uart_putc;[exit: port 0x3f8];{kvm} 6000"),
            format!("main;uart_putc;[exit: port 0x3f8];{monitor} 54000"),
            "virtio_notify;uart_putc 70109".to_owned(),
        ]
    );
    assert_eq!(profile.account.counted, 2000 * MS);
    assert_eq!(profile.tree.totals()[0], 2000 * MS);

    let elsewhere = exits(30, Some(address(1, 0x80)), Some(0x3f8), 800, 60);
    let alone = exits(10, Some(address(3, 0)), None, 1, 5);
    let nowhere = exits(1, None, None, 1, 5);
    let profile = self::profile(&with_exits(vec![elsewhere, alone, nowhere]));
    let found = stacks(&profile);
    for expected in [
        format!("main;uart_putc;[exit: port 0x3f8];{kvm} 4500"),
        format!("virtio_notify;uart_putc;[exit: port 0x3f8];{kvm} 1500"),
        format!("idle;[exit: CPUID];{kvm} 500"),
        format!("idle;[exit: CPUID];{monitor} 4500"),
        format!("(address not known);[exit: external interrupt];{kvm} 500"),
    ] {
        assert!(found.contains(&expected), "{expected}: {found:#?}");
    }
    assert_eq!(profile.tree.totals()[0], 2000 * MS);
    let lines = profile.account.lines().join("\n");
    let said = "exits without callers: 5.0 ms (0.2%) are above their function alone";
    assert!(lines.contains(said), "{lines}");
}

#[test]
fn samples_of_a_changing_rate_share_the_time_as_others_do() {
    let port = exits(30, Some(address(1, 0x20)), Some(0x3f8), 800, 60);
    let usual = profile(&with_exits(vec![port.clone()]));
    let of_a_changing_rate = profile(&with_exits_at(Some(7 * MS), vec![port]));
    assert_eq!(stacks(&of_a_changing_rate), stacks(&usual));
}

#[test]
fn filters_of_frames_choose_exits_and_places_too() {
    let port = exits(30, Some(address(1, 0x20)), Some(0x3f8), 800, 60);
    let recording = with_exits(vec![port]);
    let focus = |rule: &str| {
        let filter = Filter {
            focus: Some(regex::Regex::new(rule).unwrap()),
            ..Filter::default()
        };
        filtered(&recording, filter).account.counted
    };
    assert_eq!(focus("port 0x3f8"), 60 * MS);
    assert_eq!(focus("^.halted.$"), 200 * MS);
    let of_guest = focus("uart_putc") - 60 * MS;
    assert_eq!(of_guest / 1000, 645_000 * (225 - 60 + 75) / 690);
    // The tables have the others as well, and say so.
    for name in ["time", "exits"] {
        let ignore = |rule: &str| {
            let filter = Filter {
                ignore: Some(regex::Regex::new(rule).unwrap()),
                ..Filter::default()
            };
            let port = exits(30, Some(address(1, 0x20)), Some(0x3f8), 800, 60);
            view(name, with_exits(vec![port]), filter)
        };
        let note = "the numbers are of all the time: --focus and --ignore choose stacks";
        assert!(ignore("port 0x3f8").contains(note), "{name}");
        assert!(!ignore("no such function").contains(note), "{name}");
    }
}

#[test]
fn places_have_colours_and_a_key() {
    let port = exits(30, Some(address(1, 0x20)), Some(0x3f8), 800, 60);
    let profile = profile(&with_exits(vec![port]));
    let options = uniprof_report::views::flame::FlameOptions {
        title: "made".into(),
        subtitle: String::new(),
        reverse: false,
        icicle: false,
        least_share: 0.0,
        fold: false,
    };
    let mut svg = Vec::new();
    uniprof_report::views::flame::write(&profile, &options, &mut svg).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    for text in [
        "guest code</text>",
        "halted</text>",
        "[exit: port 0x3f8] (60,000,000 ns, 3.00%)",
    ] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    assert!(!svg.contains(">program</text>"), "{svg}");
}

/// Whatever records say, rows add up to the wall time and the tree to the rows.
fn check(recording: &Recording) {
    let profile = profile(recording);
    let mut all = 0_u64;
    for row in &profile.vcpu_times.rows {
        let sum: u128 = row.spent.iter().map(|ns| u128::from(*ns)).sum();
        assert_eq!(sum, u128::from(row.wall_ns), "{row:?}");
        all += row.wall_ns;
    }
    assert_eq!(profile.account.counted, all);
    assert_eq!(profile.tree.totals()[0], all);
}

#[test]
fn many_vcpus_cost_what_they_are_and_not_their_square() {
    let begun = std::time::Instant::now();
    let times = (0..30_000).map(|number| time(number, 0, 500, &[(Place::Halted, 500)]));
    let recording = recorded(&Guest {
        times: times.collect(),
        ..Guest::default()
    });
    assert_eq!(profile(&recording).account.vcpus, 30_000);
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn records_that_contradict_each_other_count_no_longer_than_their_interval() {
    let (guest, halted) = (Place::Guest, Place::Halted);
    let huge = VcpuTime {
        task: vcpu(0),
        first_ns: 0,
        last_ns: u64::MAX,
        spent: vec![(guest, u64::MAX); 9],
    };
    let backwards = VcpuTime {
        first_ns: START + 300 * MS,
        last_ns: START,
        ..huge.clone()
    };
    let most = VcpuTime {
        first_ns: u64::MAX,
        ..huge.clone()
    };
    let cases = [
        (
            vec![time(0, 0, 1000, &[(guest, 400), (guest, 400)])],
            0,
            800,
        ),
        (
            vec![time(0, 0, 500, &[(guest, 500), (halted, 500)])],
            1,
            250,
        ),
        (
            vec![
                time(0, 0, 500, &[(guest, 500)]),
                time(0, 250, 750, &[(guest, 500)]),
            ],
            1,
            750,
        ),
        (
            vec![
                time(0, 0, 500, &[(guest, 500)]),
                time(0, 0, 500, &[(guest, 500)]),
            ],
            1,
            500,
        ),
        (vec![backwards, time(0, 0, 500, &[(guest, 500)])], 1, 500),
        (vec![huge.clone(), time(0, 0, 500, &[(guest, 500)])], 2, 999),
        (vec![most, time(0, 0, 500, &[(guest, 500)])], 1, 500),
        (vec![time(0, 100, 100, &[(guest, 500)])], 1, 0),
    ];
    for (times, contradictory, guest_ms) in cases {
        let what = format!("{times:?}");
        let recording = recorded(&Guest {
            times,
            ..Guest::default()
        });
        let found = profile(&recording).vcpu_times;
        assert_eq!(found.contradictory, contradictory, "{what}");
        assert_eq!(found.rows[0].spent[0] / MS, guest_ms, "{what}");
        check(&recording);
    }
}

#[test]
fn exits_that_claim_anything_are_scaled_to_the_time_that_there_is() {
    let most = u64::MAX;
    let endless = |at, argument| Exits {
        first_ns: 0,
        last_ns: most,
        count: most,
        seen: 1,
        spent: Place::ALL.iter().map(|place| (*place, most)).collect(),
        lengths: vec![(most, most); 3],
        ..exits(30, at, argument, 1, 1)
    };
    let all: Vec<Exits> = (0..300)
        .map(|number| {
            endless(
                [Some(address(1, 0x20)), Some(most), None][number as usize % 3],
                Some(number),
            )
        })
        .collect();
    let recording = with_exits(all);
    check(&recording);
    let filter = Filter {
        from_ns: Some(100 * MS),
        to_ns: Some(101 * MS),
        ..Filter::default()
    };
    let table = view("exits", recording, filter);
    assert!(
        table.contains("… and 290 more (--rows 0 shows all)"),
        "{table}"
    );
}

/// A guest that exits from another address each time fills neither the terminal nor the picture, and costs no more than
/// sorting its exits.
#[test]
fn a_guest_that_exits_from_everywhere_is_shown_in_bounds() {
    let number = if cfg!(debug_assertions) {
        10_000
    } else {
        200_000
    };
    let everywhere: Vec<Exits> = (0..number)
        .map(|number| exits(30, Some(0x7000_0000 + number * 16), Some(number), 1, 1))
        .collect();
    let recording = with_exits(everywhere);
    check(&recording);
    let table = view("exits", recording, Filter::default());
    assert!(table.lines().count() < 50, "{}", table.lines().count());
}

/// A million different reasons at one instruction that has many stacks.
#[test]
fn many_reasons_above_many_stacks_share_a_box() {
    let stacks: Vec<Vec<u64>> = (0..200)
        .map(|number| vec![address(1, 0x20), 0x50_0000 + number * 16])
        .collect();
    let samples: Vec<(u32, &[u64])> = stacks.iter().map(|stack| (0, &stack[..])).collect();
    let exits = (0..20_000).map(|number| exits(30, Some(address(1, 0x20)), Some(number), 1, 1));
    let recording = recorded(&Guest {
        samples: &samples,
        exits: exits.collect(),
        ..two()
    });
    check(&recording);
    let profile = profile(&recording);
    assert!(profile.tree.nodes().len() < 200 * 65 * 3 + 1000);
    assert!(folded(&profile).contains("[exit: other reasons]"));
}

/// The values of counters in a trace for Perfetto: fields with number 44, each a double.
fn counter_values(trace: &[u8]) -> Vec<f64> {
    let starts = trace.windows(10).filter(|bytes| bytes[..2] == [0xe1, 0x02]);
    starts
        .map(|bytes| f64::from_le_bytes(bytes[2..].try_into().unwrap()))
        .collect()
}

#[test]
fn places_and_exits_are_curves_in_perfetto() {
    let port = exits(30, Some(address(1, 0x20)), Some(0x3f8), 800, 60);
    let recording = with_exits(vec![port]);
    let trace = export("perfetto", &[&recording], &Options::default());
    // Of the first vCPU the places that it was at, one after the other, and its exits; then the other one's.
    let curves = [
        [60.0, 69.0],
        [5.0, 2.0],
        [10.0, 4.0],
        [4.0, 4.0],
        [20.0, 20.0],
        [1.0, 1.0],
        [1600.0, 0.0],
    ];
    let mut expected = Vec::new();
    for (number, curve) in curves.iter().enumerate() {
        expected.extend_from_slice(curve);
        // A curve ends with zero.
        expected.extend((number < 6).then_some(0.0));
    }
    expected.extend([100.0, 0.0]);
    assert_eq!(counter_values(&trace), expected);
    for name in ["hypervisor", "halted", "exits"] {
        let is_name = |bytes: &[u8]| bytes == name.as_bytes();
        assert!(trace.windows(name.len()).any(is_name), "{name}");
    }
    let without = recorded(&Guest::default());
    let trace = export("perfetto", &[&without], &Options::default());
    assert!(counter_values(&trace).is_empty());
}

#[test]
fn json_has_the_numbers_of_both_tables() {
    let port = exits(30, Some(address(1, 0x20)), Some(0x3f8), 800, 60);
    let recording = with_exits(vec![port]);
    let options = Options {
        filter: Filter {
            unit: Some(Unit::VcpuTime),
            ..Filter::default()
        },
        ..Options::default()
    };
    let json = export("json", &[&recording], &options);
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["account"]["counted"], 2000 * MS);
    let first = &json["vcpu_times"][0];
    assert_eq!(
        (&first["vcpu"], &first["wall_ns"]),
        (&0.into(), &(1000 * MS).into())
    );
    assert_eq!(first["spent"]["halted_ns"], 200 * MS);
    let exits = &json["exits"][0];
    assert_eq!(
        (&exits["reason"], &exits["count"]),
        (&"port 0x3f8".into(), &800.into())
    );
    let function = exits["function"].as_u64().unwrap() as usize;
    assert_eq!(json["labels"][function]["name"], "uart_putc");
    assert_eq!(exits["spent"]["monitor_ns"], 54 * MS);
    assert_eq!(json["interrupted_by_the_recorder"]["count"], 0);
}

#[test]
fn a_diff_has_a_sentence_for_each_place_that_differs() {
    let slower = Guest {
        times: vec![
            time(0, 0, 1000, &[(Place::Guest, 645), (Place::Monitor, 355)]),
            time(1, 0, 1000, &[(Place::Guest, 500)]),
        ],
        ..Guest::default()
    };
    let samples = sampled();
    let samples: Vec<(u32, &[u64])> = samples.iter().map(|(vcpu, s)| (*vcpu, &s[..])).collect();
    let both = [two(), slower].map(|guest| {
        recorded(&Guest {
            samples: &samples,
            ..guest
        })
    });
    let plain = recorded(&Guest {
        samples: &samples,
        ..Guest::default()
    });
    let warnings = |a: &Recording, b: &Recording| {
        let found = diff(
            &[a],
            &[b],
            &Tables::of_builds(&library()),
            &DiffOptions::default(),
            &|_, _| {},
            None,
        );
        found.warnings.join("\n")
    };
    let said = warnings(&both[0], &both[1]);
    for expected in [
        "vCPUs spent 3.5% / 17.8% of their wall time handling exits in the monitor: +14.2 points, not tested",
        "vCPUs spent 1.8% / 0.0% of their wall time handling exits in KVM: -1.8 points, not tested",
        "vCPUs spent 10.0% / 0.0% of their wall time halted: -10.0 points, not tested",
    ] {
        assert!(said.contains(expected), "{said}");
    }
    assert!(!said.contains("guest code"), "{said}");
    assert!(!warnings(&both[0], &plain).contains("vCPUs spent"));
}

/// A run of a second of a guest: its code, 100 ms halted, and exits, most of all those to the port of `virtio_notify`,
/// which take `notify_ms`. Each time varies by a few per cent.
fn run(seed: u64, notify_ms: u64) -> Recording {
    let mut state = seed;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let [notify, putc] = [address(2, 0x20), address(1, 0x20)];
    let stacks: Vec<Vec<u64>> = (0..1000)
        .map(|_| match random(10) {
            0..2 => vec![notify, address(0, 0x40)],
            2 => vec![putc, address(0, 0x40)],
            _ => vec![address(0, 0x10)],
        })
        .collect();
    let samples: Vec<(u32, &[u64])> = stacks.iter().map(|stack| (0, &stack[..])).collect();
    let (mut times, mut all) = (Vec::new(), Vec::new());
    for half in 0..2 {
        let [notify_ms, putc_ms] = [notify_ms, 60].map(|ms| ms / 2 - 5 + random(10));
        let (first_ns, last_ns) = (START + half * 500 * MS, START + (half + 1) * 500 * MS);
        let causes = [(notify, 0x510, notify_ms), (putc, 0x3f8, putc_ms)];
        all.extend(causes.map(|(at, port, ms)| Exits {
            first_ns,
            last_ns,
            ..exits(30, Some(at), Some(port), 400, ms)
        }));
        let handled_ms = notify_ms + putc_ms;
        let kvm_ms = notify_ms / 10 + putc_ms / 10;
        let spent = [
            (Place::Hypervisor, kvm_ms),
            (Place::Monitor, handled_ms - kvm_ms),
            (Place::Halted, 50),
            (Place::Guest, 450 - handled_ms),
        ];
        times.push(time(0, half * 500, (half + 1) * 500, &spent));
    }
    recorded(&Guest {
        samples: &samples,
        times,
        exits: all,
        ..Guest::default()
    })
}

#[test]
fn a_diff_of_the_whole_time_names_the_exits_that_take_longer() {
    let side = |first: u64, notify_ms: u64| -> Vec<Recording> {
        let seeds = first..first + 5;
        seeds.map(|seed| run(1000 * seed, notify_ms)).collect()
    };
    let options = DiffOptions {
        gather: Options {
            filter: Filter {
                unit: Some(Unit::VcpuTime),
                ..Filter::default()
            },
            ..Options::default()
        },
        ..DiffOptions::default()
    };
    let compared = |a: &[Recording], b: &[Recording]| {
        let (a, b): (Vec<_>, Vec<_>) = (a.iter().collect(), b.iter().collect());
        let found = diff(
            &a,
            &b,
            &Tables::of_builds(&library()),
            &options,
            &|_, _| {},
            None,
        );
        let whole: Vec<f64> = found.series.sides.iter().map(|side| side.total()).collect();
        // Five recordings of a vCPU a side.
        assert_eq!(found.accounts.each_ref().map(|one| one.vcpus), [5, 5]);
        // A unit is the time that a sample stands for.
        assert!(
            whole.iter().all(|total| (total - 5000.0).abs() < 50.0),
            "{whole:?}"
        );
        let changes = found
            .verdicts
            .changes
            .iter()
            .filter(|change| change.certain);
        let names = changes.map(|one| found.series.item_name(&found.series.items[one.item]));
        names.collect::<Vec<String>>()
    };
    let (a, b) = (side(1, 200), side(11, 280));
    let names = compared(&a, &b);
    assert!(
        names.contains(&"[exit: port 0x510]".to_owned()),
        "{names:?}"
    );
    assert!(
        names.contains(&"[handled in the monitor]".to_owned()),
        "{names:?}"
    );
    assert!(names.contains(&"virtio_notify".to_owned()), "{names:?}");
    assert!(
        !names.iter().any(|name| name.contains("0x3f8")),
        "{names:?}"
    );
    assert_eq!(compared(&a, &side(21, 200)), Vec::<String>::new());
}

#[test]
fn firefox_has_a_thread_for_each_vcpu_whose_time_is_its_wall_time() {
    let recording = run(7, 200);
    let options = Options {
        filter: Filter {
            unit: Some(Unit::VcpuTime),
            ..Filter::default()
        },
        ..Options::default()
    };
    let json: serde_json::Value =
        serde_json::from_slice(&export("firefox", &[&recording], &options)).unwrap();
    let [thread] = &json["threads"].as_array().unwrap()[..] else {
        panic!("{json}")
    };
    let samples = &thread["samples"];
    assert_eq!(thread["name"], "vcpu 0");
    assert_eq!(samples["weightType"], "tracing-ms");
    let weights = samples["weight"].as_array().unwrap().iter();
    let sum_ms: i64 = weights.filter_map(serde_json::Value::as_i64).sum();
    // A thread loses less than a millisecond.
    assert!((980..=1000).contains(&sum_ms), "{sum_ms}");
    let text = json.to_string();
    assert!(
        text.contains("[exit: port 0x510]") && text.contains("[halted]"),
        "{text}"
    );
}

#[test]
fn vcpus_and_recordings_can_be_shown_apart() {
    let port = exits(30, Some(address(1, 0x20)), Some(0x3f8), 800, 60);
    let recording = with_exits(vec![port]);
    let options = Options {
        filter: Filter {
            unit: Some(Unit::VcpuTime),
            ..Filter::default()
        },
        by_task: true,
        by_recording: true,
        ..Options::default()
    };
    let profile = gather(
        &[&recording, &recording],
        &library(),
        &options,
        &|_, _| {},
        None,
    );
    assert_eq!(profile.account.counted, 4000 * MS);
    let found = stacks(&profile);
    for expected in [
        "made.uprof (1);vcpu 0;main;uart_putc;[exit: port 0x3f8];[handled in KVM] 6000",
        "made.uprof (2);vcpu 0;[halted] 200000",
        "made.uprof (2);vcpu 1;[unknown] 500000",
    ] {
        assert!(
            found.iter().any(|line| line == expected),
            "{expected}: {found:#?}"
        );
    }
}

const PROCESS: u32 = 70;
const THREAD: u32 = 71;
const KERNEL: u64 = 0xffff_ffff_8100_0000;

/// A recording of a monitor with these samples: milliseconds, and whether KVM or the monitor was at work. The
/// outermost caller is at the address that `outer` gives for the milliseconds.
fn of_monitor(samples: &[(u64, Place)], outer: fn(u64) -> Option<u64>) -> Vec<u8> {
    let mut metadata = Metadata::default();
    metadata.target.kind = TargetKind::Process;
    metadata.target.name = "monitor".into();
    metadata.target.arch = Arch::X86_64;
    let mut writer = Writer::create(Vec::new(), [8; 16], &metadata, START - MS).unwrap();
    let images = [
        (
            PROCESS,
            GUEST,
            "/made/monitor",
            ["run_vcpu", "serial_write"],
        ),
        (0, KERNEL, "/made/kernel", ["kvm_run", "handle_io"]),
    ];
    for (space, start, path, names) in images {
        let mapped = ModuleEvent {
            time_ns: START - MS,
            space,
            what: ModuleChange::Mapped(Mapping {
                start,
                length: 0x2000,
                file_offset: start,
                path: path.into(),
                build_id: Vec::new(),
                file: None,
            }),
        };
        writer.modules(&[mapped]).unwrap();
        let identity = ImageIdentity {
            path: path.into(),
            build_id: Vec::new(),
            arch: Arch::X86_64,
            load_bias: 0,
            origin: "test".into(),
        };
        let symbols = names.into_iter().enumerate().map(|(number, name)| Symbol {
            address: start + 0x100 * number as u64,
            size_bytes: 0x100,
            name,
        });
        writer.symbols(&identity, symbols, START).unwrap();
    }
    for (ms, place) in samples {
        let in_kernel = [
            Frame::exact(KERNEL + 0x110),
            Frame::return_address(KERNEL + 0x10),
        ];
        let calls = [
            Frame::exact(GUEST + 0x110),
            Frame::return_address(GUEST + 0x10),
        ];
        let mut chain = match place {
            Place::Hypervisor => [&in_kernel[..], &calls[1..]].concat(),
            _ => calls.to_vec(),
        };
        chain.extend(outer(*ms).map(Frame::return_address));
        let task = Task {
            space: PROCESS,
            vcpu: THREAD,
        };
        writer
            .sample(&Sample::bare(START + ms * MS, task, &chain))
            .unwrap();
    }
    let end = End {
        time_ns: START + 1_000 * MS,
        reason: EndReason::Stopped,
        message: String::new(),
        totals: Vec::new(),
    };
    writer.finish(&end).unwrap()
}

fn handled(ms: u64, place: Place, exits: &Exits) -> HandledExit {
    HandledExit {
        time_ns: START + ms * MS,
        thread: THREAD,
        task: vcpu(0),
        place,
        cause: exits.cause,
    }
}

#[test]
fn the_stacks_that_handled_an_exit_are_above_it() {
    let port = exits(30, Some(address(1, 0x20)), Some(0x3f8), 100, 50);
    let other = exits(10, Some(address(0, 0x10)), Some(7), 1, 10);
    let (kvm, monitor) = (Place::Hypervisor, Place::Monitor);
    let samples = sampled();
    let samples: Vec<(u32, &[u64])> = samples
        .iter()
        .map(|(vcpu, stack)| (*vcpu, &stack[..]))
        .collect();
    let guest = |monitor, handled| Guest {
        samples: &samples,
        exits: vec![port.clone(), other.clone()],
        monitor,
        handled,
        ..two()
    };
    // The last one handled nothing: no record tells of it.
    let taken = [(10, kvm), (20, monitor), (30, monitor), (40, monitor)];
    let taken = of_monitor(&taken, |_| None);
    let told = vec![
        handled(10, kvm, &port),
        handled(20, monitor, &port),
        handled(30, monitor, &port),
    ];
    let with = recorded(&guest(taken.clone(), told.clone()));
    assert!(with.damages().is_none());
    let lines = folded(&profile(&with));
    let above = "main;uart_putc;[exit: port 0x3f8]";
    for expected in [
        format!("{above};[handled in KVM];kvm_run;handle_io 5000\n"),
        format!("{above};[handled in the monitor];run_vcpu;serial_write 45000\n"),
        // Of other exits only the place is known.
        "[exit: CPUID];[handled in the monitor] 9000\n".to_owned(),
    ] {
        assert!(lines.contains(&expected), "{expected}\n{lines}");
    }
    // The sum is the same as without them, and so is each place.
    let without = profile(&recorded(&guest(Vec::new(), Vec::new())));
    assert_eq!(profile(&with).account.counted, without.account.counted);
    let focused = Filter {
        focus: Some(regex::Regex::new("serial_write").unwrap()),
        ..Filter::default()
    };
    assert_eq!(filtered(&with, focused).account.counted, 45 * MS);
    // By itself it is a recording of a process.
    let monitor = with.into_monitor().unwrap();
    assert_eq!(monitor.metadata().target.kind, TargetKind::Process);
    let (damaged, half) = (taken.len() / 2, taken.len());
    for cut in [1, 40, damaged, half - 1] {
        let recording = recorded(&guest(taken[..cut].to_vec(), told.clone()));
        assert_eq!(profile(&recording).account.counted, without.account.counted);
    }
}

/// All stacks of handlers are above each stack of the guest, until these are too many pairs.
#[test]
fn stacks_of_handlers_above_many_stacks_are_bounded() {
    let port = exits(30, Some(address(1, 0x20)), Some(0x3f8), 800, 60);
    for (of_guest, of_monitors, kept) in [(256, 256, 256), (257, 257, 255), (1_100, 70, 64)] {
        let stacks: Vec<[u64; 2]> = (0..of_guest)
            .map(|number| [address(1, 0x20), 0x50_0000 + number * 16])
            .collect();
        let samples: Vec<(u32, &[u64])> = stacks.iter().map(|stack| (0, &stack[..])).collect();
        let taken: Vec<(u64, Place)> = (0..of_monitors).map(|ms| (ms, Place::Monitor)).collect();
        let told = taken.iter().map(|(ms, place)| handled(*ms, *place, &port));
        let profile = profile(&recorded(&Guest {
            samples: &samples,
            exits: vec![port.clone()],
            monitor: of_monitor(&taken, |ms| Some(GUEST + 0x400 + ms * 16)),
            handled: told.collect(),
            ..two()
        }));
        let number_of = |name: &str| {
            let nodes = profile.tree.nodes().iter().filter(|node| node.count > 0);
            let named = nodes.filter(|node| profile.labels.name(node.label) == name);
            named.count() as u64
        };
        assert_eq!(number_of("serial_write"), of_guest * kept);
        // What is left out is time of the monitor. That of no exit is at the root.
        let places = if kept < of_monitors { of_guest } else { 0 };
        assert_eq!(number_of("[handled in the monitor]"), places + 1);
        assert_eq!(profile.tree.totals()[0], 2000 * MS);
    }
}

#[test]
fn time_in_a_guest_is_above_the_call_that_runs_it() {
    let samples = [None, Some(0x10_20d5), Some(u64::MAX)];
    let profile = in_guest(&[], &samples.map(|ip| (MS, ip)));
    assert_eq!(folded(&profile), "run_vcpu 1\nrun_vcpu;[guest] 2\n");
}

/// A guest that was looked into has functions, and no callers; its addresses are nobody else's.
#[test]
fn code_of_a_guest_is_above_its_time() {
    const KERNEL: u64 = 0xffff_ffff_9a00_0000;
    const LINKED: u64 = 0xffff_ffff_8100_0000;
    let guest = space_of_guest(PROCESS);
    let mapped = |time_ns, space, start, length, file_offset, path: &str| ModuleEvent {
        time_ns: START + time_ns,
        space,
        what: ModuleChange::Mapped(Mapping {
            start,
            length,
            file_offset,
            path: path.into(),
            build_id: vec![7; 20],
            file: None,
        }),
    };
    let modules = [
        // This machine's kernel is the same build, at another address.
        mapped(0, 0, LINKED, 0x1000, 0, "[kernel]"),
        mapped(0, guest, 0, u64::MAX, 0, GUEST_PATH),
        mapped(1, guest, 0, 1 << 63, 0, GUEST_USER_PATH),
        mapped(1, guest, KERNEL, 0x1000, LINKED, GUEST_KERNEL_PATH),
        ModuleEvent {
            time_ns: START + 10 * MS,
            space: guest,
            what: ModuleChange::Cleared,
        },
    ];
    let profile = in_guest(
        &modules,
        &[
            (MS, Some(KERNEL + 0x10)),
            (2 * MS, Some(KERNEL + 0x20)),
            (3 * MS, Some(0x7f00_0000_1234)),
            (3 * MS, Some(0x40_1000)),
            (4 * MS, Some(0xffff_ffff_c000_1234)),
            // Of another kernel, as nobody looked at it.
            (11 * MS, Some(KERNEL + 0x10)),
        ],
    );
    assert_eq!(
        folded(&profile),
        "run_vcpu;[guest] 1\n\
         run_vcpu;[guest];[guest user] 2\n\
         run_vcpu;[guest];[guest]+0xffffffffc0001234 1\n\
         run_vcpu;[guest];guest_idle 2\n"
    );
}

/// The profile of a monitor's samples at these times, some of them in its guest.
fn in_guest(modules: &[ModuleEvent], samples: &[(u64, Option<u64>)]) -> Profile {
    let mut metadata = Metadata::default();
    metadata.target.kind = TargetKind::Process;
    metadata.target.arch = Arch::X86_64;
    let mut writer = Writer::create(Vec::new(), [9; 16], &metadata, START).unwrap();
    let image = ImageIdentity {
        path: "/made/monitor".into(),
        build_id: Vec::new(),
        arch: Arch::X86_64,
        load_bias: 0,
        origin: "test".into(),
    };
    let symbol = Symbol {
        address: GUEST,
        size_bytes: 0x100,
        name: "run_vcpu",
    };
    writer.symbols(&image, [symbol], START).unwrap();
    let mapped = ModuleEvent {
        time_ns: START,
        space: PROCESS,
        what: ModuleChange::Mapped(Mapping {
            start: GUEST,
            length: 0x100,
            file_offset: GUEST,
            path: "/made/monitor".into(),
            build_id: Vec::new(),
            file: None,
        }),
    };
    writer.modules(&[mapped]).unwrap();
    for (path, address, name) in [
        ("[kernel]", 0xffff_ffff_8100_0000, "host_idle"),
        (GUEST_KERNEL_PATH, 0xffff_ffff_8100_0000, "guest_idle"),
    ] {
        let image = ImageIdentity {
            path: path.into(),
            build_id: vec![7; 20],
            ..image.clone()
        };
        let symbol = Symbol {
            address,
            size_bytes: 0x100,
            name,
        };
        writer.symbols(&image, [symbol], START).unwrap();
    }
    writer.modules(modules).unwrap();
    let chain = [Frame::exact(GUEST + 0x10)];
    let task = Task {
        space: PROCESS,
        vcpu: THREAD,
    };
    for (time_ns, guest_ip) in samples {
        let mut sample = Sample::bare(START + time_ns, task, &chain);
        sample.details.guest_ip = *guest_ip;
        writer.sample(&sample).unwrap();
    }
    let end = End {
        time_ns: START + 20 * MS,
        reason: EndReason::Stopped,
        message: String::new(),
        totals: Vec::new(),
    };
    let recording = open(writer.finish(&end).unwrap());
    let options = Options::default();
    gather(&[&recording], &library(), &options, &|_, _| {}, None)
}
