//! format-spec.md agrees with the code: its tables of tags and its hex dump are read from the page.

use std::collections::BTreeMap;
use uprof::cold::{Cost, EndReason, ExitKind, LossReason, Metadata, Place, TargetKind};
use uprof::cold::{End, Recorder, Target};
use uprof::image::{CfaKind, PlaceKind};
use uprof::layout::{BlockType, Codec, ImageSection};
use uprof::{
    Arch, Coding, Column, Details, Form, Found, Frame, FrameKind, Item, Payload, Registers, Sample,
    Shown, SliceReader, SpanColumn, SpanKind, State, Stop, Task, Writer,
};

const PAGE: &str = include_str!("../../format-spec.md");

/// The rows of the table below the mark `<!-- tags: NAME -->`: number and name.
fn table(name: &str) -> Vec<(u64, String)> {
    let mark = format!("<!-- tags: {name} -->");
    let lines = PAGE.lines().skip_while(|line| *line != mark).skip(1);
    let rows = lines.skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    cells
        .filter_map(|cells| Some((cells[1].parse().ok()?, cells[2].to_owned())))
        .collect()
}

#[test]
fn tables_are_those_of_the_code() {
    macro_rules! check {
        ($($kind:ident),*) => {
            $(
                let code: Vec<_> = $kind::ALL
                    .iter()
                    .map(|tag| (u64::from(tag.number()), tag.name().to_owned()))
                    .collect();
                assert_eq!(table(stringify!($kind)), code, "table {}", stringify!($kind));
            )*
            let checked = [$(stringify!($kind)),*].len();
            assert_eq!(PAGE.matches("<!-- tags: ").count(), checked, "a table that no code has");
        };
    }
    check!(
        Codec,
        BlockType,
        Column,
        State,
        Stop,
        FrameKind,
        Found,
        Cost,
        TargetKind,
        Arch,
        LossReason,
        EndReason,
        Place,
        ExitKind,
        ImageSection,
        CfaKind,
        PlaceKind,
        SpanColumn,
        SpanKind
    );
}

/// The table of columns agrees with the code's: which columns are critical, and how numbers are stored and
/// printed.
#[test]
fn columns_are_those_of_the_code() {
    let row = |column: Column| {
        let start = format!("| {} | {} |", column.number(), column.name());
        let line = PAGE.lines().find(|line| line.starts_with(&start)).unwrap();
        let cells = line.trim_matches('|').split('|').map(str::trim);
        cells.map(str::to_owned).collect::<Vec<_>>()
    };
    for &column in Column::ALL {
        let detail = Details::ALL.iter().find(|detail| detail.column == column);
        let told = detail.map_or("", |detail| match detail.coding {
            Coding::PlusOne => "plus-one: ",
            Coding::Changes => "changes, section 5.6: ",
        });
        let dump = detail.map_or(String::new(), |detail| {
            let form = match detail.form {
                Form::Decimal => "dec",
                Form::Hexadecimal => "hex",
            };
            let when = match detail.shown {
                Shown::Always => "",
                Shown::IfKnown => ", if known",
            };
            format!("`{}={form}`{when}", column.name())
        });
        let critical = if column.is_critical() { "yes" } else { "no" };
        let cells = row(column);
        assert_eq!(cells[2], critical, "{}", column.name());
        assert!(
            cells[4].starts_with(told),
            "{}: {}",
            column.name(),
            cells[4]
        );
        assert_eq!(cells[5], dump, "{}", column.name());
    }
}

