//! Samples and calls on one time axis: where recordings begin, which task calls belong to, and what is
//! refused.

mod exported;
mod made;

use exported::exported;
use made::{Made, open, recording};
use prost::Message;
use serde_json::Value;
use uniprof_report::export::{Timeline, TimelineError};
use uniprof_report::images::Library;
use uniprof_report::import::{IMPORTS, Input, TraceClock, import_as};
use uniprof_report::profile::Options;
use uniprof_report::recording::Recording;
use uprof::State;

/// Start of the synthetic recording of samples, which states it for both clocks.
const START_NS: u64 = 1_000;
const START_REALTIME: &str = "1499764364";

/// A process 7, whose threads 7 and 8 were sampled for 40 ms.
fn samples() -> Recording {
    let sample = |at_ms, thread| Made {
        at_ms,
        thread,
        state: State::Running,
        stack: &[1, 0],
    };
    open(recording(
        &["main", "parse"],
        &[],
        &[sample(1, 7), sample(2, 8), sample(40, 8)],
    ))
}

fn imported(format: &str, clock: Option<TraceClock>, text: &str) -> Recording {
    let format = IMPORTS.iter().find(|one| one.name == format).unwrap();
    let known = Input {
        name: "trace.txt",
        clock: clock.or(format.clock),
        ..Input::default()
    };
    let mut out = Vec::new();
    import_as(format, &known, [3; 16], &mut text.as_bytes(), &mut out).unwrap();
    Recording::from_bytes("trace.uprof", out).unwrap()
}

/// Calls of thread 8, 2 ms after the start of the machine's monotonic clock.
fn uftrace() -> Recording {
    let text = "    0.002000000      8: [entry] parse(561badaba2ac) depth: 0\n\
                \x20   0.003000000      8: [exit ] parse(561badaba2ac) depth: 0\n";
    imported("uftrace", None, text)
}

fn strace(second: &str) -> Recording {
    let text = format!("8 {second}.005000 read(3, \"\", 1) = 0 <0.000100>\n");
    imported("syscalls", None, &text)
}

fn offsets(recordings: &[&Recording]) -> Result<Vec<u64>, TimelineError> {
    Timeline::of(recordings).map(|timeline| timeline.offsets_ns)
}

fn export(name: &str, recordings: &[&Recording]) -> Vec<u8> {
    let mut library = Library::default();
    library.only_given = true;
    exported(name, recordings, &library, &Options::default()).unwrap()
}

#[test]
fn recordings_begin_where_their_clocks_say() {
    let (samples, uftrace, strace) = (samples(), uftrace(), strace(START_REALTIME));
    let since_start = 2_000_000 - START_NS;
    assert_eq!(offsets(&[&samples]), Ok(vec![0]));
    // By the monotonic clock of both; by the time of day of both; and for two different clocks, by the
    // recording that has both.
    assert_eq!(offsets(&[&samples, &uftrace]), Ok(vec![0, since_start]));
    assert_eq!(offsets(&[&strace, &samples]), Ok(vec![5_000_000, 0]));
    let all = Timeline::of(&[&uftrace, &samples, &strace]).unwrap();
    assert_eq!(all.offsets_ns, [since_start, 0, 5_000_000]);
    assert_eq!(all.start_realtime_ns, Some(1_499_764_364_000_000_000));
}

#[test]
fn no_clock_is_guessed() {
    let samples = samples();
    let refused = |other: &Recording, said: &str| {
        let why = offsets(&[&samples, other]).unwrap_err().to_string();
        assert!(why.contains(said), "{why}");
    };
    refused(&strace("1499764399"), "not made at the time of any other");
    let chrome = r#"[{"ph": "X", "name": "a", "pid": 7, "tid": 8, "ts": 2, "dur": 3}]"#;
    refused(
        &imported("chrome", None, chrome),
        "which clock its times are of",
    );
    let known = imported("chrome", Some(TraceClock::Monotonic), chrome);
    assert_eq!(offsets(&[&samples, &known]), Ok(vec![0, 2_000 - START_NS]));
    let order = imported("nanos-ftrace", None, " 0)   0.07 us     |  walk();\n");
    refused(&order, "an order and no times");
    // Times since the start of a trace are not a time of day.
    let relative = imported("chrome", Some(TraceClock::Realtime), chrome);
    refused(&relative, "which clock its times are of");
    // Without the recording of samples, the difference between the two clocks is unknown.
    let why = offsets(&[&uftrace(), &strace(START_REALTIME)])
        .unwrap_err()
        .to_string();
    assert!(why.contains("no clock in common"), "{why}");
}

