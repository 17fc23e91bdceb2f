//! Live processes, end to end: the built program records real processes, and the recording is read back.

mod busy;

use busy::Busy;
use kit::{text, uniprof};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use uprof::cold::{End, EndReason};
use uprof::{Item, Payload, SliceReader};

/// Runs the command to its end and checks the exit status.
fn run(command: &mut Command, status: i32) -> Output {
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(status),
        "{command:?} said: {said}"
    );
    output
}

/// Runs the command, and expects exit status 2 and a message with each of `parts`.
fn refused(command: &mut Command, parts: &[&str]) {
    let said = text(&run(command, 2).stderr);
    for part in parts {
        assert!(said.contains(part), "{command:?}: no «{part}» in: {said}");
    }
    assert!(said.contains("uniprof: "), "{said}");
}

/// What a test needs of a recording.
#[derive(Default)]
struct Read {
    samples: u64,
    end: Option<End>,
    damages: usize,
    last_ns: u64,
    first_ns: u64,
}

fn read(path: &Path) -> Read {
    let bytes = std::fs::read(path).unwrap();
    let recording = SliceReader::open(&bytes).unwrap();
    let mut all = Read {
        first_ns: u64::MAX,
        ..Read::default()
    };
    for item in recording.blocks() {
        let Item::Block(block) = item else {
            all.damages += 1;
            continue;
        };
        all.first_ns = all.first_ns.min(block.first_ns);
        all.last_ns = all.last_ns.max(block.last_ns);
        match block.payload().unwrap() {
            Payload::Samples(samples) => {
                let mut rows = samples.rows();
                while let Some(row) = rows.next_row().unwrap() {
                    assert!(row.node.is_some() || row.stack.is_some());
                    all.samples += 1;
                }
            }
            Payload::End(end) => all.end = Some(end),
            _ => {}
        }
    }
    all
}

/// Whether a recording in progress has samples already.
fn has_samples(file: &Path) -> bool {
    let bytes = std::fs::read(file).unwrap_or_default();
    let Ok(recording) = SliceReader::open(&bytes) else {
        return false;
    };
    let mut items = recording.blocks();
    items.any(|item| matches!(item, Item::Block(block) if block.samples > 0))
}

/// There is a sample for each period of the processor time that the kernel counted.
#[track_caller]
fn assert_as_many_as_due(file: &Path) {
    let percent = kit::sampled_percent(file);
    assert!((70..=140).contains(&percent), "{percent} % of the time");
}

fn folded(file: &Path) -> String {
    text(
        &run(
            uniprof().args(["export", "--format", "folded"]).arg(file),
            0,
        )
        .stdout,
    )
}

impl Busy {
    fn new() -> Self {
        let child = Command::new("bash")
            .args(["-c", "while :; do :; done"])
            .spawn();
        let busy = Busy(child.unwrap());
        std::thread::sleep(Duration::from_millis(100));
        busy
    }

    fn target(&self) -> String {
        format!("pid:{}", self.0.id())
    }
}

#[test]
fn threads_of_a_compressor() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("xz.uprof");
    let input = kit::program();
    let mut record = uniprof();
    record
        .args(["record", "-F", "997", "-d", "3s", "-o"])
        .arg(&file);
    record
        .args(["--", "xz", "-T2", "--block-size=1MiB", "-k", "-c"])
        .arg(input);
    run(record.stdout(Stdio::null()), 0);
    assert!(read(&file).samples > 100, "{}", read(&file).samples);
    assert_as_many_as_due(&file);
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let stacks = folded(&file);
    assert!(stacks.contains("liblzma"), "{stacks}");
    let info = text(&run(uniprof().arg("info").arg(&file), 0).stdout);
    assert!(
        info.contains("997 Hz") && info.contains("liblzma.so") && info.contains("\nsampling time "),
        "{info}"
    );
}

