//! The far ends of conversations: gdb stubs, QEMU's monitor, xenstored. What they say is prepared;
//! what they are asked is thrown away.

use crate::take::Take;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use uniprof_record::gdb::client::Client;
use uniprof_record::gdb::description::Description;
use uniprof_record::gdb::handshake::{self, Guest};
use uniprof_record::gdb::packet::{Decoder, MOST_PAYLOAD_BYTES};
use uniprof_record::gdb::registers::Layout;
use uniprof_record::gdb::stacks::{FetchLimits, Stacks};
use uniprof_record::guest::endpoint::{Connection, Endpoint};
use uniprof_record::guest::xenstore::Xenstore;
use uniprof_record::qemu::machine::Machine;
use uniprof_record::qemu::qmp::Qmp;
use uniprof_record::source::Vcpu;
use uprof::{Arch, Details, Registers, State, Task};

/// More than is ever sent at once, less than a socket takes in without a reader.
const MOST_BYTES: usize = 64 << 10;

/// A connection to someone who has said `bytes` and says no more; and the far end, for as long as it
/// shall not be gone.
fn connection(bytes: &[u8]) -> io::Result<(Connection, UnixStream)> {
    let (near, mut far) = UnixStream::pair()?;
    near.set_nonblocking(true)?;
    far.write_all(&bytes[..bytes.len().min(MOST_BYTES)])?;
    far.shutdown(Shutdown::Write)?;
    Ok((Connection::from(OwnedFd::from(near)), far))
}

/// Payloads of a stub's packets, a line each; their checksums are made right.
pub fn gdb(bytes: &[u8]) {
    let mut packets = Vec::new();
    for payload in bytes.split(|&byte| byte == b'\n') {
        let sound = |byte: &&u8| !matches!(byte, b'$' | b'#');
        let payload: Vec<u8> = payload.iter().filter(sound).copied().collect();
        let sum = payload
            .iter()
            .fold(0u8, |sum, &byte| sum.wrapping_add(byte));
        packets.push(b'$');
        packets.extend(payload);
        packets.extend(format!("#{sum:02x}").bytes());
    }
    talk(&packets);
    let text = String::from_utf8_lossy(bytes);
    let described = Description::read::<()>("target.xml", |_| Ok(text.to_string()));
    if let Ok(layout) = described
        .map_err(drop)
        .and_then(|all| Layout::of_description(&all).map_err(drop))
    {
        let _ = layout.read(bytes, &mut Registers::default());
        let _ = layout.read_control(bytes);
    }
}

/// What a stub sends, byte by byte.
pub fn gdb_bytes(bytes: &[u8]) {
    let mut decoder = Decoder::new();
    for &byte in bytes {
        let _ = decoder.push(byte);
        assert!(decoder.payload().len() <= MOST_PAYLOAD_BYTES);
    }
    talk(bytes);
}

/// A whole conversation: the greeting, then registers and stacks.
fn talk(bytes: &[u8]) {
    let (connection, _far) = connection(bytes).expect("a pair of sockets");
    let endpoint = Endpoint::Unix("fuzz".into());
    let mut client = Client::over(connection, &endpoint, Duration::from_millis(20));
    let guest = match handshake::greet(&mut client) {
        Ok(guest) => guest,
        Err(error) => {
            assert!(!error.to_string().contains(char::is_control), "{error}");
            Guest {
                layout: Layout::usual(Arch::X86_64).expect("gdb's own layout has all"),
                threads: Vec::new(),
                resume: handshake::Continue::All,
                piece_bytes: 1024,
                binary: bytes.len().is_multiple_of(2),
                tells_halted: true,
                steps: true,
                drops_behind_interrupt: false,
            }
        }
    };
    assert!(guest.threads.len() <= handshake::MOST_VCPUS);
    let wanted = FetchLimits {
        window_bytes: 16 << 10,
        kept_bytes: (bytes.len() % 4) << 12,
        most_frames: 64,
        budget_ns: 20_000_000,
    };
    let mut registers = Registers::default();
    if let Ok(reply) = client.ask("for registers", format_args!("g")) {
        let _ = handshake::halted(reply);
        let _ = guest.layout.read(reply, &mut registers);
    }
    let vcpus: Vec<Vcpu> = (0..guest.threads.len() as u32)
        .map(|vcpu| Vcpu {
            task: Task { space: 0, vcpu },
            state: State::Running,
            registers,
            handle: u64::from(vcpu),
            details: Details::default(),
        })
        .collect();
    let mut stacks = Stacks::new(vcpus.len().min(64), wanted);
    let _ = stacks.fetch(&mut client, &guest, &vcpus[..vcpus.len().min(64)], 0);
    if let Some(vcpu) = vcpus.first() {
        let _ = stacks.read(vcpu, registers.get(7).unwrap_or(0), &mut [0; 64]);
    }
    let _ = client.unasked();
}

/// Lines of a monitor.
pub fn qmp(bytes: &[u8]) {
    let (connection, _far) = connection(bytes).expect("a pair of sockets");
    let machine = Qmp::over(connection, &Endpoint::Unix("fuzz".into()))
        .and_then(|mut qmp| Machine::ask(&mut qmp));
    if let Err(error) = machine {
        assert!(!error.to_string().is_empty());
    }
}

/// Replies of a store: a first byte that says whether the rest is bytes as they come, or replies that
/// answer the right question, each a type and a piece.
pub fn xenstore(bytes: &[u8]) {
    let mut take = Take(bytes);
    let mut replies = Vec::new();
    if take.byte() & 1 == 0 {
        for request in 1..=64u32 {
            if take.0.is_empty() {
                break;
            }
            let kind = [1, 2, 2, 15, 16, 99][usize::from(take.byte()) % 6];
            let payload = take.piece();
            replies.extend(
                [kind, request, 0, payload.len() as u32]
                    .into_iter()
                    .flat_map(u32::to_le_bytes),
            );
            replies.extend(payload);
        }
    } else {
        replies.extend(take.rest());
    }
    let mut store = Xenstore::over(Script(io::Cursor::new(replies)));
    for _ in 0..8 {
        let name = store.read("/local/domain/0/name");
        let found = store.domain_by_name("guest");
        for error in [name.err(), found.err()].into_iter().flatten() {
            assert!(!error.to_string().contains(char::is_control), "{error}");
        }
        let _ = store.domain_uuid(7);
    }
}

/// Answers that were prepared, whatever is asked.
struct Script(io::Cursor<Vec<u8>>);

impl Read for Script {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
