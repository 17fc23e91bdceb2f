//! Programs that generate code at run time. Input: names of processes. Output: commands that give names to such code.

use crate::recording::{Recording, first_word};
use std::collections::BTreeSet;

/// The name of a process, and how to make it write a map of its code.
const RUNTIMES: [(&str, &str); 9] = [
    ("node", "node --perf-basic-prof"),
    (
        "java",
        "java -XX:+PreserveFramePointer, and `jcmd PID Compiler.perfmap` while it is recorded (or \
         -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit)",
    ),
    ("dotnet", "DOTNET_PerfMapEnabled=1 dotnet"),
    ("python", "python3 -X perf (from 3.12 on)"),
    ("php", "php -d opcache.jit_debug=16"),
    ("ruby", "ruby --yjit --yjit-perf (from 3.3 on)"),
    ("beam", "erl +JPperf true"),
    ("wasmtime", "wasmtime --profile=jitdump"),
    ("julia", "ENABLE_JITPROFILING=1 julia"),
];

/// How the names of memory for generated code begin.
const MADE: [&str; 5] = ["//anon", "[anon", "/memfd:", "/dev/zero", "anon_inode:"];

/// How the name of a module begins that is memory for generated code, `None` of another; a program may have chosen the
/// rest.
pub(crate) fn made_start(path: &str) -> Option<&'static str> {
    MADE.into_iter().find(|start| path.starts_with(start))
}

/// Whether a module is memory for generated code.
pub(crate) fn is_made(path: &str) -> bool {
    made_start(path).is_some()
}

/// What to do about code without names that the processes of `recording` generated.
pub(crate) fn advice(recording: &Recording) -> String {
    let tasks = recording.tasks();
    let mut names: BTreeSet<&str> = tasks
        .iter()
        .filter_map(|task| tasks.last_name(task))
        .collect();
    let target = first_word(&recording.metadata().target.name);
    names.insert(target.rsplit('/').next().unwrap_or(target));
    let known = RUNTIMES.iter().filter(|(start, _)| {
        let mut names = names.iter();
        names.any(|name| name.starts_with(start))
    });
    let typed: Vec<&str> = known.map(|(_, typed)| *typed).collect();
    let remedy = if typed.is_empty() {
        "its runtime can list it in /tmp/perf-PID.map or a jitdump".to_owned()
    } else {
        format!("to have them, start it as {}", typed.join("; "))
    };
    format!("code that was made at run time has no names; {remedy}")
}
