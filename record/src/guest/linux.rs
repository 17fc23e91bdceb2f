//! Linux guests: reads the kernel's tables from the guest's memory, and records as much of them as samples need.
//!
//! Input: a guest, read once before sampling begins, while it runs; then samples. Output: samples whose chains are
//! walked by the kernel's own unwind rules, the names of its functions as parts of an image (format-spec.md, section
//! 7), and the page tables of each process. The guest is not trusted: inconsistent tables are not taken for a kernel.

mod marks;
pub(crate) mod memory;
pub mod orc;
mod processes;
mod decompressor;
pub mod later;

use crate::elf::build_id;
use crate::guest::addresses::Addresses;
use crate::guest::page_tables::Roots;
use crate::source::plan::LEAF_STACK_BYTES;
use crate::source::slot::Slot;
use crate::source::{SourceError, StopWorld};
use crate::sys::clock::monotonic_ns;
use memory::{GuestKernel, IMAGES};
use processes::{Places, Process};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;
use uniprof_linux::{KERNEL_PATH, Kernel, KernelMemory};
use uprof::cold::{GUEST_KERNEL_PATH, Mapping, ModuleEvent};
use uprof::cpu::{LAST_PAGE, is_kernel_address};
use uprof::{Arch, Frame, ImageIdentity, ImagePart, RawStack, Sample, Stop, Symbol};

/// Attempts to find a kernel. More than one is needed, as the process may end whose page tables are being read.
const ATTEMPTS: u32 = 8;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(3);

/// Attempts to find a vCPU in the kernel, if page tables of processes map little of it (page-table isolation). They are
/// made before the first sample, and between samples. They end after `HIDDEN_NS`, however slow each freeze is, so that
/// a recording takes hardly longer than the user asked for.
const KERNEL_ATTEMPTS: u32 = 200;
const KERNEL_ATTEMPTS_BETWEEN: u32 = 20;
const HIDDEN_NS: u64 = 800_000_000;
const MOST_NOTES_BYTES: u64 = 64 << 10;
/// Largest stack of the kernel (THREAD_SIZE and IRQ_STACK_SIZE of Linux).
pub const STACK_BYTES: usize = 16 << 10;

/// Most bytes of a kernel stack from `sp` on. Stacks in the kernel's image begin at multiples of their size and are
/// followed by other data; behind all other stacks there is no memory.
pub fn stack_bytes(sp: u64, most: usize) -> usize {
    if sp >= IMAGES {
        most.min(STACK_BYTES - (sp as usize & (STACK_BYTES - 1)))
    } else {
        most
    }
}

/// Where the interrupted stack continues. The last word of an interrupt stack, whose `bytes` were read from `sp` on,
/// is the interrupted stack pointer.
pub fn interrupted_stack(sp: u64, bytes: &[u8]) -> Option<u64> {
    let word = u64::from_le_bytes(*bytes.last_chunk()?);
    let is_other = word.wrapping_sub(sp) > bytes.len() as u64;
    (is_kernel_address(word) && word.is_multiple_of(8) && is_other && word < LAST_PAGE)
        .then_some(word)
}

/// The kernel of a guest, and those of its functions that are recorded.
pub struct Linux {
    /// Number of the guest's boot.
    boot: u32,
    /// Start of its code in its table. A kernel that comes back at another address keeps the table of its first boot.
    base: u64,
    arch: Arch,
    kernel: Kernel,
    build_id: Vec<u8>,
    /// Path of its image in the recording.
    path: &'static str,
    facts: KernelFacts,
    /// Whether stack bytes serve only for walks and are not recorded.
    only_walks: bool,
    most_frames: usize,
    walked: Vec<Frame>,
    sampled: Addresses,
    recorded: HashSet<u64>,
    /// Processes by the physical address of the page-table root.
    processes: HashMap<u64, Process>,
    /// Whether they may have second roots.
    has_second: bool,
}

/// Address at which kernels for x86-64 are linked, by default.
const LINKED: u64 = IMAGES + (16 << 20);

/// Facts about a guest's kernel, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFacts {
    /// Its version text.
    pub banner: String,
    /// Number of its symbols.
    pub symbols: usize,
    /// Number of its unwind rules.
    pub rules: usize,
    /// Number of processes whose page tables are known.
    pub processes: usize,
    /// Bytes of guest memory that were read for these facts.
    pub read_bytes: u64,
    /// How long reading took, while the guest ran.
    pub took_ns: u64,
}

