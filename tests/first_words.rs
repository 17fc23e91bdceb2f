//! What people type first who know perf or samply: the message says what to type here.

use assert_cmd::cargo::cargo_bin;
use std::path::Path;
use std::process::{Child, Command};

/// The status, and what was said.
fn run(folder: &Path, words: &[&str]) -> (i32, String) {
    let mut command = Command::new(cargo_bin("uniprof"));
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
    let (status, said) = run(folder.path(), &["record", "no-such-domain"]);
    assert!(status == 2 && said.contains("xenstore"), "{said}");
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
    ] {
        let (status, said) = run(folder.path(), words);
        let wanted = "perf script -i perf.data | uniprof import -o run.uprof -";
        assert!(status == 2 && said.contains(wanted), "{said}");
    }
}

/// An empty table is no answer.
#[test]
fn a_view_without_data_says_what_would_fill_it() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/calls.uprof");
    let (status, said) = run(Path::new("/"), &["report", "--off-cpu", corpus]);
    assert!(
        status == 1 && said.contains("uniprof record --off-cpu"),
        "{said}"
    );
}
