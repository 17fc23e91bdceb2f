//! The agent's side of docs/agent-protocol.md, by a client that is written from that page alone.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use uniprof_agent::{Agent, Gone, Guest, Io, Memory, Registers, Session, Step, Stream};

/// The guest's clock: a second has a million ticks, and time passes when the test says so.
static NOW: AtomicU64 = AtomicU64::new(0);
const HZ: u64 = 1_000_000;

/// Tests that move the clock take turns.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn turn() -> std::sync::MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn clock() -> u64 {
    NOW.load(Ordering::Relaxed)
}

/// A stack of frames, each 16 bytes above the one before; the last one ends the chain.
struct Frames(u64);

const BASE: u64 = 0x10_0000;

impl Memory for Frames {
    fn word(&self, address: u64) -> Option<u64> {
        let at = address.checked_sub(BASE)? / 8;
        let (frame, is_caller) = (at / 2, at % 2 == 1);
        match frame.cmp(&self.0) {
            std::cmp::Ordering::Less if is_caller => Some(0x4000 + frame),
            std::cmp::Ordering::Less => Some(BASE + 16 * (frame + 1)),
            std::cmp::Ordering::Equal => Some(0),
            std::cmp::Ordering::Greater => None,
        }
    }
}

/// Both ends of a stream, of which each call moves no more than so many bytes.
#[derive(Default)]
struct Pipe {
    asked: VecDeque<u8>,
    answered: Vec<u8>,
    piece: usize,
    room: usize,
    is_closed: bool,
}

impl Pipe {
    fn new(piece: usize) -> Self {
        Pipe {
            piece,
            room: usize::MAX,
            ..Pipe::default()
        }
    }

    fn say(&mut self, kind: u8, payload: &[u8]) {
        self.asked.extend(frame(kind, payload));
    }
}

impl Stream for Pipe {
    fn read(&mut self, into: &mut [u8]) -> Io {
        if self.is_closed && self.asked.is_empty() {
            return Err(Gone);
        }
        let count = into.len().min(self.piece).min(self.asked.len());
        into.iter_mut()
            .zip(self.asked.drain(..count))
            .for_each(|(to, from)| *to = from);
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> Io {
        let count = bytes.len().min(self.piece).min(self.room);
        self.room -= count;
        self.answered.extend(&bytes[..count]);
        Ok(count)
    }
}

/// Bit by bit, as RFC 3720 has it.
fn crc(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = sum >> 1 ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !sum
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![b'u', b'A', kind, 0];
    frame.extend((payload.len() as u32).to_le_bytes());
    let sum = crc(&[&frame[..], payload].concat());
    frame.extend(sum.to_le_bytes());
    frame.extend(payload);
    frame
}

/// All frames of `bytes`, which has nothing else; an unfinished one at the end is left out.
fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut found = Vec::new();
    while bytes.len() >= 12 {
        let length = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
        let Some(payload) = bytes.get(12..12 + length) else {
            break;
        };
        assert_eq!(frame(bytes[2], payload), bytes[..12 + length]);
        found.push((bytes[2], payload.to_vec()));
        bytes = &bytes[12 + length..];
    }
    found
}

fn word(payload: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(payload[at..at + 8].try_into().unwrap())
}

fn attach(nonce: u64) -> Vec<u8> {
    [&[1, 0, 0, 0, 0, 0, 0, 0][..], &nonce.to_le_bytes()].concat()
}

fn start(period_ns: u64, frames: u32, stack_bytes: u32) -> Vec<u8> {
    [
        &period_ns.to_le_bytes()[..],
        &frames.to_le_bytes(),
        &stack_bytes.to_le_bytes(),
    ]
    .concat()
}

fn guest(vcpus: u32) -> Guest<'static> {
    Guest {
        name: "the guest",
        build_id: &[0xab; 20],
        code: 0x4000..0x9000,
        code_offset: 0x1000,
        vcpus,
        clock,
        clock_hz: HZ,
        cycles_hz: 3_000_000_000,
        timer_hz: 1000,
    }
}

fn memory(words: usize) -> &'static [AtomicU64] {
    (0..words)
        .map(|_| AtomicU64::new(0))
        .collect::<Vec<_>>()
        .leak()
}

fn agent(vcpus: u32, words: usize, depth: u64) -> Agent<'static, Frames> {
    Agent::new(memory(words), guest(vcpus), Frames(depth)).unwrap()
}

/// As often as there is something to do.
fn serve(session: &mut Session, agent: &Agent<'_, Frames>, pipe: &mut Pipe) -> Step {
    for _ in 0..100_000 {
        match session.serve(agent, pipe) {
            Step::Busy => {}
            step => return step,
        }
    }
    panic!("it never rests");
}

