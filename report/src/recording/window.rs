//! The last seconds of a recording that is still being written. Input: its blocks, as they come. Output: at any time, a
//! whole recording of what is in the window, for reports and for a file.
//!
//! Samples and what else has a time are dropped when they are older than the window. Names and mappings of what runs,
//! and tables of images, are kept, since later samples need them. All have a limit in bytes; what is dropped for it is
//! counted.

use super::kept_blocks::{
    BLOCK_NS, KeptBlocks, LASTING_BYTES_MAX, Need, PASSING_BYTES_MAX, recording,
};
use super::kept_names::KeptNames;
use std::collections::VecDeque;
use std::io;
use uprof::cold::{End, EndReason, Loss, LossReason};
use uprof::{Block, BlockType, Damage, DamageKind, Item, Payload};

/// Most damaged parts that a window remembers.
const DAMAGES_MAX: usize = 1024;

/// The last seconds of a recording.
#[derive(Debug)]
pub struct Window {
    uuid: [u8; 16],
    length_ns: u64,
    metadata: Option<Block<'static>>,
    /// Clock readings of the window, and the last ones before it.
    clocks: KeptBlocks,
    names: KeptNames,
    /// Images, address spaces, and code.
    lasting: KeptBlocks,
    /// Samples, losses and counts, which are of a time.
    passing: KeptBlocks,
    /// Damaged parts, and the samples lost with them.
    damages: VecDeque<Loss>,
    damaged: u64,
    latest_ns: u64,
    end: Option<End>,
}

impl Window {
    /// An empty window of the recording `uuid`.
    pub fn new(uuid: [u8; 16], length_ns: u64) -> Window {
        Window {
            uuid,
            length_ns,
            metadata: None,
            clocks: KeptBlocks::default(),
            names: KeptNames::default(),
            lasting: KeptBlocks::default(),
            passing: KeptBlocks::default(),
            damages: VecDeque::new(),
            damaged: 0,
            latest_ns: 0,
            end: None,
        }
    }

    /// Changes its length. A longer window fills as time passes.
    pub fn set_length(&mut self, length_ns: u64) {
        self.length_ns = length_ns;
        self.forget(self.latest_ns);
    }

    /// Adds the next item of the stream.
    pub fn add(&mut self, item: Item<'static>) {
        let block = match item {
            Item::Block(block) => block,
            Item::Damage(damage) => return self.add_damage(&damage),
        };
        crate::mapped::add_read(block.file_bytes());
        if is_of_its_time(&block) {
            self.see(block.last_ns);
        }
        match Need::of(&block) {
            Need::Metadata => self.metadata = Some(block),
            Need::End => {
                if let Ok(Payload::End(end)) = block.payload() {
                    // Blocks before it may be of the recorder's own work afterwards.
                    self.latest_ns = end.time_ns;
                    self.end = Some(end);
                }
            }
            Need::Clocks => self.clocks.push(block, PASSING_BYTES_MAX),
            Need::Names => {
                let from_ns = self.latest_ns.saturating_sub(self.length_ns);
                let samples = self.passing.blocks.iter();
                self.names.push(block, from_ns, samples);
            }
            Need::Lasting => self.lasting.push(block, LASTING_BYTES_MAX),
            Need::Passing => self.passing.push(block, PASSING_BYTES_MAX),
        }
        self.forget(self.latest_ns);
    }

    fn add_damage(&mut self, damage: &Damage) {
        crate::mapped::add_read(damage.bytes);
        if damage.kind == DamageKind::Unfinished {
            return;
        }
        self.damaged += 1;
        let first_ns = damage.gap_ns.0.unwrap_or(self.latest_ns);
        let gap_ns = [first_ns, damage.gap_ns.1.unwrap_or(first_ns)];
        let count = damage.samples.unwrap_or(damage.samples_at_least);
        self.damages
            .push_back(Loss::new(LossReason::Damaged, count, gap_ns));
        if self.damages.len() > DAMAGES_MAX {
            self.damages.pop_front();
        }
    }

    fn see(&mut self, time_ns: u64) {
        self.latest_ns = self.latest_ns.max(time_ns);
    }

    /// Drops what is older than the window that ends at `until_ns`.
    fn forget(&mut self, until_ns: u64) {
        let from_ns = until_ns.saturating_sub(self.length_ns);
        let is_old = |block: &Block<'_>| block.last_ns < from_ns;
        while self.passing.blocks.front().is_some_and(is_old) {
            self.passing.pop();
        }
        let start_ns = from_ns.saturating_sub(BLOCK_NS);
        let is_before = |block: &Block<'_>| block.last_ns <= start_ns;
        while self.clocks.blocks.get(1).is_some_and(is_before) {
            self.clocks.pop();
        }
        while self
            .damages
            .front()
            .is_some_and(|one| one.last_ns < from_ns)
        {
            self.damages.pop_front();
        }
    }

