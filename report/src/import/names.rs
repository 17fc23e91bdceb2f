//! Invented addresses for names. Each image gets a range of addresses, and each of its functions gets a
//! megabyte of it.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use uprof::cold::{Mapping, ModuleEvent};
use uprof::image::{ImageIdentity, ImagePart, Symbol};
use uprof::{Arch, Writer};

const IMAGE_BYTES: u64 = 1 << 40;
const FUNCTION_BYTES: u64 = 1 << 20;
/// Most functions of one image; further ones share the address of the last one.
const FUNCTIONS_MAX: usize = (IMAGE_BYTES / FUNCTION_BYTES) as usize - 1;
/// Start of the images, below and above the border between programs and kernels.
const USER: u64 = 0x1000_0000_0000;
const KERNEL: u64 = 0xffff_8000_0000_0000;
/// Most images of each half; further ones become one, with these names.
const IMAGES_MAX: u64 = 64;
const OTHERS: [&str; 2] = ["[other images]", "[kernel: other images]"];

#[derive(Debug, Default)]
struct ImportedImage {
    start: u64,
    numbers: HashMap<String, usize>,
    names: Vec<String>,
}

/// The names of an import, with their addresses.
#[derive(Debug, Default)]
pub(super) struct Names {
    images: BTreeMap<String, ImportedImage>,
    /// Number of images in each half: programs', then kernels'.
    begun: [u64; 2],
}

impl Names {
    /// The address of `offset` bytes into the function `name` of `image`.
    pub(crate) fn address(&mut self, image: &str, name: &str, offset: u64) -> u64 {
        let kernel = image.starts_with("[kernel") || image.starts_with("[guest.kernel");
        let half = usize::from(kernel);
        let is_full = self.begun[half] >= IMAGES_MAX - 1 && !self.images.contains_key(image);
        let image = if is_full { OTHERS[half] } else { image };
        if !self.images.contains_key(image) {
            let start = if kernel { KERNEL } else { USER } + self.begun[half] * IMAGE_BYTES;
            self.begun[half] += 1;
            let begun = ImportedImage {
                start,
                ..ImportedImage::default()
            };
            self.images.insert(image.to_owned(), begun);
        }
        let Some(image) = self.images.get_mut(image) else {
            return 0;
        };
        let number = match image.numbers.get(name) {
            Some(number) => *number,
            None if image.names.len() >= FUNCTIONS_MAX => FUNCTIONS_MAX - 1,
            None => {
                image.numbers.insert(name.to_owned(), image.names.len());
                image.names.push(name.to_owned());
                image.names.len() - 1
            }
        };
        image.start + number as u64 * FUNCTION_BYTES + offset.min(FUNCTION_BYTES - 1)
    }

    /// Writes the images as modules with their symbols.
    pub(crate) fn write<W: Write>(self, writer: &mut Writer<W>) -> io::Result<()> {
        for (path, image) in self.images {
            let path = if path.is_empty() {
                "[imported]".to_owned()
            } else {
                path
            };
            let mapping = Mapping {
                start: image.start,
                length: image.names.len() as u64 * FUNCTION_BYTES,
                path: path.clone(),
                ..Mapping::default()
            };
            writer.modules(&[ModuleEvent::mapped(0, 0, mapping)])?;
            let identity = ImageIdentity {
                path,
                build_id: Vec::new(),
                arch: Arch::X86_64,
                load_bias: 0,
                origin: "import".to_owned(),
            };
            let mut part = ImagePart::new(identity.clone());
            for (number, name) in image.names.iter().enumerate() {
                let symbol = Symbol {
                    address: image.start + number as u64 * FUNCTION_BYTES,
                    size_bytes: FUNCTION_BYTES,
                    name,
                };
                if !part.push(symbol) {
                    writer.image_part(&part, 0)?;
                    part = ImagePart::new(identity.clone());
                    part.push(symbol);
                }
            }
            writer.image_part(&part, 0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_beyond_the_limit_are_one_and_no_two_share_an_address() {
        let mut names = Names::default();
        let images = (0..100).map(|number| format!("/lib/{number}.so"));
        let images: Vec<String> = images
            .chain((0..100).map(|it| format!("[kernel {it}]")))
            .collect();
        let mut addresses: Vec<u64> = images
            .iter()
            .map(|image| names.address(image, image, 0))
            .collect();
        assert_eq!(names.images.len(), 2 * IMAGES_MAX as usize);
        assert_eq!(names.address(&images[99], &images[99], 0), addresses[99]);
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), images.len());
        let mut starts: Vec<u64> = names.images.values().map(|image| image.start).collect();
        starts.sort();
        starts.dedup();
        assert_eq!(starts.len(), names.images.len());
    }
}
