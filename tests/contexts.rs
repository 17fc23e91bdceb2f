//! Stacks of a program that switches stacks: glibc's contexts, each on its own stack; a hand-written
//! coroutine, like Boost's; and a call on another stack, as OCaml 5 makes to C and kernels make to interrupt
//! handlers, or as Go's runtime makes to itself. And stacks of a signal's handler, to which no call leads.

mod compiled;

use compiled::{build, folded, nearly_all, record};
use std::collections::BTreeSet;
use std::path::Path;

const SOURCE: &str = r#"
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>
#define PLAIN __attribute__((noinline, noclone))
enum { STACK_BYTES = 256 << 10 };
static volatile uint64_t sink;
static ucontext_t back, contexts[2];
PLAIN uint64_t burn(uint64_t n) { for (int i = 0; i < 20000; i++) n ^= n << 13, n ^= n >> 7; return n; }
PLAIN uint64_t inner(uint64_t n) { return burn(n) + 1; }
PLAIN void once(void) { for (;;) { sink += inner(sink) + 1; swapcontext(&contexts[0], &back); } }
PLAIN void twice(void) { for (;;) { sink += burn(sink); sink += burn(sink); swapcontext(&contexts[1], &back); } }
void change(void **from, void *to);
extern char finish[];
__asm__(".text\n.globl change\nchange:\npush %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\npop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".globl finish\nnop\nfinish:\nxor %edi, %edi\nud2\n");
static void *made_at, *turns_at;
PLAIN void made(void) { for (;;) { sink += inner(sink) + 5; change(&made_at, turns_at); } }
uint64_t call_on(uint64_t argument, uint64_t (*function)(uint64_t), void *top);
__asm__(".text\n.globl call_on\n.type call_on, @function\ncall_on:\n.cfi_startproc\n"
        "push %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset %rbp, -16\nmov %rsp, %rbp\n.cfi_def_cfa_register %rbp\n"
        "mov %rdx, %rsp\ncall *%rsi\n"
        "mov %rbp, %rsp\npop %rbp\n.cfi_def_cfa %rsp, 8\nret\n.cfi_endproc\n.size call_on, . - call_on\n");
PLAIN uint64_t elsewhere(uint64_t n) { return inner(n) + 2; }
PLAIN uint64_t crosses(uint64_t n, char *top) { return call_on(n, elsewhere, top) + 3; }
PLAIN void turns(char *top) {
    for (;;) {
        for (int i = 0; i < 2; i++) swapcontext(&back, &contexts[i]);
        change(&turns_at, made_at);
        sink += crosses(sink, top) + 1;
    }
}
int main(void) {
    void (*bodies[])(void) = { once, twice };
    for (int i = 0; i < 2; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = malloc(STACK_BYTES);
        contexts[i].uc_stack.ss_size = STACK_BYTES;
        contexts[i].uc_link = i ? &back : 0;
        makecontext(&contexts[i], bodies[i], 0);
    }
    void **first = (void **)((char *)malloc(STACK_BYTES) + STACK_BYTES - 128);
    first[5] = finish; // %rbp
    first[6] = made;
    first[7] = finish;
    made_at = first;
    turns((char *)malloc(STACK_BYTES) + STACK_BYTES);
}
"#;

/// Checks stacks twice: with the images, and with what the recording embeds of them.
fn stacks_are_whole(frames: &str, flags: &[&str], is_crossed: bool) {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: the program is for x86-64");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(folder.path(), SOURCE, frames) else {
        return;
    };
    record(folder.path(), flags, &program, &[]);
    for search in [&[][..], &["--no-search"]] {
        let stacks = folded(&folder.path().join("run.uprof"), search);
        // The first frame of a context depends on libc. There is only one, and it has no caller.
        let begun: Vec<_> = stacks
            .iter()
            .filter_map(|(stack, count)| Some((stack.split_once(';')?.1.to_owned(), *count)))
            .map(|(inner, count)| (format!("outermost;{inner}"), count))
            .collect();
        for function in ["once", "twice", "made"] {
            let within = format!(";{function};");
            nearly_all(&begun, &within, &format!("outermost{within}"));
        }
        nearly_all(&stacks, "crosses;", "crosses;call_on;elsewhere;inner");
        if is_crossed {
            nearly_all(&stacks, "crosses;", "main;turns;crosses;");
        }
    }
    let report = kit::uniprof()
        .args(["report", "--top"])
        .arg(folder.path().join("run.uprof"))
        .output()
        .unwrap();
    let said = kit::text(&report.stderr);
    assert!(
        !is_crossed || !said.contains("end before they are whole"),
        "{said}"
    );
}