#[test]
fn limits_are_those_of_the_code() {
    use uprof::layout::*;
    let limit = |what: &str| {
        let row = PAGE
            .lines()
            .find(|line| line.starts_with(&format!("| {what}")));
        let cell = row.unwrap().split('|').nth(2).unwrap().trim();
        let number = cell.split([';', '(']).next().unwrap().trim();
        let (digits, unit) = number.split_once(' ').unwrap_or((number, ""));
        let digits: usize = digits.replace(',', "").parse().unwrap();
        digits
            << match unit {
                "MiB" => 20,
                "KiB" => 10,
                _ => 0,
            }
    };
    assert_eq!(limit("stored_bytes, raw_bytes |"), MAX_PAYLOAD_BYTES);
    assert_eq!(limit("raw_bytes of blocks"), MAX_RECORDS_BYTES);
    assert_eq!(limit("samples in a block"), MAX_ROWS);
    assert_eq!(limit("tasks in a block"), MAX_ROWS);
    assert_eq!(limit("nodes in a stack table"), MAX_NODES);
    assert_eq!(limit("frames in a chain"), MAX_FRAMES);
    assert_eq!(limit("raw stack bytes in a sample"), MAX_STACK_BYTES);
    assert_eq!(limit("raw stack bytes in a block"), MAX_BLOCK_STACK_BYTES);
    assert_eq!(limit("symbols in a part"), MAX_SYMBOLS);
    assert_eq!(limit("bytes of a DWARF expression"), MAX_EXPRESSION_BYTES);
    assert_eq!(limit("registers in an unwind rule"), MAX_SAVES);
}

/// The recording that section 13 explains.
fn worked_example() -> Vec<u8> {
    let metadata = Metadata {
        recorder: Recorder {
            program: "uniprof 0.1.0".into(),
            command_line: vec!["-F".into(), "99".into()],
        },
        target: Target {
            kind: TargetKind::Process,
            id: 300,
            name: "busy".into(),
            ..Target::default()
        },
        ..Metadata::default()
    };
    let uuid = std::array::from_fn(|index| index as u8);
    let mut writer = Writer::create(Vec::new(), uuid, &metadata, 1000).unwrap();
    let caller = Frame::return_address(0x40_1190);
    let mut registers = Registers::default();
    registers.set(7, 0x7ffe_0000);
    let task = Task {
        space: 300,
        vcpu: 301,
    };
    let chain = [Frame::exact(0x40_1136), caller];
    let mut sample = Sample {
        details: Details {
            cost_ns: Some(800),
            ..Details::default()
        },
        registers: Some(&registers),
        ..Sample::bare(1500, task, &chain)
    };
    writer.sample(&sample).unwrap();
    sample.time_ns = 2500;
    let chain = [Frame::exact(0x40_1140), caller];
    sample.chain = &chain;
    sample.stop = Stop::Depth;
    sample.registers = None;
    writer.sample(&sample).unwrap();
    let end = End {
        time_ns: 3000,
        reason: EndReason::Stopped,
        message: "ctrl-C".into(),
        totals: vec![("drops".into(), 0)],
    };
    writer.finish(&end).unwrap()
}

/// The bytes of the dump, `offset: hex … | meaning`.
fn dump_on_the_page() -> Vec<u8> {
    let mut bytes = Vec::new();
    let lines = PAGE
        .lines()
        .skip_while(|line| *line != "```hexdump")
        .skip(1);
    for line in lines.take_while(|line| *line != "```") {
        let (offset, rest) = line.split_once(':').unwrap();
        assert_eq!(
            usize::from_str_radix(offset, 16).unwrap(),
            bytes.len(),
            "line {line}"
        );
        let digits = rest.split('|').next().unwrap().split_whitespace();
        bytes.extend(digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()));
    }
    bytes
}

#[test]
fn the_hex_dump_is_what_the_writer_writes() {
    let written = worked_example();
    let rows: BTreeMap<usize, String> = (0..written.len())
        .step_by(16)
        .map(|at| {
            let row = &written[at..written.len().min(at + 16)];
            (at, row.iter().map(|byte| format!("{byte:02x} ")).collect())
        })
        .collect();
    let page = dump_on_the_page();
    assert!(
        page == written,
        "section 13 must show these bytes:\n{rows:#x?}"
    );
}

#[test]
fn the_hex_dump_is_a_recording() {
    let bytes = dump_on_the_page();
    let recording = SliceReader::open(&bytes).unwrap();
    let mut samples = 0;
    for item in recording.blocks() {
        let Item::Block(block) = item else {
            panic!("{item:?}")
        };
        if let Payload::Samples(block) = block.payload().unwrap() {
            samples += block.len();
        }
    }
    assert_eq!(samples, 2);
}
