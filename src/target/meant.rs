//! Guesses the intent of a user who gave `record` a word that is no target here. Users of other profilers often try
//! such words first.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What to type instead, where there is no Xen and `targets` would be its domains: the form for a program, a process
/// or its name, or else the available forms.
pub fn instead_of(targets: &[String]) -> Option<String> {
    let first = targets.first().filter(|first| !first.is_empty())?;
    if is_program(first) {
        let words = targets.join(" ");
        return Some(format!("`{first}` is a program: uniprof record -- {words}"));
    }
    let is_number = first.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && Path::new("/proc").join(first).exists() {
        return Some(format!(
            "{first} is a process here: uniprof record pid:{first}"
        ));
    }
    if is_running(first) {
        return Some(format!(
            "`{first}` is the name of a process here: uniprof record name:{first}"
        ));
    }
    let how = "a program is started by `uniprof record -- PROGRAM`, a process is pid:NUMBER or name:NAME, and \
               `uniprof record --help` has all kinds";
    let kind = first.split_once(':').map(|(kind, _)| kind);
    Some(match kind.filter(|kind| is_word(kind)) {
        Some(kind) => format!("there is no kind of target `{kind}:`: {how}"),
        None if is_number => {
            format!("no process has the number {first}, and there is no Xen here: {how}")
        }
        None => format!(
            "`{first}` is no program that can be run here, no process, and no domain of Xen, which is not here: {how}"
        ),
    })
}

/// Whether `text` could be a prefix of targets.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// Whether a shell would start `word`: an executable file, given by its path or found in a folder of PATH.
fn is_program(word: &str) -> bool {
    let is_executable = |path: &Path| {
        path.metadata()
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if word.contains('/') {
        return is_executable(Path::new(word));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    folders.any(|folder: PathBuf| is_executable(&folder.join(word)))
}

/// Whether a process has this name.
fn is_running(name: &str) -> bool {
    let Ok(processes) = Path::new("/proc").read_dir() else {
        return false;
    };
    let mut names = processes
        .flatten()
        .filter_map(|process| std::fs::read_to_string(process.path().join("comm")).ok());
    names.any(|comm| comm.trim_end() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_processes_are_known_and_other_words_are_not() {
        let meant = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            instead_of(&words)
        };
        let own = std::process::id().to_string();
        for (words, wanted) in [
            (&["/bin/sh", "-c"][..], "uniprof record -- /bin/sh -c"),
            (&["sh", "x.sh"], "uniprof record -- sh x.sh"),
            (&[&own], &format!("uniprof record pid:{own}")),
        ] {
            let said = meant(words).unwrap();
            assert!(said.ends_with(wanted), "{said}");
        }
        for (word, wanted) in [
            (
                "/etc/passwd",
                "`/etc/passwd` is no program that can be run here",
            ),
            ("/bin", "`/bin` is no program"),
            ("no-such-word-here", "`no-such-word-here` is no program"),
            ("4294967295", "no process has the number 4294967295"),
            ("docker:web", "there is no kind of target `docker:`"),
        ] {
            let said = meant(&[word]).unwrap();
            assert!(
                said.starts_with(wanted) && said.contains("uniprof record -- PROGRAM"),
                "{said}"
            );
        }
        assert_eq!((meant(&[""]), meant(&[])), (None, None));
    }
}
