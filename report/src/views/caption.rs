//! Captions of pictures: texts of any length are fitted so that they neither leave the picture nor overlap
//! anything.

/// The width of a column of a monospaced font, relative to its size. DejaVu Sans Mono is among the widest.
pub(crate) const COLUMN: f64 = 0.62;

/// The number of columns of a font of this size that fit into `width` pixels.
pub(crate) fn columns(width: u64, font_size: u64) -> usize {
    (width as f64 / (font_size as f64 * COLUMN)) as usize
}

/// The columns of a letter: East Asian letters and emoji take two (Unicode's annex 11).
fn columns_of(letter: char) -> usize {
    match letter {
        '\u{1100}'.. => 2,
        _ => 1,
    }
}

/// `text` in one line of at most `columns_max` columns.
pub fn cut(text: &str, columns_max: usize) -> String {
    if text.chars().map(columns_of).sum::<usize>() <= columns_max {
        return text.to_owned();
    }
    let mut left = columns_max.saturating_sub(columns_of('…'));
    let fits = text.chars().take_while(|letter| {
        let columns = columns_of(*letter);
        let fits = columns <= left;
        left = left.saturating_sub(columns);
        fits
    });
    let mut line: String = fits.collect();
    line.push('…');
    line
}

/// Each of `texts` in lines of at most `columns_max` columns, broken at blanks.
pub(crate) fn lines(texts: &[String], columns_max: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for text in texts {
        let mut line = String::new();
        let mut used = 0;
        for word in text.split(' ') {
            let word = cut(word, columns_max);
            let columns = word.chars().map(columns_of).sum::<usize>();
            if used > 0 && used + 1 + columns > columns_max {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line.push_str(&word);
            used += columns;
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("longer", 5), "lon…");
        assert_eq!(cut("网络接收", 7), "网络…");
        assert_eq!(cut("x", 0), "…");
    }

    #[test]
    fn lines_break_at_spaces_and_lose_nothing() {
        let texts = [
            "one two three".to_owned(),
            String::new(),
            "wordwordword".to_owned(),
        ];
        assert_eq!(lines(&texts, 7), ["one two", "three", "", "wordw…"]);
    }
}
