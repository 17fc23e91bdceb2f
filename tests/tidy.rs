//! Checks in the sources what ARCHITECTURE.md says is absent, and how modules may depend on each other.

mod sources;

use sources::{root, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::Visit;

/// The folders of the crates.
const CRATES: [&str; 6] = ["agent", "format", "linux", "record", "report", ""];
/// Where `unsafe` may be.
const UNSAFE: [&str; 5] = [
    "agent/src/c.rs",
    "agent/src/machine.rs",
    "record/src/sys/",
    "report/src/mapped.rs",
    "src/memory.rs",
];
/// Sorts of guests in `record/src/backends/`. None depends on another, except that QEMU has a gdb stub.
const GUESTS: [&str; 6] = ["agent", "gdb", "kvm", "process", "qemu", "xen"];
/// The most files at the root of each crate's sources, by its folder, including `lib.rs` or `main.rs`. A new
/// file belongs in a subfolder. The program has one file for each subcommand.
const ROOT_FILES_MAX: [(&str, usize); 5] = [
    ("agent", 9),
    ("format", 20),
    ("record", 9),
    ("report", 17),
    ("", 39),
];
/// Length of the longest line of the sources (characters).
const LINE_CHARACTERS_MAX: usize = 120;

/// A module of a crate: the names on the path to it.
type Module = Vec<String>;

/// The module of `file`, in the crate whose sources are in `folder`.
fn module(folder: &Path, file: &Path) -> Module {
    let inside = file.strip_prefix(folder).unwrap().with_extension("");
    let parts = inside.iter().map(|part| part.to_str().unwrap().to_owned());
    let mut parts: Module = parts.collect();
    if parts.last().is_some_and(|last| last == "mod") || parts == ["lib"] || parts == ["main"] {
        parts.pop();
    }
    parts
}

/// Paths to items of the same crate, without those that are only for tests.
#[derive(Default)]
struct Paths {
    /// The current module.
    module: Module,
    found: Vec<Vec<String>>,
    uses_unsafe: bool,
}

impl Paths {
    /// Adds a path as it is written.
    fn take(&mut self, written: &[String]) {
        // Any other path begins with a module declared here, or with another crate, which has no file in this
        // one.
        let mut path = match written.first() {
            Some(first) if first == "crate" => Vec::new(),
            _ => self.module.clone(),
        };
        for part in written {
            match part.as_str() {
                "crate" | "self" => {}
                "super" => drop(path.pop()),
                part => path.push(part.to_owned()),
            }
        }
        self.found.push(path);
    }

    fn take_tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.take_tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.take(&with(&name.ident)),
            syn::UseTree::Rename(name) => self.take(&with(&name.ident)),
            syn::UseTree::Glob(_) => self.take(before),
            syn::UseTree::Group(group) => {
                group
                    .items
                    .iter()
                    .for_each(|tree| self.take_tree(before, tree));
            }
        }
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else {
            return false;
        };
        list.path.is_ident("cfg")
            && list
                .tokens
                .to_string()
                .split([' ', '(', ')', ','])
                .any(|word| word == "test")
    })
}

