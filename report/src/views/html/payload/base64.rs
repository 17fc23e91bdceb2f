//! Bytes as base64 (RFC 4648, section 4), which no browser parses as markup.

use std::io::{self, Write};

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes `bytes` as base64.
///
/// # Errors
/// The errors of `out`.
pub(super) fn write(bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place > three.len() { b'=' } else { digit });
        }
    }
    out.write_all(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 4648, section 10.
    #[test]
    fn the_examples_of_the_standard() {
        let examples = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (bytes, text) in examples {
            let mut out = Vec::new();
            write(bytes.as_bytes(), &mut out).unwrap();
            assert_eq!(out, text.as_bytes());
        }
    }
}