#[test]
fn a_sample_has_the_processor_that_its_thread_ran_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pinned.uprof");
    let allowed = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = allowed
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
    // The last processor is used, because a recorder that doesn't know it might report zero.
    let cpu = allowed.unwrap().rsplit([',', '-']).next().unwrap();
    let script = "for ((i = 0; i < 100000; i++)); do :; done";
    let mut record = uniprof();
    record.args(["record", "-F", "997", "-o"]).arg(&file);
    run(
        record.args(["--", "taskset", "-c", cpu, "bash", "-c", script]),
        0,
    );
    let dump = text(&run(uniprof().arg("dump").arg(&file), 0).stdout);
    let lines = dump.lines().filter(|line| line.starts_with("sample "));
    let there = format!(" cpu={cpu}");
    let (pinned, elsewhere): (Vec<_>, Vec<_>) = lines.partition(|line| line.ends_with(&there));
    // Before taskset has set the affinity, the program may run on any processor.
    assert!(pinned.len() > 50 && elsewhere.len() < 20, "{dump}");
    assert!(
        elsewhere.iter().all(|line| line.contains(" cpu=")),
        "{dump}"
    );
}

#[test]
fn an_interpreter() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("python.uprof");
    let script = "import time\nend = time.time() + 2\nwhile time.time() < end: sum(range(1000))";
    let mut record = uniprof();
    record.args(["record", "-F", "997", "-o"]).arg(&file).args([
        "--",
        "/usr/bin/python3",
        "-c",
        script,
    ]);
    run(&mut record, 0);
    let read = read(&file);
    assert!(read.samples > 50, "{}", read.samples);
    assert_as_many_as_due(&file);
    assert_eq!(read.end.unwrap().reason, EndReason::TargetEnded);
    let flame = folder.path().join("python.svg");
    let argument = format!("--flame={}", flame.display());
    run(uniprof().arg("report").arg(argument).arg(&file), 0);
    let svg = std::fs::read_to_string(flame).unwrap();
    assert!(
        svg.contains("PyEval") || svg.contains("range"),
        "real functions of the interpreter"
    );
}

#[test]
fn a_running_process_through_a_pipe() {
    let busy = Busy::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pipe.uprof");
    let output = run(
        uniprof().args(["record", "-F", "499", "-d", "1s", "-o", "-", &busy.target()]),
        0,
    );
    std::fs::write(&file, &output.stdout).unwrap();
    let read = read(&file);
    assert!(read.samples > 20, "{}", read.samples);
    assert_as_many_as_due(&file);
    assert_eq!(read.end.unwrap().reason, EndReason::Duration);
    assert!(
        text(&output.stderr).contains("Recorded "),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn ptrace_in_place_of_perf_events() {
    let busy = Busy::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ptrace.uprof");
    let mut record = uniprof();
    record
        .args([
            "record",
            "--ptrace",
            "-F",
            "97",
            "-d",
            "2s",
            "--stack=8K",
            "-o",
        ])
        .arg(&file);
    let status = record.arg(busy.target()).status().unwrap().code();
    // On a busy machine deadlines are missed, which is status 1.
    assert!(matches!(status, Some(0 | 1)), "{status:?}");
    assert!(read(&file).samples > 20, "{}", read(&file).samples);
    let info = uniprof().arg("info").arg(&file).output().unwrap();
    assert!(text(&info.stdout).contains("\nfreeze time "));
}

/// .NET, and C libraries' `setuid` and `pthread_cancel`, use these signals. The program is stopped for each, and must
/// go on with it.
#[test]
fn real_time_signals_reach_a_program_under_ptrace() {
    let folder = tempfile::tempdir().unwrap();
    let script = "n=0; trap 'n=$((n + 1))' RTMIN+3
        for ((i = 0; i < 200; i++)); do
            kill -RTMIN+3 $$
            for ((j = 0; j < 1000; j++)); do :; done
        done
        exit $((n == 200 ? 7 : 1))";
    let mut record = Command::new("timeout");
    record.arg("60").arg(kit::program());
    record.args(["record", "--ptrace", "--exit-status", "-F", "499", "-o"]);
    record.arg(folder.path().join("x.uprof"));
    run(record.args(["--", "bash", "-c", script]), 7);
}

/// The output of the command must not get into the recording.
#[test]
fn a_command_that_prints_beside_a_recording_on_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.uprof");
    let script = "for ((i = 0; i < 300000; i++)); do :; done; echo printed";
    let mut record = uniprof();
    record.args(["record", "-F", "997", "-o", "-", "--", "bash", "-c", script]);
    let output = run(&mut record, 0);
    std::fs::write(&file, &output.stdout).unwrap();
    assert_eq!(read(&file).damages, 0);
    assert!(text(&output.stderr).contains("printed"));
}

/// strace makes the system call fail like a container's filter.
#[test]
fn perf_events_that_are_forbidden() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.uprof");
    let mut record = Command::new("strace");
    record.args(["-q", "-e", "trace=perf_event_open"]);
    record.args([
        "-e",
        "inject=perf_event_open:error=EPERM",
        "-o",
        "/dev/null",
    ]);
    record.arg(kit::program());
    record
        .args(["record", "-F", "97", "-d", "2s", "-o"])
        .arg(&file);
    record.args(["--", "bash", "-c", "while :; do :; done"]);
    let output = record.output().expect("strace is installed");
    let said = text(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    let warning: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("forbidden"))
        .collect();
    assert_eq!(warning.len(), 1, "one line says so: {said}");
    assert!(warning[0].contains("ptrace") && warning[0].contains("perf_event_paranoid"));
    assert!(read(&file).samples > 10, "{}", read(&file).samples);
}

