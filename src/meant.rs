//! What somebody meant who gave `record` a word that is no target here: the first thing that users of other profilers
//! try.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What to type instead, where there is no Xen and `targets` would be its domains: for a program, a process or its
/// name.
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
    is_running(first)
        .then(|| format!("`{first}` is the name of a process here: uniprof record name:{first}"))
}

/// Whether `word` would be started by a shell: a file that may be executed, by its path or in a folder of PATH.
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

/// Whether a process is called so.
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
        for words in [
            &["/etc/passwd"][..],
            &["/bin"],
            &["no-such-word-here"],
            &["4294967295"],
            &[""],
            &[],
        ] {
            assert_eq!(meant(words), None, "{words:?}");
        }
    }
}
