//! An image of the guest, as far as a recorder needs it: the addresses that it covers, its build-id, and pieces of its
//! text to compare with the guest's memory.
//!
//! The file's offsets are not trusted. Source: System V ABI, chapter 5 ("Program Loading").

use crate::elf::{self, PF_X, PT_LOAD, build_id, symbols};
use crate::sys::open;
use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use uprof::cold::{Code, Contents, MappedFile, Mapping, ModuleEvent};
use uprof::cpu::is_kernel_address;
use uprof::image::lowest_page;
use uprof::placement::{self, Agreement, ImageText};

/// An image that the user gave for a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenImage {
    /// Path of the file.
    pub path: PathBuf,
    /// The address at which its lowest page is loaded, if the user gave it.
    pub address: Option<u64>,
}

impl GivenImage {
    /// See [`Image::open`].
    ///
    /// # Errors
    /// See there.
    pub fn open(&self) -> Result<Image, ImageError> {
        Image::open(&self.path, self.address)
    }
}

/// As it is given on the command line: `FILE` or `FILE@ADDRESS`.
impl fmt::Display for GivenImage {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}", self.path.display())?;
        self.address
            .map_or(Ok(()), |address| write!(to, "@{address:#x}"))
    }
}

/// Why a file is refused as an image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// It can't be opened.
    #[error("cannot open image {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// An ELF file of class 1.
    #[error(
        "{} is a 32-bit ELF file, whatever its code is: give the 64-bit one that it was made from with --elf \
         (of 64-bit code, objcopy -I elf32-i386 -O elf64-x86-64 FILE NEW makes one; 32-bit code can't be \
         sampled)",
        .0.display()
    )]
    Elf32(PathBuf),
    /// A raw arm64 kernel.
    #[error(
        "{} is a raw arm64 image, which has no symbols; give the ELF file that it was made from with --elf \
         (Linux needs none where its memory can be read; behind a stub alone, give the report, with \
         --symbols, what the guest has as /proc/kallsyms)",
        .0.display()
    )]
    RawArm64(PathBuf),
    /// Its program headers can't be read.
    #[error(
        "{} is not a 64-bit ELF image; give the uncompressed one with --elf (Linux's vmlinuz: to the report)",
        .0.display()
    )]
    NotElf64(PathBuf),
}

/// An ELF image.
#[derive(Debug)]
pub struct Image {
    /// Path of the file.
    pub path: PathBuf,
    /// The open file; another one may have its path by now.
    file: File,
    build_id: Vec<u8>,
    /// Identifies an image that has no build-id.
    mapped: Option<MappedFile>,
    segments: Vec<Segment>,
    /// Whether the user gave its address.
    has_address: bool,
    /// Load bias: how far the image was moved from its link-time address, in bytes.
    moved_by: u64,
}

/// Number of addresses of an image that are compared at once.
pub const PROBES: usize = 16;

/// Number of matching pieces that are sufficient, even before all pieces have come.
const ENOUGH_PIECES: usize = 16;

/// A piece of the image that is loaded.
#[derive(Debug, Clone, Copy)]
struct Segment {
    address: u64,
    memory_bytes: u64,
    file_bytes: u64,
    offset: u64,
    executable: bool,
}

impl Image {
    /// Reads the program headers of the ELF file at `path`. `at` is the address at which its lowest page is loaded,
    /// if the user gave it.
    ///
    /// # Errors
    /// Says why the file is refused.
    pub fn open(path: &Path, at: Option<u64>) -> Result<Self, ImageError> {
        let path = path.to_owned();
        let file = match open::at(&path) {
            Ok(file) => file,
            Err(source) => return Err(ImageError::Open { path, source }),
        };
        let Some(mut segments) = read_segments(&file) else {
            return Err(match () {
                () if is_elf32(&file) => ImageError::Elf32(path),
                () if is_raw_arm64(&file) => ImageError::RawArm64(path),
                () => ImageError::NotElf64(path),
            });
        };
        let moved_by = at.map_or(0, |at| at.wrapping_sub(lowest_of(&segments).unwrap_or(0)));
        for segment in &mut segments {
            segment.address = segment.address.wrapping_add(moved_by);
        }
        let build_id = build_id::of_elf(&file).unwrap_or_default();
        let mapped = || {
            let contents = Contents::of(file.metadata().ok()?.len(), &file).ok()?;
            Some(MappedFile::anywhere(Some(contents)))
        };
        Ok(Image {
            path,
            mapped: if build_id.is_empty() { mapped() } else { None },
            build_id,
            file,
            segments,
            has_address: at.is_some(),
            moved_by,
        })
    }

    /// Load bias of its stated address, in bytes.
    pub fn moved_by(&self) -> u64 {
        self.moved_by
    }

    /// Its build-id, empty if it has none.
    pub fn build_id(&self) -> &[u8] {
        &self.build_id
    }

