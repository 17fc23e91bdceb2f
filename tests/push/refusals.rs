//! Servers that refuse, redirect, are away, or say nothing.

use crate::receiver::{Receiver, Reply};
use crate::{PUSH, accept, pack, push};
use kit::uniprof;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

/// Answers of servers, and words of the message that follows.
const REFUSALS: &[(u16, &str, &str, &[&str])] = &[
    (
        400,
        JSON,
        "is outside of ingestion window (profile timestamp: 1, 2)",
        &["reject-older-than", "refuses"],
    ),
    (
        400,
        JSON,
        "profile series '' has 31 label names; limit 30",
        &["fewer labels"],
    ),
    (
        400,
        JSON,
        "profile with labels '' has label name too long: 'x'",
        &["shorter label"],
    ),
    (
        400,
        JSON,
        "profile with labels '' has label value too long: 'x'",
        &["shorter label"],
    ),
    (
        400,
        JSON,
        "profile with labels '' has duplicate label name: 'x'",
        &["without one of the two"],
    ),
    (
        400,
        JSON,
        "the profile with labels '' exceeds the size limit (max_profile_size_byte)",
        &["--every"],
    ),
    (
        400,
        JSON,
        "uncompressed profile payload size exceeds limit of 4.2 MB",
        &["--every"],
    ),
    (
        400,
        JSON,
        "the profile with labels '' exceeds the samples count limit (actual: 5)",
        &["--every"],
    ),
    (
        400,
        JSON,
        "invalid labels '' with error: invalid metric name",
        &["400: invalid labels"],
    ),
    (
        413,
        "text/html",
        "<html>Request Entity Too Large</html>",
        &["413; push with a shorter --every"],
    ),
    (422, "text/plain", "odd\u{1b}[31m\nlines", &["422: odd"]),
    (
        429,
        JSON,
        "Maximum active series limit exceeded (1/1)",
        &["fewer different", "tried for 1 s", "--spool"],
    ),
    (500, "text/plain", "oh", &["500: oh; tried for 1 s"]),
    (503, "text/html", "<html>", &["503; tried for 1 s"]),
    (
        401,
        "text/plain",
        "no org id",
        &["401: no org id", "--header-file"],
    ),
    (403, "", "", &["403", "--header-file"]),
    (
        404,
        "text/plain",
        "404 page not found",
        &["check the URL", PUSH],
    ),
    (405, "", "", &["check the URL"]),
    (501, "", "", &["check the URL"]),
    (
        200,
        "text/html; charset=utf-8",
        "<html>Log in",
        &["answers with a page"],
    ),
];
/// The type of errors of the Connect protocol: the text is their message.
const JSON: &str = "application/json";

#[test]
fn every_refusal_ends_with_what_to_do() {
    for (status, content_type, body, wanted) in REFUSALS {
        let server = Receiver::start(move |_| {
            let json = serde_json::json!({"code": "any", "message": body}).to_string();
            let is_json = *content_type == JSON;
            Reply::answer(
                *status,
                content_type,
                if is_json { json.as_str() } else { body },
            )
        });
        let (code, said) = push(&server.url(PUSH), &["--retry-for", "1s", &pack()]);
        assert_eq!(code, 2, "{status}: {said}");
        for wanted in *wanted {
            assert!(said.contains(wanted), "{status}: {wanted}: {said}");
        }
        assert!(!said.contains(['\u{1b}', '<']), "{said}");
        let is_repeated = server.take().len() > 1;
        assert_eq!(is_repeated, [429, 500, 503].contains(status), "{status}");
    }
}

