//! The output of other tools becomes a recording that reports the same stacks.

mod exported;
mod made;

use exported::exported;
use made::{open, small};
use std::io::BufReader;
use uniprof_report::export::folded::{self, FoldedOptions};
use uniprof_report::images::Library;
use uniprof_report::import::{HEAD_BYTES, IMPORTS, ImportError, ImportSummary, import, recognize};
use uniprof_report::profile::{Options, Profile, Sampled, gather};
use uniprof_report::recording::Recording;
use uniprof_report::views::info;
use uprof::cold::LossReason;

fn library() -> Library {
    let mut library = Library::default();
    library.only_given = true;
    library
}

fn export(name: &str, recording: &Recording) -> String {
    let out = exported(name, &[recording], &library(), &Options::default());
    String::from_utf8(out.unwrap()).unwrap()
}

fn imported(name: &str, text: &str) -> Result<(Recording, ImportSummary), ImportError> {
    let format = IMPORTS.iter().find(|format| format.name == name).unwrap();
    let mut out = Vec::new();
    let input = &mut BufReader::new(text.as_bytes());
    let found = import(format, "input", [3; 16], input, &mut out)?;
    Ok((Recording::from_bytes("imported", out).unwrap(), found))
}

#[test]
fn what_is_exported_and_imported_has_the_same_stacks() {
    let recording = open(small());
    let folded = export("folded", &recording);
    for format in ["folded", "perf-script"] {
        let (again, found) = imported(format, &export(format, &recording)).unwrap();
        assert_eq!((found.samples, found.skipped), (7, 0), "{format}");
        // The comparison is in folded text, where an address is only a name.
        assert_eq!(export("folded", &again), folded, "{format}");
    }
    let text = export("uniprof-text", &recording);
    let (again, found) = imported("uniprof-text", &text).unwrap();
    assert_eq!(found.samples, 7);
    assert_eq!(export("uniprof-text", &again), text);
    // A folded stack has no offsets.
    let (names, _) = imported("folded", "main;work 1\n").unwrap();
    let text = export("uniprof-text", &names);
    assert!(text.ends_with("\n\nwork+0x0\nmain+0x0\n1\n\n"), "{text}");
}

#[test]
fn the_original_tool_and_xenctx_are_read() {
    let text = "#unikernel stack tracer using libxencall hypercall interface\n\
        #tracing domid 26 on 2017-07-11 09:12:44 UTC (+0000)\n\n\
        0x422c3c\n0x413930\n1\n\n0x422c3c\n0\n\nblock_domain+0x88\nmain+0x10\n1\n\n";
    let (recording, found) = imported("uniprof-text", text).unwrap();
    assert_eq!(found.samples, 3);
    assert_eq!(recording.metadata().target.id, 26);
    let profile = gather(
        &[&recording],
        &library(),
        &Options::default(),
        &|_, _| {},
        None,
    );
    assert_eq!(profile.account.cut.len(), 1);
    assert_eq!(
        export("folded", &recording),
        "0x41392f;0x422c3c 1\n0x422c3c 1\nmain;block_domain 1\n"
    );
    let text = "vcpu0:\nrip: 0000000000049ad7 camlLwt__return_1319+0x27\nflags: 00000246 i z p\n\
        Stack:\n 000000000019fe58 0000000000000000\n\nStack Trace:\n\
        \x20                   [<0000000000049ad7>] camlLwt__return_1319+0x27 <--\n\
        000000000019fe58:   [<0000000000007312>] name+0x72\n\
        000000000019fe98:   [<0000000000007400>] \n";
    let (recording, found) = imported("xenctx", text).unwrap();
    assert_eq!((found.samples, found.skipped), (1, 0));
    assert_eq!(
        export("folded", &recording),
        "0x73ff;name;Lwt.return_1319 1\n"
    );
}

/// Times of samples, in nanoseconds from the recording's start.
fn times(recording: &Recording) -> Vec<u64> {
    let mut times = Vec::new();
    let mut take = |sampled: &Sampled, _: &Profile| times.push(sampled.since_ns);
    let options = Options::default();
    gather(
        &[recording],
        &library(),
        &options,
        &|_, _| {},
        Some(&mut take),
    );
    times
}

