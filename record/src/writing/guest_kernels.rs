//! The kernels of a Linux guest, as read from its memory: one for each boot.
//!
//! Input: kernels, at the start or from the sampler's looks between samples, and the guest's samples. Output: samples
//! with stacks that a kernel's own rules have walked, and names of the functions in them, also of those that were
//! sampled before the kernel was read.

use crate::guest::addresses::Addresses;
use crate::guest::linux::Linux;
use crate::guest::linux::later::Found;
use crate::source::slot::Slot;
use std::sync::mpsc::Receiver;
use uprof::cpu::is_kernel_address;
use uprof::{ImagePart, Sample};

/// How stacks are walked and kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct StackSettings {
    /// Most frames of a chain; 0 for none.
    pub most_frames: usize,
    /// Stack bytes that are kept of a sample.
    pub kept_bytes: u32,
}

/// The kernels of a guest.
#[derive(Default)]
pub struct GuestKernels {
    known: Vec<Linux>,
    /// Delivers what is found later.
    later: Option<Receiver<Found>>,
    stacks: StackSettings,
    /// What was sampled of the current boot before its kernel was read.
    unnamed: Addresses,
}

impl GuestKernels {
    /// No kernels yet; `later` delivers those that are read between samples.
    pub fn new(later: Receiver<Found>, stacks: StackSettings) -> Self {
        GuestKernels {
            known: Vec::new(),
            later: Some(later),
            stacks,
            unnamed: Addresses::default(),
        }
    }

    /// What was found since the last call.
    pub fn delivered(&self) -> Option<Found> {
        self.later.as_ref().and_then(|it| it.try_recv().ok())
    }

    /// Takes a kernel, or the processes of a known one. Returns the kernel if it is new and can be in the recording.
    #[cold]
    pub fn add(&mut self, mut linux: Linux) -> Option<&Linux> {
        let boot = linux.boot();
        if let Some(known) = self.known.iter_mut().find(|known| known.boot() == boot) {
            known.add_processes(linux);
            return None;
        }
        match self.known.last() {
            Some(last) if !linux.join(last) => return None,
            Some(_) => {}
            None => {
                let StackSettings {
                    most_frames,
                    kept_bytes,
                } = self.stacks;
                linux.prepare(most_frames, kept_bytes);
            }
        }
        linux.saw(&self.unnamed.take());
        self.known.push(linux);
        self.known.last()
    }

    /// Forgets what was sampled of the boot before.
    pub fn begin_boot(&mut self) {
        self.unnamed = Addresses::default();
    }

    /// The kernel of a boot.
    pub fn of_boot(&self, boot: u32) -> Option<&Linux> {
        self.known.iter().find(|known| known.boot() == boot)
    }

    /// The sample in `slot`, as its kernel walks it.
    pub fn sample<'a>(&'a mut self, slot: &'a Slot) -> Sample<'a> {
        let boot = slot.task.space;
        let of_boot = self.known.iter().position(|known| known.boot() == boot);
        if of_boot.is_none() && self.later.is_some() {
            let addresses = slot.chain().iter().map(|frame| frame.lookup_address());
            addresses
                .filter(|address| is_kernel_address(*address))
                .for_each(|address| self.unnamed.add(address));
        }
        // A boot without a known kernel uses the first one, so that its stacks are shortened alike.
        match self.known.get_mut(of_boot.unwrap_or(0)) {
            Some(kernel) => kernel.sample(slot),
            None => slot.sample(),
        }
    }

    /// Names of the functions that were sampled since the last call.
    pub fn parts(&mut self) -> impl Iterator<Item = ImagePart> {
        self.known.iter_mut().filter_map(Linux::part)
    }
}
