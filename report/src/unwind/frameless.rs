//! Functions of Go's runtime that call others without a frame pointer of their own, or with another stack. A chain of
//! frame pointers goes on with the caller's caller, and rules with the stack that was left. Source: Go's
//! runtime/asm_amd64.s and sys_linux_amd64.s, and runtime/traceback.go for where its own stacks end.

use std::ops::Range;

/// A function whose callers are not found as usual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frameless {
    /// Its code.
    pub(crate) code: Range<u64>,
    /// Where it calls others.
    pub(crate) stack: CalledOn,
}

/// The stack that callees have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CalledOn {
    /// The caller's.
    Same,
    /// Another one, while the caller's waits.
    Other,
    /// The scheduler's. The goroutine may go on in another thread meanwhile, so that it has no more to do with it.
    Schedulers,
    /// Another one, for a function that has no frame yet: its caller is missing, too.
    ForFrameless,
}

/// What the function with this name, as the linker wrote it, calls with; `None` if its callers are found as usual.
pub(crate) fn called_on(name: &str) -> Option<CalledOn> {
    // The linker's name has the calling convention.
    let name = name.strip_suffix(".abi0").unwrap_or(name);
    if name == "time.now" {
        return Some(CalledOn::Other);
    }
    match name.strip_prefix("runtime.")? {
        "asmcgocall" | "systemstack" => Some(CalledOn::Other),
        // They call the vDSO.
        "nanotime1" | "walltime" | "walltime1" | "vgetrandom1" => Some(CalledOn::Other),
        "mcall" => Some(CalledOn::Schedulers),
        "morestack" => Some(CalledOn::ForFrameless),
        // One for each register that the pointer is in.
        barrier if barrier.starts_with("gcWriteBarrier") => Some(CalledOn::Same),
        _ => None,
    }
}

/// The name of the function that a closure called `name` was written in.
pub(crate) fn enclosing(name: &str) -> Option<&str> {
    let mut outer = name;
    while let Some((rest, last)) = outer.rsplit_once('.') {
        let number = ["func", "gowrap", "deferwrap"]
            .into_iter()
            .find_map(|word| last.strip_prefix(word))
            .unwrap_or(last);
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            break;
        }
        outer = rest;
    }
    (outer.len() < name.len()).then_some(outer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closures_name_has_that_of_its_function() {
        for (name, outer) in [
            (
                "runtime.gcBgMarkWorker.func2",
                Some("runtime.gcBgMarkWorker"),
            ),
            ("runtime.gcMarkDone.func1.1", Some("runtime.gcMarkDone")),
            ("main.(*t).run.gowrap1", Some("main.(*t).run")),
            ("runtime.gcBgMarkWorker", None),
            ("main.func", None),
            ("", None),
        ] {
            assert_eq!(enclosing(name), outer, "{name}");
        }
    }

    #[test]
    fn functions_are_known_with_either_calling_convention() {
        assert_eq!(called_on("runtime.systemstack.abi0"), Some(CalledOn::Other));
        assert_eq!(called_on("runtime.mcall"), Some(CalledOn::Schedulers));
        assert_eq!(called_on("runtime.gcWriteBarrierDX"), Some(CalledOn::Same));
        assert_eq!(called_on("time.now.abi0"), Some(CalledOn::Other));
        assert_eq!(called_on("runtime.mallocgc"), None);
        assert_eq!(called_on("main.mcall"), None);
    }
}
