//! GHC's names: `base_GHCziBase_map_info` becomes `base:GHC.Base.map_info`. GHC writes package (except the program's
//! own), module, function and kind of code, joined by `_`, each z-encoded for assemblers (GHC's module
//! GHC.Utils.Encoding).

/// GHC's suffixes for the kinds of code and data of a function; the longest first.
const KINDS: [&str; 9] = [
    "_con_info",
    "_info",
    "_entry",
    "_closure",
    "_slow",
    "_fast",
    "_ret",
    "_bytes",
    "_srt",
];

/// The readable form, or `None` if this isn't GHC's, or if it has no escapes other than of `z` itself, which tell
/// Haskell's names from C's such as `Gtk_init_info` and `Puzzle_solve_fast`.
pub(super) fn demangle(name: &str) -> Option<String> {
    let kind = KINDS.iter().find(|kind| name.ends_with(**kind))?;
    let path = name.strip_suffix(kind)?;
    let parts: Vec<&str> = path.split('_').collect();
    let (package, module, function) = match parts[..] {
        [module, function] => (None, module, function),
        [package, module, function] => (Some(package), module, function),
        _ => return None,
    };
    let (module, function) = (decoded(module)?, decoded(function)?);
    let package = match package {
        Some(package) => decoded(package)? + ":",
        None => String::new(),
    };
    let escapes = path.match_indices(['z', 'Z']);
    let doubled = path.matches("zz").count() + path.matches("ZZ").count();
    let is_encoded = escapes.count() > 2 * doubled;
    (is_encoded && is_module(&module) && is_function(&function))
        .then(|| format!("{package}{module}.{function}{kind}"))
}

/// `GHC.Base`: names that begin with a capital, joined by dots.
fn is_module(name: &str) -> bool {
    name.split('.').all(|part| {
        part.starts_with(|first: char| first.is_uppercase())
            && part
                .chars()
                .all(|letter| letter.is_alphanumeric() || letter == '\'' || letter == '_')
    })
}

/// An identifier or an operator; generated names begin with `$` and may be both.
fn is_function(name: &str) -> bool {
    let is_word = |letter: char| letter.is_alphanumeric() || "'_#".contains(letter);
    let operators = name.chars().filter(|letter| !is_word(*letter)).count();
    !name.is_empty() && (operators == 0 || name.contains('$') || operators == name.chars().count())
        || matches!(name, "[]" | "()" | "(##)")
        || name.starts_with("(,")
}

/// Decodes the z-encoding; `None` if it isn't valid.
fn decoded(part: &str) -> Option<String> {
    let mut readable = String::with_capacity(part.len());
    let mut rest = part.chars();
    while let Some(letter) = rest.next() {
        let next = match letter {
            'z' | 'Z' => rest.clone().next()?,
            _ => {
                readable.push(letter);
                continue;
            }
        };
        let plain = match (letter, next) {
            ('Z', 'L') => '(',
            ('Z', 'R') => ')',
            ('Z', 'M') => '[',
            ('Z', 'N') => ']',
            ('Z', 'C') => ':',
            ('Z', 'Z') => 'Z',
            ('z', 'z') => 'z',
            ('z', 'a') => '&',
            ('z', 'b') => '|',
            ('z', 'c') => '^',
            ('z', 'd') => '$',
            ('z', 'e') => '=',
            ('z', 'g') => '>',
            ('z', 'h') => '#',
            ('z', 'i') => '.',
            ('z', 'l') => '<',
            ('z', 'm') => '-',
            ('z', 'n') => '!',
            ('z', 'p') => '+',
            ('z', 'q') => '\'',
            ('z', 'r') => '\\',
            ('z', 's') => '/',
            ('z', 't') => '*',
            ('z', 'u') => '_',
            ('z', 'v') => '%',
            ('z', '0'..='9') => {
                readable.push(numbered(&mut rest)?);
                continue;
            }
            ('Z', '0'..='9') => {
                readable.push_str(&tuple(&mut rest)?);
                continue;
            }
            _ => return None,
        };
        rest.next();
        readable.push(plain);
    }
    Some(readable)
}

/// `z3bbU` is the character with that hexadecimal number.
fn numbered(rest: &mut std::str::Chars<'_>) -> Option<char> {
    let text = rest.as_str();
    let (digits, _) = text
        .split_once('U')
        .filter(|(digits, _)| digits.len() <= 8)?;
    let code = u32::from_str_radix(digits, 16).ok()?;
    *rest = text[digits.len() + 1..].chars();
    char::from_u32(code).filter(|letter| !letter.is_control())
}

/// `Z3T` is the tuple `(,,)`, `Z2H` the unboxed `(#,#)`; `Z0T` is `()`.
fn tuple(rest: &mut std::str::Chars<'_>) -> Option<String> {
    let text = rest.as_str();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let count: usize = text[..digits].parse().ok().filter(|count| *count <= 64)?;
    let commas = ",".repeat(count.saturating_sub(1));
    let tuple = match text.as_bytes().get(digits)? {
        b'T' => format!("({commas})"),
        b'H' => format!("(#{commas}#)"),
        _ => return None,
    };
    *rest = text[digits + 1..].chars();
    Some(tuple)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_modules_operators_and_tuples_are_read() {
        let cases = [
            ("base_GHCziBase_map_info", "base:GHC.Base.map_info"),
            ("base_GHCziBase_zpzp_info", "base:GHC.Base.++_info"),
            ("Main_zdwgo_info", "Main.$wgo_info"),
            (
                "containerszm0zi6zi5zi1_DataziMapziInternal_insert_entry",
                "containers-0.6.5.1:Data.Map.Internal.insert_entry",
            ),
            (
                "ghczmprim_GHCziTypes_ZC_con_info",
                "ghc-prim:GHC.Types.:_con_info",
            ),
            (
                "base_GHCziShow_zdfShowIntzuzdcshow_info",
                "base:GHC.Show.$fShowInt_$cshow_info",
            ),
            (
                "ghczmprim_GHCziTuple_Z3T_con_info",
                "ghc-prim:GHC.Tuple.(,,)_con_info",
            ),
            ("Main_z3bbU_closure", "Main.\u{3bb}_closure"),
        ];
        for (name, readable) in cases {
            assert_eq!(demangle(name).as_deref(), Some(readable), "{name}");
        }
    }

    #[test]
    fn names_of_other_languages_are_left_alone() {
        for name in [
            "Main_main_info",
            "Main_zze9U_info",
            "Puzzle_solve_fast",
            "Buzz_get_info",
            "stg_ap_pp_fast",
            "stg_upd_frame_info",
            "lzma_block_info",
            "X509_resize_info",
            "Zoom_zip_info",
            "SSL_get_info",
            "_info",
            "z_Z_info",
            "Main_z_info",
            "Main_z99999999U_info",
            "Main_Z99999999999999999999T_info",
            "Main_zi\u{e9}_infoo",
            "main",
        ] {
            assert_eq!(demangle(name), None, "{name}");
        }
    }
}
