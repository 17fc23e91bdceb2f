//! A stream as recordings of some seconds each. Input: its blocks, as they come. Output: whole recordings, one after
//! the other, each with the names of what ran. Every block of samples is in one of them, unless more wait than may:
//! then the oldest are dropped, and their samples counted.

use super::kept_blocks::{
    BLOCK_NS, KeptBlocks, LASTING_BYTES_MAX, Need, PASSING_BYTES_MAX, recording,
};
use super::kept_names::KeptNames;
use std::collections::VecDeque;
use std::io;
use uprof::cold::{End, EndReason};
use uprof::{Block, DamageKind, Item, Payload};

/// An interval ends early when its samples take this many bytes, as they are stored.
const INTERVAL_BYTES_MAX: u64 = 16 << 20;

/// The recording of an interval.
#[derive(Debug)]
pub struct Interval {
    /// From when to when it is, by the clock of the stream (nanoseconds).
    pub times_ns: [u64; 2],
    /// The number of its samples.
    pub samples: u64,
    /// The file.
    pub bytes: Vec<u8>,
}

/// The blocks of an interval.
#[derive(Debug, Default)]
struct Part {
    first_ns: u64,
    last_ns: u64,
    /// The last clock readings before it.
    clocks: Option<Block<'static>>,
    kept: KeptBlocks,
}

impl Part {
    fn samples(&self) -> u64 {
        let samples = self.kept.blocks.iter().map(|block| block.samples);
        samples.map(u64::from).sum()
    }
}

/// A stream that is cut into intervals.
#[derive(Debug)]
pub struct Intervals {
    uuid: [u8; 16],
    length_ns: u64,
    metadata: Option<Block<'static>>,
    clocks: Option<Block<'static>>,
    names: KeptNames,
    lasting: KeptBlocks,
    /// The interval that grows.
    open: Part,
    /// Those that are complete.
    waiting: VecDeque<Part>,
    waiting_bytes: u64,
    end: Option<End>,
    damaged: u64,
    samples: u64,
    dropped_samples: u64,
}

