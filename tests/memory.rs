//! Small files that demand much memory, a deep stack or hours of work. Every command ends with a message and
//! a status, in 200 MiB of address space, where Rust would otherwise abort. It takes at most a minute of
//! processor time (without optimisation; seconds with it).

#![cfg(feature = "report")]

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use uprof::cold::{
    End, EndReason, Mapping, Metadata, ModuleChange, ModuleEvent, TargetKind, TaskChange, TaskEvent,
};
use uprof::{Frame, Sample, Task, Writer};

const TEXT: u64 = 0x40_0000;

/// Writes a recording of a process at 99 Hz; `fill` adds its content.
fn written(path: &Path, fill: impl FnOnce(&mut Writer<File>)) {
    let mut metadata = Metadata::default();
    metadata.target.kind = TargetKind::Process;
    metadata.sampling.rate_millihertz = 99_000;
    let file = File::create(path).unwrap();
    let mut writer = Writer::create(file, [7; 16], &metadata, 1_000).unwrap();
    fill(&mut writer);
    let end = End {
        time_ns: 1_000_000_000,
        reason: EndReason::TargetEnded,
        message: "it ended".into(),
        totals: Vec::new(),
    };
    writer.finish(&end).unwrap();
}

/// Maps the file of [`image`] in `space`, at the address that it is linked at.
fn map_image(writer: &mut Writer<File>, space: u32) {
    let mapping = Mapping {
        start: TEXT,
        length: 0x10_0000,
        path: "/image".into(),
        ..Mapping::default()
    };
    let mapped = ModuleEvent {
        time_ns: 1_000,
        space,
        what: ModuleChange::Mapped(mapping),
    };
    writer.modules(&[mapped]).unwrap();
}

/// A recording with one sample of each of `spaces` processes, all with a chain of `frames`.
fn recording(path: &Path, spaces: u32, frames: u64) {
    written(path, |writer| {
        let chain: Vec<Frame> = (0..frames)
            .map(|index| Frame::exact(TEXT + 0x1010 + index))
            .collect();
        for space in 1..=spaces {
            let task = Task { space, vcpu: space };
            let named = TaskEvent {
                time_ns: 1_000,
                task,
                what: TaskChange::Named(format!("p{space}")),
            };
            writer.tasks(&[named]).unwrap();
            map_image(writer, space);
            let sample = Sample::bare(2_000 + u64::from(space), task, &chain);
            writer.sample(&sample).unwrap();
        }
    });
}

/// A folder with the recording of one sample, in the image that a test writes beside it.
fn folder_of_a_sample() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    recording(&folder.path().join("run.uprof"), 1, 3);
    folder
}

/// Writes an ELF image of x86-64 that is loaded at [`TEXT`], with these sections.
fn image(path: &Path, sections: &[(&str, &[u8])]) {
    let mut names = vec![0];
    let mut bytes = vec![0; 64 + 56];
    let mut headers = vec![[0u64; 8]];
    for (name, content) in sections.iter().chain([&(".shstrtab", &[][..])]) {
        let name_at = names.len() as u64;
        names.extend_from_slice(name.as_bytes());
        names.push(0);
        let content = if *name == ".shstrtab" {
            &names
        } else {
            *content
        };
        // Type, flags, and whether it is a table with entries of 24 bytes to which the next section belongs.
        let (kind, flags, is_table) = match *name {
            ".symtab" => (2, 0, true),
            ".shstrtab" | ".strtab" => (3, 0, false),
            ".rela" => (4, 2, true),
            ".dynsym" => (11, 2, true),
            _ => (1, 0, false),
        };
        let next = headers.len() as u64 + 1;
        headers.push([
            name_at | kind << 32,
            flags,
            0,
            bytes.len() as u64,
            content.len() as u64,
            next * u64::from(is_table),
            1,
            24 * u64::from(is_table),
        ]);
        bytes.extend_from_slice(content);
    }
    let sections_at = bytes.len() as u64;
    for header in &headers {
        bytes.extend(header.iter().flat_map(|word| word.to_le_bytes()));
    }
    let count = headers.len() as u16;
    bytes[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // ET_EXEC, EM_X86_64, version, entry, program headers, section headers.
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(16, &[2, 0, 62, 0, 1, 0, 0, 0]);
    put(32, &64u64.to_le_bytes());
    put(40, &sections_at.to_le_bytes());
    put(52, &[64, 0, 56, 0, 1, 0, 64, 0]);
    put(60, &count.to_le_bytes());
    put(62, &(count - 1).to_le_bytes());
    // PT_LOAD, readable and executable, all of it.
    put(64, &[1, 0, 0, 0, 5, 0, 0, 0]);
    for (index, word) in [0, TEXT, TEXT, 0x10_0000, 0x10_0000, 0x1000]
        .iter()
        .enumerate()
    {
        put(72 + 8 * index, &word.to_le_bytes());
    }
    std::fs::write(path, bytes).unwrap();
}

/// Abbreviations: 1 is a unit, 2 a function and 3 an inlined function, each with addresses and children; 4 is
/// a unit with lines; 5 one with lines and children, but without addresses; 6 one with a name among all names.
const ABBREVIATIONS: &[u8] = &[
    1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0, // DW_AT_low_pc address, DW_AT_high_pc data8
    2, 0x2e, 1, 0x11, 1, 0x12, 7, 0, 0, //
    3, 0x1d, 1, 0x11, 1, 0x12, 7, 0, 0, //
    4, 0x11, 0, 0x11, 1, 0x12, 7, 0x10, 0x17, 0, 0, // DW_AT_stmt_list sec_offset
    5, 0x11, 1, 0x10, 0x17, 0, 0, //
    6, 0x11, 0, 0x03, 0x0e, 0, 0, // DW_AT_name strp
    0,
];

fn entry(kind: u8) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(TEXT.to_le_bytes());
    bytes.extend(0x10_0000u64.to_le_bytes());
    bytes
}

