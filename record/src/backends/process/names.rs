//! Names for the code of processes: the files that they had mapped, and the functions of this machine's kernel.

use super::images::Images;
use super::kernel::{self, KernelNames};
use crate::source::{Namer, NamerAnswer};
use uprof::Frame;
use uprof::cold::{ClockPair, ModuleEvent};

/// The [`Namer`] of processes.
#[derive(Debug, Default)]
pub struct Names {
    /// `None` before the recording begins, and after the last answer.
    images: Option<Images>,
    kernel: KernelNames,
}

impl Namer for Names {
    fn begin(&mut self, clock: ClockPair) -> ModuleEvent {
        self.images = Images::start(clock);
        kernel::module_event(clock.monotonic_ns)
    }

    fn see(&mut self, chain: &[Frame]) {
        let addresses = chain.iter().map(|frame| frame.lookup_address());
        addresses.for_each(|address| self.kernel.add(address));
    }

    fn ask(&mut self, event: ModuleEvent) -> Option<ModuleEvent> {
        match &mut self.images {
            Some(images) => images.ask(event),
            None => Some(event),
        }
    }

    fn answer(&mut self, last: bool) -> NamerAnswer {
        let mut answer = match &mut self.images {
            Some(images) if !last => images.answer(),
            _ => self
                .images
                .take()
                .map_or_else(NamerAnswer::default, Images::finish),
        };
        answer.parts.splice(0..0, self.kernel.part(last));
        answer
    }
}
