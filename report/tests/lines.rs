//! Lines and inlined functions of real programs, in every form that compilers produce: in the image,
//! compressed, split into .dwo files, packed into a .dwp, and split off by objcopy.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use uniprof_report::images::{Image, ImageAddress, Line, LineStore, Lines, SymbolTable, demangle};

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

/// The functions at every address of `outer`, with one entry for each distinct answer.
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
        ("clang", "clang -g -O1 -o clang a.c"),
        ("clang4", "clang -gdwarf-4 -O1 -o clang4 a.c"),
        ("split", "gcc -g -gsplit-dwarf -O1 -o split a.c"),
        ("split4", "gcc -gdwarf-4 -gsplit-dwarf -O1 -o split4 a.c"),
    ];
    for (form, command) in forms {
        if command.starts_with("clang") && Command::new("clang").arg("--version").output().is_err()
        {
            eprintln!("skipped: there is no clang");
            continue;
        }
        run(folder, command);
        assert_inlined(&lines_of_outer(&folder.join(form), None), form);
    }
    run(folder, "objcopy --compress-debug-sections=zstd dwarf5 zstd");
    let sections = Command::new("readelf")
        .args(["-tW", "zstd"])
        .current_dir(folder)
        .output();
    assert!(String::from_utf8_lossy(&sections.unwrap().stdout).contains("ZSTD"));
    assert_inlined(&lines_of_outer(&folder.join("zstd"), None), "zstd");
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

/// The functions in the lines of every byte of the functions called `name…`, demangled.
fn functions_of(image: &Path, name: &str) -> BTreeSet<String> {
    let image = Arc::new(Image::open(image).unwrap());
    let table = SymbolTable::from_image(&image);
    let store = LineStore::default();
    let lines = Lines::new(&store, &image, None, true).expect("no DWARF");
    let mut found = BTreeSet::new();
    for (start, end, symbol) in table.iter().filter(|it| demangle(it.2).starts_with(name)) {
        assert!(start < end, "{symbol}");
        for address in start.0..end.0 {
            let all = lines.find(ImageAddress(address));
            let names = all.iter().filter_map(|line| line.function.as_deref());
            found.extend(names.map(|name| demangle(name).into_owned()));
        }
    }
    found
}

const CPP: &str = "\
#include <algorithm>
#include <vector>
namespace app {
namespace {
inline __attribute__((always_inline)) int hidden(int x) { return x * *(volatile int *)&x; }
}
template <class T> struct Box {
    T v;
    template <class F> inline __attribute__((always_inline)) int apply(F f) const { return f(v); }
};
__attribute__((noinline)) static int outer(std::vector<int> &v)
{
    int k = v[0];
    auto add = [&](int a) { return hidden(a) + k; };
    struct Local {
        static inline __attribute__((always_inline)) int twice(int x)
        {
            volatile int i = x;
            while (i > 3)
                i = i - 3;
            return i;
        }
    };
    Box<int> b{v[1]};
    std::sort(v.begin(), v.end(), [](int a, int b) { return (a ^ 55) < (b ^ 55); });
    return b.apply(add) + Local::twice(k);
}
}
int main(int argc, char **argv)
{
    (void)argv;
    std::vector<int> v(argc + 100, argc);
    return app::outer(v);
}
";

/// gcc writes no linkage name for the function that contains a lambda; clang always does.
#[test]
fn inlined_functions_have_their_whole_path() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("a.cc"), CPP).unwrap();
    let forms = [
        "g++ -g",
        "g++ -gdwarf-4",
        "g++ -g -gsplit-dwarf",
        "clang++ -g",
    ];
    for form in forms {
        let compiler = form.split(' ').next().unwrap();
        if Command::new(compiler).arg("--version").output().is_err() {
            eprintln!("skipped: there is no {compiler}");
            continue;
        }
        run(folder, &format!("{form} -O2 -o app a.cc"));
        let found = functions_of(&folder.join("app"), "");
        let parts = match compiler {
            "g++" => [
                "app::(anonymous namespace)::hidden",
                "app::outer::{lambda#1}::operator()",
                "app::outer::{lambda#2}::operator()",
                "app::outer::Local::twice",
                "app::Box<int>::apply<app::outer(std::vector<int>&)::<lambda(int)> >",
            ],
            _ => [
                "app::(anonymous namespace)::hidden(int)",
                "app::outer(std::vector<int, std::allocator<int> >&)::$_1::operator()(int) const",
                "app::outer(std::vector<int, std::allocator<int> >&)::$_0::operator()(int, int) const",
                "app::outer(std::vector<int, std::allocator<int> >&)::Local::twice(int)",
                "int app::Box<int>::apply<app::outer(std::vector<int, std::allocator<int> >&)::$_1>(\
                 app::outer(std::vector<int, std::allocator<int> >&)::$_1) const",
            ],
        };
        for part in parts {
            assert!(found.contains(part), "{form}: {part} in {found:#?}");
        }
        let is_sort = |name: &String| name.contains("std::sort<");
        assert!(found.iter().any(is_sort), "{form}: {found:#?}");
        let bare = ["operator()", "hidden", "twice"];
        assert!(
            !bare.iter().any(|name| found.contains(*name)),
            "{form}: {found:#?}"
        );
    }
}

