//! Starts QEMU, and holds an emulated guest before its first instruction.
//!
//! Input: the command line of QEMU. Output: a source whose guest has not begun. QEMU gets two options more: `-S`, by
//! which its vCPUs wait, and a monitor in a folder that only its user can open. A recorder that fails ends QEMU.

use super::qmp::Monitor;
use super::source::opening_of;
use crate::backends::gdb::open as stub;
use crate::elf::Image;
use crate::guest::command::{Child, Command};
use crate::source::plan::Plan;
use crate::source::{Life, Source, SourceError};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longest wait for QEMU's monitor.
const PATIENCE: Duration = Duration::from_secs(30);
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
/// QEMU's status with `-S`.
const BEFORE_START: &str = "prelaunch";

/// A folder for the sockets of one recording. QEMU and the recorder need their names only at the start.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Result<Self, SourceError> {
        let template = std::env::temp_dir().join("uniprof-boot-XXXXXX");
        let made = nix::unistd::mkdtemp(&template);
        made.map(Folder).map_err(|error| {
            let doing = format!(
                "cannot create a folder in {}",
                std::env::temp_dir().display()
            );
            SourceError::system(doing, error, "set TMPDIR")
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // At worst an empty folder is left.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether a command is QEMU, which emulates its guest unless it is told to use KVM.
pub fn emulates(arguments: &[String]) -> bool {
    let program = arguments.first().map_or("", String::as_str);
    let name = program.rsplit('/').next().unwrap_or_default();
    let uses_kvm = |word: &String| {
        let accelerators = word.split([',', ':', '=']);
        word == "-enable-kvm"
            || word == "--enable-kvm"
            || accelerators.into_iter().any(|one| one == "kvm")
    };
    name.starts_with("qemu-system-") && !arguments.iter().skip(1).any(uses_kvm)
}

/// Starts QEMU, and opens its guest. Must be called while the process has one thread, since it forks a guardian.
///
/// # Errors
/// Says why there is no guest; QEMU is ended.
pub fn open(command: &Command, images: Vec<Image>, plan: &Plan) -> Result<Source, SourceError> {
    let is_daemon = |word: &String| word.trim_start_matches('-') == "daemonize";
    if command.arguments.iter().any(is_daemon) {
        return Err(SourceError(
            "--boot ends QEMU with the recording, which it can't do in the background: leave -daemonize out".into(),
        ));
    }
    let folder = Folder::create()?;
    let socket = folder.0.join("qmp");
    let mut command = command.clone();
    let monitor = format!("unix:{},server=on,wait=off", socket.display());
    command
        .arguments
        .extend(["-S".into(), "-qmp".into(), monitor]);
    let mut child = command.start()?;
    child.go()?;
    let monitor = Monitor::at(&socket.to_string_lossy());
    await_monitor(&mut child, &monitor)?;
    let mut opening = opening_of(&monitor, images, BEFORE_START)?;
    if opening.name == monitor.to_string() {
        command.program().clone_into(&mut opening.name);
    }
    stub::open_boot(opening, plan, child)
}

fn await_monitor(child: &mut Child, monitor: &Monitor) -> Result<(), SourceError> {
    let begun = Instant::now();
    // Its socket may be there before anybody listens.
    while monitor.connect().is_err() {
        if let Life::Ended(how) | Life::Crashed(how) = child.life() {
            return Err(SourceError(format!(
                "{how} before its guest began: nothing was recorded"
            )));
        }
        if begun.elapsed() > PATIENCE {
            return Err(SourceError(format!(
                "`{}` made no monitor in {} s, and was ended: is it QEMU?",
                child.name(),
                PATIENCE.as_secs()
            )));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qemu_without_kvm_emulates() {
        let says = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            emulates(&words)
        };
        assert!(says("qemu-system-x86_64 -M q35"));
        assert!(says(
            "/usr/bin/qemu-system-aarch64 -accel tcg -kernel /boot/kvm.img"
        ));
        for line in [
            "qemu-system-x86_64 -enable-kvm",
            "qemu-system-x86_64 -accel kvm",
            "qemu-system-x86_64 -M q35,accel=kvm:tcg",
            "qemu-system-x86_64 -accel kvm,kernel-irqchip=off",
            "firecracker --no-api",
            "kvm",
            "",
        ] {
            assert!(!says(line), "{line}");
        }
    }
}
