//! The file name of one of several domains: its number, and as much of its name as is safe.

/// Most bytes of a domain's name in its file's name.
const NAME_BYTES_MAX: usize = 64;

/// The file's name. Someone else may have named the domain, so only ASCII letters, digits, `.`, `_` and `-` are kept.
/// The number in front is unique among the domains at one time; because of it the name is neither a folder nor hidden.
pub fn name_of(id: u64, name: &str) -> String {
    let kept = |letter: char| match letter {
        '.' | '_' | '-' => letter,
        _ if letter.is_ascii_alphanumeric() => letter,
        _ => '_',
    };
    let name: String = name.chars().take(NAME_BYTES_MAX).map(kept).collect();
    match name.as_str() {
        "" => format!("{id}.uprof"),
        name => format!("{id}-{name}.uprof"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Component, Path};

    #[test]
    fn names_of_files_stay_in_their_folder_and_differ() {
        let long = "x".repeat(5000);
        let hostile = [
            "",
            ".",
            "..",
            "/",
            "../../etc/passwd",
            "/etc/passwd",
            "a\0b",
            "\u{1b}[2J",
            "a\nb",
            "-rf",
            "web.old",
            "ünï",
            "web 2",
            "web/2",
            &long,
        ];
        let names: Vec<String> = (1..)
            .zip(hostile)
            .map(|(id, name)| name_of(id, name))
            .collect();
        for name in &names {
            let parts: Vec<_> = Path::new(name).components().collect();
            assert!(matches!(parts[..], [Component::Normal(_)]), "{name:?}");
            assert!(
                name.len() < 100 && name.ends_with(".uprof") && name.is_ascii(),
                "{name:?}"
            );
            assert!(
                name.starts_with(|first: char| first.is_ascii_digit()),
                "{name:?}"
            );
        }
        assert_eq!(names[4], "5-.._.._etc_passwd.uprof");
        assert_eq!(name_of(7, "web"), "7-web.uprof");
        // One domain's name may look like another's number and name, or like one that is kept.
        assert_ne!(name_of(1, "2-web"), name_of(12, "web"));
        assert_ne!(name_of(1, "web.uprof.old"), name_of(1, "web") + ".old");
        assert_ne!(name_of(7, "web 2"), name_of(8, "web/2"));
    }
}
