//! A program stepped instruction by instruction. Who steps knows the truth about callers: each call
//! adds one, and each takes its leave when the stack pointer passes it or a return goes to it. What
//! the unwinder says at each step, from registers and the bytes from the stack pointer up alone, is
//! held against that.

pub mod shadow;
pub mod stub;
#[cfg(target_arch = "x86_64")]
pub mod tracee;
pub mod verdict;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use uniprof_report::images::{Image, SymbolTable};
use uniprof_report::unwind::{Module, UnwindRules};
use uprof::Registers;

/// Puts us and the child `id` on one processor, where neither waits for the other's to wake up.
fn pin(id: u32) {
    let mut here = CpuSet::new();
    here.set(0).unwrap();
    // Only for speed: where it isn't allowed, all goes on as it is.
    let _ = sched_setaffinity(Pid::from_raw(id as i32), &here);
    let _ = sched_setaffinity(Pid::from_raw(0), &here);
}

/// Something that can be stepped.
pub trait Machine {
    /// Carries out one instruction. `None`: the program ended; `Some(true)`: a signal's handler
    /// was entered instead.
    fn step(&mut self) -> Option<bool>;
    /// By DWARF number: those that a recording of a process has, and no others.
    fn registers(&mut self) -> Registers;
    /// The bytes from the stack pointer to the end of the stack.
    fn stack(&mut self, from: u64) -> &[u8];
    /// Up to sixteen bytes of code.
    fn code(&mut self, at: u64) -> Vec<u8>;
    /// What is mapped as code: first address, the one after the last, offset in the file, path.
    fn maps(&mut self) -> Vec<(u64, u64, u64, String)>;
}

/// An image with what tests ask of it.
#[derive(Clone)]
pub struct Known {
    pub image: Arc<Image>,
    pub rules: Arc<UnwindRules>,
    pub symbols: Arc<SymbolTable>,
}

/// Images by path, read once.
#[derive(Default)]
pub struct Images(HashMap<String, Option<Known>>);

impl Images {
    /// The modules of `machine` as they are now, with their images.
    pub fn modules(&mut self, machine: &mut dyn Machine) -> Vec<(Module, Known)> {
        let mut modules = Vec::new();
        for (start, end, offset, path) in machine.maps() {
            let known = self.0.entry(path.clone()).or_insert_with(|| {
                let image = Arc::new(Image::open(Path::new(&path)).ok()?);
                Some(Known {
                    rules: Arc::new(UnwindRules::of(&image, None)),
                    symbols: Arc::new(SymbolTable::from_image(&image)),
                    image,
                })
            });
            let Some(known) = known.clone() else { continue };
            let Some(bias) = known.image.segments().bias_of_mapping(start, offset) else {
                continue;
            };
            let module = Module {
                start,
                end,
                bias,
                rules: Arc::clone(&known.rules),
                image: Some(Arc::clone(&known.image)),
            };
            modules.push((module, known));
        }
        modules
    }
}