#[test]
fn what_has_no_times_gets_no_rate() {
    let folded = "main;work 3\nmain 2\n";
    let text = "#tracing domid 26 on 2017-07-11 09:12:44 UTC (+0000)\n\n0x10\n5\n\n";
    for (format, text) in [("folded", folded), ("uniprof-text", text)] {
        let (recording, _) = imported(format, text).unwrap();
        assert_eq!(
            (recording.start_ns(), recording.end_ns()),
            (0, 5),
            "{format}"
        );
        assert_eq!(times(&recording), [0, 1, 2, 3, 4], "{format}");
        assert!(!recording.is_timed());
        let options = Options::default();
        let profile = gather(&[&recording], &library(), &options, &|_, _| {}, None);
        let line = "5 samples, no times in what was imported";
        assert_eq!(profile.account.lines()[0], line, "{format}");
        let survey = info::survey(&recording, &Library::default(), &|_, _| {});
        let facts = info::lines(&recording, &survey, false);
        let fact = |wanted: &str| {
            let found = facts.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(fact("length"), Some("no times in what was imported"));
        assert_eq!(fact("rate requested"), Some("unknown"));
        assert_eq!(fact("rate achieved"), None);
        let json: serde_json::Value = serde_json::from_str(&export("json", &recording)).unwrap();
        assert!(json["recordings"][0]["seconds"].is_null());
        assert!(json["account"]["seconds"].is_null());
    }
}

#[test]
fn what_has_times_begins_with_the_first() {
    let script = "a 7/7 100.000000: 1 cycles: \n\t401000 f+0x1 (/a)\n\n\
                  a 7/7 100.500000: 1 cycles: \n\t401000 f+0x1 (/a)\n\n";
    let (recording, _) = imported("perf-script", script).unwrap();
    assert_eq!(times(&recording), [0, 500_000_000]);
    assert_eq!((recording.start_ns(), recording.end_ns()), (0, 500_000_001));
    assert!(recording.is_timed() && (recording.seconds() - 0.5).abs() < 1e-6);
    // One moment has no length that a rate could be of.
    let first = script.split_inclusive("\n\n").next().unwrap();
    let (recording, _) = imported("perf-script", first).unwrap();
    assert!(!recording.is_timed());
}

#[test]
fn samples_without_call_chains_have_their_frame_in_their_line() {
    let script = "         swapper     0 [000] 12.300000: 250000 cycles:  ffffffff81000c60 work ([kernel.kallsyms])\n\
                  \x20             dd   100 [001] 12.400000:     250000 cycles:            401000 f (/a)\n\
                  \x20             dd   100 [001] 12.700000:     250000 cycles:            401000 f (/a)\n";
    let (recording, found) = imported("perf-script", script).unwrap();
    assert_eq!((found.samples, found.skipped), (3, 0));
    assert_eq!(export("folded", &recording), "f 2\nwork 1\n");
    let script = "              dd   100 [001] 12.500000: sched:sched_switch: prev_comm=dd (x)\n\
                  \t401000 g (/a)\n\
                  \x20             dd   100 [001] 12.600000: sched:sched_switch: prev_comm=dd (x)\n";
    let (recording, found) = imported("perf-script", script).unwrap();
    assert_eq!((found.samples, found.skipped), (2, 0));
    let folded = export("folded", &recording);
    assert!(folded.ends_with("g 1\n"), "{folded}");
}

/// Fields of other kinds stand before and after the address, and a source line after the frame.
#[test]
fn other_fields_of_perf_script_are_no_part_of_a_frame() {
    let script = "a 7/7 1.000000:     250000 cycles:     7ffe1234 |OP LOAD|LVL L1 hit|    \
                  401000 f (/a) ABI:2    AX:0x12 (x)       12345678 4K\n\
                  a 7/7 1.100000:     250000 cycles:             7ffe1234 data+0x4 (/b)     \
                  ffffffff81000c60 work+0x1 ([kernel.kallsyms])\n  fs/read_write.c:12\n\
                  a 7/7 1.200000:       401000 core::g (/a+0x1000)\n\
                  a 7/7 1.300000: cycles: \n\t401000 h\n  /src/h.c:3 (inlined)\n\t401000 f+0x2 (/a+0x1000)\n  \
                  /src/f.c:7\n\n";
    let cycles = script.replace("1.200000: ", "1.200000: 1 cycles: ");
    let (recording, found) = imported("perf-script", &cycles).unwrap();
    assert_eq!((found.samples, found.skipped), (4, 0));
    let folded = export("folded", &recording);
    assert_eq!(folded, "core::g 1\nf 1\nf;h 1\nwork 1\n");
    let (recording, found) = imported("perf-script", script).unwrap();
    assert_eq!((found.samples, found.skipped), (3, 0));
    assert!(!export("folded", &recording).contains("core::g"));
    let eventless = script.lines().nth(3).unwrap();
    let (recording, _) = imported("perf-script", eventless).unwrap();
    assert_eq!(export("folded", &recording), "core::g 1\n");
}

/// Code without a symbol is its image's, an inlined function is in the image around it, and modules are the kernel's.
#[test]
fn frames_of_perf_script_keep_their_images() {
    let script = ":-1    -1 [006] 1.000000: 1 cycles: \n\
                  \tffffffffc0001000 ext4_read+0x1 ([ext4])\n\
                  \t7f1200001000 [unknown] (/usr/lib/libfoo.so.1)\n\
                  \t401000 inner (inlined)\n\
                  \t401000 outer+0x2 (/a)\n\n\
                  a 7/-1 1.100000: 1 cycles: \n\t401000 outer+0x2 (/a)\n\n";
    let (recording, found) = imported("perf-script", script).unwrap();
    assert_eq!((found.samples, found.skipped), (2, 0));
    let csv = export("csv", &recording);
    let mut rows: Vec<Vec<&str>> = (csv.lines().skip(1))
        .map(|line| line.split(',').take(2).collect())
        .collect();
    rows.sort();
    assert_eq!(
        rows,
        [
            ["[unknown]", "/usr/lib/libfoo.so.1"],
            ["ext4_read", "[ext4]"],
            ["inner", "/a"],
            ["outer", "/a"]
        ]
    );
    let options = Options::default();
    let profile = gather(&[&recording], &library(), &options, &|_, _| {}, None);
    let mut marked = Vec::new();
    folded::write(&profile, FoldedOptions { marks: true }, &mut marked).unwrap();
    assert_eq!(
        String::from_utf8(marked).unwrap(),
        "outer 1\nouter;inner;[unknown];ext4_read_[k] 1\n"
    );
}

/// perf counts cycles on each kind of processor by an event of its own. Its own records are no samples, and some are at
/// time 0. Without a column for the processor, a thread's name may end like one with a number.
#[test]
fn of_several_events_the_first_is_imported() {
    let script = "swapper     0     0.000000: PERF_RECORD_COMM: perf-exec:1235/1235\n\
                  worker 3  1235   100.000000:     250000 cpu_core/cycles/P: \n\
                  \t401136 f+0x6 (/a)\n\n\
                  worker 3  1235   100.100000: PERF_RECORD_NAMESPACES 1235/1235 - nr_namespaces: 7\n\
                  \t\t[0/net: 4/0xf0000000, 1/uts: 4/0xeffffffe]\n\
                  worker 3  1235   100.200000:          1 branch-misses: \n\
                  \t401236 g+0x6 (/a)\n\n\
                  worker 3  1235   100.300000:          1 branch-misses:     401236 g+0x6 (/a)\n\
                  worker 3  1235   100.500000:     250000 cpu_atom/cycles/P: \n\
                  \t401136 f+0x6 (/a)\n\n\
                  worker 3  1235   100.600000: PERF_RECORD_LOST lost 7\n\
                  worker 3  1235   100.700000: PERF_RECORD_EXIT(1235:1235):(1235:1235)\n";
    let (recording, found) = imported("perf-script", script).unwrap();
    assert_eq!((found.samples, found.skipped), (2, 0));
    assert_eq!(
        found.left_out.as_deref(),
        Some(
            "only samples of cycles are imported, and 2 of other events, such as branch-misses, are left out"
        )
    );
    assert_eq!(times(&recording), [0, 500_000_000]);
    assert_eq!(recording.metadata().sampling.trigger, "cycles");
    let by_thread = Options {
        by_task: true,
        ..Options::default()
    };
    let folded = exported("folded", &[&recording], &library(), &by_thread).unwrap();
    let folded = String::from_utf8(folded).unwrap();
    assert!(
        folded.contains("worker 3") && folded.ends_with(";f 2\n"),
        "{folded}"
    );
    let profile = gather(
        &[&recording],
        &library(),
        &Options::default(),
        &|_, _| {},
        None,
    );
    assert_eq!(profile.account.lost[&LossReason::KernelBuffer], 7);
}

#[test]
fn waits_are_as_long_as_their_numbers_say() {
    let script = "a 7/7 100.000000: 30000000 offcpu-time: \n\t401000 read+0x1 (/a)\n\n\
                  a 7/7 100.500000: 5000000000 offcpu-time: \n\t401100 poll+0x1 (/a)\n\n";
    let (recording, found) = imported("perf-script", script).unwrap();
    assert_eq!((found.samples, found.skipped), (2, 0));
    // In microseconds.
    assert_eq!(export("folded", &recording), "poll 5000000\nread 30000\n");
    assert!((recording.seconds() - 5.5).abs() < 1e-6);
    let longest = script.replace("30000000 offcpu", "18446744073709551615 offcpu");
    assert_eq!(imported("perf-script", &longest).unwrap().1.samples, 2);
    let unsaid = script.replace("30000000 offcpu", "offcpu");
    let unsaid = unsaid.replace("5000000000 offcpu", "offcpu");
    assert_eq!(recognize(unsaid.as_bytes()).unwrap().name, "perf-script");
    let refused = imported("perf-script", &unsaid).map(drop).unwrap_err();
    assert!(refused.to_string().contains("perf script -F +period"));
    let cycles = script.replace("offcpu-time", "cycles");
    let (recording, _) = imported("perf-script", &cycles).unwrap();
    assert_eq!(export("folded", &recording), "poll 1\nread 1\n");
    for event in ["call-time", "vcpu-time"] {
        let times = script.replace("offcpu-time", event);
        let refused = imported("perf-script", &times).map(drop).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.starts_with(&format!("it has {event},")));
        assert!(refused.ends_with("awk '{ $NF = int($NF / 1000) } $NF'"));
    }
}

