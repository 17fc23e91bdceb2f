//! A guest with the agent, in a thread: two vCPUs that stay at the same address for ever. The agent is the
//! real one, so that agent and recorder are tested against docs/agent-protocol.md together. The guest is a
//! fake.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uniprof_agent::{Agent, Gone, Guest, Io, Memory, Registers, Session, Step, Stream};

const WORDS: usize = Agent::<Frames>::words(2, 400, 16, 4096);

/// Memory with four frames from any address that is a multiple of 64.
struct Frames;

impl Memory for Frames {
    fn word(&self, address: u64) -> Option<u64> {
        let frame = address / 16 % 4;
        Some(match (address.is_multiple_of(16), frame) {
            (true, 3) => 0,
            (true, _) => address + 16,
            (false, _) => 0x2000 + frame,
        })
    }
}

struct Connection(UnixStream);

fn io(result: std::io::Result<usize>, is_read: bool) -> Io {
    match result {
        Ok(0) if is_read => Err(Gone),
        Ok(count) => Ok(count),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Err(_) => Err(Gone),
    }
}

impl Stream for Connection {
    fn read(&mut self, into: &mut [u8]) -> Io {
        io(self.0.read(into), true)
    }

    fn write(&mut self, bytes: &[u8]) -> Io {
        io(self.0.write(bytes), false)
    }
}

/// Nanoseconds since an arbitrary moment.
fn clock() -> u64 {
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 1_000_000
}

/// Starts the guest in `folder`; it runs until `has_ended` is set. Returns the path of its socket.
pub fn start(folder: &Path, has_ended: &Arc<AtomicBool>) -> PathBuf {
    let path = folder.join("agent");
    let listener = UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let has_ended = Arc::clone(has_ended);
    std::thread::spawn(move || {
        let memory: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let guest = Guest {
            name: "fake",
            vcpus: 2,
            clock,
            cycles_hz: 2_000_000_000,
            timer_hz: 1000,
            ..Guest::default()
        };
        let agent = Agent::new(&memory, guest, Frames).unwrap();
        let mut client: Option<(Session, Connection)> = None;
        let registers = Registers {
            ip: 0x1000,
            sp: 0x8000,
            fp: 0x8000,
            ..Registers::default()
        };
        while !has_ended.load(Ordering::SeqCst) {
            for vcpu in 0..2 {
                agent.sample(vcpu, &registers);
            }
            if client.is_none()
                && let Ok((stream, _)) = listener.accept()
            {
                stream.set_nonblocking(true).unwrap();
                client = Some((Session::new(), Connection(stream)));
            }
            let mut step = Step::Busy;
            while let (Step::Busy, Some((session, connection))) = (step, &mut client) {
                step = session.serve(&agent, connection);
            }
            if step == Step::Ended {
                client = None;
            }
            std::thread::sleep(Duration::from_micros(700));
        }
    });
    path
}
