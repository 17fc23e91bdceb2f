//! Identifies what processes have mapped, and keeps the files open during the recording; where there is no file,
//! keeps the contents of the memory.
//!
//! Input: events of address spaces, in order. Output: the same events with build-ids, inodes and contents; tables of
//! code that is in no file; at the end the opened files, whose symbols can be embedded. This has a thread of its own,
//! since foreign files may be slow or missing, and neither the sampler nor the encoder may wait for them.

mod roots;
mod identity;
mod vdso;
pub mod functions;
pub mod jitdump;
pub mod perf_map;
mod runtime;
mod keeper;

use crate::source::{HeldImage, NamerAnswer};
use keeper::Keeper;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};
use uprof::ImagePart;
use uprof::cold::{ClockPair, ModuleEvent};

/// Most outstanding events; further ones are written as the kernel reported them.
const MOST_ASKED: usize = 1 << 16;
/// How long an event waits to be completed. If it is completed later, it is written again.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the end of a recording waits for outstanding events.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// The encoder's end of the thread.
#[derive(Debug)]
pub struct Images {
    /// `None` after the last request.
    asks: Option<SyncSender<Ask>>,
    answers: Receiver<Answer>,
    held: Receiver<Vec<HeldImage>>,
    /// Outstanding events: number, time of the request, event.
    waiting: VecDeque<(u64, Instant, ModuleEvent)>,
    next: u64,
}

/// An event and its number.
type Ask = (u64, ModuleEvent);

/// A result of the thread.
#[derive(Debug)]
enum Answer {
    /// The event of that number, completed.
    Event(u64, ModuleEvent),
    /// A further event.
    More(ModuleEvent),
    /// A table.
    Part(Box<ImagePart>),
    /// So many functions have no names for lack of room.
    Lost(u64),
}

impl Images {
    /// Starts the thread; `None` if that fails, and events stay as the kernel reported them.
    pub fn start(clock: ClockPair) -> Option<Images> {
        let (asks, asked) = sync_channel(MOST_ASKED);
        let (answer, answers) = channel();
        let (hold, held) = channel();
        let work = move || {
            let mut keeper = Keeper::new(clock, answer);
            keeper.work(&asked);
            let _ = hold.send(keeper.held());
        };
        let thread = std::thread::Builder::new().name("uniprof-images".into());
        thread.spawn(work).ok()?;
        Some(Images {
            asks: Some(asks),
            answers,
            held,
            waiting: VecDeque::new(),
            next: 0,
        })
    }

    /// Requests the completion of an event, or returns the event if that is not possible.
    pub fn ask(&mut self, event: ModuleEvent) -> Option<ModuleEvent> {
        let Some(asks) = &self.asks else {
            return Some(event);
        };
        if self.waiting.len() >= MOST_ASKED || asks.try_send((self.next, event.clone())).is_err() {
            return Some(event);
        }
        self.waiting.push_back((self.next, Instant::now(), event));
        self.next += 1;
        None
    }

    /// Takes the completed events, and those that have waited too long. Doesn't wait.
    pub fn answer(&mut self) -> NamerAnswer {
        let mut all = NamerAnswer::default();
        while let Ok(answer) = self.answers.try_recv() {
            self.take(answer, &mut all);
        }
        self.give_up(PATIENCE, &mut all);
        all
    }

    /// Waits for outstanding events, for a limited time; then returns the files, too.
    pub fn finish(mut self) -> NamerAnswer {
        let mut all = NamerAnswer::default();
        self.asks = None;
        let deadline = Instant::now() + LAST_PATIENCE;
        let left = || deadline.saturating_duration_since(Instant::now());
        while let Ok(answer) = self.answers.recv_timeout(left()) {
            self.take(answer, &mut all);
        }
        self.give_up(Duration::ZERO, &mut all);
        all.held = self.held.recv_timeout(left()).unwrap_or_default();
        all
    }

    fn take(&mut self, answer: Answer, all: &mut NamerAnswer) {
        match answer {
            Answer::Event(number, event) => {
                // Answers come in order; an event that was given up is written a second time.
                if self
                    .waiting
                    .front()
                    .is_some_and(|(first, ..)| *first == number)
                {
                    self.waiting.pop_front();
                }
                all.modules.push(event);
            }
            Answer::More(event) => all.modules.push(event),
            Answer::Part(part) => all.parts.push(*part),
            Answer::Lost(count) => all.lost += count,
        }
    }

    fn give_up(&mut self, patience: Duration, all: &mut NamerAnswer) {
        while let Some((_, since, _)) = self.waiting.front()
            && since.elapsed() >= patience
            && let Some((_, _, event)) = self.waiting.pop_front()
        {
            all.modules.push(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::maps;
    use uprof::cold::{Mapping, ModuleChange};

    fn event(space: u32, mapping: Mapping) -> ModuleEvent {
        ModuleEvent {
            time_ns: 1,
            space,
            what: ModuleChange::Mapped(mapping),
        }
    }

    #[test]
    fn our_own_mappings_get_build_ids_and_are_held() {
        let mut images = Images::start(ClockPair::default()).unwrap();
        let own = std::process::id();
        for mapping in maps::executable(own as i32) {
            assert_eq!(images.ask(event(own, mapping)), None);
        }
        let all = images.finish();
        let libc = |path: &str| path.contains("libc.so");
        let found = all.modules.iter().find_map(|event| match &event.what {
            ModuleChange::Mapped(mapping) if libc(&mapping.path) => Some(mapping),
            _ => None,
        });
        let found = found.expect("tests link libc");
        assert_eq!(found.build_id.len(), 20);
        assert_eq!(found.file.unwrap().contents, None);
        let kept = all.held.iter().filter(|held| libc(&held.path)).count();
        assert_eq!(kept, 1);
    }

    #[test]
    fn who_waits_too_long_gets_what_the_kernel_told() {
        let (asks, _asked) = sync_channel(4);
        let (answer, answers) = channel();
        let (_hold, held) = channel();
        let mut images = Images {
            asks: Some(asks),
            answers,
            held,
            waiting: VecDeque::new(),
            next: 0,
        };
        let mapping = Mapping {
            path: "/a".into(),
            ..Mapping::default()
        };
        for _ in 0..4 {
            assert_eq!(images.ask(event(7, mapping.clone())), None);
        }
        assert!(images.ask(event(7, mapping.clone())).is_some(), "all asked");
        answer
            .send(Answer::Event(0, event(7, mapping.clone())))
            .unwrap();
        assert_eq!(images.answer().modules.len(), 1);
        let mut all = NamerAnswer::default();
        images.give_up(Duration::ZERO, &mut all);
        assert_eq!(all.modules.len(), 3);
        // An answer that comes after all is told once more.
        answer.send(Answer::Event(1, event(7, mapping))).unwrap();
        assert_eq!(images.answer().modules.len(), 1);
        assert!(images.waiting.is_empty());
    }
}
