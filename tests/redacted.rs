//! Redacted recordings of real programs, whose runtimes put folders, hosts and texts into names in their own
//! ways: Go, Node.js, Java, and a log of strace. No block contains anything private, and the names that a
//! report needs are still there.

#![cfg(feature = "report")]

mod unpacked;

use std::path::Path;
use std::process::{Command, Output};

/// Secrets of the programs, in their folders, arguments, code and threads.
const SECRETS: [&str; 6] = [
    "home-of-bob",
    "hunter2",
    "forge.example",
    "team/project",
    "correct-horse",
    "battery-staple",
];

const GO_MODULE: &str = "module forge.example/team/project\ngo 1.18\n";
const GO_PACKAGE: &str = "
package work

type T struct{ n int }

//go:noinline
func (t *T) Run(n int) int {
	s := t.n
	for i := 0; i < n; i++ {
		s += i * s
	}
	return s
}

//go:noinline
func Map[A any](a []A, f func(A) int) int {
	s := 0
	for _, x := range a {
		s += f(x)
	}
	return s
}
";
const GO_MAIN: &str = "
package main

import (
	\"forge.example/team/project/inner/work\"
	\"time\"
)

func main() {
	t := &work.T{}
	a := make([]work.T, 1000)
	s := 0
	for e := time.Now().Add(20 * time.Second); time.Now().Before(e); {
		s += t.Run(1000000)
		s += work.Map(a, func(x work.T) int { return x.Run(1000) })
	}
	println(s)
}
";
const NODE: &str = "
function countSquares(n) { let s = 0; for (let i = 0; i < n; i++) s += Math.sqrt(i) % 7; return s; }
const pattern = /(hunter2|correct-horse)+x/;
let s = 0;
for (const end = Date.now() + 20000; Date.now() < end;) {
  s += countSquares(10000);
  for (let i = 0; i < 1000; i++) s += pattern.test('hunter2hunter2hunter2' + i) ? 1 : 0;
}
";
const JAVA: &str = "
public class App {
  static long countSquares(long n) { long s = 0; for (long i = 0; i < n; i++) s += i * i ^ (i % 7); return s; }
  public static void main(String[] a) throws Exception {
    Thread thread = new Thread(() -> {
      long s = 0;
      for (long end = System.currentTimeMillis() + 3000; System.currentTimeMillis() < end;) s += countSquares(100000);
      System.out.println(s);
    }, \"KEY=hunter2\");
    thread.start();
    thread.join();
  }
}
";

/// Runs a command in `folder`. If this machine lacks it or it fails, says why and returns `None`.
fn run(folder: &Path, command: &[&str]) -> Option<Output> {
    let output = Command::new(command[0])
        .args(&command[1..])
        .current_dir(folder)
        .env("HOME", folder)
        .env("GOCACHE", folder.join("cache"))
        .env("GOPATH", folder.join("gopath"))
        .env("GOPROXY", "off")
        .env("GOFLAGS", "-mod=mod")
        .output();
    // Status 1 of uniprof is a finding, not a failure.
    let most = i32::from(Path::new(command[0]).ends_with("uniprof"));
    match output {
        Ok(output) if output.status.code().is_some_and(|code| code <= most) => Some(output),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            println!("skipped: {command:?} fails here: {said}");
            None
        }
        Err(error) => {
            println!("skipped: no {} here: {error}", command[0]);
            None
        }
    }
}

/// A folder with a secret name.
fn home() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home-of-bob");
    std::fs::create_dir(&home).unwrap();
    (folder, home)
}

/// Records `command` into run.uprof.
fn record(folder: &Path, flags: &[&str], command: &[&str]) -> Option<Output> {
    let program = kit::program();
    let words = ["record", "-F", "499", "-o", "run.uprof"];
    run(
        folder,
        &[
            &[program.to_str().unwrap()],
            &words[..],
            flags,
            &["--"],
            command,
        ]
        .concat(),
    )
}

/// Redacts run.uprof, which has `planted`, asserts that nothing private is left, and returns the dump.
fn redacted(folder: &Path, planted: &[&str]) -> String {
    let uniprof = kit::program();
    let uniprof = uniprof.to_str().unwrap();
    let bundle = run(folder, &[uniprof, "bundle", "run.uprof"]);
    bundle.expect("it can be bundled");
    let bytes = |name: &str| {
        let blocks = unpacked::blocks(&folder.join(name));
        blocks
            .into_iter()
            .flat_map(|(_, bytes)| bytes)
            .collect::<Vec<u8>>()
    };
    let before = bytes("run.uprof");
    for planted in planted {
        let is_there = unpacked::found(&before, &[planted]).is_some();
        assert!(is_there, "{planted} is not in the recording");
    }
    run(folder, &[uniprof, "bundle", "run.uprof", "--redact"]).expect("it can be redacted");
    let folders = folder.parent().unwrap().file_name().unwrap();
    let secrets = [&SECRETS[..], &[folders.to_str().unwrap()]].concat();
    let after = bytes("run.redacted.uprof");
    let text = String::from_utf8_lossy(&after);
    assert_eq!(unpacked::found(&after, &secrets), None, "in {text}");
    let dump = run(folder, &[uniprof, "dump", "run.redacted.uprof"]);
    String::from_utf8(dump.expect("it can be read").stdout).unwrap()
}

