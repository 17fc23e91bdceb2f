//! Demangling. Input: a linker's name. Output: a readable Rust, C++, OCaml or Haskell name, or else the same name
//! (D's and Swift's too). Its size is limited: a few hundred hostile bytes can encode a name of gigabytes.

use super::{ghc, ocaml};
use std::borrow::Cow;
use std::fmt::{self, Write};

/// The longest readable name (bytes); otherwise the linker's name is kept.
const NAME_BYTES_MAX: usize = 16 << 10;

/// The suffix of the name of a stub in the procedure linkage table, as in gdb.
pub(super) const STUB_ENDING: &str = "@plt";

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
    if let Some(function) = name.strip_suffix(STUB_ENDING) {
        let readable = demangle_function(function);
        return readable.map_or(Cow::Borrowed(name), |name| (name + STUB_ENDING).into());
    }
    demangle_function(name).map_or(Cow::Borrowed(name), Cow::Owned)
}

fn demangle_function(name: &str) -> Option<String> {
    match name.as_bytes() {
        [b'_', b'R' | b'Z', ..] | [b'_', b'_', b'Z', ..] => rust(name).or_else(|| cpp(name)),
        [b'c', b'a', b'm', b'l', ..] => ocaml::demangle(name),
        _ => ghc::demangle(name),
    }
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
            ("base_GHCziBase_map_info", "base:GHC.Base.map_info"),
            ("_ZNSolsEi@plt", "std::ostream::operator<<(int)@plt"),
            ("memcpy@plt", "memcpy@plt"),
            ("$s4main3fooyyF", "$s4main3fooyyF"),
            (
                "_D4core6memory2GC7collectFNbZv",
                "_D4core6memory2GC7collectFNbZv",
            ),
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
