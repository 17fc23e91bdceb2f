//! Formats hexadecimal numbers for exports with one in each line. The standard formatter would take most of
//! their time.

/// Bytes, two digits each.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Appends `value` in lower-case digits, at least `width` characters wide.
pub(crate) fn put_hexadecimal(text: &mut String, value: u64, width: usize) {
    let digits = (u64::BITS - value.leading_zeros()).div_ceil(4).max(1) as usize;
    text.extend(std::iter::repeat_n(' ', width.saturating_sub(digits)));
    let digit = |place: usize| b"0123456789abcdef"[(value >> (4 * place) & 0xf) as usize];
    text.extend((0..digits).rev().map(|place| char::from(digit(place))));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_the_standard_library_formats_them() {
        let edges = (0..64).flat_map(|bit| [1 << bit, (1 << bit) - 1, !(1 << bit)]);
        for value in edges.chain([0, u64::MAX, 0x0123_4567_89ab_cdef]) {
            let mut text = String::from("+");
            put_hexadecimal(&mut text, value, 9);
            assert_eq!(text, format!("+{value:9x}"));
        }
    }
}