/// Why the tables of a kernel are not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotUnderstood(pub &'static str);

/// The reason why a kernel was not read.
#[derive(Debug)]
pub enum NotRead {
    /// It seems to be Linux, but its tables are not understood.
    NotUnderstood(NotUnderstood),
    /// At each look a process was running whose page tables hide most of a kernel. A later look may find it.
    Hidden,
    /// The guest can't be paused or resumed.
    Failed(SourceError),
}

/// Finds and reads the guest's kernel, if it is Linux.
///
/// # Errors
/// Says why its kernel was not read.
#[cold]
pub fn read(source: &mut dyn StopWorld) -> Result<Option<Linux>, NotRead> {
    read_with(source, KERNEL_ATTEMPTS)
}

#[cold]
fn read_with(source: &mut dyn StopWorld, kernel_attempts: u32) -> Result<Option<Linux>, NotRead> {
    // Reading 10 MiB through a stub takes too long.
    if !source.reads_running() {
        return Ok(None);
    }
    let start_ns = monotonic_ns();
    let mut memory = GuestKernel::of(source, start_ns);
    let mut why = None;
    let mut attempts = 0;
    let may_wait = || monotonic_ns() - start_ns < HIDDEN_NS;
    while attempts < ATTEMPTS || (attempts < kernel_attempts && memory.is_hidden() && may_wait()) {
        attempts += 1;
        if let Some(kernel) = memory.find_kernel(attempts > ATTEMPTS, &mut why) {
            let mut linux = Linux::of(kernel, &mut memory);
            linux.find_processes(&mut memory);
            linux.facts.read_bytes = memory.read_bytes;
            linux.facts.took_ns = monotonic_ns() - start_ns;
            return Ok(Some(linux));
        }
        if memory.is_over() {
            break;
        }
        std::thread::sleep(BETWEEN_ATTEMPTS);
    }
    if let Some(error) = memory.failed.take() {
        return Err(NotRead::Failed(error));
    }
    let why = match why {
        _ if memory.is_over() => "it takes too long to read",
        Some(why) => why,
        None if memory.is_hidden() => return Err(NotRead::Hidden),
        None => return Ok(None),
    };
    // Other guests have memory there, too, and digits in a row.
    if memory.says_linux() {
        Err(NotRead::NotUnderstood(NotUnderstood(why)))
    } else {
        Ok(None)
    }
}

impl Linux {
    fn of(mut kernel: Kernel, memory: &mut GuestKernel<'_>) -> Linux {
        marks::complete(memory, &mut kernel);
        let mut text = [0; 256];
        let read = kernel
            .marks
            .banner
            .map_or(0, |at| memory.read(at, &mut text));
        let line = text[..read]
            .split(|byte| *byte < 32)
            .next()
            .unwrap_or_default();
        let notes = kernel.marks.notes.as_ref().and_then(|notes| {
            let length = notes.end.checked_sub(notes.start)?.min(MOST_NOTES_BYTES);
            memory.bytes(notes.start, length as usize)
        });
        Linux {
            build_id: notes
                .and_then(|notes| build_id::of_notes(&notes))
                .unwrap_or_default(),
            facts: KernelFacts {
                banner: String::from_utf8_lossy(line).into_owned(),
                symbols: kernel.kallsyms.len(),
                rules: kernel.orc.as_ref().map_or(0, |orc| orc.len()),
                processes: 0,
                read_bytes: 0,
                took_ns: 0,
            },
            arch: memory.arch,
            path: KERNEL_PATH,
            boot: 0,
            base: kernel.text.start,
            kernel,
            only_walks: false,
            most_frames: 0,
            walked: Vec::new(),
            sampled: Addresses::default(),
            recorded: HashSet::new(),
            processes: HashMap::new(),
            has_second: false,
        }
    }

    /// The same kernel, for this boot.
    fn of_boot(self, boot: u32) -> Linux {
        Linux { boot, ..self }
    }