#[test]
fn signals_end_a_recording_in_good_order() {
    let busy = Busy::new();
    let folder = tempfile::tempdir().unwrap();
    let program = uniprof().get_program().to_owned();
    // These tests may be run under nohup themselves. Another recorder is: that is not ended by SIGHUP.
    let hears = ["env", "--default-signal=HUP"];
    let cases: [(&[&str], &[&str]); 4] = [
        (&hears, &["INT"]),
        (&hears, &["TERM"]),
        (&hears, &["HUP"]),
        (&["nohup"], &["HUP", "TERM"]),
    ];
    for (starter, signals) in cases {
        let signal = signals[signals.len() - 1];
        let file = folder.path().join(signals.concat());
        let mut record = Command::new(starter[0]);
        record
            .args(&starter[1..])
            .arg(&program)
            .args(["record", "-F", "997", "-o"])
            .arg(&file)
            .arg(busy.target());
        let mut recorder = record.stderr(Stdio::null()).spawn().unwrap();
        // On a busy machine the first sample takes long, and a recording without samples is status 1.
        let began = Instant::now();
        while !has_samples(&file) && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let pid = recorder.id().to_string();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let mut lines = status.lines();
        let ignored = lines.find_map(|line| line.strip_prefix("SigIgn:\t"));
        let ignored = u64::from_str_radix(ignored.unwrap(), 16).unwrap();
        assert_eq!(ignored & 1 != 0, starter[0] == "nohup", "SIGHUP: {status}");
        for &signal in signals {
            let mut kill = Command::new("kill");
            assert!(kill.args(["-s", signal, &pid]).status().unwrap().success());
        }
        assert_eq!(recorder.wait().unwrap().code(), Some(0), "{signal}");
        let end = read(&file).end.expect("an end record");
        assert_eq!(end.reason, EndReason::Stopped);
        assert!(end.message.contains(signal), "{}", end.message);
    }
}

