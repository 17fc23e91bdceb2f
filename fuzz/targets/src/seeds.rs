//! Inputs to begin with: the corpus, sound and bad, and short texts of each kind.

use crate::images::SECTIONS;
use crate::repair::unpack;
use crate::take::{Take, put_piece};
use std::path::PathBuf;
use std::sync::Arc;
use uniprof_report::images::{Image, ImageAddress, Line, SymbolTable};
use uniprof_report::stacks::{Embedded, LineTable};
use uniprof_report::unwind::RuleTable;
use uprof::image::{ImageIdentity, MissedCaller};
use uprof::layout::ImageSection;
use uprof::{Arch, BlockType, Item, SliceReader};

/// A small program with symbols, debug information and call frame information.
pub const CALLS: &[u8] = include_bytes!("../../../corpus/images/calls");

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../corpus")
}

/// All recordings of the corpus, also the bad ones, in order of their names.
pub fn files() -> Vec<Vec<u8>> {
    let entries = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let all = entries(corpus()).chain(entries(corpus().join("bad")));
    let paths = all.map(|entry| entry.path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "uprof"))
        .collect();
    paths.sort();
    let mut files: Vec<_> = paths
        .iter()
        .filter_map(|path| std::fs::read(path).ok())
        .collect();
    // Short ones first: they take the least time.
    files.sort_by_key(Vec::len);
    files
}

/// What Nanos's tracer prints, with all that a line may have.
const TRACE: &[u8] = b"# tracer: function_graph\n 0)               |  main() {\n 0) ! 207.666 us  |    read();\n\
    \x20 0)   0.07 us     |    walk();\n 0)               |    open() {\n 0) @ 208173.1 us |  } /* main */\n\
    # CPU  DURATION\n128)   0.071 us    |  main.(*T).run();\n128)   0.071 us    |  } /* before */\n\
    \x20 1)               |  <a as b>::c() {\n";

/// Longer recordings take too long each, and are no richer.
const MOST_UNPACKED_BYTES: usize = 24 << 10;

/// The same with payloads that mutations can get at.
pub fn unpacked_files() -> Vec<Vec<u8>> {
    let files = files();
    let unpacked = files.iter().map(|file| unpack(file));
    unpacked
        .filter(|file| file.len() <= MOST_UNPACKED_BYTES)
        .collect()
}

/// Payloads of the corpus as [`crate::recordings::payload`] takes them.
pub fn payloads() -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    for file in unpacked_files() {
        let Ok(recording) = SliceReader::open(&file) else {
            continue;
        };
        for item in recording.blocks() {
            let Item::Block(block) = item else { continue };
            let Some(place) = BlockType::ALL
                .iter()
                .position(|known| Some(*known) == block.known_type())
            else {
                continue;
            };
            let start = [place as u8, block.samples.min(255) as u8];
            payloads.push([&start, block.stored()].concat());
        }
    }
    payloads.sort();
    payloads.dedup();
    payloads
}

/// Sections of a real program's tables.
pub fn embedded() -> Vec<Vec<u8>> {
    let Ok(image) = Image::from_bytes("calls", CALLS.to_vec()) else {
        return Vec::new();
    };
    let mut lines = LineTable::default();
    for address in 0x1100..0x1140 {
        let line = Line {
            function: Some(format!("f{}", address & 7)),
            file: Some("calls.c".into()),
            line: address as u32,
            ..Line::default()
        };
        lines.insert(ImageAddress(address), &[line.clone(), line]);
    }
    let embedded = Embedded {
        identity: ImageIdentity {
            path: "/a".into(),
            build_id: Vec::new(),
            arch: Arch::X86_64,
            load_bias: 0,
            origin: "seed".into(),
        },
        segments: image.segments().clone(),
        symbols: SymbolTable::default(),
        lines,
        rules: Arc::new(RuleTable::compile(&image, None).into()),
        image: None,
        callers: vec![MissedCaller {
            callee: 0,
            function: 1,
            next: 2,
            caller: 3,
        }],
    };
    let (mut payload, mut input) = (Vec::new(), Vec::new());
    embedded.parts()[0].put(&mut payload);
    let mut take = Take(&payload);
    while !take.0.is_empty() {
        let tag = take.varint();
        let length = take.varint() as usize;
        let (section, rest) = take.0.split_at(length);
        take.0 = rest;
        match u16::try_from(tag).ok().and_then(ImageSection::from_number) {
            Some(ImageSection::Segments | ImageSection::Callers | ImageSection::Lines) => {
                put_piece(&mut input, section);
            }
            Some(ImageSection::Rules) => input.extend(section),
            _ => {}
        }
    }
    vec![input]
}

