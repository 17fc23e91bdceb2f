//! All that the program prints of the recordings in corpus/ is as it was, byte for byte: each view, export and
//! comparison that there is ([`kit::commands`]).
//!
//! Short texts are in corpus/golden/, a file each. Of longer ones, other forms of the same, pictures, pages and binary
//! formats there is the checksum, in corpus/golden/checksums.txt. `UNIPROF_BLESS=1` writes both anew.

use kit::commands::{self, Words};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::thread;

/// The longest text that is kept.
const LONGEST_KEPT_BYTES: usize = 6 << 10;
/// The one picture that is kept, to be looked at.
const PICTURE: &str = "calls.flame.svg";
/// Recordings that are compared.
const PAIRS: [(&str, &str); 3] = [
    ("calls", "calls-stack"),
    ("xen", "xen-unpaused"),
    ("trace-graph", "trace-order"),
];

/// Where the recordings are and how the program is run, neither of which may change what it prints.
struct Surroundings {
    folder: PathBuf,
    variables: &'static [(&'static str, &'static str)],
}

/// What the program printed of a recording or two.
struct Printed {
    /// The golden's name: the recording's, the command's, and an ending.
    name: String,
    /// Whether it is another form of what is printed besides.
    is_form: bool,
    output: Output,
}

fn corpus() -> PathBuf {
    kit::corpus("")
}

fn is_trace(file: &Path) -> bool {
    stem(file).starts_with("trace-")
}

fn stem(file: &Path) -> String {
    file.file_stem().unwrap().to_string_lossy().into_owned()
}

/// The files of a folder, in order of name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn recordings() -> Vec<PathBuf> {
    let mut files = files(&corpus());
    files.retain(|file| file.extension().is_some_and(|ending| ending == "uprof"));
    assert!(files.len() >= 14, "the corpus is there: {files:?}");
    files
}

impl Surroundings {
    fn corpus() -> Self {
        Surroundings {
            folder: corpus(),
            variables: &[("RAYON_NUM_THREADS", "2")],
        }
    }

    /// Runs a command, with the images of the corpus for recordings that don't have theirs.
    fn run(&self, words: &Words) -> Output {
        let mut command = kit::uniprof();
        command.args(words).current_dir(&self.folder);
        command.env_remove("COLUMNS");
        command.envs(self.variables.iter().copied());
        if !matches!(words[0].as_str(), "info" | "dump") {
            command.arg("--no-search");
            let needs_images = words.iter().any(|word| {
                word.ends_with(".uprof") && (word.starts_with("calls") || word.starts_with("pack"))
            });
            let images = if needs_images {
                files(&corpus().join("images"))
            } else {
                Vec::new()
            };
            for image in images {
                let name = Path::new("images").join(image.file_name().unwrap());
                command.arg("--elf").arg(name);
            }
        }
        finish(command)
    }

    fn printed(&self, mut words: Words, named: &str, is_form: bool) -> Printed {
        let is_drawn = words.iter().any(|word| word.starts_with("--flame"));
        let ending = if is_drawn { "svg" } else { "txt" };
        let name = format!("{named}.{}.{ending}", short(&words));
        if named == "off-cpu" && matches!(words[0].as_str(), "report" | "export") {
            // One that is there already may not be given twice.
            words.retain(|word| word != "--off-cpu");
            words.push("--off-cpu".to_owned());
        }
        let output = self.run(&words);
        Printed {
            name,
            is_form,
            output,
        }
    }

    /// What it prints of a recording.
    fn all(&self, file: &Path) -> Vec<Printed> {
        let path = file.file_name().unwrap().to_string_lossy();
        let function = self.hottest(&path);
        let named = stem(file);
        let plain = [
            commands::inspections(&path),
            commands::views(&path, &function),
            commands::exports(&path),
        ];
        let plain = plain.concat().into_iter().map(|words| (words, false));
        let forms = commands::forms(&path, &function).into_iter();
        let all = plain.chain(forms.map(|words| (words, true)));
        all.map(|(words, is_form)| self.printed(words, &named, is_form))
            .collect()
    }

