//! The test unikernel under QEMU's gdb stub. The unwinder's frames are compared with gdb's, including
//! interrupt handlers. Its image comes in every form that unikernels have: with call frame information in
//! only one of the two sections, with leftovers of the linker in it, and with none at all and names in a text
//! beside it.

mod stops;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use stops::compare::{Verdict, compare};
use stops::driver::run;
use stops::machine::stop;
use stops::{Dump, Stopped};
use uniprof_report::images::{Image, ImageAddress, SymbolTable};
use uniprof_report::unwind::{Cache, Module, RuleTable, UnwindRules, Unwinder};
use uprof::Arch;

const AGREE_MIN: f64 = 0.995;

/// The tool that these tests lack; `None` if all exist.
fn missing(arch: Arch) -> Option<String> {
    let (tools, packages) = match arch {
        Arch::X86_64 => (
            ["gdb", "gcc", "make", "qemu-system-x86_64"],
            "gdb qemu-system-x86",
        ),
        Arch::Aarch64 => (
            [
                "gdb-multiarch",
                "aarch64-linux-gnu-gcc",
                "make",
                "qemu-system-aarch64",
            ],
            "gdb-multiarch gcc-aarch64-linux-gnu qemu-system-arm",
        ),
    };
    tools.into_iter().find_map(|tool| {
        let error = Command::new(tool).arg("--version").output().err()?;
        Some(format!(
            "{tool} does not run ({error}); apt-get install {packages}"
        ))
    })
}

/// Builds the images of the guests in `folder`, with further flags and sources.
fn build(folder: &Path, extra: &str) -> PathBuf {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/guests");
    let mut make = Command::new("make");
    make.arg("-s").arg("-C").arg(guests);
    run(make
        .arg(format!("O={}", folder.display()))
        .arg(format!("EXTRA={extra}")));
    folder.to_owned()
}

fn unwinder(image: &Path) -> Unwinder {
    let image = Arc::new(Image::open(image).unwrap());
    let arch = image.arch();
    let rules = Arc::new(UnwindRules::of(&image, None));
    let code = image.segments().iter().filter(|segment| segment.has_code);
    let modules = code.map(|segment| Module {
        start: segment.address,
        end: segment.address + segment.memory_bytes,
        bias: 0,
        rules: Arc::clone(&rules),
        image: Some(Arc::clone(&image)),
    });
    Unwinder::new(arch, modules.collect())
}

/// The share of `stops` at which unwinder and gdb agree. Differences are printed.
fn share(name: &str, image: &Path, stops: &[Stopped]) -> f64 {
    let unwinder = unwinder(image);
    let mut cache = Cache::new();
    let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
    let mut differences = 0;
    for stop in stops {
        match compare(&unwinder, &mut cache, stop, true) {
            Verdict::Same(end) => *ends.entry(end.name()).or_default() += 1,
            Verdict::Differs(at, text) => {
                differences += 1;
                println!("    {name}, frame {at}: {text}");
            }
        }
    }
    let share = 1.0 - differences as f64 / stops.len() as f64;
    let frames: usize = stops.iter().map(|stop| stop.frames.len()).sum();
    let interrupts = stops.iter().filter(|stop| stop.is_in_signal()).count();
    println!(
        "{name}: {} stops, {frames} frames, {interrupts} in interrupt handlers, {:.2} % agree; \
         ends {ends:?}",
        stops.len(),
        share * 100.0,
    );
    share
}