impl<'s> Visit<'s> for Paths {
    fn visit_item_mod(&mut self, item: &'s syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            self.module.push(item.ident.to_string());
            syn::visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'s syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.take_tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'s syn::Path) {
        let written: Vec<String> = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        if matches!(written[0].as_str(), "crate" | "super") {
            self.take(&written);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_expr_unsafe(&mut self, item: &'s syn::ExprUnsafe) {
        self.uses_unsafe = true;
        syn::visit::visit_expr_unsafe(self, item);
    }

    fn visit_item_impl(&mut self, item: &'s syn::ItemImpl) {
        self.uses_unsafe |= item.unsafety.is_some();
        if !is_for_tests(&item.attrs) {
            syn::visit::visit_item_impl(self, item);
        }
    }

    fn visit_signature(&mut self, signature: &'s syn::Signature) {
        self.uses_unsafe |= signature.unsafety.is_some();
        syn::visit::visit_signature(self, signature);
    }
}

fn read(module: Module, file: &Path) -> Paths {
    let text = std::fs::read_to_string(file).unwrap();
    let parsed =
        syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut paths = Paths {
        module,
        ..Paths::default()
    };
    paths.visit_file(&parsed);
    paths
}

/// Dependencies between modules with the same parent, including everything inside them. By parent and module:
/// the modules that it depends on, and one path that shows it.
type Known = BTreeMap<Module, BTreeMap<String, BTreeMap<String, String>>>;

fn known(folder: &Path) -> Known {
    let files: BTreeMap<Module, PathBuf> = sources(folder)
        .into_iter()
        .map(|file| (module(folder, &file), file))
        .collect();
    let mut known = Known::new();
    for (own, file) in &files {
        if own.last().is_some_and(|last| last == "tests") {
            continue;
        }
        for path in read(own.clone(), file).found {
            // The components after the module's name are those of an item.
            let lengths = (1..=path.len()).rev();
            let Some(other) = lengths
                .map(|length| &path[..length])
                .find(|path| files.contains_key(*path))
            else {
                continue;
            };
            let shared = own
                .iter()
                .zip(other)
                .take_while(|(own, other)| own == other)
                .count();
            if let (Some(from), Some(to)) = (own.get(shared), other.get(shared)) {
                let by = format!("{} uses {}", own.join("::"), path.join("::"));
                let level = known.entry(own[..shared].to_vec()).or_default();
                level
                    .entry(from.clone())
                    .or_default()
                    .entry(to.clone())
                    .or_insert(by);
            }
        }
    }
    known
}

/// A cycle from `start` back to itself.
fn circle<'k>(
    knows: &'k BTreeMap<String, BTreeMap<String, String>>,
    start: &'k str,
) -> Option<Vec<&'k str>> {
    let mut ways = vec![vec![start]];
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop() {
        for (next, by) in knows.get(*way.last()?).into_iter().flatten() {
            let way: Vec<&str> = [&way[..], &[next.as_str()]].concat();
            if next == start {
                let pairs = way.windows(2);
                return Some(pairs.map(|pair| knows[pair[0]][pair[1]].as_str()).collect());
            }
            if seen.insert(by) {
                ways.push(way);
            }
        }
    }
    None
}

