//! A machine as described by its monitor.
//!
//! Input: a monitor. Output: architecture, vCPUs, memory and its files, the gdb stub. Output of the human monitor that
//! can't be parsed is ignored.

use super::qmp::{Qmp, QmpError};
use crate::backends::gdb::handshake::MOST_VCPUS;
use crate::guest::endpoint::Endpoint;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::path::PathBuf;

/// Most ranges whose addresses in QEMU's process are asked for: machines have two or three.
const MOST_ASKED: usize = 16;

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// Its name, or empty.
    pub name: String,
    /// QEMU's name of the architecture, `x86_64`, `aarch64`.
    pub arch: String,
    /// `running`, `paused`, `prelaunch`, …
    pub status: String,
    /// QEMU's version.
    pub version: String,
    /// Machine type.
    pub kind: String,
    /// Threads of QEMU that run the vCPUs.
    pub threads: Vec<u64>,
    /// Whether hardware virtualisation is used, rather than emulation.
    pub kvm: bool,
    /// The kernel that was loaded, if it was given to QEMU.
    pub kernel: Option<PathBuf>,
    /// Shared memory back ends.
    pub backends: Vec<Backend>,
    /// Guest-physical addresses in the back ends.
    pub ranges: Vec<Range>,
}

/// A memory back end that is shared through a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// Its id.
    pub id: String,
    /// Its size.
    pub bytes: u64,
    /// Its file; `None` for one without a name (memfd).
    pub path: Option<PathBuf>,
}

/// A range of guest-physical addresses in a back end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// Its offset in the back end.
    pub offset: u64,
    /// Address of its first byte in QEMU's process, if the back end is in no shared file.
    pub host: Option<u64>,
    /// The back end's id.
    pub backend: String,
}

/// The gdb stub.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Stub {
    /// Not started.
    #[default]
    None,
    /// It listens here.
    Listens(Endpoint),
    /// A debugger is connected.
    Taken,
}

impl Machine {
    /// Queries all properties.
    ///
    /// # Errors
    /// The monitor does not answer, or does not know a command.
    pub fn ask(qmp: &mut Qmp) -> Result<Self, QmpError> {
        let text = |value: &Value, key: &str| {
            let found = value.get(key).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let version = qmp.run("query-version", json!({}))?;
        let part = |key: &str| version["qemu"][key].as_u64().unwrap_or(0);
        let vcpus = qmp.run("query-cpus-fast", json!({}))?;
        let vcpus = vcpus.as_array().map(Vec::as_slice).unwrap_or_default();
        if vcpus.len() > MOST_VCPUS {
            return Err(qmp.nonsense("it has too many vCPUs"));
        }
        let kernel = qmp.property("/machine", "kernel")?;
        let kernel = kernel
            .as_ref()
            .and_then(Value::as_str)
            .filter(|path| !path.is_empty());
        let kind = qmp.property("/machine", "type")?;
        let (backends, private) = ask_backends(qmp)?;
        let mut ranges = ranges(&qmp.human("info mtree -f")?);
        let in_process = ranges
            .iter_mut()
            .filter(|range| private.contains(&range.backend));
        for range in in_process.take(MOST_ASKED) {
            let address = qmp.human(&format!("gpa2hva {:#x}", range.start))?;
            range.host = host_address(&address);
        }
        Ok(Machine {
            name: text(&qmp.run("query-name", json!({}))?, "name"),
            arch: text(&qmp.run("query-target", json!({}))?, "arch"),
            status: text(&qmp.run("query-status", json!({}))?, "status"),
            version: format!("{}.{}.{}", part("major"), part("minor"), part("micro")),
            kind: kind
                .as_ref()
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            threads: vcpus
                .iter()
                .filter_map(|vcpu| vcpu["thread-id"].as_u64())
                .collect(),
            kvm: qmp.run("query-kvm", json!({}))?["enabled"] == true,
            kernel: kernel.map(PathBuf::from),
            backends,
            ranges,
        })
    }
}

/// The back ends that are shared, and the ids of the others.
fn ask_backends(qmp: &mut Qmp) -> Result<(Vec<Backend>, Vec<String>), QmpError> {
    let list = qmp.run("query-memdev", json!({}))?;
    let (mut backends, mut private) = (Vec::new(), Vec::new());
    for backend in list.as_array().into_iter().flatten().take(64) {
        let (Some(id), Some(bytes)) = (backend["id"].as_str(), backend["size"].as_u64()) else {
            continue;
        };
        if backend["share"] != true {
            private.push(id.to_owned());
            continue;
        }
        let path = qmp.property(&format!("/objects/{id}"), "mem-path")?;
        backends.push(Backend {
            id: id.to_owned(),
            bytes,
            path: path.as_ref().and_then(Value::as_str).map(PathBuf::from),
        });
    }
    Ok((backends, private))
}

/// The address in an answer of `gpa2hva`: `Host virtual address for 0x0 (pc.ram) is 0x7f3c2be00000`.
fn host_address(answer: &str) -> Option<u64> {
    let (_, address) = answer.trim().rsplit_once(" is 0x")?;
    u64::from_str_radix(address, 16).ok()
}

/// The gdb stub of the QEMU with this command line. The file name of its character device shows whether a debugger is
/// connected.
///
/// # Errors
/// The monitor does not answer.
pub fn ask_stub(qmp: &mut Qmp, command_line: Option<&[String]>) -> Result<Stub, QmpError> {
    let list = qmp.run("query-chardev", json!({}))?;
    let devices = list.as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(stub_among(devices, command_line))
}

/// The stub among the character devices: the one called `gdb`, or else that of `-gdb chardev:NAME`. If the command
/// line isn't known, a server whose name begins with `gdb` is taken for such a one, preferably one that no debugger is
/// connected to. A serial line on a terminal is no server.
fn stub_among(devices: &[Value], command_line: Option<&[String]>) -> Stub {
    let stubs = devices.iter().filter_map(|device| {
        let (label, file_name) = (device["label"].as_str()?, device["filename"].as_str()?);
        let is_named = |pair: &[String]| {
            is_option(&pair[0], "gdb") && pair[1].strip_prefix("chardev:") == Some(label)
        };
        let has_own_name = match command_line {
            Some(words) => words.windows(2).any(is_named),
            None => label.starts_with("gdb") && file_name.contains(",server"),
        };
        let is_gdb = label == "gdb";
        (is_gdb || has_own_name).then(|| (is_gdb, stub_of(file_name)))
    });
    let best = stubs.min_by_key(|(is_gdb, stub)| (!is_gdb, *stub == Stub::Taken));
    best.map_or(Stub::None, |(_, stub)| stub)
}

/// Whether a word of QEMU's command line is this option, with one hyphen or two.
pub fn is_option(word: &str, option: &str) -> bool {
    let named = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
    named == Some(option)
}

/// The words of the command line of process `pid`.
pub fn command_line(pid: i32) -> Option<Vec<String>> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = words.split(|&byte| byte == 0).map(String::from_utf8_lossy);
    Some(words.map(Cow::into_owned).collect())
}

