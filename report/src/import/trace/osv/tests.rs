//! These files were written by hand to match core/trace.cc of OSv (`trace::create_trace_dump`).

use super::*;
use crate::import::trace::collected::SpanCollector;

/// Writes a file in OSv's format.
#[derive(Default)]
struct File(Vec<u8>);

impl File {
    fn align(&mut self, to: usize) -> &mut Self {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.align(2).0.extend(value.to_le_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.align(4).0.extend(value.to_le_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.align(8).0.extend(value.to_le_bytes());
        self
    }

    fn string(&mut self, text: &str) -> &mut Self {
        self.u16(text.len() as u16).0.extend(text.as_bytes());
        self
    }

    fn chunk(&mut self, tag: &[u8; 4], fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.align(8).0.extend(tag.iter().rev());
        let at = self.align(8).0.len();
        self.u64(0);
        fill(self);
        let size = (self.0.len() - at - 8) as u64;
        self.0[at..at + 8].copy_from_slice(&size.to_le_bytes());
        self
    }

    fn dictionary(&mut self, tracepoints: &[(u64, &str, &str)]) -> &mut Self {
        self.chunk(b"TRCD", |file| {
            file.u32(10).u32(tracepoints.len() as u32);
            for (key, name, signature) in tracepoints {
                file.u64(*key)
                    .string(name)
                    .string(name)
                    .string("OSv")
                    .string("%d");
                file.u32(signature.len() as u32);
                for (at, letter) in signature.bytes().enumerate() {
                    file.string(&at.to_string()).0.push(letter);
                }
            }
        })
    }

    fn record(
        &mut self,
        tracepoint: u64,
        thread: u64,
        time_ns: u64,
        cpu: u32,
        has_backtrace: bool,
    ) -> &mut Self {
        self.u64(tracepoint).u64(thread);
        self.0
            .extend(format!("{:\0<16}", format!("t{thread}")).bytes());
        self.u64(time_ns).u32(cpu).u32(u32::from(has_backtrace));
        for at in 0..if has_backtrace { 10 } else { 0 } {
            self.u64(at);
        }
        self
    }
}

const TRACEPOINTS: &[(u64, &str, &str)] = &[
    (11, "vfs_read", "iPq"),
    (12, "vfs_read_ret", "q"),
    (13, "vfs_read_err", "i"),
    (14, "sched_wake", "Pp*"),
    (15, "function entry", "PP"),
    (16, "function exit", "PP"),
    (17, "mutex_lock_wait", "P"),
    (18, "mutex_lock_wake", "P"),
];

fn file() -> Vec<u8> {
    let mut file = File::default();
    file.chunk(b"OSVT", |file| {
        file.u32(1).u32(1).dictionary(TRACEPOINTS);
        file.chunk(b"MODS", |file| {
            file.u32(7);
        });
        file.chunk(b"TRCS", |file| {
            file.record(11, 1, 100, 0, true).u32(3).u64(0x1000).u64(512);
            file.record(14, 1, 150, 0, false).u64(0x2000);
            file.0.extend([7; 50]);
            file.u16(3).0.extend(b"abc");
            file.align(8).record(17, 1, 160, 0, false).u64(0x3000);
            file.record(11, 2, 300, 0, false)
                .u32(3)
                .u64(0x1000)
                .u64(512);
            file.record(13, 2, 310, 0, false).u32(5).align(8);
            file.record(11, 2, 0, 0, false).u32(3).u64(0x1000).u64(512);
        });
        // The first thread has migrated to another processor.
        file.chunk(b"TRCS", |file| {
            file.record(18, 1, 170, 1, false).u64(0x3000);
            file.record(12, 1, 200, 1, false).u64(512);
            file.record(15, 1, 210, 1, false).u64(0x4000).u64(0x1);
            file.record(16, 1, 215, 1, false).u64(0x4000).u64(0x1);
            file.u64(0).u64(0).u64(0).u64(0).u64(0).u64(0);
        });
    });
    file.0
}

fn spans(bytes: &[u8]) -> SpanCollector {
    let mut sink = SpanCollector::default();
    read(&mut &*bytes, &mut sink).unwrap();
    sink
}

#[test]
fn tracepoints_that_end_others_are_calls() {
    let sink = spans(&file());
    let expected = [
        "0/0 sched_wake 1 ?",
        "0/0 mutex_lock_wait 1 10",
        "0/0 vfs_read 0 100",
        "0/0 0x4000 0 5",
        "0/1 vfs_read 0 10",
    ];
    assert_eq!(sink.lines(), expected);
    assert_eq!(sink.spans[4].result, Some(-5));
    assert_eq!(sink.spans[2].cpu, Some(0));
    assert_eq!(sink.tasks[0].2, b"t1");
    assert_eq!(sink.troubles, []);
}

#[test]
fn a_file_that_is_cut_has_the_calls_before() {
    let file = file();
    let whole = spans(&file).spans.len();
    for end in 0..file.len() {
        let found = spans(&file[..end]);
        assert!(found.spans.len() <= whole, "cut at {end}");
    }
    let cut = spans(&file[..file.len() - 100]);
    assert_eq!(cut.troubles.len(), 1);
}

#[test]
fn records_beyond_the_limit_are_left_out_and_counted() {
    let mut sink = SpanCollector::default();
    read_most(3, &mut &file()[..], &mut sink).unwrap();
    assert_eq!(sink.spans.len(), 3);
    assert_eq!(sink.troubles.len(), 6);
}
