//! Tables embedded in a recording, which replace an image: segments, symbols, lines and unwind rules of the sampled
//! addresses. `bundle` writes them; every report reads them. Their encoding is in `uprof::image`.

mod lines;

pub use lines::LineTable;

use crate::images::symbols::SymbolTable;
use crate::images::{Image, ImageError, Segments};
use crate::recording::{PlacedPart, Recording};
use crate::unwind::{RuleTable, UnwindRules};
use std::collections::BTreeMap;
use std::sync::Arc;
use uprof::Fault;
use uprof::image::{ImageIdentity, ImagePart, Section};

/// A recording's tables of one image.
#[derive(Debug)]
pub struct Embedded {
    /// Which image.
    pub identity: ImageIdentity,
    /// Its segments; empty if not recorded.
    pub segments: Segments,
    /// Its functions.
    pub symbols: SymbolTable,
    /// Lines and inlined functions.
    pub lines: LineTable,
    /// Unwind rules; empty if not recorded.
    pub rules: Arc<UnwindRules>,
    /// The whole image, if it wasn't a file that could be found later.
    pub image: Option<Arc<Image>>,
}

/// Why a section can't be used.
#[derive(Debug, thiserror::Error)]
enum Damaged {
    #[error(transparent)]
    Section(#[from] Fault),
    #[error("section file: {0}")]
    Image(#[from] ImageError),
}

impl Embedded {
    /// The images of `recording`, by path. Sections that can't be read are left out, with `warnings`.
    pub fn of(recording: &Recording, warnings: &mut Vec<String>) -> Vec<Embedded> {
        let mut images: BTreeMap<(&str, &[u8], u64), Vec<&PlacedPart>> = BTreeMap::new();
        for placed in recording.images() {
            let identity = &placed.part.identity;
            let key = (
                &identity.path[..],
                &identity.build_id[..],
                identity.load_bias,
            );
            images.entry(key).or_default().push(placed);
        }
        images
            .into_values()
            .map(|parts| Embedded::join(&parts, warnings))
            .collect()
    }

    fn join(parts: &[&PlacedPart], warnings: &mut Vec<String>) -> Embedded {
        let identity = parts[0].part.identity.clone();
        let symbols = parts.iter().flat_map(|placed| placed.part.symbols());
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
        for PlacedPart { place, part } in parts {
            for section in part.sections() {
                let taken = section.map_err(Damaged::from);
                if let Err(what) = taken.and_then(|section| embedded.take(section)) {
                    let path = &part.identity.path;
                    warnings.push(format!(
                        "the embedded tables of {path} are damaged: {place}: {what}"
                    ));
                }
            }
        }
        embedded
    }

    fn take(&mut self, section: Section<'_>) -> Result<(), Damaged> {
        match section {
            Section::Segments(segments) => {
                let (_, most) = segments.size_hint();
                let mut all = Vec::with_capacity(most.unwrap_or(0));
                for segment in segments {
                    all.push(segment?);
                }
                self.segments = Segments(all);
            }
            Section::Lines(lines) => self.lines.add(lines)?,
            Section::Rules(rules) => self.rules = Arc::new(RuleTable::stored(rules)?.into()),
            Section::File(bytes) => {
                let image = Image::from_bytes(&self.identity.path, bytes.to_vec())?;
                self.image = Some(Arc::new(image));
            }
        }
        Ok(())
    }

    /// The parts of this image, for a recording.
    pub fn parts(&self) -> Vec<ImagePart> {
        let mut part = ImagePart::new(self.identity.clone());
        let mut parts = Vec::new();
        part.set_segments(self.segments.iter().copied());
        self.lines.store(&mut part);
        self.rules.table().store(&mut part);
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
