//! Examines whether a QEMU guest can be recorded well, and which options would make it cheaper.

use super::advice::advice;
use super::machine::{command_line, is_option};
use super::qmp::Monitor;
use super::source;
use crate::elf::GivenImage;
use crate::guest::checks::{examine_source, say_image};
use crate::source::SourceError;
use crate::source::doctor::{Report, Verdict};
use crate::source::plan::Plan;
use crate::sys::pids;
use std::path::{Path, PathBuf};

/// Most guests that are listed.
const GUESTS_MAX: usize = 32;

/// Examines the guest of `monitor`.
pub fn examine(monitor: &Monitor, elf: Option<&GivenImage>) -> Report {
    let mut report = Report::default();
    let ask = || {
        let mut qmp = monitor.connect()?;
        let (machine, process) = source::ask(monitor, &mut qmp)?;
        let stub = source::stub_of(&mut qmp, process)?;
        Ok::<_, SourceError>((machine, process, stub))
    };
    let (machine, process, stub) = match ask() {
        Ok(found) => found,
        Err(error) => {
            report.say(Verdict::Bad, error.to_string());
            return report;
        }
    };
    // The default image is the kernel that QEMU was given, if it is an ELF file.
    let known = machine.kernel.clone().map(|path| GivenImage {
        path,
        address: None,
    });
    let known = known.filter(|kernel| kernel.open().is_ok());
    let elf = elf.or(known.as_ref());
    let image = say_image(&mut report, elf);
    let target = match monitor {
        Monitor::Socket(endpoint) => format!("qemu:{endpoint}"),
        Monitor::Libvirt(domain) => domain.to_string(),
    };
    let opened = source::open(monitor, Vec::new(), &Plan::default());
    examine_source(&mut report, opened, &target, image.as_ref(), elf);
    let is_libvirt = matches!(monitor, Monitor::Libvirt(_));
    for sentence in advice(&machine, &stub, is_libvirt, process) {
        report.say(Verdict::Poor, sentence);
    }
    report
}

/// Lists QEMU processes and their monitors.
pub fn examine_host(report: &mut Report) {
    let guests: Vec<(i32, Option<String>)> = pids::all()
        .into_iter()
        .filter_map(|pid| {
            let words = command_line(pid)?;
            let program = words.first()?.rsplit('/').next()?;
            program
                .starts_with("qemu-system")
                .then(|| (pid, target_of(&words, &folder_of(pid))))
        })
        .collect();
    if guests.is_empty() {
        report.say(Verdict::Absent, "QEMU: no guest runs");
    }
    for (pid, target) in guests.into_iter().take(GUESTS_MAX) {
        match target {
            Some(target) => {
                let text = format!("QEMU process {pid}: `uniprof doctor {target}`");
                report.say(Verdict::Good, text);
                report.targets.push(target);
            }
            None => report.say(
                Verdict::Poor,
                format!(
                    "QEMU process {pid} has no monitor for programs and no gdb stub: start it with \
                     -qmp unix:/run/NAME.qmp,server=on,wait=off"
                ),
            ),
        }
    }
}

fn folder_of(pid: i32) -> PathBuf {
    std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default()
}

/// The target that records the QEMU with this command line: its monitor, or else its stub. Relative paths start in its
/// `folder`.
fn target_of(words: &[impl AsRef<str>], folder: &Path) -> Option<String> {
    let values = |option: &'static str| {
        let pairs = words.windows(2);
        let found = pairs.filter(move |pair| is_option(pair[0].as_ref(), option));
        found.map(|pair| pair[1].as_ref())
    };
    let value = |option| values(option).next();
    let first = |text: &str| text.split(',').next().unwrap_or_default().to_owned();
    if let Some(path) = value("qmp").and_then(|it| it.strip_prefix("unix:")) {
        return Some(format!("qemu:{}", folder.join(first(path)).display()));
    }
    // libvirt itself is connected to the monitor, so no other program can be.
    if words
        .iter()
        .any(|word| word.as_ref().starts_with("socket,id=charmonitor"))
    {
        let name = value("name")?.split(',').next()?;
        return Some(format!("libvirt:{}", name.strip_prefix("guest=")?));
    }
    if words.iter().any(|word| is_option(word.as_ref(), "s")) {
        return Some("gdb::1234".into());
    }
    let stub = value("gdb")?;
    if let Some(id) = stub.strip_prefix("chardev:") {
        // Nobody can connect to another kind of device, or to a client.
        let is_server = |device: &&str| {
            let mut parts = device.split(',');
            parts.next() == Some("socket") && parts.any(|it| matches!(it, "server" | "server=on"))
        };
        let device = values("chardev").find(|device| property(device, "id") == Some(id));
        let device = device.filter(is_server)?;
        return Some(match property(device, "path") {
            Some(path) => format!("gdb:{}", folder.join(path).display()),
            None => {
                let host = property(device, "host").unwrap_or_default();
                format!("gdb:{host}:{}", property(device, "port")?)
            }
        });
    }
    let socket = stub.strip_prefix("unix:");
    let socket = socket.map(|path| format!("gdb:{}", folder.join(first(path)).display()));
    socket.or_else(|| Some(format!("gdb:{}", first(stub.strip_prefix("tcp:")?))))
}

/// The value of a property of a device, such as `socket,id=gdb0,path=/run/g`.
fn property<'a>(device: &'a str, name: &str) -> Option<&'a str> {
    let mut properties = device.split(',');
    properties.find_map(|one| one.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_command_lines() {
        let of = |line: &str| target_of(&line.split(' ').collect::<Vec<_>>(), Path::new("/vm"));
        let monitor = "qemu-system-x86_64 -s -qmp unix:/run/a.qmp,server=on,wait=off";
        assert_eq!(of(monitor).as_deref(), Some("qemu:/run/a.qmp"));
        assert_eq!(of("qemu -m 1G -s").as_deref(), Some("gdb::1234"));
        assert_eq!(of("qemu --gdb tcp::99,server").as_deref(), Some("gdb::99"));
        assert_eq!(of("qemu -gdb unix:/run/g").as_deref(), Some("gdb:/run/g"));
        assert_eq!(of("qemu -qmp unix:a").as_deref(), Some("qemu:/vm/a"));
        let device = "qemu -chardev pty,id=a -chardev socket,path=g,server=on,id=b -gdb chardev:b";
        assert_eq!(of(device).as_deref(), Some("gdb:/vm/g"));
        let port = "qemu -chardev socket,id=b,port=99,server -gdb chardev:b";
        assert_eq!(of(port).as_deref(), Some("gdb::99"));
        let managed = "qemu -name guest=web,debug-threads=on -chardev socket,id=charmonitor,fd=29";
        assert_eq!(of(managed).as_deref(), Some("libvirt:web"));
        for other in [
            "qemu -S -nographic",
            "qemu -qmp stdio",
            "qemu -gdb",
            "qemu -chardev socket,path=g,server=on,id=b -gdb chardev:c",
            "qemu -chardev socket,path=g,id=b -gdb chardev:b",
            "qemu -chardev socket,path=g,server=off,id=b -gdb chardev:b",
            "qemu -chardev serial,path=/dev/ttyS0,id=b -gdb chardev:b",
            "qemu -chardev socket,id=charmonitor,fd=3",
            "qemu -name qmp unix:/a",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
