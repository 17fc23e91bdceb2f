//! Names of real programs whose symbol tables are unusual or missing: nasm's local labels, stubs,
//! MiniDebugInfo, Go's own table, GHC's objects, aliases of the C library. The truth comes from readelf,
//! objdump, nm and go.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use uniprof_report::images::{Image, ImageAddress, Line, LineStore, Lines, SymbolTable, demangle};

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: there is no {program}");
    }
    found
}

fn shell(folder: &Path, script: &str) -> String {
    let output = Command::new("sh")
        .args(["-ec", script])
        .current_dir(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn table_of(path: &Path) -> SymbolTable {
    SymbolTable::from_image(&Image::open(path).unwrap())
}

fn name_at(table: &SymbolTable, address: u64) -> Option<&str> {
    table.find(ImageAddress(address)).map(|found| found.name)
}

const NASM: &str = "\
global _start, work
section .text
_start: mov ecx, 10
.again: call work
        dec ecx
        jnz .again
.end:   mov eax, 60
        xor edi, edi
        syscall
work:   mov eax, 1000
.loop:  dec eax
        jnz .loop
%macro spin 0
        mov eax, 9
%%again: dec eax
        jnz %%again
%endmacro
        spin
        ret
";

#[test]
fn local_labels_of_nasm_are_in_their_function() {
    if !has("nasm") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.asm"), NASM).unwrap();
    shell(folder.path(), "nasm -f elf64 a.asm && ld -o a a.o");
    let table = table_of(&folder.path().join("a"));
    let names: Vec<_> = table.iter().map(|(_, _, name)| name.to_owned()).collect();
    assert_eq!(names, ["_start", "work"]);
    let listed = shell(folder.path(), "nm -n a");
    assert!(listed.contains(" t work.loop"), "{listed}");
    let listed = SymbolTable::from_text("nm", &listed).unwrap();
    let names: Vec<_> = listed.iter().map(|(_, _, name)| name.to_owned()).collect();
    // A list doesn't show that the linker's mark comes after all code.
    assert_eq!(names, ["_start", "work", "_end"]);
}

const PROGRAM: &str = "\
#include <stdio.h>
#include <string.h>
__attribute__((noinline)) static int deep(int n) { return n + puts(\"x\"); }
int main(int argc, char **argv) { return deep(argc) + (int)strlen(argv[0]); }
";

#[test]
fn code_without_names_is_not_the_last_function_of_crtstuff() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("bare.s"),
        ".text\n.skip 4096, 0x90\nret\n",
    )
    .unwrap();
    std::fs::write(folder.path().join("main.c"), "int main(void) { return 0; }").unwrap();
    shell(folder.path(), "gcc -o program bare.s main.c");
    let dummy = shell(
        folder.path(),
        "nm program | grep ' frame_dummy$' | cut -d' ' -f1",
    );
    let dummy = u64::from_str_radix(dummy.trim(), 16).unwrap();
    let table = table_of(&folder.path().join("program"));
    assert_eq!(name_at(&table, dummy), Some("frame_dummy"));
    assert_eq!(name_at(&table, dummy + 64), None);
}

#[test]
fn stubs_are_named_as_by_objdump() {
    if !has("gcc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("a.c"), PROGRAM).unwrap();
    let forms = [
        ("", "-O1 -fno-builtin"),
        ("", "-O1 -fno-builtin -fcf-protection -Wl,-z,ibtplt"),
        ("", "-O1 -fno-builtin -Wl,-z,now"),
        ("aarch64-linux-gnu-", "-O1 -fno-builtin"),
        (
            "aarch64-linux-gnu-",
            "-O1 -fno-builtin -mbranch-protection=standard -Wl,-z,force-bti",
        ),
    ];
    for (target, flags) in forms {
        if !has(&format!("{target}gcc")) {
            continue;
        }
        shell(folder, &format!("{target}gcc {flags} -o a a.c"));
        let listed = shell(folder, &format!("{target}objdump -d a"));
        let table = table_of(&folder.join("a"));
        let mut compared = 0;
        for line in listed.lines() {
            let label = line.strip_suffix("@plt>:");
            let Some((address, name)) = label.and_then(|label| label.split_once(" <")) else {
                continue;
            };
            let address = u64::from_str_radix(address, 16).unwrap();
            let found = name_at(&table, address + 7).unwrap_or_default();
            assert_eq!(found, format!("{name}@plt"), "{line}");
            compared += 1;
        }
        assert!(compared >= 1, "{target}gcc {flags}: {listed}");
    }
}

/// A statically linked program calls its own functions through stubs if they have variants for several
/// processors.
#[test]
fn stubs_of_a_static_program_are_named_by_what_they_choose() {
    if !has("gcc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("a.c"), PROGRAM).unwrap();
    shell(folder, "gcc -O1 -fno-builtin -static -o a a.c");
    let relocations = shell(folder, "readelf -rW a");
    let chosen = relocations.matches("R_X86_64_IRELATIVE").count();
    let table = table_of(&folder.join("a"));
    let stubs = table.iter().filter(|(_, _, name)| name.ends_with("@plt"));
    assert_eq!(stubs.count(), chosen, "{relocations}");
    let stub = table.address_of("strlen@plt").expect("no stub of strlen").0;
    let calls = shell(folder, "objdump -d a | grep -A20 '<main>:'");
    assert!(
        calls.contains(&format!("call   {stub:x} ")),
        "{stub:x}: {calls}"
    );
}

/// Made as the GDB manual describes, "Debugging information in a special section".
const MINI: &str = "\
nm -D a --format=posix --defined-only | awk '{print $1}' | sort > dynamic
nm a --format=posix --defined-only | awk '{if ($2 == \"T\" || $2 == \"t\" || $2 == \"D\") print $1}' \\
    | sort > functions
comm -13 dynamic functions > kept
objcopy --only-keep-debug a a.debug
objcopy -S --remove-section .gdb_index --remove-section .comment --keep-symbols=kept a.debug mini
strip --strip-all -R .comment a
xz mini
objcopy --add-section .gnu_debugdata=mini.xz a
";

#[test]
fn minidebuginfo_names_what_was_stripped() {
    if !has("gcc") || !has("xz") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("a.c"), PROGRAM).unwrap();
    shell(folder, "gcc -g -O1 -o a a.c && cp a whole");
    shell(folder, MINI);
    let whole = table_of(&folder.join("whole"));
    let mini = table_of(&folder.join("a"));
    for name in ["main", "deep", "_start"] {
        assert!(whole.address_of(name).is_some());
        assert_eq!(mini.address_of(name), whole.address_of(name), "{name}");
    }
    shell(folder, "objcopy --remove-section .gnu_debugdata a bare");
    assert_eq!(table_of(&folder.join("bare")).address_of("deep"), None);
}

#[test]
fn objects_that_are_code_are_named() {
    if !has("ghc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let source = "main = print (length (show (foldr (:) [] [1 .. 1000 :: Integer])))\n";
    std::fs::write(folder.join("a.hs"), source).unwrap();
    shell(folder, "ghc -O1 -o a a.hs");
    let table = table_of(&folder.join("a"));
    let mut compared = 0;
    for line in shell(folder, "readelf -sW a; nm -n a > /dev/null").lines() {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, address, size, "OBJECT", .., name] = fields[..] else {
            continue;
        };
        if !name.ends_with("_info") || size == "0" {
            continue;
        }
        let address = u64::from_str_radix(address, 16).unwrap();
        assert_eq!(name_at(&table, address), Some(name));
        compared += 1;
    }
    assert!(compared > 100, "{compared} objects");
    assert_eq!(
        demangle("base_GHCziShow_zdwshowSignedInt_info"),
        "base:GHC.Show.$wshowSignedInt_info"
    );
}

#[test]
fn functions_of_the_c_library_have_the_names_that_people_call() {
    let library = PathBuf::from("/lib/x86_64-linux-gnu/libc.so.6");
    let Ok(image) = Image::open(&library) else {
        eprintln!("skipped: there is no {}", library.display());
        return;
    };
    let id = image.build_id().unwrap().to_string();
    let debug = format!("/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]);
    let Ok(debug) = Image::open(Path::new(&debug)) else {
        eprintln!("skipped: there is no {debug}: install libc6-dbg");
        return;
    };
    let table = SymbolTable::from_images(&[&image, &debug]);
    for name in [
        "malloc",
        "puts",
        "write",
        "fopen",
        "qsort",
        "pthread_mutex_lock",
    ] {
        assert!(table.address_of(name).is_some(), "{name}");
    }
    assert!(table.iter().all(|(_, _, name)| !name.contains("@@")));
}

const GO: &str = "\
package main

import (
\t\"fmt\"
\t\"sort\"
\t\"strings\"
)

type shape struct{ w, h int }

func (s shape) area() int { return s.w * s.h }

func double(n int) int { return add(n, n) }

func add(a, b int) int { return a + b }

func most[T int | float64](list []T) T {
\tbest := list[0]
\tfor _, v := range list {
\t\tif v > best {
\t\t\tbest = v
\t\t}
\t}
\treturn best
}

func main() {
\tlist := strings.Fields(\"c a b\")
\tsort.Slice(list, func(i, j int) bool { return list[i] < list[j] })
\tsizes := []int{double(len(list)), shape{len(list), 3}.area()}
\tfmt.Println(list, most(sizes), most([]float64{1, 2}))
}
";

/// Name, file and line of a function.
type Function = (String, String, u32);

fn functions(lines: &[Line]) -> Vec<Function> {
    let each = lines.iter().map(|line| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        // The linker takes a file that the compiler invented for one in the folder.
        let file = text(&line.file).replace("./<autogenerated>", "<autogenerated>");
        (text(&line.function), file, line.line)
    });
    each.collect()
}

#[test]
fn stripped_go_is_named_by_its_own_table_as_by_its_symbols() {
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("skipped: there is no go");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("a.go"), GO).unwrap();
    for flags in ["", "-buildmode=pie"] {
        let build = format!("GO111MODULE=off go build {flags} -o");
        shell(
            folder,
            &format!("{build} whole a.go && {build} bare -ldflags='-s -w' a.go"),
        );
        go_is_named(folder);
    }
}

fn go_is_named(folder: &Path) {
    let open = |name| Arc::new(Image::open(&folder.join(name)).unwrap());
    let (whole, bare) = (open("whole"), open("bare"));
    let table = SymbolTable::from_image(&bare);
    let (mut compared, mut generic) = (0, 0);
    let mut addresses = Vec::new();
    for line in shell(folder, "go tool nm -size whole").lines() {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [address, size, "T" | "t", ref name @ ..] = fields[..] else {
            continue;
        };
        let name = name.join(" ");
        let address = u64::from_str_radix(address, 16).unwrap();
        let size: u64 = size.parse().unwrap();
        // The linker's marks contain no code: runtime.text, runtime.etext.
        if size == 0 || name.starts_with("runtime.text") || name == "runtime.etext" {
            continue;
        }
        addresses.extend((0..size).step_by(7).map(|into| address + into));
        let found = name_at(&table, address + size - 1).unwrap_or("");
        // Go's table omits type arguments and the calling convention.
        let name = name.trim_end_matches(".abi0").to_owned();
        let is_generic = name.contains('[') && found.contains("[...]");
        generic += usize::from(is_generic);
        assert!(is_generic || found == name, "{name} is {found}");
        compared += 1;
    }
    println!("{compared} functions, {generic} of them generic");
    assert!(compared > 1000 && generic > 0, "{compared}, {generic}");

    let store = LineStore::default();
    let theirs = Lines::new(&store, &whole, None, false).expect("no DWARF");
    let ours = Lines::new(&store, &bare, None, false).expect("no table");
    let (mut equal, mut inlined, mut others) = (0, 0, Vec::new());
    for address in &addresses {
        let address = ImageAddress(*address);
        let (theirs, ours) = (
            functions(&theirs.find(address)),
            functions(&ours.find(address)),
        );
        inlined += usize::from(ours.len() > 1);
        match theirs == ours {
            true => equal += 1,
            false => others.push((address, theirs, ours)),
        }
    }
    let all = addresses.len();
    println!("{equal} of {all} addresses are DWARF's, {inlined} inlined");
    let is_generic = |other: &&(_, _, Vec<Function>)| {
        other.2.iter().any(|function| function.0.contains("[...]"))
    };
    let strange: Vec<_> = others.iter().filter(|other| !is_generic(other)).collect();
    // Methods inlined into wrappers that the compiler generated, which DWARF omits; and a few instructions
    // between two statements.
    let names = |functions: &[Function]| functions.iter().map(|it| it.0.clone()).collect();
    for (address, theirs, ours) in &strange {
        let (theirs, ours): (Vec<String>, Vec<String>) = (names(theirs), names(ours));
        assert_eq!(theirs[0], ours[0], "{address:?}");
        let is_wrapper = ours[0].contains(".(*");
        assert!(
            is_wrapper || theirs == ours,
            "{address:?}: {theirs:?}, {ours:?}"
        );
    }
    println!("{} otherwise", strange.len());
    assert!(strange.len() * 1000 < all);
    assert!(
        inlined > 1000 && others.len() * 100 < all,
        "{inlined} inlined, {equal} of {all}"
    );
}
