//! A line that can't be closed, between this end and a real agent in a simulated guest.

use super::super::client::Client;
use super::super::line::{Line, LineError};
use super::super::open;
use crate::source::plan::Plan;
use crate::source::ring::{Drain, Sink, ring_of};
use crate::source::slot::NoteKind;
use crate::source::{Hot, Life, Pushed};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uniprof_agent::{Agent, Gone, Guest, Io, Memory, Registers, Session, Step, Stream};
use uprof::cold::LossReason;

const WORDS: usize = Agent::<NoMemory>::words(2, 400, 16, 0);
const MILLISECOND_NS: u64 = 1_000_000;

struct NoMemory;

impl Memory for NoMemory {
    fn word(&self, _: u64) -> Option<u64> {
        None
    }
}

thread_local! {
    /// The guest's clock: each test has its own thread, and its own guest.
    static NOW_NS: Cell<u64> = const { Cell::new(1) };
}

/// A guest with `vcpus`, and the line to it.
struct Machine {
    agent: Agent<'static, NoMemory>,
    session: Session,
    wires: Wires,
}

#[derive(Default)]
struct Wires {
    to_agent: VecDeque<u8>,
    to_client: VecDeque<u8>,
}

impl Stream for Wires {
    fn read(&mut self, into: &mut [u8]) -> Io {
        let count = into.len().min(self.to_agent.len());
        into.iter_mut()
            .zip(self.to_agent.drain(..count))
            .for_each(|(place, byte)| *place = byte);
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, Gone> {
        self.to_client.extend(bytes);
        Ok(bytes.len())
    }
}

impl Machine {
    fn new(vcpus: u32) -> Self {
        let memory = (0..WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let guest = Guest {
            vcpus,
            clock: || NOW_NS.get(),
            clock_hz: 1_000_000_000,
            timer_hz: 1000,
            ..Guest::default()
        };
        Machine {
            agent: Agent::new(Vec::leak(memory), guest, NoMemory).unwrap(),
            session: Session::new(),
            wires: Wires::default(),
        }
    }

    /// Advances the guest by a millisecond.
    fn go_on(&mut self) {
        NOW_NS.set(NOW_NS.get() + MILLISECOND_NS);
        let registers = Registers {
            ip: 0x1000,
            ..Registers::default()
        };
        self.agent.sample(0, &registers);
        loop {
            match self.session.serve(&self.agent, &mut self.wires) {
                Step::Busy => {}
                Step::Idle => break,
                Step::Ended => self.session = Session::new(),
            }
        }
    }
}

/// Our end. While it waits, the guest advances.
struct Serial(Arc<Mutex<Machine>>);

impl Line for Serial {
    fn send_some(&mut self, bytes: &[u8]) -> Result<usize, LineError> {
        self.0.lock().unwrap().wires.to_agent.extend(bytes);
        Ok(bytes.len())
    }

    fn receive_some(&mut self, into: &mut [u8]) -> Result<Option<usize>, LineError> {
        let from = &mut self.0.lock().unwrap().wires.to_client;
        let count = into.len().min(from.len());
        into.iter_mut()
            .zip(from.drain(..count))
            .for_each(|(place, byte)| *place = byte);
        Ok((count > 0).then_some(count))
    }

    fn wait_to_receive(&mut self, _: u16) -> Result<(), LineError> {
        std::thread::sleep(Duration::from_millis(1));
        self.0.lock().unwrap().go_on();
        Ok(())
    }
}

/// A line on which all that the guest says is under way for longer than the time between two pings.
struct Far {
    near: Serial,
    under_way: VecDeque<(Instant, Vec<u8>)>,
}

impl Line for Far {
    fn send_some(&mut self, bytes: &[u8]) -> Result<usize, LineError> {
        self.near.send_some(bytes)
    }

    fn receive_some(&mut self, into: &mut [u8]) -> Result<Option<usize>, LineError> {
        let mut some = [0; 64];
        while let Some(count) = self.near.receive_some(&mut some)? {
            let bytes = some[..count].to_vec();
            self.under_way.push_back((Instant::now(), bytes));
        }
        let is_here = self.under_way.front().is_some_and(|(since, bytes)| {
            since.elapsed().as_millis() >= 350 && bytes.len() <= into.len()
        });
        let here = if is_here {
            self.under_way.pop_front()
        } else {
            None
        };
        Ok(here.map(|(_, bytes)| {
            into[..bytes.len()].copy_from_slice(&bytes);
            bytes.len()
        }))
    }

