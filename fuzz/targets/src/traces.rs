//! Traces of calls, a function for each format: what is made of them is a sound recording.

use uniprof_report::import::{IMPORTS, import, recognize};
use uprof::{Item, Payload};

/// Nanos's function_graph tracer.
pub fn nanos(bytes: &[u8]) {
    of("nanos-ftrace", bytes);
}

/// Linux's function_graph tracer, by trace-cmd or tracefs.
pub fn linux(bytes: &[u8]) {
    of("linux-ftrace", bytes);
}

/// The function tracer of Nanos and Linux.
pub fn functions(bytes: &[u8]) {
    of("function-tracer", bytes);
}

/// What uftrace dump prints.
pub fn uftrace(bytes: &[u8]) {
    of("uftrace", bytes);
}

/// Logs of system calls.
pub fn syscalls(bytes: &[u8]) {
    of("syscalls", bytes);
}

/// JSON of Chrome and Perfetto.
pub fn chrome(bytes: &[u8]) {
    of("chrome", bytes);
}

/// OSv's trace file.
pub fn osv(bytes: &[u8]) {
    of("osv", bytes);
}

fn of(name: &str, bytes: &[u8]) {
    let format = IMPORTS.iter().find(|format| format.name == name);
    let format = format.unwrap_or_else(|| panic!("no format is called {name}"));
    let mut out = Vec::new();
    match import(format, "fuzz", [3; 16], &mut &bytes[..], &mut out) {
        Ok(imported) => {
            let recording = uprof::SliceReader::open(&out).expect("what we wrote is a recording");
            let mut spans = 0;
            for item in recording.blocks() {
                match item {
                    Item::Block(block) => spans += rows(&block),
                    Item::Damage(damage) => panic!("{name}: {damage}"),
                }
            }
            assert_eq!(spans, imported.spans);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Err(said) = recognize(bytes) {
        assert!(said.to_string().contains(name));
    }
}

fn rows(block: &uprof::Block<'_>) -> u64 {
    let Ok(Payload::Spans(spans)) = block.payload() else {
        return 0;
    };
    let mut rows = spans.rows();
    let mut count = 0;
    while let Some(row) = rows.next_row().expect("what we wrote is whole") {
        let span = spans.named(row);
        assert!(span.depth < 1024);
        count += 1;
    }
    count
}
