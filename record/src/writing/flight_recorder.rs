//! The ring of files of a flight recorder (docs/record.md): whole recordings of some seconds each, of which the oldest
//! are deleted, and beside them what is needed however old it is.
//!
//! Input: samples and records. Output: the files, and requests to join them ([`Capture`]). Runs in the encoder's thread
//! and never ends a recording: after an error of the disk it goes on with the next file.

#[cfg(test)]
mod tests;

use crate::guest::linux::Linux;
use crate::source::Facts;
use crate::source::control::Counters;
use crate::sys::clock::{monotonic_ns, realtime_ns};
use crate::sys::signal;
use crate::writing::capture::Capture;
use crate::writing::function_finder::FunctionFinder;
use crate::writing::pending::Pending;
use crate::writing::save_requests::SaveRequests;
use crate::writing::target_state::{Change, EndedSpaces, TargetState};
use crate::writing::trigger::{MOST_SAVES, Sampled, Trigger, Triggers};
use crate::writing::window_folder::{STATE, TABLES, WindowFolder};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use uprof::cold::{
    ClockPair, Code, End, EndReason, Loss, LossReason, Metadata, ModuleChange, TaskChange,
};
use uprof::{Sample, Writer};

/// The window has this many segments, unless they would be shorter than [`SHORTEST_NS`].
const SEGMENTS: u64 = 8;
const SHORTEST_NS: u64 = 500_000_000;
/// Most records of what exists that the window's segments remember.
const MOST_CHANGES: usize = 1 << 18;
/// A function that is not found after so long is reported, if all images were read; and after so long in any case.
const FIND_NS: u64 = 2_000_000_000;
const FIND_NS_MAX: u64 = 30_000_000_000;
/// Shortest time between two saves by hand.
const LEAST_GAP_NS: u64 = 1_000_000_000;
/// Most saved windows that have not been written; further ones wait, and become one. Each takes some ten open files,
/// and the space of what has left the ring.
const UNWRITTEN_MAX: usize = 4;
/// Longest wait for a program that asked for a save and doesn't read the answer.
const REPLY_WAIT: Duration = Duration::from_millis(10);
/// Most bytes of a minute of one vCPU at 99 Hz with frame pointers.
#[cfg(test)]
const MOST_MINUTE_BYTES: u64 = 2 << 20;
/// Most bytes of symbol tables of generated code, and of a guest's code, which are kept however old they are.
const MOST_TABLES_BYTES: u64 = 64 << 20;

/// What a flight recorder keeps, and when it saves.
pub struct Keep {
    /// Length of the window.
    pub window: Duration,
    /// How long to go on after a trigger.
    pub after: Duration,
    /// When to save.
    pub triggers: Vec<Trigger>,
    /// The folder of the window's files.
    pub folder: Arc<WindowFolder>,
    /// Requests to save.
    pub requests: Arc<SaveRequests>,
    /// Where requests to join files go.
    pub events: Sender<KeepEvent>,
}

/// What a flight recorder reports.
#[derive(Debug)]
pub enum KeepEvent {
    /// The window is to be saved.
    Save(Capture),
    /// The recording is over; this is its last window.
    Last(Capture),
    /// The window can't be written, or is written again.
    Trouble(String),
}

/// A file of the ring.
struct Segment {
    name: String,
    began_ns: u64,
    bytes: u64,
    /// Its records of what exists, and their number.
    changes: Vec<Change>,
    change_count: usize,
}

/// A save that is due.
struct DueSave {
    at_ns: u64,
    reason: String,
    reply: Option<UnixStream>,
}