#[test]
fn targets_that_can_not_be_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.uprof");
    let record = |target: &str| {
        let mut command = uniprof();
        command
            .args(["record", "-d", "1s", "-o"])
            .arg(&file)
            .arg(target);
        command
    };
    refused(
        &mut record("pid:999999999"),
        &["999999999", "ended, or never was"],
    );
    refused(&mut record("pid:x"), &["pid:x", "process id"]);
    refused(&mut record("pid:2"), &["kernel thread"]);
    refused(&mut record("name:"), &["names no process", "name:nginx"]);
    let mut without = uniprof();
    without
        .current_dir(folder.path())
        .args(["record", "--elf", "missing", "--", "touch", "begun"]);
    refused(&mut without, &["cannot use --elf: cannot open missing"]);
    assert!(!folder.path().join("begun").exists());
    let mut missing = uniprof();
    missing
        .args(["record", "-o"])
        .arg(&file)
        .args(["--", "/no/such/program"]);
    refused(&mut missing, &["/no/such/program", "no such program"]);
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut script_of_none = uniprof();
    script_of_none
        .args(["record", "-o"])
        .arg(&file)
        .arg("--")
        .arg(&script);
    refused(&mut script_of_none, &["interpreter of its first line"]);
    let mut data = uniprof();
    data.args(["record", "-o"])
        .arg(&file)
        .args(["--", "/etc/passwd"]);
    refused(&mut data, &["/etc/passwd", "not executable"]);
    for flags in [&["--no-pause"][..], &["--no-pause", "--ptrace"]] {
        let mut running = uniprof();
        running.args(["record", "-o"]).arg(&file).args(flags);
        running.args(["--", "/bin/true"]);
        refused(&mut running, &["Xen", "--freeze-budget"]);
    }
    let several = |more: &[&str]| {
        let mut command = uniprof();
        command.args(["record", "-o"]).arg(&file).args(more);
        command
    };
    refused(
        &mut several(&["pid:1", "pid:2"]),
        &["Xen domains alone", "pid:1", "pid:N,M"],
    );
    refused(
        &mut several(&["7", "qemu:/run/a"]),
        &["Xen domains alone", "qemu:/run/a"],
    );
    refused(
        &mut several(&["7", "8", "--elf", "/bin/true"]),
        &["--elf is for a single domain"],
    );
    let mut streamed = uniprof();
    streamed.args(["record", "-o", "-", "7", "8"]);
    refused(&mut streamed, &["give a folder with -o"]);
    refused(
        &mut several(&["7", "8", "--calls", "main"]),
        &["name one target"],
    );
    for other in ["7", "--follow", "--elf=x", "-a"] {
        let both = ["record", "--all-domains", other];
        let said = text(&run(uniprof().args(both), 2).stderr);
        assert!(said.contains("cannot be used with"), "{said}");
    }
    for other in ["--stack", "--ip-only", "--max-overhead=1%"] {
        let both = ["record", "--no-pause", other, "guest"];
        let said = text(&run(uniprof().args(both), 2).stderr);
        assert!(said.contains("cannot be used with"), "{said}");
    }
    assert!(
        !file.exists(),
        "a recording without a sample is not left behind"
    );
}

#[test]
fn a_place_of_an_image_that_is_none() {
    let folder = tempfile::tempdir().unwrap();
    for (elf, why) in [("a@there", "hexadecimal"), ("a@0x1001", "page of 4 KiB")] {
        let mut record = uniprof();
        record
            .current_dir(folder.path())
            .args(["record", "--elf", elf, "gdb:localhost:1"]);
        let said = text(&run(&mut record, 2).stderr);
        let parts = [elf, "--elf", why];
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    }
}

#[test]
fn a_process_of_someone_else() {
    if !nix_is_root() {
        eprintln!("skipped: only root can become someone else");
        return;
    }
    let busy = Busy::new();
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    // The program must be accessible to another user.
    let program = folder.path().join("uniprof");
    std::fs::copy(kit::program(), &program).unwrap();
    let mut record = Command::new(program);
    record
        .args(["record", "-d", "1s", "-o"])
        .arg(folder.path().join("x.uprof"));
    record.arg(busy.target()).uid(65534).gid(65534);
    refused(&mut record, &["not yours", "root"]);
}

/// The first process of the machine. Its children include some of the recorder's user, at least the recorder
/// itself.
#[test]
fn a_stranger_does_not_record_the_first_process() {
    let Some((folder, program)) = for_strangers() else {
        return;
    };
    let mut record = Command::new(program);
    record
        .args(["record", "-d", "1s", "-o"])
        .arg(folder.path().join("x.uprof"));
    record.arg("pid:1").uid(65534).gid(65534);
    let said = text(&run(&mut record, 2).stderr);
    for part in ["cannot trace process 1:", "user 0's", "run as root"] {
        assert!(said.contains(part), "no «{part}» in: {said}");
    }
    assert!(
        !said.contains("at most 1024") && !said.contains("idle"),
        "{said}"
    );
}

#[test]
fn processes_of_one_name_and_several_users() {
    let Some((folder, program)) = for_strangers() else {
        return;
    };
    let shell = folder.path().join("of-two-users");
    std::fs::copy("/bin/bash", &shell).unwrap();
    let start = |user: u32| {
        let mut shell = Command::new(&shell);
        let shell = shell
            .args(["-c", "while :; do :; done"])
            .uid(user)
            .gid(user);
        Busy(shell.spawn().unwrap())
    };
    let (theirs, ours) = (start(0), start(65534));
    std::thread::sleep(Duration::from_millis(200));
    for way in [&[][..], &["--ptrace"]] {
        let file = folder.path().join("x.uprof");
        let mut record = Command::new(&program);
        record.args(["record", "-F", "499", "-d", "1s", "--no-embed", "-o"]);
        record.arg(&file).args(way).arg("name:of-two-users");
        let output = record.uid(65534).gid(65534).output().unwrap();
        let said = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
        let not_sampled = format!(
            "1 processes are not yours, and not sampled: {} `of-two-users`",
            theirs.0.id()
        );
        assert!(said.contains(&not_sampled), "{said}");
        assert!(read(&file).samples > 0, "{said}");
    }
    drop(ours);
}

