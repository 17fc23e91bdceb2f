//! Parts with all sections, and damaged ones.

use super::symbols::FULL_NAME_BYTES;
use super::*;
use crate::samples::Arch;
use proptest::prelude::*;

fn identity() -> ImageIdentity {
    ImageIdentity {
        path: "[kernel]".into(),
        build_id: vec![1, 2, 3],
        arch: Arch::Aarch64,
        load_bias: 0xffff_8000_0000_0000,
        origin: "kallsyms".into(),
    }
}

/// A set of two rules with all kinds of saves.
fn rules() -> RuleSet {
    let mut set = RuleSet::default();
    let unused = set.push_expression(&[0x30]).unwrap();
    let cfa = Cfa::Register {
        register: 7,
        offset_bytes: -16,
    };
    set.push(cfa, false, 16, &[]);
    let number = set.push_expression(&[0x77, 8]).unwrap();
    let places = [
        Place::Lost,
        Place::AtCfa(i32::MIN),
        Place::IsCfa(i32::MAX),
        Place::Register(32),
        Place::AtExpression(number),
        Place::IsExpression(number),
    ];
    let saves = places.map(|place| Save { register: 6, place });
    set.push(Cfa::Expression(unused), false, 16, &[]);
    set.push(Cfa::Expression(number), true, 30, &saves);
    set
}

/// A part with all sections.
fn whole() -> ImagePart {
    let mut part = ImagePart::new(identity());
    part.push(Symbol {
        address: 1,
        size_bytes: 2,
        name: "f",
    });
    let segment = Segment {
        address: u64::MAX,
        file_offset: 0x1000,
        file_bytes: 7,
        memory_bytes: 9,
        has_code: true,
    };
    let has_code = false;
    part.set_segments(
        [
            segment,
            Segment {
                has_code,
                ..segment
            },
        ]
        .into_iter(),
    );
    let inlined = [(1, 2, 3), (2, 0, 0)].map(|(function, file, line)| Inlined {
        function,
        file,
        line,
    });
    let rows = [(0x10, &inlined[..]), (0x10, &[]), (u64::MAX, &inlined[1..])];
    part.set_lines(&["f", "é.c"], rows.into_iter());
    let rows = [(0x10, 0x20, 2), (0x20, 0x21, 0), (0x30, u64::MAX, 2)];
    let rows = rows.map(|(start, end, rule)| RuleRow { start, end, rule });
    part.set_rules(&rules(), rows.into_iter(), Some(&[0x11, u64::MAX]));
    part.set_file(b"\x7fELF".to_vec());
    let callers = [(0, 0x11, u64::MAX, 0), (1, 2, 0, 3)];
    part.set_callers(
        &callers.map(|(callee, function, next, caller)| MissedCaller {
            callee,
            function,
            next,
            caller,
        }),
    );
    part
}

/// The contents of all sections as text, and the faults.
fn described(part: &ImagePart) -> (String, Vec<Fault>) {
    let (mut words, mut faults, mut unsound) = (String::new(), Vec::new(), 0);
    let mut tell = |entry: Result<String, Fault>| match entry {
        Ok(entry) => words += &format!("{entry}\n"),
        Err(fault) => faults.push(fault),
    };
    for section in part.sections() {
        let checked = section.clone().and_then(|section| section.check());
        unsound += usize::from(checked.is_err());
        match section {
            Err(fault) => tell(Err(fault)),
            Ok(Section::Segments(all)) => {
                all.for_each(|one| tell(one.map(|one| format!("{one:?}"))));
            }
            Ok(Section::Lines(lines)) => {
                lines.texts.for_each(|one| tell(one.map(str::to_owned)));
                lines
                    .rows
                    .for_each(|one| tell(one.map(|one| format!("{one:?}"))));
            }
            Ok(Section::Rules(rules)) => {
                tell(Ok(format!("{:?}", rules.set)));
                rules
                    .rows
                    .clone()
                    .for_each(|one| tell(one.map(|one| format!("{one:?}"))));
                match rules.returns() {
                    Ok(all) => all
                        .into_iter()
                        .flatten()
                        .for_each(|one| tell(one.map(|one| format!("{one:x}")))),
                    Err(fault) => tell(Err(fault)),
                }
            }
            Ok(Section::File(bytes)) => tell(Ok(format!("{bytes:?}"))),
            Ok(Section::Callers(all)) => {
                all.for_each(|one| tell(one.map(|one| format!("{one:?}"))));
            }
        }
    }
    // For wrong rows, returns reports the same fault again.
    faults.dedup();
    assert_eq!(unsound, faults.len(), "{faults:?}");
    (words, faults)
}

