//! `uniprof mcp`: recordings for assistants, by the Model Context Protocol (revision 2025-06-18) over standard input
//! and output, one JSON-RPC 2.0 message a line.
//!
//! Enters: requests. Leaves: what `report --brief`, `--callers`, `--annotate`, `info` and `diff` print, bounded. Each
//! call is a run of this program, so that one has its own budget of memory and work. Nothing is written, and only
//! recordings in the given folder are read.

use crate::candidates::is_recording;
use crate::outcome::Outcome;
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Answer questions of an assistant about recordings (Model Context Protocol on standard input and output)
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples: in the assistant's configuration:
  {\"mcpServers\": {\"uniprof\": {\"command\": \"uniprof\", \"args\": [\"mcp\", \"/home/me/recordings\"]}}}")]
pub struct Args {
    /// The folder whose recordings may be read; nothing is written
    #[arg(value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
}

/// The revision of the protocol that is spoken.
const REVISION: &str = "2025-06-18";
/// Longest request.
const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// Most bytes of an answer's text; a model reads no more with profit.
const ANSWER_BYTES_MAX: u64 = 48 << 10;

/// A question that can be asked.
struct Tool {
    name: &'static str,
    about: &'static str,
    /// Names of its arguments, and what they are. All are texts, and required.
    arguments: &'static [(&'static str, &'static str)],
    /// The command that answers it, of paths and texts in the order of `arguments`.
    command: fn(&[String]) -> Vec<String>,
}

const RECORDING: (&str, &str) = ("recording", "the .uprof file, by its path in the folder");
const FUNCTION: (&str, &str) = ("function", "the function's name, or a part of it");

const TOOLS: &[Tool] = &[
    Tool {
        name: "info",
        about: "What was recorded, where, when and how well; what is missing",
        arguments: &[RECORDING],
        command: |given| vec!["info".into(), given[0].clone()],
    },
    Tool {
        name: "top",
        about: "One page: the hottest functions and call paths with their lines, what is uncertain, what to ask next",
        arguments: &[RECORDING],
        command: |given| vec!["report".into(), "--brief".into(), given[0].clone()],
    },
    Tool {
        name: "callers",
        about: "From where a function is called, as a tree with shares",
        arguments: &[RECORDING, FUNCTION],
        command: |given| {
            vec![
                "report".into(),
                format!("--callers={}", given[1]),
                given[0].clone(),
            ]
        },
    },
    Tool {
        name: "source",
        about: "A function's source lines, or its instructions, with their samples",
        arguments: &[RECORDING, FUNCTION],
        command: |given| {
            vec![
                "report".into(),
                format!("--annotate={}", given[1]),
                given[0].clone(),
            ]
        },
    },
    Tool {
        name: "diff",
        about: "Which functions changed between two recordings, and how certain that is",
        arguments: &[
            (
                "before",
                "the .uprof file before the change; several with commas between them",
            ),
            (
                "after",
                "the .uprof file after the change; several with commas between them",
            ),
        ],
        command: |given| {
            let form = ["diff".into(), "--format".into(), "markdown".into()];
            form.into_iter().chain(given.iter().cloned()).collect()
        },
    },
];

/// Runs the subcommand, until standard input ends.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let folder = args.folder.canonicalize();
    let folder =
        folder.with_context(|| format!("cannot find the folder {}", args.folder.display()))?;
    if !folder.is_dir() {
        bail!("{} is no folder", folder.display());
    }
    let mut input = std::io::stdin().lock();
    loop {
        let mut line = Vec::new();
        let read = (&mut input)
            .take(REQUEST_BYTES_MAX)
            .read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(Outcome::Done);
        }
        if line.last() != Some(&b'\n') && read as u64 == REQUEST_BYTES_MAX {
            bail!("a request has more than {REQUEST_BYTES_MAX} bytes");
        }
        if let Some(answer) = answer(&line, &folder) {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{answer}")?;
            out.flush()?;
        }
    }
}

