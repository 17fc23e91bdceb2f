//! Translates guest-virtual addresses to guest frames by the guest's own page tables.
//!
//! Input: a vCPU's translation registers and a reader of table words. Output: a frame number and an offset in it, or
//! the reason why there is none. A walk reads at most five words, whatever the tables contain. Frame numbers are the
//! guest's: machine frames of a Xen PV guest, guest frames of any other. Sources: Intel SDM volume 3, chapter 4
//! ("Paging"); Arm Architecture Reference Manual, chapter D8 ("The AArch64 Virtual Memory System Architecture").

mod search;

use uprof::Arch;
use uprof::cpu::{aarch64, is_kernel_address};

/// Reads words of the guest's memory by frame.
pub trait TableReader {
    /// Word `index` (0 to 511) of `frame`, or `None` if that is not the guest's memory.
    fn table_word(&mut self, frame: u64, index: usize) -> Option<u64>;
}

/// Reads memory of the guest by frame. Words of tables are read like any other bytes.
pub trait FrameReader {
    /// Reads memory inside one page; returns whether all of it is there.
    fn read_frame(&mut self, at: FrameAddress, into: &mut [u8]) -> bool;
}

impl<Memory: FrameReader> TableReader for Memory {
    fn table_word(&mut self, frame: u64, index: usize) -> Option<u64> {
        let offset = index * 8;
        let mut word = [0; 8];
        self.read_frame(FrameAddress { frame, offset }, &mut word)
            .then(|| u64::from_le_bytes(word))
    }
}

/// How a vCPU currently translates addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paging {
    /// No translation: addresses are physical.
    Off,
    /// x86-64 with four or five levels.
    X86_64 {
        /// Frame of the top table.
        root: u64,
        /// 4 or 5.
        levels: u8,
    },
    /// AArch64, stage 1 of EL1 and EL0.
    Aarch64 {
        /// Table for the lower half of the address space.
        ttbr0: u64,
        /// Table for the upper half.
        ttbr1: u64,
        /// TCR_EL1: sizes and granules of both halves.
        tcr: u64,
    },
    /// A mode that is not translated here (32-bit paging).
    Unsupported,
}

/// A position in the guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameAddress {
    /// Frame number.
    pub frame: u64,
    /// Byte in the frame, below 4096.
    pub offset: usize,
}

impl FrameAddress {
    /// Its physical address; `None` if the frame number of a table exceeds all addresses.
    pub fn physical(self) -> Option<u64> {
        let frame = self.frame.checked_mul(4096)?;
        Some(frame + self.offset as u64)
    }

    fn of_physical(address: u64) -> Self {
        FrameAddress {
            frame: address >> 12,
            offset: (address & 0xfff) as usize,
        }
    }
}

/// The reason why an address has no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmapped {
    /// Not a canonical address.
    NotCanonical,
    /// A table entry is not present.
    NotPresent,
    /// A table is outside the guest's memory.
    TableOutside,
    /// The vCPU's paging mode is not supported.
    Mode,
}

const PAGE_BYTES: usize = 4096;
const PRESENT: u64 = 1;
const X86_LARGE: u64 = 1 << 7;
/// Bits 12 to 51: the address in an x86-64 entry or CR3.
const X86_ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Bits 12 to 47: the address in an AArch64 descriptor.
const ARM_ADDRESS: u64 = 0x0000_ffff_ffff_f000;
/// Bits 6 to 47: the address in TTBR0_EL1. The tables may have any size.
const ARM_ROOT: u64 = 0x0000_ffff_ffff_ffc0;
const ARM_TABLE_OR_PAGE: u64 = 1 << 1;

const CR0_PAGING: u64 = 1 << 31;
const CR4_PHYSICAL_ADDRESS_EXTENSION: u64 = 1 << 5;
const CR4_FIVE_LEVELS: u64 = 1 << 12;
const SCTLR_MMU: u64 = 1;
const EFER_LONG_MODE_ACTIVE: u64 = 1 << 10;

impl Paging {
    /// The mode of an x86-64 vCPU with these control registers; `long_mode` is EFER.LMA.
    pub fn of_x86_64(cr0: u64, cr3: u64, cr4: u64, long_mode: bool) -> Self {
        if cr0 & CR0_PAGING == 0 {
            return Paging::Off;
        }
        if !long_mode || cr4 & CR4_PHYSICAL_ADDRESS_EXTENSION == 0 {
            return Paging::Unsupported;
        }
        Paging::X86_64 {
            root: (cr3 & X86_ADDRESS) >> 12,
            levels: if cr4 & CR4_FIVE_LEVELS != 0 { 5 } else { 4 },
        }
    }

