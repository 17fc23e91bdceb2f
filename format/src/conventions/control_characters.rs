//! Characters that control a terminal, a page or an editor instead of being displayed. Texts of a recording, an
//! image, a guest or a stub may contain any of them.
//! Source: Unicode 17.0, `UnicodeData.txt`: the general categories Cc, Cf, Zl and Zp. For Cf, whole blocks whose
//! remainder is reserved for more such characters.

/// First and last character of each range, ascending.
const CONTROL: [(char, char); 21] = [
    ('\0', '\u{1f}'),
    ('\u{7f}', '\u{9f}'),
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff0}', '\u{fffb}'),
    // Noncharacters, which XML doesn't allow.
    ('\u{fffe}', '\u{ffff}'),
    ('\u{110bd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Whether `letter` moves the cursor, ends a line, changes the direction of text, is invisible, or is a noncharacter.
/// Tabs and line ends are included.
pub fn is_control_character(letter: char) -> bool {
    // Printable ASCII is tested first, as it is most common.
    !(' '..='~').contains(&letter)
        && CONTROL
            .iter()
            .any(|&(first, last)| (first..=last).contains(&letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_formats_and_directions_are_control_characters_and_letters_are_not() {
        let control = "\0\t\n\x1b\x7f\u{85}\u{9b}\u{ad}\u{61c}\u{200b}\u{200f}\u{2028}\u{202e}\
                        \u{2069}\u{feff}\u{fff9}\u{ffff}\u{110bd}\u{1343f}\u{e0001}\u{e007f}";
        for letter in control.chars() {
            assert!(is_control_character(letter), "{:#x}", u32::from(letter));
        }
        for letter in " ~é\u{a0}\u{ac}\u{ae}\u{200a}\u{2010}\u{2027}\u{202f}\u{2070}…�日😀".chars()
        {
            assert!(!is_control_character(letter), "{:#x}", u32::from(letter));
        }
        for pair in CONTROL.windows(2) {
            assert!(pair[0].1 < pair[1].0);
        }
    }
}