    /// The same kernel, for the recording of processes of which one runs it in a guest: in that guest's address space.
    /// All guests with the same build share one table. `None` if the build isn't known.
    pub fn of_guest(self, space: u32) -> Option<Linux> {
        let linux = Linux {
            boot: space,
            base: LINKED,
            path: GUEST_KERNEL_PATH,
            ..self
        };
        (!linux.build_id.is_empty()).then_some(linux)
    }

    /// The address of the notes with its build-id.
    pub fn notes(&self) -> Option<u64> {
        self.kernel.marks.notes.as_ref().map(|notes| notes.start)
    }

    /// Where its code is.
    pub fn text(&self) -> &Range<u64> {
        &self.kernel.text
    }

    /// Number of the guest's boot that it belongs to.
    pub fn boot(&self) -> u32 {
        self.boot
    }

    /// Makes it a kernel of the same recording as `other`, which is of an earlier boot. It gets the same settings, and
    /// the same table of names if it is the same build. Returns whether both can be in the recording.
    pub fn join(&mut self, other: &Linux) -> bool {
        (self.most_frames, self.only_walks) = (other.most_frames, other.only_walks);
        let is_same = if other.build_id.is_empty() {
            self.facts.banner == other.facts.banner
        } else {
            self.build_id == other.build_id
        };
        if is_same {
            self.base = other.base;
            self.recorded.clone_from(&other.recorded);
        }
        // Tables are distinguished by build-ids.
        is_same || !self.build_id.is_empty()
    }

    /// Finds the page tables of the current processes.
    fn find_processes(&mut self, memory: &mut GuestKernel<'_>) {
        let Some(places) = Places::find(memory, &self.kernel.marks) else {
            return;
        };
        for process in places.processes(memory) {
            if let Some(root) = memory.physical(process.tables) {
                self.processes.entry(root).or_insert(process);
            }
        }
        self.has_second = has_second(&self.processes, self.arch);
        self.facts.processes = self.processes.len();
    }

    /// Takes the processes of `later`, the same kernel as it was read again.
    pub fn add_processes(&mut self, later: Linux) {
        self.processes.extend(later.processes);
        self.has_second = has_second(&self.processes, self.arch);
    }

    /// Whether its first process executes a program. Before, helpers of the kernel may have come and gone.
    fn runs_init(&self) -> bool {
        let mut processes = self.processes.values();
        processes.any(|process| process.pid == 1 && !process.name.starts_with("swapper"))
    }

    /// The process whose page tables begin at `root`, by number and name.
    pub fn process_of(&self, root: u64) -> Option<(u32, &str)> {
        let process = find_process(&self.processes, self.has_second, root)?;
        Some((process.pid, process.name.as_str()))
    }

    /// The functions with one of these names: the index of the name, and the address.
    pub fn functions(&self, names: &[String]) -> Vec<(usize, u64)> {
        let mut found = Vec::new();
        self.kernel.kallsyms.each(|address, symbol| {
            if matches!(symbol.kind, 't' | 'T' | 'w' | 'W') {
                let index = names.iter().position(|name| *name == symbol.name);
                found.extend(index.map(|index| (index, address)));
            }
        });
        found
    }

    /// The code of the functions with one of these names: the index of the name, and the addresses.
    pub fn code_of(&self, names: &[String]) -> Vec<(usize, Range<u64>)> {
        let found = self.functions(names).into_iter();
        let code = found.filter_map(|(index, address)| {
            let function = self.kernel.kallsyms.function(address)?;
            Some((index, address..function.end))
        });
        code.collect()
    }

    /// Facts about it.
    pub fn facts(&self) -> KernelFacts {
        self.facts.clone()
    }

    /// Whether it has the rules to walk stacks.
    pub fn walks_stacks(&self) -> bool {
        self.kernel.orc.is_some()
    }

    /// Sets the longest chain, and how many stack bytes are recorded.
    pub fn prepare(&mut self, most_frames: usize, kept_bytes: u32) {
        self.most_frames = most_frames;
        self.only_walks = self.walks_stacks() && kept_bytes <= LEAF_STACK_BYTES;
    }