#[test]
fn functions_of_go_keep_their_package_and_not_its_path() {
    let (_kept, home) = home();
    let inner = home.join("inner/work");
    std::fs::create_dir_all(&inner).unwrap();
    std::fs::write(home.join("go.mod"), GO_MODULE).unwrap();
    std::fs::write(home.join("main.go"), GO_MAIN).unwrap();
    std::fs::write(inner.join("work.go"), GO_PACKAGE).unwrap();
    if run(&home, &["go", "build", "-o", "app", "."]).is_none()
        || record(&home, &["-d", "2s"], &["./app", "--key=hunter2"]).is_none()
    {
        return;
    }
    let dump = redacted(
        &home,
        &[
            "home-of-bob",
            "forge.example/team/project/inner/work.(*T).Run",
        ],
    );
    for name in ["\"work.(*T).Run\"", "\"work.go\"", "\"main.main\""] {
        assert!(dump.contains(name), "no {name} in {dump}");
    }
}

#[test]
fn functions_of_node_keep_their_script_and_no_text_of_it() {
    let (_kept, home) = home();
    std::fs::write(home.join("app.js"), NODE).unwrap();
    let command = [
        "node",
        "--perf-basic-prof",
        "--no-regexp-tier-up",
        "app.js",
        "--key=hunter2",
    ];
    if run(&home, &["node", "--version"]).is_none()
        || record(&home, &["-d", "3s"], &command).is_none()
    {
        return;
    }
    let dump = redacted(
        &home,
        &["home-of-bob/app.js", "RegExp:(hunter2|correct-horse)+x"],
    );
    for name in ["countSquares app.js:2:", "\"RegExp:[redacted]\""] {
        assert!(dump.contains(name), "no {name} in {dump}");
    }
}

#[test]
fn functions_of_java_keep_their_class_and_threads_no_value() {
    let (_kept, home) = home();
    std::fs::write(home.join("App.java"), JAVA).unwrap();
    let command = [
        "java",
        "-Dkey=hunter2",
        "-XX:+PreserveFramePointer",
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:+DumpPerfMapAtExit",
        "App",
    ];
    if run(&home, &["javac", "App.java"]).is_none() || record(&home, &[], &command).is_none() {
        return;
    }
    let dump = redacted(&home, &["KEY=hunter2", "-Dkey=hunter2"]);
    for name in ["\"KEY\"", "App.countSquares(long)", "\"libjvm.so\""] {
        assert!(dump.contains(name), "no {name} in {dump}");
    }
}

#[test]
fn system_calls_of_strace_keep_their_names_and_no_arguments() {
    let (_kept, home) = home();
    std::fs::write(home.join("battery-staple"), "hunter2").unwrap();
    // The program writes to the same console, and its output may look like a line of the log.
    let line = "<... correct-horse' OR 'x resumed>) = 1";
    let say = format!("printf '\\n%s\\n' \"{line}\"");
    let script = format!("exec >&2; cat battery-staple; {say}; cat no-hunter2; true");
    let words = [
        "strace",
        "-f",
        "-ttt",
        "-T",
        "-y",
        "-e",
        "trace=!ioctl",
        "sh",
        "-c",
    ];
    let words = [&words[..], &[&script]].concat();
    let Some(output) = run(&home, &words) else {
        return;
    };
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    for planted in [
        "battery-staple",
        "\n<... correct-horse'",
        "home-of-bob",
        "hunter2",
    ] {
        assert!(log.contains(planted), "no {planted} in {log}");
    }
    std::fs::write(home.join("strace-of-home-of-bob.log"), log).unwrap();
    let program = kit::program();
    let log = "strace-of-home-of-bob.log";
    let import = ["import", "--format", "syscalls", log, "-o", "run.uprof"];
    let import = [&[program.to_str().unwrap()], &import[..]].concat();
    run(&home, &import).expect("it can be imported");
    let dump = redacted(&home, &[log]);
    for name in ["\"openat\"", "\"write\"", "\"read\""] {
        assert!(dump.contains(name), "no {name} in {dump}");
    }
}