/// Its specification (OTLP/HTTP, "Failures") names the only statuses after which a request may be sent again.
#[test]
fn opentelemetry_is_tried_again_only_where_it_allows_that() {
    for (status, is_repeated) in [
        (429, true),
        (503, true),
        (408, false),
        (500, false),
        (507, false),
    ] {
        let server = Receiver::start(move |_| Reply::answer(status, "", ""));
        let words = ["--format", "otlp", "--retry-for", "1s", &pack()];
        let (code, said) = push(&server.url(""), &words);
        assert_eq!(code, 2, "{status}: {said}");
        assert_eq!(server.take().len() > 1, is_repeated, "{status}: {said}");
        assert_eq!(said.contains("refuses"), !is_repeated, "{status}: {said}");
    }
}

#[test]
fn a_redirect_is_not_followed_and_credentials_stay_secret() {
    let folder = tempfile::tempdir().unwrap();
    let headers = folder.path().join("headers");
    fs::write(
        &headers,
        "# ours\nAuthorization: Bearer s3cret\nX-Scope-OrgID: us\n",
    )
    .unwrap();
    let elsewhere = Receiver::start(|_| accept());
    let to = elsewhere.url(PUSH);
    for status in [301, 302, 307, 308] {
        let to = to.clone();
        let server = Receiver::start(move |_| Reply::redirect(status, &to));
        let words = ["--header-file", headers.to_str().unwrap(), &pack()];
        let (code, said) = push(&server.url(PUSH), &words);
        assert_eq!(code, 2, "{said}");
        assert!(
            said.contains("redirects to http://") && said.contains("--to"),
            "{said}"
        );
        assert!(!said.contains("s3cret"), "{said}");
        let received = server.take();
        assert_eq!(received.len(), 1);
        assert_eq!(received[0].header("authorization"), "Bearer s3cret");
        assert_eq!(received[0].header("x-scope-orgid"), "us");
    }
    assert!(elsewhere.take().is_empty());
    for url in [
        "http://user:s3cret@localhost:1/",
        "localhost:4040",
        "http://localhost/elsewhere",
    ] {
        let (code, said) = push(url, &[&pack()]);
        assert!(code == 2 && !said.contains("s3cret"), "{said}");
        assert!(
            ["--header-file", "http://", "--format"]
                .iter()
                .any(|word| said.contains(word)),
            "{said}"
        );
    }
}

#[test]
fn what_is_sent_to_this_machine_goes_to_no_proxy() {
    let server = Receiver::start(|_| accept());
    let proxy = Receiver::start(|_| Reply::answer(403, "", ""));
    let output = uniprof()
        .env("ALL_PROXY", proxy.url(""))
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .args(["push", "--no-search", "--to", &server.url(PUSH), &pack()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", kit::text(&output.stderr));
    assert!(!server.take().is_empty());
    assert!(proxy.take().is_empty(), "the proxy was asked");
}

#[test]
fn a_server_that_comes_back_gets_everything_and_one_that_is_silent_ends_the_attempt() {
    let asked = AtomicU32::new(0);
    let server = Receiver::start(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::answer(503, "", ""),
        1 => Reply::HangUp,
        _ => accept(),
    });
    let (code, said) = push(&server.url(PUSH), &["--retry-for", "60s", &pack()]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("trying again") && said.contains("may count them twice"),
        "{said}"
    );
    let received = server.take();
    assert_eq!(received.len(), 3);
    assert!(received.iter().all(|one| one.body == received[0].body));

    let silent = Receiver::start(|_| Reply::Silence);
    let (code, said) = push(&silent.url(PUSH), &["--retry-for", "1s", &pack()]);
    assert!(code == 2 && said.contains("no answer within 1 s"), "{said}");
    let drop_by_drop = Receiver::start(|_| Reply::Drops);
    let (code, said) = push(&drop_by_drop.url(PUSH), &["--retry-for", "1s", &pack()]);
    assert!(code == 2 && said.contains("no answer within 1 s"), "{said}");
    let url = silent.url(PUSH);
    drop(silent);
    let (code, said) = push(&url, &["--retry-for", "1s", &pack()]);
    assert!(code == 2 && said.contains("can't be reached"), "{said}");
}
