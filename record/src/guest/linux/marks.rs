//! Finds data in a kernel's memory that its symbol table doesn't name. Without CONFIG_KALLSYMS_ALL, as in Debian's
//! kernels for arm64, that table has functions alone. Input: the memory; nothing in it is trusted. Output: [`Marks`].
//!
//! The order in a kernel is: symbols, notes, types (include/asm-generic/vmlinux.lds.h of Linux), and the first task,
//! where writable data begins.

use std::ops::Range;
use uniprof_linux::{Kernel, KernelMemory, Marks, find_bytes};

/// Memory behind the symbols that is searched for types, and behind the types for the first task.
const MOST_SEARCHED_BYTES: u64 = 32 << 20;
/// Memory before the types that is searched for notes.
const MOST_NOTES_BYTES: u64 = 4096;
/// First bytes of BTF: magic number, version, flags, length of the header.
const TYPES: &[u8; 8] = b"\x9f\xeb\x01\x00\x18\x00\x00\x00";
const TYPES_HEADER_BYTES: u64 = 24;
/// First bytes of a note with a build-id of 20 bytes.
const BUILD_ID: &[u8; 16] = b"\x04\x00\x00\x00\x14\x00\x00\x00\x03\x00\x00\x00GNU\0";
/// The name of the first processor's idle task, which is the first of all.
const FIRST_TASK: &[u8; 16] = b"swapper/0\0\0\0\0\0\0\0";

/// Finds the types and notes of `kernel` if its symbols don't name them.
#[cold]
pub fn complete(memory: &mut dyn KernelMemory, kernel: &mut Kernel) {
    find_unnamed(memory, kernel.symbols, &mut kernel.marks);
}

fn find_unnamed(memory: &mut dyn KernelMemory, symbols: u64, marks: &mut Marks) {
    if marks.types.is_none() {
        let behind = symbols..symbols.saturating_add(MOST_SEARCHED_BYTES);
        find_bytes(memory, behind, TYPES, &mut |memory, at| {
            marks.types = types_at(memory, at);
            marks.types.is_some()
        });
    }
    if let (None, Some(end)) = (&marks.notes, marks.types.as_ref().map(|types| types.start)) {
        let before = end.saturating_sub(MOST_NOTES_BYTES)..end;
        find_bytes(memory, before, BUILD_ID, &mut |_, at| {
            marks.notes = Some(at..end);
            false // the last one
        });
    }
}

/// The extent of the BTF at `at`, if its header shows one.
fn types_at(memory: &mut dyn KernelMemory, at: u64) -> Option<Range<u64>> {
    let header = memory.bytes(at, TYPES_HEADER_BYTES as usize)?;
    let (words, _) = header.as_chunks::<4>();
    let word = |index: usize| u64::from(u32::from_le_bytes(words[index]));
    // Offset and length of types and of names, which follow each other.
    let [types, types_length, names, names_length] = [2, 3, 4, 5].map(word);
    let is_sound = types == 0 && types_length > 0 && names == types_length && names_length > 0;
    let end = at.checked_add(TYPES_HEADER_BYTES + names + names_length)?;
    is_sound.then_some(at..end)
}

/// The kernel's first task, given the offsets in a task of its `name` and of its link to others (`tasks`).
#[cold]
pub fn first_task(
    memory: &mut dyn KernelMemory,
    marks: &Marks,
    name: u64,
    tasks: u64,
) -> Option<u64> {
    let start = marks.types.as_ref()?.end;
    let behind = start..start.saturating_add(MOST_SEARCHED_BYTES);
    let mut first = None;
    find_bytes(memory, behind, FIRST_TASK, &mut |memory, at| {
        let link = at.wrapping_sub(name).wrapping_add(tasks);
        let mut word = |at: u64| {
            let mut word = [0; 8];
            (memory.read(at, &mut word) == 8).then(|| u64::from_le_bytes(word))
        };
        // The next task links back.
        let back = word(link).and_then(|next| word(next.wrapping_add(8)));
        first = (back == Some(link)).then(|| at.wrapping_sub(name));
        first.is_some()
    });
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::cpu::KERNEL_HALF;

    /// Memory that begins at an address and holds these bytes.
    struct Made(u64, Vec<u8>);

    impl Made {
        fn put(&mut self, at: u64, bytes: &[u8]) {
            let at = (at - self.0) as usize;
            self.1[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    impl KernelMemory for Made {
        fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
            let at = address.wrapping_sub(self.0) as usize;
            let rest = self.1.get(at..).unwrap_or_default();
            let count = rest.len().min(into.len());
            into[..count].copy_from_slice(&rest[..count]);
            count
        }
    }

    const START: u64 = KERNEL_HALF | 0x10_0000;

    fn header(numbers: [u32; 4]) -> Vec<u8> {
        [&TYPES[..], &numbers.map(u32::to_le_bytes).concat()].concat()
    }

    #[test]
    fn types_and_notes_are_found_behind_the_symbols() {
        let mut memory = Made(START, vec![0; 0x4000]);
        let mut marks = Marks::default();
        find_unnamed(&mut memory, START, &mut marks);
        assert_eq!(marks, Marks::default());
        memory.put(START + 0x100, BUILD_ID); // too far away
        memory.put(START + 0x1f00, BUILD_ID); // belongs to other data
        memory.put(START + 0x1f80, BUILD_ID);
        memory.put(START + 0x1fb0, &header([0, 16, 8, 16])); // no types
        memory.put(START + 0x1fd0, &header([0, 16, 16, 9]));
        find_unnamed(&mut memory, START, &mut marks);
        let types = START + 0x1fd0..START + 0x1fd0 + 24 + 16 + 9;
        assert_eq!(marks.notes, Some(START + 0x1f80..types.start));
        assert_eq!(marks.types, Some(types));
        // Symbols take precedence.
        let named = Marks {
            notes: Some(1..2),
            types: Some(3..4),
            ..Marks::default()
        };
        let mut marks = named.clone();
        find_unnamed(&mut memory, START, &mut marks);
        assert_eq!(marks, named);
    }

    #[test]
    fn the_first_task_is_one_that_another_leads_back_to() {
        let marks = Marks {
            types: Some(START..START + 0x100),
            ..Marks::default()
        };
        let mut memory = Made(START, vec![0; 0x4000]);
        let (name, tasks) = (0x80, 0x20);
        for task in [0x800, 0x1000, 0x2000] {
            memory.put(START + task + name, FIRST_TASK);
        }
        assert_eq!(first_task(&mut memory, &marks, name, tasks), None);
        let (link, next) = (START + 0x1000 + tasks, START + 0x3000 + tasks);
        memory.put(link, &next.to_le_bytes());
        memory.put(next + 8, &link.to_le_bytes());
        let found = first_task(&mut memory, &marks, name, tasks);
        assert_eq!(found, Some(START + 0x1000));
    }
}