/// Images.
pub fn images() -> Vec<Vec<u8>> {
    vec![CALLS.to_vec()]
}

/// The code of a real program, and words that are instructions of aarch64.
pub fn code() -> Vec<Vec<u8>> {
    let image = Image::from_bytes("calls", CALLS.to_vec());
    let text = image
        .ok()
        .and_then(|image| Some(image.section(".text")?.into_owned()));
    let words = [
        0xa9bf_7bfd_u32,
        0x9400_0001,
        0x5400_0041,
        0x4e20_8400,
        0xd65f_03c0,
    ];
    vec![
        text.unwrap_or_default(),
        words.map(u32::to_le_bytes).concat(),
    ]
}

/// Sections of a real program, as [`crate::images::dwarf`] takes them.
pub fn sections() -> Vec<Vec<u8>> {
    let Ok(image) = Image::from_bytes("calls", CALLS.to_vec()) else {
        return Vec::new();
    };
    let mut input = Vec::new();
    for name in SECTIONS {
        put_piece(&mut input, &image.section(name).unwrap_or_default());
    }
    vec![input]
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// What programs tell of code that they make.
pub fn made_code() -> Vec<Vec<u8>> {
    let mut all = texts(&[
        "1000 10 LazyCompile:~f a.js:1\n0x1100 20 g\n1008 10 again\n7f0000000000 100 far\n",
        "0 7fffffffffff all\n3ff0 20 across\n",
    ]);
    // The header of a jitdump, and a function of two bytes in it.
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_ne_bytes()).collect() };
    let mut dump = words(&[0x4A69_5444, 1, 40, 62, 0, 7, 0, 0, 0, 0]);
    dump.extend(words(&[0, 60, 5, 0, 7, 7, 0, 0, 0x1000, 0, 2, 0, 3, 0]));
    dump.extend(b"f\0\x90\xc3");
    dump.extend(words(&[
        1, 64, 6, 0, 7, 7, 0, 0, 0x1000, 0, 0x2000, 0, 2, 0, 3, 0,
    ]));
    all.push(dump);
    all
}

/// Lists of symbols and what looks like them.
pub fn symbol_lists() -> Vec<Vec<u8>> {
    let mut all = texts(&[
        "0000000000100000 T _start\n0000000000100010 0000000000000004 t work\n",
        "ffffffff81000000 T _text\nffffffffc0001000 t probe\t[virtio_net]\n",
        "0xffff82d040200000 T start\n0xffff82d040201000 t schedule.c#pick\n",
        "7f00-8f00 r-xp 00001000 08:02 173521      /usr/lib/a file.so\n",
        "{\"c_info\":{\"type\":\"pvh\"},\"b_info\":{\"kernel\":\"/x\"}}\0",
        "_ZNSt6vectorIiSaIiEE9push_backERKi _RNvCs1234_7mycrate4main \
         _ZN3foo3barIN5outer5innerEEEvT_S2_ camlStdlib__List__map_123 \
         _RINvNtC3std3mem8align_ofdE _ZN4core3ptr4drop17h0123456789abcdefE",
    ]);
    all.push(b"\x04\0\0\0\x02\0\0\0\x03\0\0\0GNU\0\xab\xcd\0\0".to_vec());
    all.push(b"\x0a\x0c\x0a\x0a\x0a\x01k\x12\x05\x0a\x03web".to_vec());
    all
}

