//! Raw stack bytes combined with the recorded chain of frame pointers. By default, bytes of the whole stack
//! are recorded. With `--frame-pointers`, a few bytes show the caller of a function without a frame: with
//! `-fno-omit-frame-pointer`, gcc still gives no frame to a leaf function that doesn't use the stack, and
//! libc has no frames. Where the bytes end, the chain continues.

mod compiled;

use compiled::{Counted, folded, nearly_all, record};
use std::path::{Path, PathBuf};

/// Calls exactly as deep as they look: nothing is inlined, and no call is a jump.
const SOURCE: &str = r#"
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#define PLAIN __attribute__((noinline, noclone))
static volatile uint64_t sink;
PLAIN uint64_t leaf(uint64_t n) { for (int i = 0; i < 2000; i++) n ^= n << 13, n ^= n >> 7; return n; }
PLAIN uint64_t middle(uint64_t n) { return leaf(n) + 1; }
PLAIN uint64_t outer(uint64_t n) { return middle(n) + 2; }
PLAIN uint64_t down(uint64_t n) {
    volatile char room[512];
    room[n] = n;
    return (n ? down(n - 1) : leaf(7)) + room[n];
}
PLAIN uint64_t ask(int fd, char *into) { return pread(fd, into, 1 << 20, 0) + 1; }
PLAIN uint64_t asks(int fd, char *into) { return ask(fd, into) + 2; }
int main(int count, char **words) {
    char *into = malloc(1 << 20);
    for (;;)
        sink += count > 2 ? down(60) : count > 1 ? asks(0, into) : outer(sink);
}
"#;

fn build(folder: &Path) -> Option<PathBuf> {
    compiled::build(folder, SOURCE, "-fno-omit-frame-pointer")
}

/// Records the program with `flags`. Returns stacks, outermost function first, with their counts.
fn recorded(folder: &Path, flags: &[&str], program: &Path, words: &[&str]) -> Counted {
    record(folder, flags, program, words);
    folded(&folder.join("run.uprof"), &[])
}

#[test]
fn the_caller_of_a_leaf_by_perf_events() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(folder.path()) else {
        return;
    };
    let stacks = recorded(folder.path(), &["--frame-pointers"], &program, &[]);
    nearly_all(&stacks, "leaf", "main;outer;middle;leaf");
}

/// There are no unwind rules, as for assembly and JIT code. The calls on both sides of the missing caller
/// show it.
#[test]
fn the_caller_of_a_leaf_without_rules() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        "-fno-omit-frame-pointer -momit-leaf-frame-pointer -fno-asynchronous-unwind-tables";
    let Some(program) = compiled::build(folder.path(), SOURCE, options) else {
        return;
    };
    for flags in [&[][..], &["--frame-pointers"]] {
        let stacks = recorded(folder.path(), flags, &program, &[]);
        nearly_all(&stacks, "leaf", "main;outer;middle;leaf");
    }
}

/// Without frame pointers and without an option, bytes of the whole stack are recorded.
#[test]
fn stacks_are_whole_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled::build(folder.path(), SOURCE, "-fomit-frame-pointer") else {
        return;
    };
    let words = ["down", "down"];
    let whole = format!("main;{}leaf", "down;".repeat(61));
    let by_ptrace = ["--ptrace", "--freeze-budget=50ms"];
    for flags in [&[][..], &by_ptrace, &["--per-thread"]] {
        let stacks = recorded(folder.path(), flags, &program, &words);
        nearly_all(&stacks, "down;leaf", &whole);
    }
    let file = folder.path().join("run.uprof");
    let said = kit::uniprof().args(["info"]).arg(&file).output();
    let said = String::from_utf8_lossy(&said.unwrap().stdout).into_owned();
    assert!(said.contains("up to 64 KiB of each sample"), "{said}");
    // The rules are in the recording, so it needs nothing of the program.
    std::fs::remove_file(&program).unwrap();
    nearly_all(&folded(&file, &["--no-search"]), "down;leaf", &whole);
    // With `--frame-pointers`, stacks of this program end at once.
    let Some(program) = compiled::build(folder.path(), SOURCE, "-fomit-frame-pointer") else {
        return;
    };
    let stacks = recorded(folder.path(), &["--frame-pointers"], &program, &words);
    let are_cut = stacks.iter().all(|(stack, _)| !stack.ends_with(&whole));
    assert!(are_cut, "{stacks:#?}");
}