fn unit(entries: &[u8]) -> Vec<u8> {
    let mut bytes = (entries.len() as u32 + 7).to_le_bytes().to_vec();
    bytes.extend([4, 0, 0, 0, 0, 0, 8]);
    bytes.extend(entries);
    bytes
}

/// `has_addresses`: whether the unit says which it has; else those of its lines count.
fn nested_inlines(path: &Path, levels: usize, has_addresses: bool) {
    let of_unit = if has_addresses {
        entry(1)
    } else {
        vec![5, 0, 0, 0, 0]
    };
    let mut entries = [of_unit, entry(2)].concat();
    entries.extend(std::iter::repeat_n(entry(3), levels).flatten());
    entries.extend(std::iter::repeat_n(0, levels + 2));
    let sections: [(&str, &[u8]); 3] = [
        (".debug_abbrev", ABBREVIATIONS),
        (".debug_info", &unit(&entries)),
        (".debug_line", &lines(1, 1)),
    ];
    image(path, &sections);
}

/// A table of lines whose `files` are in one folder with a name of `name_bytes`.
fn lines(files: usize, name_bytes: usize) -> Vec<u8> {
    // The lengths of the standard opcodes, the same for all compilers.
    let mut header = vec![1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
    header.extend(std::iter::repeat_n(b'd', name_bytes));
    header.extend([0, 0]);
    for _ in 0..files {
        header.extend([b'f', 0, 1, 0, 0]);
    }
    header.push(0);
    let mut program = vec![0, 9, 2];
    program.extend(TEXT.to_le_bytes());
    program.extend([1, 2, 0x80, 0x80, 0x40, 0, 1, 1]);
    let mut table = (header.len() as u32).to_le_bytes().to_vec();
    table.splice(0..0, [4, 0]);
    table.extend(header);
    table.extend(program);
    [(table.len() as u32).to_le_bytes().to_vec(), table].concat()
}

/// Writes an image with such a table.
fn long_names(path: &Path, files: usize, name_bytes: usize) {
    let table = lines(files, name_bytes);
    let info = unit(&[entry(4), vec![0; 4]].concat());
    let sections: [(&str, &[u8]); 3] = [
        (".debug_abbrev", ABBREVIATIONS),
        (".debug_info", &info),
        (".debug_line", &table),
    ];
    image(path, &sections);
}

/// Runs uniprof in 200 MiB of address space. Returns status and messages.
fn uniprof(folder: &Path, words: &str) -> (i32, String) {
    let script = format!("ulimit -v 204800; ulimit -t 60; exec \"$0\" {words}");
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(kit::program())
        .current_dir(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code();
    (
        code.unwrap_or_else(|| panic!("{words}: a signal: {said}")),
        said,
    )
}

const COMMANDS: [&str; 12] = [
    "report {} run.uprof",
    "report {} --tree run.uprof",
    "report {} --callers f run.uprof",
    "report {} --annotate f run.uprof",
    "report {} --flame=- run.uprof",
    "report {} --html=- run.uprof",
    "export {} -f json run.uprof",
    "export {} -f pprof -o pb.gz run.uprof",
    "export {} -f firefox run.uprof",
    "diff {} run.uprof run.uprof",
    "bundle {} run.uprof -o bundled.uprof",
    "bundle {} run.uprof --redact -o redacted.uprof",
];

fn all_commands(folder: &Path, elf: &str) -> Vec<(i32, String)> {
    let run = |form: &&str| uniprof(folder, &form.replace("{}", elf));
    let ends: Vec<(i32, String)> = COMMANDS.iter().map(run).collect();
    for ((code, said), words) in ends.iter().zip(COMMANDS) {
        assert!((0..=2).contains(code), "{words}: {code}: {said}");
        assert!(*code < 2 || said.contains("uniprof: "), "{words}: {said}");
    }
    let left = std::fs::read_dir(folder).unwrap().flatten();
    let mut names = left.map(|it| it.file_name().to_string_lossy().into_owned());
    assert!(
        !names.any(|name| name.ends_with(".part")),
        "half a file is left"
    );
    ends
}

#[test]
fn inlined_functions_that_nest_without_end_are_left_out() {
    let folder = folder_of_a_sample();
    let folder = folder.path();
    let cases = [(512, true), (513, false), (100_000, false)];
    let cases = cases.map(|case| [(case, true), (case, false)]);
    for ((levels, is_read), has_addresses) in cases.into_iter().flatten() {
        nested_inlines(&folder.join("image"), levels, has_addresses);
        for (code, said) in all_commands(folder, "--elf image") {
            assert!(code < 2, "{levels} levels: {said}");
            let is_told = said.contains("nests or repeats itself");
            assert!(
                is_read != is_told || !said.contains("warning"),
                "{levels}: {said}"
            );
        }
        let (_, said) = uniprof(folder, "report --elf image run.uprof");
        assert_eq!(said.contains("nests or repeats itself"), !is_read, "{said}");
    }
}

/// Writes `units` units. Each uses a different abbreviation, the first one of its table. If `are_apart`, that
/// is the only one of its table. Otherwise the tables overlap: each reaches to the end of the section.
fn long_abbreviations(path: &Path, units: u32, are_apart: bool) {
    let (mut table, mut info) = (Vec::new(), Vec::new());
    for number in 0..units {
        let start = table.len() as u32;
        // The number in three bytes, DW_TAG_compile_unit, no children, DW_AT_low_pc address.
        let code = [
            0x80 | number as u8,
            0x80 | (number >> 7) as u8,
            1 + (number >> 14) as u8,
        ];
        table.extend(code);
        table.extend([0x11, 0, 0x11, 1, 0, 0]);
        if are_apart {
            table.push(0);
        }
        let mut one = [&code[..], &TEXT.to_le_bytes()].concat();
        one = unit(&one);
        one[6..10].copy_from_slice(&start.to_le_bytes());
        info.extend(one);
    }
    table.push(0);
    image(path, &[(".debug_abbrev", &table), (".debug_info", &info)]);
}

#[test]
fn tables_of_abbreviations_that_lie_over_one_another_are_left_out() {
    let folder = folder_of_a_sample();
    let folder = folder.path();
    for are_apart in [true, false] {
        long_abbreviations(&folder.join("image"), 10_000, are_apart);
        for (code, said) in all_commands(folder, "--elf image") {
            assert!(code < 2, "apart: {are_apart}: {said}");
        }
        let (_, said) = uniprof(folder, "report --elf image run.uprof");
        assert_eq!(
            said.contains("nests or repeats itself"),
            !are_apart,
            "{said}"
        );
    }
}

/// Writes units that each cover all addresses.
fn overlapping_units(path: &Path, units: usize) {
    let abbreviations = [1, 0x11, 0, 0x11, 1, 0x12, 7, 0, 0, 0];
    let info = unit(&entry(1)).repeat(units);
    image(
        path,
        &[(".debug_abbrev", &abbreviations), (".debug_info", &info)],
    );
}

#[test]
fn units_that_have_the_same_addresses_are_left_out() {
    let folder = folder_of_a_sample();
    let folder = folder.path();
    for (units, is_read) in [(64, true), (65, false)] {
        overlapping_units(&folder.join("image"), units);
        let (code, said) = uniprof(folder, "report --elf image run.uprof");
        assert!(code < 2, "{units} units: {said}");
        assert_eq!(said.contains("nests or repeats itself"), !is_read, "{said}");
    }
    // 800 addresses in each of 50,000 units: looking them up would take an hour, counting them a second.
    recording(&folder.join("run.uprof"), 1, 800);
    overlapping_units(&folder.join("image"), 50_000);
    for (code, said) in all_commands(folder, "--elf image") {
        assert!(code < 2 || said.contains("more work"), "{said}");
    }
}

/// Writes a unit of `entries` variables of one byte. Each has `attributes` attributes that take no byte
/// (DW_FORM_flag_present).
fn wide_abbreviation(path: &Path, attributes: usize, entries: usize) {
    let mut abbreviations = vec![1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0, 2, 0x34, 0];
    abbreviations.extend([0x3c, 0x19].repeat(attributes));
    abbreviations.extend([0, 0, 0]);
    let mut all = entry(1);
    all.extend(std::iter::repeat_n(2, entries));
    all.push(0);
    let info = unit(&all);
    image(
        path,
        &[(".debug_abbrev", &abbreviations), (".debug_info", &info)],
    );
}

#[test]
fn abbreviations_of_many_attributes_are_left_out() {
    let folder = folder_of_a_sample();
    let folder = folder.path();
    for (attributes, entries, is_read) in
        [(100, 10, true), (101, 10, false), (100_000, 500_000, false)]
    {
        wide_abbreviation(&folder.join("image"), attributes, entries);
        let (code, said) = uniprof(folder, "report --elf image run.uprof");
        assert!(code < 2, "{attributes} attributes: {said}");
        assert_eq!(said.contains("nests or repeats itself"), !is_read, "{said}");
    }
}

fn symbol(name: u32, address: u64, section: u16) -> Vec<u8> {
    let mut bytes = name.to_le_bytes().to_vec();
    // A global function.
    bytes.extend([0x12, 0]);
    bytes.extend(section.to_le_bytes());
    bytes.extend(address.to_le_bytes());
    bytes.extend(16u64.to_le_bytes());
    bytes
}

#[test]
fn names_of_symbols_that_are_one_name_are_read_as_often_as_the_file_is_long() {
    let folder = folder_of_a_sample();
    let folder = folder.path();
    let names = [&[0][..], &[b'n'; 1_000_000], &[0]].concat();
    // An absolute symbol, which belongs to no section.
    for apart in [0, 16] {
        let mut symbols = vec![0; 24];
        symbols
            .extend((0..60_000).flat_map(|index| symbol(1, TEXT + 0x1000 + apart * index, 0xfff1)));
        image(
            &folder.join("image"),
            &[(".symtab", &symbols), (".strtab", &names)],
        );
        let (code, said) = uniprof(folder, "report --elf image run.uprof");
        assert!(code < 2, "{apart} bytes apart: {said}");
    }
}

#[test]
fn names_of_symbols_without_an_end_are_looked_through_as_often_as_the_file_is_long() {
    let folder = folder_of_a_sample();
    let folder = folder.path();
    let names = vec![b'n'; 16_000_000];
    let symbols = (0..300_000).flat_map(|index| symbol(1, TEXT + 0x1000 + 16 * index, 0xfff1));
    let symbols: Vec<u8> = symbols.collect();
    image(
        &folder.join("image"),
        &[(".symtab", &symbols), (".strtab", &names)],
    );
    let (code, said) = uniprof(folder, "report --elf image run.uprof");
    assert!(code < 2, "{said}");
}

#[test]
fn units_that_all_have_one_long_name_are_left_out() {
    let folder = folder_of_a_sample();
    let folder = folder.path();
    for (name_bytes, is_read) in [(100, true), (16_000_000, false)] {
        let one = unit(&[6, 0, 0, 0, 0]);
        let name = [vec![b'n'; name_bytes], vec![0]].concat();
        let sections: [(&str, &[u8]); 3] = [
            (".debug_abbrev", ABBREVIATIONS),
            (".debug_info", &one.repeat(20_000)),
            (".debug_str", &name),
        ];
        image(&folder.join("image"), &sections);
        let (code, said) = uniprof(folder, "report --elf image run.uprof");
        assert!(code < 2, "{said}");
        assert_eq!(said.contains("nests or repeats itself"), !is_read, "{said}");
    }
}

/// Functions each of which refers to rules of its own, all of which claim to have one endless text.
#[test]
fn texts_of_unwind_rules_without_an_end_are_looked_through_once() {
    let folder = folder_of_a_sample();
    let folder = folder.path();
    let (count, rules, text_bytes) = (
        20_000_u32,
        b"\x01\x01\x01\x01\xff\xff\xff\xff\x01",
        0x0101_0110,
    );
    let mut frames = Vec::new();
    for number in 0..count {
        frames.extend(20u32.to_le_bytes());
        frames.extend((count * 24 + 4 + 9 * number).to_le_bytes());
        frames.extend((TEXT + 0x1000 + u64::from(number % 100)).to_le_bytes());
        frames.extend(8u64.to_le_bytes());
    }
    let rules = rules.repeat(count as usize);
    frames.extend((rules.len() as u32 + text_bytes).to_le_bytes());
    frames.extend(rules);
    frames.extend(vec![b'z'; text_bytes as usize]);
    image(&folder.join("image"), &[(".debug_frame", &frames)]);
    let (code, said) = uniprof(folder, "report --elf image run.uprof");
    assert!(code < 2, "{said}");
}

/// A trace of OSv whose tracepoints are followed by thousands of empty dictionaries.
#[test]
fn tracepoints_are_paired_once_for_all_dictionaries() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let chunk = |kind: &[u8; 4], content: &[u8]| {
        let mut bytes = [
            &kind[..],
            &[0; 4],
            &(content.len() as u64).to_le_bytes(),
            content,
        ]
        .concat();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    };
    let pad = |bytes: &mut Vec<u8>, to: usize| bytes.resize(bytes.len().next_multiple_of(to), 0);
    let mut points = [[0; 4], 40_000_u32.to_le_bytes()].concat();
    for number in 0..40_000_u64 {
        pad(&mut points, 8);
        points.extend((number + 1).to_le_bytes());
        for text in ["", &format!("a{number}_ret"), "", ""] {
            pad(&mut points, 2);
            points.extend((text.len() as u16).to_le_bytes());
            points.extend(text.as_bytes());
        }
        pad(&mut points, 4);
        points.extend([0; 4]);
    }
    let mut trace = [&b"TVSO"[..], &[0; 12], &1u32.to_le_bytes(), &[0; 4]].concat();
    trace.extend(chunk(b"DCRT", &points));
    trace.extend(chunk(b"DCRT", &[0; 8]).repeat(4_000));
    let mut record = [1u64.to_le_bytes(), 7u64.to_le_bytes()].concat();
    record.extend(b"thread\0\0\0\0\0\0\0\0\0\0");
    record.extend([5u64.to_le_bytes(), 0u64.to_le_bytes()].concat());
    trace.extend(chunk(b"SCRT", &record));
    std::fs::write(folder.join("trace"), trace).unwrap();
    let (code, said) = uniprof(folder, "import -f osv trace -o run.uprof");
    assert!(code == 0 && said.contains("1 call"), "{said}");
}

#[test]
fn relocations_that_are_in_many_sections_are_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = folder.join("image");
    recording(&folder.join("run.uprof"), 1, 3);
    // R_X86_64_JUMP_SLOT of symbol 1.
    let relocation = [TEXT + 0x8000, 1 << 32 | 7, 0]
        .map(u64::to_le_bytes)
        .concat();
    let symbols = [vec![0; 24], symbol(1, 0, 0)].concat();
    for name_bytes in [1, 1_000_000] {
        let names = [&[0][..], &vec![b'n'; name_bytes], &[0]].concat();
        let relocations = relocation.repeat(30_000);
        image(
            &path,
            &[
                (".rela", &relocations),
                (".dynsym", &symbols),
                (".strtab", &names),
            ],
        );
        // The header of the first real section is repeated.
        let mut bytes = std::fs::read(&path).unwrap();
        let at = usize::try_from(u64::from_le_bytes(*bytes[40..].first_chunk().unwrap())).unwrap();
        let header = bytes[at + 64..at + 128].to_vec();
        bytes.extend(header.repeat(16_000));
        let count = u16::from_le_bytes(*bytes[60..].first_chunk().unwrap()) + 16_000;
        bytes[60..62].copy_from_slice(&count.to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
        let (code, said) = uniprof(folder, "report --elf image run.uprof");
        assert!(code < 2, "{name_bytes} bytes: {said}");
    }
}

/// As [`recording`], with `rows` samples of one stack of 8 KiB, in which every word is a return address.
fn recording_of_stacks(path: &Path, rows: u64) {
    written(path, |writer| {
        let task = Task { space: 1, vcpu: 1 };
        map_image(writer, 1);
        let address = 0x7fff_0000;
        let mut registers = uprof::Registers::default();
        registers.set(7, address);
        registers.set(16, TEXT + 0x1005);
        let bytes = (TEXT + 0x1005).to_le_bytes().repeat(1024);
        for row in 0..rows {
            let chain = [Frame::exact(TEXT + 0x1005)];
            let mut sample = Sample::bare(2_000 + row, task, &chain);
            sample.registers = Some(&registers);
            sample.stack = Some(uprof::RawStack {
                address,
                bytes: &bytes,
            });
            writer.sample(&sample).unwrap();
        }
    });
}

/// Writes call frame information of one function with a frame of 16 bytes, which an expression of `steps`
/// computes.
fn slow_rules(path: &Path, steps: usize) {
    // DW_OP_breg7 16, followed by DW_OP_nop.
    let mut expression = vec![0x77, 16];
    expression.resize(steps, 0x96);
    let common = [1, 0, 1, 0x78, 16, 0, 0, 0];
    let mut frame = (common.len() as u32 + 4).to_le_bytes().to_vec();
    frame.extend([0; 4]);
    frame.extend(common);
    let mut one = (frame.len() as u32 + 4).to_le_bytes().to_vec();
    one.extend(TEXT.to_le_bytes());
    one.extend(0x10_0000u64.to_le_bytes());
    // DW_CFA_def_cfa_expression, and the return address at CFA - 8.
    one.push(0x0f);
    one.extend([steps as u8 | 0x80, (steps >> 7) as u8]);
    one.extend(expression);
    one.extend([0x90, 1]);
    frame.extend((one.len() as u32).to_le_bytes());
    frame.extend(one);
    frame.extend([0; 4]);
    image(path, &[(".eh_frame", &frame)]);
}

#[test]
fn outputs_that_fill_a_disk_end_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = folder.join("run.uprof");
    written(&path, |writer| {
        let chain: Vec<Frame> = (0..1000).map(|index| Frame::exact(TEXT + index)).collect();
        for row in 0..20_000 {
            let sample = Sample::bare(2_000 + row, Task { space: 1, vcpu: 1 }, &chain);
            writer.sample(&sample).unwrap();
        }
    });
    for words in [
        "export -f perf-script run.uprof -o out",
        "export -f perf-script run.uprof -o -",
        "dump run.uprof",
        "bundle run.uprof -o out",
    ] {
        let (code, said) = uniprof(folder, &format!("{words} > /dev/null"));
        assert_eq!(code, 2, "{words}: {said}");
        assert!(said.contains("more work"), "{words}: {said}");
    }
    let left = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(left, 1, "half a file is left");
}

