//! Errors of calls: the call, its subject, the reason, and what to do about it.

use std::fmt;

/// A call to Xen, or to the kernel on the way there, that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XenError {
    /// The call, as a verb: `pause`, `map frames of`.
    pub call: &'static str,
    /// The subject of the call: `domain 7`, `/dev/xen/privcmd`.
    pub subject: String,
    /// The error number, positive (Xen's and Linux' agree for those that we explain).
    pub errno: i32,
}

impl XenError {
    /// An error with a number given by Xen or the kernel.
    pub fn new(call: &'static str, subject: impl Into<String>, errno: i32) -> Self {
        XenError {
            call,
            subject: subject.into(),
            errno,
        }
    }

    /// An error with the number of the system call that just failed.
    pub fn last_os_error(call: &'static str, subject: impl Into<String>) -> Self {
        let errno = nix::errno::Errno::last_raw();
        XenError::new(call, subject, errno)
    }

    /// Whether the domain doesn't exist (any more).
    pub fn is_gone(&self) -> bool {
        self.errno == libc::ESRCH
    }

    /// Whether there is no Xen here, or no access to it.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.errno, libc::ENOENT | libc::ENODEV | libc::ENXIO)
    }

    fn remedy(&self) -> &'static str {
        match self.errno {
            libc::EPERM | libc::EACCES => "; run in dom0, as root",
            _ if self.is_elsewhere() => {
                "; run in dom0 of a Xen host, with the kernel module xen_privcmd loaded"
            }
            libc::ESRCH => "; see `xl list` for the domains that there are",
            libc::ENOSYS | libc::EOPNOTSUPP => "; this Xen does not offer it",
            libc::ENOMEM => "; dom0 is short of memory",
            _ => "",
        }
    }
}

impl fmt::Display for XenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let XenError {
            call,
            subject,
            errno,
        } = self;
        let reason = match *errno {
            libc::ESRCH => "there is no such domain".to_owned(),
            libc::EPERM | libc::EACCES => "permission denied".to_owned(),
            errno => nix::errno::Errno::from_raw(errno).desc().to_owned(),
        };
        write!(f, "cannot {call} {subject}: {reason}{}", self.remedy())
    }
}

impl std::error::Error for XenError {}
