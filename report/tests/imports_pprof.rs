//! pprof files become recordings with the same numbers, and hostile ones end with a message.

mod exported;
mod made;

use exported::exported;
use made::{open, small};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;
use uniprof_report::images::Library;
use uniprof_report::import::{IMPORTS, ImportError, ImportSummary, Input, import_as, recognize};
use uniprof_report::profile::Options;
use uniprof_report::recording::Recording;

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A field that is a number.
fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

/// A field of bytes: a string, a message, packed numbers.
fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    [&varint(field << 3 | 2), &varint(value.len() as u64), value].concat()
}

/// Strings of every file here, by number.
const STRINGS: [&str; 13] = [
    "",
    "samples",
    "count",
    "cpu",
    "nanoseconds",
    "main.main",
    "main.inner",
    "main.leaf",
    "/bin/m",
    "delay",
    "contentions",
    "bytes",
    "thread",
];

fn sample(locations: &[u64], values: &[u64]) -> Vec<u8> {
    let pack = |all: &[u64]| all.iter().flat_map(|it| varint(*it)).collect::<Vec<u8>>();
    let fields = [bytes(1, &pack(locations)), bytes(2, &pack(values))];
    bytes(2, &fields.concat())
}

/// Tables: location 1 is main.leaf, 2 main.inner inlined into main.main, 3 an address without a name. Go puts the
/// strings last.
fn tables(types: [[u64; 2]; 2]) -> Vec<u8> {
    let line = |function: u64| bytes(4, &[number(1, function), number(2, 7)].concat());
    let location = |id: u64, lines: &[u8]| {
        let address = number(3, 0x40_1000 + id);
        bytes(
            4,
            &[&number(1, id), &number(2, 1), &address, lines].concat(),
        )
    };
    let function = |id: u64, name: u64| bytes(5, &[number(1, id), number(2, name)].concat());
    let mapping = [
        number(1, 1),
        number(2, 0x40_0000),
        number(3, 0x50_0000),
        number(5, 8),
    ];
    let types = types
        .iter()
        .flat_map(|[kind, unit]| bytes(1, &[number(1, *kind), number(2, *unit)].concat()));
    let strings = STRINGS.iter().flat_map(|text| bytes(6, text.as_bytes()));
    let period_type = bytes(11, &[number(1, 3), number(2, 4)].concat());
    [
        types.collect(),
        bytes(3, &mapping.concat()),
        location(1, &line(1)),
        location(2, &[line(2), line(3)].concat()),
        location(3, &[]),
        function(1, 7),
        function(2, 6),
        function(3, 5),
        period_type,
        number(12, 10_000_000),
        strings.collect(),
    ]
    .concat()
}

const CPU: [[u64; 2]; 2] = [[1, 2], [3, 4]];
const DELAY: [[u64; 2]; 2] = [[10, 2], [9, 4]];

/// What Go's runtime writes, of 60 samples.
fn cpu_profile() -> Vec<u8> {
    [
        number(9, 1_700_000_000_000_000_000),
        bytes(11, &[number(1, 3), number(2, 4)].concat()),
        tables(CPU),
        sample(&[1, 2], &[50, 500_000_000]),
        sample(&[2], &[3, 30_000_000]),
        sample(&[3, 2], &[7, 70_000_000]),
    ]
    .concat()
}

fn imported(
    file: &[u8],
    sample_type: Option<&str>,
) -> Result<(Recording, ImportSummary), ImportError> {
    let format = IMPORTS
        .iter()
        .find(|format| format.name == "pprof")
        .unwrap();
    let known = Input {
        name: "cpu.pb.gz",
        sample_type,
        ..Input::default()
    };
    let mut out = Vec::new();
    let found = import_as(format, &known, [3; 16], &mut &file[..], &mut out)?;
    Ok((Recording::from_bytes("imported", out).unwrap(), found))
}

fn library() -> Library {
    let mut library = Library::default();
    library.only_given = true;
    library
}

fn export(name: &str, recording: &Recording) -> Vec<u8> {
    exported(name, &[recording], &library(), &Options::default()).unwrap()
}

fn folded(recording: &Recording) -> String {
    String::from_utf8(export("folded", recording)).unwrap()
}

fn gzipped(file: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(file).unwrap();
    packed.finish().unwrap()
}

const FOLDED: &str =
    "main.main;main.inner 3\nmain.main;main.inner;m+0x1003 7\nmain.main;main.inner;main.leaf 50\n";