    /// The same image, loaded so that the code at file offset `offset` is at `address`; unmoved if no code is there.
    pub fn with_code_at(mut self, address: u64, offset: u64) -> Self {
        let is_there = |segment: &&Segment| {
            segment.executable && offset.wrapping_sub(segment.offset) < segment.file_bytes
        };
        if let Some(segment) = self.segments.iter().find(is_there) {
            let linked = segment.address.wrapping_add(offset - segment.offset);
            let moved = address.wrapping_sub(linked);
            for segment in &mut self.segments {
                segment.address = segment.address.wrapping_add(moved);
            }
            self.moved_by = self.moved_by.wrapping_add(moved);
            self.has_address = true;
        }
        self
    }

    /// The functions with one of these names: the index of the name, and the address of the code.
    pub fn functions(&self, names: &[String]) -> Vec<(usize, u64)> {
        let found = symbols::functions(&|into, at| self.file.read_exact_at(into, at), names);
        let moved = found.into_iter();
        let moved = moved.map(|(index, address)| (index, address.wrapping_add(self.moved_by)));
        moved
            .filter(|(_, address)| self.text_at(*address, 1).is_some())
            .collect()
    }

    /// The addresses of the functions with this name, where the image says that it is.
    pub fn ranges(&self, name: &str) -> impl Iterator<Item = Range<u64>> {
        let read = |into: &mut [u8], at| self.file.read_exact_at(into, at);
        let found = symbols::ranges(&read, &[name.to_owned()]).into_iter();
        let moved_by = self.moved_by;
        found.map(move |(_, code)| {
            code.start.wrapping_add(moved_by)..code.end.wrapping_add(moved_by)
        })
    }

    /// Whether the guest's code shows this image at its stated address. Until the `last` code has come, this is true
    /// only if it is certain.
    #[cold]
    pub fn is_there(&self, code: &[Code], last: bool) -> bool {
        let agreement = self.agreement(code);
        let is_unseen = agreement.compared() == 0 && (self.has_address || code.is_empty());
        last && is_unseen || self.shows(agreement, last)
    }

    /// Whether the code of one address space shows this image. Without evidence the answer is no, since another
    /// address space may have the image.
    #[cold]
    pub fn is_seen(&self, code: &[Code], last: bool) -> bool {
        self.shows(self.agreement(code), last)
    }

    fn shows(&self, agreement: Agreement, last: bool) -> bool {
        let least = if last { 1 } else { ENOUGH_PIECES };
        agreement.same >= least && !placement::contradicts(self, agreement)
    }

    /// How well code matches the image at its stated address.
    fn agreement(&self, code: &[Code]) -> Agreement {
        placement::agreement(self, self.moved_by, code)
    }

    /// Whether it is in the kernel's half of the address space.
    pub fn is_in_upper_half(&self) -> bool {
        self.lowest_page().is_some_and(is_kernel_address)
    }

    /// The image's executable segments as modules of address space `space`.
    pub fn module_events(&self, time_ns: u64, space: u32) -> Vec<ModuleEvent> {
        let segments = self.segments.iter().filter(|segment| segment.executable);
        segments
            .map(|segment| Mapping {
                start: segment.address,
                length: segment.memory_bytes,
                file_offset: segment.offset,
                path: self.path.display().to_string(),
                build_id: self.build_id.clone(),
                file: self.mapped,
            })
            .map(|mapping| ModuleEvent::mapped(time_ns, space, mapping))
            .collect()
    }

    /// Whether it may run at another address than its link-time address: it is position-independent, or a kernel of the
    /// upper half, which may be relocated at boot.
    pub fn may_move(&self) -> bool {
        let low = self.segments.iter().map(|segment| segment.address).min();
        low.is_none_or(|low| low == 0 || is_kernel_address(low))
    }

    /// Addresses spread evenly over the largest executable segment.
    pub fn probes(&self) -> impl Iterator<Item = u64> {
        let executable = self.segments.iter().filter(|segment| segment.executable);
        let text = executable.max_by_key(|segment| segment.file_bytes);
        let (start, bytes) = text.map_or((0, 0), |text| (text.address, text.file_bytes));
        (0..PROBES as u64).map(move |index| start.wrapping_add(bytes / PROBES as u64 * index))
    }

    /// The page where its lowest segment begins.
    pub fn lowest_page(&self) -> Option<u64> {
        lowest_of(&self.segments)
    }

    /// At most `most` bytes of the image's text from `address` on; `None` if there is no text.
    pub fn text_at(&self, address: u64, most: usize) -> Option<Vec<u8>> {
        let segment = self.segments.iter().find(|segment| {
            segment.executable && address.wrapping_sub(segment.address) < segment.file_bytes
        })?;
        let into = address - segment.address;
        let wanted = (segment.file_bytes - into).min(most as u64) as usize;
        let mut bytes = vec![0; wanted];
        self.file
            .read_exact_at(&mut bytes, segment.offset.checked_add(into)?)
            .ok()?;
        Some(bytes)
    }
}

