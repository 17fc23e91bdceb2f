//! Headers of requests, which may be credentials. In: a file, a header a line. Out: names and values. Never a value in
//! a message.

use anyhow::{Context, anyhow, bail};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use ureq::http::{HeaderName, HeaderValue};

/// A name and its value.
pub type Header = (HeaderName, HeaderValue);

/// The header that names a tenant of Pyroscope. Any other may be a credential, as `X-Api-Key` is.
pub const TENANT: &str = "x-scope-orgid";
/// Longest file (bytes).
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Headers that the request itself has.
const OURS: [&str; 4] = [
    "content-type",
    "content-length",
    "host",
    "transfer-encoding",
];

/// Reads a file of headers. Empty lines and those that begin with `#` are left out.
///
/// # Errors
/// It can't be read, is too long, or a line is no header.
pub fn read(path: &Path) -> anyhow::Result<Vec<Header>> {
    let mut text = String::new();
    let describe = || format!("cannot read the headers in {}", path.display());
    let file = File::open(path).with_context(describe)?;
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    if read.with_context(describe)? as u64 > FILE_BYTES_MAX {
        bail!(
            "{}: it is longer than {} KiB",
            describe(),
            FILE_BYTES_MAX >> 10
        );
    }
    parse(&text).with_context(describe)
}

fn parse(text: &str) -> anyhow::Result<Vec<Header>> {
    let mut headers = Vec::new();
    let lines = text.lines().zip(1..);
    for (line, number) in
        lines.filter(|(line, _)| !line.trim().is_empty() && !line.starts_with('#'))
    {
        let wrong = || anyhow!("line {number} is no header; write `Name: value`");
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
        let mut value: HeaderValue = value.trim().parse().map_err(|_| wrong())?;
        if OURS.contains(&name.as_str()) {
            bail!("line {number} sets {name}, which each request has; remove the line");
        }
        value.set_sensitive(true);
        headers.push((name, value));
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_lines_and_errors_have_no_value() {
        let headers =
            parse("# for us\n\nAuthorization: Bearer a:b\nX-Scope-OrgID:tenant\n").unwrap();
        let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["authorization", "x-scope-orgid"]);
        assert_eq!(headers[0].1, "Bearer a:b");
        for wrong in [
            "secret",
            "a b: secret",
            ": secret",
            "host: secret",
            "a: secret\u{1}",
        ] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(
                error.contains("line 1") && !error.contains("secret"),
                "{error}"
            );
        }
    }
}
