//! Identifies the files that processes have mapped, and keeps them open during the recording. If there is no file, it
//! keeps the contents of the memory.
//!
//! Input: events of address spaces, in order. Output: the same events with build-ids, inodes and contents; tables of
//! code that is in no file; at the end the opened files, whose symbols can be embedded. The work has a thread of its
//! own, since foreign files may be slow or missing, and neither the sampler nor the encoder may wait for them.

mod roots;
mod progress;
mod identity;
mod vdso;
pub mod functions;
pub mod jitdump;
pub mod perf_map;
mod runtime;
mod keeper;

use crate::source::{HeldImage, NamerAnswer};
use keeper::Keeper;
use progress::{Progress, Watch};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use uprof::ImagePart;
use uprof::cold::{ClockPair, ModuleChange, ModuleEvent};

/// Most outstanding events; further ones are written as the kernel reported them.
const MOST_ASKED: usize = 1 << 16;
/// How long an event waits to be completed while no file can be read. If it is completed later, it is written again.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an event waits while files are read, and how long the end of a recording waits while none can be.
const MOST_PATIENCE: Duration = Duration::from_secs(10);
/// How long the end of a recording waits in all: files may be read without end.
const END_PATIENCE: Duration = Duration::from_secs(60);
/// How often the end of a recording checks whether files are being read.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The encoder's end of the thread.
#[derive(Debug)]
pub struct Images {
    /// `None` after the last request.
    asks: Option<Sender<Ask>>,
    answers: Receiver<Answer>,
    /// Outstanding events: number, time of the request, event.
    waiting: VecDeque<(u64, Instant, ModuleEvent)>,
    next: u64,
    progress: Progress,
    /// Requests before this one are answered; later ones take memory until the thread handles them.
    answered: u64,
    watch: Watch,
}

/// An event and its number.
type Ask = (u64, ModuleEvent);

/// A result of the thread.
#[derive(Debug)]
enum Answer {
    /// The event with that number, completed, in parts; empty if it changes nothing.
    Events(u64, Vec<ModuleEvent>),
    /// A further event.
    More(ModuleEvent),
    /// A table.
    Part(Box<ImagePart>),
    /// Number of functions that have no names for lack of room.
    Lost(u64),
    /// The last answer: the opened files.
    Held(Vec<HeldImage>),
}

impl Images {
    /// Starts the thread; `None` if that fails, and events stay as the kernel reported them.
    pub fn start(clock: ClockPair) -> Option<Images> {
        let (asks, asked) = channel();
        let (answer, answers) = channel();
        let progress = Progress::default();
        let steps = progress.clone();
        let work = move || {
            let mut keeper = Keeper::new(clock, answer, steps);
            keeper.work(&asked);
            keeper.finish();
        };
        let thread = std::thread::Builder::new().name("uniprof-images".into());
        thread.spawn(work).ok()?;
        Some(Images::new(asks, answers, progress))
    }

    fn new(asks: Sender<Ask>, answers: Receiver<Answer>, progress: Progress) -> Images {
        Images {
            asks: Some(asks),
            answers,
            waiting: VecDeque::new(),
            next: 0,
            watch: progress.watch(),
            progress,
            answered: 0,
        }
    }

