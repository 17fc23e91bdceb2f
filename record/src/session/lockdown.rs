//! Drops privileges once the guest is open, except the few that sampling and writing need.
//!
//! Dropped privileges can't be regained. docs/security.md says why each remaining privilege is needed, and why there is
//! no seccomp filter.

use crate::source::SourceError;
use crate::sys::privileges::{Capability, forbid_core_files, keep_only};
use std::fs::Metadata;
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

/// The rights of a folder's owner that it takes to create, rename and remove files in it.
const WRITABLE: u32 = 0o300;

/// Drops the privileges that recording into `output` (`None`: a pipe) does not need. Must be called after source and
/// output were opened and before any thread is started.
///
/// # Errors
/// The kernel's error.
pub fn lock_down(output: Option<&Path>) -> Result<(), SourceError> {
    let mut kept = KEPT.to_vec();
    if output.is_some_and(is_in_closed_folder) {
        kept.push(Capability::WriteAnyFile);
    }
    forbid_core_files()
        .and_then(|()| keep_only(&kept))
        .map_err(|errno| SourceError::system("cannot give up privileges", errno, ""))
}

/// Whether the output's folder belongs to another user, or lets its own not write: root then needs the right to replace
/// the file there at the end.
fn is_in_closed_folder(output: &Path) -> bool {
    let folder = match output.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let own = nix::unistd::geteuid().as_raw();
    let is_open = |found: &Metadata| found.uid() == own && found.mode() & WRITABLE == WRITABLE;
    std::fs::metadata(folder).is_ok_and(|found| !is_open(&found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_of_our_own_needs_no_privilege_where_we_may_write() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("run.uprof");
        let is_closed = |mode| {
            std::fs::set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
            is_in_closed_folder(&output)
        };
        assert!(!is_closed(0o700));
        // /root is such a folder on Fedora.
        assert!(is_closed(0o550));
        assert!(is_closed(0o600));
        assert!(!is_closed(0o700));
        let own = nix::unistd::geteuid().as_raw();
        assert_eq!(is_in_closed_folder(Path::new("/run.uprof")), own != 0);
    }
}
