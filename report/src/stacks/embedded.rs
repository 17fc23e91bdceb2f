//! Tables embedded in a recording, which replace an image: segments, symbols, lines and unwind rules of the sampled
//! addresses. `bundle` writes them; every report reads them. Their encoding is in `uprof::image`.

mod lines;

pub use lines::LineTable;

use self::lines::SECTIONS_BYTES_MAX;
use crate::images::symbols::SymbolTable;
use crate::images::{Image, ImageError, Segments};
use crate::recording::{PlacedPart, Recording};
use crate::unwind::{RuleTable, UnwindRules};
use std::collections::BTreeMap;
use std::sync::Arc;
use uprof::Fault;
use uprof::image::{ImageIdentity, ImagePart, MissedCaller, Section};

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
    /// Callers that chains of frame pointers miss, ascending.
    pub callers: Vec<MissedCaller>,
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
            callers: Vec::new(),
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
            Section::Callers(callers) => {
                self.callers = callers.collect::<Result<_, _>>()?;
                // They are searched.
                self.callers.sort_unstable();
                let key = |one: &mut MissedCaller| (one.callee, one.function, one.next);
                self.callers.dedup_by_key(key);
            }
        }
        Ok(())
    }

    /// The parts of this image, for a recording. One is longer than a block may be only if the lines of an address
    /// are, the unwind rules, or a name.
    pub fn parts(&self) -> Vec<ImagePart> {
        let empty = || ImagePart::new(self.identity.clone());
        let mut part = empty();
        let mut parts = Vec::new();
        part.set_segments(self.segments.iter().copied());
        part.set_callers(&self.callers);
        let mut next = self.lines.store(0, &mut part);
        while let Some(address) = next {
            parts.push(std::mem::replace(&mut part, empty()));
            next = self.lines.store(address, &mut part);
        }
        let table = self.rules.table();
        let mut rules = empty();
        table.store(&mut rules);
        if part.sections_bytes() + rules.sections_bytes() > SECTIONS_BYTES_MAX {
            parts.push(std::mem::replace(&mut part, rules));
        } else {
            table.store(&mut part);
        }
        if part.sections_bytes() > SECTIONS_BYTES_MAX {
            parts.push(std::mem::replace(&mut part, empty()));
        }
        for (start, end, name) in self.symbols.iter() {
            let symbol = uprof::image::Symbol {
                address: start.0,
                size_bytes: end.0.saturating_sub(start.0),
                name,
            };
            if !part.push(symbol) {
                parts.push(std::mem::replace(&mut part, empty()));
                part.push(symbol);
            }
        }
        parts.push(part);
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::ImageAddress;
    use crate::images::symbols::Line;
    use uprof::image::Segment;
    use uprof::layout::MAX_PAYLOAD_BYTES;
    use uprof::{Arch, BlockPlace};

    const CALLER: MissedCaller = MissedCaller {
        callee: 0,
        function: 0x1003,
        next: 0x1004,
        caller: 0x1005,
    };

    #[test]
    fn tables_longer_than_a_block_are_divided_and_joined_again() {
        let line = |number: u32| Line {
            function: Some(number.to_string().repeat(3 << 20)),
            file: Some("a.c".into()),
            line: number,
            ..Line::default()
        };
        let addresses = (0..7_u32).map(|number| (ImageAddress(0x1000 + u64::from(number)), number));
        let mut lines = LineTable::default();
        for (address, number) in addresses.clone() {
            lines.insert(address, &[line(number)]);
        }
        let embedded = Embedded {
            identity: ImageIdentity {
                path: "/a".into(),
                build_id: Vec::new(),
                arch: Arch::X86_64,
                load_bias: 0,
                origin: "test".into(),
            },
            segments: Segments(vec![Segment {
                address: 0x1000,
                file_offset: 0,
                file_bytes: 0x1000,
                memory_bytes: 0x1000,
                has_code: true,
            }]),
            symbols: SymbolTable::from_symbols([(0x1000, 7, "main")].into_iter()),
            lines,
            rules: Arc::new(RuleTable::default().with_returns(Some(vec![0x1003])).into()),
            image: None,
            callers: vec![CALLER],
        };
        let place = BlockPlace {
            offset: 0,
            sequence: 0,
            block: "image",
        };
        let parts = embedded.parts().into_iter().map(|part| {
            let mut bytes = Vec::new();
            part.put(&mut bytes);
            assert!(bytes.len() <= MAX_PAYLOAD_BYTES, "{}", bytes.len());
            let part = ImagePart::parse(&bytes).unwrap();
            PlacedPart { place, part }
        });
        let parts: Vec<_> = parts.collect();
        // Two names of 3 MiB fit into each.
        assert_eq!(parts.len(), 4);
        let mut warnings = Vec::new();
        let read = Embedded::join(&parts.iter().collect::<Vec<_>>(), &mut warnings);
        assert_eq!(warnings, Vec::<String>::new());
        for (address, number) in addresses {
            assert!(
                read.lines.find(address) == Some(vec![line(number)]),
                "{number}"
            );
        }
        assert_eq!(read.segments, embedded.segments);
        assert_eq!(read.rules.returns(), Some(&[0x1003][..]));
        assert_eq!((read.symbols.len(), read.callers), (1, vec![CALLER]));
    }
}
