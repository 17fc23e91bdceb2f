//! Names come from the files that processes have mapped, whatever is at their paths now: programs that were
//! replaced or deleted, in containers, in a chroot, or with a pipe at the path. There are two programs that
//! differ in the name of their one busy function. One runs, and the other is put at its path.
#![cfg(all(feature = "record", feature = "report"))]

use kit::text;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Without a build-id, images are identified by their contents.
const KINDS: [&[&str]; 2] = [&[], &["-Wl,--build-id=none"]];

/// A folder with the program `runs`, whose busy function is `truth`, and the other program, `lies`.
struct Programs(TempDir);

impl Programs {
    fn new(flags: &[&str]) -> Programs {
        let folder = tempfile::tempdir().unwrap();
        for (program, function) in [("runs", "truth"), ("lies", "rumour")] {
            let source = format!(
                "static volatile unsigned long sink;\n\
                 __attribute__((noinline)) void {function}(void)\n\
                 {{ for (unsigned long i = 0; i < 100000; i++) sink += i; }}\n\
                 int main(void) {{ for (;;) {function}(); }}\n"
            );
            let file = folder.path().join(format!("{program}.c"));
            std::fs::write(&file, source).unwrap();
            let mut gcc = Command::new("gcc");
            gcc.args(["-O1", "-static", "-fno-omit-frame-pointer", "-o"]);
            gcc.arg(folder.path().join(program)).arg(&file).args(flags);
            assert!(gcc.status().expect("gcc is installed").success());
        }
        Programs(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn copy(&self, from: &str, to: &str) {
        std::fs::copy(self.path(from), self.path(to)).unwrap();
    }

    /// Starts `command`, which is ended on drop, and waits until the program runs.
    fn start(&self, command: &mut Command) -> Running {
        let running = Running(command.current_dir(self.0.path()).spawn().unwrap());
        let began = Instant::now();
        let runs = || {
            let link = std::fs::read_link(format!("/proc/{}/exe", running.0.id()));
            link.is_ok_and(|path| path.to_string_lossy().contains("program"))
        };
        while !runs() {
            assert!(began.elapsed() < Duration::from_secs(20), "{command:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        running
    }

    /// Records into `run.uprof`. Returns the recorder's messages.
    fn record(&self, arguments: &[&str]) -> String {
        let mut record = kit::uniprof();
        record.args(["record", "-F", "997", "-o"]);
        record.arg(self.path("run.uprof"));
        // A command ends by itself, or by its own time limit.
        let seconds = if arguments.contains(&"timeout") {
            "10s"
        } else {
            "1500ms"
        };
        record.args(["-d", seconds]).args(arguments);
        let output = record.current_dir(self.0.path()).output().unwrap();
        let said = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
        said
    }

    /// The table of functions, and the messages beside it.
    fn top(&self) -> (String, String) {
        let mut report = kit::uniprof();
        report.args(["report", "--top"]).arg(self.path("run.uprof"));
        let Output { stdout, stderr, .. } = report.output().unwrap();
        (text(&stdout), text(&stderr))
    }

    fn expect_truth(&self, what: &str) {
        let (table, said) = self.top();
        assert!(table.contains("truth"), "{what}: {table}{said}");
        assert!(!table.contains("rumour"), "{what}: {table}{said}");
        assert!(!said.contains("program is not used"), "{what}: {said}");
    }
}

/// A process, which is ended on drop.
struct Running(Child);

impl Running {
    /// Its processor time so far, in hundredths of a second (proc_pid_stat(5)).
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let user = fields.split_whitespace().nth(11).unwrap();
        user.parse().unwrap()
    }

    fn target(&self) -> String {
        format!("pid:{}", self.0.id())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_root() -> bool {
    let root = text(&Command::new("id").arg("-u").output().unwrap().stdout).trim() == "0";
    if !root {
        eprintln!("skipped: only root makes mounts, roots and other users");
    }
    root
}

#[test]
fn programs_that_were_replaced_or_deleted() {
    for flags in KINDS {
        let programs = Programs::new(flags);
        programs.copy("runs", "program");
        let running = programs.start(&mut Command::new(programs.path("program")));
        programs.copy("lies", "next");
        std::fs::rename(programs.path("next"), programs.path("program")).unwrap();
        programs.record(&[&running.target()]);
        programs.expect_truth("replaced");
        std::fs::remove_file(programs.path("program")).unwrap();
        programs.record(&[&running.target()]);
        drop(running);
        programs.expect_truth("deleted");
    }
}

#[test]
fn a_program_in_a_container_that_is_gone_at_the_end() {
    if !is_root() {
        return;
    }
    for flags in KINDS {
        let programs = Programs::new(flags);
        std::fs::create_dir(programs.path("c")).unwrap();
        programs.copy("lies", "c/program");
        let mount = "mount -t tmpfs none c && cp runs c/program && exec c/program";
        let container = ["-m", "sh", "-c", mount];
        let running = programs.start(Command::new("unshare").args(container));
        programs.record(&[&running.target()]);
        programs.expect_truth("of a process that runs");
        drop(running);
        let mount = mount.replace("exec", "timeout 1");
        programs.record(&["--", "unshare", "-m", "sh", "-c", &mount]);
        programs.expect_truth("of a command that ended");
    }
}

#[test]
fn a_program_in_a_chroot() {
    if !is_root() {
        return;
    }
    for flags in KINDS {
        let programs = Programs::new(flags);
        // The same path is one program inside and another one outside.
        let jail = programs.path("jail");
        let inside = jail.join(programs.0.path().strip_prefix("/").unwrap());
        std::fs::create_dir_all(&inside).unwrap();
        std::fs::copy(programs.path("runs"), inside.join("program")).unwrap();
        programs.copy("lies", "program");
        let program = programs.path("program");
        let running = programs.start(Command::new("chroot").arg(&jail).arg(&program));
        programs.record(&[&running.target()]);
        programs.expect_truth("of a process that runs");
        drop(running);
        let (jail, program) = (jail.display().to_string(), program.display().to_string());
        programs.record(&["--", "chroot", &jail, &program]);
        programs.expect_truth("of a command");
    }
}

/// The path has a FIFO that nobody writes into, and then a link to a device.
#[test]
fn a_fifo_at_the_path_of_a_mapped_file_is_not_opened() {
    let programs = Programs::new(&[]);
    programs.copy("runs", "program");
    let running = programs.start(&mut Command::new(programs.path("program")));
    let fifo = Command::new("mkfifo").arg(programs.path("fifo")).status();
    assert!(fifo.unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", programs.path("link")).unwrap();
    for trap in ["fifo", "link"] {
        std::fs::rename(programs.path(trap), programs.path("program")).unwrap();
        let began = Instant::now();
        programs.record(&[&running.target()]);
        assert!(began.elapsed() < Duration::from_secs(60), "{trap}");
        programs.expect_truth(trap);
    }
}

/// Without privileges, `map_files` can't be read. The program is found even so.
#[test]
fn a_replaced_program_without_privileges() {
    if !is_root() {
        return;
    }
    let programs = Programs::new(&[]);
    programs.copy("runs", "program");
    let own = kit::program();
    std::fs::copy(own, programs.path("uniprof")).unwrap();
    let open = Command::new("chmod")
        .arg("777")
        .arg(programs.0.path())
        .status();
    assert!(open.unwrap().success());
    let nobody = |program: &Path| {
        let mut command = Command::new(program);
        command.uid(65534).gid(65534).current_dir(programs.0.path());
        command
    };
    let running = programs.start(&mut nobody(&programs.path("program")));
    programs.copy("lies", "next");
    std::fs::rename(programs.path("next"), programs.path("program")).unwrap();
    let mut record = nobody(&programs.path("uniprof"));
    record.args(["record", "-F", "997", "-d", "1500ms", "-o", "run.uprof"]);
    let output = record.arg(running.target()).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    programs.expect_truth("by nobody");
}

/// The vDSO is not a file, but its functions have names and its rules unwind out of it.
#[test]
fn functions_of_the_vdso() {
    let programs = Programs::new(&[]);
    let source = "#include <time.h>\n\
        __attribute__((noinline)) void truth(void)\n\
        { struct timespec now; for (int i = 0; i < 1000; i++) clock_gettime(1, &now); }\n\
        int main(void) { for (;;) truth(); }\n";
    std::fs::write(programs.path("clock.c"), source).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-fno-omit-frame-pointer", "-o"]);
    gcc.arg(programs.path("program"))
        .arg(programs.path("clock.c"));
    assert!(gcc.status().unwrap().success());
    let running = programs.start(&mut Command::new(programs.path("program")));
    programs.record(&["--no-embed", "--stack=4K", &running.target()]);
    let (table, said) = programs.top();
    assert!(table.contains("clock_gettime  [vdso]"), "{table}{said}");
    let mut folded = kit::uniprof();
    folded.args(["export", "--format", "folded"]);
    let folded = folded.arg(programs.path("run.uprof")).output().unwrap();
    let folded = text(&folded.stdout);
    // The function of the C library, and the one in the vDSO that it calls.
    let whole =
        |line: &str| line.contains("main;truth;") && line.matches("clock_gettime").count() == 2;
    assert!(folded.lines().any(whole), "{folded}");
    // With embedded images, the report needs no file of this machine.
    programs.record(&["--stack=4K", &running.target()]);
    let (table, said) = programs.top();
    assert!(table.contains("clock_gettime  [vdso]"), "{table}{said}");
}

/// A program that generates a function at run time and lists it in a perf map. Later it generates another one
/// at the same address. Its map also claims all other addresses.
#[cfg(target_arch = "x86_64")]
const MAKER: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(1, &t); return t.tv_sec + t.tv_nsec / 1e9; }
__attribute__((noinline)) void untouched(void) { for (volatile int i = 0; i < 100000; i++); }
int main(void)
{
    /* mov ecx, 1000000; dec ecx; jnz; ret */
    static const unsigned char code[] = {0xb9, 0x40, 0x42, 0x0f, 0, 0xff, 0xc9, 0x75, 0xfc, 0xc3};
    unsigned char *memory = mmap(0, 65536, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(memory + 256, code, sizeof code);
    char path[64];
    sprintf(path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w");
    fprintf(map, "0 7fffffffffff everything\n1000 7fffffff0000 everything\n");
    for (int round = 0;; round++) {
        fprintf(map, "%lx a %s\n", (long)(memory + 256), round % 2 ? "second" : "first");
        fflush(map);
        for (double end = now() + 1.5; now() < end;) {
            ((void (*)(void))(memory + 256))();
            untouched();
        }
    }
}
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn code_that_is_made_at_run_time_has_the_names_of_its_time() {
    let programs = Programs::new(&[]);
    std::fs::write(programs.path("maker.c"), MAKER).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-fno-omit-frame-pointer", "-o"]);
    gcc.arg(programs.path("program"))
        .arg(programs.path("maker.c"));
    assert!(gcc.status().unwrap().success());
    let program = programs.path("program");
    // In a container, it has another process id and another /tmp, and afterwards it can't be found any more.
    let inside = "mount -t tmpfs none /mnt && cp program /mnt && mount -t tmpfs none /tmp \
                  && exec timeout 5 /mnt/program";
    let mut commands = vec![vec!["timeout", "5", program.to_str().unwrap()]];
    if is_root() {
        commands.push(vec!["unshare", "-mpf", "sh", "-c", inside]);
    }
    for command in commands {
        let said = programs.record(&[&["--", "timeout", "20"], &command[..]].concat());
        let (table, warned) = programs.top();
        let share = |name: &str| {
            let line = table.lines().find(|line| line.contains(name));
            let words = line.map(|line| line.split_whitespace().nth(1).unwrap_or("").to_owned());
            words.map_or(0.0, |word| {
                word.trim_end_matches('%').parse().unwrap_or(0.0)
            })
        };
        let shown = format!("{command:?}: {table}{said}{warned}");
        for name in ["first  [jit]", "second  [jit]"] {
            assert!(share(name) > 10.0, "{name}: {shown}");
        }
        assert!(share("untouched  [program]") > 1.0, "{shown}");
        assert!(!table.contains("everything"), "{shown}");
    }
}

/// A program that makes its code alternately writable and executable, in memory like that of PHP's cache, and
/// writes its map last.
#[cfg(target_arch = "x86_64")]
const FLIPPER: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(1, &t); return t.tv_sec + t.tv_nsec / 1e9; }
int main(void)
{
    /* mov ecx, 1000000; dec ecx; jnz; ret */
    static const unsigned char code[] = {0xb9, 0x40, 0x42, 0x0f, 0, 0xff, 0xc9, 0x75, 0xfc, 0xc3};
    unsigned char *memory = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char path[64];
    sprintf(path, "/tmp/perf-%d.map", getpid());
    for (int round = 0; round < 2; round++) {
        for (double end = now() + 1; now() < end;) {
            mprotect(memory, 65536, PROT_READ | PROT_WRITE);
            memcpy(memory + 256, code, sizeof code);
            mprotect(memory, 65536, PROT_READ | PROT_EXEC);
            ((void (*)(void))(memory + 256))();
        }
        FILE *map = fopen(path, "w");
        fprintf(map, "%lx a generated\n", (long)(memory + 256));
        fclose(map);
    }
    sleep(1);
}
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn code_whose_protection_changes_has_its_name_all_the_time() {
    let programs = Programs::new(&[]);
    std::fs::write(programs.path("flipper.c"), FLIPPER).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-fno-omit-frame-pointer", "-o"]);
    gcc.arg(programs.path("program"))
        .arg(programs.path("flipper.c"));
    assert!(gcc.status().unwrap().success());
    let program = programs.path("program");
    let command = ["--", "timeout", "20", program.to_str().unwrap()];
    let said = programs.record(&command);
    let (table, warned) = programs.top();
    assert!(table.contains("generated  [jit]"), "{table}{said}{warned}");
    assert!(!table.contains("zero"), "{table}{said}{warned}");
    // Hundreds of changes of protection are a single mapping, which then has a name.
    let mut dump = kit::uniprof();
    dump.arg("dump").arg(programs.path("run.uprof"));
    let dump = text(&dump.output().unwrap().stdout);
    let made = |line: &&str| line.contains(" mapped ") && !line.contains(".so");
    let made = dump.lines().filter(made);
    let made = made.filter(|line| line.contains("zero") || line.contains("[jit]"));
    assert_eq!(made.count(), 2, "{dump}");
}

/// Without a map, the report says how to get one.
#[test]
fn unnamed_code_of_a_known_kind_is_told_how_to_name_it() {
    let programs = Programs::new(&[]);
    let script = "function f(n) { return n < 2 ? n : f(n - 1) + f(n - 2) } for (;;) f(25)";
    let node = Command::new("node").args(["-e", script]).spawn();
    let Ok(node) = node else {
        eprintln!("skipped: there is no node here");
        return;
    };
    let node = Running(node);
    // By then it has generated code, even on a busy machine.
    let began = Instant::now();
    while node.ticks() < 100 {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "node doesn't run"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = programs.record(&[&node.target()]);
    let (_, warned) = programs.top();
    for text in [said, warned] {
        assert!(text.contains("--perf-basic-prof"), "{text}");
    }
}

/// A recording without tables is read on a machine with another file at the path.
#[test]
fn a_report_takes_no_file_that_was_not_mapped() {
    for flags in KINDS {
        let programs = Programs::new(flags);
        programs.copy("runs", "program");
        let running = programs.start(&mut Command::new(programs.path("program")));
        programs.record(&["--no-embed", &running.target()]);
        drop(running);
        programs.expect_truth("the same file");
        programs.copy("lies", "program");
        let (table, said) = programs.top();
        assert!(table.contains("program+0x"), "{table}");
        assert!(!table.contains("rumour"), "{table}");
        assert!(said.contains("program is not used"), "{said}");
        std::fs::remove_file(programs.path("program")).unwrap();
        let (table, said) = programs.top();
        assert!(table.contains("program+0x"), "{table}");
        let advised = said.contains("no names") && said.contains("--image-path");
        assert!(advised, "{said}");
    }
}