impl Intervals {
    /// Intervals of the recording `uuid`, each of about `length_ns`.
    pub fn new(uuid: [u8; 16], length_ns: u64) -> Intervals {
        Intervals {
            uuid,
            length_ns,
            metadata: None,
            clocks: None,
            names: KeptNames::default(),
            lasting: KeptBlocks::default(),
            open: Part::default(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            end: None,
            damaged: 0,
            samples: 0,
            dropped_samples: 0,
        }
    }

    /// Adds the next item of the stream.
    pub fn add(&mut self, item: Item<'static>) {
        let block = match item {
            Item::Block(block) => block,
            Item::Damage(damage) => {
                self.damaged += u64::from(damage.kind != DamageKind::Unfinished);
                return;
            }
        };
        match Need::of(&block) {
            Need::Metadata => self.metadata = Some(block),
            Need::End => {
                if let Ok(Payload::End(end)) = block.payload() {
                    self.end = Some(end);
                }
            }
            Need::Names => {
                let next = self.waiting.front().unwrap_or(&self.open);
                let needed_ns = if next.kept.blocks.is_empty() {
                    next.last_ns
                } else {
                    next.first_ns
                };
                let parts = self.waiting.iter().chain([&self.open]);
                let samples = parts.flat_map(|part| &part.kept.blocks);
                self.names.push(block, needed_ns, samples);
            }
            Need::Clocks => self.clocks = Some(block),
            Need::Lasting => self.lasting.push(block, LASTING_BYTES_MAX),
            Need::Passing => self.add_passing(block),
        }
    }

    fn add_passing(&mut self, block: Block<'static>) {
        self.samples += u64::from(block.samples);
        // Nothing may have come for hours.
        if block.last_ns.saturating_sub(self.open.first_ns) > self.longest_ns() {
            self.cut();
        }
        if self.open.kept.blocks.is_empty() {
            // Not from the end of the last one.
            self.open.first_ns = self.open.last_ns.max(block.first_ns);
            self.open.clocks.clone_from(&self.clocks);
        }
        self.open.last_ns = self.open.last_ns.max(block.last_ns);
        self.open.kept.push(block, u64::MAX);
        let passed_ns = self.open.last_ns.saturating_sub(self.open.first_ns);
        if passed_ns >= self.length_ns || self.open.kept.bytes >= INTERVAL_BYTES_MAX {
            self.cut();
        }
    }

    /// The longest time of an interval's blocks. What is earlier are beginnings of waits.
    fn longest_ns(&self) -> u64 {
        self.length_ns.saturating_add(BLOCK_NS)
    }

    /// Ends the interval that grows, if anything is in it.
    pub fn cut(&mut self) {
        if self.open.kept.blocks.is_empty() {
            return;
        }
        let next = Part {
            last_ns: self.open.last_ns,
            ..Part::default()
        };
        let part = std::mem::replace(&mut self.open, next);
        self.waiting_bytes += part.kept.bytes;
        self.waiting.push_back(part);
    }

    /// Whether as much waits as may.
    pub fn is_full(&self) -> bool {
        self.waiting_bytes + self.open.kept.bytes >= PASSING_BYTES_MAX
    }

    /// Drops the oldest complete interval.
    pub fn drop_oldest(&mut self) {
        if let Some(part) = self.waiting.pop_front() {
            self.waiting_bytes -= part.kept.bytes;
            self.dropped_samples += part.samples();
        }
    }

    /// The recording of the oldest complete interval, which is then forgotten.
    ///
    /// # Errors
    /// Memory for compressing is missing.
    pub fn take(&mut self) -> io::Result<Option<Interval>> {
        let Some(part) = self.waiting.pop_front() else {
            return Ok(None);
        };
        self.waiting_bytes -= part.kept.bytes;
        let blocks = || part.kept.blocks.iter();
        let first_ns = blocks().filter(|block| block.samples > 0);
        let first_ns = first_ns.map(|block| block.first_ns).min();
        let first_ns = first_ns.map_or(part.first_ns, |first_ns| first_ns.min(part.first_ns));
        let first_ns = first_ns.max(part.last_ns.saturating_sub(self.longest_ns()));
        let all = || {
            let lasting = self.names.blocks().chain(&self.lasting.blocks);
            part.clocks.iter().chain(lasting).chain(blocks())
        };
        crate::mapped::add_read(all().map(Block::file_bytes).sum());
        let end = End {
            time_ns: part.last_ns,
            reason: EndReason::Stopped,
            message: "the recording went on: this is the end of an interval".to_owned(),
            totals: Vec::new(),
        };
        let bytes = recording(
            self.uuid,
            (self.metadata.as_ref(), first_ns),
            all(),
            &[],
            &end,
        )?;
        Ok(Some(Interval {
            times_ns: [first_ns, part.last_ns],
            samples: part.samples(),
            bytes,
        }))
    }

    /// Whether a complete interval waits.
    pub fn has_one(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The end record, if the stream has reached it.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Number of damaged parts of the stream so far.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Number of samples so far, and how many of them were dropped.
    pub fn samples(&self) -> (u64, u64) {
        (self.samples, self.dropped_samples)
    }

    /// Whether names had to be dropped because they are too many.
    pub fn lacks_names(&self) -> bool {
        self.names.dropped() + self.lasting.dropped > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Recording;
    use uprof::cold::{ClockPair, Metadata, TaskChange, TaskEvent};
    use uprof::{Frame, Sample, State, StreamReader, Task, Wait, Writer};

    const SECOND_NS: u64 = 1_000_000_000;
    const TASK: Task = Task { space: 1, vcpu: 2 };

    /// The items of a recording with a name at its start, and a sample at each of these times.
    fn items(times_ns: impl Iterator<Item = u64>) -> Vec<Item<'static>> {
        let mut writer =
            Writer::create(Vec::new(), [7; 16], &Metadata::default(), SECOND_NS).unwrap();
        let named = TaskEvent {
            time_ns: SECOND_NS,
            task: TASK,
            what: TaskChange::Named("worker".into()),
        };
        writer.tasks(&[named]).unwrap();
        let mut last_ns = SECOND_NS;
        for time_ns in times_ns {
            let frames = [Frame::exact(0x1000)];
            writer
                .sample(&Sample::bare(time_ns, TASK, &frames))
                .unwrap();
            writer.flush().unwrap();
            last_ns = time_ns;
        }
        let end = End {
            time_ns: last_ns,
            reason: EndReason::TargetEnded,
            message: "it exited".into(),
            totals: Vec::new(),
        };
        let bytes = writer.finish(&end).unwrap();
        let mut reader = StreamReader::open(&bytes[..]).unwrap();
        let mut items = Vec::new();
        while let Some(item) = reader.next_item().unwrap() {
            items.push(item);
        }
        items
    }

    fn tenths(seconds: u64) -> impl Iterator<Item = u64> {
        (10..10 + seconds * 10).map(|tenth| tenth * SECOND_NS / 10)
    }

    #[test]
    fn each_sample_is_in_one_interval_with_the_names_before_it() {
        let mut intervals = Intervals::new([7; 16], 5 * SECOND_NS);
        items(tenths(60))
            .into_iter()
            .for_each(|item| intervals.add(item));
        intervals.cut();
        let (mut samples, mut last_ns) = (0, 0);
        while let Some(interval) = intervals.take().unwrap() {
            let [first_ns, end_ns] = interval.times_ns;
            assert!(first_ns > last_ns && end_ns - first_ns <= 5 * SECOND_NS);
            last_ns = end_ns;
            let recording = Recording::from_bytes("interval", interval.bytes).unwrap();
            let read: u32 = recording.blocks().iter().map(|block| block.samples).sum();
            assert_eq!(u64::from(read), interval.samples);
            assert_eq!(recording.tasks().last_name(TASK), Some("worker"));
            assert_eq!(
                (recording.start_ns(), recording.end_ns()),
                (first_ns, end_ns)
            );
            samples += interval.samples;
        }
        assert_eq!((samples, intervals.samples()), (600, (600, 0)));
    }

    #[test]
    fn an_interval_begins_with_its_first_sample_even_hours_later() {
        let mut intervals = Intervals::new([7; 16], 5 * SECOND_NS);
        let hours_later = [2, 9000, 9001].map(|second| second * SECOND_NS);
        for item in items(hours_later.into_iter()) {
            intervals.add(item);
            // As after a time without samples.
            if intervals.samples().0 == 1 {
                intervals.cut();
            }
        }
        intervals.cut();
        let times_ns = |intervals: &mut Intervals| intervals.take().unwrap().unwrap().times_ns;
        assert_eq!(times_ns(&mut intervals), [hours_later[0]; 2]);
        assert_eq!(times_ns(&mut intervals), [hours_later[1], hours_later[2]]);
    }

    /// The items of a recording that `write` continues at each of these times.
    fn made(
        times_ns: impl Iterator<Item = u64>,
        write: impl Fn(&mut Writer<Vec<u8>>, u64),
    ) -> Vec<Item<'static>> {
        let mut writer =
            Writer::create(Vec::new(), [7; 16], &Metadata::default(), SECOND_NS).unwrap();
        for time_ns in times_ns {
            write(&mut writer, time_ns);
            let frames = [Frame::exact(0x1000)];
            writer
                .sample(&Sample::bare(time_ns, TASK, &frames))
                .unwrap();
            writer.flush().unwrap();
        }
        let end = End {
            time_ns: 0,
            reason: EndReason::Stopped,
            message: String::new(),
            totals: Vec::new(),
        };
        let bytes = writer.finish(&end).unwrap();
        let mut reader = StreamReader::open(&bytes[..]).unwrap();
        let items = std::iter::from_fn(|| reader.next_item().unwrap());
        items.collect()
    }

    #[test]
    fn a_wait_that_began_long_ago_does_not_begin_its_interval() {
        let hour_ns = 3600 * SECOND_NS;
        let wait = |writer: &mut Writer<Vec<u8>>, time_ns| {
            if time_ns == hour_ns + 5 * SECOND_NS {
                let wait = Sample {
                    state: State::Blocked,
                    wait: Some(Wait {
                        time_ns: hour_ns,
                        count: 1,
                    }),
                    ..Sample::bare(2 * SECOND_NS, TASK, &[])
                };
                writer.sample(&wait).unwrap();
            }
        };
        let tenths = (0..=100).map(|tenth| hour_ns + tenth * SECOND_NS / 10);
        let mut intervals = Intervals::new([7; 16], 10 * SECOND_NS);
        for item in made(tenths, wait) {
            intervals.add(item);
        }
        let interval = intervals.take().unwrap().unwrap();
        let [first_ns, last_ns] = interval.times_ns;
        assert_eq!(interval.samples, 102);
        assert_eq!(first_ns, last_ns - 11 * SECOND_NS);
        assert_eq!(last_ns, hour_ns + 10 * SECOND_NS);
        let recording = Recording::from_bytes("interval", interval.bytes).unwrap();
        assert_eq!(recording.start_ns(), first_ns);
    }

    #[test]
    fn an_interval_has_the_last_clock_readings_before_it_alone() {
        // The machine sleeps after half of the time.
        let realtime_ns = |time_ns: u64| {
            let slept_ns = if time_ns >= 30 * SECOND_NS {
                7 << 40
            } else {
                0
            };
            (time_ns + slept_ns) as i64
        };
        let pair = |writer: &mut Writer<Vec<u8>>, time_ns| {
            let pair = ClockPair {
                monotonic_ns: time_ns,
                realtime_ns: realtime_ns(time_ns),
                guest: None,
            };
            writer.clocks(&[pair]).unwrap();
        };
        let mut intervals = Intervals::new([7; 16], 5 * SECOND_NS);
        for item in made(tenths(60), pair) {
            intervals.add(item);
        }
        let mut count = 0;
        while let Some(interval) = intervals.take().unwrap() {
            let recording = Recording::from_bytes("interval", interval.bytes).unwrap();
            assert_eq!(recording.clocks.len(), 1);
            let started_ns = recording.start_realtime_ns();
            assert_eq!(started_ns, Some(realtime_ns(interval.times_ns[0])));
            count += 1;
        }
        assert!(count >= 11 && !intervals.lacks_names(), "{count}");
        assert!(intervals.lasting.blocks.is_empty());
    }

    #[test]
    fn samples_that_wait_are_bounded_and_what_is_dropped_is_counted() {
        let mut intervals = Intervals::new([7; 16], SECOND_NS);
        items(tenths(60))
            .into_iter()
            .for_each(|item| intervals.add(item));
        assert!(!intervals.is_full() && intervals.has_one());
        intervals.waiting_bytes += PASSING_BYTES_MAX;
        assert!(intervals.is_full());
        intervals.drop_oldest();
        let (samples, dropped) = intervals.samples();
        assert!(samples == 600 && (10..=12).contains(&dropped), "{dropped}");
        // An interval of too many bytes ends early.
        intervals.open.kept.bytes = INTERVAL_BYTES_MAX;
        let waiting = intervals.waiting.len();
        let more = items(tenths(100).skip(990).take(1));
        more.into_iter().for_each(|item| intervals.add(item));
        assert_eq!(intervals.waiting.len(), waiting + 1);
    }
}