#[test]
fn the_caller_of_a_leaf_by_ptrace() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(folder.path()) else {
        return;
    };
    let flags = ["--ptrace", "--frame-pointers"];
    let stacks = recorded(folder.path(), &flags, &program, &[]);
    nearly_all(&stacks, "leaf", "main;outer;middle;leaf");
}

/// libc's system call wrapper has no frame, and the samples are in the kernel.
#[test]
fn the_caller_of_a_system_call() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(folder.path()) else {
        return;
    };
    let stacks = recorded(folder.path(), &["--frame-pointers"], &program, &["ask"]);
    nearly_all(&stacks, ";asks;", "main;asks;ask;");
    // With too few stack bytes for anything but the chain, the caller is missing.
    let stacks = recorded(folder.path(), &["--stack=0"], &program, &["ask"]);
    let lacking = stacks
        .iter()
        .any(|(stack, _)| stack.contains("main;asks;") && !stack.contains(";ask;"));
    assert!(lacking, "{stacks:#?}");
}

/// If too few stack bytes were recorded, a report says that callers may be missing.
#[test]
fn a_caller_that_can_not_be_had_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(folder.path()) else {
        return;
    };
    let report = |flags: &[&str]| {
        recorded(folder.path(), flags, &program, &[]);
        let output = kit::uniprof()
            .args(["report", "--top"])
            .arg(folder.path().join("run.uprof"))
            .output()
            .unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let told = "the caller of the innermost function may be missing: ";
    let percent = |report: &str| -> f64 {
        let line = report.lines().find_map(|line| line.strip_prefix(told));
        let share = line.and_then(|line| line.split(['(', '%']).nth(1));
        share.map_or(0.0, |share| share.parse().unwrap())
    };
    let without = report(&["--stack=0"]);
    assert!(percent(&without) > 50.0, "{without}");
    // Some of the loader's code has no call frame information.
    let with = report(&["--frame-pointers"]);
    assert!(percent(&with) < 1.0, "{with}");
}

/// The stack has 32 KiB, of which 8 are recorded.
#[test]
fn the_chain_goes_on_where_the_bytes_end() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(folder.path()) else {
        return;
    };
    let stacks = recorded(folder.path(), &["--stack=8K"], &program, &["down", "down"]);
    let whole = format!("main;{}leaf", "down;".repeat(61));
    nearly_all(&stacks, "down;leaf", &whole);
}

/// Without frame pointers, no stack continues, and report and recorder say what to do.
#[test]
fn stacks_that_end_with_the_bytes_are_told_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled::build(folder.path(), SOURCE, "-fomit-frame-pointer") else {
        return;
    };
    let words = ["down", "down"];
    let said = record(folder.path(), &["--stack=8K"], &program, &words);
    let told =
        "% of the stacks end where the recorded stack bytes do: record again with --stack=64K";
    assert!(said.contains(told), "{said}");
    let report = kit::uniprof()
        .args(["report", "--top"])
        .arg(folder.path().join("run.uprof"))
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&report.stderr).into_owned();
    assert!(report.contains(told), "{report}");
    // All bytes of the stack are enough.
    let said = record(folder.path(), &["--stack"], &program, &words);
    assert!(!said.contains("of the stacks end where"), "{said}");
    let whole = format!("main;{}leaf", "down;".repeat(61));
    nearly_all(
        &folded(&folder.path().join("run.uprof"), &[]),
        "down;leaf",
        &whole,
    );
}

