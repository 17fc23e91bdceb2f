//! Functions of images by their own samples, with the instructions on which these fell. Input: a profile that was
//! gathered by [`By::Place`](super::By::Place), without inlined functions. Output: what code can be found again in
//! another run of the same program: kernel code, code that is in no file, and code without a name is left out.

use crate::images::disassembly::instruction;
use crate::profile::Profile;
use crate::profile::functions::rows;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use uprof::Arch;

/// A function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotFunction {
    /// Its name.
    pub name: String,
    /// The path of its image.
    pub image: String,
    /// Its own samples.
    pub own: u64,
    /// Its own samples by instruction, the offset of which is that in the image's file.
    pub by_offset: BTreeMap<u64, u64>,
}

/// An instruction in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInstruction {
    /// Offset in the file.
    pub offset: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The longest instruction of x86-64, and thereby of all.
const INSTRUCTION_BYTES_MAX: usize = 15;
/// A prefix of x86-64. Code may jump to what is behind it.
const LOCK: u8 = 0xf0;

/// All functions, the one with most own samples first.
pub fn hot_functions(profile: &Profile) -> Vec<HotFunction> {
    let labels = &profile.labels;
    let mut found: BTreeMap<(&str, &str), BTreeMap<u64, u64>> = BTreeMap::new();
    for row in rows(profile).iter().filter(|row| row.own > 0) {
        let label = labels.get(row.label);
        let (name, image) = (labels.text(label.name), labels.text(label.module));
        let is_code = !label.kernel && !label.unknown && !label.made && label.place.is_none();
        if is_code && image.starts_with('/') {
            *found
                .entry((name, image))
                .or_default()
                .entry(label.offset)
                .or_default() += row.own;
        }
    }
    let functions = found.into_iter();
    let mut functions: Vec<HotFunction> = functions
        .map(|((name, image), by_offset)| HotFunction {
            name: name.to_owned(),
            image: image.to_owned(),
            own: by_offset.values().sum(),
            by_offset,
        })
        .collect();
    functions.sort_by_key(|function| std::cmp::Reverse(function.own));
    functions
}

/// Samples with the instruction at this offset of the image's file, in a function of this name, as the innermost frame
/// or as that below what the kernel did for it.
pub fn samples_at(profile: &Profile, function: &HotFunction, offset: u64) -> u64 {
    let labels = &profile.labels;
    let rows = rows(profile);
    let found = rows.iter().filter(|row| {
        let label = labels.get(row.label);
        label.offset == offset
            && !label.is_return
            && labels.text(label.name) == function.name
            && labels.text(label.module) == function.image
    });
    found.map(|row| row.total).sum()
}

impl HotFunction {
    /// The sampled instruction with most samples that has at least `bytes_min` bytes; `None` if there is none.
    ///
    /// # Errors
    /// The image can't be read.
    pub fn hottest_instruction(
        &self,
        arch: Arch,
        bytes_min: usize,
    ) -> io::Result<Option<FileInstruction>> {
        let file = File::open(&self.image)?;
        let mut offsets: Vec<(u64, u64)> = self.by_offset.iter().map(|it| (*it.0, *it.1)).collect();
        offsets.sort_by_key(|(offset, samples)| (std::cmp::Reverse(*samples), *offset));
        for (offset, _) in offsets {
            let mut code = [0; INSTRUCTION_BYTES_MAX];
            let read = file.read_at(&mut code, offset)?;
            let code = &code[..read];
            let length_bytes = instruction(arch, 0, code).length_bytes;
            if length_bytes >= bytes_min && code.first() != Some(&LOCK) {
                let bytes = code[..length_bytes.min(read)].to_vec();
                return Ok(Some(FileInstruction { offset, bytes }));
            }
        }
        Ok(None)
    }
}
