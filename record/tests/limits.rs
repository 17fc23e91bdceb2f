//! Limits of the recorder, each at its value and beyond it. docs/limits.md names these tests.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use uniprof_record::Plan;
use uniprof_record::gdb::client::Client;
use uniprof_record::gdb::description::{self, Description};
use uniprof_record::gdb::handshake::{self, MOST_VCPUS};
use uniprof_record::gdb::packet::{Decoder, Event, Fault, MOST_PAYLOAD_BYTES};
use uniprof_record::guest::endpoint::{Connection, Endpoint};
use uniprof_record::guest::xenstore::Xenstore;
use uniprof_record::qemu::machine::Machine;
use uniprof_record::qemu::qmp::Qmp;
use uniprof_record::ring::ring;
use uniprof_record::slot::{MAX_TEXT_BYTES, Note, NoteKind, Slot};
use uniprof_record::source::{Vcpu, Vcpus};
use uniprof_record::walk;
use uprof::layout::{MAX_FRAMES, MAX_STACK_BYTES};
use uprof::{Arch, Details, Frame, RawStack, Registers, State, Stop, Task};

const TASK: Task = Task { space: 0, vcpu: 0 };

#[test]
fn frames_of_a_sample() {
    let mut slot = Slot::new(0);
    slot.reset(0, TASK, State::Running);
    for address in 0..MAX_FRAMES as u64 {
        assert!(slot.push_frame(Frame::exact(address)));
    }
    assert!(!slot.push_frame(Frame::exact(0)));
    assert_eq!(slot.chain().len(), MAX_FRAMES);
}

/// Walks a chain of this many callers, with a limit of `most` frames.
fn walked(callers: u64, most: usize) -> (usize, Stop) {
    let base = 0x8000;
    let words = (0..callers).flat_map(|number| [base + 16 * (number + 1), 0x1000]);
    let words = words.chain([0, 0]);
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    let mut registers = Registers::default();
    registers.set(16, 0x1000);
    registers.set(6, base);
    let mut slot = Slot::new(0);
    slot.reset(0, TASK, State::Running);
    let window = RawStack {
        address: base,
        bytes: &bytes,
    };
    let stop = walk::frame_pointers(&mut slot, Arch::X86_64, &registers, &[window], most, true);
    (slot.chain().len(), stop)
}

#[test]
fn frames_of_a_walk() {
    let most = Plan::default().most_frames as usize;
    assert_eq!(walked(most as u64 - 1, most), (most, Stop::Complete));
    assert_eq!(walked(most as u64, most), (most, Stop::Depth));
    // Even a plan without a limit doesn't exceed that of the file.
    let at = MAX_FRAMES as u64 - 1;
    assert_eq!(walked(at, usize::MAX), (MAX_FRAMES, Stop::Complete));
    assert_eq!(walked(at + 1, usize::MAX), (MAX_FRAMES, Stop::Depth));
}

#[test]
fn stack_bytes_of_a_sample() {
    let window = |stack_bytes| {
        let plan = Plan {
            stack_bytes,
            ..Plan::default()
        };
        plan.kept_bytes()
    };
    assert_eq!(window(MAX_STACK_BYTES as u32), MAX_STACK_BYTES);
    assert_eq!(window(MAX_STACK_BYTES as u32 + 1), MAX_STACK_BYTES);
}

#[test]
fn memory_of_the_ring() {
    // Room for one second of samples and at most 64 MiB, but never fewer than 64 slots nor more than 8,192.
    for (stack_bytes, slots) in [
        (0, 2000..=8192),
        (16 << 10, 1000..=4096),
        (MAX_STACK_BYTES, 64..=256),
    ] {
        let (sink, _drain) = ring(stack_bytes, 1000, 997.0, true);
        assert!(
            slots.contains(&sink.slots()),
            "{stack_bytes}: {}",
            sink.slots()
        );
    }
    for (vcpus, rate_hz, slots) in [(1, 99.0, 99), (4, 99.0, 396), (4, 1.0, 64), (100, 1.0, 400)] {
        let (sink, _drain) = ring(0, vcpus, rate_hz, true);
        assert_eq!(sink.slots(), slots, "{vcpus} vCPUs at {rate_hz} Hz");
    }
}

#[test]
fn vcpus_of_a_freeze() {
    let vcpu = Vcpu {
        task: TASK,
        state: State::Running,
        registers: Registers::default(),
        handle: 0,
        details: Details::default(),
    };
    let mut vcpus = Vcpus::new();
    (0..Vcpus::MOST).for_each(|_| vcpus.push(vcpu));
    assert_eq!((vcpus.all().len(), vcpus.clear()), (Vcpus::MOST, 0));
    (0..Vcpus::MOST + 1).for_each(|_| vcpus.push(vcpu));
    assert_eq!((vcpus.all().len(), vcpus.clear()), (Vcpus::MOST, 1));
}

#[test]
fn text_of_a_note() {
    let mut note = Note::new();
    for length in [MAX_TEXT_BYTES, MAX_TEXT_BYTES + 1] {
        note.set(0, TASK, NoteKind::Named, &vec![b'n'; length]);
        assert_eq!(note.text().len(), MAX_TEXT_BYTES);
    }
}

fn packet(payload: &[u8]) -> Vec<u8> {
    let sum = payload
        .iter()
        .fold(0u8, |sum, &byte| sum.wrapping_add(byte));
    [b"$", payload, format!("#{sum:02x}").as_bytes()].concat()
}

