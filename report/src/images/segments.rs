//! Loadable segments. Converts between guest addresses, file offsets and the addresses in the image's headers, also
//! for images of which only the segments are known.

use super::{ImageAddress, Segment};
use std::ops::Deref;
use uprof::image::lowest_page;

/// Mappings start at page boundaries: the smallest page, and the largest base page in use (aarch64).
const PAGE_BYTES: [u64; 2] = [4 << 10, 64 << 10];

/// The segments of one image, in file order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments(pub Vec<Segment>);

impl Deref for Segments {
    type Target = [Segment];

    fn deref(&self) -> &[Segment] {
        &self.0
    }
}

impl Segments {
    /// The bias of an image of which `file_offset` was mapped at `mapped_at`, as in a line of
    /// `/proc/PID/maps` or a perf mmap record. Add it (wrapping) to an [`ImageAddress`].
    ///
    /// Prefers segments that hold code, since neighbouring segments may share a page of the file.
    /// `None` if no segment has bytes there.
    pub fn bias_of_mapping(&self, mapped_at: u64, file_offset: u64) -> Option<u64> {
        let candidates = [
            (true, PAGE_BYTES[0]),
            (true, PAGE_BYTES[1]),
            (false, PAGE_BYTES[0]),
        ];
        let segment = candidates.into_iter().find_map(|(has_code, page_bytes)| {
            self.iter().find(|segment| {
                let start = segment.file_offset & !(page_bytes - 1);
                let end = segment.file_offset.saturating_add(segment.file_bytes);
                segment.has_code == has_code && (start..end).contains(&file_offset)
            })
        })?;
        let stated = segment
            .address
            .wrapping_sub(segment.file_offset)
            .wrapping_add(file_offset);
        Some(mapped_at.wrapping_sub(stated))
    }

    /// The bias of an image whose lowest page was loaded at `load_address` (`--elf FILE@ADDRESS`).
    /// `None` if it has no code.
    pub fn bias_of_load_address(&self, load_address: u64) -> Option<u64> {
        Some(load_address.wrapping_sub(self.lowest_page()?))
    }

    /// The lowest page of the image, as [`uprof::image::lowest_page`] says.
    pub(crate) fn lowest_page(&self) -> Option<u64> {
        let segments = self.iter();
        lowest_page(segments.map(|segment| (segment.address, segment.has_code)))
    }

    /// The address of byte `file_offset` of the file, if a segment has it.
    pub fn address_of_offset(&self, file_offset: u64) -> Option<ImageAddress> {
        self.iter().find_map(|segment| {
            let into = file_offset.checked_sub(segment.file_offset)?;
            (into < segment.file_bytes).then(|| ImageAddress(segment.address.wrapping_add(into)))
        })
    }

    /// The file offset of `address`, if a segment has it.
    pub(crate) fn offset_of_address(&self, address: ImageAddress) -> Option<u64> {
        self.iter().find_map(|segment| {
            let into = address.0.wrapping_sub(segment.address);
            (into < segment.file_bytes).then(|| segment.file_offset.wrapping_add(into))
        })
    }

    /// Whether `address` is in a segment that holds code.
    pub(crate) fn is_code(&self, address: ImageAddress) -> bool {
        self.iter().any(|segment| {
            segment.has_code && address.0.wrapping_sub(segment.address) < segment.memory_bytes
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::images::{Image, ImageAddress};

    /// Every executable mapping of this process, as the kernel lists it, names a place in its
    /// file; the bias found there must take a known function's stated address to where it is.
    #[test]
    fn the_bias_of_this_process_takes_stated_addresses_to_real_ones() {
        let path = std::env::current_exe().unwrap();
        let image = Image::open(&path).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps
            .lines()
            .find(|line| line.contains("r-xp") && line.ends_with(path.to_str().unwrap()))
            .expect("no executable mapping of the test program");
        let fields: Vec<&str> = line.split_whitespace().collect();
        let start = u64::from_str_radix(fields[0].split('-').next().unwrap(), 16).unwrap();
        let offset = u64::from_str_radix(fields[2], 16).unwrap();
        let bias = image.segments().bias_of_mapping(start, offset).unwrap();

        let function = crate::images::symbols::SymbolTable::from_image as fn(&Image) -> _;
        let stated = ImageAddress((function as usize as u64).wrapping_sub(bias));
        assert!(image.segments().is_code(stated));
        let found = crate::images::symbols::SymbolTable::from_image(&image);
        let symbol = found.find(stated).expect("no symbol at a known function");
        assert!(crate::images::symbols::demangle(symbol.name).contains("from_image"));
    }

    #[test]
    fn a_load_address_counts_from_the_lowest_segment() {
        let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
        let lowest = image
            .segments()
            .iter()
            .map(|segment| segment.address)
            .min()
            .unwrap();
        let bias = image
            .segments()
            .bias_of_load_address(0xffff_8000_0000_0000)
            .unwrap();
        assert_eq!(lowest.wrapping_add(bias) & !0xfff, 0xffff_8000_0000_0000);
    }
}