    /// The mode of an AArch64 vCPU with these system registers of EL1.
    pub fn of_aarch64(sctlr: u64, ttbr0: u64, ttbr1: u64, tcr: u64) -> Self {
        match sctlr & SCTLR_MMU {
            0 => Paging::Off,
            _ => Paging::Aarch64 { ttbr0, ttbr1, tcr },
        }
    }

    /// The mode by a stub's registers: CR0, CR3, CR4 and EFER, or SCTLR_EL1, TTBR0_EL1, TTBR1_EL1 and TCR_EL1.
    pub fn of_registers(arch: Arch, [first, second, third, fourth]: [u64; 4]) -> Self {
        match arch {
            Arch::X86_64 => {
                let is_long = fourth & EFER_LONG_MODE_ACTIVE != 0;
                Paging::of_x86_64(first, second, third, is_long)
            }
            Arch::Aarch64 => Paging::of_aarch64(first, second, third, fourth),
        }
    }

    /// The root of the tables, which identifies the address space, without the other fields of its register. On AArch64
    /// it is the root of the lower half, as the upper half is the kernel's.
    pub fn root(&self) -> Option<u64> {
        match *self {
            Paging::X86_64 { root, .. } => Some(root << 12),
            Paging::Aarch64 { ttbr0, .. } => Some(ttbr0 & ARM_ROOT),
            Paging::Off | Paging::Unsupported => None,
        }
    }

    /// Reads memory from `address` upwards; returns the number of bytes before the first missing one.
    pub fn read(&self, memory: &mut impl FrameReader, address: u64, into: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < into.len() {
            let at = address.wrapping_add(filled as u64);
            let Ok(place) = self.translate(memory, at) else {
                break;
            };
            let length = (PAGE_BYTES - place.offset).min(into.len() - filled);
            if !memory.read_frame(place, &mut into[filled..filled + length]) {
                break;
            }
            filled += length;
        }
        filled
    }

    /// Translates one address.
    pub fn translate(
        &self,
        memory: &mut impl TableReader,
        address: u64,
    ) -> Result<FrameAddress, Unmapped> {
        match *self {
            Paging::Off => Ok(FrameAddress::of_physical(address)),
            Paging::X86_64 { root, levels } => translate_x86_64(memory, root, levels, address),
            Paging::Aarch64 { ttbr0, ttbr1, tcr } => {
                translate_aarch64(memory, [ttbr0, ttbr1], tcr, address)
            }
            Paging::Unsupported => Err(Unmapped::Mode),
        }
    }
}

/// The position of an address in a page or block of 2^`bits` bytes.
fn inside_block(base: u64, address: u64, bits: u32) -> FrameAddress {
    let mask = (1u64 << bits) - 1;
    FrameAddress::of_physical(base & !mask | address & mask)
}

fn translate_x86_64(
    memory: &mut impl TableReader,
    root: u64,
    levels: u8,
    address: u64,
) -> Result<FrameAddress, Unmapped> {
    let unused_bits = 64 - 12 - 9 * u32::from(levels);
    if ((address << unused_bits) as i64 >> unused_bits) as u64 != address {
        return Err(Unmapped::NotCanonical);
    }
    let mut frame = root;
    for level in (0..u32::from(levels)).rev() {
        let shift = 12 + 9 * level;
        let index = (address >> shift) as usize & 511;
        let entry = memory
            .table_word(frame, index)
            .ok_or(Unmapped::TableOutside)?;
        if entry & PRESENT == 0 {
            return Err(Unmapped::NotPresent);
        }
        // Level 0 is the page table; levels 1 and 2 may map 2 MiB and 1 GiB.
        if level == 0 || level <= 2 && entry & X86_LARGE != 0 {
            return Ok(inside_block(entry & X86_ADDRESS, address, shift));
        }
        frame = (entry & X86_ADDRESS) >> 12;
    }
    Err(Unmapped::Mode)
}

/// Distinguishes two roots of one process from roots of two processes, on x86-64 (format-spec.md, section 5.7). A
/// kernel with page-table isolation has a second root for user code, in the page after its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Roots {
    /// Whether user code has run under a root that is not a second one.
    are_single: bool,
}

impl Roots {
    /// The difference between a second root and the first (`PTI_USER_PGTABLE_MASK` of Linux).
    pub(crate) const SECOND: u64 = 1 << 12;

