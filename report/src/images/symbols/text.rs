//! Function symbols from text: the output of `nm -n`, `nm -S`, /proc/kallsyms and Xen's xen-syms.map. All four have
//! lines `address [size] kind name`; the differences are a `0x` prefix, a `[module]` at the end and a `file.c#`
//! before static names.

use super::local::is_mark;
use super::{Candidate, SymbolTable, end_alone};
use std::borrow::Cow;
use uprof::alias::{Binding, Kind, unversioned};

/// Why a text has no usable symbols.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Every address is zero: the kernel hid them when kallsyms was read.
    #[error(
        "cannot use {name}: every address in it is zero, because the kernel hides them; \
         read /proc/kallsyms as root (and with kernel.kptr_restrict below 2)"
    )]
    Hidden {
        /// The text's origin.
        name: String,
    },
    /// No line names a function.
    #[error(
        "cannot use {name}: no line has the form `ffffffff81000000 T name`; \
         write it with `nm -n IMAGE`"
    )]
    NoFunctions {
        /// The text's origin.
        name: String,
    },
}

/// A symbol of `nm` or kallsyms.
pub(super) struct Line<'a> {
    pub(super) address: u64,
    /// 0 if unknown.
    pub(super) size_bytes: u64,
    /// A letter, as in the manual of `nm`.
    pub(super) kind: u8,
    pub(super) name: Cow<'a, str>,
}

impl<'a> Line<'a> {
    /// Adds it to the functions, or to the addresses at which functions end.
    pub(super) fn take(self, candidates: &mut Vec<Candidate<'a>>, borders: &mut Vec<u64>) {
        match self.kind {
            b'T' | b't' | b'W' | b'w' | b'i' | b'u'
                if !is_mark(&self.name) && !self.name.starts_with('.') =>
            {
                candidates.push(Candidate {
                    address: self.address,
                    size_bytes: self.size_bytes,
                    limit: u64::MAX,
                    kind: match self.kind {
                        b'i' => Kind::Function,
                        _ => Kind::Unsaid,
                    },
                    binding: match self.kind {
                        b'W' | b'w' => Binding::Weak,
                        b't' => Binding::Local,
                        _ => Binding::Global,
                    },
                    name: match self.name {
                        Cow::Borrowed(name) => Cow::Borrowed(unversioned(name)),
                        Cow::Owned(name) => Cow::Owned(unversioned(&name).to_owned()),
                    },
                });
            }
            // Absolute symbols are more often numbers than addresses.
            b'A' | b'a' | b'U' => {}
            _ => borders.push(self.address),
        }
    }
}

impl SymbolTable {
    /// Reads `text` as printed by `nm -n`, `nm -S`, /proc/kallsyms or Xen's build. Lines that
    /// don't parse are skipped; `name` is what errors call the text. Addresses are as printed.
    ///
    /// # Errors
    /// [`TextError`] if no function is named, or all addresses are zero.
    pub fn from_text(name: &str, text: &str) -> Result<SymbolTable, TextError> {
        let mut candidates = Vec::new();
        let mut borders = Vec::new();
        let mut places = Vec::new();
        for (line, module) in text.lines().filter_map(parse) {
            places.push((line.address, module));
            line.take(&mut candidates, &mut borders);
        }
        // The next module has nothing to do with the last function of one.
        places.sort_unstable();
        borders.extend(places.windows(2).filter_map(|pair| {
            let ((last, module), (next, other)) = (pair[0], pair[1]);
            let end = end_alone(last);
            (module != other && end < next).then_some(end)
        }));
        if candidates.is_empty() {
            return Err(TextError::NoFunctions {
                name: name.to_owned(),
            });
        }
        if candidates.iter().all(|candidate| candidate.address == 0) {
            return Err(TextError::Hidden {
                name: name.to_owned(),
            });
        }
        Ok(SymbolTable::build(candidates, borders))
    }
}

