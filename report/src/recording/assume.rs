//! Where the images given by hand are in a guest whose recording doesn't say, or says it of another
//! place (KASLR): at the load address given, or where a symbol that is in the image and in a list of
//! the guest's own symbols tells, or where they were linked.

use super::Recording;
use crate::images::Image;
use crate::library::Library;
use crate::symbols::SymbolTable;
use uprof::cold::{Mapping, TargetKind};

/// Symbols that tell the bias: at fixed places in kernels and unikernels.
const LANDMARKS: [&str; 5] = ["_text", "_stext", "_start", "start_kernel", "main"];
/// Images are moved by whole pages.
const PAGE_BYTES: u64 = 4096;

impl Recording {
    /// Adds mappings of the images in `library` that were given by hand, if this is a guest's
    /// recording that has none, or if the library knows better where they are.
    pub fn assume_images(&mut self, library: &Library) {
        if self.metadata.target.kind == TargetKind::Process {
            return;
        }
        for image in library.given() {
            let moved = bias(image, library);
            if !self.spaces.is_empty() && moved.unwrap_or(0) == 0 {
                continue;
            }
            let code = image.segments().iter().filter(|segment| segment.executable);
            for segment in code {
                let mapping = Mapping {
                    start: segment.address.0.wrapping_add(moved.unwrap_or(0)),
                    length: segment.memory_bytes,
                    file_offset: segment.file_offset,
                    path: image.name().to_owned(),
                    build_id: image.build_id().map(|id| id.0.clone()).unwrap_or_default(),
                    file: None,
                };
                self.spaces.assume(0, &mapping);
            }
        }
    }
}

/// How far `image` was moved, if the library tells.
fn bias(image: &Image, library: &Library) -> Option<u64> {
    if let Some(address) = library.load_address {
        return image.segments().bias_of_load_address(address);
    }
    if library.texts().is_empty() {
        return None;
    }
    let own = SymbolTable::from_image(image);
    LANDMARKS.into_iter().find_map(|name| {
        let stated = own.address_of(name)?;
        let real = library
            .texts()
            .iter()
            .find_map(|text| text.address_of(name))?;
        let bias = real.0.wrapping_sub(stated.0);
        (bias % PAGE_BYTES == 0).then_some(bias)
    })
}