/// `disconnected:unix:/path,server=on`, `disconnected:tcp:0.0.0.0:1234,server=on`.
fn stub_of(file_name: &str) -> Stub {
    let Some(address) = file_name.strip_prefix("disconnected:") else {
        return Stub::Taken;
    };
    let address = address.split(',').next().unwrap_or_default();
    let endpoint = match address.split_once(':') {
        Some(("unix", path)) => Endpoint::parse(path),
        Some((_, host_port)) => {
            let port = host_port.rsplit(':').next().unwrap_or_default();
            let host = host_port.strip_suffix(port).unwrap_or_default();
            // A stub that listens on all addresses also listens on this host.
            match host
                .trim_end_matches(':')
                .trim_matches(|letter| "[]".contains(letter))
            {
                "" | "0.0.0.0" | "::" => Endpoint::parse(&format!("localhost:{port}")),
                _ => Endpoint::parse(host_port),
            }
        }
        None => return Stub::None,
    };
    endpoint.map_or(Stub::None, Stub::Listens)
}

/// Parses the flat view of the address space named `memory` in the output of `info mtree -f`: `
/// 0000000000100000-0000000007ffffff (prio 0, ram): mem @0000000000100000`.
fn ranges(text: &str) -> Vec<Range> {
    const MOST_RANGES: usize = 1024;
    let views = text.split("FlatView #");
    let view = views
        .into_iter()
        .find(|view| view.contains("AS \"memory\""));
    let lines = view.unwrap_or_default().lines();
    lines.filter_map(range).take(MOST_RANGES).collect()
}

