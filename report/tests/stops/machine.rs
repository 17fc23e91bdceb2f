//! A machine under QEMU, stopped by gdb.

use super::Dump;
use super::driver::{Target, run_gdb};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use uprof::Arch;

/// Functions to continue to before every tenth stop: work, interrupt handlers, assembly.
const GO_TO: &str = "interrupt_work,timer_tick,timer_entry,burn,descend,one_round";
/// The aarch64 guest has no interrupt handler.
const GO_TO_AARCH64: &str = "burn,descend,one_round";

struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself; in both cases it is gone afterwards.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A machine for the guest, with one processor.
fn machine(arch: Arch, image: &Path) -> Command {
    let mut machine = Command::new(match arch {
        Arch::X86_64 => "qemu-system-x86_64",
        Arch::Aarch64 => "qemu-system-aarch64",
    });
    match arch {
        Arch::X86_64 => machine.args(["-M", "q35"]),
        Arch::Aarch64 => machine.args(["-M", "virt", "-cpu", "max,sve=off,sme=off"]),
    };
    machine
        .args([
            "-smp", "1", "-m", "128", "-display", "none", "-nic", "none", "-serial", "null",
        ])
        .args([
            "-monitor",
            "none",
            "-S",
            "-append",
            "deep=12 irq",
            "-kernel",
        ])
        .arg(image);
    machine
}

/// Boots `image`, and stops it `stops` times under gdb.
pub fn stop(arch: Arch, image: &Path, stops: usize, seed: usize) -> Dump {
    // The port is free now. It is unlikely that another program takes it before QEMU does.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let remote = format!("127.0.0.1:{port}");
    let guest = machine(arch, image)
        .arg("-gdb")
        .arg(format!("tcp:{remote}"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("cannot run QEMU");
    let _guest = Guest(guest);
    let start = Instant::now();
    while TcpListener::bind(&remote).is_ok() {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "QEMU does not listen on {remote}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let go_to = if arch == Arch::X86_64 {
        GO_TO
    } else {
        GO_TO_AARCH64
    };
    run_gdb(
        image,
        go_to,
        &Target {
            remote: &remote,
            arch,
        },
        stops,
        seed,
    )
}