    /// The recorded root of a sample at `ip` under `root`.
    pub fn of(&mut self, root: Option<u64>, ip: Option<u64>) -> Option<u64> {
        let (root, ip) = (root?, ip?);
        self.are_single |= !is_kernel_address(ip) && root & Self::SECOND == 0;
        Some(if self.are_single {
            root
        } else {
            root & !Self::SECOND
        })
    }
}

/// The fields of TCR_EL1 for one half of the address space.
struct Half {
    /// Number of translated bits of an address.
    input_bits: u32,
    /// Whether the top byte is a tag.
    top_byte_ignored: bool,
    /// Number of bits that address a byte in a page; a table has the same size.
    granule_bits: Option<u32>,
    disabled: bool,
}

impl Half {
    fn of(tcr: u64, upper: bool) -> Self {
        let shift = if upper { 16 } else { 0 };
        let granule_bits = match (upper, if upper { tcr >> 30 & 3 } else { tcr >> 14 & 3 }) {
            (false, 0) | (true, 2) => Some(12),
            (false, 2) | (true, 1) => Some(14),
            (false, 1) | (true, 3) => Some(16),
            _ => None,
        };
        Half {
            input_bits: 64 - (tcr >> shift & 0x3f) as u32,
            top_byte_ignored: tcr >> if upper { 38 } else { 37 } & 1 != 0,
            granule_bits,
            disabled: tcr >> (shift + 7) & 1 != 0,
        }
    }

    /// Number of bits that address a byte in a page, and number of levels: one to four.
    fn levels(&self) -> Result<(u32, u32), Unmapped> {
        if self.disabled {
            return Err(Unmapped::NotPresent);
        }
        let granule_bits = self.granule_bits.ok_or(Unmapped::Mode)?;
        // Except with 64 KiB granules, 52-bit addresses have another layout.
        let most_bits = if granule_bits == 16 { 52 } else { 48 };
        if !(25..=most_bits).contains(&self.input_bits) {
            return Err(Unmapped::Mode);
        }
        let levels = (self.input_bits - granule_bits).div_ceil(granule_bits - 3);
        Ok((granule_bits, levels))
    }
}

fn translate_aarch64(
    memory: &mut impl TableReader,
    ttbr: [u64; 2],
    tcr: u64,
    address: u64,
) -> Result<FrameAddress, Unmapped> {
    let upper = aarch64::is_in_upper_half(address);
    let half = Half::of(tcr, upper);
    let (granule_bits, levels) = half.levels()?;
    let address_bits = if half.top_byte_ignored { 56 } else { 64 };
    let top = address << (64 - address_bits) >> (64 - address_bits) >> half.input_bits;
    let all_ones = u64::MAX >> (64 - address_bits) >> half.input_bits;
    if top != if upper { all_ones } else { 0 } {
        return Err(Unmapped::NotCanonical);
    }
    let input = address & (u64::MAX >> (64 - half.input_bits));
    let level_bits = granule_bits - 3;
    // The top table may be smaller than a page and begin inside one.
    let root = ttbr[usize::from(upper)] & 0x0000_ffff_ffff_fffe;
    let mut table = root;
    for level in (0..levels).rev() {
        let shift = granule_bits + level_bits * level;
        let index = if level == levels - 1 {
            input >> shift
        } else {
            input >> shift & ((1 << level_bits) - 1)
        };
        let word = table + index * 8;
        let entry = memory
            .table_word(word >> 12, (word & 0xfff) as usize / 8)
            .ok_or(Unmapped::TableOutside)?;
        match Descriptor::of(entry, level, granule_bits)? {
            Descriptor::Memory(base) => return Ok(inside_block(base, input, shift)),
            Descriptor::Table(next) => table = next,
        }
    }
    Err(Unmapped::Mode)
}

/// An entry of an AArch64 table. Its bits 12 to 47 are an address.
enum Descriptor {
    /// The address of a page or a block.
    Memory(u64),
    /// The address of the table of the next lower level.
    Table(u64),
}

impl Descriptor {
    fn of(entry: u64, level: u32, granule_bits: u32) -> Result<Descriptor, Unmapped> {
        let base = entry & ARM_ADDRESS;
        match (level, entry & ARM_TABLE_OR_PAGE != 0) {
            _ if entry & PRESENT == 0 => Err(Unmapped::NotPresent),
            (0, true) | (1, false) => Ok(Descriptor::Memory(base)),
            (2, false) if granule_bits == 12 => Ok(Descriptor::Memory(base)),
            (_, true) => Ok(Descriptor::Table(base & !((1 << granule_bits) - 1))),
            (_, false) => Err(Unmapped::NotPresent), // reserved encodings fault
        }
    }
}

#[cfg(test)]
mod tests;