#[test]
fn calls_of_a_thread_are_with_its_samples() {
    let profile = export("firefox", &[&samples(), &uftrace()]);
    let profile: Value = serde_json::from_slice(&profile).unwrap();
    let threads: Vec<(u64, u64, u64)> = profile["threads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|thread| {
            let number = |value: &Value| value.as_u64().unwrap();
            let tid = thread["tid"].as_str().map_or(0, |tid| tid.parse().unwrap());
            (
                tid.max(thread["tid"].as_u64().unwrap_or(0)),
                number(&thread["samples"]["length"]),
                number(&thread["markers"]["length"]),
            )
        })
        .collect();
    assert_eq!(threads, [(7, 1, 0), (8, 2, 1)]);
    let marker = &profile["threads"][1]["markers"];
    assert_eq!(marker["startTime"][0].as_f64(), Some(1.999));
    assert_eq!(marker["endTime"][0].as_f64(), Some(2.999));
}

/// What Perfetto tells threads and slices apart by.
#[derive(Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packets: Vec<Packet>,
}

#[derive(Message)]
struct Packet {
    #[prost(message, optional, tag = "11")]
    event: Option<Event>,
    #[prost(message, optional, tag = "60")]
    track: Option<Track>,
}

#[derive(Message)]
struct Event {
    #[prost(int32, tag = "9")]
    kind: i32,
    #[prost(uint64, tag = "11")]
    track: u64,
}

#[derive(Message)]
struct Track {
    #[prost(uint64, tag = "1")]
    uuid: u64,
    #[prost(uint64, tag = "5")]
    parent: u64,
    #[prost(message, optional, tag = "4")]
    thread: Option<Numbers>,
}

#[derive(Message)]
struct Numbers {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(int64, tag = "2")]
    tid: i64,
}

#[test]
fn recordings_of_one_process_id_are_two_processes_in_perfetto() {
    let trace = export("perfetto", &[&samples(), &samples()]);
    let trace = Trace::decode(&trace[..]).unwrap();
    let tracks = trace.packets.into_iter().filter_map(|one| one.track);
    let threads = tracks.filter_map(|track| track.thread);
    let threads: Vec<(i32, i64)> = threads.map(|one| (one.pid, one.tid)).collect();
    let made = |number: i32| (1 << 22) + number;
    let of_second = |tid| (made(1), i64::from(made(tid)));
    assert_eq!(threads, [(7, 7), (7, 8), of_second(2), of_second(3)]);
}

#[test]
fn calls_of_two_traces_of_a_thread_do_not_end_each_other_in_perfetto() {
    // The second trace's call begins within the first one's and ends after it.
    let later = "    0.002500000      8: [entry] copy(561badaba2ac) depth: 0\n\
                 \x20   0.003500000      8: [exit ] copy(561badaba2ac) depth: 0\n";
    let later = imported("uftrace", None, later);
    let trace = export("perfetto", &[&samples(), &uftrace(), &later]);
    let trace = Trace::decode(&trace[..]).unwrap();
    let events = trace.packets.iter().filter_map(|one| one.event.as_ref());
    let events: Vec<(i32, u64)> = events.map(|one| (one.kind, one.track)).collect();
    let [(1, first), (2, first_end), (1, second), (2, second_end)] = events[..] else {
        panic!("{events:?}");
    };
    assert!(first == first_end && second == second_end && first != second);
    let mut tracks = trace.packets.iter().filter_map(|one| one.track.as_ref());
    let below = tracks.find(|track| track.uuid == second).unwrap();
    assert_eq!(below.parent, first);
}

#[test]
fn folded_calls_without_lengths_are_counted() {
    let text = "  a-1 [000]  1.000001: function:  parse <-- main\n\
                \x20 a-1 [000]  1.000002: function:  copy <-- parse\n\
                \x20 a-1 [000]  1.000003: function:  copy <-- parse\n";
    let recording = imported("function-tracer", None, text);
    let folded = String::from_utf8(export("folded", &[&recording])).unwrap();
    assert_eq!(folded, "main 1\nmain;parse 1\nmain;parse;copy 2\n");
}