/// Writes a recording of `times` copies of one block, whose stacks differ by one in each word.
fn recording_of_copies(path: &Path, times: u64) {
    let mut bytes = Vec::new();
    let one = path.with_extension("one");
    written(&one, |writer| {
        for row in 0..200u64 {
            let stack = row.to_le_bytes().repeat(8 << 10);
            let chain = [Frame::exact(TEXT)];
            let mut sample = Sample::bare(2_000 + row, Task { space: 1, vcpu: 1 }, &chain);
            sample.stack = Some(uprof::RawStack {
                address: 0x7fff_0000,
                bytes: &stack,
            });
            writer.sample(&sample).unwrap();
        }
    });
    File::open(&one).unwrap().read_to_end(&mut bytes).unwrap();
    std::fs::remove_file(one).unwrap();
    written(path, |writer| {
        let blocks = uprof::SliceReader::open(&bytes).unwrap().blocks();
        let items = blocks.filter_map(|item| match item {
            uprof::Item::Block(block) if block.samples > 0 => Some(block),
            _ => None,
        });
        for block in items {
            (0..times).for_each(|_| writer.copy(&block).unwrap());
        }
    });
}

#[test]
fn blocks_that_unpack_to_gigabytes_end_all_commands_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (times, is_done) in [(1, true), (40, false)] {
        recording_of_copies(&folder.join("run.uprof"), times);
        for words in [
            "recover run.uprof -o out",
            "report run.uprof",
            "info run.uprof",
        ] {
            let (code, said) = uniprof(folder, words);
            assert_eq!(code < 2, is_done, "{words}: {said}");
            assert_eq!(said.contains("more work"), !is_done, "{words}: {said}");
        }
    }
}

