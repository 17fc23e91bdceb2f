//! What the recorder gives up once its guest is open: it goes on with the few privileges that sampling
//! and writing need.
//!
//! Enters: where the recording goes. Leaves: nothing that could be taken back. docs/security.md says
//! what each privilege is kept for, and why there is no seccomp filter.

use crate::source::SourceError;
use crate::sys::privileges::{Capability, forbid_core_files, keep_only};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Always kept: images of any owner are read for their build-ids; threads that a process starts later
/// are traced, read and let go; functions of the kernel get their names; the files that a process has
/// mapped are opened, whatever lies at their paths.
const KEPT: [Capability; 5] = [
    Capability::ReadAnyFile,
    Capability::Kill,
    Capability::Trace,
    Capability::KernelAddresses,
    Capability::MappedFiles,
];

/// Gives up what recording into `output` (`None`: a pipe) no longer needs. To be called once the source
/// is open and the output too, before any thread is started.
///
/// # Errors
/// That the kernel refuses.
pub fn lock_down(output: Option<&Path>) -> Result<(), SourceError> {
    let mut kept = KEPT.to_vec();
    if output.is_some_and(is_in_folder_of_another) {
        kept.push(Capability::WriteAnyFile);
    }
    forbid_core_files()
        .and_then(|()| keep_only(&kept))
        .map_err(|errno| SourceError::system("cannot give up privileges", errno, ""))
}

/// Root that records into a user's folder replaces the file there at the end, and needs the right to.
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
