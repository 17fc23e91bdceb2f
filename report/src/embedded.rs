//! Tables that travel with a recording instead of the image (format-spec.md, section 7): parts of
//! an image go in, and what a report needs of it comes out: segments, symbols, lines and unwind
//! rules. `bundle` writes them, for the addresses that samples have; any report reads them.

mod lines;
mod segments;

pub use lines::LineTable;

use crate::images::{Image, Segments};
use crate::recording::Recording;
use crate::symbols::SymbolTable;
use crate::unwind::RuleTable;
use std::collections::BTreeMap;
use std::sync::Arc;
use uprof::image::{ImageIdentity, ImagePart};
use uprof::layout::ImageSection;

/// What a recording says about one image.
#[derive(Debug)]
pub struct Embedded {
    /// Which image.
    pub identity: ImageIdentity,
    /// Where its parts are loaded; empty if not told.
    pub segments: Segments,
    /// Its functions.
    pub symbols: SymbolTable,
    /// Lines and inlined functions.
    pub lines: LineTable,
    /// Unwind rules; empty if not told.
    pub rules: Arc<RuleTable>,
    /// The whole image, where it was no file that could be found later.
    pub image: Option<Arc<Image>>,
}

impl Embedded {
    /// The images of `recording`, in order of path. Sections that can't be read are left out, and
    /// named in `warnings`.
    pub fn of(recording: &Recording, warnings: &mut Vec<String>) -> Vec<Embedded> {
        let mut images: BTreeMap<(&str, &[u8], u64), Vec<&ImagePart>> = BTreeMap::new();
        for part in recording.images() {
            let identity = &part.identity;
            let key = (
                &identity.path[..],
                &identity.build_id[..],
                identity.load_bias,
            );
            images.entry(key).or_default().push(part);
        }
        images
            .into_values()
            .map(|parts| Embedded::join(&parts, warnings))
            .collect()
    }

    fn join(parts: &[&ImagePart], warnings: &mut Vec<String>) -> Embedded {
        let identity = parts[0].identity.clone();
        let symbols = parts.iter().flat_map(|part| part.symbols());
        let symbols = symbols.map(|symbol| (symbol.address, symbol.size_bytes, symbol.name));
        let symbols = SymbolTable::from_symbols(symbols);
        let mut embedded = Embedded {
            identity,
            segments: Segments::default(),
            symbols,
            lines: LineTable::default(),
            rules: Arc::default(),
            image: None,
        };
        for part in parts {
            let mut keep = |section: ImageSection, take: &mut dyn FnMut(&[u8]) -> Option<()>| {
                let Some(bytes) = part.section(section) else {
                    return;
                };
                if take(bytes).is_none() {
                    let (name, path) = (section.name(), &part.identity.path);
                    warnings.push(format!("the embedded {name} of {path} are damaged"));
                }
            };
            keep(ImageSection::Segments, &mut |bytes| {
                embedded.segments = segments::parse(bytes)?;
                Some(())
            });
            keep(ImageSection::Lines, &mut |bytes| embedded.lines.add(bytes));
            keep(ImageSection::Rules, &mut |bytes| {
                embedded.rules = Arc::new(RuleTable::parse(bytes)?);
                Some(())
            });
            keep(ImageSection::File, &mut |bytes| {
                let image = Image::from_bytes(&part.identity.path, bytes.to_vec());
                embedded.image = Some(Arc::new(image.ok()?));
                Some(())
            });
        }
        embedded
    }

    /// The parts of this image, for a recording.
    pub fn parts(&self) -> Vec<ImagePart> {
        let mut part = ImagePart::new(self.identity.clone());
        let mut parts = Vec::new();
        let mut add = |section: ImageSection, bytes: Vec<u8>| {
            if !bytes.is_empty() {
                part.others.push((u64::from(section.number()), bytes));
            }
        };
        add(ImageSection::Segments, segments::write(&self.segments));
        add(ImageSection::Lines, self.lines.write());
        add(ImageSection::Rules, self.rules.write());
        for (start, end, name) in self.symbols.iter() {
            let symbol = uprof::image::Symbol {
                address: start.0,
                size_bytes: end.0.saturating_sub(start.0),
                name,
            };
            if !part.push(symbol) {
                parts.push(std::mem::replace(
                    &mut part,
                    ImagePart::new(self.identity.clone()),
                ));
                part.push(symbol);
            }
        }
        parts.push(part);
        parts
    }
}
