//! `--annotate` with instructions: of the corpus, of synthetic recordings with real images, and of images
//! whose symbols are wrong.

mod listing;

use listing::{Shown, annotated, corpus, instructions, made, made_of};
use object::{Object, ObjectSection, ObjectSymbol};
use std::path::{Path, PathBuf};
use std::process::Command;
use uniprof_report::recording::Recording;
use uprof::cold::TargetKind;

fn calls() -> (Recording, PathBuf) {
    let recording = Recording::open(&corpus("calls.uprof")).unwrap();
    (recording, corpus("images/calls"))
}

/// Self samples of a function, as --top counts them.
fn own(recording: &str, function: &str) -> u64 {
    let top = std::fs::read_to_string(corpus(&format!("golden/{recording}.top.txt"))).unwrap();
    let row = top.lines().find(|line| line.ends_with(function)).unwrap();
    row.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn instructions_have_all_samples_of_their_function() {
    let (recording, image) = calls();
    let report = annotated(&[&recording], &[image], "steps", true);
    let shown = instructions(&report);
    let own = own("calls", "steps  [calls]");
    assert_eq!(shown.iter().map(|it| it.own).sum::<u64>(), own, "{report}");
    let found = format!("{own} samples in steps itself");
    assert!(report.contains(&found), "{report}");
    assert!(report.contains("steps in "), "{report}");
    // There is a heading for each known source line.
    assert!(report.contains("calls.c:16"), "{report}");
    assert!(shown.iter().any(|it| it.text == "pop %rbp"), "{report}");
}

#[test]
fn a_return_address_counts_for_the_call_before_it() {
    let (recording, image) = calls();
    let calls = [("often", "steps"), ("work", "often"), ("work", "deep")];
    for (caller, callee) in calls {
        let report = annotated(&[&recording], std::slice::from_ref(&image), caller, true);
        let shown = instructions(&report);
        let through = shown.iter().filter(|it| it.total > it.own);
        let texts: Vec<&str> = through.map(|it| it.text.as_str()).collect();
        assert!(!texts.is_empty(), "{report}");
        assert!(texts.iter().all(|text| text.contains("call")), "{texts:?}");
        let named = format!("<{callee}>");
        assert!(texts.iter().any(|text| text.ends_with(&named)), "{texts:?}");
    }
}

#[test]
fn calls_of_other_images_have_their_names() {
    let image = corpus("images/calls");
    let bytes = std::fs::read(&image).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let id = file.build_id().unwrap().unwrap();
    // Its first call is 17 bytes after its start and takes 5 bytes.
    let now = file.symbol_by_name("now").unwrap().address();
    let recording = made(id, &[], &[&[now + 4, now + 22]]);
    let report = annotated(&[&recording], &[image], "now", true);
    assert!(
        report.contains("call   0x1040 <clock_gettime@plt>"),
        "{report}"
    );
}

#[test]
fn where_no_line_is_known_there_are_instructions() {
    let recording = Recording::open(&corpus("pack-stack.uprof")).unwrap();
    let images = ["pack", "libpack.so"].map(|name| corpus("images").join(name));
    let function = "libpack.so+0x1120";
    let report = annotated(&[&recording], &images, function, false);
    let shown = instructions(&report);
    let own = own("pack-stack", function);
    assert_eq!(shown.iter().map(|it| it.own).sum::<u64>(), own, "{report}");
    assert!(report.contains("AT&T syntax"), "{report}");
    // Instructions far from any sample are left out.
    let report = annotated(&[&recording], &images, "libpack.so+0x1250", false);
    assert!(
        report.contains("\n                         …\n"),
        "{report}"
    );
    // Without the image, the report says which one is missing and what would help.
    let report = annotated(&[&recording], &[], "libpack", false);
    assert!(instructions(&report).is_empty(), "{report}");
    assert_eq!(report.matches("--elf IMAGE").count(), 1, "{report}");
    assert!(report.contains("instructions in /"), "{report}");
}

#[test]
fn instructions_are_the_same_with_one_thread_and_with_two() {
    let (recording, image) = calls();
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = pool.build().unwrap();
        // Selects all functions with an `e`, so that several are listed.
        pool.install(|| annotated(&[&recording], std::slice::from_ref(&image), "e", true))
    };
    let one = with(1);
    assert!(one.matches(" in /").count() >= 3, "{one}");
    assert!(one == with(2));
}

