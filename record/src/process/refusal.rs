//! Why perf events can't be used, and what can be done.

use super::scope::Scope;
use crate::source::SourceError;
use nix::errno::Errno;

/// Why perf events can't be used.
#[derive(Debug)]
pub enum Refusal {
    /// Not permitted, or not supported on this system: another way may work.
    Forbidden(Errno),
    /// Another error, which concerns every way.
    Failed(SourceError),
}

/// The meaning of an `error` of opening events on `scope`.
pub fn refusal(error: Errno, scope: &Scope) -> Refusal {
    let scope = scope.described();
    match error {
        Errno::EACCES | Errno::EPERM | Errno::ENOSYS | Errno::ENOENT => Refusal::Forbidden(error),
        Errno::ESRCH => Refusal::Failed(SourceError(format!(
            "{scope} ended before it could be recorded"
        ))),
        Errno::EMFILE => Refusal::Failed(SourceError::system(
            format!("cannot watch {scope}"),
            error,
            "raise the limit on open files (ulimit -n)",
        )),
        _ => Refusal::Failed(SourceError::system(
            format!("cannot open perf events on {scope}"),
            error,
            "run `uniprof doctor` for what this machine allows",
        )),
    }
}
