//! Compares the disassembler with GNU objdump: boundaries, mnemonics and targets of the instructions of real
//! images. Every difference must be of a sort that is explained here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use uniprof_report::images::disassembly::{instruction, starts};
use uniprof_report::images::{Image, ImageAddress, Stubs, Target};
use uprof::Arch;
use uprof::cpu::Call;

/// An instruction in objdump's output.
#[derive(Debug)]
struct Theirs {
    address: u64,
    text: String,
}

/// The ranges that objdump disassembles without a break, each starting at a label.
fn stretches(text: &str) -> Vec<Vec<Theirs>> {
    let mut stretches: Vec<Vec<Theirs>> = Vec::new();
    for line in text.lines() {
        if line.ends_with(">:") {
            stretches.push(Vec::new());
        }
        let Some((address, text)) = line.split_once(":\t") else {
            continue;
        };
        let Ok(address) = u64::from_str_radix(address.trim(), 16) else {
            continue;
        };
        let text = text.trim().to_owned();
        let stretch = stretches.last_mut().expect("no label");
        stretch.push(Theirs { address, text });
    }
    stretches
}

/// The mnemonic of an instruction, without its prefixes.
fn mnemonic(text: &str) -> &str {
    const PREFIXES: [&str; 16] = [
        "lock", "rep", "repz", "repe", "repnz", "repne", "bnd", "notrack", "data16", "addr32",
        "cs", "ds", "es", "ss", "fs", "gs",
    ];
    let mut words = text.split_whitespace();
    let is_prefix = |word: &&str| PREFIXES.contains(word) || word.starts_with("rex");
    words.find(|word| !is_prefix(word)).unwrap_or("")
}

/// The target address of a branch, as in `call 401126 <parse>` or `b 0x401126`.
fn target(text: &str) -> Option<u64> {
    let first = text.split('<').next()?.trim_end();
    let word = first.rsplit([' ', ',', '\t']).next()?;
    u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()
}

/// Compares the stubs that objdump names with those that this package finds. Returns their number.
fn compare_stubs(image: &Image, text: &str) -> usize {
    let stubs = Stubs::of(image);
    let mut theirs = BTreeMap::new();
    for line in text.lines() {
        let label = line.strip_suffix("@plt>:");
        let Some((address, name)) = label.and_then(|label| label.split_once(" <")) else {
            continue;
        };
        // A function that is selected when the program starts has no name there.
        if name.starts_with('*') {
            continue;
        }
        let address = u64::from_str_radix(address, 16).unwrap();
        let found = stubs.target(ImageAddress(address));
        assert_eq!(found, Some(Target::Named(name)), "{line}");
        theirs.insert(address, name);
    }
    let mut ours = BTreeMap::new();
    for stub in stubs.all() {
        if let Target::Named(name) = stub.target {
            ours.insert(stub.start.0, name);
        }
    }
    assert_eq!(ours, theirs);
    theirs.len()
}

/// For each return address in a range of code, checks whether a call is found before it, and its target.
/// Returns the number of calls, and of other instructions whose last bytes look like a call.
fn compare_calls(arch: Arch, stretch: &[Theirs], code: &[u8]) -> (usize, usize) {
    let (mut calls, mut mistaken) = (0, 0);
    for (theirs, after) in stretch.iter().zip(&stretch[1..]) {
        let end = (after.address - stretch[0].address) as usize;
        let found = arch.call_before(after.address, &code[..end]);
        let is_call = match mnemonic(&theirs.text) {
            "call" | "callq" | "bl" => true,
            other => other.starts_with("blr"),
        };
        calls += usize::from(is_call);
        mistaken += usize::from(!is_call && found.is_some());
        // The symbol after the operand may contain a star, as in `<*ABS*+0x9f1c0@plt>`.
        let operand = theirs.text.split('<').next().unwrap_or_default();
        let is_direct = is_call && !operand.contains('*') && !operand.contains("blr");
        match found {
            Some(Call::Direct(to)) if is_direct => {
                assert_eq!(Some(to), target(&theirs.text), "{theirs:?}");
            }
            // The last bytes of a direct call may look like an indirect one.
            found => assert!(
                !is_call || found == Some(Call::Indirect),
                "{theirs:?} {found:?}"
            ),
        }
    }
    (calls, mistaken)
}

