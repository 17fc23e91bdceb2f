//! Drops privileges once the guest is open, except the few that sampling and writing need.
//!
//! Dropped privileges can't be regained. docs/security.md says why each remaining privilege is needed, and why there is
//! no seccomp filter.

use crate::source::SourceError;
use crate::sys::privileges::{Capability, forbid_core_files, keep_only};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Always kept: to read the build-ids of anyone's images; to trace, read and resume threads that start later; to name
/// functions of the kernel; to open the files that a process has mapped.
const KEPT: [Capability; 5] = [
    Capability::ReadAnyFile,
    Capability::Kill,
    Capability::Trace,
    Capability::KernelAddresses,
    Capability::MappedFiles,
];

/// Drops the privileges that recording into `output` (`None`: a pipe) does not need. Must be called after source and
/// output were opened and before any thread is started.
///
/// # Errors
/// The kernel's error.
pub fn lock_down(output: Option<&Path>) -> Result<(), SourceError> {
    let mut kept = KEPT.to_vec();
    if output.is_some_and(is_in_folder_of_another) {
        kept.push(Capability::WriteAnyFile);
    }
    forbid_core_files()
        .and_then(|()| keep_only(&kept))
        .map_err(|errno| SourceError::system("cannot give up privileges", errno, ""))
}

/// Whether the output's folder belongs to another user: root then needs the right to replace the file there at the end.
fn is_in_folder_of_another(output: &Path) -> bool {
    let folder = match output.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let own = nix::unistd::geteuid().as_raw();
    std::fs::metadata(folder).is_ok_and(|found| found.uid() != own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_our_own_needs_no_privilege() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_in_folder_of_another(&folder.path().join("run.uprof")));
        let own = nix::unistd::geteuid().as_raw();
        assert_eq!(is_in_folder_of_another(Path::new("/run.uprof")), own != 0);
    }
}