/// What is unpacked from a file is no reason to allow more work: a monitor's recording, which is within the guest's.
#[test]
fn a_monitors_recording_that_unpacks_to_gigabytes_ends_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording_of_copies(&folder.join("monitor"), 40);
    let mut monitor = std::fs::read(folder.join("monitor")).unwrap();
    // More than is kept in memory.
    monitor.resize(48 << 20, 0);
    written(&folder.join("run.uprof"), |writer| {
        for piece in monitor.chunks(8 << 20) {
            writer.monitor(piece, 1_000).unwrap();
        }
    });
    let (code, said) = uniprof(folder, "report --monitor run.uprof");
    assert!(code == 2 && said.contains("more work"), "{said}");
}

#[test]
fn deep_stacks_that_a_text_has_many_of_end_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let stack: Vec<String> = (0..1300).map(|frame| format!("f{frame}")).collect();
    for (count, is_done) in [(10, true), (9_000_000, false)] {
        let text = format!("{} {count}\n", stack.join(";"));
        std::fs::write(folder.join("stacks"), text).unwrap();
        let (code, said) = uniprof(folder, "import -f folded stacks -o out");
        assert_eq!(code == 0, is_done, "{said}");
        assert_eq!(said.contains("more work"), !is_done, "{said}");
    }
}