    /// The kernel's code as a module of its boot.
    pub fn module_event(&self, time_ns: u64) -> ModuleEvent {
        let text = &self.kernel.text;
        let mapping = Mapping {
            start: text.start,
            length: text.end - text.start,
            // In the first boot, addresses are looked up unchanged.
            file_offset: if self.boot == 0 { 0 } else { self.base },
            path: self.path.into(),
            build_id: self.build_id.clone(),
            file: None,
        };
        ModuleEvent::mapped(time_ns, self.boot, mapping)
    }

    /// The sample in `slot`. Its chain is walked by the kernel's own rules if the vCPU was in the kernel.
    pub fn sample<'a>(&'a mut self, slot: &'a Slot) -> Sample<'a> {
        let mut sample = slot.sample();
        let ip = self.arch.special_registers().ip;
        let is_kernel = slot.registers.get(ip).is_some_and(is_kernel_address);
        // A guest may come back with another kernel, or at another address.
        let is_ours = is_kernel && slot.task.space == self.boot;
        // Bytes copied while the vCPU ran on are not a consistent stack.
        let is_walked = self.most_frames > 0 && slot.stop != Stop::Moved;
        let is_whole = is_ours && is_walked;
        if let Some(orc) = self.kernel.orc.as_ref().filter(|_| is_whole) {
            let stacks = [slot.stack(), slot.beyond()];
            let stop = orc::walk(
                orc,
                &slot.registers,
                stacks,
                self.most_frames,
                &mut self.walked,
            );
            // If there was no time to copy the stack, the rules are not at fault.
            let is_cut = slot.stop == Stop::Budget && stop == Stop::Window;
            sample.stop = if is_cut { Stop::Budget } else { stop };
            sample.chain = &self.walked;
        }
        if is_kernel && self.only_walks {
            let is_walked = is_ours && (sample.stop == Stop::Complete || sample.chain.len() > 1);
            sample.stack = sample.stack.filter(|_| !is_walked).map(|stack| RawStack {
                bytes: &stack.bytes[..stack.bytes.len().min(LEAF_STACK_BYTES as usize)],
                ..stack
            });
        }
        for frame in sample.chain.iter().filter(|_| is_ours) {
            let address = frame.lookup_address();
            if self.kernel.text.contains(&address) {
                self.sampled.add(address);
            }
        }
        sample
    }

    /// Takes addresses that were sampled before it was read.
    pub fn saw(&mut self, addresses: &[u64]) {
        let text = &self.kernel.text;
        let of_text = addresses.iter().filter(|address| text.contains(address));
        of_text.for_each(|address| self.sampled.add(*address));
    }

    /// Names of the functions sampled since the last call; `None` if there are none.
    pub fn part(&mut self) -> Option<ImagePart> {
        let new = self.sampled.take();
        let kallsyms = &self.kernel.kallsyms;
        let functions = new.iter().filter_map(|address| kallsyms.function(*address));
        let text = self.kernel.text.start;
        let mut starts: Vec<u64> = functions.map(|function| function.start).collect();
        starts.retain(|start| self.recorded.insert(start.wrapping_sub(text)));
        if starts.is_empty() {
            return None;
        }
        starts.sort_unstable();
        let mut part = ImagePart::new(ImageIdentity {
            path: self.path.into(),
            build_id: self.build_id.clone(),
            arch: self.arch,
            load_bias: 0,
            origin: "kallsyms of the guest".into(),
        });
        for function in starts.iter().filter_map(|start| kallsyms.function(*start)) {
            part.push(Symbol {
                address: function.start.wrapping_sub(text).wrapping_add(self.base),
                size_bytes: function.end - function.start,
                name: &function.name,
            });
        }
        Some(part)
    }
}

/// Whether processes may have second roots. With page-table isolation a process has two adjacent roots; its own code
/// runs under the second. There is no isolation if some process's first root is where second ones are.
fn has_second(processes: &HashMap<u64, Process>, arch: Arch) -> bool {
    let mut roots = processes.keys();
    arch == Arch::X86_64 && roots.all(|root| root & Roots::SECOND == 0)
}

/// The process whose page tables begin at `root`, its first one or, if processes may have it, its second one.
fn find_process(
    processes: &HashMap<u64, Process>,
    has_second: bool,
    root: u64,
) -> Option<&Process> {
    let first = || processes.get(&(root & !Roots::SECOND));
    processes
        .get(&root)
        .or_else(|| first().filter(|_| has_second))
}

#[cfg(test)]
mod tests;