#[test]
fn bytes_of_a_gdb_packet() {
    let decode = |length| {
        let mut decoder = Decoder::new();
        let bytes = packet(&vec![b'a'; length]);
        let mut events = bytes.iter().map(|&byte| decoder.push(byte));
        events.find(|event| *event != Ok(None))
    };
    assert_eq!(decode(MOST_PAYLOAD_BYTES), Some(Ok(Some(Event::Packet))));
    assert_eq!(decode(MOST_PAYLOAD_BYTES + 1), Some(Err(Fault::TooLong)));
}

#[test]
fn bytes_and_documents_of_a_gdb_description() {
    let read = |bytes: usize, documents: usize| {
        let mut fetched = 0;
        let described = Description::read::<()>("0", |name| {
            fetched += 1;
            let number: usize = name.parse().unwrap();
            let include = format!("<xi:include href=\"{}\"/>", number + 1);
            let register = "<reg name=\"r\" bitsize=\"64\"/>";
            let mut text = [register, if number + 1 < documents { &include } else { "" }].concat();
            text.extend(std::iter::repeat_n(' ', bytes.saturating_sub(text.len())));
            Ok(text)
        });
        (described.unwrap().registers.len(), fetched)
    };
    assert_eq!(read(description::MOST_BYTES, 1).0, 1);
    assert_eq!(read(description::MOST_BYTES + 1, 1).0, 0);
    let most = description::MOST_DOCUMENTS;
    assert_eq!(read(0, most), (most, most));
    assert_eq!(read(0, most + 1), (most, most));
}

/// A connection to a peer that sends `bytes` and nothing else.
fn connection(bytes: Vec<u8>) -> Connection {
    let (near, mut far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let _ = far.write_all(&bytes);
        let _ = far.shutdown(Shutdown::Write);
        // The peer has to read the requests.
        let _ = io::copy(&mut far, &mut io::sink());
    });
    Connection::from(OwnedFd::from(near))
}

/// The replies of a stub with this many vCPUs and gdb's own layout of registers.
fn stub(vcpus: usize) -> Vec<u8> {
    let ids: Vec<String> = (1..=vcpus).map(|id| format!("{id:x}")).collect();
    let list = format!("m{}", ids.join(","));
    let registers = "0".repeat(2 * 164);
    let mut replies = vec![
        "vContSupported+",
        "OK",
        "T05",
        "vCont;c",
        &list,
        "l",
        &registers,
    ];
    replies.extend(std::iter::repeat_n("", vcpus));
    replies
        .iter()
        .flat_map(|reply| packet(reply.as_bytes()))
        .collect()
}

#[test]
fn vcpus_of_a_gdb_stub() {
    let greet = |vcpus| {
        let endpoint = Endpoint::Unix("stub".into());
        let connection = connection(stub(vcpus));
        let mut client = Client::over(connection, &endpoint, Duration::from_secs(10));
        handshake::greet(&mut client)
    };
    assert_eq!(greet(MOST_VCPUS).unwrap().threads.len(), MOST_VCPUS);
    let message = greet(MOST_VCPUS + 1).unwrap_err().to_string();
    assert!(message.contains("more than 512 vCPUs"), "{message}");
}

const GREETING: &str = "{\"QMP\":{}}\n{\"return\":{}}\n";

fn monitor(answer: &str) -> Result<serde_json::Value, String> {
    let said = [GREETING, answer].concat().into_bytes();
    let qmp = Qmp::over(connection(said), &Endpoint::Unix("qmp".into()));
    let answer = qmp.and_then(|mut qmp| qmp.run("query-name", serde_json::json!({})));
    answer.map_err(|error| error.to_string())
}

#[test]
fn vcpus_that_a_monitor_tells() {
    let ask = |vcpus: usize| {
        let list = vec!["{}"; vcpus].join(",");
        let nothing = "{\"return\":{}}\n".repeat(16);
        let answers = format!("{GREETING}{{\"return\":{{}}}}\n{{\"return\":[{list}]}}\n{nothing}");
        let mut qmp = Qmp::over(
            connection(answers.into_bytes()),
            &Endpoint::Unix("qmp".into()),
        )
        .unwrap();
        Machine::ask(&mut qmp)
    };
    ask(MOST_VCPUS).unwrap();
    let message = ask(MOST_VCPUS + 1).unwrap_err().to_string();
    assert!(message.contains("too many vCPUs"), "{message}");
}

#[test]
fn events_before_an_answer_of_a_monitor() {
    let answer = |events| format!("{}{{\"return\":1}}\n", "{\"event\":\"X\"}\n".repeat(events));
    assert_eq!(monitor(&answer(9_999)), Ok(1.into()));
    let message = monitor(&answer(10_000)).unwrap_err();
    assert!(message.contains("events without end"), "{message}");
}

#[test]
fn bytes_of_a_line_of_a_monitor() {
    let message = monitor(&" ".repeat((2 << 20) + (64 << 10))).unwrap_err();
    assert!(message.contains("a line has no end"), "{message}");
    let answer = format!("{}{{\"return\":1}}\n", " ".repeat((2 << 20) - 64));
    assert_eq!(monitor(&answer), Ok(1.into()));
}

/// A store that returns prepared replies.
struct Store(io::Cursor<Vec<u8>>);

impl Read for Store {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl Write for Store {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn bytes_of_a_xenstore_value() {
    let read = |length: usize| {
        let mut reply: Vec<u8> = [2, 1, 0, length as u32]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();
        reply.extend(vec![b'v'; length]);
        let mut store = Xenstore::over(Store(io::Cursor::new(reply)));
        store
            .read("/local/domain/7/name")
            .map_err(|error| error.to_string())
    };
    // XENSTORE_PAYLOAD_MAX of Xen's io/xs_wire.h.
    assert_eq!(read(4096).map(|value| value.len()), Ok(4096));
    assert!(
        read(4097)
            .unwrap_err()
            .contains("longer than the protocol allows")
    );
}