/// As long as the text is as long as that of a sound recording.
#[test]
fn a_sound_recording_is_printed_whatever_its_length() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    written(&folder.join("run.uprof"), |writer| {
        for row in 0..50_000u64 {
            let frame = |index| Frame::return_address(TEXT + index * (1 + row % 499));
            let chain: Vec<Frame> = (0..100).map(frame).collect();
            let time_ns = 2_000 + row * 1_000_000 + row * 7919 % 999_983;
            let sample = Sample::bare(time_ns, Task { space: 1, vcpu: 1 }, &chain);
            writer.sample(&sample).unwrap();
        }
    });
    let (code, said) = uniprof(folder, "dump run.uprof > /dev/null");
    assert_eq!(code, 0, "{said}");
}

#[test]
fn samples_that_are_many_in_few_bytes_end_views_of_each_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = folder.join("run.uprof");
    written(&path, |writer| {
        for row in 0..1_000_000 {
            let chain = [Frame::exact(TEXT)];
            let sample = Sample::bare(2_000 + row, Task { space: 1, vcpu: 1 }, &chain);
            writer.sample(&sample).unwrap();
        }
    });
    let length = std::fs::metadata(&path).unwrap().len();
    assert!(length < 20_000, "{length}");
    for view in ["--html=-", "--chart=-"] {
        let (code, said) = uniprof(folder, &format!("report {view} run.uprof > /dev/null"));
        assert_eq!(code, 2, "{view}: {said}");
        assert!(said.contains("more work"), "{view}: {said}");
    }
    // Adding up samples costs little.
    let (code, said) = uniprof(folder, "report run.uprof > /dev/null");
    assert!(code == 0 && !said.contains("more work"), "{said}");
}