/// The ring.
pub struct FlightRecorder {
    keep: Keep,
    folder: PathBuf,
    metadata: Metadata,
    began_ns: u64,
    /// The segment that is written; `None` after an error of the disk.
    writer: Option<Writer<File>>,
    /// Samples that this writer was given.
    taken: u64,
    tables: Option<Writer<File>>,
    /// The last one is being written.
    segments: VecDeque<Segment>,
    state: TargetState,
    /// Of them, functions are found late.
    ended: EndedSpaces,
    triggers: Triggers,
    /// Present if a share of a function is watched.
    finder: Option<FunctionFinder>,
    due: Vec<DueSave>,
    signals: u32,
    saved_ns: Option<u64>,
    /// One more than there are windows that have not been written.
    unwritten: Arc<()>,
    number: u64,
    written_samples: u64,
    /// When all was written last.
    written_ns: u64,
    /// Samples that an error of the disk has lost since the last segment, and in all.
    lost: u64,
    lost_in_all: u64,
    /// Losses that were told while nothing could be written, one of each reason.
    untold: Vec<Loss>,
    is_failing: bool,
    is_spent: bool,
    /// Whether the state is not written yet.
    has_changed: bool,
}

impl FlightRecorder {
    /// Begins the window.
    ///
    /// # Errors
    /// The first files can't be written.
    pub fn create(
        keep: Keep,
        metadata: &Metadata,
        facts: &Facts,
        clock: ClockPair,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        let is_guest = metadata.target.kind.is_guest();
        let millihertz = metadata.sampling.rate_millihertz.max(1);
        let sampled = Sampled {
            period_ns: 1_000_000_000_000 / millihertz,
            on_cpu_only: facts.on_cpu_only || !is_guest,
            is_guest,
        };
        let now_ns = clock.monotonic_ns;
        let window_ns = nanoseconds(keep.window);
        let mut recorder = FlightRecorder {
            folder: keep.folder.by_descriptor(),
            triggers: Triggers::new(keep.triggers.clone(), sampled, counters, now_ns, window_ns),
            metadata: metadata.clone(),
            began_ns: now_ns,
            writer: None,
            taken: 0,
            tables: None,
            segments: VecDeque::new(),
            state: TargetState::new(is_guest),
            ended: EndedSpaces::default(),
            finder: None,
            due: Vec::new(),
            signals: signal::saves_asked(),
            saved_ns: None,
            unwritten: Arc::default(),
            number: 0,
            written_samples: 0,
            written_ns: now_ns,
            lost: 0,
            lost_in_all: 0,
            untold: Vec::new(),
            is_failing: false,
            is_spent: false,
            has_changed: false,
            keep,
        };
        let names = recorder.triggers.functions();
        if names.iter().any(|name| !name.is_empty()) {
            recorder.finder = Some(FunctionFinder::start(names, is_guest)?);
        }
        recorder.write_state()?;
        let tables = recorder.new_file(TABLES, now_ns)?;
        fs::rename(recorder.part(TABLES), recorder.folder.join(TABLES))?;
        recorder.tables = Some(tables);
        recorder.begin_segment(now_ns)?;
        Ok(recorder)
    }

    /// Adds a sample.
    pub fn sample(&mut self, sample: &Sample<'_>) {
        self.triggers.see(sample);
        match &mut self.writer {
            Some(writer) => {
                self.taken += 1;
                if let Err(error) = writer.sample(sample) {
                    self.fail(&error);
                }
            }
            None => self.lose(1),
        }
    }

    fn lose(&mut self, samples: u64) {
        self.lost += samples;
        self.lost_in_all += samples;
    }

    /// Samples that errors of the disk have lost since the start.
    pub fn lost_in_all(&self) -> u64 {
        self.lost_in_all
    }

    /// Keeps losses until they can be told; they are bounded, as those of a reason are one.
    fn keep_losses(&mut self, losses: &[Loss]) {
        for loss in losses {
            match self.untold.iter_mut().find(|it| it.reason == loss.reason) {
                Some(known) => {
                    known.count = known.count.saturating_add(loss.count);
                    known.first_ns = known.first_ns.min(loss.first_ns);
                    known.last_ns = known.last_ns.max(loss.last_ns);
                }
                None => self.untold.push(Loss {
                    task: None,
                    ..loss.clone()
                }),
            }
        }
    }

