//! What an assistant asks over the Model Context Protocol, and what it gets.
#![cfg(feature = "report")]

use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

/// The answers to these lines, by a server for this folder.
fn answers(folder: &Path, lines: &[String]) -> Vec<Value> {
    let mut server = kit::uniprof()
        .arg("mcp")
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = server.stdin.take().unwrap();
    for line in lines {
        writeln!(input, "{line}").unwrap();
    }
    drop(input);
    let ended = server.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    let text = kit::text(&ended.stdout);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn request(id: u32, method: &str, parameters: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": parameters }).to_string()
}

/// The text of a tool's answer, and whether it is an error.
fn called(folder: &Path, tool: &str, arguments: Value) -> (String, bool) {
    let call = request(
        7,
        "tools/call",
        json!({ "name": tool, "arguments": arguments }),
    );
    let all = answers(folder, &[call]);
    let result = &all[0]["result"];
    let text = result["content"][0]["text"].as_str().unwrap().to_owned();
    (text, result["isError"].as_bool().unwrap())
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["calls.uprof", "pack-stack.uprof"] {
        std::fs::copy(kit::corpus(name), folder.path().join(name)).unwrap();
    }
    folder
}

#[test]
fn an_assistant_learns_the_tools_and_gets_their_answers() {
    let folder = folder();
    let lines = [
        request(1, "initialize", json!({ "protocolVersion": "2025-06-18" })),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string(),
        String::new(),
        request(2, "tools/list", json!({})),
        "{".to_owned(),
        request(3, "resources/list", json!({})),
    ];
    let all = answers(folder.path(), &lines);
    assert_eq!(all.len(), 4, "{all:?}");
    assert_eq!(all[0]["result"]["serverInfo"]["name"], "uniprof");
    let tools = all[1]["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["info", "top", "callers", "source", "diff"]);
    assert_eq!(all[2]["error"]["code"], -32700);
    assert_eq!(
        (&all[3]["id"], &all[3]["error"]["code"]),
        (&json!(3), &json!(-32601))
    );
    let file = "pack-stack.uprof";
    for (tool, arguments, wanted) in [
        ("info", json!({ "recording": file }), "187 samples"),
        ("top", json!({ "recording": file }), "Hottest paths"),
        (
            "callers",
            json!({ "recording": file, "function": "pack_sum" }),
            "65 of them (34.8%)",
        ),
        (
            "source",
            json!({ "recording": file, "function": "msort_with_tmp" }),
            "msort.c",
        ),
        (
            "diff",
            json!({ "before": "calls.uprof", "after": file }),
            "| ",
        ),
    ] {
        let (text, is_error) = called(folder.path(), tool, arguments);
        assert!(!is_error && text.contains(wanted), "{tool}: {text}");
        assert!(text.len() < 100 << 10, "{tool}: {} bytes", text.len());
    }
}

#[test]
fn nothing_outside_the_folder_is_read_and_no_text_is_an_option() {
    let folder = folder();
    let outside = folder.path().join("below");
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink("../calls.uprof", outside.join("link.uprof")).unwrap();
    std::fs::write(outside.join("notes.txt"), "text").unwrap();
    // Nobody writes to it.
    let mode = nix::sys::stat::Mode::S_IRWXU;
    nix::unistd::mkfifo(&outside.join("pipe.uprof"), mode).unwrap();
    let calls = kit::corpus("calls.uprof");
    for (file, wanted) in [
        ("../calls.uprof", "no .uprof file in"),
        ("link.uprof", "no .uprof file in"),
        (calls.to_str().unwrap(), "no .uprof file in"),
        ("notes.txt", "no .uprof file in"),
        ("pipe.uprof", "no .uprof file in"),
        ("--help", "cannot find"),
        ("nothing.uprof", "cannot find"),
    ] {
        let (text, is_error) = called(&outside, "info", json!({ "recording": file }));
        assert!(is_error && text.contains(wanted), "{file}: {text}");
    }
    let options = json!({ "recording": "calls.uprof", "function": "--output=/tmp/x" });
    let (text, _) = called(folder.path(), "callers", options);
    assert!(text.contains("no sample has --output=/tmp/x"), "{text}");
    let (text, is_error) = called(folder.path(), "top", json!({}));
    assert!(
        is_error && text.contains("`recording` is missing"),
        "{text}"
    );
}