/// The next tick of the timer on all vCPUs; returns how many samples were taken.
fn tick(agent: &Agent<'_, Frames>, vcpus: u32) -> u64 {
    NOW.fetch_add(HZ / 1000, Ordering::Relaxed);
    let registers = Registers {
        ip: 0x4321,
        sp: BASE + 3,
        fp: BASE,
        ..Registers::default()
    };
    (0..vcpus)
        .map(|vcpu| u64::from(agent.sample(vcpu, &registers)))
        .sum()
}

#[test]
fn a_conversation_in_pieces_of_any_size() {
    let _turn = turn();
    for piece in [1, 7, 64, 5000] {
        let agent = agent(2, 2 * 4096, 5);
        let (mut session, mut pipe) = (Session::new(), Pipe::new(piece));
        assert_eq!((0..10).map(|_| tick(&agent, 2)).sum::<u64>(), 0);
        pipe.say(1, &attach(77));
        pipe.say(4, &[9; 8]);
        pipe.say(2, &start(1_000_000, 3, 20));
        assert_eq!(serve(&mut session, &agent, &mut pipe), Step::Idle);
        let taken: u64 = (0..20).map(|_| tick(&agent, 2)).sum();
        assert!(taken >= 30, "{taken}");
        pipe.say(3, &[]);
        serve(&mut session, &agent, &mut pipe);
        assert!(!agent.is_sampling() && tick(&agent, 2) == 0);
        let answers = frames(&pipe.answered);
        let kinds: Vec<u8> = answers.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds[..3], [0x81, 0x86, 0x83], "hello, clock, state");
        assert_eq!(kinds.last(), Some(&0x83));
        let hello = &answers[0].1;
        assert_eq!(
            (word(hello, 0), hello[8], hello[11], hello[12]),
            (77, 1, 20, 2)
        );
        assert_eq!([word(hello, 16), word(hello, 24)], [HZ, 3_000_000_000]);
        assert_eq!(
            [word(hello, 32), word(hello, 40), word(hello, 48)],
            [0x4000, 0x5000, 0x1000]
        );
        assert_eq!(
            (&hello[72..92], &hello[104..]),
            (&[0xab; 20][..], &b"the guest"[..])
        );
        assert_eq!(word(&answers[1].1, 0), 0x0909_0909_0909_0909);
        let samples: Vec<_> = answers.iter().filter(|(kind, _)| *kind == 0x84).collect();
        assert_eq!(samples.len() as u64, taken);
        for (_, sample) in samples {
            // 7 words, 3 callers, 3 words of stack from the word that has the stack pointer.
            assert_eq!(
                (sample.len(), sample[8], sample[10], sample[14]),
                (8 + 8 * 13, 13, 3, 3)
            );
            assert_eq!((sample[12], sample[13]), (2, 0), "depth, running");
            assert_eq!(
                [word(sample, 24), word(sample, 32), word(sample, 40)],
                [0x4321, BASE + 3, BASE]
            );
            assert_eq!(
                [64, 72, 80].map(|at| word(sample, at)),
                [0x4000, 0x4001, 0x4002]
            );
            assert_eq!(
                [88, 96, 104].map(|at| word(sample, at)),
                [BASE + 16, 0x4000, BASE + 32]
            );
        }
        pipe.say(5, &[]);
        assert_eq!(serve(&mut session, &agent, &mut pipe), Step::Ended);
    }
}

#[test]
fn the_second_client_is_told_and_the_next_one_is_served() {
    let _turn = turn();
    let agent = agent(1, 4096, 5);
    let (mut first, mut second) = (Session::new(), Session::new());
    let (mut one, mut other) = (Pipe::new(100), Pipe::new(100));
    one.say(1, &attach(1));
    one.say(2, &start(1, 8, 0));
    serve(&mut first, &agent, &mut one);
    other.say(1, &attach(2));
    assert_eq!(serve(&mut second, &agent, &mut other), Step::Ended);
    assert_eq!(frames(&other.answered), [(0x82, Vec::new())]);
    assert!(agent.is_sampling());
    one.is_closed = true;
    assert_eq!(serve(&mut first, &agent, &mut one), Step::Ended);
    assert!(!agent.is_sampling());
    let mut again = Pipe::new(100);
    again.say(1, &attach(3));
    serve(&mut second, &agent, &mut again);
    assert_eq!(frames(&again.answered)[0].0, 0x81);
}

