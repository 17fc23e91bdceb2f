//! The items that the sampler sends to the encoder: samples in [`Slot`]s, rare events in [`Note`]s.
//!
//! Both are allocated once, with all the memory that they will need.

use uprof::cold::{LossReason, MappedFile};
use uprof::layout::MAX_FRAMES;
use uprof::{Details, Frame, RawStack, Registers, Sample, State, Stop, Task, Wait};

/// Most bytes of a path or name in a [`Note`]: `PATH_MAX`.
pub const MAX_TEXT_BYTES: usize = 4096;
/// Bytes reserved for the text of a note. A longer text makes the note grow. That does no harm: the kernel reports long
/// ones only of processes, which nobody pauses meanwhile. A piece of a guest's code fits.
const TEXT_BYTES: usize = 256;

/// One sample with room for its chain and stack.
#[derive(Debug)]
pub struct Slot {
    /// Time on the monotonic clock.
    pub time_ns: u64,
    /// The vCPU or thread.
    pub task: Task,
    /// State of the vCPU or thread.
    pub state: State,
    /// Why the chain ends.
    pub stop: Stop,
    /// Measurements beside the stack.
    pub details: Details,
    /// Registers; none if the mask is empty.
    pub registers: Registers,
    /// How long the task was off the processor; `None` for a sample.
    pub wait: Option<Wait>,
    /// Whether the stack bytes are part of the sample, or were only needed for the walk.
    pub keep_stack: bool,
    chain: Vec<Frame>,
    stack_address: u64,
    stack: Vec<u8>,
    /// Number of bytes that belong to a second stack, and its address.
    beyond: (usize, u64),
}

impl Slot {
    /// A slot with room for `stack_bytes` of stack.
    pub fn new(stack_bytes: usize) -> Self {
        Slot {
            time_ns: 0,
            task: Task { space: 0, vcpu: 0 },
            state: State::Running,
            stop: Stop::NotWalked,
            details: Details::default(),
            registers: Registers::default(),
            wait: None,
            keep_stack: false,
            chain: Vec::with_capacity(MAX_FRAMES),
            stack_address: 0,
            stack: Vec::with_capacity(stack_bytes),
            beyond: (0, 0),
        }
    }

    /// Empties the slot for a new sample.
    pub fn reset(&mut self, time_ns: u64, task: Task, state: State) {
        self.time_ns = time_ns;
        self.task = task;
        self.state = state;
        self.stop = Stop::NotWalked;
        self.details = Details::default();
        self.registers.clear();
        self.wait = None;
        self.keep_stack = false;
        self.chain.clear();
        self.stack.clear();
        self.beyond = (0, 0);
    }

    /// Adds a frame at the outer end; returns whether there was room.
    pub fn push_frame(&mut self, frame: Frame) -> bool {
        let room = self.chain.len() < self.chain.capacity().min(MAX_FRAMES);
        if room {
            self.chain.push(frame);
        }
        room
    }

    /// Inserts a frame between the innermost one and the others; returns whether there was room.
    pub fn insert_caller(&mut self, frame: Frame) -> bool {
        let room =
            self.chain.len() < self.chain.capacity().min(MAX_FRAMES) && !self.chain.is_empty();
        if room {
            self.chain.insert(1, frame);
        }
        room
    }

    /// Keeps only the innermost `count` frames.
    pub fn keep_frames(&mut self, count: usize) {
        self.chain.truncate(count);
    }

    /// The frames, innermost first.
    pub fn chain(&self) -> &[Frame] {
        &self.chain
    }

    /// Sets the stack bytes from `address` upwards, as many as there is room for.
    pub fn set_stack(&mut self, address: u64, bytes: &[u8]) {
        let kept = bytes.len().min(self.stack.capacity());
        self.stack_address = address;
        self.stack.clear();
        self.stack.extend_from_slice(&bytes[..kept]);
        self.beyond = (0, 0);
    }

    /// Adds bytes of a second stack, as many as there is room for. They only serve a walk.
    pub fn add_beyond(&mut self, beyond: RawStack<'_>) {
        let room = self.stack.capacity() - self.stack.len();
        let kept = beyond.bytes.len().min(room);
        self.stack.extend_from_slice(&beyond.bytes[..kept]);
        self.beyond = (kept, beyond.address);
    }

    /// The stack bytes.
    pub fn stack(&self) -> RawStack<'_> {
        RawStack {
            address: self.stack_address,
            bytes: &self.stack[..self.stack.len() - self.beyond.0],
        }
    }

    /// The bytes of the second stack.
    pub fn beyond(&self) -> RawStack<'_> {
        RawStack {
            address: self.beyond.1,
            bytes: &self.stack[self.stack.len() - self.beyond.0..],
        }
    }

    /// The sample in the form of the file format.
    pub fn sample(&self) -> Sample<'_> {
        Sample {
            time_ns: self.time_ns,
            task: self.task,
            state: self.state,
            chain: &self.chain,
            stop: self.stop,
            details: self.details,
            registers: (self.registers.mask() != 0).then_some(&self.registers),
            stack: self.keep_stack.then(|| self.stack()),
            wait: self.wait,
        }
    }
}

/// A rare event from the sampler.
#[derive(Debug)]
pub struct Note {
    /// Time on the monotonic clock.
    pub time_ns: u64,
    /// The vCPU or thread.
    pub task: Task,
    /// What happened.
    pub kind: NoteKind,
    text: Vec<u8>,
}

/// The event of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteKind {
    /// The task appeared or got a new name, which is the text.
    Named,
    /// The task was started by this thread, which isn't the first of its process.
    StartedBy(Task),
    /// The task ended.
    Ended,
    /// Part of the image whose path is the text was mapped.
    Mapped {
        /// First address.
        start: u64,
        /// Bytes.
        length: u64,
        /// Offset in the file.
        file_offset: u64,
        /// The mapped file; `None` for anonymous memory.
        file: Option<MappedFile>,
    },
    /// A guest with this number of vCPUs is gone. It may come back as another address space.
    LifeEnded {
        /// Number of vCPUs.
        vcpus: u32,
    },
    /// A guest with this number of vCPUs came back; the text is its new name.
    LifeBegan {
        /// Number of vCPUs.
        vcpus: u32,
    },
    /// The text is code of the guest, from this address on.
    Code(u64),
    /// The address space was emptied for another program.
    Cleared,
    /// The address space began as a copy of this one.
    CopiedFrom(u32),
    /// Samples were lost, from this time on.
    Lost {
        /// Why.
        reason: LossReason,
        /// Number of samples.
        count: u64,
        /// Time of the first one.
        first_ns: u64,
    },
}

impl Note {
    /// A note with reserved room for a text.
    pub fn new() -> Self {
        Note {
            time_ns: 0,
            task: Task { space: 0, vcpu: 0 },
            kind: NoteKind::Ended,
            text: Vec::with_capacity(TEXT_BYTES),
        }
    }

    /// Sets the contents; a text that is too long is cut.
    pub fn set(&mut self, time_ns: u64, task: Task, kind: NoteKind, text: &[u8]) {
        self.time_ns = time_ns;
        self.task = task;
        self.kind = kind;
        self.text.clear();
        self.text
            .extend_from_slice(&text[..text.len().min(MAX_TEXT_BYTES)]);
    }

    /// The raw bytes of the text.
    pub fn bytes(&self) -> &[u8] {
        &self.text
    }

    /// The text, with invalid UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
}

impl Default for Note {
    fn default() -> Self {
        Self::new()
    }
}