/// What other tools print, a stack or two of each.
pub fn imports() -> Vec<Vec<u8>> {
    let trace = std::str::from_utf8(TRACE).unwrap_or_default();
    texts(&[
        trace,
        "main;parse;hash 12\nmain;walk 3\nmain_[k];x_[i] 1\n",
        "bash 123/124 [001] 17.500000: 1 cycles:\n\t  401136 work+0x16 (/tmp/a out)\n\t\
         ffffffff81000010 do_idle+0x10 ([kernel.kallsyms])\n\n",
        "0x401000\n0x402000\n1\n\n0x401000\n1\n\nmain+0x12\nf+0x3\n1\n\n",
        "rip: 0000000000101234 work+0x14\nflags: 00000246 i z p\nrsp: 0000000000107f00\n\
         Call Trace:\n  [<0000000000101234>] work+0x14 <--\n0000000000107f10: \
         [<0000000000101300>] main+0x20\n",
    ])
}

/// Two samples of a stack of two functions, and of delays.
pub fn pprof() -> Vec<Vec<u8>> {
    let field = |tag: u8, bytes: &[u8]| [&[tag, bytes.len() as u8], bytes].concat();
    let texts = [
        "",
        "samples",
        "count",
        "cpu",
        "nanoseconds",
        "main",
        "leaf",
        "/bin/m",
        "delay",
    ];
    let strings: Vec<u8> = texts
        .iter()
        .flat_map(|text| field(0x32, text.as_bytes()))
        .collect();
    let rest = [
        field(0x12, &[0x0a, 2, 1, 2, 0x12, 2, 3, 30]),
        field(
            0x12,
            &[0x08, 2, 0x10, 4, 0x10, 40, 0x1a, 4, 0x08, 5, 0x10, 6],
        ),
        field(0x1a, &[0x08, 1, 0x10, 0, 0x18, 0x7f, 0x28, 7]),
        field(
            0x22,
            &[0x08, 1, 0x10, 1, 0x18, 9, 0x22, 4, 0x08, 1, 0x10, 7],
        ),
        field(0x22, &[0x08, 2, 0x10, 1, 0x18, 8]),
        field(0x2a, &[0x08, 1, 0x10, 6, 0x18, 6]),
        field(0x5a, &[0x08, 3, 0x10, 4]),
        vec![0x60, 10],
        strings,
    ]
    .concat();
    let types = |kind: u8| {
        [
            field(0x0a, &[0x08, 1, 0x10, 2]),
            field(0x0a, &[0x08, kind, 0x10, 4]),
        ]
        .concat()
    };
    vec![
        [types(3), rest.clone()].concat(),
        [types(8)[6..].to_vec(), types(8), rest].concat(),
    ]
}

/// A few lines of Nanos's function_graph tracer.
pub fn trace_nanos() -> Vec<Vec<u8>> {
    texts(&[
        "# tracer: function_graph\n#\n 0)               |  mcache_alloc() {\n 0) ! 207.666 us  |    copy();\n \
         0) ! 208.173 us  |  } /* mcache_alloc */\n 1) + 12.500 us   |  } /* not_begun */\n",
    ])
}

/// A few lines of trace-cmd's, and of tracefs with all columns.
pub fn trace_linux() -> Vec<Vec<u8>> {
    texts(&[
        "cpus=2\n              ls-95    [001]     7.675210: funcgraph_entry:      ! 406.829 us |  mutex_unlock();\n\
                       ls-95    [001]     7.675639: funcgraph_entry:                   |  __f_unlock_pos() {\n\
                       ls-95    [001] d..1.     7.675646: funcgraph_exit:         7.288 us   |  } /* f = 0 */\n\
         CPU:1 [18047 EVENTS DROPPED]\n",
        "   29.336348 |   0)    <idle>-0    |               |  ktime_get() {\n   \
            29.336350 |   0)    <idle>-0    |   4.263 us    |  } /* ktime_get */\n 0)    bash-1234   =>    ls-567\n \
         0)   ==========> |\n 0)   1.000 us    |    irq();\n",
    ])
}

/// A few lines of function tracers.
pub fn trace_functions() -> Vec<Vec<u8>> {
    texts(&[
        "             tid-2     [000]  1000: a <-root\n             tid-2     [000]  1010: b <-a\n",
        "            init-1       [001] d....    43.576740: exit_to_user_mode <-syscall_exit\n",
        "   ls-107   [001]    36.296666: function:             mutex_unlock <-- rb_simple_write\n",
    ])
}

