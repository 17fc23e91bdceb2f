//! Both sides of docs/agent-protocol.md: what an agent sends to the recorder, and what a client sends to the agent.

use crate::take::{Take, put_piece};
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use uniprof_agent::{Agent, Gone, Guest, Io, Memory, Registers, Session, Step, Stream};
use uniprof_record::agent::frame::{Decoder, MOST_PAYLOAD_BYTES, frame};
use uniprof_record::agent::intake::Intake;
use uniprof_record::agent::message::{self, Hello, SampleRecord};
use uniprof_record::ring::ring;

/// Pieces, each a kind and a payload, framed; of some the frame is damaged.
fn framed(bytes: &[u8]) -> Vec<u8> {
    let (mut take, mut all) = (Take(bytes), Vec::new());
    while !take.0.is_empty() {
        let kind = take.byte();
        let payload = take.piece();
        let mut bytes = vec![0; payload.len() + 12];
        let length = frame(kind, payload, &mut bytes);
        if kind & 7 == 7 {
            bytes[usize::from(kind) % length] ^= kind;
        }
        all.extend(bytes);
    }
    all
}

/// What an agent sends: as it is, and framed.
pub fn sent(bytes: &[u8]) {
    for stream in [bytes.to_vec(), framed(bytes)] {
        let (mut sink, mut drain) = ring(4096, 1, 99.0, true);
        let mut decoder = Decoder::new();
        let mut intake: Option<Intake> = None;
        for (now, piece) in stream.chunks(997).enumerate() {
            let room = decoder.room();
            assert!(room.len() >= piece.len(), "no room, and no frame");
            room[..piece.len()].copy_from_slice(piece);
            decoder.grow(piece.len());
            let now_ns = now as u64 * 1_000_000;
            while let Some((kind, payload)) = decoder.next_frame() {
                assert!(payload.len() <= MOST_PAYLOAD_BYTES);
                if let Ok(hello) = Hello::read(payload) {
                    assert!(!hello.name.contains(char::is_control));
                    assert!((1..=message::MOST_VCPUS).contains(&hello.vcpus));
                    if intake.is_none() {
                        let intake = intake.insert(Intake::new(&hello, 99.0, true));
                        intake.start(0);
                    }
                }
                if let Some(sample) = SampleRecord::read(payload) {
                    assert!(sample.callers().count() * 8 + sample.stack.len() <= payload.len());
                }
                let Some(intake) = &mut intake else { continue };
                match (kind, message::pair(payload)) {
                    (message::LOSSES, _) => intake.losses(payload, now_ns, &mut sink),
                    (message::CLOCK, Some((_, ticks))) => {
                        let _ = intake.clock.answer(now_ns, now_ns + 1000, ticks);
                    }
                    _ => intake.sample(payload, now_ns, &mut sink),
                }
                while drain
                    .sample(|slot| assert!(slot.time_ns < 1 << 62))
                    .is_some()
                {}
            }
            if decoder.gives_up() {
                break;
            }
        }
    }
}

/// Stacks that lead anywhere.
struct Anywhere;

impl Memory for Anywhere {
    fn word(&self, address: u64) -> Option<u64> {
        (!address.is_multiple_of(3)).then(|| address.wrapping_mul(0x9e37_79b9_7f4a_7c15) & !7)
    }
}

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// What a client says, and how much the stream takes and gives each time.
struct Client<'b> {
    said: &'b [u8],
    heard: Vec<u8>,
    turn: usize,
}

impl Stream for Client<'_> {
    fn read(&mut self, into: &mut [u8]) -> Io {
        if self.said.is_empty() {
            return Err(Gone);
        }
        let count = into.len().min(self.said.len()).min(11);
        into[..count].copy_from_slice(&self.said[..count]);
        self.said = &self.said[count..];
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> Io {
        self.turn += 37;
        let count = bytes.len().min(self.turn % 300);
        self.heard.extend(&bytes[..count]);
        Ok(count)
    }
}

/// What a client sends to an agent: as it is, and framed. What it hears are sound frames, whatever it says.
pub fn asked(bytes: &[u8]) {
    for said in [bytes.to_vec(), framed(bytes)] {
        let memory: Vec<AtomicU64> = (0..2 * 1024).map(|_| AtomicU64::new(0)).collect();
        let clock = || NOW.with(Cell::get);
        let guest = Guest {
            vcpus: 2,
            clock,
            ..Guest::default()
        };
        let agent = Agent::new(&memory, guest, Anywhere).expect("memory for two vCPUs");
        let mut session = Session::new();
        let mut client = Client {
            said: &said,
            heard: Vec::new(),
            turn: 0,
        };
        loop {
            NOW.with(|now| now.set(now.get() + 100_000));
            for vcpu in 0..3 {
                let word = client.said.first().map_or(0, |&byte| u64::from(byte) << 3);
                agent.sample(
                    vcpu,
                    &Registers {
                        ip: word,
                        sp: word + 5,
                        fp: word,
                        ..Registers::default()
                    },
                );
            }
            if session.serve(&agent, &mut client) == Step::Ended {
                break;
            }
        }
        assert!(!agent.is_sampling(), "it samples for nobody");
        let mut decoder = Decoder::new();
        for piece in client.heard.chunks(1000) {
            decoder.room()[..piece.len()].copy_from_slice(piece);
            decoder.grow(piece.len());
            while decoder.next_frame().is_some() {}
        }
        assert_eq!((decoder.damaged, decoder.garbage_bytes), (0, 0));
    }
}

/// Conversations to begin with: pieces as [`framed`] takes them.
pub fn seeds() -> Vec<Vec<u8>> {
    let piece = |kind: u8, payload: &[u8]| {
        let mut piece = vec![kind];
        put_piece(&mut piece, payload);
        piece
    };
    let mut hello = vec![0; 109];
    hello[8] = 1;
    hello[11] = 20;
    hello[12] = 2;
    hello[19] = 1;
    hello[68] = 5;
    let mut sample = vec![0; 64 + 16];
    sample[8] = 9;
    sample[10] = 1;
    sample[14] = 1;
    let from_agent = [
        piece(message::HELLO, &hello),
        piece(message::CLOCK, &[0; 16]),
        piece(message::STATE, &[0; 24]),
        piece(message::SAMPLE, &sample),
        piece(message::LOSSES, &[1; 16]),
    ];
    let mut attach = [0; 16];
    attach[0] = 1;
    let start = [0x40, 0x42, 0xf, 0, 0, 0, 0, 0, 30, 0, 0, 0, 128, 0, 0, 0];
    let from_client = [
        piece(message::ATTACH, &attach),
        piece(message::PING, &[7; 8]),
        piece(message::START, &start),
        piece(message::PING, &[8; 8]),
        piece(message::PING, &[9; 8]),
        piece(message::STOP, &[]),
        piece(message::PING, &[9; 8]),
        piece(message::DETACH, &[]),
    ];
    vec![from_agent.concat(), from_client.concat()]
}