#[test]
fn counts_and_times_are_the_same_samples_whichever_is_chosen() {
    let file = cpu_profile();
    for (file, sample_type) in [
        (file.clone(), None),
        (gzipped(&file), None),
        (file.clone(), Some("cpu")),
        (gzipped(&file), Some("cpu/nanoseconds")),
    ] {
        assert_eq!(recognize(&file).unwrap().name, "pprof");
        let (recording, found) = imported(&file, sample_type).unwrap();
        assert_eq!((found.samples, found.lines, found.skipped), (60, 3, 0));
        assert_eq!(folded(&recording), FOLDED);
        let sampling = &recording.metadata().sampling;
        assert_eq!(sampling.rate_millihertz, 100_000);
        assert_eq!(
            sampling.trigger,
            sample_type.map_or("samples/count", |_| "cpu/nanoseconds")
        );
    }
    // A period of a nanosecond makes no sample of each.
    let (recording, found) = imported(&[file, number(12, 1)].concat(), Some("cpu")).unwrap();
    assert_eq!(found.samples, 60);
    assert_eq!(recording.metadata().sampling.rate_millihertz, 100_000);
}

/// A location of no function is an address, and one of several images is told by its own image alone.
#[test]
fn code_without_a_name_is_its_own_images() {
    let mapping = |id: u64, start: u64, path: u64| {
        let places = [number(2, start), number(3, start + 0x10_0000)];
        bytes(
            3,
            &[number(1, id), places.concat(), number(5, path)].concat(),
        )
    };
    let location = |id: u64, mapping: u64, address: u64| {
        let line = bytes(4, &number(1, 0));
        let fields = [number(1, id), number(2, mapping), number(3, address)];
        bytes(4, &[fields.concat(), line].concat())
    };
    let file = [
        bytes(1, &[number(1, 1), number(2, 2)].concat()),
        mapping(1, 0x40_0000, 3),
        mapping(2, 0x40_0000, 4),
        mapping(3, 0x80_0000, 5),
        location(1, 1, 0x40_1000),
        location(2, 2, 0x40_1000),
        location(3, 3, 0x80_1000),
        sample(&[1], &[1]),
        sample(&[2], &[2]),
        sample(&[3], &[3]),
    ];
    let strings = "|samples|count|/bin/alpha|/bin/beta|/bin/gamma".split('|');
    let strings = strings.flat_map(|text| bytes(6, text.as_bytes()));
    let (recording, _) = imported(&[file.concat(), strings.collect()].concat(), None).unwrap();
    let csv = String::from_utf8(export("csv", &recording)).unwrap();
    let mut rows: Vec<Vec<&str>> = (csv.lines().skip(1))
        .map(|line| line.split(',').take(3).collect())
        .collect();
    rows.sort();
    assert_eq!(
        rows,
        [
            ["[unknown]", "/bin/alpha", "1"],
            ["[unknown]", "/bin/beta", "2"],
            ["gamma+0x1000", "/bin/gamma", "3"]
        ]
    );
}

#[test]
fn delays_are_time_off_the_processor() {
    let file = [
        sample(&[1, 2], &[3, 1_000_000_000]),
        sample(&[2], &[1, 7]),
        tables(DELAY),
    ]
    .concat();
    let (recording, found) = imported(&file, None).unwrap();
    assert_eq!(found.samples, 4);
    let text = exported("json", &[&recording], &library(), &Options::default()).unwrap();
    let text: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(text["account"]["unit"], "nanoseconds");
    assert_eq!(text["account"]["counted"], 1_000_000_007);
}

