//! Finds the images that the user gave in the recorded code of a guest, so that they become modules.
//!
//! Input: pieces of code, in the order of their times. Output: module events. An image becomes a module only where the
//! guest's code matches its own, whatever address it states.

use crate::elf::Image;
use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use uprof::cold::{Code, FIRST_ROOT_SPACE, ModuleEvent};

/// One boot of a guest.
#[derive(Debug, Clone, Copy)]
pub struct Boot {
    pub began_ns: u64,
    /// The address space that its tasks share.
    pub space: u32,
}

/// The images of a recording, and where they were found. Numbers are indices of `images`.
pub struct Placement {
    images: Arc<[Image]>,
    pub boot: Boot,
    /// Code of all boots, how many pieces belong to earlier ones, and how many are written.
    code: Vec<Code>,
    earlier_code: usize,
    written_code: usize,
    /// Images not found in this boot yet.
    unplaced: Vec<usize>,
    /// Images, with address spaces of this boot in which they were found.
    placed: HashSet<(usize, u32)>,
    /// Images not found in an earlier boot.
    never_placed: Vec<usize>,
}

impl Placement {
    pub fn new(images: Arc<[Image]>, boot: Boot) -> Self {
        Placement {
            boot,
            code: Vec::new(),
            earlier_code: 0,
            written_code: 0,
            unplaced: (0..images.len()).collect(),
            placed: HashSet::new(),
            never_placed: Vec::new(),
            images,
        }
    }

    pub fn add(&mut self, code: Code) {
        self.code.push(code);
    }

    /// Code that was not taken yet.
    pub fn take_code(&mut self) -> &[Code] {
        let from = std::mem::replace(&mut self.written_code, self.code.len());
        &self.code[from..]
    }

    /// Adds the modules that new code shows.
    pub fn place_new(&mut self, modules: &mut Vec<ModuleEvent>) {
        // Placing reads the images' files, and would give the same result without new code.
        if self.code.len() > self.written_code && !self.unplaced.is_empty() {
            self.place(false, modules);
        }
    }

    /// Adds modules at the end of a boot, when less code suffices. In a guest with one address space, an image is
    /// placed in all of it, also for readers that don't know address spaces.
    #[cold]
    pub fn place_last(&mut self, has_one_space: bool, modules: &mut Vec<ModuleEvent>) {
        let spaces = self.place(true, modules);
        let boot = self.boot;
        self.unplaced.retain(|&number| {
            let is_there = self.placed.iter().any(|(placed, _)| *placed == number);
            if is_there && has_one_space && !spaces.is_empty() {
                let image = &self.images[number];
                modules.extend(image.module_events(boot.began_ns, boot.space));
            }
            !is_there
        });
    }

    /// Makes modules of the images that the guest's code shows at their stated addresses: kernels in all address
    /// spaces, other images in those that have their code. Returns the address spaces of the code.
    #[cold]
    fn place(&mut self, last: bool, modules: &mut Vec<ModuleEvent>) -> Vec<u32> {
        let boot = self.boot;
        let code = &self.code[self.earlier_code..];
        let spaces: BTreeSet<u32> = code.iter().map(|code| code.space).collect();
        let roots: Vec<u32> = spaces.range(FIRST_ROOT_SPACE..).copied().collect();
        let of_space = |space| -> Vec<Code> {
            let code = code.iter().filter(|code| code.space == space);
            code.cloned().collect()
        };
        let shared = of_space(boot.space);
        self.unplaced.retain(|&number| {
            let image = &self.images[number];
            if image.is_in_upper_half() || roots.is_empty() {
                // Code of other address spaces alone is no evidence for it.
                let is_there =
                    (!shared.is_empty() || code.is_empty()) && image.is_there(&shared, last);
                if is_there {
                    modules.extend(image.module_events(boot.began_ns, boot.space));
                }
                return !is_there;
            }
            for &space in &roots {
                let is_new = !self.placed.contains(&(number, space));
                if is_new && image.is_seen(&of_space(space), last) {
                    self.placed.insert((number, space));
                    modules.extend(image.module_events(boot.began_ns, space));
                }
            }
            // It may be in further address spaces.
            true
        });
        roots
    }

    /// Begins another boot, in which all images must be found again.
    #[cold]
    pub fn begin(&mut self, boot: Boot, had_one_space: bool, modules: &mut Vec<ModuleEvent>) {
        // The boot's first samples may have come before this call.
        let new = self
            .code
            .partition_point(|code| code.time_ns < boot.began_ns);
        let code = self.code.split_off(new);
        self.place_last(had_one_space, modules);
        self.code.extend(code);
        self.never_placed.append(&mut self.unplaced);
        self.unplaced = (0..self.images.len()).collect();
        self.boot = boot;
        self.earlier_code = new;
        self.placed.clear();
    }

    /// Paths of images that were not found at their stated addresses; known at the end.
    pub fn unplaced(&self) -> Vec<PathBuf> {
        let mut numbers = [&self.never_placed[..], &self.unplaced].concat();
        numbers.sort_unstable();
        numbers.dedup();
        let images = numbers.iter().map(|&number| &self.images[number]);
        images.map(|image| image.path.clone()).collect()
    }
}