/// A few lines of uftrace dump.
pub fn trace_uftrace() -> Vec<Vec<u8>> {
    texts(&[
        "reading 4170.dat\n15600.521167480   4170: [entry] main(561badaba2ac) depth: 0\n\
         15600.521206348   4170: [args ] length = 8\n  args[0] d64: 0x9\n\
         15600.521206500   4170: [exit ] main(561badaba2ac) depth: 0\n",
    ])
}

/// A few lines of logs of system calls.
pub fn trace_syscalls() -> Vec<Vec<u8>> {
    texts(&[
        "[2] openat(-100, \"/etc/hosts\", 0x0, 0x0) = ENOENT\n[io] read(3, 0x7f, 1 <unfinished ...>\n\
         [io] <... read resumed>) = 1\n[2] exit_group(0) = ?\n",
        "4170 1700000000.000100 openat(-100, \"x\") = -1 ENOENT (No such file or directory) <0.000012>\n\
         4170 1700000000.000200 mmap(NULL, 8192) = 0xffffffffffffff00 <0.000007>\n",
    ])
}

/// A few events of a JSON trace.
pub fn trace_chrome() -> Vec<Vec<u8>> {
    texts(&[
        "{\"traceEvents\":[{\"ph\":\"M\",\"pid\":1,\"tid\":7,\"name\":\"thread_name\",\
         \"args\":{\"name\":\"w\\u0065\"}},{\"ph\":\"B\",\"ts\":1,\"pid\":1,\"tid\":7,\"name\":\"a\"},\
         {\"ph\":\"X\",\"ts\":2,\"dur\":1.5,\"pid\":1,\"tid\":\"io\",\"name\":\"b\"},\n\
         {\"ph\":\"E\",\"ts\":9,\"pid\":1,\"tid\":7}],\"displayTimeUnit\":\"ns\"}",
    ])
}

/// A trace file of OSv with a call and a moment.
pub fn trace_osv() -> Vec<Vec<u8>> {
    let mut file = b"TVSO\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0".to_vec();
    let mut dictionary = [10_u32.to_le_bytes(), 2_u32.to_le_bytes()].concat();
    for (key, name) in [(11_u64, "read"), (12, "read_ret")] {
        dictionary.resize(dictionary.len().next_multiple_of(8), 0);
        dictionary.extend(key.to_le_bytes());
        for text in [name, name, "OSv", ""] {
            dictionary.resize(dictionary.len().next_multiple_of(2), 0);
            dictionary.extend((text.len() as u16).to_le_bytes());
            dictionary.extend(text.as_bytes());
        }
        dictionary.resize(dictionary.len().next_multiple_of(4), 0);
        dictionary.extend(1_u32.to_le_bytes());
        dictionary.extend(b"\x01\x000i");
    }
    let mut records = Vec::new();
    for (key, time_ns) in [(11_u64, 100_u64), (11, 150), (12, 200)] {
        records.extend(key.to_le_bytes());
        records.extend(1_u64.to_le_bytes());
        records.extend(b"thread\0\0\0\0\0\0\0\0\0\0");
        records.extend(time_ns.to_le_bytes());
        records.extend([0; 16]);
    }
    for (tag, content) in [(b"DCRT", dictionary), (b"SCRT", records)] {
        file.resize(file.len().next_multiple_of(8), 0);
        file.extend(tag);
        file.extend([0; 4]);
        file.extend((content.len() as u64).to_le_bytes());
        file.extend(content);
    }
    vec![file]
}

const DESCRIPTION: &str = "l<?xml version=\"1.0\"?><target><architecture>i386:x86-64</architecture>\
    <feature name=\"core\"><reg name=\"rax\" bitsize=\"64\" regnum=\"0\"/><reg name=\"rbp\" \
    bitsize=\"64\"/><reg name=\"rsp\" bitsize=\"64\"/><reg name=\"rip\" bitsize=\"64\"/></feature>\
    <xi:include href=\"more.xml\"/></target>";