#[test]
fn nonsense_is_refused_and_bounded() {
    for format in IMPORTS {
        for text in ["", "\n\n", "hello\n", "\u{0}\u{1}\u{2}", "a b c d\ne f\n"] {
            let failed = imported(format.name, text).unwrap_err();
            assert!(
                matches!(
                    failed,
                    ImportError::NoStack { .. }
                        | ImportError::NoCall { .. }
                        | ImportError::Pprof(_)
                ),
                "{}: {text:?}",
                format.name
            );
        }
    }
    let failed = imported("folded", "main 99999999999999\n").unwrap_err();
    assert!(matches!(failed, ImportError::TooMany { line: 1, .. }));
    let long = format!("{};main 1\nmain 2\n", "x".repeat(3 << 20));
    let (_, found) = imported("folded", &long).unwrap();
    assert_eq!((found.samples, found.skipped), (2, 1));
}

#[test]
fn formats_are_told_by_their_first_lines() {
    let inputs = [
        ("uniprof-text", "0x401000\n0x402000\n1\n\n"),
        (
            "perf-script",
            "a 7/7 100.000000: 1 cycles: \n\t401000 f+0x1 (/a)\n\n",
        ),
        ("folded", "main;work 3\nmain 2\n"),
        (
            "folded",
            "main;parse 1000\nmain;read 500\nworker(void*);spin(int) 7\n",
        ),
        (
            "nanos-ftrace",
            " 0)               |  a() {\n 0)   2.310 us    |    b();\n 0)   4.263 us    |  }\n",
        ),
        (
            "linux-ftrace",
            "cpus=2\n    ls-95    [001]     7.675210: funcgraph_entry:      ! 406.829 us |  mutex_unlock();\n",
        ),
        (
            "function-tracer",
            "             tid-2     [000]  123456789: kern_lock <-mcache_alloc\n",
        ),
        (
            "uftrace",
            "15600.521167480   4170: [entry] main(561badaba2ac) depth: 0\n",
        ),
        (
            "syscalls",
            "[2] openat(-100, \"/etc/hosts\", 0x0, 0x0) = ENOENT\n",
        ),
        (
            "syscalls",
            "4170 1700000000.123456 read(3, \"x\", 4096) = 1 <0.000017>\n",
        ),
        (
            "chrome",
            r#"{"traceEvents":[{"ph":"X","ts":1,"dur":2,"pid":1,"tid":1,"name":"a"}]}"#,
        ),
        (
            "chrome",
            r#"[{"ph":"b","ts":1,"pid":1,"id":1,"name":"c"},{"ph":"n","ts":1,"pid":1,"id":1,"name":"c"},
            {"ph":"e","ts":2,"pid":1,"id":1,"name":"c"},{"ph":"B","ts":1,"pid":1,"tid":1,"name":"a"},
            {"ph":"B","ts":2,"pid":1,"tid":1,"name":"b"},{"ph":"E","ts":3,"pid":1,"tid":1,"name":"b"},
            {"ph":"E","ts":4,"pid":1,"tid":1,"name":"a"}]"#,
        ),
    ];
    for (name, text) in inputs {
        let found = recognize(text.as_bytes());
        assert_eq!(found.map(|format| format.name), Ok(name), "{text}");
        assert!(imported(name, text).is_ok(), "{name}");
    }
    // No sample is written to recognize the format, however many samples a stack stands for.
    let found = recognize(b"main;work 99000000\nmain 99000000\n");
    assert_eq!(found.map(|format| format.name), Ok("folded"));
    // The head of a long input ends within a stack.
    let long = ("work+0x16\n".repeat(100) + "1\n\n").repeat(100);
    let found = recognize(&long.as_bytes()[..HEAD_BYTES as usize]);
    assert_eq!(found.map(|format| format.name), Ok("uniprof-text"));
    assert!(recognize(b"hello\n1\nworld\nhello\n").is_err());
    let said = recognize(b"hello, world (nothing)\n").err().unwrap();
    let said = said.to_string();
    for format in IMPORTS {
        assert!(said.contains(&format!("{}: ", format.name)), "{said}");
    }
}
