//! Names and numbers of Linux's errors (include/uapi/asm-generic/errno*.h).

/// Names by number, from 1; empty for numbers without a name.
const NAMES: &[&str] = &[
    "EPERM",
    "ENOENT",
    "ESRCH",
    "EINTR",
    "EIO",
    "ENXIO",
    "E2BIG",
    "ENOEXEC",
    "EBADF",
    "ECHILD",
    "EAGAIN",
    "ENOMEM",
    "EACCES",
    "EFAULT",
    "ENOTBLK",
    "EBUSY",
    "EEXIST",
    "EXDEV",
    "ENODEV",
    "ENOTDIR",
    "EISDIR",
    "EINVAL",
    "ENFILE",
    "EMFILE",
    "ENOTTY",
    "ETXTBSY",
    "EFBIG",
    "ENOSPC",
    "ESPIPE",
    "EROFS",
    "EMLINK",
    "EPIPE",
    "EDOM",
    "ERANGE",
    "EDEADLK",
    "ENAMETOOLONG",
    "ENOLCK",
    "ENOSYS",
    "ENOTEMPTY",
    "ELOOP",
    "",
    "ENOMSG",
    "EIDRM",
    "ECHRNG",
    "EL2NSYNC",
    "EL3HLT",
    "EL3RST",
    "ELNRNG",
    "EUNATCH",
    "ENOCSI",
    "EL2HLT",
    "EBADE",
    "EBADR",
    "EXFULL",
    "ENOANO",
    "EBADRQC",
    "EBADSLT",
    "",
    "EBFONT",
    "ENOSTR",
    "ENODATA",
    "ETIME",
    "ENOSR",
    "ENONET",
    "ENOPKG",
    "EREMOTE",
    "ENOLINK",
    "EADV",
    "ESRMNT",
    "ECOMM",
    "EPROTO",
    "EMULTIHOP",
    "EDOTDOT",
    "EBADMSG",
    "EOVERFLOW",
    "ENOTUNIQ",
    "EBADFD",
    "EREMCHG",
    "ELIBACC",
    "ELIBBAD",
    "ELIBSCN",
    "ELIBMAX",
    "ELIBEXEC",
    "EILSEQ",
    "ERESTART",
    "ESTRPIPE",
    "EUSERS",
    "ENOTSOCK",
    "EDESTADDRREQ",
    "EMSGSIZE",
    "EPROTOTYPE",
    "ENOPROTOOPT",
    "EPROTONOSUPPORT",
    "ESOCKTNOSUPPORT",
    "EOPNOTSUPP",
    "EPFNOSUPPORT",
    "EAFNOSUPPORT",
    "EADDRINUSE",
    "EADDRNOTAVAIL",
    "ENETDOWN",
    "ENETUNREACH",
    "ENETRESET",
    "ECONNABORTED",
    "ECONNRESET",
    "ENOBUFS",
    "EISCONN",
    "ENOTCONN",
    "ESHUTDOWN",
    "ETOOMANYREFS",
    "ETIMEDOUT",
    "ECONNREFUSED",
    "EHOSTDOWN",
    "EHOSTUNREACH",
    "EALREADY",
    "EINPROGRESS",
    "ESTALE",
    "EUCLEAN",
    "ENOTNAM",
    "ENAVAIL",
    "EISNAM",
    "EREMOTEIO",
    "EDQUOT",
    "ENOMEDIUM",
    "EMEDIUMTYPE",
    "ECANCELED",
    "ENOKEY",
    "EKEYEXPIRED",
    "EKEYREVOKED",
    "EKEYREJECTED",
    "EOWNERDEAD",
    "ENOTRECOVERABLE",
    "ERFKILL",
    "EHWPOISON",
];

/// Errors with which the kernel restarts a system call. Tracers see them, programs don't.
const RESTARTS: &[(&str, i64)] = &[
    ("ERESTARTSYS", 512),
    ("ERESTARTNOINTR", 513),
    ("ERESTARTNOHAND", 514),
    ("ERESTART_RESTARTBLOCK", 516),
];

/// The number of an error; `None` if the name is unknown.
pub(crate) fn number(name: &[u8]) -> Option<i64> {
    if name.is_empty() {
        return None;
    }
    let restart = RESTARTS.iter().find(|(known, _)| known.as_bytes() == name);
    let place = NAMES.iter().position(|known| known.as_bytes() == name);
    restart
        .map(|(_, number)| *number)
        .or(place.map(|place| place as i64 + 1))
}

/// The error in the result of a system call: its name, or its number if it has none. `None` if the result
/// isn't an error.
pub(crate) fn of_result(result: i64) -> Option<String> {
    // The kernel returns errors as the numbers from -4095 to -1.
    let number = result
        .checked_neg()
        .filter(|number| (1..4096).contains(number))?;
    let restart = RESTARTS.iter().find(|(_, known)| *known == number);
    let named = NAMES.get(number as usize - 1).copied();
    let name = restart.map(|(name, _)| *name).or(named);
    let name = name.filter(|name| !name.is_empty());
    Some(name.map_or_else(|| format!("error {number}"), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_linuxs() {
        let known = [
            ("EPERM", libc::EPERM),
            ("EAGAIN", libc::EAGAIN),
            ("ENOSYS", libc::ENOSYS),
            ("ENODATA", libc::ENODATA),
            ("EBADFD", libc::EBADFD),
            ("EISCONN", libc::EISCONN),
            ("ECANCELED", libc::ECANCELED),
            ("EHWPOISON", libc::EHWPOISON),
        ];
        for (name, expected) in known {
            assert_eq!(number(name.as_bytes()), Some(i64::from(expected)), "{name}");
        }
        assert_eq!(number(b"ERESTARTSYS"), Some(512));
        assert_eq!(number(b""), None);
        assert_eq!(number(b"ENONSENSE"), None);
        let told = [-2, -512, -4095, -4096, 0, 3, i64::MIN].map(of_result);
        let expected = [
            Some("ENOENT"),
            Some("ERESTARTSYS"),
            Some("error 4095"),
            None,
            None,
            None,
            None,
        ];
        assert_eq!(told, expected.map(|name| name.map(str::to_owned)));
    }
}
