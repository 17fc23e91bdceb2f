//! Tables made by hand, in each layout: no Go on this machine writes the old ones.

use super::*;
use proptest::prelude::*;

const FIRST: u64 = 0x40_1000;
const SECOND: u64 = 0x40_1040;
const END: u64 = 0x40_1100;

/// Pairs of values of each layout: magic number, and whether addresses take 4 bytes.
const LAYOUTS: [(u32, Version); 4] = [
    (0xffff_fffb, Version::Go12),
    (0xffff_fffa, Version::Go116),
    (0xffff_fff0, Version::Go118),
    (0xffff_fff1, Version::Go120),
];

/// `main.main` at [`FIRST`] and `main.work` at [`SECOND`], of /a.go: line 7 for 16 bytes, then 9.
fn made(magic: u32, version: Version) -> Vec<u8> {
    let is_new = version >= Version::Go118;
    let address = |address: u64| {
        if is_new {
            ((address - FIRST) as u32).to_le_bytes().to_vec()
        } else {
            address.to_le_bytes().to_vec()
        }
    };
    let offset = |offset: usize| {
        if is_new {
            (offset as u32).to_le_bytes().to_vec()
        } else {
            (offset as u64).to_le_bytes().to_vec()
        }
    };
    // Parts: header and functions by address, in either order; the others are put behind.
    let entry_bytes = if is_new { 8 } else { 16 };
    let index = if version == Version::Go12 { 16 } else { 72 };
    let described = index + 2 * entry_bytes + entry_bytes;
    let one_bytes = 64;
    let texts = described + 2 * one_bytes;
    let base = if version == Version::Go12 { 0 } else { index };
    // main.main, main.work, /a.go, values of files and lines, numbers of files.
    let mut behind = b"main.main\0main.work\0/a.go\0\0\0\0\0\0\0".to_vec();
    let (names, files) = (texts, texts + 20);
    let values = texts + 26;
    // Files: 0 (of the unit) or 1 all the way. Lines: 7 for 16 bytes, 9 for the rest.
    let first_file = if version == Version::Go12 { 4 } else { 2 };
    behind.truncate(27);
    behind.extend([first_file, 0x80, 0x02, 0]);
    behind.extend([16, 16, 4, 0xf0, 0x01, 0]);
    behind.resize(40, 0);
    let units = texts + 40;
    match version {
        Version::Go12 => [2, files as u32]
            .iter()
            .for_each(|word| behind.extend(word.to_le_bytes())),
        _ => behind.extend(0_u32.to_le_bytes()),
    }
    let mut bytes = magic.to_le_bytes().to_vec();
    bytes.extend([0, 0, 1, 8]);
    let words: &[usize] = match version {
        Version::Go12 => &[2],
        Version::Go116 => &[2, 1, names, units, files, values, index],
        _ => &[2, 1, FIRST as usize, names, units, files, values, index],
    };
    words
        .iter()
        .for_each(|word| bytes.extend((*word as u64).to_le_bytes()));
    bytes.resize(index, 0);
    for (number, start) in [FIRST, SECOND].into_iter().enumerate() {
        bytes.extend(address(start));
        bytes.extend(offset(described + number * one_bytes - base));
    }
    bytes.extend(address(END));
    match version {
        Version::Go12 => bytes.extend((units as u32).to_le_bytes()),
        _ => bytes.resize(described, 0),
    }
    bytes.resize(described, 0);
    for (number, start) in [FIRST, SECOND].into_iter().enumerate() {
        let at = bytes.len();
        bytes.extend(address(start));
        let from = |part: usize| if version == Version::Go12 { part } else { 0 };
        let tables = values * usize::from(version == Version::Go12);
        let fields = [
            from(names) + 10 * number,
            0,
            0,
            0,
            tables + 1,
            tables + 5,
            0,
            0,
            // Only Go 1.20 puts a first line here.
            5 + number,
        ];
        fields
            .iter()
            .for_each(|field| bytes.extend((*field as u32).to_le_bytes()));
        bytes.resize(at + one_bytes, 0);
    }
    bytes.extend(behind);
    bytes
}