#[test]
fn no_modules_of_a_crate_know_each_other_in_a_circle() {
    let mut circles = Vec::new();
    for name in CRATES {
        for (parent, knows) in known(&root().join(name).join("src")) {
            for start in knows.keys() {
                if let Some(circle) = circle(&knows, start) {
                    circles.push(format!(
                        "{name} {}: {}",
                        parent.join("::"),
                        circle.join(", ")
                    ));
                }
            }
        }
    }
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

/// `main.rs` depends on all modules, so a module that depends on it closes a cycle.
#[test]
fn no_module_of_the_program_uses_what_main_defines() {
    let folder = root().join("src");
    let files = sources(&folder);
    let modules: BTreeSet<Module> = files.iter().map(|file| module(&folder, file)).collect();
    let mut uses = Vec::new();
    let mut others = 0;
    for file in &files {
        let own = module(&folder, file);
        if own.is_empty() {
            continue;
        }
        for path in read(own, file).found {
            let is_of_module = (1..=path.len()).any(|length| modules.contains(&path[..length]));
            others += usize::from(is_of_module);
            uses.extend(
                (!is_of_module).then(|| format!("{}: {}", file.display(), path.join("::"))),
            );
        }
    }
    assert!(others > 100 && uses.is_empty(), "{uses:#?}");
}

/// The modules that `file` declares in files of their own, in its order.
fn children(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let items = syn::parse_file(&text).unwrap().items;
    let children = items.into_iter().filter_map(|item| match item {
        syn::Item::Mod(item) if item.content.is_none() && !is_for_tests(&item.attrs) => {
            Some(item.ident.to_string())
        }
        _ => None,
    });
    children.collect()
}

/// The list of modules then shows the direction of the data.
#[test]
fn modules_are_listed_after_those_that_they_use() {
    let mut wrong = Vec::new();
    let mut right = 0;
    for name in CRATES {
        let folder = root().join(name).join("src");
        let known = known(&folder);
        for file in sources(&folder) {
            let children = children(&file);
            let Some(knows) = known.get(&module(&folder, &file)) else {
                continue;
            };
            let place = |name: &str| children.iter().position(|child| child == name);
            for (user, used) in knows {
                for (used, by) in used {
                    let is_right = place(used).unwrap() < place(user).unwrap();
                    right += usize::from(is_right);
                    if !is_right {
                        wrong.push(format!("{}: {user} before {used} ({by})", file.display()));
                    }
                }
            }
        }
    }
    assert!(
        right > 500 && wrong.is_empty(),
        "{right} are in order, not these:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_root_of_a_crate_is_a_short_list_of_rooms() {
    for (name, most) in ROOT_FILES_MAX {
        let folder = root().join(name).join("src");
        let files = sources(&folder).into_iter();
        let at_root = files.filter(|file| file.parent() == Some(&folder)).count();
        assert!(
            (1..=most).contains(&at_root),
            "{at_root} files in {}, of {most}",
            folder.display()
        );
    }
}

/// A module with a folder can be written in two ways; only one of them is used here.
#[test]
fn a_module_with_a_folder_is_the_file_beside_it() {
    let files = CRATES.map(|name| sources(&root().join(name).join("src")));
    let other = files
        .iter()
        .flatten()
        .filter(|file| file.ends_with("mod.rs"));
    assert_eq!(other.collect::<Vec<_>>(), Vec::<&PathBuf>::new());
}

#[test]
fn no_guest_knows_another_but_qemu_its_stub() {
    let known = known(&root().join("record/src"));
    let backends = &known[&vec!["backends".to_owned()]];
    let mut found = Vec::new();
    for guest in GUESTS {
        for other in GUESTS
            .into_iter()
            .filter(|other| (guest, *other) != ("qemu", "gdb"))
        {
            found.extend(backends.get(guest).and_then(|knows| knows.get(other)));
        }
    }
    assert!(
        backends["qemu"].contains_key("gdb"),
        "guests have other names now"
    );
    assert!(found.is_empty(), "{found:?}");
}

/// Code that sorts of guests share is in `guest`, and the interface to the recorder is in `source`.
#[test]
fn nothing_else_of_the_recorder_knows_a_kind_of_guest() {
    let known = known(&root().join("record/src"));
    let rooms = &known[&Module::new()];
    assert!(
        rooms["backends"].contains_key("guest"),
        "rooms have other names now"
    );
    let found = rooms.values().filter_map(|knows| knows.get("backends"));
    assert_eq!(found.collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn the_program_knows_kinds_of_guests_by_one_table() {
    let mut openers = Vec::new();
    for file in sources(&root().join("src")) {
        let paths = read(Module::new(), &file).found;
        let is_of_guest = |path: &Vec<String>| {
            path[0] == "uniprof_record"
                && path.get(1).is_some_and(|kind| GUESTS.contains(&&kind[..]))
        };
        let text = std::fs::read_to_string(&file).unwrap();
        let by_path = GUESTS.map(|guest| text.contains(&format!("uniprof_record::{guest}::")));
        if paths.iter().any(is_of_guest) || by_path.contains(&true) {
            openers.push(file.strip_prefix(root()).unwrap().to_owned());
        }
    }
    assert_eq!(openers, [Path::new("src/target.rs")]);
}

#[test]
fn unsafe_is_where_architecture_says() {
    let allowed = UNSAFE.map(|path| root().join(path));
    let mut wrong = Vec::new();
    let mut right = 0;
    for name in CRATES {
        for file in sources(&root().join(name).join("src")) {
            let is_allowed = allowed
                .iter()
                .any(|path| file.to_str().unwrap().starts_with(path.to_str().unwrap()));
            let uses = read(Module::new(), &file).uses_unsafe;
            right += usize::from(uses && is_allowed);
            wrong.extend((uses && !is_allowed).then_some(file));
        }
    }
    assert!(
        right > 5 && wrong.is_empty(),
        "{right} files may; these may not: {wrong:?}"
    );
}

/// No other package then passes an address to Xen or the kernel.
#[test]
fn the_system_interface_is_the_recorders_own() {
    let text = std::fs::read_to_string(root().join("record/src/lib.rs")).unwrap();
    let items = syn::parse_file(&text).unwrap().items;
    let is_sys = |item: &syn::Item| {
        matches!(item, syn::Item::Mod(module)
        if module.ident == "sys" && !matches!(module.vis, syn::Visibility::Public(_)))
    };
    assert!(
        items.iter().any(is_sys),
        "sys is public, or has another name"
    );
}

#[test]
fn lines_are_not_too_long_to_be_read() {
    let mut long = Vec::new();
    for folder in [
        "src", "tests", "agent", "format", "linux", "record", "report", "fuzz",
    ] {
        for file in sources(&root().join(folder)) {
            let text = std::fs::read_to_string(&file).unwrap();
            let lines = text.lines().enumerate();
            let lines = lines.filter(|(_, line)| line.chars().count() > LINE_CHARACTERS_MAX);
            long.extend(lines.map(|(index, _)| format!("{}:{}", file.display(), index + 1)));
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

/// Facts about processors, as they appear in code. They may be in one folder only.
const OF_PROCESSORS: [(&str, &str); 6] = [
    ("0xe8", "the opcode of CALL"),
    ("0xd63f_0000", "the opcode of BLR"),
    (
        "1 << 63",
        "the start of the upper half of the address space",
    ),
    (">> 55 & 1", "the bit of an address that selects its half"),
    ("u64::MAX << 48", "the bits of a signature"),
    ("u64::MAX - 0xfff", "the last page"),
];

#[test]
fn facts_about_processors_have_one_home() {
    let home = root().join("format/src/cpu");
    let (mut stated, mut wrong) = (0, Vec::new());
    for name in CRATES.into_iter().filter(|name| *name != "agent") {
        for file in sources(&root().join(name).join("src")) {
            let text = std::fs::read_to_string(&file).unwrap();
            let product = text.split("#[cfg(test)]").next().unwrap();
            let is_home = file.with_extension("").starts_with(&home);
            for (fact, what) in OF_PROCESSORS
                .iter()
                .filter(|(fact, _)| product.contains(fact))
            {
                stated += usize::from(is_home);
                if !is_home && !file.ends_with("tests.rs") {
                    wrong.push(format!("{}: {fact}, {what}", file.display()));
                }
            }
        }
    }
    assert!(
        stated >= 4 && wrong.is_empty(),
        "{stated} at home; {wrong:#?}"
    );
}

/// Matches that have `true` or `false` as a whole pattern.
#[derive(Default)]
struct BoolMatches(usize);

impl<'s> Visit<'s> for BoolMatches {
    fn visit_expr_match(&mut self, item: &'s syn::ExprMatch) {
        let is_bool = |arm: &syn::Arm| {
            let syn::Pat::Lit(literal) = &arm.pat else {
                return false;
            };
            matches!(literal.lit, syn::Lit::Bool(_))
        };
        self.0 += usize::from(item.arms.iter().any(is_bool));
        syn::visit::visit_expr_match(self, item);
    }
}

#[test]
fn a_choice_by_a_bool_is_an_if() {
    let count = |text: &str| {
        let mut found = BoolMatches::default();
        found.visit_file(&syn::parse_file(text).unwrap());
        found.0
    };
    assert_eq!(
        count("fn f(a: bool) { match a { true => {} false => {} } }"),
        1
    );
    for name in CRATES {
        for file in sources(&root().join(name).join("src")) {
            let found = count(&std::fs::read_to_string(&file).unwrap());
            assert_eq!(found, 0, "{}", file.display());
        }
    }
}

/// `Result`s whose error is a text, and where they are.
#[derive(Default)]
struct TextErrors(usize);

impl<'s> Visit<'s> for TextErrors {
    fn visit_item_mod(&mut self, item: &'s syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_path_segment(&mut self, part: &'s syn::PathSegment) {
        if let syn::PathArguments::AngleBracketed(arguments) = &part.arguments
            && part.ident == "Result"
            && let Some(syn::GenericArgument::Type(syn::Type::Path(error))) = arguments.args.get(1)
        {
            self.0 += usize::from(
                error
                    .path
                    .segments
                    .last()
                    .is_some_and(|last| last.ident == "String"),
            );
        }
        syn::visit::visit_path_segment(self, part);
    }
}

/// Texts can't be told apart, and they lose their cause.
#[test]
fn errors_are_types_and_no_texts() {
    let count = |text: &str| {
        let mut found = TextErrors::default();
        found.visit_file(&syn::parse_file(text).unwrap());
        found.0
    };
    let some = "struct A(Option<Result<u8, String>>);
        fn f() -> std::result::Result<(u8, String), std::string::String> { Ok::<u8, String>(1) }
        fn g() -> io::Result<String> { Ok(String::new()) }
        #[cfg(test)] mod tests { fn h() -> Result<u8, String> {} }";
    assert_eq!(count(some), 2);
    for name in CRATES {
        for file in sources(&root().join(name).join("src")) {
            let found = count(&std::fs::read_to_string(&file).unwrap());
            assert_eq!(found, 0, "{}", file.display());
        }
    }
}

/// Participles that were names of types: a stranger can't know of what.
const PARTICIPLES: [&str; 18] = [
    "Asked",
    "Bundled",
    "Carried",
    "Collected",
    "Drawn",
    "Folded",
    "Listed",
    "Logged",
    "Moment",
    "Reduced",
    "Returned",
    "Ruled",
    "Scripted",
    "Surveyed",
    "Timed",
    "Told",
    "Wanted",
    "Written",
];

/// Names of types.
#[derive(Default)]
struct TypeNames(Vec<String>);

impl<'s> Visit<'s> for TypeNames {
    fn visit_item(&mut self, item: &'s syn::Item) {
        let name = match item {
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            _ => None,
        };
        self.0.extend(name.map(ToString::to_string));
        syn::visit::visit_item(self, item);
    }
}

#[test]
fn the_name_of_a_type_is_a_noun() {
    let names = |text: &str| {
        let mut found = TypeNames::default();
        found.visit_file(&syn::parse_file(text).unwrap());
        found.0
    };
    assert_eq!(
        names("mod m { pub struct Told(u8); trait A {} }"),
        ["Told", "A"]
    );
    let (mut all, mut wrong) = (0, Vec::new());
    for file in CRATES
        .iter()
        .flat_map(|name| sources(&root().join(name).join("src")))
    {
        let found = names(&std::fs::read_to_string(&file).unwrap());
        all += found.len();
        let participles = found
            .iter()
            .filter(|name| PARTICIPLES.contains(&name.as_str()));
        wrong.extend(participles.map(|name| format!("{}: {name}", file.display())));
    }
    assert!(all > 300 && wrong.is_empty(), "of {all}: {wrong:#?}");
}

/// What a file omits when it destructures records, and what it copies.
#[derive(Default)]
struct Shortcuts(Vec<String>);

impl<'s> Visit<'s> for Shortcuts {
    fn visit_expr_struct(&mut self, item: &'s syn::ExprStruct) {
        self.0.extend(item.rest.as_ref().map(|_| "..".to_owned()));
        syn::visit::visit_expr_struct(self, item);
    }

    fn visit_pat_rest(&mut self, _: &'s syn::PatRest) {
        self.0.push("..".to_owned());
    }

    fn visit_expr_method_call(&mut self, item: &'s syn::ExprMethodCall) {
        let name = item.method.to_string();
        let copies = ["clone", "cloned", "into", "to_owned", "to_string"];
        self.0.extend(copies.contains(&&name[..]).then_some(name));
        syn::visit::visit_expr_method_call(self, item);
    }
}

/// Someone who adds a field or a text to the format then has to decide what a redacted recording keeps of it.
#[test]
fn redaction_takes_records_apart_whole_and_copies_no_text() {
    let file = root().join("report/src/bundle/redact/records.rs");
    let text = std::fs::read_to_string(file).unwrap();
    let shortcuts = |text: &str| {
        let mut found = Shortcuts::default();
        found.visit_file(&syn::parse_file(text).unwrap());
        found.0
    };
    let taken = "fn f(a: A) -> A { let A { b, .. } = a; A { b: b.clone(), ..a } }";
    assert_eq!(shortcuts(taken), ["..", "..", "clone"]);
    assert!(
        text.contains("texts.keep("),
        "redaction has another file now"
    );
    assert_eq!(shortcuts(&text), Vec::<String>::new());
}

/// The dependencies in a manifest, named as in sources, and the folders of the sources that use them.
fn dependencies(manifest: &str) -> Vec<(String, &'static [&'static str])> {
    let mut found = Vec::new();
    let mut folders: Option<&'static [&'static str]> = None;
    for line in manifest.lines() {
        if line.starts_with('[') {
            folders = match line.trim_matches(['[', ']']) {
                "dependencies" => Some(&["src"]),
                "dev-dependencies" => Some(&["src", "tests", "benches", "examples"]),
                _ => None,
            };
        } else if let (Some(folders), Some((name, _))) = (folders, line.split_once(['.', ' ', '=']))
        {
            found.push((name.replace('-', "_"), folders));
        }
    }
    found.retain(|(name, _)| !name.is_empty() && !name.starts_with('#'));
    found
}

#[test]
fn every_dependency_is_used() {
    let mut unused = Vec::new();
    let mut used = 0;
    for folder in CRATES.into_iter().chain(["fuzz/targets"]) {
        let folder = root().join(folder);
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        for (name, inside) in dependencies(&manifest) {
            let files = inside
                .iter()
                .flat_map(|inside| sources(&folder.join(inside)));
            let is_used = files.into_iter().any(|file| {
                let text = std::fs::read_to_string(file).unwrap();
                [
                    format!("{name}::"),
                    format!("use {name};"),
                    format!("use {name} as "),
                ]
                .iter()
                .any(|by| text.contains(by))
            });
            used += usize::from(is_used);
            unused.extend((!is_used).then(|| format!("{}: {name}", folder.display())));
        }
    }
    assert!(
        used > 40 && unused.is_empty(),
        "{used} are used, not these: {unused:#?}"
    );
}