    /// The latest time in the stream (nanoseconds of its clock).
    pub fn latest_ns(&self) -> u64 {
        self.latest_ns
    }

    /// The end record, if the stream has reached it.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Number of damaged parts of the stream so far.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Whether samples of the window, and names that it needs, had to be dropped because they are too many.
    pub fn dropped(&self) -> (bool, bool) {
        let names = self.names.dropped() + self.lasting.dropped;
        (self.passing.dropped > 0, names > 0)
    }

    /// A recording of the window that ends at `until_ns`.
    ///
    /// # Errors
    /// Memory for compressing is missing.
    pub fn recording(&self, until_ns: u64) -> io::Result<Vec<u8>> {
        let from_ns = until_ns.saturating_sub(self.length_ns);
        // What was dropped is no time without samples.
        let from_ns = from_ns.max(self.passing.gone_ns.min(until_ns));
        let passing = self.passing.blocks.iter();
        let passing = passing.filter(|block| block.last_ns >= from_ns);
        let samples = passing.clone().filter(|block| block.samples > 0);
        let first_ns = samples.map(|block| block.first_ns).min();
        let start_ns = first_ns.unwrap_or(from_ns).min(from_ns);
        let start_ns = start_ns.max(from_ns.saturating_sub(BLOCK_NS));
        let damages = self.damages.iter().filter(|one| one.last_ns >= from_ns);
        let damages: Vec<Loss> = damages.cloned().collect();
        let (reason, message) = match &self.end {
            Some(end) => (end.reason, end.message.clone()),
            None => (
                EndReason::Stopped,
                "the recording went on: this is the end of a window".to_owned(),
            ),
        };
        recording(
            self.uuid,
            (self.metadata.as_ref(), start_ns),
            self.clocks
                .blocks
                .iter()
                .chain(self.names.blocks())
                .chain(&self.lasting.blocks)
                .chain(passing),
            &damages,
            &End {
                time_ns: until_ns,
                reason,
                message,
                totals: Vec::new(),
            },
        )
    }
}