/// Writes a recording of a process that maps `count` pages, with a sample in each before the next is mapped.
fn recording_of_mappings(path: &Path, count: u64) {
    written(path, |writer| {
        for row in 0..count {
            let start = 0x7000_0000 + 0x2000 * row;
            let time_ns = 2_000 + 10 * row;
            let mapping = Mapping {
                start,
                length: 0x1000,
                path: "/image".into(),
                ..Mapping::default()
            };
            let what = ModuleChange::Mapped(mapping);
            let event = ModuleEvent {
                time_ns,
                space: 1,
                what,
            };
            writer.modules(&[event]).unwrap();
            let chain = [
                Frame::exact(start + 0x10),
                Frame::return_address(start + 0x20),
            ];
            let task = Task { space: 1, vcpu: 1 };
            let sample = Sample::bare(time_ns + 1, task, &chain);
            writer.sample(&sample).unwrap();
        }
    });
}

#[test]
fn mappings_between_samples_cost_what_they_are_and_not_their_square() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // This looks like a program that loads and unloads libraries, or generates code, all the time.
    recording_of_mappings(&folder.join("run.uprof"), 1_400);
    let (code, said) = top(folder);
    assert!(code == 0, "{said}");
    recording_of_mappings(&folder.join("run.uprof"), 20_000);
    let (code, said) = top(folder);
    assert!(code == 0, "{said}");
}

