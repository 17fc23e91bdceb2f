//! Images: the ELF files that a guest was running. Input: a path or bytes. Output: identity, segments, sections and
//! load bias. Nothing here unwinds or symbolizes; every offset and length in the file is checked before it is used.

mod error;
mod segments;
mod elf32;
mod debugdata;
mod vmlinuz;
mod kernel;
mod symbol_names;
mod stubs;
pub(crate) mod hypercalls;
pub(crate) mod call_frames;
pub(crate) mod symbols;
pub(crate) mod library;
pub(crate) mod locate;
mod assume;
pub mod disassembly;

pub use error::ImageError;
pub use library::{Library, SymbolsError};
pub use segments::Segments;
pub(crate) use stubs::relocations_of;
pub use stubs::{Stub, Stubs, Target};
pub use symbols::{FoundSymbol, Line, LineStore, Lines, SymbolTable, TextError, demangle};
pub use uprof::image::Segment;

use crate::mapped::{Mapped, map, map_named, map_opened};
use kernel::WrittenOver;
use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, SectionHeader};
use object::{LittleEndian, Object, ObjectSection};
use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use uprof::Arch;

/// No section of a sane image is larger when unpacked (bytes).
const SECTION_BYTES_MAX: u64 = 4 << 30;
/// Debug sections pack 3:1 to 20:1. A much higher ratio means a decompression bomb: zlib allows 1032:1.
const UNPACK_RATIO_MAX: u64 = 128;

/// The largest size (bytes) that `packed` may unpack to; no more than `limit`.
fn unpacked_max(packed: &[u8], limit: u64) -> u64 {
    (packed.len() as u64)
        .saturating_mul(UNPACK_RATIO_MAX)
        .min(limit)
}

/// The largest total length of the names of an image's sections, and of the notes that are read, in lengths of its
/// file: hostile sections may all be the same bytes.
const FILE_LENGTHS_MAX: u64 = 4;

/// Linkers write around ten segments; this bounds what a hostile header can make us keep.
const SEGMENTS_MAX: usize = 4096;
/// Most sections with code of an image: a kernel's module has some hundred.
const CODE_SECTIONS_MAX: usize = 4096;
/// Sections that list code to be patched at run time: Linux's and Xen's alternatives, entries of functions for
/// tracers, LLVM's XRay.
const PATCHES: [&str; 4] = [
    ".altinstructions",
    "__mcount_loc",
    "__patchable_function_entries",
    "xray_instr_map",
];

/// An address as the image's own headers state it, before any load bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageAddress(pub u64);

/// The linker's fingerprint of an image, from its `NT_GNU_BUILD_ID` note.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BuildId(pub Vec<u8>);

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[derive(Clone, Debug)]
enum Bytes {
    Mapped(Arc<Mapped>),
    Owned(Arc<[u8]>),
}

/// A section with code: its address and size, and where the file has how much of it.
#[derive(Clone, Copy, Debug)]
struct CodeSection {
    address: u64,
    size_bytes: u64,
    in_file: Option<(u64, u64)>,
}

/// A little-endian ELF file for x86-64, i386 or aarch64, or the one that is packed in a kernel's bzImage.
#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    path: Option<PathBuf>,
    bytes: Bytes,
    arch: Arch,
    build_id: Option<BuildId>,
    segments: Segments,
    position_independent: bool,
    tells_code: OnceLock<bool>,
    has_code: OnceLock<bool>,
    code: OnceLock<Option<Vec<CodeSection>>>,
    written_over: Arc<OnceLock<WrittenOver>>,
    /// The file as it is, if it is one of 32 bits; `bytes` has it with headers of 64.
    narrow: Option<Bytes>,
}

impl Image {
    /// Gives back the memory of what was read of the file, once a table of its contents is made.
    pub(crate) fn release(&self) {
        if let Bytes::Mapped(mapped) = &self.bytes {
            mapped.release();
        }
    }
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Mapped(mapped) => mapped,
            Bytes::Owned(owned) => owned,
        }
    }
}

impl Image {
    /// Opens the ELF file at `path` without reading all of it.
    ///
    /// # Errors
    /// [`ImageError`] if it can't be mapped, isn't ELF, is cut short or of a foreign kind.
    pub fn open(path: &Path) -> Result<Image, ImageError> {
        let mapped = map(path)?;
        let name = path.display().to_string();
        Image::parse(name, Some(path.to_owned()), Bytes::Mapped(Arc::new(mapped)))
    }