#[test]
fn by_frame_pointers() {
    let flags = ["--frame-pointers"];
    stacks_are_whole("-fno-omit-frame-pointer", &flags, true);
}

#[test]
fn by_stack_bytes_and_frame_pointers() {
    stacks_are_whole("-fno-omit-frame-pointer", &[], true);
}

/// Go's call frame information says of `runtime.systemstack` what is true of the stack that it leaves. On the other
/// one there is a zero, or what an earlier call left.
const LIKE_GO: &str = r#"
#include <stdint.h>
#include <stdlib.h>
#define PLAIN __attribute__((noinline, noclone))
enum { STACK_BYTES = 256 << 10 };
static volatile uint64_t sink;
static void *stale;
void *left;
PLAIN uint64_t burn(uint64_t n) { for (int i = 0; i < 20000; i++) n ^= n << 13, n ^= n >> 7; return n; }
PLAIN uint64_t inner(uint64_t n) { return burn(n) + 1; }
uint64_t on_system_stack(uint64_t argument, uint64_t (*function)(uint64_t), void **top)
    __asm__("runtime.systemstack.abi0");
__asm__(".section .gopclntab, \"a\"\n.byte 0\n.text\n"
        ".type runtime.systemstack.abi0, @function\nruntime.systemstack.abi0:\n.cfi_startproc\n"
        "mov %rsp, left(%rip)\nmov %rdx, %rsp\ncall *%rsi\nmov left(%rip), %rsp\nret\n"
        ".cfi_endproc\n.size runtime.systemstack.abi0, . - runtime.systemstack.abi0\n");
uint64_t to_scheduler(uint64_t argument, uint64_t (*function)(uint64_t), void **top) __asm__("runtime.mcall");
__asm__(".text\n.type runtime.mcall, @function\nruntime.mcall:\n.cfi_startproc\n"
        "mov %rsp, left(%rip)\nmov %rdx, %rsp\ncall *%rsi\nmov left(%rip), %rsp\nret\n"
        ".cfi_endproc\n.size runtime.mcall, . - runtime.mcall\n");
PLAIN uint64_t elsewhere(uint64_t n) { return inner(n) + 2; }
PLAIN uint64_t otherwise(uint64_t n) { return inner(n) + 6; }
PLAIN uint64_t schedules(uint64_t n) { return inner(n) + 7; }
PLAIN uint64_t calls(uint64_t n, void **top) {
    n = on_system_stack(n, elsewhere, top) + 3;
    return on_system_stack(n, otherwise, top) + 8;
}
PLAIN uint64_t once(uint64_t n, void **top) { return on_system_stack(n, schedules, top) + 9; }
PLAIN uint64_t twice(uint64_t (*function)(uint64_t), void **top) {
    return on_system_stack(sink, function, top) + on_system_stack(sink, function, top);
}
PLAIN uint64_t outer(uint64_t n, void **top) { return calls(n, top) + 4; }
PLAIN void *here(void) { return __builtin_return_address(0); }
PLAIN void invented(void) { stale = here(); sink++; }
int main(void) {
    void **top = (void **)((char *)calloc(1, STACK_BYTES) + STACK_BYTES - 1024);
    invented();
    for (uint64_t n = 0;; n++) {
        *top = n % 2 ? stale : 0;
        sink += outer(sink, top) + 5;
        sink += once(sink, top) + to_scheduler(sink, schedules, top);
        sink += twice(burn, top);
    }
}
"#;