/// The bytes of a default recording are memory of the program. A redacted bundle omits them, but has the same
/// stacks.
#[test]
fn redaction_takes_the_bytes_out_and_keeps_the_callers() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(folder.path()) else {
        return;
    };
    let stacks = recorded(folder.path(), &[], &program, &[]);
    let redacted = folder.path().join("redacted.uprof");
    let done = kit::uniprof()
        .args(["bundle", "--redact", "-o"])
        .args([&redacted, &folder.path().join("run.uprof")])
        .output()
        .unwrap();
    assert!(
        redacted.exists(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let dump = |file: &Path| {
        let dump = kit::uniprof().arg("dump").arg(file).output();
        String::from_utf8(dump.unwrap().stdout).unwrap()
    };
    let samples = |text: &str| text.matches("\nsample ").count();
    let (before, after) = (dump(&folder.path().join("run.uprof")), dump(&redacted));
    let without = |text: &str| text.matches(" regs=- stack=-").count();
    assert!(samples(&before) > 20 && without(&before) < samples(&before) / 10);
    assert_eq!(
        (samples(&after), without(&after)),
        (samples(&before), samples(&before))
    );
    assert_eq!(folded(&redacted, &[]), stacks);
}

/// `holding` uses the frame pointer for data: where that points, there is what looks like a record with a return
/// address of `elsewhere`. The rules end before, with the bytes.
#[cfg(target_arch = "x86_64")]
const HOLDING: &str = r#"
#include <alloca.h>
#include <stdint.h>
#define PLAIN __attribute__((noinline, noclone))
static volatile uint64_t sink;
static void *inside;
PLAIN void mark(void) { inside = __builtin_return_address(0); }
PLAIN int elsewhere(void) { mark(); return sink++ & 1; }
PLAIN uint64_t leaf(uint64_t n) { for (int i = 0; i < 20000; i++) n ^= n << 13, n ^= n >> 7; return n; }
PLAIN uint64_t wide(void **from) {
    volatile char *room = alloca(32 << 10);
    room[0] = 1;
    return leaf((uint64_t)from) + room[0];
}
PLAIN uint64_t holding(void) {
    void *record[] = { 0, inside, 0, 0 };
    register void **held __asm__("rbp") = record;
    __asm__ volatile("" : "+r"(held));
    uint64_t n = wide(held);
    __asm__ volatile("" : "+r"(held));
    return n + (uint64_t)held[0];
}
PLAIN uint64_t outer(void) { return holding() + 1; }
int main(void) {
    for (;;)
        sink += elsewhere() + outer();
}
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn a_register_with_data_leads_to_no_caller() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled::build(folder.path(), HOLDING, "-fomit-frame-pointer") else {
        return;
    };
    for flags in [&["--stack=8K"][..], &["--frame-pointers"]] {
        let stacks = recorded(folder.path(), flags, &program, &[]);
        nearly_all(&stacks, "leaf", "holding;wide;leaf");
        // Before its caller's frame is as large, a stack has all its callers.
        let is_true = |stack: &str| !stack.contains(";holding") || stack.contains(";outer;holding");
        let invented = stacks.iter().any(|(stack, _)| !is_true(stack));
        assert!(!invented, "{stacks:#?}");
        let report = kit::uniprof()
            .args(["report", "--top"])
            .arg(folder.path().join("run.uprof"))
            .output()
            .unwrap();
        let report = String::from_utf8_lossy(&[report.stdout, report.stderr].concat()).into_owned();
        assert!(
            report.contains("beyond the recorded stack bytes"),
            "{report}"
        );
    }
}

/// The system call that ends a signal comes back behind the last instruction of its function, where no rule is.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_signals_return_has_its_callers() {
    const SOURCE: &str = r#"
#include <signal.h>
static void handle(int number) { (void)number; }
__attribute__((noinline, noclone)) int storm(void) { return raise(SIGUSR1) + 1; }
int main(void) {
    signal(SIGUSR1, handle);
    for (int n = 0;;)
        n += storm();
}
"#;
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled::build(folder.path(), SOURCE, "-fomit-frame-pointer") else {
        return;
    };
    let stacks = recorded(folder.path(), &[], &program, &[]);
    nearly_all(&stacks, "_sigreturn", "main;storm;");
}