#[test]
fn all_sections_survive() {
    let part = whole();
    let mut bytes = Vec::new();
    part.put(&mut bytes);
    let read = ImagePart::parse(&bytes).unwrap();
    assert_eq!(read, part);
    let (words, faults) = described(&read);
    assert_eq!(faults, []);
    // The unused rule and its expression are gone, and the others have new numbers.
    for entry in [
        "Segment { address: 18446744073709551615, file_offset: 4096, file_bytes: 7",
        "memory_bytes: 9, has_code: false }",
        "é.c\nLineRow { address: 16, functions: [Inlined { function: 1, file: 2, line: 3 }, Inl",
        "LineRow { address: 16, functions: [] }",
        "cfa: Register { register: 7, offset_bytes: -16 }",
        "cfa: Expression(0), is_trap: true, return_register: 30",
        "place: AtCfa(-2147483648) }, Save { register: 6, place: IsCfa(2147483647) }",
        "place: Register(32) }, Save { register: 6, place: AtExpression(0) }",
        "expressions: [119, 8], expression_ends: [2]",
        "RuleRow { start: 16, end: 32, rule: 1 }\nRuleRow { start: 32, end: 33, rule: 0 }",
        "RuleRow { start: 48, end: 18446744073709551615, rule: 1 }\n11\nffffffffffffffff",
        "[127, 69, 76, 70]",
        "MissedCaller { callee: 0, function: 17, next: 18446744073709551615, caller: 0 }\nMissedCaller { callee: 1, ",
    ] {
        assert!(words.contains(entry), "{entry} is not in\n{words}");
    }
}

#[test]
fn nothing_takes_no_section() {
    let mut part = whole();
    part.set_segments(std::iter::empty());
    part.set_lines(&["unused"], std::iter::empty());
    part.set_rules(&rules(), std::iter::empty(), None);
    part.set_file(Vec::new());
    part.set_callers(&[]);
    assert_eq!(part.sections().count(), 1);
}

/// The fault of a part with these bytes as one of its sections.
fn wrong(section: ImageSection, bytes: &[u8]) -> String {
    let mut part = ImagePart::new(identity());
    part.others
        .push((u64::from(section.number()), bytes.to_vec()));
    let (_, faults) = described(&part);
    assert!(faults.len() <= 1, "{faults:?}");
    faults.first().map_or(String::new(), Fault::to_string)
}