    /// Writes records, begins and deletes segments, and asks for the saves that are due.
    pub fn write(&mut self, pending: &mut Pending, code: &[Code], now_ns: u64) {
        for loss in &pending.losses {
            self.triggers.lost(loss);
        }
        self.find_functions(pending, now_ns);
        self.write_tables(pending, code, now_ns);
        if self.writer.is_none()
            && let Err(error) = self.begin_segment(now_ns)
        {
            self.fail(&error);
        }
        if let Some(writer) = &mut self.writer {
            let result = pending.write_events(writer).and_then(|()| writer.flush());
            match result {
                Ok(()) => {
                    self.written_ns = now_ns;
                    self.note_written();
                }
                Err(error) => self.fail(&error),
            }
        }
        if self.writer.is_none() {
            self.keep_losses(&pending.losses);
        }
        // Also what could not be written: later saves need the names.
        self.remember(pending);
        pending.clear();
        self.turn(now_ns);
        self.ask_for_saves(now_ns);
    }

    /// Finds the watched functions in a kernel of the guest.
    pub fn add_kernel(&mut self, kernel: &Linux) {
        if let Some(finder) = &mut self.finder {
            for (number, addresses) in kernel.code_of(finder.names()) {
                finder.note(number);
                self.triggers.add_function(kernel.boot(), number, addresses);
            }
        }
    }

    fn find_functions(&mut self, pending: &Pending, now_ns: u64) {
        let Some(finder) = &mut self.finder else {
            return;
        };
        let is_process = !self.metadata.target.kind.is_guest();
        let ended = pending.tasks.iter().filter(|event| {
            is_process && event.what == TaskChange::Ended && event.task.vcpu == event.task.space
        });
        for event in ended {
            self.ended.add(event.task.space, event.time_ns);
            self.triggers.forget_functions(event.task.space);
        }
        for event in &pending.modules {
            if self.ended.have(event.space, Some(event.time_ns)) {
                continue;
            }
            match event.what {
                ModuleChange::Mapped(_) => finder.ask(event),
                ModuleChange::Cleared => self.triggers.forget_functions(event.space),
                ModuleChange::CopiedFrom(parent) => {
                    self.triggers.copy_functions(parent, event.space);
                }
            }
        }
        // Asked first: what was read is then among what was found.
        let all_read = finder.waiting() == 0;
        for found in finder.found() {
            if !self.ended.have(found.space, None) {
                self.triggers
                    .add_function(found.space, found.number, found.addresses);
            }
        }
        let since_ns = now_ns.saturating_sub(self.began_ns);
        let missing = if all_read && since_ns >= FIND_NS || since_ns >= FIND_NS_MAX {
            finder.missing()
        } else {
            Vec::new()
        };
        let left_out = std::mem::take(&mut finder.left_out);
        for name in missing {
            let advice = if self.metadata.target.kind.is_guest() {
                "for a guest, --elf FILE gives them"
            } else {
                "a program that is stripped has none"
            };
            self.report(format!(
                "no function `{name}` is in the symbol tables of the target so far ({advice}): share({name}) can't \
                 save until there is one"
            ));
        }
        if left_out > 0 {
            self.report(format!(
                "{left_out} mappings came faster than their symbol tables could be read: share(FUNCTION) doesn't \
                 know their functions"
            ));
        }
    }

    /// The target ended a boot, which may begin again.
    pub fn boot_ended(&mut self, time_ns: u64, how: &str) {
        if let Some(reason) = self.triggers.crashed(time_ns, how) {
            let after_ns = nanoseconds(self.keep.after);
            self.add_due(time_ns.saturating_add(after_ns), reason);
        }
    }