    /// As [`Image::open`], at a path from a recording or another image, which isn't trusted.
    ///
    /// # Errors
    /// As for [`Image::open`], and if the path is of one of the system's pseudo-files.
    pub(crate) fn open_named(path: &Path) -> Result<Image, ImageError> {
        let mapped = map_named(path)?;
        let name = path.display().to_string();
        Image::parse(name, Some(path.to_owned()), Bytes::Mapped(Arc::new(mapped)))
    }

    /// Takes an open ELF file, which had the path `path` where it was mapped. Its debug files may be beside that; they
    /// are known by what is in them, as another file may have the path by now.
    ///
    /// # Errors
    /// As for [`Image::open`].
    pub(crate) fn from_file(file: &File, path: &str) -> Result<Image, ImageError> {
        let mapped = map_opened(file, Path::new(path))?;
        let place = Some(PathBuf::from(path)).filter(|path| path.is_absolute());
        Image::parse(path.to_owned(), place, Bytes::Mapped(Arc::new(mapped)))
    }

    /// Takes an ELF file from memory; `name` is what messages call it.
    ///
    /// # Errors
    /// [`ImageError`] if it isn't ELF, is cut short or of a foreign kind.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Image, ImageError> {
        Image::parse(name.to_owned(), None, Bytes::Owned(bytes.into()))
    }

    fn parse(name: String, path: Option<PathBuf>, bytes: Bytes) -> Result<Image, ImageError> {
        let data = bytes.get();
        // The payload of a bzImage is an ELF file, never another bzImage, even if it has the marks of one.
        if !data.starts_with(&elf::ELFMAG)
            && let Some(kernel) = vmlinuz::unpack(data)
        {
            let kernel = kernel.and_then(|kernel| {
                let is_elf = kernel.starts_with(&elf::ELFMAG);
                is_elf
                    .then_some(kernel)
                    .ok_or("what is packed in it is no ELF file")
            });
            return match kernel {
                Ok(kernel) => Image::parse(name, path, Bytes::Owned(kernel.into())),
                Err(what) => Err(ImageError::Packed { name, what }),
            };
        }
        let broken = |what: &'static str, source: object::read::Error| ImageError::Broken {
            name: name.clone(),
            what,
            source,
        };
        if !data.starts_with(&elf::ELFMAG) {
            return Err(ImageError::NotElf { name });
        }
        // Class 2 is 64 bits, data 1 is little-endian (ELF gABI, "ELF Identification").
        if data.get(4..6) != Some(&[elf::ELFCLASS64.0, elf::ELFDATA2LSB.0]) {
            if !elf32::is_i386(data) {
                return Err(ImageError::NotElf64 { name });
            }
            let Some(wide) = elf32::widen(data) else {
                return Err(ImageError::Narrow { name });
            };
            let wide = Image::parse(name, path, Bytes::Owned(wide.into()))?;
            return Ok(Image {
                narrow: Some(bytes),
                ..wide
            });
        }
        let file = elf::FileHeader64::<LittleEndian>::parse(data)
            .map_err(|source| broken("its file header", source))?;
        let arch = match file.e_machine.get(LittleEndian) {
            elf::EM_X86_64 => Arch::X86_64,
            elf::EM_AARCH64 => Arch::Aarch64,
            machine => {
                return Err(ImageError::ForeignMachine {
                    name,
                    machine: machine.0,
                });
            }
        };
        let position_independent = file.e_type(LittleEndian) == elf::ET_DYN;
        let headers = file
            .program_headers(LittleEndian, data)
            .map_err(|source| broken("its program headers", source))?;
        let segments = headers
            .iter()
            .filter(|header| header.p_type(LittleEndian) == elf::PT_LOAD)
            .take(SEGMENTS_MAX)
            .map(|header| Segment {
                address: header.p_vaddr(LittleEndian),
                file_offset: header.p_offset(LittleEndian),
                file_bytes: header.p_filesz(LittleEndian),
                memory_bytes: header.p_memsz(LittleEndian),
                has_code: header.p_flags(LittleEndian).contains(elf::PF_X),
            })
            .collect();
        let elf = ElfFile64::<LittleEndian>::parse(data)
            .map_err(|source| broken("its section headers", source))?;
        if has_endless_names(&elf) {
            return Err(ImageError::EndlessNames { name });
        }
        // An image with damaged notes is still an image, but can't be identified.
        let build_id = build_id_of(&elf);
        Ok(Image {
            name,
            path,
            bytes,
            arch,
            build_id,
            segments: Segments(segments),
            position_independent,
            tells_code: OnceLock::new(),
            has_code: OnceLock::new(),
            code: OnceLock::new(),
            written_over: Arc::default(),
            narrow: None,
        })
    }

    /// Whether it is for processors with registers of 32 bits.
    pub(crate) fn is_narrow(&self) -> bool {
        self.narrow.is_some()
    }

    /// Whether the file has the instructions that ran: not if it is a debug file without code, or if it says that its
    /// code is patched at run time, as a kernel's is.
    pub(crate) fn tells_code(&self) -> bool {
        *self.tells_code.get_or_init(|| {
            let Some(elf) = self.elf() else {
                return false;
            };
            let is_patched = PATCHES
                .iter()
                .any(|name| elf.section_by_name(name).is_some());
            self.has_code() && !is_patched
        })
    }

    /// Whether it has code: a debug file doesn't.
    pub(crate) fn has_code(&self) -> bool {
        *self.has_code.get_or_init(|| {
            self.elf().is_some_and(|elf| {
                elf.sections().next().is_none()
                    || elf.sections().any(|section| {
                        let is_text = section.kind() == object::SectionKind::Text;
                        is_text && section.file_range().is_some_and(|(_, bytes)| bytes > 0)
                    })
            })
        })
    }

    /// Whether the file says that its byte at `address` is patched at run time, as in a kernel.
    pub(crate) fn is_written_over(&self, address: ImageAddress) -> bool {
        let places = self.written_over.get_or_init(|| WrittenOver::of(self));
        places.contains(address.0)
    }

    /// Its name for messages: its path, or the name it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file it came from, if it came from one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The processor its code is for.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Its build-id, if the linker wrote one.
    pub fn build_id(&self) -> Option<&BuildId> {
        self.build_id.as_ref()
    }

    /// Its loadable segments in file order.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Whether the loader may put it anywhere (a library, a PIE).
    pub(crate) fn is_position_independent(&self) -> bool {
        self.position_independent
    }

    /// The image.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get()
    }

    /// The file that it is of, which its contents identify.
    pub(crate) fn file_bytes(&self) -> &[u8] {
        self.narrow.as_ref().unwrap_or(&self.bytes).get()
    }

    /// The file, parsed again; cheap, since only its headers are read.
    pub(crate) fn elf(&self) -> Option<ElfFile64<'_, LittleEndian>> {
        // `parse` has accepted the same bytes; a mapping that changed since then gives `None`.
        ElfFile64::parse(self.bytes()).ok()
    }

    /// The bytes of the section called `name`, unpacked if they are compressed.
    ///
    /// `None` if there is no such section, if it has no bytes in the file, or if it is damaged or
    /// claims a size that its packed bytes don't justify.
    pub fn section(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let elf = self.elf()?;
        let section = elf.section_by_name(name)?;
        let packed = section.compressed_data().ok()?;
        let allowed = unpacked_max(packed.data, SECTION_BYTES_MAX);
        let is_packed = packed.format != object::CompressionFormat::None;
        if is_packed && packed.uncompressed_size > allowed {
            return None;
        }
        packed.decompress().ok()
    }

    /// Where the file has the bytes of the section called `name`, compressed or not.
    pub(crate) fn section_in_file(&self, name: &str) -> Option<Range<usize>> {
        let elf = self.elf()?;
        let (start, length_bytes) = elf.section_by_name(name)?.file_range()?;
        let end = start.checked_add(length_bytes)?;
        Some(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }

    /// The address and the length (bytes) of the section called `name`, as loaded.
    pub fn section_range(&self, name: &str) -> Option<(ImageAddress, u64)> {
        let elf = self.elf()?;
        let section = elf.section_by_name(name)?;
        Some((ImageAddress(section.address()), section.size()))
    }

    /// The file's bytes for `length_bytes` at `address`, if one segment has them all.
    pub fn bytes_at(&self, address: ImageAddress, length_bytes: u64) -> Option<&[u8]> {
        let segment = self.segments.iter().find(|segment| {
            let into = address.0.wrapping_sub(segment.address);
            into < segment.file_bytes && length_bytes <= segment.file_bytes - into
        })?;
        let start = segment
            .file_offset
            .checked_add(address.0.wrapping_sub(segment.address))?;
        let end = start.checked_add(length_bytes)?;
        self.bytes()
            .get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }

    /// The code in the file from `address` on: at most `most_bytes`, up to the end of its section, or, in a file
    /// without sections, of its segment.
    ///
    /// `None` if there is none: in a debug file the headers claim code, but the sections are empty.
    pub fn code_at(&self, address: ImageAddress, most_bytes: u64) -> Option<&[u8]> {
        let into = |start: u64| address.0.wrapping_sub(start);
        let Some(sections) = self.code_sections() else {
            let segment = self
                .segments
                .iter()
                .find(|segment| into(segment.address) < segment.file_bytes)?;
            let left_bytes = segment.file_bytes - into(segment.address);
            return self.bytes_at(address, left_bytes.min(most_bytes));
        };
        let mut sections = sections.iter();
        let section = sections.find(|section| into(section.address) < section.size_bytes)?;
        let (offset, file_bytes) = section.in_file?;
        let into = into(section.address);
        let start = offset.checked_add(into)?;
        let end = start.checked_add(file_bytes.checked_sub(into)?.min(most_bytes))?;
        self.bytes()
            .get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }

    /// The sections with code, in the order of the file; `None` if it has no sections at all. They are searched for
    /// each address.
    fn code_sections(&self) -> Option<&[CodeSection]> {
        let sections = self.code.get_or_init(|| {
            let elf = self.elf()?;
            elf.sections().next()?;
            let sections = elf.sections().filter(|section| {
                let flags = section.elf_section_header().sh_flags.get(LittleEndian);
                flags.contains(elf::SHF_EXECINSTR)
            });
            let sections = sections.map(|section| CodeSection {
                address: section.address(),
                size_bytes: section.size(),
                in_file: section.file_range(),
            });
            Some(sections.take(CODE_SECTIONS_MAX).collect())
        });
        sections.as_deref()
    }
}