/// The output of `objdump` for the code of `image`.
fn disassembled(objdump: &str, image: &Path) -> String {
    let output = Command::new(objdump)
        .args(["-d", "-w", "-z", "--no-show-raw-insn"])
        .arg(image)
        .output()
        .unwrap();
    assert!(output.status.success(), "{objdump}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Each range but the last, with its bytes in `image`.
fn with_code<'t, 'i>(
    stretches: &'t [Vec<Theirs>],
    image: &'i Image,
) -> impl Iterator<Item = (&'t [Theirs], &'i [u8])> {
    let pairs = stretches.iter().zip(stretches.iter().skip(1));
    pairs.filter_map(|(stretch, next)| {
        let first = ImageAddress(stretch.first()?.address);
        let length_bytes = next.first()?.address.saturating_sub(first.0);
        Some((&stretch[..], image.code_at(first, length_bytes)?))
    })
}

/// Compares all of `image` with the output of `objdump`. Returns the number of instructions.
fn compare(objdump: &str, image: &Path, explain: fn(&str, &str) -> bool) -> usize {
    let text = disassembled(objdump, image);
    let stretches = stretches(&text);
    let opened = Image::open(image).unwrap();
    let stubs = compare_stubs(&opened, &text);
    assert!(stubs >= 1, "{} has no stubs", image.display());
    let arch = opened.arch();
    let (mut compared, mut targets, mut calls, mut mistaken) = (0, 0, 0, 0);
    let mut others: BTreeMap<String, usize> = BTreeMap::new();
    for (stretch, code) in with_code(&stretches, &opened) {
        let first = stretch[0].address;
        let ours: BTreeSet<u64> = starts(arch, code)
            .iter()
            .map(|start| first + *start as u64)
            .collect();
        let found = compare_calls(arch, stretch, code);
        (calls, mistaken) = (calls + found.0, mistaken + found.1);
        for theirs in stretch {
            compared += 1;
            let into = (theirs.address - first) as usize;
            let found = instruction(arch, theirs.address, &code[into..]);
            let (here, there) = (mnemonic(&found.text), mnemonic(&theirs.text));
            if (!ours.contains(&theirs.address) || here != there) && !explain(here, there) {
                *others.entry(format!("{here} / {there}")).or_default() += 1;
            }
            if let Some(aim) = found.target {
                targets += 1;
                assert_eq!(Some(aim), target(&theirs.text), "{found:?} {theirs:?}");
            }
        }
    }
    println!(
        "{}: {compared} instructions, {targets} branches, {calls} calls and {mistaken} that could be, {stubs} stubs, \
         differences: {others:?}",
        image.display()
    );
    assert!(others.is_empty(), "{}: {others:?}", image.display());
    assert!(targets > compared / 50, "{targets} of {compared}");
    assert!(
        calls > compared / 200 && mistaken * 50 < compared,
        "{calls}, {mistaken} of {compared}"
    );
    compared
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// For some instructions, one disassembler states the width of the operands and the other leaves it to the
/// registers: `callq` and `call`.
fn same_but_for_size(ours: &str, theirs: &str) -> bool {
    let (short, long) = match ours.len() < theirs.len() {
        true => (ours, theirs),
        false => (theirs, ours),
    };
    let more = long.strip_prefix(short);
    more.is_some_and(|more| ["b", "w", "l", "q"].contains(&more))
}

#[test]
fn x86_64_equals_objdump() {
    if !is_there("objdump") {
        eprintln!("skipped: there is no objdump (binutils) to compare with");
        return;
    }
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/images");
    for name in ["calls", "pack", "libpack.so"] {
        assert!(compare("objdump", &images.join(name), same_but_for_size) > 50);
    }
    // The distribution's images are tested as they are on this machine.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps
        .lines()
        .find(|line| line.contains("/lib/x86_64-linux-gnu/libc.so"));
    let libc = libc.and_then(|line| line.split_whitespace().last());
    let libc = Path::new(libc.expect("this test has a C library"));
    assert!(compare("objdump", libc, same_but_for_size) > 100_000);
}

/// Two conditions have two names each.
fn same_condition(ours: &str, theirs: &str) -> bool {
    [("b.hs", "b.cs"), ("b.lo", "b.cc")].contains(&(ours, theirs))
}

#[test]
fn aarch64_equals_objdump() {
    let objdump = "aarch64-linux-gnu-objdump";
    let libc = PathBuf::from("/usr/aarch64-linux-gnu/lib/libc.so.6");
    if !is_there(objdump) || !libc.is_file() {
        eprintln!(
            "skipped: there is no {objdump} and libc (binutils-aarch64-linux-gnu, \
             libc6-dev-arm64-cross) to compare with"
        );
        return;
    }
    assert!(compare(objdump, &libc, same_condition) > 100_000);
}

/// The images whose calls are counted, each with an objdump that can read it.
const CALLING: [(&str, &str); 5] = [
    ("objdump", "/lib64/ld-linux-x86-64.so.2"),
    ("objdump", "/lib/x86_64-linux-gnu/libc.so.6"),
    ("objdump", "/usr/bin/python3"),
    (
        "aarch64-linux-gnu-objdump",
        "/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1",
    ),
    (
        "aarch64-linux-gnu-objdump",
        "/usr/aarch64-linux-gnu/lib/libc.so.6",
    ),
];

/// If a call is not recognized, stacks are cut at its return address.
#[test]
fn no_call_of_real_images_is_missed() {
    for (objdump, image) in CALLING {
        let path = Path::new(image);
        if !is_there(objdump) || !path.is_file() {
            eprintln!("skipped: there is no {objdump} (binutils) or no {image} to ask it about");
            continue;
        }
        let text = disassembled(objdump, path);
        let stretches = stretches(&text);
        let image = Image::open(path).unwrap();
        let found = with_code(&stretches, &image)
            .map(|(stretch, code)| (stretch.len(), compare_calls(image.arch(), stretch, code)))
            .fold((0, 0, 0), |sum, (all, (calls, mistaken))| {
                (sum.0 + all, sum.1 + calls, sum.2 + mistaken)
            });
        let (instructions, calls, mistaken) = found;
        println!(
            "{}: {calls} calls, {mistaken} of {instructions} instructions end as calls do and are none",
            path.display()
        );
        assert!(calls > 500 && mistaken * 100 < instructions, "{found:?}");
    }
}

/// Random words from a fixed seed, which are not addresses.
fn noise(length_bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(1);
    (0..length_bytes).map(|_| random.u8(..)).collect()
}

#[test]
fn any_bytes_give_instructions_that_lie_end_to_end() {
    let noise = noise(1 << 16);
    for arch in [Arch::X86_64, Arch::Aarch64] {
        for code in [
            &noise[..],
            &noise[..1],
            &noise[..15],
            &noise[..0],
            &[0xff; 64],
        ] {
            let starts = starts(arch, code);
            assert_eq!(starts.is_empty(), code.is_empty());
            let ends = starts.iter().skip(1).copied().chain([code.len()]);
            for (start, end) in starts.iter().copied().zip(ends) {
                for address in [0x1000, u64::MAX - 1] {
                    let found = instruction(arch, address, &code[start..]);
                    assert_eq!(found.length_bytes, end - start, "{found:?}");
                    assert!(!found.text.is_empty());
                }
            }
        }
    }
    // Words from the whole range; all 2^32 were tried once. The step is a prime number.
    for word in (0..=u32::MAX).step_by(20_011) {
        let found = instruction(Arch::Aarch64, u64::MAX - 3, &word.to_le_bytes());
        assert_eq!(found.length_bytes, 4);
        assert!(found.text.is_ascii() && found.text.len() < 200, "{found:?}");
    }
    // All pairs of first bytes.
    for pair in 0..=u16::MAX {
        let code = [&pair.to_le_bytes()[..], &noise[..14]].concat();
        let found = instruction(Arch::X86_64, u64::MAX - 3, &code);
        assert!((1..=15).contains(&found.length_bytes));
        assert!(found.text.is_ascii() && found.text.len() < 200, "{found:?}");
    }
    assert_eq!(instruction(Arch::X86_64, 0, &[]).text, "(bad)");
    assert_eq!(instruction(Arch::X86_64, 0, &[0x06]).text, "(bad)");
    assert_eq!(instruction(Arch::Aarch64, 0, &[0xff; 4]).text, "(bad)");
}
