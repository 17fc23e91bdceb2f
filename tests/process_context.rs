//! What a process publishes about itself as OpenTelemetry's process context becomes labels of its recording.

#![cfg(all(feature = "record", feature = "report"))]

use kit::{run, uniprof};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Publishes the bytes of a file: `publish FILE VERSION SIZE PUBLISHED_AT`, and then works.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
struct header { char signature[8]; uint32_t version, size; uint64_t published_at; char *message; };
int main(int count, char **words) {
    static char message[1 << 16];
    size_t page = sysconf(_SC_PAGESIZE);
    int from = open(words[1], O_RDONLY), fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);
    if (read(from, message, sizeof message) < 0 || ftruncate(fd, page))
        return 1;
    struct header *header = mmap(0, page, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    close(fd);
    header->version = atoi(words[2]);
    header->size = strtoul(words[3], 0, 10);
    header->published_at = strtoull(words[4], 0, 10);
    header->message = message;
    memcpy(header->signature, "OTEL_CTX", 8);
    prctl(0x53564d41, 0, header, page, "OTEL_CTX");
    puts("ready");
    fflush(stdout);
    for (volatile uint64_t n = 0;; n++)
        ;
}
"#;

/// A field of a protobuf message.
fn part(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = [bytes.len() as u8 | 0x80, (bytes.len() >> 7) as u8];
    [&[number << 3 | 2][..], &length, bytes].concat()
}

/// A ProcessContext message.
fn context(attributes: &[(&str, &str)]) -> Vec<u8> {
    let attributes = attributes.iter().map(|(key, value)| {
        let value = part(1, value.as_bytes());
        part(1, &[part(1, key.as_bytes()), part(2, &value)].concat())
    });
    part(1, &attributes.collect::<Vec<_>>().concat())
}

struct Publisher(Child);

impl Drop for Publisher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn publish(program: &Path, message: &Path, rest: [&str; 3]) -> Publisher {
    let mut command = Command::new(program);
    command.arg(message).args(rest).stdout(Stdio::piped());
    let mut publisher = Publisher(command.spawn().unwrap());
    let mut line = String::new();
    let stdout = publisher.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    publisher
}

/// The labels of a short recording of the process, as JSON.
fn labels(folder: &Path, publisher: &Publisher, words: &[&str]) -> serde_json::Value {
    let file = folder.join("run.uprof");
    let mut record = uniprof();
    record
        .args(["record", "-q", "-d", "200ms", "-o"])
        .arg(&file);
    record.args(words).arg(format!("pid:{}", publisher.0.id()));
    let ended = run(&mut record);
    assert!(ended.status <= 1, "{}", ended.stderr);
    let mut export = uniprof();
    export.args(["export", "-q", "-f", "json", "--no-search"]);
    let told = run(export.arg(&file)).stdout;
    std::fs::remove_file(file).unwrap();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    told["recordings"][0]["labels"].clone()
}

fn build(folder: &Path, message: &[u8]) -> Option<(PathBuf, PathBuf, String)> {
    let program = kit::build(&folder.join("publish"), SOURCE, &["-O1"])?;
    let file = folder.join("message");
    std::fs::write(&file, message).unwrap();
    Some((program, file, message.len().to_string()))
}

#[test]
fn what_a_process_publishes_are_labels_but_given_ones_count() {
    let folder = tempfile::tempdir().unwrap();
    let long = "x".repeat(300);
    let message = context(&[
        ("service.name", "web"),
        ("service.version", "1.4.2"),
        ("service.instance.id", "7"),
        ("deployment.environment.name", "eu \"west\""),
        ("service.bad key", "x"),
        ("service.namespace", "a\nb"),
        ("service.criticality", &long),
        ("host.name", "secret"),
        ("process.command_line", "secret"),
    ]);
    let Some((program, file, size)) = build(folder.path(), &message) else {
        return;
    };
    let publisher = publish(&program, &file, ["2", &size, "1"]);
    let wanted = serde_json::json!({
        "service": "web", "version": "1.4.2", "service.instance.id": "7",
        "deployment.environment.name": "eu \"west\"",
    });
    assert_eq!(labels(folder.path(), &publisher, &[]), wanted);
    let given = ["--label", "service=mine", "--label", "team=a"];
    let wanted = serde_json::json!({
        "service": "mine", "team": "a", "version": "1.4.2", "service.instance.id": "7",
        "deployment.environment.name": "eu \"west\"",
    });
    assert_eq!(labels(folder.path(), &publisher, &given), wanted);
}

#[test]
fn what_is_written_damaged_or_too_long_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let message = context(&[("service.name", "web")]);
    let Some((program, file, size)) = build(folder.path(), &message) else {
        return;
    };
    let cases = [
        ["2", &size, "0"],
        ["1", &size, "1"],
        ["2", "4294967295", "1"],
        ["2", "65537", "1"],
        ["2", "9", "1"],
    ];
    for case in cases {
        let publisher = publish(&program, &file, case);
        let found = labels(folder.path(), &publisher, &[]);
        assert_eq!(found, serde_json::json!({}), "{case:?}");
    }
}