/// Payloads of a stub's replies, in the order of our questions.
pub fn gdb() -> Vec<Vec<u8>> {
    let start = "PacketSize=1000;qXfer:features:read+;vContSupported+;binary-upload+\nOK\n\
        T05thread:01;\nvCont;c;C;s;S\nm01,02,p1.3\nl\n";
    let names = "435055233020 5b72756e6e696e675d\n43505523315b68616c746564205d\n\n";
    let end = "0*~0*~0*~0*~\nb1234567890abcdef\nOK\nE01\n";
    texts(&[
        &format!("{start}{DESCRIPTION}\nl\n{names}{end}"),
        &format!(
            "{}{}\n{names}{end}",
            start.replace("qXfer", "x"),
            "00".repeat(164)
        ),
        DESCRIPTION,
    ])
}

/// What a stub sends.
pub fn gdb_bytes() -> Vec<Vec<u8>> {
    texts(&[
        "+$PacketSize=1000;vContSupported+#e4+$OK#9a+$T02thread:01;#05",
        "+$0* #7a$a}\x03b#00%Stop:T05#99$OK#9a$E01#a6-+$W00#b7",
    ])
}

/// What a monitor answers, in the order of our questions.
pub fn qmp() -> Vec<Vec<u8>> {
    let devices =
        r#"{"return":[{"label":"gdb","filename":"disconnected:tcp:0.0.0.0:1234,server=on"}]}"#;
    let tree = "FlatView #0\\n AS \\\"memory\\\", root: system\\n  0000000000000000-0000000007ffffff \
        (prio 0, ram): mem @0000000000000000 KVM\\n";
    texts(&[&format!(
        "{}\n{{\"return\":{{}}}}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{{\"return\":\"{tree}\"}}\n{devices}\n",
        r#"{"QMP":{"version":{},"capabilities":[]}}"#,
        r#"{"return":{"qemu":{"major":8,"minor":2,"micro":1}}}"#,
        r#"{"return":[{"thread-id":71},{"thread-id":72}]}"#,
        r#"{"return":"/boot/kernel"}"#,
        r#"{"event":"STOP"}"#,
        r#"{"return":"pc-q35"}"#,
        r#"{"return":{"name":"guest"}}"#,
        r#"{"return":{"arch":"x86_64"}}"#,
        r#"{"return":{"status":"running"}}"#,
        r#"{"return":{"enabled":true}}"#,
        r#"{"return":[{"id":"mem","size":134217728,"share":true}]}"#,
    )])
}

/// Replies as [`crate::conversations::xenstore`] takes them, and bytes as they are.
pub fn xenstore() -> Vec<Vec<u8>> {
    let mut replies = vec![0];
    for (kind, payload) in [
        (1, &b"Domain-0"[..]),
        (0, b"0\x007\x0099\0"),
        (1, b"Domain-0"),
        (3, b"x\0y\0"),
        (1, b"guest"),
        (4, b"ENOENT\0"),
        (1, b"/vm/0000"),
    ] {
        replies.push(kind);
        put_piece(&mut replies, payload);
    }
    let mut raw = vec![1];
    for word in [2u32, 1, 0, 5] {
        raw.extend(word.to_le_bytes());
    }
    raw.extend(b"guest");
    vec![replies, raw]
}

/// Bytes without a meaning.
pub fn noise() -> Vec<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(1);
    vec![
        (0..4096).map(|_| random.u8(..)).collect(),
        (0..1024).map(|_| random.u8(..4)).collect(),
    ]
}

/// Names, a line each.
pub fn names() -> Vec<Vec<u8>> {
    texts(&[
        "<script>alert(1)</script>\n</title><svg onload=x>\n\"><a href='javascript:x'>\n]]>\n-->\n\
         &lt;b&gt;\n&amp\na;b c\nmain\n",
        "\u{1b}[31mred\u{1b}[0m\n\u{202e}drow\n\r\nname\twith\ttabs\n\0\n\u{feff}\n\u{fffe}\n\
         =cmd|' /C calc'!A0\n+1\n@x\n-1\n\"quoted\", and more\n",
        "\\u0000\n\\\n\"\n'\n`\n${x}\n%s%n\n../../etc/passwd\n;\n_[k]\n 17\n",
        "name\nthread\nhost\nkey\nvalue\n/usr/lib/lib<&>.so\norigin\nmessage\ntotal\nworker\n",
    ])
}