    /// Writes the end, and hands over the last window.
    pub fn finish(&mut self, end: &End) {
        let is_crash = match end.reason {
            EndReason::TargetCrashed => true,
            EndReason::TargetEnded | EndReason::SourceFailed => {
                self.metadata.target.kind.is_guest()
            }
            _ => false,
        };
        if is_crash && let Some(reason) = self.triggers.crashed(end.time_ns, &end.message) {
            self.add_due(end.time_ns, reason);
        }
        self.due.iter_mut().for_each(|due| due.at_ns = end.time_ns);
        // What was lost is told, if there is room by now.
        if self.writer.is_none() {
            let _ = self.begin_segment(end.time_ns);
        }
        if let Some(writer) = self.writer.take() {
            let _ = writer.finish(end);
        }
        self.measure();
        // The last save waits for nothing.
        (self.saved_ns, self.unwritten) = (None, Arc::default());
        self.ask_for_saves(end.time_ns);
        if let Ok(capture) = self.capture(end.clone(), "the last window".into()) {
            let _ = self.keep.events.send(KeepEvent::Last(capture));
        }
    }

    /// Bytes of the window's segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Samples written since the start.
    pub fn written_samples(&self) -> u64 {
        self.written_samples + self.writer.as_ref().map_or(0, Writer::written_samples)
    }

    fn part(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.part"))
    }

