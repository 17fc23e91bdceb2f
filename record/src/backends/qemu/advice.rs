//! Recommends QEMU options that would make sampling cheaper.
//!
//! Input: the machine as described by its monitor. Output: sentences, the most useful first.

use super::machine::{Machine, Stub};
use super::ram::QemuRam;
use crate::guest::endpoint::Endpoint;
use uprof::Arch;

/// Recommended changes to a machine with this stub that libvirt (`is_libvirt`) or someone else runs as `process`, with
/// reasons; empty if nothing is left to improve.
pub fn advice(
    machine: &Machine,
    stub: &Stub,
    is_libvirt: bool,
    process: Option<i32>,
) -> Vec<String> {
    let mut all = Vec::new();
    let arch = match machine.arch.as_str() {
        "aarch64" => Arch::Aarch64,
        _ => Arch::X86_64,
    };
    if let Err(why) = QemuRam::open(machine, arch, process) {
        let how = if is_libvirt {
            "give the domain <memoryBacking><source type='file'/><access mode='shared'/></memoryBacking>"
        } else {
            "give QEMU -object memory-backend-file,id=mem,size=SIZE,mem-path=/dev/shm/NAME,share=on \
             -machine memory-backend=mem"
        };
        all.push(format!(
            "guest memory is read through the gdb stub ({why}): {how}, and a sample needs one round trip instead of two"
        ));
    }
    match stub {
        Stub::None if is_libvirt => {} // `uniprof record` starts it
        Stub::None => all.push(
            "the gdb stub is not started: `uniprof record` starts it for the recording; \
             -gdb unix:PATH,server=on,wait=off does so from the start"
                .into(),
        ),
        Stub::Taken => all.push(
            "a debugger is connected to the gdb stub, which serves one at a time: detach it".into(),
        ),
        Stub::Listens(Endpoint::Tcp(_)) => all.push(
            "the gdb stub listens on TCP, where anybody may connect: \
             -gdb unix:PATH,server=on,wait=off is faster, and guarded by file permissions"
                .into(),
        ),
        Stub::Listens(Endpoint::Unix(_)) => {}
    }
    if !machine.kvm {
        let how = if is_libvirt {
            "<domain type='kvm'>"
        } else {
            "-accel kvm"
        };
        all.push(format!(
            "the guest is emulated (TCG), so that its speed is not that of a processor: {how}, where the host can"
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lack_has_its_advice() {
        let bare = advice(&Machine::default(), &Stub::None, false, None);
        assert_eq!(bare.len(), 3, "{bare:?}");
        assert!(bare[0].contains("memory-backend-file"));
        let managed = advice(&Machine::default(), &Stub::None, true, None);
        assert_eq!(managed.len(), 2, "{managed:?}");
        assert!(managed[0].contains("<memoryBacking>"));
        let unix = Machine {
            kvm: true,
            ..Machine::default()
        };
        let stub = Stub::Listens(Endpoint::Unix("/run/gdb".into()));
        assert_eq!(advice(&unix, &stub, false, None).len(), 1);
    }
}
