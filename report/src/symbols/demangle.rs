//! Names as people wrote them: a linker's name goes in, a Rust, C++ or OCaml name comes out, or
//! the same name if it is none of these. Output is bounded: a few hundred hostile bytes can spell
//! a name of gigabytes.

use super::ocaml;
use std::borrow::Cow;
use std::fmt::{self, Write};

/// No readable name is longer (bytes); beyond it the linker's name is kept.
const NAME_BYTES_MAX: usize = 16 << 10;

struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > NAME_BYTES_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

/// The readable form of a linker's name. Rust's hashes are dropped; OCaml's stamps are kept.
pub fn demangle(name: &str) -> Cow<'_, str> {
    let readable = match name.as_bytes() {
        [b'_', b'R' | b'Z', ..] | [b'_', b'_', b'Z', ..] => rust(name).or_else(|| cpp(name)),
        [b'c', b'a', b'm', b'l', ..] => ocaml::demangle(name),
        _ => None,
    };
    readable.map_or(Cow::Borrowed(name), Cow::Owned)
}

fn rust(name: &str) -> Option<String> {
    let symbol = rustc_demangle::try_demangle(name).ok()?;
    let mut readable = Bounded(String::new());
    write!(readable, "{symbol:#}").ok()?;
    Some(readable.0)
}

fn cpp(name: &str) -> Option<String> {
    let symbol = cpp_demangle::Symbol::new(name).ok()?;
    let options = cpp_demangle::DemangleOptions::default();
    let mut readable = Bounded(String::new());
    symbol.structured_demangle(&mut readable, &options).ok()?;
    Some(readable.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_each_language_are_readable() {
        let cases = [
            ("main", "main"),
            (
                "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
                "core::fmt::Formatter::pad",
            ),
            ("_RNvCskwGfYPst2Cb_3foo3bar", "foo::bar"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backEOi",
                "std::vector<int, std::allocator<int> >::push_back(int&&)",
            ),
            ("camlStdlib__List__map_350", "Stdlib.List.map_350"),
            ("_Z", "_Z"),
            ("_ZTotally", "_ZTotally"),
        ];
        for (name, readable) in cases {
            assert_eq!(demangle(name), readable);
        }
    }

    /// Each substitution doubles the name: 40 of them would spell a terabyte.
    #[test]
    fn a_name_that_explodes_is_kept_as_it_is() {
        let mut name = String::from("_Z1fI1AI1BS_E");
        for digit in "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ".chars() {
            name.push_str(&format!("S{digit}_I1AS{digit}_S{digit}_E"));
        }
        name.push_str("Evv");
        assert!(demangle(&name).len() <= NAME_BYTES_MAX.max(name.len()));
        let deep = format!("_Z1f{}i", "P".repeat(100_000));
        assert_eq!(demangle(&deep).len(), deep.len());
    }
}