/// Addresses are those that the image was linked at, whatever load address the user gave.
impl ImageText for Image {
    fn parts(&self) -> Vec<(u64, u64)> {
        let code = self.segments.iter().filter(|segment| segment.executable);
        code.map(|segment| {
            let linked = segment.address.wrapping_sub(self.moved_by);
            (linked, segment.file_bytes)
        })
        .collect()
    }

    fn code_at(&self, address: u64, length_bytes: u64) -> Option<Cow<'_, [u8]>> {
        let length_bytes = usize::try_from(length_bytes).ok()?;
        let text = self.text_at(address.wrapping_add(self.moved_by), length_bytes)?;
        (text.len() == length_bytes).then_some(Cow::Owned(text))
    }

    fn lowest_page(&self) -> Option<u64> {
        let page = Image::lowest_page(self)?;
        Some(page.wrapping_sub(self.moved_by))
    }

    /// Kernels patch their own code.
    fn may_be_patched(&self) -> bool {
        self.is_in_upper_half()
    }
}

fn lowest_of(segments: &[Segment]) -> Option<u64> {
    let stated = segments.iter();
    lowest_page(stated.map(|segment| (segment.address, segment.executable)))
}

/// Whether it is an ELF file of class 1.
fn is_elf32(file: &File) -> bool {
    let mut start = [0; 5];
    file.read_exact_at(&mut start, 0).is_ok() && start == *b"\x7fELF\x01"
}

/// Whether it is a raw arm64 kernel (Linux, Documentation/arm64/booting.rst), the only kind that Xen for arm64 loads.
fn is_raw_arm64(file: &File) -> bool {
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, 56).is_ok() && magic == *b"ARM\x64"
}

fn read_segments(file: &File) -> Option<Vec<Segment>> {
    let mut segments = Vec::new();
    let mut magic = [0; 6];
    file.read_exact_at(&mut magic, 0).ok()?;
    if !elf::is_wide(&magic) {
        return None;
    }
    for header in elf::read(&|into, at| file.read_exact_at(into, at))? {
        let header = header?;
        if header.kind == PT_LOAD {
            segments.push(Segment {
                address: header.address,
                memory_bytes: header.memory_bytes,
                file_bytes: header.file_bytes,
                offset: header.offset,
                executable: header.flags & PF_X != 0,
            });
        }
    }
    Some(segments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::cold::ModuleChange;

    #[test]
    fn our_own_program_is_an_image() {
        let path = std::env::current_exe().unwrap();
        let image = Image::open(&path, None).unwrap();
        let events = image.module_events(5, 0);
        let ModuleChange::Mapped(mapping) = &events[0].what else {
            panic!("an executable segment is mapped");
        };
        let text = image.text_at(mapping.start, 16).unwrap();
        assert_eq!(text.len(), 16);
        assert_eq!(image.text_at(mapping.start + mapping.length, 16), None);
    }

    /// The recorder must not place an image by a weaker rule than the report: the report would refuse it.
    #[test]
    fn an_image_whose_code_differs_at_one_of_three_places_is_not_there() {
        let image = Image::open(&std::env::current_exe().unwrap(), None).unwrap();
        let codes = |others: usize| -> Vec<Code> {
            let probes = image.probes().skip(1).take(15).enumerate();
            let seen = probes.map(|(number, address)| {
                let mut bytes = image.text_at(address, Code::PIECE_BYTES).unwrap();
                if number < others {
                    bytes.reverse();
                }
                Code {
                    time_ns: 0,
                    space: 0,
                    address,
                    bytes,
                }
            });
            seen.collect()
        };
        for (others, is_there) in [(0, true), (2, true), (5, false), (15, false)] {
            assert_eq!(image.is_there(&codes(others), true), is_there, "{others}");
            assert_eq!(image.is_seen(&codes(others), true), is_there, "{others}");
        }
        assert!(image.is_there(&[], true) && !image.is_seen(&[], true));
        assert!(!image.is_there(&codes(0)[..5], false), "more may come");
    }

    #[test]
    fn other_files_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let error = || Image::open(&path, None).unwrap_err().to_string();
        assert!(error().contains("cannot open"));
        std::fs::write(&path, b"\x7fELF\x02\x01 and nothing more").unwrap();
        assert!(error().contains("not a 64-bit ELF"));
        std::fs::write(&path, b"\x7fELF\x01\x01 and a kernel for PVH").unwrap();
        let narrow = error();
        assert!(narrow.contains("is a 32-bit ELF file") && narrow.contains("objcopy"));
        let mut raw = [0; 64];
        raw[56..60].copy_from_slice(b"ARM\x64");
        std::fs::write(&path, raw).unwrap();
        assert!(error().contains("a raw arm64 image"));
    }
}