/// The answer to a line; `None` for a notification, and for an empty line.
fn answer(line: &[u8], folder: &Path) -> Option<Value> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return None;
    }
    let refuse = |id: Value, code: i64, message: String| {
        Some(json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }))
    };
    let request: Value = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(error) => return refuse(Value::Null, -32700, format!("this is no JSON: {error}")),
    };
    let id = request
        .get("id")
        .filter(|id| id.is_number() || id.is_string())
        .cloned()?;
    let parameters = &request["params"];
    let result = match request["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": REVISION,
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "uniprof", "version": env!("CARGO_PKG_VERSION") },
            "instructions": "Profiles of programs and virtual machines. Begin with `top`.",
        }),
        Some("ping") => json!({}),
        Some("tools/list") => json!({ "tools": TOOLS.iter().map(described).collect::<Vec<_>>() }),
        Some("tools/call") => {
            let (text, is_error) = match call(parameters, folder) {
                Ok(text) => (text, false),
                Err(error) => (format!("{error:#}"), true),
            };
            json!({ "content": [{ "type": "text", "text": text }], "isError": is_error })
        }
        method => {
            let method = method.unwrap_or("nothing");
            return refuse(id, -32601, format!("there is no method {method}"));
        }
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

fn described(tool: &Tool) -> Value {
    let property = |&(name, about): &(&str, &str)| {
        (
            name.to_owned(),
            json!({ "type": "string", "description": about }),
        )
    };
    let properties: serde_json::Map<_, _> = tool.arguments.iter().map(property).collect();
    let required: Vec<&str> = tool.arguments.iter().map(|(name, _)| *name).collect();
    json!({
        "name": tool.name,
        "description": tool.about,
        "inputSchema": { "type": "object", "properties": properties, "required": required },
        "annotations": { "readOnlyHint": true },
    })
}

fn call(parameters: &Value, folder: &Path) -> anyhow::Result<String> {
    let name = parameters["name"].as_str().unwrap_or_default();
    let tool = TOOLS.iter().find(|tool| tool.name == name);
    let tool = tool.with_context(|| format!("there is no tool `{name}`"))?;
    let mut given = Vec::new();
    for (argument, about) in tool.arguments {
        let text = parameters["arguments"][argument].as_str();
        let text = text.with_context(|| format!("`{argument}` is missing: {about}"))?;
        if *argument == FUNCTION.0 {
            given.push(text.to_owned());
            continue;
        }
        let files = text.split(',').map(|file| inside(file, folder));
        let files: anyhow::Result<Vec<String>> = files.collect();
        given.push(files?.join(","));
    }
    ask((tool.command)(&given), folder)
}

/// The path of a recording in the folder.
fn inside(file: &str, folder: &Path) -> anyhow::Result<String> {
    let path = folder.join(file).canonicalize();
    let path = path.with_context(|| format!("cannot find {file} in {}", folder.display()))?;
    if !path.starts_with(folder) || !is_recording(&path) {
        bail!(
            "{file} is no .uprof file in {}: only those are read",
            folder.display()
        );
    }
    let text = path.to_str().filter(|text| !text.contains(','));
    Ok(text
        .context("the path can't be passed on: it is no UTF-8, or has a comma")?
        .to_owned())
}

/// What this program prints for such a command, and what it says if that isn't all well.
fn ask(command: Vec<String>, folder: &Path) -> anyhow::Result<String> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(&command)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start this program anew")?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Both are read at once: a child that fills one pipe waits.
    let warnings = std::thread::spawn(move || bounded(stderr));
    let text = bounded(stdout);
    let warnings = warnings.join().unwrap_or_default();
    let status = child.wait()?;
    match status.code() {
        Some(0 | 1) => Ok([text, warnings].join("\n").trim().to_owned()),
        _ => bail!("{}", warnings.trim()),
    }
}

/// What a pipe brings, as far as an answer has room for it. The rest is read, too, or its writer would wait.
fn bounded(pipe: Option<impl Read>) -> String {
    let Some(mut pipe) = pipe else {
        return String::new();
    };
    let mut bytes = Vec::new();
    let _ = (&mut pipe).take(ANSWER_BYTES_MAX).read_to_end(&mut bytes);
    let left = std::io::copy(&mut pipe, &mut std::io::sink()).unwrap_or(0);
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if left > 0 {
        text.push_str(&format!("\n… {left} more bytes are left out"));
    }
    text
}
