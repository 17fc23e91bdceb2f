//! A program is stepped instruction by instruction, which shows its true callers. Each call adds a caller. It
//! is removed when the stack pointer passes it or a return goes to it. At each step, the unwinder gets only
//! the registers and the bytes from the stack pointer up, and its frames are compared with these callers.

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

/// Pins this process and the child `id` to one processor, so that neither waits for the other's to wake up.
fn pin(id: u32) {
    let mut here = CpuSet::new();
    here.set(0).unwrap();
    // This is only for speed. If it isn't allowed, the test runs as usual.
    let _ = sched_setaffinity(Pid::from_raw(id as i32), &here);
    let _ = sched_setaffinity(Pid::from_raw(0), &here);
}

/// A machine that can be stepped.
pub trait Machine {
    /// Executes one instruction. `None`: the program ended. `Some(true)`: a signal handler was entered
    /// instead.
    fn step(&mut self) -> Option<bool>;
    /// The registers by DWARF number: exactly those of a recorded process.
    fn registers(&mut self) -> Registers;
    /// The bytes from the address `from` to the end of the stack.
    fn stack(&mut self, from: u64) -> &[u8];
    /// Up to sixteen bytes of code.
    fn code(&mut self, at: u64) -> Vec<u8>;
    /// The mappings of code: first address, end address, offset in the file, path.
    fn maps(&mut self) -> Vec<(u64, u64, u64, String)>;
}

/// An image, with what the tests need of it.
#[derive(Clone)]
pub struct Known {
    pub image: Arc<Image>,
    pub rules: Arc<UnwindRules>,
    pub symbols: Arc<SymbolTable>,
}

/// Images by path, each read once.
#[derive(Default)]
pub struct Images(HashMap<String, Option<Known>>);

impl Images {
    /// The current modules of `machine`, with their images.
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
