//! Load bias: how far an image was moved from the addresses that its headers state.
//! What is known of the running guest goes in; a wrapping difference comes out.

use super::{Image, ImageAddress};

/// Mappings start at page borders; the smallest page, and the largest base page in use (aarch64).
const PAGE_BYTES: [u64; 2] = [4 << 10, 64 << 10];

impl Image {
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
        let segment = candidates
            .into_iter()
            .find_map(|(executable, page_bytes)| {
                self.segments.iter().find(|segment| {
                    let start = segment.file_offset & !(page_bytes - 1);
                    let end = segment.file_offset.saturating_add(segment.file_bytes);
                    segment.executable == executable && (start..end).contains(&file_offset)
                })
            })?;
        let stated = segment
            .address
            .0
            .wrapping_sub(segment.file_offset)
            .wrapping_add(file_offset);
        Some(mapped_at.wrapping_sub(stated))
    }

    /// The bias of an image whose lowest segment was loaded at `load_address` (`--load-address`).
    /// `None` if it has no segments.
    pub fn bias_of_load_address(&self, load_address: u64) -> Option<u64> {
        let lowest = self
            .segments
            .iter()
            .map(|segment| segment.address.0)
            .min()?;
        Some(load_address.wrapping_sub(lowest & !(PAGE_BYTES[0] - 1)))
    }

    /// The address that byte `file_offset` of the file is meant for, if a segment has it.
    pub fn address_of_offset(&self, file_offset: u64) -> Option<ImageAddress> {
        self.segments.iter().find_map(|segment| {
            let into = file_offset.checked_sub(segment.file_offset)?;
            (into < segment.file_bytes).then(|| ImageAddress(segment.address.0.wrapping_add(into)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let bias = image.bias_of_mapping(start, offset).unwrap();

        let here = Image::bias_of_mapping as fn(&Image, u64, u64) -> Option<u64> as usize as u64;
        let stated = ImageAddress(here.wrapping_sub(bias));
        assert!(image.is_code(stated));
        let found = crate::symbols::SymbolTable::from_image(&image);
        let symbol = found.find(stated).expect("no symbol at a known function");
        assert!(crate::symbols::demangle(symbol.name).contains("bias_of_mapping"));
    }

    #[test]
    fn a_load_address_counts_from_the_lowest_segment() {
        let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
        let lowest = image
            .segments()
            .iter()
            .map(|segment| segment.address.0)
            .min()
            .unwrap();
        let bias = image.bias_of_load_address(0xffff_8000_0000_0000).unwrap();
        assert_eq!(lowest.wrapping_add(bias) & !0xfff, 0xffff_8000_0000_0000);
    }
}
