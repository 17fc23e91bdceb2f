//! Parses times, shares, rates, sizes and labels, and formats sizes.

// Each half of the program uses only some of these.
#![cfg_attr(not(all(feature = "record", feature = "report")), allow(dead_code))]

pub mod label;

use anyhow::bail;
use std::time::Duration;

/// Parses `1.5`, `1.5s`, `200ms`, `30us` or `2m` to nanoseconds; a bare number is in seconds.
pub fn parse_time(text: &str) -> anyhow::Result<u64> {
    const MOST_NS: f64 = 1e18;
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit_ns = match unit.trim() {
        "" | "s" => 1e9,
        "ms" => 1e6,
        "us" => 1e3,
        "ns" => 1.0,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => bail!("a time has the unit ns, us, ms, s, m or h, as in 500ms or 10s"),
    };
    match number.parse::<f64>() {
        Ok(number) if number * unit_ns <= MOST_NS => Ok((number * unit_ns) as u64),
        Ok(_) => bail!("a time of at most 30 years"),
        Err(_) => bail!("a time begins with a number, as in 500ms, 10s or 2m"),
    }
}

/// Parses a time above 0.
pub fn parse_duration(text: &str) -> anyhow::Result<Duration> {
    match parse_time(text)? {
        0 => bail!("a time longer than nothing, such as 500ms, 10s or 2m"),
        ns => Ok(Duration::from_nanos(ns)),
    }
}

/// Parses `0.5%` or `0.005` to a share between 0 and 1.
pub fn parse_share(text: &str) -> anyhow::Result<f64> {
    let (number, whole) = match text.strip_suffix('%') {
        Some(number) => (number.trim(), 100.0),
        None => (text, 1.0),
    };
    match number.parse::<f64>().map(|number| number / whole) {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => bail!("a share from 0% to 100%, such as 1% or 0.01"),
    }
}

/// Parses a number of samples per second.
pub fn parse_rate(text: &str) -> anyhow::Result<f64> {
    match text.parse::<f64>() {
        Ok(rate) if (0.01..=100_000.0).contains(&rate) => Ok(rate),
        Ok(_) => bail!("the rate must lie between 0.01 and 100000"),
        Err(_) => bail!("a number of samples a second, for example 99"),
    }
}

/// Parses a number of raw stack bytes, rounded up to a multiple of 8, up to the format's limit; 0 for none.
pub fn parse_stack_bytes(text: &str) -> anyhow::Result<u32> {
    let most = uprof::layout::MAX_STACK_BYTES as u64;
    let (number, scale) = match text.strip_suffix(['K', 'k']) {
        Some(number) => (number, 1024),
        None => (text, 1),
    };
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(scale));
    match bytes {
        Some(bytes) if (0..=most).contains(&bytes) => Ok((bytes as u32).next_multiple_of(8)),
        _ => bail!("a size from 0 to {}K, for example 16K", most / 1024),
    }
}

/// Parses `512M` or `1G` to bytes; a bare number is in bytes.
pub fn parse_bytes(text: &str) -> anyhow::Result<u64> {
    let (number, shift) = match text.strip_suffix(['K', 'M', 'G', 'T']) {
        Some(number) => (
            number,
            10 + 10 * "KMGT".find(&text[number.len()..]).unwrap_or(0),
        ),
        None => (text, 0),
    };
    let parsed = number.parse::<u64>().ok();
    match parsed.and_then(|number| number.checked_mul(1 << shift)) {
        Some(bytes @ 1..) => Ok(bytes),
        _ => bail!("a size such as 512M or 1G"),
    }
}

/// Formats a number of bytes.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = "bytes";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "bytes" {
        format!("{count} bytes")
    } else {
        format!("{value:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(parse_duration("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(parse_duration("200us").unwrap(), Duration::from_micros(200));
        assert_eq!(parse_duration("2").unwrap(), Duration::from_secs(2));
        assert_eq!(parse_time("0").unwrap(), 0);
        for wrong in ["", "s", "0s", "-1s", "1y", "1e400s", "99999999999999h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_and_shares() {
        assert_eq!(parse_stack_bytes("8K").unwrap(), 8192);
        assert_eq!(parse_stack_bytes("100").unwrap(), 104);
        assert_eq!(parse_stack_bytes("0").unwrap(), 0);
        for wrong in ["1G", "-8", "99999999999999999999K"] {
            assert!(parse_stack_bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_share("1%").unwrap(), 0.01);
        assert_eq!(parse_share("0.01").unwrap(), 0.01);
        assert!(parse_share("101%").is_err());
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(parse_bytes("512M").unwrap(), 512 << 20);
        assert_eq!(parse_bytes("1T").unwrap(), 1 << 40);
        assert_eq!(parse_bytes("7").unwrap(), 7);
        for wrong in ["", "0", "M", "1P", "-1K", "99999999999T"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