#[test]
fn damage_is_told_with_its_section_and_byte() {
    use ImageSection::{Lines, Rules, Segments};
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    for (section, bytes, message) in [
        (Segments, &[][..], "byte 0: a value ends too early"),
        (
            Segments,
            &[1, 2, 3, 4, 5],
            "byte 0: a count is 1, which is not allowed (what is counted",
        ),
        (
            Segments,
            &[1, 2, 3, 4, 5, 0x80],
            "byte 5: a value ends too early",
        ),
        (Lines, &huge, "byte 0: a count is 18446744073709551615"),
        (Lines, &[1, 1, 0xff, 0], "byte 2: a text is not UTF-8"),
        (
            Lines,
            &[2, 1, 3, b'a', b'b', b'c'],
            "byte 3: a value ends too early",
        ),
        (
            Lines,
            &[0, 1, 9, 1, 0, 1, 0],
            "byte 5: a text's number is 1",
        ),
        (
            Lines,
            &[0, 1, 9, 1, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x10],
            "byte 6: a line is 4294967296",
        ),
        (Rules, &[1, 2, 0], "byte 2: a value ends too early"),
        (
            Rules,
            &[0, 1, 2, 7, 16, 0, 16, 0, 0],
            "byte 2: kind of a CFA number 2",
        ),
        (
            Rules,
            &[0, 1, 0, 33, 16, 0, 16, 0, 0],
            "byte 3: a register is 33",
        ),
        (
            Rules,
            &[0, 1, 1, 0, 0, 0, 16, 0, 0],
            "byte 4: number of an expression is 0",
        ),
        (
            Rules,
            &[0, 1, 0, 7, 16, 0, 16, 1, 16, 6, 2, 0],
            "byte 9: a place number 6",
        ),
        (
            Rules,
            &[0, 1, 0, 7, 16, 0, 16, 1, 16, 3, 66, 0],
            "byte 10: a register is 33",
        ),
        (
            Rules,
            &[0, 1, 0, 7, 16, 0, 16, 0, 1, 9, 0, 0],
            "byte 10: length of a row is 0",
        ),
        (
            Rules,
            &[0, 1, 0, 7, 16, 0, 16, 0, 1, 9, 1, 1],
            "byte 11: a rule's number is 1",
        ),
        (Rules, &[0, 0, 0, 2, 1], "byte 3: a count is 2"),
    ] {
        let said = wrong(section, bytes);
        let start = format!("section {}, {message}", section.name());
        assert!(said.starts_with(&start), "{said} is not {start}");
    }
    let mut step = vec![0, 2, 1, 0];
    step.extend(huge);
    step.push(0);
    assert!(wrong(Lines, &step).starts_with("section lines, byte 4: step to an address is"));
    assert_eq!(
        wrong(Segments, &[0, 9, 9]),
        "",
        "what stands behind the last entry is ignored"
    );
}

proptest! {
    #[test]
    fn parts_survive(symbols in prop::collection::vec((any::<u64>(), any::<u64>(), ".{0,9}"), 0..40),
        others in prop::collection::btree_map(3u64..200, any::<Vec<u8>>(), 0..3)) {
        let mut sorted = symbols;
        sorted.sort();
        let mut part = ImagePart::new(identity());
        for (address, size_bytes, name) in &sorted {
            let (address, size_bytes) = (*address, *size_bytes);
            let pushed = part.push(Symbol { address, size_bytes, name });
            prop_assert!(pushed);
        }
        part.others = others.into_iter().collect();
        let mut bytes = Vec::new();
        part.put(&mut bytes);
        prop_assert_eq!(ImagePart::parse(&bytes).unwrap(), part);
    }

    #[test]
    fn any_section_is_read_or_refused(tag in 3u16..6, bytes: Vec<u8>) {
        wrong(ImageSection::from_number(tag).unwrap(), &bytes);
    }

    #[test]
    fn a_changed_byte_is_read_or_refused(at: prop::sample::Index, value: u8) {
        let mut bytes = Vec::new();
        whole().put(&mut bytes);
        let at = at.index(bytes.len());
        bytes[at] = value;
        if let Ok(part) = ImagePart::parse(&bytes) {
            described(&part);
        }
    }

    #[test]
    fn any_bytes_end_in_a_part_or_an_error(mut bytes: Vec<u8>, prefix in 0usize..40) {
        let mut whole = Vec::new();
        ImagePart::new(identity()).put(&mut whole);
        whole.truncate(prefix);
        whole.append(&mut bytes);
        let _ = ImagePart::parse(&whole);
    }
}

#[test]
fn a_full_part_refuses_the_next_symbol() {
    let mut part = ImagePart::new(identity());
    let name = "n".repeat(FULL_NAME_BYTES / 2);
    let mut push = |address| {
        let (size_bytes, name) = (1, &name[..]);
        part.push(Symbol {
            address,
            size_bytes,
            name,
        })
    };
    assert!(push(5) && !push(4) && push(5) && !push(6));
}
