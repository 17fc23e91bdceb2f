//! Numbers in traces. Input: digits. Output: nanoseconds. A number out of range is `None`.

/// A decimal number of seconds, as `7.675210`, in nanoseconds.
pub(crate) fn seconds_ns(text: &[u8]) -> Option<u64> {
    scaled(text, 9)
}

/// A decimal number of microseconds, as `406.829`, in nanoseconds.
pub(crate) fn micros_ns(text: &[u8]) -> Option<u64> {
    scaled(text, 3)
}

/// A decimal number times 10^`digits`, truncated.
fn scaled(text: &[u8], digits: usize) -> Option<u64> {
    let point = memchr::memchr(b'.', text);
    let (whole, part) = match point {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[][..]),
    };
    if whole.is_empty() || (point.is_some() && part.is_empty()) {
        return None;
    }
    let mut number = unsigned(whole)?;
    for place in 0..digits {
        let digit = part.get(place).map_or(Some(0), |byte| digit(*byte))?;
        number = number.checked_mul(10)?.checked_add(digit)?;
    }
    let rest = part.get(digits..).unwrap_or_default();
    rest.iter().all(u8::is_ascii_digit).then_some(number)
}

/// A decimal number without a sign.
pub(crate) fn unsigned(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, byte| {
        number.checked_mul(10)?.checked_add(digit(*byte)?)
    })
}

/// A decimal number that may have a sign.
pub(crate) fn signed(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-") {
        Some(digits) => 0_i64.checked_sub_unsigned(unsigned(digits)?),
        None => i64::try_from(unsigned(text)?).ok(),
    }
}

fn digit(byte: u8) -> Option<u64> {
    byte.is_ascii_digit().then(|| u64::from(byte - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_or_not_there() {
        assert_eq!(seconds_ns(b"7.675210"), Some(7_675_210_000));
        assert_eq!(seconds_ns(b"15600.521165008"), Some(15_600_521_165_008));
        assert_eq!(micros_ns(b"0.7"), Some(700));
        assert_eq!(micros_ns(b"12"), Some(12_000));
        assert_eq!(micros_ns(b"1.23456"), Some(1_234));
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1.0",
            "1.2.3",
            "1,5",
            "1.000x",
            "99999999999999999999",
        ] {
            assert_eq!(micros_ns(text.as_bytes()), None, "{text}");
        }
        assert_eq!(micros_ns(b"18446744073709551.615"), Some(u64::MAX));
        assert_eq!(micros_ns(b"18446744073709551.616"), None);
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(signed(b"-"), None);
    }
}
