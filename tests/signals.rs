//! Stacks of signal handlers, and of data that looks like a processor's frame.

#![cfg(target_arch = "x86_64")]

mod compiled;

use compiled::{folded, nearly_all, record};
use std::path::Path;

fn stacks_of(folder: &Path, source: &str, flags: &str) -> Option<compiled::Counted> {
    let program = compiled::build(folder, source, flags)?;
    record(folder, &[], &program, &[]);
    Some(folded(&folder.join("run.uprof"), &[]))
}

const HANDLED: &str = r#"
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>
#define PLAIN __attribute__((noinline, noclone))
static volatile uint64_t sink;
PLAIN void handler(int number) { for (int i = 0; i < 1000000; i++) sink += i * number; }
PLAIN uint64_t work(void) {
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1);
    return sink + 1;
}
void enter(void);
int main(void) {
    enter();
    for (;;)
        sink += work();
}
"#;

#[test]
fn the_frame_of_a_signal_has_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    let source = format!("{HANDLED}\nvoid enter(void) {{ signal(SIGUSR1, handler); }}");
    let flags = "-static -fomit-frame-pointer";
    let Some(stacks) = stacks_of(folder.path(), &source, flags) else {
        return;
    };
    let with_trampoline = |one: &(String, u64)| one.0.contains(";__restore_rt;handler");
    assert!(stacks.iter().any(with_trampoline), "{stacks:#?}");
    for (stack, _) in &stacks {
        if let Some((before, _)) = stack.split_once(";handler") {
            assert!(before.ends_with(";__restore_rt"), "{stack}");
            assert!(before.contains("main;work"), "{stack}");
        }
    }
}

/// musl has its code that returns from a signal right behind a function, and no call frame information of it.
#[test]
fn code_that_returns_from_a_signal_has_no_part_in_the_function_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let source = format!(
        r#"{HANDLED}
__asm__(".text\n.type before,@function\nbefore:\n.cfi_startproc\npush %rbx\n.cfi_def_cfa_offset 16\n"
        ".cfi_offset %rbx,-16\npop %rbx\nret\n.cfi_endproc\n.size before,.-before\n"
        ".type restore,@function\nrestore: mov $15,%rax\nsyscall\n.size restore,.-restore\n");
extern void restore(void);
void enter(void) {{
    struct {{ void (*handler)(int); unsigned long flags; void (*restore)(void); unsigned long mask; }}
        action = {{ handler, 0x04000000, restore, 0 }};
    syscall(SYS_rt_sigaction, SIGUSR1, &action, 0, 8);
}}"#
    );
    let Some(stacks) = stacks_of(folder.path(), &source, "-fomit-frame-pointer") else {
        return;
    };
    nearly_all(&stacks, ";handler", ";restore;handler");
    for (stack, _) in &stacks {
        assert!(!stack.contains("before"), "{stack}");
        if let Some((below, _)) = stack.split_once(";restore;handler") {
            assert!(below.contains("main;work"), "{stack}");
        }
    }
}

/// A pointer to a function, small numbers, and a pointer to the stack: five words as a processor pushes them.
#[test]
fn data_on_a_processs_stack_is_no_frame_of_an_interrupt() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
#include <string.h>
#define PLAIN __attribute__((noinline, noclone))
volatile unsigned long sink;
struct job { void (*done)(void); long kind; long flags; void *buffer; long next; };
PLAIN void never_called(void) { sink = 1; }
PLAIN unsigned long burn(volatile struct job *job, int n) {
    unsigned long sum = 0;
    for (int i = 0; i < n; i++) { sink += job->flags * i; sum += i; }
    return sum;
}
PLAIN unsigned long victim(int n) {
    char buffer[64];
    volatile struct job job = { never_called, 8, 2, buffer, 0 };
    memset(buffer, n, sizeof buffer);
    __asm__ volatile("" :: "r"(buffer) : "memory");
    return burn(&job, n) + job.kind + buffer[3];
}
int main(void) { for (;;) sink += victim(1000000); }
"#;
    let flags = "-fomit-frame-pointer -fno-asynchronous-unwind-tables";
    let Some(stacks) = stacks_of(folder.path(), source, flags) else {
        return;
    };
    let burning = stacks.iter().filter(|(stack, _)| stack.contains("burn"));
    assert!(
        burning.map(|(_, count)| count).sum::<u64>() > 100,
        "{stacks:#?}"
    );
    for (stack, _) in &stacks {
        assert!(!stack.contains("never_called"), "{stack}");
    }
}
