//! Opens a QEMU guest: facts and memory from the monitor, registers from the gdb stub.

use super::machine::{Machine, Stub, ask_stub, command_line};
use super::qmp::{Monitor, Qmp};
use super::ram::QemuRam;
use crate::backends::gdb::guard::Afterwards;
use crate::backends::gdb::guest_ram::GuestRam;
use crate::backends::gdb::open::{self as stub, Opening};
use crate::backends::gdb::vcpu_threads::VcpuThreads;
use crate::elf::Image;
use crate::guest::endpoint::Endpoint;
use crate::source::plan::Plan;
use crate::source::{Source, SourceError};
use serde_json::json;
use std::path::PathBuf;
use uprof::Arch;
use uprof::cold::TargetKind;

/// Opens the guest of `monitor`, to sample it.
///
/// Must be called while the process has one thread, since it forks a guardian.
///
/// # Errors
/// Says why the guest can't be sampled; it keeps running.
pub fn open(monitor: &Monitor, images: Vec<Image>, plan: &Plan) -> Result<Source, SourceError> {
    stub::open(opening(monitor, images)?, plan)
}

/// Queries the monitor for everything that is needed to open the guest's stub, and starts a stub if there is none.
///
/// # Errors
/// Says why the guest can't be recorded; it keeps running.
pub fn opening(monitor: &Monitor, images: Vec<Image>) -> Result<Opening, SourceError> {
    opening_of(monitor, images, "running")
}

/// The same for a guest whose status is `wanted`.
pub(super) fn opening_of(
    monitor: &Monitor,
    mut images: Vec<Image>,
    wanted: &str,
) -> Result<Opening, SourceError> {
    let mut qmp = monitor.connect()?;
    let (machine, process) = ask(monitor, &mut qmp)?;
    let stub = stub_of(&mut qmp, process)?;
    let arch = match machine.arch.as_str() {
        "x86_64" => Arch::X86_64,
        "aarch64" => Arch::Aarch64,
        other => {
            return Err(SourceError(format!(
                "the guest of {monitor} is {other}, and uniprof samples x86-64 and 64-bit Arm guests only"
            )));
        }
    };
    if machine.status != wanted {
        return Err(SourceError(format!(
            "the guest of {monitor} is not running (QEMU says: {}); let it run (`cont` in the monitor) and \
             record again",
            machine.status
        )));
    }
    let (endpoint, started) = find_stub(&mut qmp, &stub, monitor)?;
    let ram = QemuRam::open(&machine, arch, process);
    let mut notes = notes(&machine);
    if let Err(why) = &ram {
        notes.push((
            "guest memory is read through the stub".into(),
            why.to_string(),
        ));
    }
    let kernel = machine
        .kernel
        .as_deref()
        .map(|path| Image::open(path, None));
    let vcpu_threads =
        process.and_then(|pid| VcpuThreads::open(pid, &machine.threads, machine.kvm));
    drop(qmp);
    if images.is_empty() {
        // A kernel that is not an ELF image, such as a bzImage, has no addresses.
        images.extend(kernel.and_then(Result::ok));
    }
    Ok(Opening {
        endpoint,
        kind: TargetKind::Qemu,
        name: if machine.name.is_empty() {
            monitor.to_string()
        } else {
            machine.name.clone()
        },
        ram: ram.ok().map(|ram| Box::new(ram) as Box<dyn GuestRam>),
        vcpu_threads,
        notes,
        warnings: Vec::new(),
        emulated: Some(!machine.kvm),
        images: images.into(),
        afterwards: started.then(|| {
            let monitor = monitor.clone();
            Afterwards::new(move || stop_stub(&monitor))
        }),
    })
}

/// The process of a guest that runs under KVM, and its kernel if that is an ELF file. Its vCPUs can be watched there.
///
/// # Errors
/// Says why there is none.
pub fn kvm_process(monitor: &Monitor) -> Result<(i32, Option<Image>), SourceError> {
    let (machine, process) = ask(monitor, &mut monitor.connect()?)?;
    if !machine.kvm {
        return Err(SourceError(format!(
            "--host shows what KVM does, and the guest of {monitor} is emulated: record it without --host"
        )));
    }
    let pid = process.ok_or_else(|| {
        SourceError(format!(
            "--host needs the process of {monitor}, which can't be told from here: use kvm:PID with its number"
        ))
    })?;
    let kernel = machine.kernel.as_deref();
    Ok((pid, kernel.and_then(|path| Image::open(path, None).ok())))
}

/// The machine, and QEMU's process.
///
/// # Errors
/// The monitor does not answer, or does not know a command.
pub(super) fn ask(monitor: &Monitor, qmp: &mut Qmp) -> Result<(Machine, Option<i32>), SourceError> {
    let machine = Machine::ask(qmp)?;
    let process = process_of(monitor, qmp, &machine);
    Ok((machine, process))
}

