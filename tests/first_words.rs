//! The first commands that users of perf or samply type. The message says what to type instead.

use std::path::Path;
use std::process::{Child, Command};

/// Runs a command. Returns the status and the messages.
fn run(folder: &Path, words: &[&str]) -> (i32, String) {
    let mut command = kit::uniprof();
    let output = command.args(words).current_dir(folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), said)
}

struct Sleep(Child);

impl Drop for Sleep {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_program_or_a_process_given_as_a_target_is_recognised() {
    if Path::new("/dev/xen/privcmd").exists() {
        eprintln!("skipped: here these would be Xen's domains");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sleep = Sleep(Command::new("sleep").arg("100").spawn().unwrap());
    let pid = sleep.0.id().to_string();
    std::fs::copy("/bin/true", folder.path().join("server")).unwrap();
    let by_pid = format!("uniprof record pid:{pid}");
    for (words, wanted) in [
        (&["./server"][..], "uniprof record -- ./server"),
        (&["sh", "x.sh"], "uniprof record -- sh x.sh"),
        (&["-d", "1s", "/bin/true"], "uniprof record -- /bin/true"),
        (&[&pid], &by_pid),
        (&["-p", &pid], &by_pid),
        (&["--pid", &pid], &by_pid),
    ] {
        let (status, said) = run(folder.path(), &[&["record"], words].concat());
        assert_eq!(status, 2, "{said}");
        assert!(said.trim_end().ends_with(wanted), "{words:?}: {said}");
    }
    for command in ["record", "doctor"] {
        let (status, said) = run(folder.path(), &[command, "no-such-domain"]);
        let is_told = said.contains("no domain of Xen, which is not here");
        assert!(status == 2 && is_told, "{said}");
        let (status, said) = run(folder.path(), &[command, &pid]);
        assert!(status == 2 && said.contains(&by_pid), "{said}");
    }
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 1, "nothing was recorded");
}

#[test]
fn a_recording_of_perf_is_recognised() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("perf.data"), "PERFILE2 and more").unwrap();
    for words in [
        &["report", "perf.data"][..],
        &["diff", "perf.data", "perf.data"],
        &["import", "perf.data"],
    ] {
        let (status, said) = run(folder.path(), words);
        let wanted = "perf script -i perf.data | uniprof import -o run.uprof -";
        assert!(status == 2 && said.contains(wanted), "{said}");
    }
}

/// An empty table is no answer, and neither is an empty picture.
#[test]
fn a_view_without_data_says_what_would_fill_it() {
    let folder = tempfile::tempdir().unwrap();
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/calls.uprof");
    std::fs::copy(samples, folder.path().join("run.uprof")).unwrap();
    for (view, wanted) in [
        ("--off-cpu", "uniprof record --off-cpu"),
        ("--off-cpu --flame", "uniprof record --off-cpu"),
        ("--calls", "uniprof record --calls"),
        ("--cpus", "uniprof record --calls"),
        ("--slowest 5", "uniprof record --calls"),
        ("--syscalls", "uniprof import"),
        ("--listing", "uniprof import"),
        ("--time", "uniprof record --host"),
        ("--time --flame", "uniprof record --host"),
        ("--exits", "uniprof record --host"),
    ] {
        let (status, said) = {
            let words = format!("report {view} run.uprof");
            run(folder.path(), &words.split(' ').collect::<Vec<_>>())
        };
        assert!(status == 1 && said.contains(wanted), "{view:?}: {said}");
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "{view:?}"
        );
    }
}

#[test]
fn a_recording_ends_with_what_to_do_next_and_a_failure_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let busy = ["--", "bash", "-c", "while :; do :; done"];
    let record = |more: &[&str]| run(folder, &[more, &busy].concat());
    let (_, said) = record(&["record", "-d", "500ms"]);
    let next = "Next: uniprof report run.uprof, or a page with uniprof report --html run.uprof\n";
    assert!(said.ends_with(next), "{said}");
    let (_, said) = record(&["record", "-d", "500ms", "-o", "it's mine.uprof"]);
    assert!(
        said.contains(r"Next: uniprof report 'it'\''s mine.uprof'"),
        "{said}"
    );
    let (_, said) = record(&["-q", "record", "-d", "500ms"]);
    assert!(!said.contains("Next"), "{said}");
    let (status, said) = run(folder, &["record", "--", "./no-such-program"]);
    assert!(
        status == 2 && said.matches("cannot run").count() == 1,
        "{said}"
    );
}