#[test]
fn an_image_of_another_build_is_never_shown() {
    let (recording, image) = calls();
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("calls");
    let mut bytes = std::fs::read(&image).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let note = file.section_by_name(".note.gnu.build-id").unwrap();
    let (start, length_bytes) = note.file_range().unwrap();
    bytes[(start + length_bytes - 1) as usize] ^= 1;
    std::fs::write(&other, bytes).unwrap();
    let report = annotated(&[&recording], &[other], "calls+", true);
    assert!(instructions(&report).is_empty(), "{report}");
    assert!(report.contains("--elf IMAGE"), "{report}");
}

#[test]
fn a_debug_file_has_no_instructions() {
    let (recording, image) = calls();
    let mut bytes = std::fs::read(&image).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let text = file.section_by_name(".text").unwrap().index().0;
    // This is what elfutils leaves: program headers of the whole image, and sections that are SHT_NOBITS.
    let headers = u64::from_le_bytes(*bytes[0x28..].first_chunk().unwrap()) as usize;
    bytes[headers + 64 * text + 4] = 8;
    let folder = tempfile::tempdir().unwrap();
    let debug = folder.path().join("calls");
    std::fs::write(&debug, bytes).unwrap();
    let report = annotated(&[&recording], &[debug], "steps", true);
    assert!(instructions(&report).is_empty(), "{report}");
    assert!(report.contains("a debug file doesn't"), "{report}");
    // The lines in the image are shown.
    assert!(report.contains("calls.c"), "{report}");
}