/// Whether the names of sections are too long together to look for one by its name.
fn has_endless_names(elf: &ElfFile64<'_, LittleEndian>) -> bool {
    let (data, sections) = (elf.data(), elf.elf_section_table());
    let table = elf.elf_header().section_strings_index(LittleEndian, data);
    let table = table.and_then(|index| sections.section(index));
    // The end of a name that has none is looked for in the whole table.
    let table_bytes = table.map_or(0, |table| table.sh_size(LittleEndian));
    let names = sections.iter().map(|section| {
        let name = sections.section_name(LittleEndian, section);
        name.map_or(table_bytes, |name| name.len() as u64)
    });
    let mut left_bytes = (data.len() as u64).saturating_mul(FILE_LENGTHS_MAX);
    for name_bytes in names {
        let Some(left) = left_bytes.checked_sub(name_bytes) else {
            return true;
        };
        left_bytes = left;
    }
    false
}

/// The build-id among the notes of sections, or of segments if there are no sections.
fn build_id_of(elf: &ElfFile64<'_, LittleEndian>) -> Option<BuildId> {
    let (data, sections) = (elf.data(), elf.elf_section_table());
    let of_sections = sections.iter().map(|section| {
        let notes = section.notes(LittleEndian, data);
        (notes, section.sh_size(LittleEndian))
    });
    let segments = elf.elf_program_headers().iter();
    let segments = segments.filter(|_| sections.is_empty());
    let of_segments = segments.map(|segment| {
        let notes = segment.notes(LittleEndian, data);
        (notes, segment.p_filesz(LittleEndian))
    });
    let mut left_bytes = (data.len() as u64).saturating_mul(FILE_LENGTHS_MAX);
    for (notes, notes_bytes) in of_sections.chain(of_segments) {
        let Some(mut notes) = notes.ok()? else {
            continue;
        };
        left_bytes = left_bytes.checked_sub(notes_bytes)?;
        while let Some(note) = notes.next().ok()? {
            let kind = note.n_type(LittleEndian);
            if note.name() == elf::ELF_NOTE_GNU && kind == elf::NT_GNU_BUILD_ID {
                return Some(BuildId(note.desc().to_vec()));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_image() -> Image {
        Image::open(&std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn this_test_program_is_an_image() {
        let image = own_image();
        assert!(!image.segments().is_empty());
        assert!(image.section(".text").is_some_and(|text| !text.is_empty()));
        let (address, length_bytes) = image.section_range(".text").unwrap();
        assert!(image.segments().is_code(address));
        let text = image.bytes_at(address, length_bytes).unwrap();
        assert_eq!(text, &*image.section(".text").unwrap());
        assert!(image.bytes_at(address, u64::MAX).is_none());
    }

    #[test]
    fn what_is_not_an_image_is_named() {
        let not_elf = Image::from_bytes("a.txt", b"hello".to_vec()).unwrap_err();
        assert!(matches!(not_elf, ImageError::NotElf { .. }));
        let mut header = own_image().bytes()[..64].to_vec();
        header[4] = 1;
        let narrow = Image::from_bytes("b", header.clone()).unwrap_err();
        assert!(matches!(narrow, ImageError::NotElf64 { .. }));
        header[18] = 3;
        let narrow = Image::from_bytes("b", header.clone()).unwrap_err();
        assert!(matches!(narrow, ImageError::Narrow { .. }), "{narrow}");
        header[4] = 2;
        header[18] = 8;
        let mips = Image::from_bytes("c", header).unwrap_err();
        assert!(matches!(
            mips,
            ImageError::ForeignMachine { machine: 8, .. }
        ));
    }

    /// What is packed in a bzImage may have the marks of another one, again and again.
    #[test]
    fn an_elf_file_is_never_unpacked_as_a_kernel() {
        let mut both = own_image().bytes().to_vec();
        both[0x202..0x208].copy_from_slice(b"HdrS\x0f\x02");
        assert!(Image::from_bytes("both", both).is_ok());
    }

    /// An ELF file with this content, and sections by name, type, and range in the content. The first one has their
    /// names.
    fn with_sections(content: &[u8], sections: &[(u32, u32, Range<usize>)]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        // ET_DYN, EM_X86_64.
        bytes[16..24].copy_from_slice(&[3, 0, 62, 0, 1, 0, 0, 0]);
        bytes[40..48].copy_from_slice(&(64 + content.len() as u64).to_le_bytes());
        bytes[52..58].copy_from_slice(&[64, 0, 56, 0, 0, 0]);
        let count = u8::try_from(sections.len() + 1).unwrap();
        bytes[58..64].copy_from_slice(&[64, 0, count, 0, 1, 0]);
        bytes.extend(content);
        bytes.extend([0; 64]);
        for (name, kind, range) in sections {
            bytes.extend((u64::from(*kind) << 32 | u64::from(*name)).to_le_bytes());
            let (start, length) = (64 + range.start as u64, range.len() as u64);
            for word in [0, 0, start, length, 0, 4, 0] {
                bytes.extend(word.to_le_bytes());
            }
        }
        bytes
    }

    #[test]
    fn notes_that_are_in_many_sections_are_read_as_often_as_the_file_is_long() {
        let mut content = vec![0; 8];
        for (name, kind) in [(&b""[..], 7_u32), (&b"GNU\0"[..], 3)] {
            let header = [name.len() as u32, 1000, kind].map(u32::to_le_bytes);
            content.extend(header.concat());
            content.extend(name);
            content.extend([5; 1000]);
        }
        let build_id = |sections: usize| {
            let mut all = vec![(0, 3, 0..8)];
            all.extend((0..sections).map(|_| (0, 7, 8..1020)));
            all.push((0, 7, 1020..content.len()));
            let image = Image::from_bytes("notes", with_sections(&content, &all)).unwrap();
            image.build_id().map(|id| id.0.len())
        };
        assert_eq!(build_id(2), Some(1000));
        assert_eq!(build_id(50), None);
    }

    #[test]
    fn sections_that_all_have_one_long_name_are_refused() {
        let content = [&[0][..], &[b'n'; 10_000], &[0]].concat();
        let opened = |sections: usize| {
            let mut all = vec![(0, 3, 0..content.len())];
            all.extend((0..sections).map(|_| (1, 1, 0..8)));
            Image::from_bytes("names", with_sections(&content, &all))
        };
        assert!(opened(2).is_ok());
        let refused = opened(20).unwrap_err();
        let is_it = matches!(refused, ImageError::EndlessNames { .. });
        assert!(is_it, "{refused}");
    }

    #[test]
    fn every_cut_of_the_headers_is_an_error_or_an_image() {
        let whole = own_image().bytes().to_vec();
        for length_bytes in 0..2048.min(whole.len()) {
            let _ = Image::from_bytes("cut", whole[..length_bytes].to_vec());
        }
    }
}