/// The gdb stub of QEMU, whose process is given if it is known.
///
/// # Errors
/// The monitor does not answer.
pub(super) fn stub_of(qmp: &mut Qmp, process: Option<i32>) -> Result<Stub, SourceError> {
    Ok(ask_stub(qmp, process.and_then(command_line).as_deref())?)
}

/// QEMU's process: the listener at its monitor's socket. If that is libvirt's or a port, it is the process of the first
/// vCPU's thread, provided that it was started with the machine's name or that port. This is checked since thread ids
/// mean nothing here if QEMU is in another PID namespace.
fn process_of(monitor: &Monitor, qmp: &Qmp, machine: &Machine) -> Option<i32> {
    let (separators, word): (&[u8], String) = match monitor {
        Monitor::Socket(Endpoint::Unix(_)) => return qmp.listener(),
        Monitor::Socket(Endpoint::Tcp(address)) => (b":,", address.rsplit_once(':')?.1.to_owned()),
        Monitor::Libvirt(_) => (b",", format!("guest={}", machine.name)),
    };
    let first = machine.threads.first()?;
    let status = std::fs::read_to_string(format!("/proc/{first}/status")).ok()?;
    let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    let pid = pid.trim().parse().ok()?;
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut parts = words.split(|byte| *byte == 0 || separators.contains(byte));
    parts.any(|part| part == word.as_bytes()).then_some(pid)
}

fn notes(machine: &Machine) -> Vec<(String, String)> {
    let accelerator = if machine.kvm {
        "KVM"
    } else {
        "TCG (emulation)"
    };
    let mut notes = vec![
        ("QEMU version".to_string(), machine.version.clone()),
        ("machine".to_string(), machine.kind.clone()),
        ("accelerator".to_string(), accelerator.to_string()),
    ];
    if let Some(kernel) = &machine.kernel {
        notes.push(("kernel".into(), kernel.display().to_string()));
    }
    notes
}

/// The machine's stub, or one that is started beside the monitor's socket.
fn find_stub(
    qmp: &mut Qmp,
    stub: &Stub,
    monitor: &Monitor,
) -> Result<(Endpoint, bool), SourceError> {
    let taken = || {
        SourceError(format!(
            "another debugger is connected to the gdb stub of {monitor}, which serves one at a time; detach \
             it first"
        ))
    };
    match stub {
        Stub::Listens(endpoint) => return Ok((endpoint.clone(), false)),
        Stub::Taken => return Err(taken()),
        Stub::None => {}
    }
    let socket = match monitor {
        // QEMU has a working directory of its own, so the path must be absolute.
        Monitor::Socket(Endpoint::Unix(path)) => {
            Some(std::path::absolute(path).unwrap_or_else(|_| path.clone()))
        }
        Monitor::Socket(Endpoint::Tcp(_)) => None,
        Monitor::Libvirt(_) => socket_of_libvirt(qmp)?,
    };
    let beside = socket.map(|path| format!("unix:{}.gdb,server=on,wait=off", path.display()));
    let devices = beside.into_iter().chain(["tcp:127.0.0.1:0".to_owned()]);
    let mut complaint = String::new();
    for device in devices {
        let quoted = device.replace('\\', "\\\\").replace('"', "\\\"");
        complaint = qmp.human(&format!("gdbserver \"{quoted}\""))?;
        // The command line doesn't matter: QEMU calls the device of the stub that it starts now `gdb`.
        match ask_stub(qmp, Some(&[]))? {
            Stub::Listens(endpoint) => return Ok((endpoint, true)),
            Stub::Taken => return Err(taken()),
            Stub::None => {}
        }
        // A stub at another address would keep QEMU from starting ours.
        qmp.human("gdbserver none")?;
    }
    Err(SourceError(format!(
        "QEMU could not start its gdb stub for {monitor} ({}); start QEMU with -gdb \
         unix:PATH,server=on,wait=off",
        complaint.split_whitespace().collect::<Vec<_>>().join(" ")
    )))
}

/// The socket of the monitor that libvirt is connected to. This QEMU may write to the socket's folder.
fn socket_of_libvirt(qmp: &mut Qmp) -> Result<Option<PathBuf>, SourceError> {
    let devices = qmp.run("query-chardev", json!({}))?;
    let mut devices = devices.as_array().into_iter().flatten();
    let socket = devices
        .find(|device| device["label"] == "charmonitor")
        .and_then(|device| device["filename"].as_str()?.strip_prefix("unix:"))
        .and_then(|file| file.split(',').next());
    Ok(socket.map(PathBuf::from))
}

/// Stops a stub that was started for the recording.
fn stop_stub(monitor: &Monitor) {
    // If the monitor is gone, or another program now uses it, the stub stays: whoever may connect to it can read and
    // change the guest.
    if let Ok(mut qmp) = monitor.connect() {
        let _ = qmp.human("gdbserver none");
    }
}
