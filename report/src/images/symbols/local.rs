//! Labels that aren't functions: marks of an assembler or a compiler within one. Input: a name, and those of the
//! symbol before it.

/// Suffixes of functions that compilers split off others. In a list that doesn't distinguish functions from labels,
/// these are functions.
const SPLIT_OFF: [&str; 13] = [
    "cold",
    "part",
    "constprop",
    "isra",
    "lto_priv",
    "llvm",
    "localalias",
    "clone",
    "resolver",
    "ifunc",
    "default",
    "unlikely",
    "outlined",
];

/// Mapping symbols (`$a $t $d $x`, AAELF64 "Mapping symbols"), assembler-local labels of GNU as
/// and LLVM (`.L`), and those of nasm's macros (`..@`).
pub(super) fn is_mark(name: &str) -> bool {
    let bytes = name.as_bytes();
    let is_mapping = matches!(bytes, [b'$', b'a' | b't' | b'd' | b'x'])
        || matches!(bytes, [b'$', b'a' | b't' | b'd' | b'x', b'.', ..]);
    name.is_empty() || is_mapping || name.starts_with(".L") || name.starts_with("..@")
}

/// Whether `name` is a local label below `owner`, the symbol before it: nasm writes `main.loop`
/// for `.loop` after `main`.
pub(super) fn is_below(name: &str, owner: &str) -> bool {
    let rest = name
        .strip_prefix(owner)
        .and_then(|rest| rest.strip_prefix('.'));
    !owner.is_empty() && rest.is_some_and(|rest| !rest.is_empty())
}

/// Whether this may be the name of a function that a compiler split off another: `f.cold`, `f.part.0`,
/// `f.constprop.0.isra.1`, `f.avx2.0`, `f.1234`.
pub(super) fn is_split_off(name: &str) -> bool {
    let mut parts = name.split('.').skip(1);
    parts.any(|part| SPLIT_OFF.contains(&part) || part.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_known_from_names() {
        for mark in ["", "$x", "$d", "$t.17", ".L42", "..@7.again"] {
            assert!(is_mark(mark), "{mark}");
        }
        for name in ["$", "$xyz", "main", "x$d", ".plt", "..", "main.loop"] {
            assert!(!is_mark(name), "{name}");
        }
    }

    #[test]
    fn labels_are_below_the_symbol_before_them() {
        assert!(is_below("main.loop", "main"));
        assert!(is_below("ff_put_sse2.loop_w8", "ff_put_sse2"));
        for (name, owner) in [
            ("main.loop", "mai"),
            ("main.", "main"),
            ("main", "main"),
            (".x", ""),
        ] {
            assert!(!is_below(name, owner), "{name} of {owner}");
        }
        for name in [
            "f.cold",
            "f.part.0",
            "f.constprop.0.isra.1",
            "f.avx2.0",
            "f.17",
        ] {
            assert!(is_split_off(name), "{name}");
        }
        for name in ["main.loop", "main.loop8", "f", "f.w8"] {
            assert!(!is_split_off(name), "{name}");
        }
    }
}