/// A folder that everybody may write to, with a copy of the program; `None` without the right to change
/// users.
fn for_strangers() -> Option<(tempfile::TempDir, std::path::PathBuf)> {
    if !nix_is_root() {
        eprintln!("skipped: only root can become someone else");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let program = folder.path().join("uniprof");
    std::fs::copy(kit::program(), &program).unwrap();
    Some((folder, program))
}

/// Refuses perf_event_open like a container's filter, then executes its arguments.
const FILTER: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **words) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { 4, code };
    if (count < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 99;
    execv(words[1], words + 1);
    return 98;
}
"#;

#[test]
fn a_container_with_a_filter_is_told_from_a_setting() {
    let folder = tempfile::tempdir().unwrap();
    let (source, filter) = (folder.path().join("filter.c"), folder.path().join("filter"));
    std::fs::write(&source, FILTER).unwrap();
    let built = Command::new("cc")
        .arg("-o")
        .args([&filter, &source])
        .status();
    assert!(built.unwrap().success());
    let filtered = |words: &[&str]| {
        let mut command = Command::new(&filter);
        command.arg(kit::program()).args(words);
        command.current_dir(folder.path()).output().unwrap()
    };
    for words in [
        &[
            "record",
            "-d",
            "1s",
            "-F",
            "499",
            "--",
            "bash",
            "-c",
            "while :; do :; done",
        ][..],
        &["record", "-d", "1s", "-a"],
        &["record", "-d", "1s", "--off-cpu", "--", "sleep", "9"],
        &["doctor"],
    ] {
        let output = filtered(words);
        let said = text(&output.stderr) + &text(&output.stdout);
        assert!(
            said.contains("seccomp filter") && said.contains("--cap-add PERFMON"),
            "{words:?}: {said}"
        );
        assert!(!said.contains("perf_event_paranoid"), "{words:?}: {said}");
    }
}

fn nix_is_root() -> bool {
    text(&Command::new("id").arg("-u").output().unwrap().stdout).trim() == "0"
}

#[test]
fn a_command_that_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("true.uprof");
    // On a slow machine, it may be sampled.
    let record = || {
        let mut record = uniprof();
        let record = record.args(["record", "-F", "10", "-o"]);
        record.arg(&file).args(["--", "true"]).output().unwrap()
    };
    let mut outputs = (0..10).map(|_| record());
    let output = outputs.find(|output| !output.status.success());
    let output = output.expect("samples of `true`, ten times");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("no sample"), "{output:?}");
    assert!(read(&file).end.is_some());
}

#[test]
fn outputs_that_can_not_be_written() {
    let busy = Busy::new();
    let folder = tempfile::tempdir().unwrap();
    let record = |output: &Path| {
        let mut command = uniprof();
        command
            .args(["record", "-F", "997", "-d", "1s", "-o"])
            .arg(output)
            .arg(busy.target());
        command
    };
    let nowhere = folder.path().join("no/such/x.uprof");
    refused(&mut record(&nowhere), &["no folder", "create it first"]);
    refused(&mut record(folder.path()), &["it is a folder"]);
    refused(&mut record(Path::new("/dev/full")), &["No space left"]);
}

/// The disk fills up in the middle of a recording: what was written is sound, and the user is informed.
#[test]
fn a_disk_that_fills_up() {
    let busy = Busy::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.uprof");
    let mut record = Command::new("bash");
    // A limit on file size has the effect of a full disk, with another error name. There is room for a block
    // of half a second, and even a busy machine soon reaches the limit.
    let script = "ulimit -f 64; exec \"$@\"";
    record.args(["-c", script, "bash"]).arg(kit::program());
    record
        .args(["record", "-F", "997", "--stack=16K", "-d", "60s", "-o"])
        .arg(&file)
        .arg(busy.target());
    let began = Instant::now();
    let output = run(&mut record, 1);
    assert!(
        began.elapsed() < Duration::from_secs(45),
        "ends when the output fails"
    );
    assert!(
        text(&output.stderr).contains("File too large"),
        "{}",
        text(&output.stderr)
    );
    let read = read(&file);
    assert!(read.damages <= 1);
}