fn own_image() -> Image {
    Image::open(&std::env::current_exe().unwrap()).unwrap()
}

fn functions<'i>(image: &'i Image, bytes: &'i [u8]) -> Option<GoFunctions<'i>> {
    Some(GoFunctions {
        tables: Tables::read(bytes)?,
        calls: Calls::of(image, ImageAddress(0), &[]),
    })
}

fn use_all(functions: &GoFunctions<'_>) {
    assert!(functions.all().all(|(start, end, _)| start < end));
    for address in [0, FIRST, FIRST + 20, SECOND, END - 1, END, u64::MAX] {
        let _ = functions.find(ImageAddress(address));
    }
}

#[test]
fn tables_of_every_layout_are_read() {
    let image = own_image();
    for (magic, version) in LAYOUTS {
        let bytes = made(magic, version);
        let functions = functions(&image, &bytes).expect("its header is sound");
        let all: Vec<_> = functions.all().collect();
        assert_eq!(
            all,
            [(FIRST, SECOND, "main.main"), (SECOND, END, "main.work")],
            "{version:?}"
        );
        let line = |function: &str, line| Line {
            function: Some(function.to_owned()),
            file: Some("/a.go".to_owned()),
            line,
            start_line: match version {
                Version::Go120 if function == "main.main" => 5,
                Version::Go120 => 6,
                _ => 0,
            },
            discriminator: 0,
        };
        let at = |address| functions.find(ImageAddress(address));
        assert_eq!(at(FIRST + 15), [line("main.main", 7)], "{version:?}");
        assert_eq!(at(FIRST + 16), [line("main.main", 9)]);
        assert_eq!(at(SECOND), [line("main.work", 7)]);
        assert_eq!(at(FIRST - 1), []);
        assert_eq!(at(END), []);
    }
}

#[test]
fn every_cut_and_every_changed_byte_of_a_table_is_survived() {
    let image = own_image();
    for (magic, version) in LAYOUTS {
        let bytes = made(magic, version);
        for length_bytes in 0..bytes.len() {
            functions(&image, &bytes[..length_bytes])
                .iter()
                .for_each(use_all);
        }
        for index in 0..bytes.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[index] ^= change;
                functions(&image, &changed).iter().for_each(use_all);
            }
        }
    }
}

#[test]
fn names_of_functions_and_steps_of_values_are_bounded() {
    let image = own_image();
    let mut bytes = made(0xffff_fff1, Version::Go120);
    // A million functions that all claim a name of 16 KiB.
    let count = 1_000_000_u64;
    bytes[8..16].copy_from_slice(&count.to_le_bytes());
    let (index, name) = (bytes.len() as u64, bytes.len() as u64 + 8 * count + 8);
    bytes[32..40].copy_from_slice(&(name + 20).to_le_bytes());
    bytes[64..72].copy_from_slice(&index.to_le_bytes());
    for number in 0..count as u32 {
        bytes.extend(number.to_le_bytes());
        bytes.extend((8 * count as u32 + 8).to_le_bytes());
    }
    bytes.extend([0; 8 + 20]);
    bytes.extend(vec![b'x'; TEXT_BYTES_MAX]);
    bytes.push(0);
    let found = functions(&image, &bytes).unwrap();
    let named: usize = found.all().map(|(_, _, name)| name.len()).sum();
    assert!(named > 0 && named <= NAMES_PER_TABLE * bytes.len());
    let end = bytes.len() - 1;
    bytes[end] = b'x';
    bytes.push(0);
    assert_eq!(functions(&image, &bytes).unwrap().all().count(), 0);
}

proptest! {
    #[test]
    fn any_bytes_are_survived(mut bytes: Vec<u8>, layout in 0..4_usize) {
        let mut header = LAYOUTS[layout].0.to_le_bytes().to_vec();
        header.extend([0, 0, 1, 8]);
        header.append(&mut bytes);
        let image = own_image();
        functions(&image, &header).iter().for_each(use_all);
    }
}