/// A block has a table of its stacks, which is not copied for each process or thread.
#[test]
fn a_sound_recording_of_many_processes_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    written(&folder.join("run.uprof"), |writer| {
        for row in 0..2048u64 {
            let frame = |index| Frame::exact(TEXT + (row * 64 + index) * 16);
            let chain: Vec<Frame> = (0..64).map(frame).collect();
            let space = row as u32 % 256 + 1;
            let task = Task { space, vcpu: space };
            let sample = Sample::bare(2_000 + row, task, &chain);
            writer.sample(&sample).unwrap();
        }
    });
    for view in ["--top", "--top --by-thread"] {
        let (code, said) = uniprof(folder, &format!("report {view} run.uprof > /dev/null"));
        assert!(code < 2, "{view}: {said}");
    }
}

/// Writes a recording of a process that maps two files in turns at the same place, `maps` times, before its samples at
/// `count` addresses there.
fn recording_of_overlaps(path: &Path, maps: u64, count: u64) {
    written(path, |writer| {
        let mapped = (0..maps).map(|number| {
            let mapping = Mapping {
                start: TEXT,
                length: 0x10_0000,
                path: format!("/image{}", number % 2),
                ..Mapping::default()
            };
            ModuleEvent {
                time_ns: 1_000 + number,
                space: 1,
                what: ModuleChange::Mapped(mapping),
            }
        });
        let mapped: Vec<ModuleEvent> = mapped.collect();
        writer.modules(&mapped).unwrap();
        for row in 0..count {
            let chain = [Frame::exact(TEXT + row)];
            let time_ns = 2_000 + maps + row;
            let sample = Sample::bare(time_ns, Task { space: 1, vcpu: 1 }, &chain);
            writer.sample(&sample).unwrap();
        }
    });
}

