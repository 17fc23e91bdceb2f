//! Why perf events can't be used: an error of the kernel's goes in, what can be done comes out.

use super::whom::Whom;
use crate::source::SourceError;
use nix::errno::Errno;

/// Why perf events can't be used.
#[derive(Debug)]
pub enum Refusal {
    /// Not by us, or not on this system: another way may work.
    Forbidden(Errno),
    /// For a reason that concerns every way.
    Failed(SourceError),
}

/// What `error` means, met when events on `whom` were opened.
pub fn refusal(error: Errno, whom: &Whom) -> Refusal {
    let whom = whom.described();
    match error {
        Errno::EACCES | Errno::EPERM | Errno::ENOSYS | Errno::ENOENT => Refusal::Forbidden(error),
        Errno::ESRCH => Refusal::Failed(SourceError(format!(
            "{whom} ended before it could be recorded"
        ))),
        Errno::EMFILE => Refusal::Failed(SourceError::system(
            format!("cannot watch {whom}"),
            error,
            "raise the limit on open files (ulimit -n)",
        )),
        _ => Refusal::Failed(SourceError::system(
            format!("cannot open perf events on {whom}"),
            error,
            "run `uniprof doctor` for what this machine allows",
        )),
    }
}
