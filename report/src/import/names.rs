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
    /// Images in each half: programs', then kernels'.
    images: [BTreeMap<String, ImportedImage>; 2],
}

impl Names {
    /// The address of `offset` bytes into the function `name` of `image`, which is a kernel's or a program's.
    pub(crate) fn address(&mut self, image: &str, name: &str, offset: u64, kernel: bool) -> u64 {
        let half = usize::from(kernel);
        let images = &mut self.images[half];
        let count = images.len() as u64;
        let is_full = count >= IMAGES_MAX - 1 && !images.contains_key(image);
        let image = if is_full { OTHERS[half] } else { image };
        if !images.contains_key(image) {
            let begun = ImportedImage {
                start: if kernel { KERNEL } else { USER } + count * IMAGE_BYTES,
                ..ImportedImage::default()
            };
            images.insert(image.to_owned(), begun);
        }
        let Some(image) = images.get_mut(image) else {
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
        let [programs, kernels] = self.images;
        let unnamed = [(programs, "[imported]"), (kernels, "[kernel: imported]")];
        let images = unnamed
            .into_iter()
            .flat_map(|(images, unnamed)| images.into_iter().map(move |image| (unnamed, image)));
        for (unnamed, (path, image)) in images {
            let path = if path.is_empty() {
                unnamed.to_owned()
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
            .map(|image| names.address(image, image, 0, image.starts_with('[')))
            .collect();
        assert_eq!(
            names.images.each_ref().map(BTreeMap::len),
            [IMAGES_MAX as usize; 2]
        );
        assert_eq!(
            names.address(&images[99], &images[99], 0, false),
            addresses[99]
        );
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), images.len());
        let images = names.images.iter().flat_map(BTreeMap::values);
        let mut starts: Vec<u64> = images.map(|image| image.start).collect();
        starts.sort();
        starts.dedup();
        assert_eq!(starts.len(), 2 * IMAGES_MAX as usize);
    }
}
