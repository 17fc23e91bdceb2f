//! What processes have mapped: which file it was, and the file itself, for as long as the recording
//! goes on; where no file was, what the memory holds.
//!
//! Enters: events of address spaces, in order. Leaves: the same events with build-ids, inodes and
//! contents; tables of code that is in no file; in the end the files, opened, for whoever embeds
//! their symbols. A thread of its own does it: what it opens is other people's, may be slow or gone,
//! and neither the sampler nor the encoder waits for it.

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

/// Events under way at the most; further ones are written as the kernel told them.
const MOST_ASKED: usize = 1 << 16;
/// How long an event waits to be completed. What comes later is written once more.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the end of a recording waits for what is under way.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// The encoder's end of the thread.
#[derive(Debug)]
pub struct Images {
    /// `None` when all has been asked.
    asks: Option<SyncSender<Ask>>,
    answers: Receiver<Answer>,
    held: Receiver<Vec<HeldImage>>,
    /// What was asked and not yet answered: number, when, and what.
    waiting: VecDeque<(u64, Instant, ModuleEvent)>,
    next: u64,
}

/// An event and its number.
type Ask = (u64, ModuleEvent);

/// What the thread has to say.
#[derive(Debug)]
enum Answer {
    /// The event of that number, completed.
    Event(u64, ModuleEvent),
    /// A further event.
    More(ModuleEvent),
    /// A table.
    Part(Box<ImagePart>),
    /// So many functions have no names, for want of room.
    Lost(u64),
}

impl Images {
    /// Starts the thread; `None` where none can be made, and events stay as the kernel told them.
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

    /// Asks about an event. One that can't be asked about comes back.
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

    /// What has been answered, and what has waited too long for it. Doesn't wait.
    pub fn answer(&mut self) -> NamerAnswer {
        let mut told = NamerAnswer::default();
        while let Ok(answer) = self.answers.try_recv() {
            self.take(answer, &mut told);
        }
        self.give_up(PATIENCE, &mut told);
        told
    }

    /// Waits for all that is under way, but not for ever; then gives the files.
    pub fn finish(mut self) -> NamerAnswer {
        let mut told = NamerAnswer::default();
        self.asks = None;
        let deadline = Instant::now() + LAST_PATIENCE;
        let left = || deadline.saturating_duration_since(Instant::now());
        while let Ok(answer) = self.answers.recv_timeout(left()) {
            self.take(answer, &mut told);
        }
        self.give_up(Duration::ZERO, &mut told);
        told.held = self.held.recv_timeout(left()).unwrap_or_default();
        told
    }

    fn take(&mut self, answer: Answer, told: &mut NamerAnswer) {
        match answer {
            Answer::Event(number, event) => {
                // Answers come in order; of one that was given up on, this is the second telling.
                if self
                    .waiting
                    .front()
                    .is_some_and(|(first, ..)| *first == number)
                {
                    self.waiting.pop_front();
                }
                told.modules.push(event);
            }
            Answer::More(event) => told.modules.push(event),
            Answer::Part(part) => told.parts.push(*part),
            Answer::Lost(count) => told.lost += count,
        }
    }

    fn give_up(&mut self, patience: Duration, told: &mut NamerAnswer) {
        while let Some((_, since, _)) = self.waiting.front()
            && since.elapsed() >= patience
            && let Some((_, _, event)) = self.waiting.pop_front()
        {
            told.modules.push(event);
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
        let told = images.finish();
        let libc = |path: &str| path.contains("libc.so");
        let found = told.modules.iter().find_map(|event| match &event.what {
            ModuleChange::Mapped(mapping) if libc(&mapping.path) => Some(mapping),
            _ => None,
        });
        let found = found.expect("tests link libc");
        assert_eq!(found.build_id.len(), 20);
        assert_eq!(found.file.unwrap().contents, None);
        let kept = told.held.iter().filter(|held| libc(&held.path)).count();
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
        let mut told = NamerAnswer::default();
        images.give_up(Duration::ZERO, &mut told);
        assert_eq!(told.modules.len(), 3);
        // An answer that comes after all is told once more.
        answer.send(Answer::Event(1, event(7, mapping))).unwrap();
        assert_eq!(images.answer().modules.len(), 1);
        assert!(images.waiting.is_empty());
    }
}
