//! Limits of `--annotate`, each at its value and beyond it. docs/limits.md names these tests.

mod listing;

use listing::{NOPS, annotated, instructions, made, nops};

#[test]
fn code_of_a_function_that_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let most_bytes = 1 << 20;
    let image = nops(folder.path(), 2 * most_bytes);
    let functions = [(NOPS, 2 * most_bytes, "long".to_owned())];
    for (into_bytes, is_shown) in [(most_bytes - 1, true), (most_bytes, false)] {
        let recording = made(&[], &functions, &[&[NOPS + into_bytes]]);
        let report = annotated(&[&recording], std::slice::from_ref(&image), "long", true);
        let shown = instructions(&report);
        let own: u64 = shown.iter().map(|it| it.own).sum();
        assert_eq!(own, u64::from(is_shown), "{report}");
        assert_eq!(report.contains("too far from the start"), !is_shown);
        assert!(report.contains(&format!("{:x}", NOPS + into_bytes)));
    }
}

#[test]
fn functions_that_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let image = nops(folder.path(), 0x1000);
    for (count, all_are_shown) in [(64, true), (65, false)] {
        let functions: Vec<_> = (0..count)
            .map(|number| (NOPS + 16 * number, 16, format!("f{number}")))
            .collect();
        let starts: Vec<[u64; 1]> = functions.iter().map(|function| [function.0]).collect();
        let stacks: Vec<&[u64]> = starts.iter().map(|start| &start[..]).collect();
        let recording = made(&[], &functions, &stacks);
        let report = annotated(&[&recording], std::slice::from_ref(&image), "f", true);
        assert_eq!(report.matches("AT&T").count(), 64, "{report}");
        assert_eq!(report.contains("too many functions"), !all_are_shown);
        let last = format!("{:x}", functions[count as usize - 1].0);
        assert!(report.contains(&last), "{report}");
    }
}

#[test]
fn instructions_that_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let image = nops(folder.path(), 0x1000);
    let functions = [(NOPS, 0x1000, "f".to_owned())];
    for count in [2000, 2001] {
        let offsets: Vec<[u64; 1]> = (0..count).map(|into| [NOPS + into]).collect();
        let stacks: Vec<&[u64]> = offsets.iter().map(|offset| &offset[..]).collect();
        let recording = made(&[], &functions, &stacks);
        let report = annotated(&[&recording], std::slice::from_ref(&image), "f", true);
        assert_eq!(instructions(&report).len(), 2000);
        let left_out = report.contains("1 more instructions with samples are not shown");
        assert_eq!(left_out, count > 2000);
    }
}