    /// The function with the most samples or time.
    fn hottest(&self, path: &str) -> String {
        let mut words = vec!["export", "-f", "csv", path];
        if path == "off-cpu.uprof" {
            words.push("--off-cpu");
        }
        let table = self.run(&words.iter().map(|&word| word.to_owned()).collect());
        let table = kit::text(&table.stdout);
        let row = table.lines().nth(1).unwrap();
        let quoted = row.strip_prefix('"').and_then(|row| row.split_once('"'));
        let named = quoted.or(row.split_once(',')).unwrap();
        named.0.to_owned()
    }

    /// What it prints of all, recordings and pairs.
    fn everything(&self) -> Vec<Printed> {
        let (files, all) = (Mutex::new(recordings()), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().unwrap().get() {
                scope.spawn(|| {
                    loop {
                        let Some(file) = files.lock().unwrap().pop() else {
                            return;
                        };
                        let printed = self.all(&file);
                        all.lock().unwrap().extend(printed);
                    }
                });
            }
        });
        let mut all = all.into_inner().unwrap();
        for (before, after) in PAIRS {
            let [a, b] = [before, after].map(|name| format!("{name}.uprof"));
            let named = format!("{before}.{after}");
            let compared = commands::comparisons(&a, &b).into_iter();
            all.extend(compared.map(|words| self.printed(words, &named, false)));
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

/// A command's name, without recordings and values that a golden's name can't have.
fn short(words: &Words) -> String {
    let mut shown: Vec<&str> = Vec::new();
    for word in words.iter().filter(|word| !word.ends_with(".uprof")) {
        let word = word.split('=').next().unwrap();
        shown.push(word.trim_start_matches('-'));
    }
    let shown = match shown.as_slice() {
        ["report", form @ ..] if !form.is_empty() => form.to_vec(),
        ["export", "f", form @ ..] => form.to_vec(),
        all => all.to_vec(),
    };
    shown.join("-")
}

fn finish(mut command: Command) -> Output {
    let output = command.output().unwrap();
    let said = kit::text(&output.stderr);
    assert!(
        matches!(output.status.code(), Some(0..=2)) && !said.contains("panicked"),
        "{command:?}: {said}"
    );
    output
}

impl Printed {
    /// Whether it is a file of its own.
    fn is_kept(&self) -> bool {
        let bytes = &self.output.stdout;
        let is_text = !bytes.is_empty() && std::str::from_utf8(bytes).is_ok();
        let is_short = bytes.len() <= LONGEST_KEPT_BYTES && !bytes.starts_with(b"<");
        self.name == PICTURE || is_text && is_short && !self.is_form
    }

    /// Its line in the table of checksums, without the name.
    fn summary(&self) -> String {
        let bytes = &self.output.stdout;
        let status = self.output.status.code().unwrap();
        if bytes.is_empty() {
            let said = kit::text(&self.output.stderr);
            return format!(
                "status {status}, nothing but: {}",
                said.trim().replace('\n', " / ")
            );
        }
        let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        format!("status {status}, {} bytes, FNV-1a {sum:016x}", bytes.len())
    }
}

/// The table of checksums: names and what is known of each.
fn checksums() -> BTreeMap<String, String> {
    let table = std::fs::read_to_string(corpus().join("golden/checksums.txt")).unwrap_or_default();
    let lines = table.lines().filter_map(|line| line.split_once(": "));
    lines
        .map(|(name, summary)| (name.to_owned(), summary.to_owned()))
        .collect()
}

/// The names of those that are not the golden ones, and of goldens that nothing prints any more.
fn wrong(all: &[Printed]) -> Vec<String> {
    let golden = corpus().join("golden");
    let mut sums = checksums();
    let mut kept: Vec<String> = files(&golden)
        .iter()
        .map(|file| file.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    kept.retain(|name| name != "checksums.txt");
    let mut wrong = Vec::new();
    for printed in all {
        let known = sums.remove(&printed.name);
        let is_same = if printed.is_kept() {
            kept.retain(|name| *name != printed.name);
            std::fs::read(golden.join(&printed.name)).is_ok_and(|it| it == printed.output.stdout)
        } else {
            known.is_some_and(|known| known == printed.summary())
        };
        if !is_same {
            wrong.push(printed.name.clone());
        }
    }
    let gone = sums.into_keys().chain(kept);
    wrong.extend(gone.map(|name| format!("{name}, which nothing prints")));
    wrong
}

fn bless(all: &[Printed]) {
    let golden = corpus().join("golden");
    let _ = std::fs::remove_dir_all(&golden);
    std::fs::create_dir_all(&golden).unwrap();
    let mut table = String::new();
    for printed in all {
        if printed.is_kept() {
            std::fs::write(golden.join(&printed.name), &printed.output.stdout).unwrap();
        } else {
            table.push_str(&format!("{}: {}\n", printed.name, printed.summary()));
        }
    }
    std::fs::write(golden.join("checksums.txt"), table).unwrap();
}

#[test]
fn outputs_are_the_golden_ones() {
    let all = Surroundings::corpus().everything();
    if std::env::var_os("UNIPROF_BLESS").is_some() {
        bless(&all);
    }
    let wrong = wrong(&all);
    assert!(
        wrong.is_empty(),
        "not as before: {wrong:#?}\nif that is wanted: UNIPROF_BLESS=1 cargo test --test corpus"
    );
}

/// Nor on the number of threads, language, time zone, terminal and home.
#[test]
fn outputs_do_not_depend_on_where_they_are_made() {
    if std::env::var_os("UNIPROF_BLESS").is_some() {
        return;
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let folder = elsewhere.path().to_owned();
    std::os::unix::fs::symlink(corpus().join("images"), folder.join("images")).unwrap();
    for file in recordings() {
        std::fs::copy(&file, folder.join(file.file_name().unwrap())).unwrap();
    }
    let all = Surroundings {
        folder,
        variables: &[
            ("RAYON_NUM_THREADS", "1"),
            ("HOME", "/nonexistent"),
            ("TZ", "Asia/Tokyo"),
            ("LC_ALL", "tr_TR.UTF-8"),
            ("TERM", "dumb"),
            ("COLUMNS", "61"),
        ],
    }
    .everything();
    let wrong = wrong(&all);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What was written of a trace when its import was killed is all there.
#[test]
fn calls_survive_a_cut_file_and_its_recovery() {
    let folder = tempfile::tempdir().unwrap();
    let spans = |dump: Vec<u8>| -> Vec<String> {
        let text = String::from_utf8(dump).unwrap();
        let spans = text.lines().filter(|line| line.starts_with("span "));
        spans.map(str::to_owned).collect()
    };
    for file in recordings().into_iter().filter(|file| is_trace(file)) {
        let whole = std::fs::read(&file).unwrap();
        let (cut, out) = (folder.path().join("cut"), folder.path().join("out"));
        // In the middle of the record of its end.
        std::fs::write(&cut, &whole[..whole.len() - 20]).unwrap();
        let recover = |from: &Path| {
            let mut command = kit::uniprof();
            command.arg("recover").arg(from).arg("-o").arg(&out);
            finish(command)
        };
        assert!(recover(&cut).status.code() < Some(2), "{file:?}");
        let whole =
            Surroundings::corpus().run(&vec!["dump".to_owned(), file.display().to_string()]);
        let expected = spans(whole.stdout);
        assert!(expected.len() >= 7, "{file:?}");
        let mut command = kit::uniprof();
        command.arg("dump").arg(&out);
        assert_eq!(spans(finish(command).stdout), expected, "{file:?}");
    }
}

/// The stacks of a recording, innermost function last, and the samples or microseconds of each.
fn folded(more: &[&str]) -> Vec<(String, u64)> {
    let words = [&["export", "-f", "folded"], more].concat();
    let words: Words = words.iter().map(|&word| word.to_owned()).collect();
    let output = Surroundings::corpus().run(&words);
    let text = kit::text(&output.stdout);
    let stacks = text.lines().map(|line| line.rsplit_once(' ').unwrap());
    stacks
        .map(|(stack, count)| (format!(";{stack};"), count.parse().unwrap()))
        .collect()
}

/// The samples or microseconds of a function.
fn count(stacks: &[(String, u64)], function: &str) -> f64 {
    let function = format!(";{function};");
    let with = stacks.iter().filter(|(stack, _)| stack.contains(&function));
    with.map(|(_, count)| count).sum::<u64>() as f64
}

/// The shares of `calls.c` are known: `often` has twice the steps of `seldom`.
#[test]
fn shares_are_the_known_ones() {
    for name in ["calls.uprof", "calls-stack.uprof"] {
        let stacks = folded(&[name]);
        let (often, seldom) = (count(&stacks, "often"), count(&stacks, "seldom"));
        let share = often / (often + seldom);
        assert!(
            (share - 2.0 / 3.0).abs() < 0.05,
            "{name}: often {often}, seldom {seldom}"
        );
        let is_whole = |stack: &str| stack.matches(";deep").count() >= 20;
        let whole = stacks.iter().filter(|(stack, _)| is_whole(stack));
        let whole = whole.map(|(_, count)| count).sum::<u64>() as f64;
        let deep = count(&stacks, "deep");
        assert!(
            whole > 0.95 * deep && deep > 0.1 * (often + seldom),
            "{name}: the recursion is seen in full {whole} times of {deep}"
        );
    }
}

/// Those of the test unikernel's vCPUs, too, whatever samples it (tests/guests/README.md).
#[test]
fn shares_of_guests_are_the_known_ones() {
    let known = [
        ("xen.uprof", "", [0.5, 0.3, 0.2]),
        ("kvm.uprof", "", [0.5, 0.3, 0.2]),
        ("stub.uprof", "CPU#0", [0.5, 0.3, 0.2]),
        ("agent.uprof", "vCPU 0", [0.5, 0.3, 0.2]),
        ("agent.uprof", "vCPU 1", [0.7, 0.2, 0.1]),
        ("xen-unpaused.uprof", "vCPU 0", [0.5, 0.3, 0.2]),
        ("xen-unpaused.uprof", "vCPU 1", [0.7, 0.2, 0.1]),
        ("xen-unpaused.uprof", "vCPU 2", [0.2, 0.2, 0.6]),
        ("xen-unpaused.uprof", "vCPU 3", [0.1, 0.8, 0.1]),
    ];
    for (name, vcpu, shares) in known {
        let mut stacks = folded(&["--by-thread", name]);
        stacks.retain(|(stack, _)| stack.contains(&format!(";{vcpu}")));
        let all = count(&stacks, "burn");
        for (function, share) in ["alpha", "beta", "gamma"].iter().zip(shares) {
            let found = count(&stacks, function) / all;
            // Three standard deviations of so many samples.
            let spread = 3.0 * (share * (1.0 - share) / all).sqrt();
            assert!(
                (found - share).abs() < spread,
                "{name} {vcpu}: {function} has {found:.3} of {all} samples, not {share}"
            );
        }
    }
}

/// Three threads wait 20 times for 30 ms or a little longer, each in its own way.
#[test]
fn waits_are_as_long_as_known() {
    let stacks = folded(&["--off-cpu", "off-cpu.uprof"]);
    for function in ["sleeps", "takes_over", "reads"] {
        let waited_us = count(&stacks, function);
        assert!(
            (600e3..800e3).contains(&waited_us),
            "{function} waited {waited_us} us"
        );
    }
}