/// The symbol of a line, and its module.
fn parse(line: &str) -> Option<(Line<'_>, Option<&str>)> {
    let mut fields = line.split_ascii_whitespace();
    let address = hexadecimal(fields.next()?)?;
    let second = fields.next()?;
    let (size_bytes, kind) = match second.as_bytes() {
        [kind] if !kind.is_ascii_digit() => (0, *kind),
        _ => match fields.next()?.as_bytes() {
            [kind] => (hexadecimal(second)?, *kind),
            _ => return None,
        },
    };
    let name = fields.next()?;
    // Xen puts the file of a static function before its name.
    let name = name.rsplit_once('#').map_or(name, |(_, bare)| bare);
    let line = Line {
        address,
        size_bytes,
        kind,
        name: Cow::Borrowed(name),
    };
    let module = fields.next().filter(|field| field.starts_with('['));
    (!name.is_empty()).then_some((line, module))
}

fn hexadecimal(field: &str) -> Option<u64> {
    let digits = field.strip_prefix("0x").unwrap_or(field);
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::ImageAddress;

    fn name_at(text: &str, address: u64) -> Option<String> {
        let table = SymbolTable::from_text("t", text).unwrap();
        table
            .find(ImageAddress(address))
            .map(|found| found.name.to_owned())
    }

    #[test]
    fn nm_kallsyms_and_xen_lines_are_read() {
        let nm = "0000000000100000 T _start\n0000000000100010 t work\n0000000000100020 D data\n";
        assert_eq!(name_at(nm, 0x10_0018).as_deref(), Some("work"));
        assert_eq!(name_at(nm, 0x10_0020), None);
        let sized = "0000000000100010 0000000000000004 T f\n";
        assert_eq!(name_at(sized, 0x10_0013).as_deref(), Some("f"));
        assert_eq!(name_at(sized, 0x10_0014), None);
        let kallsyms = "ffffffff81000000 T _text\nffffffffc0001000 t probe\t[virtio_net]\n";
        assert_eq!(
            name_at(kallsyms, 0xffff_ffff_c000_1004).as_deref(),
            Some("probe")
        );
        // What is between the kernel and its modules is not in the list.
        assert_eq!(
            name_at(kallsyms, 0xffff_ffff_8100_1fff).as_deref(),
            Some("_text")
        );
        assert_eq!(name_at(kallsyms, 0xffff_ffff_8100_2000), None);
        let xen = "0xffff82d040200000 T start\n0xffff82d040201000 t schedule.c#pick\n";
        assert_eq!(name_at(xen, 0xffff_82d0_4020_1010).as_deref(), Some("pick"));
    }

    #[test]
    fn of_several_names_the_best_wins_and_local_labels_are_none() {
        let nm = "0000000000001000 T _IO_puts\n0000000000001000 W puts\n\
                  0000000000001000 t __GI_puts\n0000000000001008 t puts.loop\n\
                  0000000000001010 t puts.part.0\n0000000000001020 W memcpy@@GLIBC_2.14\n\
                  0000000000001030 D data\n";
        assert_eq!(name_at(nm, 0x100f).as_deref(), Some("puts"));
        assert_eq!(name_at(nm, 0x1010).as_deref(), Some("puts.part.0"));
        assert_eq!(name_at(nm, 0x1020).as_deref(), Some("memcpy"));
    }

    #[test]
    fn undefined_absolute_and_broken_lines_are_skipped() {
        let text = "                 U printf\n0000000000000040 A size\nnonsense\n\n\
                    0000000000001000 T f\nzzz T g\n0000000000001010 T\n";
        let table = SymbolTable::from_text("t", text).unwrap();
        assert_eq!(
            table.iter().map(|(_, _, name)| name).collect::<Vec<_>>(),
            ["f"]
        );
    }

    #[test]
    fn hidden_addresses_and_foreign_texts_are_refused_with_advice() {
        let hidden = "0000000000000000 T _text\n0000000000000000 t probe\t[m]\n";
        let error = SymbolTable::from_text("kallsyms", hidden).unwrap_err();
        assert!(error.to_string().contains("as root"), "{error}");
        let foreign = SymbolTable::from_text("x", "hello world\n").unwrap_err();
        assert!(matches!(foreign, TextError::NoFunctions { .. }));
    }
}
