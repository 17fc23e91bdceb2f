//! Outputs in folders that others may write to. Files that others have put at the output path are replaced
//! and never written to, so that only the owner can read a recording. This is tested with and without the
//! kernel's own protection (`fs.protected_*`).

use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Another user.
const OTHER: u32 = 65534;
const PROTECTIONS: [&str; 3] = ["protected_regular", "protected_fifos", "protected_symlinks"];

/// The kernel's protection, which is restored on drop.
struct Protection(Vec<(PathBuf, String)>);

impl Protection {
    fn set(is_on: bool) -> Option<Protection> {
        let paths = PROTECTIONS.map(|name| PathBuf::from(format!("/proc/sys/fs/{name}")));
        let before = paths.map(|path| {
            let value = fs::read_to_string(&path).ok()?;
            fs::write(&path, if is_on { "1" } else { "0" }).ok()?;
            Some((path, value))
        });
        let before: Option<Vec<_>> = before.into_iter().collect();
        before.map(Protection)
    }
}

impl Drop for Protection {
    fn drop(&mut self) {
        for (path, value) in &self.0 {
            let _ = fs::write(path, value);
        }
    }
}

/// A folder that everybody may write to, but in which only owners may remove files.
fn shared() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    folder
}

fn run(arguments: &[&str], path: &Path) -> Output {
    let mut command = kit::uniprof();
    for argument in arguments {
        let at = argument.replace("PATH", path.to_str().unwrap());
        command.arg(at);
    }
    command.output().unwrap()
}

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/calls.uprof");

/// Every way to write a file: arguments with PATH in place of its path.
fn ways() -> [Vec<&'static str>; 7] {
    [
        vec![
            "record",
            "-F",
            "499",
            "-o",
            "PATH",
            "--",
            "sh",
            "-c",
            "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done",
        ],
        vec!["report", "--flame=PATH", CORPUS],
        vec!["report", "--html=PATH", CORPUS],
        vec!["export", "-f", "folded", "-o", "PATH", CORPUS],
        vec!["bundle", "-o", "PATH", CORPUS],
        vec!["recover", "-o", "PATH", CORPUS],
        vec!["diff", "--html=PATH", CORPUS, CORPUS],
    ]
}

fn is_possible() -> bool {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can be two users");
        return false;
    }
    true
}

/// An empty file of another user, who keeps it open.
fn others_file(path: &Path) -> File {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o666);
    let file = file.open(path).unwrap();
    chown(path, Some(OTHER), Some(OTHER)).unwrap();
    file
}

fn contents(mut file: &File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn nothing_is_written_into_what_another_user_put_there() {
    if !is_possible() {
        return;
    }
    for is_on in [false, true] {
        let Some(_protection) = Protection::set(is_on) else {
            eprintln!("skipped: fs.protected_* can't be set here");
            return;
        };
        for way in ways() {
            let folder = shared();
            let at = |name: &str| folder.path().join(name);
            // The other user keeps this file open, and locks it as a recorder does.
            let held = others_file(&at("empty"));
            let held = Flock::lock(held, FlockArg::LockExclusive).unwrap();
            let output = run(&way, &at("empty"));
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() < Some(2), "{way:?}: {said}");
            assert!(contents(&held).is_empty(), "{way:?} filled another's file");
            let made = fs::symlink_metadata(at("empty")).unwrap();
            assert!(
                made.is_file() && made.len() > 0 && made.uid() == 0,
                "{way:?}"
            );
            // A link to a file of root.
            fs::write(at("target"), "").unwrap();
            let mode = fs::metadata(at("target")).unwrap().mode();
            symlink(at("target"), at("link")).unwrap();
            std::os::unix::fs::lchown(at("link"), Some(OTHER), Some(OTHER)).unwrap();
            let output = run(&way, &at("link"));
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() < Some(2), "{way:?}: {said}");
            let target = fs::metadata(at("target")).unwrap();
            assert_eq!(
                (target.len(), target.mode()),
                (0, mode),
                "{way:?} followed a link"
            );
            assert!(
                fs::symlink_metadata(at("link")).unwrap().is_file(),
                "{way:?}"
            );
            // A link to a device.
            symlink("/dev/zero", at("device")).unwrap();
            std::os::unix::fs::lchown(at("device"), Some(OTHER), Some(OTHER)).unwrap();
            let output = run(&way, &at("device"));
            assert!(output.status.code() < Some(2), "{way:?}");
            assert!(
                fs::symlink_metadata(at("device")).unwrap().is_file(),
                "{way:?}"
            );
            // A pipe that the other user reads from.
            nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::from_bits_truncate(0o666))
                .unwrap();
            chown(at("pipe"), Some(OTHER), Some(OTHER)).unwrap();
            let output = run(&way, &at("pipe"));
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{way:?}: {said}");
            assert!(
                said.contains("it is a pipe of another user (65534)"),
                "{way:?}: {said}"
            );
        }
    }
}

/// The user's own devices, and pipes with a reader, keep working.
#[test]
fn pipes_of_ones_own_and_devices_are_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    for way in ways() {
        let output = run(&way, Path::new("/dev/null"));
        assert!(
            output.status.code() < Some(2),
            "{way:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let from = pipe.clone();
        let reader = std::thread::spawn(move || fs::read(from).unwrap());
        let output = run(&way, &pipe);
        assert!(
            output.status.code() < Some(2),
            "{way:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(!reader.join().unwrap().is_empty(), "{way:?}");
    }
}

/// In a folder such as /tmp, only root may replace files of others.
#[test]
fn who_may_not_replace_anothers_file_gets_a_reason() {
    if !is_possible() {
        return;
    }
    // The other user can't read the folders of the project.
    let programs = shared();
    let at = |name: &str| programs.path().join(name);
    fs::copy(kit::program(), at("uniprof")).unwrap();
    fs::copy(CORPUS, at("run.uprof")).unwrap();
    let folder = shared();
    let path = folder.path().join("roots");
    fs::write(&path, "").unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    command
        .arg(at("uniprof"))
        .args(["export", "-f", "folded", "-o"]);
    let output = command.arg(&path).arg(at("run.uprof")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("cannot write") && said.contains("not permitted"),
        "{said}"
    );
    assert_eq!(fs::read(&path).unwrap(), b"");
    let names = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, 1, "what was made is gone again");
}