#[test]
fn what_go_calls_on_its_system_stack_has_the_callers_of_the_other_one() {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: the program is for x86-64");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(folder.path(), LIKE_GO, "-fno-omit-frame-pointer") else {
        return;
    };
    record(folder.path(), &[], &program, &[]);
    for search in [&[][..], &["--no-search"]] {
        let stacks = folded(&folder.path().join("run.uprof"), search).into_iter();
        let stacks: Vec<_> = stacks
            .map(|(stack, count)| (format!("^{stack}"), count))
            .collect();
        for (callers, within) in [
            (
                "main;outer;calls;",
                "runtime.systemstack.abi0;elsewhere;inner",
            ),
            (
                "main;outer;calls;",
                "runtime.systemstack.abi0;otherwise;inner",
            ),
            ("main;once;", "runtime.systemstack.abi0;schedules;inner"),
            // A goroutine that gave up its thread has no more to do with what the thread does.
            ("^", "runtime.mcall;schedules;inner"),
            // Which of its two calls it was can't be known.
            ("^", "runtime.systemstack.abi0;burn"),
        ] {
            nearly_all(&stacks, within, &format!("{callers}{within}"));
        }
        let callers = |inner: &str| called_from(&folder.path().join("run.uprof"), search, inner);
        let (first, second) = (callers("elsewhere+"), callers("otherwise+"));
        assert!(
            first.len() == 1 && second.len() == 1 && first < second,
            "{first:?} {second:?}"
        );
    }
}

/// The places in `calls` from which the function called `inner` was called on the other stack.
fn called_from(recording: &Path, search: &[&str], inner: &str) -> BTreeSet<String> {
    let export = kit::uniprof()
        .args(["export", "-f", "perf-script", "-o", "-"])
        .args(search)
        .arg(recording)
        .output()
        .unwrap();
    let text = kit::text(&export.stdout);
    let lines: Vec<&str> = text.lines().collect();
    let found = lines.windows(3).filter(|lines| {
        lines[0].contains(inner) && lines[1].contains(" runtime.systemstack.abi0+")
    });
    found.map(|lines| lines[2].trim().to_owned()).collect()
}

/// As musl's, the code that returns from the signal has no call frame information.
const LIKE_MUSL: &str = r#"
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#define PLAIN __attribute__((noinline, noclone))
static volatile uint64_t sink;
struct action { void (*handler)(int); unsigned long flags; void (*restorer)(void); unsigned long mask; };
void restorer(void);
__asm__(".text\nnop\n.type restorer, @function\nrestorer:\nmov $15, %rax\nsyscall\n"
        ".size restorer, . - restorer\n");
PLAIN void handler(int number) { for (int i = 0; i < 4000000; i++) sink += number; }
PLAIN void victim(void) { for (;;) sink++; }
PLAIN void outer(void) { victim(); sink++; }
int main(void) {
    struct action action = { handler, 0x04000000, restorer, 0 }; // SA_RESTORER
    syscall(SYS_rt_sigaction, SIGALRM, &action, 0, 8);
    setitimer(ITIMER_REAL, &(struct itimerval){ { 0, 20000 }, { 0, 20000 } }, 0);
    outer();
}
"#;

#[test]
fn what_a_signal_interrupted_is_below_its_handler() {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: the program is for x86-64");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = build(folder.path(), LIKE_MUSL, "-fomit-frame-pointer") else {
        return;
    };
    record(folder.path(), &[], &program, &[]);
    for search in [&[][..], &["--no-search"]] {
        let stacks = folded(&folder.path().join("run.uprof"), search).into_iter();
        let handled: Vec<_> = stacks
            .filter(|(stack, _)| stack.contains(";handler"))
            .collect();
        nearly_all(&handled, "handler", "main;outer;victim;");
    }
}

/// Bytes of the other stack aren't recorded, so stacks are cut where it begins.
#[test]
fn by_stack_bytes_alone_as_far_as_the_stack_goes() {
    stacks_are_whole("-fomit-frame-pointer", &[], false);
}