    fn wait_to_receive(&mut self, timeout_ms: u16) -> Result<(), LineError> {
        self.near.wait_to_receive(timeout_ms)
    }
}

/// A recorder that samples, and the machine that it samples.
struct Recording {
    machine: Arc<Mutex<Machine>>,
    source: Box<dyn Pushed>,
    sink: Sink,
    drain: Drain,
    samples: u64,
    missed: u64,
}

impl Recording {
    fn start() -> Self {
        let machine = Arc::new(Mutex::new(Machine::new(1)));
        let line = Box::new(Serial(machine.clone()));
        let (client, hello) = Client::attach(line, "line").unwrap();
        let source = open::source(client, hello, &[], &Plan::default()).unwrap();
        let Hot::Pushed(mut source) = source.hot else {
            panic!("the guest samples itself")
        };
        source.start().unwrap();
        let (sink, drain) = ring_of(64, 0);
        let (samples, missed) = (0, 0);
        Recording {
            machine,
            source,
            sink,
            drain,
            samples,
            missed,
        }
    }

    /// Advances by at most `milliseconds`, until `is_enough`.
    fn go_on(&mut self, milliseconds: u32, mut is_enough: impl FnMut(&Self) -> bool) -> Life {
        let mut life = Life::Alive;
        for _ in 0..milliseconds {
            life = self.source.drain(&mut self.sink).unwrap();
            self.sink.report_losses();
            while self.drain.sample(|_| ()).is_some() {
                self.samples += 1;
            }
            while let Some(()) = self.drain.note(|note| {
                if let NoteKind::Lost { reason, count, .. } = note.kind
                    && reason == LossReason::Deadline
                {
                    self.missed += count;
                }
            }) {}
            if is_enough(self) || life != Life::Alive {
                break;
            }
            self.source.wait(1).unwrap();
        }
        life
    }

    /// Holds us up for six seconds, but not the guest.
    fn is_held_up(&mut self) {
        let machine = &mut *self.machine.lock().unwrap();
        machine.go_on();
        NOW_NS.set(NOW_NS.get() + 6000 * MILLISECOND_NS);
        machine.go_on();
        assert!(!machine.agent.is_sampling(), "it samples for nobody");
    }
}

#[test]
fn an_agent_that_took_us_for_gone_is_attached_to_anew_and_what_was_missed_is_told() {
    let mut recording = Recording::start();
    recording.go_on(5000, |so_far| so_far.samples >= 20);
    assert_eq!(recording.missed, 0);
    recording.is_held_up();
    let before = recording.samples;
    let life = recording.go_on(10_000, |so_far| so_far.samples >= before + 20);
    assert_eq!(life, Life::Alive);
    assert!(recording.samples >= before + 20);
    let totals = recording.source.totals();
    assert!(totals.contains(&("attached_anew".into(), 1)), "{totals:?}");
    // Three seconds of pings at 99 Hz.
    assert!(recording.missed > 200, "{}", recording.missed);
    let wrong = totals.iter().find(|(name, _)| name.starts_with("times"));
    assert_eq!(wrong, None, "{totals:?}");
}

#[test]
fn another_guest_that_answers_on_the_line_ends_the_recording() {
    let mut recording = Recording::start();
    recording.go_on(5000, |so_far| so_far.samples >= 5);
    let other = Machine::new(2);
    *recording.machine.lock().unwrap() = other;
    let life = recording.go_on(10_000, |_| false);
    assert_eq!(
        life,
        Life::Ended("another guest answers where it was".into())
    );
}

#[test]
fn answers_that_take_longer_than_the_time_between_pings_are_used() {
    let near = Serial(Arc::new(Mutex::new(Machine::new(1))));
    let under_way = VecDeque::new();
    let (client, hello) = Client::attach(Box::new(Far { near, under_way }), "line").unwrap();
    let source = open::source(client, hello, &[], &Plan::default()).unwrap();
    let (Hot::Pushed(mut hot), Some(mut observer)) = (source.hot, source.observer) else {
        panic!("the guest samples itself, and has a clock")
    };
    hot.start().unwrap();
    let (mut sink, mut drain) = ring_of(64, 0);
    // Those of the start.
    observer.look(0);
    let (begun, mut pairs) = (Instant::now(), 0);
    while pairs == 0 && begun.elapsed().as_secs() < 10 {
        hot.drain(&mut sink).unwrap();
        while drain.sample(|_| ()).is_some() {}
        hot.wait(1).unwrap();
        pairs += observer.look(0).clocks.len();
    }
    assert!(pairs > 0);
}
