//! The limit on open files of this process (getrlimit(2)).

use nix::errno::Errno;

/// Raises the limit as far as possible without privileges.
///
/// # Errors
/// The error of `getrlimit` or `setrlimit`.
pub fn raise_limit() -> Result<(), Errno> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the struct outlives the call, which writes nothing else.
    Errno::result(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the struct outlives the call, which only reads it.
    Errno::result(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }).map(drop)
}