fn range(line: &str) -> Option<Range> {
    let (addresses, rest) = line.trim().split_once(" (prio ")?;
    let (kind, rest) = rest.split_once("): ")?;
    let (_, kind) = kind.split_once(", ")?;
    // Read-only memory (`rom`) is the firmware's shadow.
    if kind != "ram" && kind != "rom" {
        return None;
    }
    let (first, last) = addresses.split_once('-')?;
    let start = u64::from_str_radix(first, 16).ok()?;
    let last = u64::from_str_radix(last, 16).ok()?;
    let (name, offset) = match rest.split_once(" @") {
        Some((name, offset)) => (name, u64::from_str_radix(offset.get(..16)?, 16).ok()?),
        None => (rest, 0),
    };
    // A root such as ` KVM` may follow the name.
    let name = name.split_whitespace().next()?;
    Some(Range {
        start,
        bytes: last.checked_sub(start)?.checked_add(1)?,
        offset,
        host: None,
        backend: name.rsplit('/').next()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "FlatView #0\r
 AS \"memory\", root: system\r
 Root memory region: system\r
  0000000000000000-000000000009ffff (prio 0, ram): mem KVM\r
  00000000000a0000-00000000000bffff (prio 1, i/o): vga-lowmem\r
  0000000000100000-0000000007ffffff (prio 0, ram): /objects/mem @0000000000100000 KVM\r
  00000000fd000000-00000000fdffffff (prio 1, ram): vga.vram\r
FlatView #1\r
 AS \"other\", root: system\r
  0000000000000000-000000000009ffff (prio 0, ram): wrong\r\n";

    #[test]
    fn the_memory_map_is_read_from_its_picture() {
        let all = ranges(MAP);
        let short: Vec<_> = all
            .iter()
            .map(|r| (r.start, r.bytes, r.offset, &*r.backend))
            .collect();
        let expected = [
            (0, 0xa_0000, 0, "mem"),
            (0x10_0000, 0x7f0_0000, 0x10_0000, "mem"),
            (0xfd00_0000, 0x100_0000, 0, "vga.vram"),
        ];
        assert_eq!(short, expected);
        for end in 0..MAP.len() {
            let _ = ranges(&MAP[..end]);
        }
    }

    #[test]
    fn an_address_in_qemus_process_is_read_from_its_sentence() {
        let of = |text| host_address(text);
        assert_eq!(
            of("Host virtual address for 0x0 (pc.ram) is 0x7f3c2be00000\r\n"),
            Some(0x7f3c_2be0_0000)
        );
        assert_eq!(of("No memory is mapped at address 0x9000000000\r\n"), None);
        assert_eq!(of("is 0x"), None);
        assert_eq!(of(" is 0xfffffffffffffffff"), None);
    }

    #[test]
    fn the_stubs_device_may_have_a_name_of_its_own() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let named = words("qemu -gdb chardev:dbg -serial chardev:gdb1");
        let device = |label: &str, file: &str| json!({ "label": label, "filename": file });
        let found = |labels: &[&str], command_line: Option<&[String]>| {
            let listening = |label: &&str| {
                let file = format!("disconnected:unix:/{label},server=on");
                device(label, &file)
            };
            let devices: Vec<Value> = labels.iter().map(listening).collect();
            stub_among(&devices, command_line)
        };
        let listens = |path: &str| Stub::Listens(Endpoint::parse(path).unwrap());
        assert_eq!(found(&["gdb1", "dbg"], Some(&named)), listens("/dbg"));
        assert_eq!(found(&["dbg", "gdb"], Some(&named)), listens("/gdb"));
        assert_eq!(found(&["gdb1"], Some(&named)), Stub::None);
        assert_eq!(found(&["dbg"], Some(&words("qemu -s"))), Stub::None);
        // Without the command line.
        assert_eq!(found(&["gdb1", "gdb"], None), listens("/gdb"));
        assert_eq!(found(&["dbg", "gdb1"], None), listens("/gdb1"));
        assert_eq!(found(&["dbg"], None), Stub::None);
        let console = device("gdb-console", "unix:/console,server=on");
        let terminal = device("gdb-serial", "pty:/dev/pts/3");
        let stub = device("gdb0", "disconnected:unix:/gdb0,server=on");
        let among = |devices: &[&Value]| {
            let devices: Vec<Value> = devices.iter().copied().cloned().collect();
            stub_among(&devices, None)
        };
        assert_eq!(among(&[&terminal, &console, &stub]), listens("/gdb0"));
        assert_eq!(among(&[&terminal]), Stub::None);
        assert_eq!(among(&[&terminal, &console]), Stub::Taken);
    }

    #[test]
    fn the_stub_is_found_by_its_device() {
        let listens = |text| Stub::Listens(Endpoint::parse(text).unwrap());
        assert_eq!(
            stub_of("disconnected:unix:/run/g,server=on"),
            listens("/run/g")
        );
        assert_eq!(
            stub_of("disconnected:tcp:0.0.0.0:1234,server=on"),
            listens("localhost:1234")
        );
        assert_eq!(
            stub_of("disconnected:tcp:[::]:1234,server=on"),
            listens("localhost:1234")
        );
        assert_eq!(
            stub_of("disconnected:tcp:10.0.0.1:99"),
            listens("10.0.0.1:99")
        );
        assert_eq!(stub_of("unix:/run/g,server=on"), Stub::Taken);
        assert_eq!(stub_of("disconnected:"), Stub::None);
    }
}