    /// Creates a file under a temporary name, with metadata.
    fn new_file(&self, name: &str, now_ns: u64) -> io::Result<Writer<File>> {
        let part = self.part(name);
        // Left by an error. Unlinking does not follow a link.
        let _ = fs::remove_file(&part);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600);
        let file = file.open(&part)?;
        let uuid = fastrand::u128(..).to_le_bytes();
        Writer::create(file, uuid, &self.metadata, now_ns)
    }

    fn begin_segment(&mut self, now_ns: u64) -> io::Result<()> {
        // An attempt that fails leaves a file, which the next one of this number replaces.
        let number = self.number + 1;
        let name = format!("{number:08}.uprof");
        let mut writer = self.new_file(&name, now_ns)?;
        // The first pair of a window is that of its oldest segment: the files before have times of long ago.
        // The last segment may begin long after sampling ended, at the time of that.
        let ahead_ns = realtime_ns().wrapping_sub(monotonic_ns() as i64);
        writer.clocks(&[ClockPair {
            monotonic_ns: now_ns,
            realtime_ns: ahead_ns.wrapping_add(now_ns as i64),
            guest: None,
        }])?;
        if self.lost > 0 {
            let span_ns = [self.written_ns.min(now_ns), now_ns];
            let lost = Loss::new(LossReason::Unwritten, self.lost, span_ns);
            writer.losses(&[lost])?;
        }
        if !self.untold.is_empty() {
            writer.losses(&self.untold)?;
        }
        fs::rename(self.part(&name), self.folder.join(&name))?;
        (self.number, self.lost, self.taken) = (number, 0, 0);
        self.untold.clear();
        self.segments.push_back(Segment {
            name,
            began_ns: now_ns,
            bytes: writer.written_bytes(),
            changes: Vec::new(),
            change_count: 0,
        });
        self.writer = Some(writer);
        Ok(())
    }

    /// Gives up the segment that is written; its whole blocks stay.
    fn fail(&mut self, error: &io::Error) {
        if let Some(writer) = self.writer.take() {
            let written = writer.written_samples();
            self.written_samples += written;
            // Those of the block that could not be written.
            self.lose(self.taken.saturating_sub(written));
            if let Some(segment) = self.segments.back_mut() {
                segment.bytes = writer.written_bytes();
                let path = self.folder.join(&segment.name);
                let mut options = OpenOptions::new();
                options.write(true).custom_flags(libc::O_NOFOLLOW);
                let file = options.open(path);
                let _ = file.and_then(|file| file.set_len(segment.bytes));
            }
        }
        if !std::mem::replace(&mut self.is_failing, true) {
            self.report(format!(
                "the window can't be written: {error}; what was written before is kept, and what comes is lost until \
                 there is room"
            ));
        }
    }

    fn report(&self, what: String) {
        let _ = self.keep.events.send(KeepEvent::Trouble(what));
    }

    fn note_written(&mut self) {
        if let (Some(segment), Some(writer)) = (self.segments.back_mut(), &self.writer) {
            let before = std::mem::replace(&mut segment.bytes, writer.written_bytes());
            // A disk that is full may still have room for the first blocks of a segment.
            if segment.bytes > before && std::mem::replace(&mut self.is_failing, false) {
                self.report("the window is written again".into());
            }
        }
    }

    /// Reads the length of the last segment, which is complete.
    fn measure(&mut self) {
        if let Some(segment) = self.segments.back_mut() {
            let found = fs::metadata(self.folder.join(&segment.name));
            segment.bytes = found.map_or(segment.bytes, |found| found.len());
        }
    }

    fn write_tables(&mut self, pending: &Pending, code: &[Code], now_ns: u64) {
        let Some(tables) = &mut self.tables else {
            return;
        };
        if pending.parts.is_empty() && code.is_empty() {
            return;
        }
        let result = pending.write_tables(tables, code, now_ns);
        let result = result.and_then(|()| tables.flush());
        let is_full = tables.written_bytes() > MOST_TABLES_BYTES;
        if let Err(error) = result {
            self.report(format!(
                "names of code that is generated from now on can't be written: {error}; once there is room, record anew"
            ));
            self.tables = None;
        } else if is_full {
            self.report(
                "code that is generated from now on has no names: its tables are full".into(),
            );
            self.tables = None;
        }
    }

    /// Begins another segment, and deletes those that have left the window.
    fn turn(&mut self, now_ns: u64) {
        let window_ns = nanoseconds(self.keep.window).saturating_add(nanoseconds(self.keep.after));
        let length_ns = (window_ns / SEGMENTS).max(SHORTEST_NS);
        let began_ns = self.segments.back().map_or(0, |segment| segment.began_ns);
        if self.writer.is_some() && now_ns.saturating_sub(began_ns) >= length_ns {
            self.end_segment(now_ns);
            if let Err(error) = self.begin_segment(now_ns) {
                self.fail(&error);
            }
        }
        let first_ns = now_ns.saturating_sub(window_ns);
        let is_old = |second: &Segment| second.began_ns <= first_ns;
        let mut gone = Vec::new();
        while self.segments.get(1).is_some_and(is_old) {
            gone.extend(self.segments.pop_front());
        }
        if gone.is_empty() {
            return;
        }
        for segment in &mut gone {
            self.has_changed |= !segment.changes.is_empty();
            let changes = std::mem::take(&mut segment.changes);
            changes.into_iter().for_each(|it| self.state.apply(it));
        }
        // Written before the segments go, so that a killed recorder leaves it twice rather than not at all.
        if std::mem::take(&mut self.has_changed)
            && let Err(error) = self.write_state()
        {
            self.has_changed = true;
            self.report(format!(
                "names of what began before the window are lost: {error}"
            ));
        }
        for segment in &gone {
            let _ = fs::remove_file(self.folder.join(&segment.name));
        }
    }

    fn end_segment(&mut self, now_ns: u64) {
        let Some(writer) = self.writer.take() else {
            return;
        };
        self.written_samples += writer.written_samples();
        if let Err(error) = writer.finish(&end_of_file(now_ns)) {
            self.fail(&error);
        }
        self.measure();
    }

    /// Remembers the records that were written, until their segment leaves the window. They are not read back, as a
    /// recorder has no code that reads recordings.
    fn remember(&mut self, pending: &Pending) {
        let Some(segment) = self.segments.back_mut() else {
            return;
        };
        let count = pending.tasks.len() + pending.modules.len() + pending.spaces.len();
        if count == 0 {
            return;
        }
        segment.change_count += count;
        segment.changes.extend([
            Change::Tasks(pending.tasks.clone()),
            Change::Modules(pending.modules.clone()),
            Change::Spaces(pending.spaces.clone()),
        ]);
        // Where programs start and end all the time, the oldest segments have the names of a later moment.
        let mut together: usize = self.segments.iter().map(|it| it.change_count).sum();
        for segment in &mut self.segments {
            if together <= MOST_CHANGES {
                break;
            }
            together -= std::mem::take(&mut segment.change_count);
            let changes = std::mem::take(&mut segment.changes);
            changes.into_iter().for_each(|it| self.state.apply(it));
            self.has_changed = true;
        }
    }

    fn write_state(&mut self) -> io::Result<()> {
        let now_ns = self.segments.front().map(|segment| segment.began_ns);
        let now_ns = now_ns.unwrap_or(self.began_ns);
        let mut writer = self.new_file(STATE, now_ns)?;
        self.state.write(&mut writer)?;
        writer.finish(&end_of_file(now_ns))?;
        fs::rename(self.part(STATE), self.folder.join(STATE))
    }

    fn add_due(&mut self, at_ns: u64, reason: String) {
        self.due.push(DueSave {
            at_ns,
            reason,
            reply: None,
        });
    }

    fn ask_for_saves(&mut self, now_ns: u64) {
        for reason in self.triggers.reasons(now_ns) {
            self.add_due(now_ns.saturating_add(nanoseconds(self.keep.after)), reason);
        }
        if self.triggers.is_spent() && !std::mem::replace(&mut self.is_spent, true) {
            self.report(format!(
                "the triggers have saved {MOST_SAVES} times: from now on only signals and `uniprof save` do"
            ));
        }
        let signals = signal::saves_asked();
        if std::mem::replace(&mut self.signals, signals) != signals {
            self.add_due(now_ns, "SIGUSR1".into());
        }
        for (reason, reply) in self.keep.requests.take() {
            self.due.push(DueSave {
                at_ns: now_ns,
                reason,
                reply: Some(reply),
            });
        }
        let may = |saved_ns| now_ns.saturating_sub(saved_ns) >= LEAST_GAP_NS;
        let is_slow = Arc::strong_count(&self.unwritten) > UNWRITTEN_MAX;
        let is_due = self.due.iter().any(|due| due.at_ns <= now_ns);
        if !is_due || !self.saved_ns.is_none_or(may) || is_slow {
            return;
        }
        let (due, later) = std::mem::take(&mut self.due)
            .into_iter()
            .partition(|due| due.at_ns <= now_ns);
        self.due = later;
        self.saved_ns = Some(now_ns);
        self.save(due, now_ns);
    }

    fn save(&mut self, due: Vec<DueSave>, now_ns: u64) {
        let mut reasons: Vec<String> = due.iter().map(|due| due.reason.clone()).collect();
        reasons.dedup();
        let reason = reasons.join("; ");
        let end = End {
            time_ns: now_ns,
            reason: EndReason::Stopped,
            message: format!("the window was saved: {reason}"),
            totals: Vec::new(),
        };
        match self.capture(end, reason) {
            Ok(mut capture) => {
                capture.replies = due.into_iter().filter_map(|due| due.reply).collect();
                let _ = self.keep.events.send(KeepEvent::Save(capture));
            }
            Err(error) => {
                let why = format!("the window can't be saved: {error}; it is kept");
                for mut reply in due.into_iter().filter_map(|due| due.reply) {
                    let _ = reply.set_write_timeout(Some(REPLY_WAIT));
                    let _ = write!(reply, "failed {why}");
                }
                self.report(why);
            }
        }
    }

    fn capture(&self, end: End, reason: String) -> io::Result<Capture> {
        let open = |name: &str| File::open(self.folder.join(name));
        let whole = |name| -> io::Result<(File, u64)> {
            let file = open(name)?;
            let bytes = file.metadata()?.len();
            Ok((file, bytes))
        };
        let segments = self.segments.iter();
        let segments = segments.map(|segment| Ok((open(&segment.name)?, segment.bytes)));
        Ok(Capture {
            _unwritten: Arc::clone(&self.unwritten),
            reason,
            metadata: self.metadata.clone(),
            first_ns: self.segments.front().map_or(0, |it| it.began_ns),
            end,
            before: vec![whole(STATE)?, whole(TABLES)?],
            segments: segments.collect::<io::Result<_>>()?,
            replies: Vec::new(),
        })
    }
}

/// The end of a file that is only a part of the window.
fn end_of_file(time_ns: u64) -> End {
    End {
        time_ns,
        reason: EndReason::Stopped,
        message: "the window goes on in the next file".into(),
        totals: Vec::new(),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