#[test]
fn frames_equal_gdbs_in_the_test_unikernel() {
    if let Some(reason) = missing(Arch::X86_64) {
        eprintln!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = build(folder.path(), "");
    for (seed, name) in ["guest.elf", "guest-nofp.elf"].into_iter().enumerate() {
        let image = folder.join(name);
        let dump = stop(Arch::X86_64, &image, 600, seed);
        assert!(dump.stops.len() >= 500);
        let interrupts = dump.stops.iter().filter(|stop| stop.is_in_signal()).count();
        assert!(
            interrupts > 20,
            "{name}: only {interrupts} stops in interrupt handlers"
        );
        assert!(share(name, &image, &dump.stops) >= AGREE_MIN, "{name}");
    }
}

#[test]
fn frames_equal_gdbs_in_the_aarch64_unikernel() {
    if let Some(reason) = missing(Arch::Aarch64) {
        eprintln!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/guests/aarch64");
    let mut make = Command::new("make");
    run(make
        .arg("-s")
        .arg("-C")
        .arg(guests)
        .arg(format!("O={}", folder.path().display())));
    for (seed, name) in ["guest-aarch64.elf", "guest-aarch64-nofp.elf"]
        .into_iter()
        .enumerate()
    {
        let image = folder.path().join(name);
        let dump = stop(Arch::Aarch64, &image, 500, seed);
        assert!(dump.stops.len() >= 500);
        assert!(share(name, &image, &dump.stops) >= AGREE_MIN, "{name}");
    }
    // Its return addresses are signed, which gdb 13 can't read in the upper half. The truth is known without
    // gdb: every stack leads from vcpu_start through work to the current function.
    let image = folder.path().join("guest-aarch64-pac.elf");
    let dump = stop(Arch::Aarch64, &image, 500, 2);
    let good = dump
        .stops
        .iter()
        .filter(|stop| leads_from_start_to_work(&image, stop))
        .count();
    println!(
        "guest-aarch64-pac.elf: {} stops, {good} whole and as known",
        dump.stops.len()
    );
    assert!(good as f64 >= dump.stops.len() as f64 * AGREE_MIN);
}

fn leads_from_start_to_work(image: &Path, stop: &Stopped) -> bool {
    let mut frames = Vec::new();
    let (unwinder, mut cache) = (unwinder(image), Cache::new());
    let options = Default::default();
    let memory = stop.memory();
    let end = unwinder.unwind(&mut cache, &stop.registers, &memory, options, &mut frames);
    let table = SymbolTable::from_image(&Image::open(image).unwrap());
    let name = |frame: &uprof::Frame| {
        let found = table.find(ImageAddress(frame.lookup_address()));
        found.map_or("?", |found| found.name).to_owned()
    };
    let names: Vec<String> = frames.iter().rev().map(name).collect();
    let wanted = ["vcpu_start", "guest_main", "vcpu_main", "run_on", "work"];
    let good = end == uprof::Stop::Complete && names.iter().zip(wanted).all(|(a, b)| a == b);
    if !good {
        println!("    {names:?} {}", end.name());
    }
    good && !names.contains(&"?".to_owned())
}

/// What GNU ld's --gc-sections often leaves in .debug_frame: functions of dropped sections, at address 0.
const DROPPED: &str = "\
.section .debug_frame,\"\",@progbits
1:\t.long 3f - 2f
2:\t.long 0xffffffff\n.byte 1, 0\n.uleb128 1\n.sleb128 -8\n.byte 16, 12, 7, 8, 0x90, 1
\t.balign 8
3:\t.long 5f - 4f
4:\t.long 1b\n.quad 0, 0x40
\t.balign 8
5:\t.long 7f - 6f
6:\t.long 1b\n.quad 0, 0x7fffffff
\t.balign 8
7:
";
/// A function of zero bytes, as macros and empty stubs leave it.
const EMPTY: &str = "\
.cfi_sections .debug_frame\n.text\n.globl nothing_here\nnothing_here:\n.cfi_startproc\n.cfi_endproc\n";

#[test]
fn images_of_every_form_unwind_and_name_their_functions() {
    if let Some(reason) = missing(Arch::X86_64) {
        eprintln!("skipped: {reason}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("dropped.s"), DROPPED).unwrap();
    std::fs::write(folder.join("empty.s"), EMPTY).unwrap();
    let only_debug = "-fno-asynchronous-unwind-tables -fno-unwind-tables";
    let dropped = folder.join("dropped.s").display().to_string();
    let empty = folder.join("empty.s").display().to_string();
    for (name, extra) in [
        ("eh", ""),
        ("debug", only_debug),
        ("gc", &dropped),
        ("empty", &empty),
    ] {
        let image = build(&folder.join(name), extra).join("guest-nofp.elf");
        let dump = stop(Arch::X86_64, &image, 100, 7);
        let table = RuleTable::compile(&Image::open(&image).unwrap(), None);
        println!(
            "{name}: {} rows, left out {:?}",
            table.len(),
            table.skipped()
        );
        match name {
            "gc" => assert!(
                table.skipped().outside > 0,
                "no leftovers at 0: {:?}",
                table.skipped()
            ),
            "empty" => assert!(table.skipped().empty > 0, "no empty function"),
            _ => {}
        }
        assert!(share(name, &image, &dump.stops) >= AGREE_MIN, "{name}");
        names_are_gdbs(
            name,
            &SymbolTable::from_image(&Image::open(&image).unwrap()),
            &dump,
        );
        if name == "debug" {
            without_eh_frame(&image, &dump);
        }
        if name == "eh" {
            stripped_with_names_beside_it(&image, &dump);
        }
    }
}

fn names_are_gdbs(form: &str, table: &SymbolTable, dump: &Dump) {
    for frame in dump.stops.iter().flat_map(|stop| &stop.frames) {
        // If there is no symbol, gdb's name is a guess.
        let Some(found) = table.find(ImageAddress(frame.pc)) else {
            continue;
        };
        // In a list without sizes, a label in a function looks like the next function.
        let is_label = form == "stripped" && found.name == "long_mode";
        let same = found.name == frame.name || frame.name == "??" || is_label;
        assert!(same, "{form}: {} is {} to gdb", found.name, frame.name);
    }
    let named = |stop: &&Stopped| table.find(ImageAddress(stop.frames[0].pc)).is_some();
    let named = dump.stops.iter().filter(named).count();
    assert!(
        named * 100 >= dump.stops.len() * 99,
        "{form}: {named} of {}",
        dump.stops.len()
    );
}

/// Mini-OS has only .debug_frame, and none for its assembly. The unwinder gets through an entry stub by the
/// shape of the trap frame above it.
fn without_eh_frame(image: &Path, dump: &Dump) {
    let bare = image.with_extension("debug-frame-only");
    run(Command::new("objcopy")
        .args(["-R", ".eh_frame"])
        .arg(image)
        .arg(&bare));
    let table = RuleTable::compile(&Image::open(&bare).unwrap(), None);
    assert!(!table.is_empty());
    let share = share("debug only, no rule for assembly", &bare, &dump.stops);
    let unwinder = unwinder(&bare);
    let mut cache = Cache::new();
    let mut crossed = 0;
    let mut interrupted = 0;
    for stop in dump.stops.iter().filter(|stop| stop.is_in_signal()) {
        let mut frames = Vec::new();
        let options = Default::default();
        unwinder.unwind(
            &mut cache,
            &stop.registers,
            &stop.memory(),
            options,
            &mut frames,
        );
        let below = stop
            .frames
            .iter()
            .position(|frame| frame.is_signal)
            .unwrap();
        interrupted += 1;
        let ours = frames.get(below + 1).map(|frame| frame.address);
        crossed += usize::from(ours == stop.frames.get(below + 1).map(|frame| frame.pc));
    }
    println!("debug only: {crossed} of {interrupted} trap frames crossed by shape, {share:.3}");
    assert!(
        crossed * 10 >= interrupted * 9,
        "{crossed} of {interrupted}"
    );
}

/// A release image: stripped, and with the output of `nm -n` beside it.
fn stripped_with_names_beside_it(image: &Path, dump: &Dump) {
    let stripped = image.with_extension("stripped");
    run(Command::new("strip").arg("-o").arg(&stripped).arg(image));
    let table = SymbolTable::from_image(&Image::open(&stripped).unwrap());
    assert!(table.iter().all(|(_, _, name)| name.is_empty()));
    let text = Command::new("nm")
        .arg("-n")
        .arg(image)
        .output()
        .unwrap()
        .stdout;
    let table = SymbolTable::from_text("nm", &String::from_utf8(text).unwrap()).unwrap();
    assert!(share("stripped", &stripped, &dump.stops) >= AGREE_MIN);
    names_are_gdbs("stripped", &table, dump);
}