/// Own and total numbers of each function, by `go tool pprof`, and by the report of what is imported.
#[test]
fn go_tool_pprof_and_the_report_show_the_same_numbers() {
    if Command::new("go").arg("version").output().is_err() {
        println!("skipped: no go here to run `go tool pprof` (Debian's golang-go has it)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cpu.pb.gz");
    for (file, sample_index) in [
        (gzipped(&cpu_profile()), "samples"),
        (export("pprof", &open(small())), "samples"),
    ] {
        std::fs::write(&path, &file).unwrap();
        let flags = [
            "-symbolize=none",
            "-top",
            "-nodecount=100000",
            "-nodefraction=0",
        ];
        let mut go = Command::new("go");
        go.args(["tool", "pprof"])
            .args(flags)
            .arg(format!("-sample_index={sample_index}"));
        let output = go.arg(&path).env("HOME", folder.path()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut theirs: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for line in text
            .lines()
            .skip_while(|line| !line.contains("flat%"))
            .skip(1)
        {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let name = fields[5..].join(" ").replace(" (inline)", "");
            theirs.insert(
                name,
                (fields[0].parse().unwrap(), fields[3].parse().unwrap()),
            );
        }
        let (recording, _) = imported(&file, Some(sample_index)).unwrap();
        let csv = String::from_utf8(export("csv", &recording)).unwrap();
        let ours: BTreeMap<String, (u64, u64)> = (csv.lines().skip(1))
            .map(|line| {
                let fields: Vec<&str> = line.split(',').collect();
                let name = fields[0].replace("m+0x1003", "[m]");
                (
                    name,
                    (fields[2].parse().unwrap(), fields[3].parse().unwrap()),
                )
            })
            .collect();
        assert_eq!(ours, theirs, "{text}");
    }
}

#[test]
fn what_this_package_exports_comes_back() {
    let recording = open(small());
    let (again, found) = imported(&export("pprof", &recording), None).unwrap();
    assert_eq!(found.samples, 7);
    assert_eq!(folded(&again), folded(&recording));
    let options = Options {
        by_task: true,
        ..Options::default()
    };
    let by_thread =
        |recording: &Recording| exported("folded", &[recording], &library(), &options).unwrap();
    assert_eq!(by_thread(&again), by_thread(&recording));
    assert_eq!(
        again.metadata().target.kind,
        uprof::cold::TargetKind::Imported
    );
}

#[test]
fn files_that_lie_are_refused_with_the_reason() {
    let table = tables(CPU);
    let one = sample(&[1], &[1, 10_000_000]);
    let text = |length: usize| bytes(6, &vec![b'x'; length]);
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (
            [sample(&[9], &[1, 1]), table.clone()].concat(),
            "refers to location 9",
        ),
        (
            [sample(&[1], &[1]), table.clone()].concat(),
            "sample 1 has 1 values, and the file has 2 types",
        ),
        (
            [sample(&[1], &[u64::MAX, 1]), table.clone()].concat(),
            "negative value",
        ),
        (
            [sample(&[1], &[10_000_001, 1]), table.clone()].concat(),
            "more than 10,000,000 samples",
        ),
        (
            [one.clone(), table.clone(), bytes(4, &number(1, 1))].concat(),
            "location 1 is there twice",
        ),
        (
            [one.clone(), table.clone(), bytes(4, &[])].concat(),
            "refers to location 0",
        ),
        (
            [one.clone(), table.clone(), vec![0x0b]].concat(),
            "wire type 3",
        ),
        (
            [one.clone(), table.clone(), bytes(6, b"cut")[..4].to_vec()].concat(),
            "in the middle of a field",
        ),
        (
            [
                one.clone(),
                table.clone(),
                varint(6 << 3 | 2),
                varint(1 << 30),
            ]
            .concat(),
            "a field of 1073741824 bytes",
        ),
        (
            [one.clone(), table.clone(), text(1 << 20).repeat(65)].concat(),
            "67108864 bytes of strings",
        ),
        (
            [one.clone(), tables([[9, 11], [9, 11]])].concat(),
            "neither samples/count nor cpu/nanoseconds",
        ),
        (
            [one.clone(), tables([[3, 99], [9, 11]])].concat(),
            "refers to string 99",
        ),
        (gzipped(&cpu_profile())[..60].to_vec(), ""),
        (table.clone(), "no stack"),
        (Vec::new(), "neither samples/count"),
    ];
    for (file, wanted) in cases {
        let said = imported(&file, None).map(drop).unwrap_err().to_string();
        assert!(
            said.contains(wanted) && !said.is_empty(),
            "{said}: {wanted}"
        );
    }
    let said = imported(&[one, tables([[9, 11], [9, 11]])].concat(), Some("delay")).map(drop);
    assert!(
        said.unwrap_err()
            .to_string()
            .contains("delay/bytes is neither a count nor a time")
    );
    let waits = [sample(&[1], &[10_000_001, 1]), tables(DELAY)].concat();
    let said = imported(&waits, None).map(drop).unwrap_err().to_string();
    assert!(
        said.starts_with("contentions/count adds up to 10000001"),
        "{said}"
    );
}

/// A gigabyte that packs to a megabyte: neither its bytes nor its strings are kept.
#[test]
fn a_gigabyte_of_strings_ends_with_a_message() {
    let text = gzipped(&bytes(6, &vec![b'x'; 1 << 20]));
    let file = [gzipped(&cpu_profile()), text.repeat(1024)].concat();
    let said = imported(&file, None).map(drop).unwrap_err().to_string();
    assert!(said.contains("67108864 bytes of strings"), "{said}");
}
