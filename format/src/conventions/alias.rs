//! Orders the names of one address. Input: a symbol's name, kind, binding and size. Output: which of two names is
//! preferred. Recorder and report use the same order, so that a function has the same name whether it comes from an
//! ELF file, kallsyms, `nm` or the recording.
//!
//! The first difference decides:
//! 1. a name over none;
//! 2. a function over an object, either over a label;
//! 3. one whose size is known over one without;
//! 4. an exported name, global or weak, over a local one: `malloc` over `__GI___libc_malloc`;
//! 5. fewer leading underscores: `puts`, which is weak, over `_IO_puts`, which is global (those of a mangling prefix
//!    don't count);
//! 6. a global name over a weak one;
//! 7. the shorter name;
//! 8. the first in byte order.

use std::cmp::{Ordering, Reverse};

/// Kind of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An address in code or data, not marked as a function.
    Label,
    /// Code or data, in a list that doesn't distinguish functions from labels.
    Unsaid,
    /// Data, or code that its compiler marked as an object.
    Object,
    /// A function.
    Function,
}

/// Scope of a symbol: who may refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Binding {
    /// Its own file.
    Local,
    /// Every file, unless another one defines it, too.
    Weak,
    /// Every file.
    Global,
}

/// One of several names for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias<'a> {
    /// The linker's name, without version.
    pub name: &'a str,
    /// Kind of symbol.
    pub kind: Kind,
    /// Who may refer to it.
    pub binding: Binding,
    /// Whether its size is known.
    pub has_size: bool,
}

impl Alias<'_> {
    /// [`Ordering::Less`] if this name is better than `other`.
    pub fn compare(&self, other: &Alias<'_>) -> Ordering {
        let key = |alias: &Alias<'_>| {
            (
                alias.name.is_empty(),
                Reverse(alias.kind),
                Reverse(alias.has_size),
                alias.binding == Binding::Local,
                underscores(alias.name),
                Reverse(alias.binding),
                alias.name.len(),
            )
        };
        let keys = key(self).cmp(&key(other));
        keys.then_with(|| self.name.cmp(other.name))
    }
}

/// A symbol's name without its version suffix: `memcpy` for `memcpy@@GLIBC_2.14`.
pub fn unversioned(name: &str) -> &str {
    match name.split_once('@') {
        Some((bare, version)) if !bare.is_empty() && version != "plt" => bare,
        _ => name,
    }
}

/// Number of leading underscores, mangling prefixes aside.
fn underscores(name: &str) -> usize {
    let is_mangled = match name.as_bytes() {
        [b'_', b'Z', ..] | [b'_', b'_', b'Z', ..] => true,
        [b'_', b'R', next, ..] => next.is_ascii_uppercase(),
        _ => false,
    };
    if is_mangled {
        return 0;
    }
    name.bytes().take_while(|byte| *byte == b'_').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alias(name: &str, kind: Kind, binding: Binding, has_size: bool) -> Alias<'_> {
        Alias {
            name,
            kind,
            binding,
            has_size,
        }
    }

    #[test]
    fn each_rule_decides_where_those_before_it_do_not() {
        use Binding::{Global, Local, Weak};
        use Kind::{Function, Label, Object, Unsaid};
        let pairs = [
            (
                alias("__x", Label, Local, false),
                alias("", Function, Global, true),
            ),
            (
                alias("_f", Function, Local, false),
                alias("f", Object, Global, true),
            ),
            (
                alias("_f", Object, Local, false),
                alias("f", Label, Global, true),
            ),
            (
                alias("__f", Function, Local, true),
                alias("f", Function, Global, false),
            ),
            (
                alias("malloc", Function, Global, true),
                alias("__GI___libc_malloc", Function, Local, true),
            ),
            (
                alias("_long_exported", Unsaid, Weak, true),
                alias("f", Unsaid, Local, true),
            ),
            (
                alias("puts", Function, Weak, true),
                alias("_IO_puts", Function, Global, true),
            ),
            (
                alias("_ZN1AC1Ev", Function, Global, true),
                alias("_c", Function, Global, true),
            ),
            (
                alias("_RNvC1a1b", Function, Global, true),
                alias("_c", Function, Global, true),
            ),
            (
                alias("longer", Function, Global, true),
                alias("short", Function, Weak, true),
            ),
            (
                alias("read", Function, Global, true),
                alias("a_read", Function, Global, true),
            ),
            (
                alias("_ZN1AC1Ev", Function, Weak, true),
                alias("_ZN1AC2Ev", Function, Weak, true),
            ),
        ];
        for (better, worse) in pairs {
            assert_eq!(better.compare(&worse), Ordering::Less, "{}", better.name);
            assert_eq!(worse.compare(&better), Ordering::Greater, "{}", worse.name);
            assert_eq!(better.compare(&better), Ordering::Equal);
        }
    }

    #[test]
    fn versions_are_no_part_of_a_name() {
        let cases = [
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("memcpy@GLIBC_2.2.5", "memcpy"),
            ("memcpy@plt", "memcpy@plt"),
            ("memcpy", "memcpy"),
            ("@x", "@x"),
            ("", ""),
        ];
        for (name, bare) in cases {
            assert_eq!(unversioned(name), bare);
        }
    }
}