#[test]
fn a_client_that_says_nothing_or_nonsense_is_gone_after_five_seconds() {
    let _turn = turn();
    let agent = agent(1, 4096, 5);
    for noise in [&b""[..], b"uA\x04\0\x08\0\0\0", &[0; 40]] {
        let (mut session, mut pipe) = (Session::new(), Pipe::new(100));
        pipe.say(1, &attach(1));
        pipe.say(2, &start(1, 8, 0));
        serve(&mut session, &agent, &mut pipe);
        for _ in 0..4990 {
            tick(&agent, 1);
            pipe.asked.extend(noise);
            serve(&mut session, &agent, &mut pipe);
        }
        assert!(agent.is_sampling());
        NOW.fetch_add(HZ, Ordering::Relaxed);
        assert_eq!(serve(&mut session, &agent, &mut pipe), Step::Ended);
        assert!(!agent.is_sampling());
    }
    let (mut session, mut pipe) = (Session::new(), Pipe::new(100));
    serve(&mut session, &agent, &mut pipe);
    NOW.fetch_add(6 * HZ, Ordering::Relaxed);
    assert_eq!(
        serve(&mut session, &agent, &mut pipe),
        Step::Ended,
        "it never attached"
    );
}

#[test]
fn a_client_that_reads_nothing_costs_samples_which_are_counted() {
    let _turn = turn();
    let agent = agent(1, 512, 5);
    let (mut session, mut pipe) = (Session::new(), Pipe::new(5000));
    pipe.say(1, &attach(1));
    pipe.say(2, &start(1, 8, 64));
    serve(&mut session, &agent, &mut pipe);
    pipe.room = 100;
    let taken: u64 = (0..1000)
        .map(|_| {
            serve(&mut session, &agent, &mut pipe);
            tick(&agent, 1)
        })
        .sum();
    assert!((10..100).contains(&taken), "{taken}");
    pipe.room = usize::MAX;
    pipe.say(3, &[]);
    serve(&mut session, &agent, &mut pipe);
    let answers = frames(&pipe.answered);
    let samples = answers.iter().filter(|(kind, _)| *kind == 0x84).count() as u64;
    let losses = answers.iter().filter(|(kind, _)| *kind == 0x85);
    let lost: u64 = losses.map(|(_, payload)| word(payload, 8)).sum();
    assert_eq!(samples, taken);
    assert!(
        (998..=1000).contains(&(samples + lost)),
        "{samples} and {lost} lost"
    );
}

/// On a line that can't be closed, the next client finds what was left of the one before.
#[test]
fn a_client_that_attaches_again_starts_anew() {
    let _turn = turn();
    let agent = agent(1, 4096, 5);
    let (mut session, mut pipe) = (Session::new(), Pipe::new(33));
    for nonce in 1..200u64 {
        // The one before left in the middle of a message, or of what it was told.
        pipe.asked.extend(&frame(4, &[1; 8])[..nonce as usize % 20]);
        pipe.say(1, &attach(nonce));
        pipe.say(2, &start(1, 8, 0));
        pipe.room = usize::MAX;
        serve(&mut session, &agent, &mut pipe);
        let mut answered = &pipe.answered[..];
        let hello = frame(0x81, b"")[..3].to_vec();
        while !(answered.starts_with(&hello) && word(answered, 12) == nonce) {
            assert!(!answered.is_empty(), "no hello for {nonce}");
            answered = &answered[1..];
        }
        assert!(agent.is_sampling() && frames(answered)[1].0 == 0x83);
        pipe.answered.clear();
        tick(&agent, 1);
        pipe.room = nonce as usize % 50;
        serve(&mut session, &agent, &mut pipe);
    }
}

#[test]
fn pings_are_answered_however_many_samples_there_are() {
    let _turn = turn();
    let agent = agent(4, 4 * 8192, 200);
    let (mut session, mut pipe) = (Session::new(), Pipe::new(700));
    pipe.say(1, &attach(1));
    pipe.say(2, &start(1, 256, 4096));
    serve(&mut session, &agent, &mut pipe);
    for number in 1..50u64 {
        for _ in 0..20 {
            tick(&agent, 4);
        }
        pipe.answered.clear();
        pipe.say(4, &number.to_le_bytes());
        let mut calls = 0;
        while !frames_anywhere(&pipe.answered, 0x86) {
            session.serve(&agent, &mut pipe);
            calls += 1;
            assert!(calls < 20, "ping {number} is not answered");
        }
    }
}

fn frames_anywhere(bytes: &[u8], kind: u8) -> bool {
    bytes
        .windows(8)
        .any(|bytes| bytes == [b'u', b'A', kind, 0, 16, 0, 0, 0])
}
