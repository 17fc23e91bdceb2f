//! OCaml's names: `camlStdlib__List__map_350` becomes `Stdlib.List.map_350`. ocamlopt writes `caml`, the module path,
//! a separator, the function and a stamp. The separator depends on the version: `__` up to 5.0, `.` since 5.1, `$`
//! for assemblers that don't accept dots. A `$` with two hexadecimal digits is an escaped character (`$2b` is `+`).

/// The readable form, or `None` if this isn't OCaml's.
pub(super) fn demangle(name: &str) -> Option<String> {
    let path = name.strip_prefix("caml")?;
    // The C runtime has names such as caml_alloc: only modules are capitalised.
    if !path.starts_with(|first: char| first.is_ascii_uppercase()) {
        return None;
    }
    let mut readable = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(next) = rest.chars().next() {
        if let Some((character, after)) = escaped(rest) {
            readable.push(character);
            rest = after;
        } else if let Some(after) = separator(rest, &readable) {
            readable.push('.');
            rest = after;
        } else {
            readable.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    Some(readable)
}

/// `$hh`, if it encodes a character that an assembler wouldn't accept.
fn escaped(rest: &str) -> Option<(char, &str)> {
    let digits = rest.strip_prefix('$')?.get(..2)?;
    let code = u8::from_str_radix(digits, 16).ok()?;
    let character = char::from(code);
    (character.is_ascii_punctuation() && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .then(|| (character, &rest[3..]))
}

/// The rest after a separator, if `rest` begins with one that joins two names.
fn separator<'a>(rest: &'a str, before: &str) -> Option<&'a str> {
    let after = ["__", ".", "$"]
        .into_iter()
        .find_map(|mark| rest.strip_prefix(mark))?;
    let joins = !after.is_empty() && !before.is_empty() && !before.ends_with('.');
    joins.then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_separator_and_escape_is_read() {
        let cases = [
            ("camlStdlib__List__map_350", "Stdlib.List.map_350"),
            ("camlStdlib__List.map_350", "Stdlib.List.map_350"),
            ("camlStdlib__List$map_350", "Stdlib.List.map_350"),
            ("camlMain__entry", "Main.entry"),
            ("camlLwt__$3e$3e$3d_1200", "Lwt.>>=_1200"),
            ("camlUnikernel__fun_1234", "Unikernel.fun_1234"),
            ("camlDune__exe__Main.code_begin", "Dune.exe.Main.code_begin"),
            ("camlM___private_12", "M._private_12"),
        ];
        for (name, readable) in cases {
            assert_eq!(demangle(name).as_deref(), Some(readable), "{name}");
        }
    }

    #[test]
    fn the_runtime_and_strangers_are_left_alone() {
        for name in ["caml_alloc", "caml", "camlp4", "main", "caml\u{e9}"] {
            assert_eq!(demangle(name), None, "{name}");
        }
        assert_eq!(
            demangle("camlA$\u{e9}\u{e9}__").as_deref(),
            Some("A.\u{e9}\u{e9}__")
        );
    }
}