/// `calls` with other values for the symbol `steps`: its address is moved by `moved_bytes`, and its size
/// replaced.
fn with_symbol(folder: &Path, moved_bytes: u64, size_bytes: u64) -> PathBuf {
    let mut bytes = std::fs::read(corpus("images/calls")).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let symbol = file.symbol_by_name("steps").unwrap();
    let table = file.section_by_name(".symtab").unwrap();
    // Elf64_Sym has 24 bytes, with the value at 8 and the size at 16.
    let at = table.file_range().unwrap().0 as usize + 24 * symbol.index().0;
    let value = symbol.address().wrapping_add(moved_bytes);
    bytes[at + 8..at + 16].copy_from_slice(&value.to_le_bytes());
    bytes[at + 16..at + 24].copy_from_slice(&size_bytes.to_le_bytes());
    let path = folder.join("calls");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn symbols_that_lie_about_place_and_size_are_survived() {
    let (recording, _) = calls();
    let folder = tempfile::tempdir().unwrap();
    let moves = [0, 1, 0x1000, 1 << 40, u64::MAX, u64::MAX - 0x11c0, 1 << 63];
    let all = own("calls", "steps  [calls]") + 100;
    let mut listed = 0;
    for moved_bytes in moves {
        for size_bytes in [0, 1, 0x2f, 1 << 21, 1 << 40, u64::MAX] {
            let image = with_symbol(folder.path(), moved_bytes, size_bytes);
            for function in ["steps", "calls", "e"] {
                let report = annotated(&[&recording], std::slice::from_ref(&image), function, true);
                assert!(report.len() < 1 << 20);
                let shown = instructions(&report);
                assert!(
                    shown.iter().map(|it| it.own).sum::<u64>() <= all,
                    "{report}"
                );
                listed += usize::from(!shown.is_empty());
            }
        }
    }
    assert!(listed > 50, "only {listed} reports have instructions");
}

#[test]
fn recordings_of_several_builds_have_no_common_instructions() {
    let image = corpus("images/calls");
    let bytes = std::fs::read(&image).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let id = file.build_id().unwrap().unwrap();
    let steps = file.symbol_by_name("steps").unwrap().address();
    let (one, other) = (
        made(id, &[], &[&[steps + 4]]),
        made(&[1; 20], &[], &[&[steps + 4]]),
    );
    let images = [image];
    let report = annotated(&[&one, &one], &images, "steps", true);
    let shown = instructions(&report);
    assert_eq!(shown.iter().map(|it| it.own).sum::<u64>(), 2, "{report}");
    let report = annotated(&[&one, &other], &images, "steps", true);
    assert!(instructions(&report).is_empty(), "{report}");
    assert!(report.contains("several builds"), "{report}");
}

#[test]
fn a_guest_has_its_instructions_as_a_process_has() {
    let image = corpus("images/calls");
    let bytes = std::fs::read(&image).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let id = file.build_id().unwrap().unwrap();
    let address = |name: &str| file.symbol_by_name(name).unwrap().address();
    // `often` sets up its frame and then calls: 1 + 3 bytes, an argument of 5, a call of 5.
    let stack = [address("steps") + 4, address("often") + 14];
    let images = [image];
    let listed = |recording: &Recording| -> Vec<String> {
        let report = annotated(&[recording], &images, "often", true);
        let shown = instructions(&report);
        let sampled = shown.iter().filter(|it| it.total > 0);
        sampled
            .map(|it| format!("{} {} {}", it.own, it.total, it.text))
            .collect()
    };
    for kind in [
        TargetKind::Process,
        TargetKind::XenDomain,
        TargetKind::GdbStub,
    ] {
        let found = listed(&made_of(kind, id, &[], &[&stack]));
        assert_eq!(found, ["0 1 call 0x11c1 <steps>"], "{kind:?}");
    }
}

#[test]
fn aarch64_calls_have_their_samples_and_names() {
    let folder = tempfile::tempdir().unwrap();
    let (source, image) = (folder.path().join("a.c"), folder.path().join("app"));
    let text = "__attribute__((noinline)) int leaf(int n) { return n * n; }\n\
                int _start(int n) { return leaf(n) + leaf(n + 1); }\n";
    std::fs::write(&source, text).unwrap();
    let built = Command::new("aarch64-linux-gnu-gcc")
        .args(["-O1", "-nostdlib", "-static", "-Wl,--build-id", "-o"])
        .args([&image, &source])
        .status();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no aarch64-linux-gnu-gcc to build a program with");
        return;
    }
    let bytes = std::fs::read(&image).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let id = file.build_id().unwrap().unwrap();
    let section = file.section_by_name(".text").unwrap();
    let offset = |address: u64| address - section.address() + section.file_range().unwrap().0;
    let address = |name: &str| file.symbol_by_name(name).unwrap().address();
    let (leaf, start) = (address("leaf"), address("_start"));
    // The first BL of _start: opcode 0b100101 in the top bits.
    let code = section.data().unwrap();
    let words = code[(start - section.address()) as usize..].chunks(4);
    let calls = words
        .map(|word| word[3] >> 2)
        .position(|top| top == 0b10_0101);
    let after = start + 4 * (calls.unwrap() as u64 + 1);
    let recording = made(id, &[], &[&[offset(leaf), offset(after)]]);
    let report = annotated(&[&recording], &[image], "_start", false);
    let shown = instructions(&report);
    let sampled: Vec<&Shown> = shown.iter().filter(|it| it.total > 0).collect();
    assert_eq!(sampled.len(), 1, "{report}");
    assert!(sampled[0].text.starts_with("bl "), "{report}");
    assert!(sampled[0].text.ends_with("<leaf>"), "{report}");
}
