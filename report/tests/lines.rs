//! Lines and inlined functions of real programs, in every form in which compilers leave them: in
//! the image, compressed, split into .dwo files, packed into a .dwp, split off by objcopy.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use uniprof_report::images::{Image, ImageAddress};
use uniprof_report::symbols::{Line, LineStore, Lines, SymbolTable};

const SOURCE: &str = "\
static inline __attribute__((always_inline)) int inner(int x)
{
    return x * *(volatile int *)&x;
}
static inline __attribute__((always_inline)) int middle(int x)
{
    return inner(x) + 1;
}
__attribute__((noinline)) int outer(int x)
{
    return middle(x) + 2;
}
int main(int argc, char **argv)
{
    (void)argv;
    return outer(argc);
}
";

fn run(folder: &Path, command: &str) {
    let mut words = command.split(' ');
    let program = words.next().unwrap();
    let output = Command::new(program)
        .args(words)
        .current_dir(folder)
        .output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
    assert!(
        output.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The functions at every address of `outer`, one entry for each distinct answer.
fn lines_of_outer(image: &Path, debug: Option<&Path>) -> Vec<Vec<Line>> {
    let image = Arc::new(Image::open(image).unwrap());
    let debug = debug.map(|path| Arc::new(Image::open(path).unwrap()));
    let files: Vec<&Image> = [Some(&image), debug.as_ref()]
        .into_iter()
        .flatten()
        .map(|image| &**image)
        .collect();
    let table = SymbolTable::from_images(&files);
    let start = table.address_of("outer").expect("no symbol for outer");
    let store = LineStore::default();
    let lines = Lines::new(&store, &image, debug.as_ref(), true).expect("no DWARF");
    let mut found = Vec::new();
    for offset in 0..32 {
        let address = ImageAddress(start.0 + offset);
        if table
            .find(address)
            .is_some_and(|symbol| symbol.name == "outer")
        {
            found.push(lines.find(address));
        }
    }
    found.dedup();
    found
}

fn assert_inlined(found: &[Vec<Line>], form: &str) {
    let names = |lines: &Vec<Line>| -> Vec<(String, u32)> {
        let name = |line: &Line| line.function.clone().unwrap_or_default();
        lines.iter().map(|line| (name(line), line.line)).collect()
    };
    let found: Vec<_> = found.iter().map(names).collect();
    let wanted =
        [("outer", 11), ("middle", 7), ("inner", 3)].map(|(name, line)| (name.to_owned(), line));
    assert!(found.contains(&wanted.to_vec()), "{form}: {found:?}");
}

#[test]
fn lines_are_found_in_every_form_of_dwarf() {
    if Command::new("gcc").arg("--version").output().is_err() {
        eprintln!("skipped: there is no gcc to build programs with");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("a.c"), SOURCE).unwrap();
    let forms = [
        ("dwarf5", "gcc -g -O1 -o dwarf5 a.c"),
        ("dwarf4", "gcc -gdwarf-4 -O1 -o dwarf4 a.c"),
        ("zlib", "gcc -g -gz=zlib -O1 -o zlib a.c"),
        ("split", "gcc -g -gsplit-dwarf -O1 -o split a.c"),
        ("split4", "gcc -gdwarf-4 -gsplit-dwarf -O1 -o split4 a.c"),
    ];
    for (form, command) in forms {
        run(folder, command);
        assert_inlined(&lines_of_outer(&folder.join(form), None), form);
    }
    run(folder, "objcopy --only-keep-debug dwarf5 dwarf5.debug");
    run(folder, "objcopy --strip-debug dwarf5 bare");
    let found = lines_of_outer(&folder.join("bare"), Some(&folder.join("dwarf5.debug")));
    assert_inlined(&found, "split off");
}

#[test]
fn a_package_serves_where_the_split_files_are_gone() {
    if Command::new("dwp").arg("--version").output().is_err() {
        eprintln!("skipped: there is no dwp (binutils) to pack split DWARF with");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("a.c"), SOURCE).unwrap();
    run(folder, "gcc -gdwarf-4 -gsplit-dwarf -O1 -o app a.c");
    run(folder, "dwp -e app -o app.dwp");
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry
            .path()
            .extension()
            .is_some_and(|ending| ending == "dwo")
        {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    assert_inlined(&lines_of_outer(&folder.join("app"), None), "package");
}
