//! Shows whether a recording was made on this machine, since its last boot. A recorder leaves a mark in the recording,
//! and a report compares it with its own machine's. Only if they match, and the file belongs to the reader or to root,
//! may paths in the recording lead to files of the reader.

use std::fs;

/// The name of the note with the mark of the machine that made the recording.
pub const MADE_ON: &str = "made on";

/// The mark of this machine until its next boot; `None` if the machine lacks the numbers it is made of. It consists of
/// sixteen hexadecimal digits, made from the machine-id(5) and the random number that Linux draws at each boot. Nobody
/// who doesn't know both can forge the mark, and the mark doesn't reveal them. Every user of the machine knows both.
pub fn mark() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    // Not every container has a machine-id.
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    Some(mark_of(machine.trim(), boot.trim()))
}

/// FNV-1a (Fowler, Noll, Vo) of 64 bits.
fn mark_of(machine: &str, boot: &str) -> String {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x100_0000_01b3;
    let bytes = machine.bytes().chain([b' ']).chain(boot.bytes());
    let hash = bytes.fold(BASIS, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_machine_or_another_start_has_another_mark() {
        let marks = [("a", "1"), ("a", "2"), ("b", "1"), ("", "a 1")];
        let marks = marks.map(|(machine, boot)| mark_of(machine, boot));
        assert!(marks.iter().all(|mark| mark.len() == 16));
        let first = &marks[0];
        assert!(marks[1..3].iter().all(|mark| mark != first), "{marks:?}");
        assert_eq!(mark(), mark());
    }
}
