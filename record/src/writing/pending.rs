//! Records that wait for the next block.
//!
//! Input: the notes of the ring, and the reports of the observer and the namer. Output: a block's cold records, in the
//! order in which a reader needs them.

use std::io::{self, Write};
use uprof::cold::{
    ClockPair, Code, Exits, HandledExit, Loss, ModuleEvent, ProcessTime, SpaceEvent, TaskEvent,
    VcpuTime,
};
use uprof::{ImagePart, Writer};

/// Records by kind.
#[derive(Default)]
pub struct Pending {
    pub tasks: Vec<TaskEvent>,
    pub modules: Vec<ModuleEvent>,
    pub spaces: Vec<SpaceEvent>,
    pub losses: Vec<Loss>,
    pub times: Vec<ProcessTime>,
    pub vcpu_times: Vec<VcpuTime>,
    pub exits: Vec<Exits>,
    pub handled: Vec<HandledExit>,
    pub clocks: Vec<ClockPair>,
    pub parts: Vec<ImagePart>,
}

impl Pending {
    /// Writes all records but tables and code.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_events<W: Write>(&self, writer: &mut Writer<W>) -> io::Result<()> {
        writer.tasks(&self.tasks)?;
        writer.modules(&self.modules)?;
        writer.losses(&self.losses)?;
        writer.times(&self.times)?;
        writer.vcpu_times(&self.vcpu_times)?;
        writer.exits(&self.exits)?;
        writer.handled(&self.handled)?;
        writer.clocks(&self.clocks)?;
        writer.spaces(&self.spaces)
    }

    /// Writes tables of images, and `code` of the guest.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_tables<W: Write>(
        &self,
        writer: &mut Writer<W>,
        code: &[Code],
        now_ns: u64,
    ) -> io::Result<()> {
        writer.code(code)?;
        for part in &self.parts {
            writer.image_part(part, now_ns)?;
        }
        Ok(())
    }

    /// Forgets all records, which are written. Their memory serves the next block.
    pub fn clear(&mut self) {
        self.tasks.clear();
        self.modules.clear();
        self.spaces.clear();
        self.losses.clear();
        self.times.clear();
        self.vcpu_times.clear();
        self.exits.clear();
        self.handled.clear();
        self.clocks.clear();
        self.parts.clear();
    }
}