/// Calls through trampolines that look like those of `python3 -X perf`, and are listed as it lists them.
#[cfg(target_arch = "x86_64")]
const TRAMPOLINES: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#define PLAIN __attribute__((noinline, noclone))
typedef unsigned long (*evaluate)(unsigned long, void *, int);
typedef unsigned long (*trampoline)(unsigned long, void *, int, evaluate);
static const unsigned char code[] = { 0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3 };
static trampoline made[2];
PLAIN unsigned long leaf(unsigned long n) { for (int i = 0; i < 20000; i++) n ^= n << 13, n ^= n >> 7; return n; }
PLAIN unsigned long inner(unsigned long n, void *frame, int flag) { return leaf(n) + flag; }
PLAIN unsigned long outer(unsigned long n, void *frame, int flag) { return made[1](n, frame, flag, inner) + 1; }
int main(void) {
    unsigned char *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w");
    for (int i = 0; i < 2; i++) {
        unsigned char *at = page + i * sizeof code;
        memcpy(at, code, sizeof code);
        made[i] = (trampoline)at;
        fprintf(map, "%lx %zx py::%s:/made.py\n", (unsigned long)at, sizeof code, i ? "inner" : "outer");
    }
    fclose(map);
    for (unsigned long n = 7;;)
        n = made[0](n, page, 1, outer);
}
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn callers_of_pythons_trampolines() {
    let folder = tempfile::tempdir().unwrap();
    let source = ["#include <unistd.h>\n", TRAMPOLINES].concat();
    let Some(program) = compiled::build(folder.path(), &source, "-fomit-frame-pointer") else {
        return;
    };
    let stacks = recorded(folder.path(), &[], &program, &[]);
    for map in std::fs::read_dir("/tmp").unwrap().flatten() {
        let text = || std::fs::read_to_string(map.path()).unwrap_or_default();
        let name = map.file_name();
        if name.to_string_lossy().starts_with("perf-") && text().contains(" py::outer:/made.py") {
            std::fs::remove_file(map.path()).unwrap();
        }
    }
    let whole = "main;py::outer:/made.py;outer;py::inner:/made.py;inner;leaf";
    nearly_all(&stacks, "leaf", whole);
}

/// libc's `tfind` keeps no record of frame pointers, so that a chain through it lacks its caller.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_chain_ends_where_a_library_keeps_no_record() {
    const SOURCE: &str = r#"
#include <search.h>
#define PLAIN __attribute__((noinline, noclone))
static unsigned long sink;
PLAIN unsigned long mix(unsigned long n) { for (int i = 0; i < 20000; i++) n ^= n << 13, n ^= n >> 7; return n; }
PLAIN int compare(const void *a, const void *b) { sink += mix((unsigned long)a); return (a > b) - (a < b); }
PLAIN int lookup(void **root) { return tfind(&sink, root, compare) != 0; }
PLAIN int outer(void **root) { return lookup(root) + 1; }
int main(void) {
    void *root = 0;
    tsearch(&root, &root, compare);
    for (;;)
        sink += outer(&root);
}
"#;
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled::build(folder.path(), SOURCE, "-fno-omit-frame-pointer") else {
        return;
    };
    let whole = recorded(folder.path(), &[], &program, &[]);
    nearly_all(&whole, "mix", "main;outer;lookup;tfind;compare;mix");
    let file = folder.path().join("run.uprof");
    let bundle = folder.path().join("bundle.uprof");
    for flags in [&["--stack=0"][..], &["--frame-pointers"]] {
        let stacks = recorded(folder.path(), flags, &program, &[]);
        nearly_all(&stacks, "mix", "tfind;");
        let is_wrong = |stack: &str| stack.contains(";tfind") && !stack.contains(";lookup;tfind");
        let wrong = stacks.iter().any(|(stack, _)| is_wrong(stack));
        assert!(!wrong, "{stacks:#?}");
        let command = kit::uniprof()
            .args(["bundle", "--redact", "-o"])
            .args([&bundle, &file])
            .status();
        assert!(command.unwrap().code().unwrap() < 2);
        assert_eq!(folded(&bundle, &["--no-search"]), stacks);
    }
}