#[test]
fn mappings_over_one_another_that_take_hours_end_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (maps, is_done) in [(10, true), (40_000, false)] {
        recording_of_overlaps(&folder.join("run.uprof"), maps, 40_000);
        let (code, said) = top(folder);
        assert_eq!(code < 2, is_done, "{maps} mappings: {said}");
        assert_eq!(said.contains("more work"), !is_done, "{maps}: {said}");
    }
}

fn top(folder: &Path) -> (i32, String) {
    uniprof(folder, "report --top run.uprof > /dev/null")
}

/// As [`recording`], of one process with a sample at each of the last `count` addresses up to 0x2000.
fn recording_of_addresses(path: &Path, count: u64) {
    written(path, |writer| {
        map_image(writer, 1);
        for row in 0..count {
            let chain = [Frame::exact(TEXT + 0x2000 - count + row)];
            let sample = Sample::bare(2_000 + row, Task { space: 1, vcpu: 1 }, &chain);
            writer.sample(&sample).unwrap();
        }
    });
}

/// Writes a Go 1.20 table with one function whose line changes with each of its `steps` bytes. Its last
/// addresses are those of [`recording_of_addresses`].
fn slow_go(path: &Path, steps: u32) {
    let start = TEXT + 0x2000 - u64::from(steps);
    // Offsets of functions by address, of the function, of names and paths, and of values.
    let (index, described, texts) = (72u64, 88u64, 152u64);
    let values = texts + 16;
    let mut table = 0xffff_fff1u32.to_le_bytes().to_vec();
    table.extend([0, 0, 1, 8]);
    let behind = values + 2 * u64::from(steps) + 8;
    for word in [1, 1, start, texts, behind, texts + 10, values, index] {
        table.extend(word.to_le_bytes());
    }
    for word in [0, (described - index) as u32, steps + 0x1000, 0] {
        table.extend(word.to_le_bytes());
    }
    // Start, name, three words, tables of files and of lines, no others, unit.
    for word in [0u32, 0, 0, 0, 0, 1, 1, 0, 0] {
        table.extend(word.to_le_bytes());
    }
    table.resize(texts as usize, 0);
    table.extend(b"main.main\0/a.go\0");
    table.push(0);
    table.extend([2, 1].repeat(steps as usize));
    table.extend([2, 0xff, 0xff, 3, 0, 0, 0, 0, 0, 0, 0]);
    image(path, &[(".gopclntab", &table)]);
}

#[test]
fn steps_of_tables_of_go_that_take_hours_end_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (steps, is_done) in [(0x1000, true), (30_000, false)] {
        recording_of_addresses(&folder.join("run.uprof"), if is_done { 10 } else { 4000 });
        slow_go(&folder.join("image"), steps);
        let (code, said) = uniprof(folder, "report --elf image run.uprof");
        assert_eq!(code < 2, is_done, "{steps} steps: {said}");
        assert_eq!(said.contains("more work"), !is_done, "{steps}: {said}");
    }
}

#[test]
fn rules_of_unwinding_that_take_hours_end_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    slow_rules(&folder.join("image"), 500);
    for (rows, is_done) in [(1, true), (10_000, false)] {
        recording_of_stacks(&folder.join("run.uprof"), rows);
        let (code, said) = uniprof(folder, "report --elf image run.uprof");
        assert_eq!(code < 2, is_done, "{said}");
        assert_eq!(said.contains("more work"), !is_done, "{said}");
    }
}

#[test]
fn names_of_source_files_that_grow_without_end_are_left_out() {
    let folder = folder_of_a_sample();
    let folder = folder.path();
    for (files, name_bytes, is_read) in [(100, 100, true), (50_000, 100_000, false)] {
        long_names(&folder.join("image"), files, name_bytes);
        for (code, said) in all_commands(folder, "--elf image") {
            assert!(code < 2, "{files} files: {said}");
        }
        let (_, said) = uniprof(folder, "report --elf image run.uprof");
        assert_eq!(said.contains("nests or repeats itself"), !is_read, "{said}");
    }
}

#[test]
fn stacks_that_fill_the_memory_end_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(&folder.join("run.uprof"), 4000, 1000);
    let bytes = std::fs::metadata(folder.join("run.uprof")).unwrap().len();
    let ends = all_commands(folder, "");
    let refused = ends.iter().filter(|(code, _)| *code == 2);
    let messages: Vec<&String> = refused.map(|(_, said)| said).collect();
    assert!(!messages.is_empty(), "{bytes} bytes are no load: {ends:?}");
    for said in messages {
        assert!(said.contains("memory"), "{said}");
    }
    // If the system sets no limit, the program sets its own.
    let output = kit::uniprof()
        .args(["report", "--tree", "run.uprof"])
        .current_dir(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{bytes} bytes: {said}");
    assert!(said.contains("asks for more than"), "{said}");
}
