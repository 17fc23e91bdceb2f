//! What a server answers to a push: a status, a type, the place of a redirect, and a body, in each protocol.

use crate::take::Take;
use uniprof_report::push::{Answer, PROTOCOLS, Verdict};

/// Longest sentence about an answer (bytes).
const WHY_BYTES_MAX: usize = 3000;

/// Judges an answer in each protocol. What it says is one line, of bounded length, without control characters.
pub fn run(bytes: &[u8]) {
    let mut take = Take(bytes);
    let [high, low] = [take.byte(), take.byte()];
    let status = u16::from_be_bytes([high, low]) % 700;
    let content_type = String::from_utf8_lossy(take.piece());
    let location = String::from_utf8_lossy(take.piece());
    let answer = Answer {
        status,
        content_type: &content_type,
        location: &location,
        body: take.rest(),
    };
    for protocol in PROTOCOLS {
        let why = match protocol.judge(&answer) {
            Verdict::Accepted { warning } => warning.unwrap_or_default(),
            Verdict::Refused(why) | Verdict::Later(why) | Verdict::Unusable(why) => why,
        };
        assert!(
            why.len() < WHY_BYTES_MAX && !why.contains(char::is_control),
            "{why}"
        );
    }
}

/// Answers of servers.
pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |status: u16, content_type: &str, location: &str, body: &[u8]| {
        let mut bytes = status.to_be_bytes().to_vec();
        for text in [content_type, location] {
            bytes.extend((text.len() as u16).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes.extend(body);
        bytes
    };
    vec![
        seed(
            200,
            "application/x-protobuf",
            "",
            b"\x0a\x0c\x08\x01\x12\x08no frame",
        ),
        seed(
            400,
            "application/json",
            "",
            br#"{"code":"invalid_argument","message":"size limit"}"#,
        ),
        seed(400, "application/x-protobuf", "", b"\x08\x03\x12\x05wrong"),
        seed(302, "text/html", "https://elsewhere/", b"<html>"),
        seed(503, "", "", b""),
    ]
}