#[test]
fn what_dwz_shares_is_found_or_missed_aloud() {
    if Command::new("dwz").arg("--version").output().is_err() {
        eprintln!("skipped: there is no dwz");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("a.c"), SOURCE).unwrap();
    std::fs::write(folder.join("b.c"), format!("{SOURCE}int other;\n")).unwrap();
    run(folder, "gcc -g -O1 -o one a.c");
    run(folder, "gcc -g -O1 -o two b.c");
    run(folder, "dwz -m common.debug one two");
    for name in ["one", "two"] {
        assert_inlined(&lines_of_outer(&folder.join(name), None), name);
    }
    let missing = |path: &Path| {
        let image = Arc::new(Image::open(path).unwrap());
        let store = LineStore::default();
        let lines = Lines::new(&store, &image, None, true).expect("no DWARF");
        lines.missing()
    };
    assert_eq!(missing(&folder.join("one")), [""; 0]);
    std::fs::rename(folder.join("common.debug"), folder.join("gone")).unwrap();
    let told = missing(&folder.join("one")).concat();
    assert!(
        told.contains("common.debug") && told.contains("isn't here"),
        "{told}"
    );
    // Another file with that name must not be used in its place.
    std::fs::copy(folder.join("two"), folder.join("common.debug")).unwrap();
    assert!(!missing(&folder.join("one")).is_empty());
}

#[test]
fn split_files_that_are_gone_are_told() {
    if Command::new("gcc").arg("--version").output().is_err() {
        eprintln!("skipped: there is no gcc");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("a.c"), SOURCE).unwrap();
    run(folder, "gcc -g -gsplit-dwarf -O1 -o app a.c");
    let bytes = std::fs::read(folder.join("app")).unwrap();
    // The recorder keeps the image open, whatever is at its path.
    let images = [
        Image::open(&folder.join("app")).unwrap(),
        Image::from_bytes("held", bytes).unwrap(),
    ]
    .map(Arc::new);
    let told = |image: &Arc<Image>| {
        let table = SymbolTable::from_image(image);
        let store = LineStore::default();
        let lines = Lines::new(&store, image, None, true).expect("no DWARF");
        let found = lines.find(table.address_of("outer").unwrap());
        (lines.missing().concat(), found[0].function.clone())
    };
    let outer = Some("outer".to_owned());
    for image in &images {
        assert_eq!(told(image), (String::new(), outer.clone()));
    }
    let are_told = || {
        for image in &images {
            let (said, function) = told(image);
            let wanted = "1 of them are missing or of another build, such as app-a.dwo";
            assert!(said.contains(wanted), "{said}");
            assert_eq!(function, None);
        }
    };
    std::fs::write(folder.join("a.c"), SOURCE.replace("middle", "another")).unwrap();
    run(folder, "gcc -g -gsplit-dwarf -O1 -o other a.c");
    run(folder, "mv other-a.dwo app-a.dwo");
    are_told();
    run(folder, "rm app-a.dwo");
    are_told();
}

/// GNU ld leaves what it drops at address 0, where a small program has other functions within its length.
#[test]
fn functions_that_the_linker_dropped_are_nowhere() {
    if Command::new("gcc").arg("--version").output().is_err() {
        eprintln!("skipped: there is no gcc");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let many = "    haunt();\n".repeat(4096);
    let dropped = format!(
        "volatile int x;\n\
         static inline __attribute__((always_inline)) void haunt(void) {{ x = x * 3; }}\n\
         void ghost(void)\n{{\n{many}}}\n"
    );
    std::fs::write(folder.join("a.c"), SOURCE).unwrap();
    std::fs::write(folder.join("b.c"), dropped).unwrap();
    run(
        folder,
        "gcc -g -O1 -ffunction-sections -Wl,--gc-sections -o app a.c b.c",
    );
    let found = functions_of(&folder.join("app"), "");
    assert!(found.contains("main"), "{found:?}");
    assert!(
        !found.contains("ghost") && !found.contains("haunt"),
        "{found:?}"
    );
}

#[test]
fn paths_that_line_tables_leave_out_are_told() {
    if Command::new("clang++").arg("--version").output().is_err() {
        eprintln!("skipped: there is no clang++");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("a.cc"), CPP).unwrap();
    let forms = [
        ("-g", false),
        ("-gline-tables-only", true),
        ("-gline-tables-only -fdebug-info-for-profiling", false),
    ];
    for (flags, is_told) in forms {
        run(folder, &format!("clang++ {flags} -O2 -o app a.cc"));
        let image = Arc::new(Image::open(&folder.join("app")).unwrap());
        let table = SymbolTable::from_image(&image);
        let store = LineStore::default();
        let lines = Lines::new(&store, &image, None, true).expect("no DWARF");
        let main = table.address_of("main").unwrap();
        let found: Vec<_> = (0..64)
            .flat_map(|into| lines.find(ImageAddress(main.0 + into)))
            .collect();
        assert!(!found.is_empty());
        let told = lines.missing().concat();
        assert_eq!(
            told.contains("line tables only"),
            is_told,
            "{flags}: {told}"
        );
    }
}