/// Whether the times of a block are of the recording: images are older than it, and code is, too.
fn is_of_its_time(block: &Block<'_>) -> bool {
    !matches!(
        block.known_type(),
        Some(BlockType::Image | BlockType::Code | BlockType::End)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Recording;
    use uprof::cold::{ClockPair, Metadata, TaskChange, TaskEvent};
    use uprof::{Frame, Sample, StreamReader, Task, Wait, Writer};

    const SECOND_NS: u64 = 1_000_000_000;

    /// A recording of `seconds` with a sample each tenth, and a name at its start.
    fn stream(seconds: u64) -> Vec<u8> {
        stream_with(seconds, &[])
    }

    /// The same with further samples at its end.
    fn stream_with(seconds: u64, last: &[Sample<'_>]) -> Vec<u8> {
        let task = Task { space: 1, vcpu: 2 };
        let metadata = Metadata::default();
        let mut writer = Writer::create(Vec::new(), [7; 16], &metadata, SECOND_NS).unwrap();
        let named = TaskEvent {
            time_ns: SECOND_NS,
            task,
            what: TaskChange::Named("worker".into()),
        };
        writer.tasks(&[named]).unwrap();
        for tenth in 0..seconds * 10 {
            let time_ns = SECOND_NS + tenth * SECOND_NS / 10;
            let frames = [Frame::exact(0x1000 + tenth)];
            let sample = Sample::bare(time_ns, task, &frames);
            writer.sample(&sample).unwrap();
            writer.flush().unwrap();
        }
        for sample in last {
            writer.sample(sample).unwrap();
        }
        let end = End {
            time_ns: SECOND_NS * (seconds + 1),
            reason: EndReason::TargetEnded,
            message: "it exited".into(),
            totals: vec![("samples".into(), seconds * 10)],
        };
        writer.finish(&end).unwrap()
    }

    fn window(bytes: &[u8], length_ns: u64) -> Window {
        let mut reader = StreamReader::open(bytes).unwrap();
        let mut window = Window::new(reader.uuid().unwrap_or_default(), length_ns);
        while let Some(item) = reader.next_item().unwrap() {
            window.add(item);
        }
        window
    }

    fn opened(window: &Window, until_ns: u64) -> Recording {
        Recording::from_bytes("window", window.recording(until_ns).unwrap()).unwrap()
    }

    fn samples(recording: &Recording) -> u32 {
        recording.blocks().iter().map(|block| block.samples).sum()
    }

    #[test]
    fn a_window_is_a_whole_recording_of_the_last_seconds() {
        let window = window(&stream(60), 5 * SECOND_NS);
        let recording = opened(&window, window.latest_ns());
        assert_eq!(samples(&recording), 50);
        assert!(
            (recording.seconds() - 5.0).abs() < 0.2,
            "{}",
            recording.seconds()
        );
        assert_eq!(recording.end().unwrap().message, "it exited");
        assert!(recording.damages().is_none());
        let task = Task { space: 1, vcpu: 2 };
        assert_eq!(recording.tasks().last_name(task), Some("worker"));
        assert!(
            window.passing.blocks.len() <= 52,
            "{}",
            window.passing.blocks.len()
        );
    }

    #[test]
    fn a_window_moves_on_when_nothing_is_sampled() {
        let window = window(&stream(60), 5 * SECOND_NS);
        let later_ns = window.latest_ns() + 3 * SECOND_NS;
        assert_eq!(samples(&opened(&window, later_ns)), 20);
        let empty = opened(&window, window.latest_ns() + 9 * SECOND_NS);
        assert_eq!((samples(&empty), empty.seconds()), (0, 5.0));
    }

    #[test]
    fn a_longer_window_is_no_longer_than_what_was_kept() {
        let mut window = window(&stream(60), 5 * SECOND_NS);
        window.set_length(10 * SECOND_NS);
        let recording = opened(&window, window.latest_ns());
        let seconds = recording.seconds();
        assert!((5.0..5.2).contains(&seconds), "{seconds}");
        assert_eq!(samples(&recording), 50);
    }

    #[test]
    fn a_wait_that_began_long_ago_does_not_begin_the_window() {
        let wait = Sample {
            wait: Some(Wait {
                time_ns: 57 * SECOND_NS,
                count: 1,
            }),
            ..Sample::bare(2 * SECOND_NS, Task { space: 1, vcpu: 2 }, &[])
        };
        let window = window(&stream_with(60, &[wait]), 5 * SECOND_NS);
        let recording = opened(&window, window.latest_ns());
        assert_eq!(recording.seconds(), 6.0);
    }

    #[test]
    fn damage_is_a_loss_of_the_window_as_long_as_it_is_in_it() {
        let mut bytes = stream(60);
        let near_the_end = bytes.len() - 2000;
        bytes[near_the_end] ^= 0x55;
        let window = window(&bytes, 5 * SECOND_NS);
        assert_eq!(window.damaged(), 1);
        let recording = opened(&window, window.latest_ns());
        let losses: Vec<_> = recording.losses().iter().map(|loss| loss.reason).collect();
        assert_eq!(losses, [LossReason::Damaged]);
        let later = opened(&window, window.latest_ns() + 60 * SECOND_NS);
        assert!(later.losses().is_empty());
    }

    #[test]
    fn a_window_has_the_clocks_before_it_and_in_it() {
        let metadata = Metadata::default();
        let mut writer = Writer::create(Vec::new(), [7; 16], &metadata, SECOND_NS).unwrap();
        for second in 1..=60 {
            let pair = ClockPair {
                monotonic_ns: second * SECOND_NS,
                realtime_ns: 5,
                guest: None,
            };
            writer.clocks(&[pair]).unwrap();
            let task = Task { space: 1, vcpu: 2 };
            writer
                .sample(&Sample::bare(second * SECOND_NS, task, &[]))
                .unwrap();
            writer.flush().unwrap();
        }
        let end = End {
            time_ns: 60 * SECOND_NS,
            reason: EndReason::Stopped,
            message: String::new(),
            totals: Vec::new(),
        };
        let window = window(&writer.finish(&end).unwrap(), 5 * SECOND_NS);
        let recording = opened(&window, window.latest_ns());
        let clocks = recording.clocks.iter();
        assert!(clocks.map(|pair| pair.monotonic_ns / SECOND_NS).eq(54..=60));
    }

    #[test]
    fn a_window_has_a_limit_in_bytes() {
        let mut blocks = KeptBlocks::default();
        let bytes = stream(10);
        let mut reader = StreamReader::open(&bytes[..]).unwrap();
        while let Some(item) = reader.next_item().unwrap() {
            if let Item::Block(block) = item {
                blocks.push(block, 4096);
                assert!(blocks.bytes <= 4096);
            }
        }
        assert!(blocks.dropped > 0 && blocks.blocks.len() > 2);
    }
}