    /// Requests the completion of an event; returns the event itself if that is not possible.
    pub fn ask(&mut self, event: ModuleEvent) -> Option<ModuleEvent> {
        let Some(asks) = &self.asks else {
            return Some(event);
        };
        let is_full = self.next - self.answered >= MOST_ASKED as u64;
        if is_full || asks.send((self.next, event.clone())).is_err() {
            return Some(event).filter(is_of_use);
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
        let patience = if self.watch.is_stuck(PATIENCE) {
            PATIENCE
        } else {
            MOST_PATIENCE
        };
        self.give_up(patience, &mut all);
        all
    }

    /// Waits for outstanding events while the thread makes progress, up to a limit; then returns the files, too.
    pub fn finish(self) -> NamerAnswer {
        self.finish_within(END_PATIENCE)
    }

    fn finish_within(mut self, patience: Duration) -> NamerAnswer {
        let mut all = NamerAnswer::default();
        self.asks = None;
        let mut watch = self.progress.watch();
        let begun = Instant::now();
        while begun.elapsed() < patience {
            match self.answers.recv_timeout(LOOK_EVERY) {
                Ok(answer) => self.take(answer, &mut all),
                Err(RecvTimeoutError::Timeout) if !watch.is_stuck(MOST_PATIENCE) => {}
                Err(_) => break,
            }
        }
        self.give_up(Duration::ZERO, &mut all);
        all
    }

    fn take(&mut self, answer: Answer, all: &mut NamerAnswer) {
        match answer {
            Answer::Events(number, events) => {
                self.answered = number + 1;
                // Answers come in order; an event that was given up is written a second time.
                if self
                    .waiting
                    .front()
                    .is_some_and(|(first, ..)| *first == number)
                {
                    self.waiting.pop_front();
                }
                all.modules.extend(events);
            }
            Answer::More(event) => all.modules.push(event),
            Answer::Part(part) => all.parts.push(*part),
            Answer::Lost(count) => all.lost += count,
            Answer::Held(held) => all.held = held,
        }
    }

    fn give_up(&mut self, patience: Duration, all: &mut NamerAnswer) {
        while let Some((_, since, _)) = self.waiting.front()
            && since.elapsed() >= patience
            && let Some((_, _, event)) = self.waiting.pop_front()
        {
            all.modules.extend(Some(event).filter(is_of_use));
        }
    }
}

/// Whether an event is of use as the kernel reported it. An event of memory without a file is not: it would hide the
/// names of code that is found there, although perhaps only the protection has changed.
fn is_of_use(event: &ModuleEvent) -> bool {
    !matches!(&event.what, ModuleChange::Mapped(mapping) if runtime::is_memory(&mapping.path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::process::maps;
    use uprof::cold::Mapping;

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
        const FIRST: u64 = MOST_ASKED as u64 - 4;
        let (asks, _asked) = channel();
        let (answer, answers) = channel();
        let mut images = Images::new(asks, answers, Progress::default());
        images.next = FIRST;
        let mapping = Mapping {
            path: "/a".into(),
            ..Mapping::default()
        };
        for _ in 0..4 {
            assert_eq!(images.ask(event(7, mapping.clone())), None);
        }
        assert!(images.ask(event(7, mapping.clone())).is_some(), "all asked");
        answer
            .send(Answer::Events(FIRST, vec![event(7, mapping.clone())]))
            .unwrap();
        assert_eq!(images.answer().modules.len(), 1);
        let mut all = NamerAnswer::default();
        images.give_up(Duration::ZERO, &mut all);
        assert_eq!(all.modules.len(), 3);
        // An answer that comes too late is reported again.
        let late = Answer::Events(FIRST + 1, vec![event(7, mapping.clone())]);
        answer.send(late).unwrap();
        assert_eq!(images.answer().modules.len(), 1);
        assert!(images.waiting.is_empty());
        let memory = Mapping {
            path: "//anon".into(),
            ..mapping
        };
        assert_eq!(images.ask(event(7, memory)), None);
        let mut all = NamerAnswer::default();
        images.give_up(Duration::ZERO, &mut all);
        assert!(all.modules.is_empty(), "it may hide what is known of it");
    }

    #[test]
    fn the_end_waits_for_a_minute_at_most() {
        let (asks, _asked) = channel();
        let (_answer, answers) = channel();
        let mut images = Images::new(asks, answers, Progress::default());
        assert_eq!(images.ask(event(7, Mapping::default())), None);
        let begun = Instant::now();
        let all = images.finish_within(Duration::from_millis(200));
        assert!(begun.elapsed() < MOST_PATIENCE);
        assert_eq!(all.modules.len(), 1, "as the kernel reported it");
        assert_eq!(END_PATIENCE.as_secs(), 60);
    }

    #[test]
    fn events_that_are_worked_on_are_waited_for() {
        let (asks, asked) = channel::<Ask>();
        let (answer, answers) = channel();
        let progress = Progress::default();
        let mut images = Images::new(asks, answers, progress.clone());
        let mapping = Mapping {
            path: "/a".into(),
            ..Mapping::default()
        };
        assert_eq!(images.ask(event(7, mapping)), None);
        let slow = std::thread::spawn(move || {
            let (number, mut event) = asked.recv().unwrap();
            for _ in 0..50 {
                std::thread::sleep(Duration::from_millis(50));
                progress.step();
            }
            if let ModuleChange::Mapped(mapping) = &mut event.what {
                mapping.build_id = vec![1];
            }
            answer.send(Answer::Events(number, vec![event])).unwrap();
        });
        let all = images.finish();
        slow.join().unwrap();
        let ModuleChange::Mapped(mapping) = &all.modules[0].what else {
            panic!("it is a mapping")
        };
        assert_eq!((all.modules.len(), &mapping.build_id[..]), (1, &[1][..]));
    }
}