#[test]
fn a_recording_that_is_there_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.uprof");
    std::fs::write(&file, "before").unwrap();
    let mut record = uniprof();
    record.args(["record", "-F", "997", "-o"]).arg(&file);
    run(
        record.args([
            "--",
            "bash",
            "-c",
            "for ((i = 0; i < 200000; i++)); do :; done",
        ]),
        0,
    );
    let old = folder.path().join("run.uprof.old");
    assert_eq!(std::fs::read_to_string(old).unwrap(), "before");
    let missing = uniprof()
        .args(["record", "-o"])
        .arg(&file)
        .args(["--", "/no/such"])
        .output();
    assert_eq!(missing.unwrap().status.code(), Some(2));
    assert!(
        read(&file).samples > 0,
        "a recording that failed gives back what was there"
    );
}

/// The recorder is paused until the kernel's buffers are full of other processes' samples.
#[test]
fn samples_of_others_that_the_kernel_drops_are_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.uprof");
    // The target computes until it has samples, then sleeps.
    let script = "until [ -e enough ]; do :; done; exec sleep 600";
    let mut target = Command::new("sh");
    let target = target.args(["-c", script]).current_dir(folder.path());
    let mut target = target.spawn().unwrap();
    let mut record = uniprof();
    record.args(["record", "-F", "4999", "-o"]).arg(&file);
    record.arg(format!("pid:{}", target.id()));
    let recorder = record.stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while !has_samples(&file) && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::fs::write(folder.path().join("enough"), "").unwrap();
    let pid = recorder.id().to_string();
    let signal = |name: &str| {
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    };
    let others: Vec<Busy> = (0..2).map(|_| Busy::new()).collect();
    // By then the target sleeps, and the buffers have none of its samples.
    std::thread::sleep(Duration::from_secs(2));
    signal("STOP");
    std::thread::sleep(Duration::from_secs(3));
    signal("CONT");
    std::thread::sleep(Duration::from_millis(500));
    signal("INT");
    let output = recorder.wait_with_output().unwrap();
    drop(others);
    let _ = target.kill();
    let _ = target.wait();
    let said = text(&output.stderr);
    if said.contains("forbidden") || said.contains("is not watched") {
        return println!("skipped: events of processors are not allowed here");
    }
    assert!(said.contains("dropped records of others"), "{said}");
    assert!(!said.contains("Lost:"), "{said}");
    assert_eq!(output.status.code(), Some(0), "{said}");
}

/// The recorder is paused while its target runs so many programs that the kernel's buffers have no room for what it
/// does then.
#[test]
fn a_program_that_begins_while_records_are_lost_has_names() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.uprof");
    let script = "kill -STOP $PPID
        storm='while :; do /bin/true; done'
        for cpu in $(seq $(nproc)); do timeout 2 sh -c \"$storm\" & done
        wait
        exec \"$@\"";
    let mut record = uniprof();
    record.args(["record", "-F", "2999", "-o"]).arg(&file);
    record.args(["--", "sh", "-c", script, "sh"]);
    record.args([env!("CARGO_BIN_EXE_uniprof"), "workload", "2"]);
    let recorder = record.stderr(Stdio::piped()).spawn().unwrap();
    let pid = recorder.id().to_string();
    let go_on = || Command::new("kill").args(["-s", "CONT", &pid]).status();
    let began = Instant::now();
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| stat.contains(") T "))
    };
    while !is_stopped() && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(2200));
    assert!(go_on().unwrap().success());
    let said = text(&recorder.wait_with_output().unwrap().stderr);
    let mut export = uniprof();
    export.args(["export", "--format", "folded"]).arg(&file);
    let folded = text(&export.output().unwrap().stdout);
    let count = |word: &str| -> u64 {
        let lines = folded.lines().filter(|line| line.contains(word));
        lines
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
            .sum()
    };
    // Programs that end before anyone can look have no names.
    let (named, unnamed) = (count("uniprof::workload::"), count(";0x"));
    assert!(
        named > 300 && named > unnamed,
        "{named} samples have names, {unnamed} have none: {said}"
    );
}
