//! Resolves names that other tools give to guests and containers. Input: `kraft:web`, `docker:db`, … Output: a target
//! of the recorder, found in the tool's own files, by its command line, or among the processes of this machine.
//!
//! A resolver is one row of [`RESOLVERS`]; none of them samples anything. Another user may have written a tool's
//! files, so a process that they name must look like what it should be.

use anyhow::{Context, bail};
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Most bytes that are read of a file or of a program's output.
const MOST_BYTES: u64 = 4 << 20;
/// Most entries of a folder that are examined.
const MOST_ENTRIES: usize = 4096;

/// The resolver of a tool's names.
pub struct Resolver {
    /// Prefix of its targets.
    pub prefix: &'static str,
    /// Form of its targets, for help.
    pub form: &'static str,
    /// Description of its targets, for help.
    pub what: &'static str,
    /// Finds the target that a name is.
    find: fn(&str, &Machine) -> anyhow::Result<String>,
}

/// All of them.
pub const RESOLVERS: &[Resolver] = &[
    Resolver {
        prefix: "kraft:",
        form: "kraft:NAME",
        what: "a unikernel that kraft runs",
        find: kraft,
    },
    Resolver {
        prefix: "ops:",
        form: "ops:NAME",
        what: "an instance of ops",
        find: ops,
    },
    Resolver {
        prefix: "firecracker:",
        form: "firecracker:ID",
        what: "a microVM of Firecracker",
        find: firecracker,
    },
    Resolver {
        prefix: "kata:",
        form: "kata:SANDBOX",
        what: "a sandbox of Kata Containers",
        find: kata,
    },
    Resolver {
        prefix: "docker:",
        form: "docker:NAME",
        what: "a container of Docker",
        find: |name, machine| container("docker", name, machine),
    },
    Resolver {
        prefix: "podman:",
        form: "podman:NAME",
        what: "a container of Podman",
        find: |name, machine| container("podman", name, machine),
    },
    Resolver {
        prefix: "k8s:",
        form: "k8s:NAMESPACE/POD or k8s:NAMESPACE/POD/CONTAINER",
        what: "a pod of Kubernetes on this node",
        find: pod,
    },
    Resolver {
        prefix: "libvirt:",
        form: "",
        what: "",
        find: |name, machine| {
            let process = libvirt_process(name, machine);
            Ok(process.unwrap_or_else(|| format!("libvirt:{name}")))
        },
    },
];

/// The target that `target` stands for; `target` itself if it is not another tool's name. With `breakpoints`, a QEMU
/// guest is resolved to its monitor, as its process has no breakpoints.
///
/// # Errors
/// The tool doesn't know the name, or its guest can't be found.
pub fn resolve(target: &str, breakpoints: bool) -> anyhow::Result<String> {
    let machine = Machine {
        breakpoints,
        ..Machine::this()
    };
    resolve_on(target, &machine)
}

fn resolve_on(target: &str, machine: &Machine) -> anyhow::Result<String> {
    for resolver in RESOLVERS {
        let Some(name) = target.strip_prefix(resolver.prefix) else {
            continue;
        };
        // libvirt's form is the recorder's own, which refuses an empty name with what to do.
        if name.is_empty() && !resolver.form.is_empty() {
            bail!("`{target}` is no target: it is {}", resolver.form);
        }
        return (resolver.find)(name, machine);
    }
    Ok(target.to_owned())
}

/// Where tools keep their state. A test has folders and programs of its own.
struct Machine {
    /// The root of the file system.
    root: PathBuf,
    /// Home folders: ours, and that of the user who called sudo.
    homes: Vec<PathBuf>,
    /// Root of procfs.
    proc: PathBuf,
    /// Whether the guest will be stopped at breakpoints.
    breakpoints: bool,
    /// Runs a program and returns what it printed.
    ask: fn(&[&str]) -> anyhow::Result<String>,
}

impl Machine {
    fn this() -> Self {
        let own = std::env::var_os("HOME").map(PathBuf::from);
        let caller = std::env::var("SUDO_USER").ok();
        let caller = caller.and_then(|user| nix::unistd::User::from_name(&user).ok()?);
        let caller = caller.map(|user| user.dir);
        Machine {
            root: "/".into(),
            homes: own.into_iter().chain(caller).collect(),
            proc: "/proc".into(),
            breakpoints: false,
            ask,
        }
    }

    fn command_line(&self, pid: i32) -> Vec<String> {
        let words = read(&self.proc.join(pid.to_string()).join("cmdline")).unwrap_or_default();
        let words = words.trim_end_matches('\0').split('\0');
        words.map(str::to_owned).collect()
    }

    fn processes(&self) -> Vec<i32> {
        let entries = std::fs::read_dir(&self.proc)
            .into_iter()
            .flatten()
            .flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut pids: Vec<i32> = pids.collect();
        pids.sort_unstable();
        pids
    }

    /// Whether the process runs a guest under KVM; such a process has mapped the page of a vCPU.
    fn runs_a_guest(&self, pid: i32) -> bool {
        let maps = read(&self.proc.join(pid.to_string()).join("maps"));
        // Addresses, permissions, offset, device, inode, path. Anybody may give a file this name, but not this path.
        let is_vcpu = |line: &str| {
            let path = line.split_ascii_whitespace().nth(5);
            path.is_some_and(|path| path.starts_with("anon_inode:kvm-vcpu:"))
        };
        maps.is_ok_and(|maps| maps.lines().any(is_vcpu))
    }

    /// The control group of a process, in the form that `cgroup:` takes: of version 2, or the one that systemd keeps.
    fn cgroup(&self, pid: i32) -> anyhow::Result<String> {
        let text = read(&self.proc.join(pid.to_string()).join("cgroup"))
            .with_context(|| format!("cannot see the control group of process {pid}"))?;
        let of = |kind: &str| {
            text.lines()
                .find_map(|line| line.split_once(':')?.1.strip_prefix(kind))
        };
        let path = of(":")
            .or_else(|| of("name=systemd:"))
            .or_else(|| of("cpu,cpuacct:"));
        match path {
            Some(path) if path.len() > 1 => Ok(format!("cgroup:{path}")),
            _ => bail!("process {pid} is in no control group of its own: record it by pid:{pid}"),
        }
    }
}

/// Runs a program that lists its containers or guests.
fn ask(words: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(words[0])
        .args(&words[1..])
        .stdin(std::process::Stdio::null())
        .output();
    let output =
        output.with_context(|| format!("cannot run {}, which knows the name", words[0]))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<&str> = said.split_whitespace().take(40).collect();
        bail!(
            "{} says: {}",
            words[..words.len().min(2)].join(" "),
            said.join(" ")
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A file's text, of no more than [`MOST_BYTES`].
fn read(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads a file of a tool's folder. It may belong to another user, so only a regular file is opened.
fn read_state(path: &Path) -> anyhow::Result<String> {
    let kind = path
        .symlink_metadata()
        .with_context(|| format!("cannot read {}", path.display()))?;
    if !kind.is_file() {
        bail!("{} is no regular file", path.display());
    }
    read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries
        .take(MOST_ENTRIES)
        .map(|entry| entry.path())
        .collect();
    all.sort();
    all
}

/// The existing names, for a message.
fn listed(names: &[String]) -> String {
    if names.is_empty() {
        "none runs".to_owned()
    } else {
        format!("there are {}", names.join(", "))
    }
}

/// A guest, given by its monitor's process, or else by its QMP monitor.
fn guest(pid: i32, qmp: Option<String>, tool: &str, machine: &Machine) -> anyhow::Result<String> {
    let is_stepped = machine.breakpoints && qmp.is_some();
    if machine.runs_a_guest(pid) && cfg!(target_arch = "x86_64") && !is_stepped {
        return Ok(format!("kvm:{pid}"));
    }
    match qmp {
        Some(qmp) => Ok(format!("qemu:{qmp}")),
        None if !machine.proc.join(pid.to_string()).exists() => {
            bail!("its process {pid} has ended")
        }
        None => bail!(
            "process {pid} runs no vCPU under KVM that can be seen, and has no monitor: {tool}"
        ),
    }
}

/// KraftKit keeps a folder for each machine. The folder is named by the machine's number, and holds QEMU's pid file and
/// monitor. Names are in a database, which `kraft ps` shows. Source: unikraft/kraftkit, machine/qemu/v1alpha1.go.
fn kraft(name: &str, machine: &Machine) -> anyhow::Result<String> {
    let mut folders = Vec::new();
    for home in &machine.homes {
        folders.extend(entries(&home.join(".local/share/kraftkit/runtime")));
    }
    folders.retain(|folder| folder.join("machine.pid").exists());
    let id_of = |folder: &Path| {
        folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let is_id = folders.iter().any(|folder| id_of(folder) == name);
    let id = if is_id {
        name.to_owned()
    } else {
        kraft_id(name, machine)?
    };
    let Some(folder) = folders.iter().find(|folder| id_of(folder) == id) else {
        bail!(
            "kraft has no folder for the machine {id} in ~/.local/share/kraftkit/runtime: does it run?"
        );
    };
    let pid = read_state(&folder.join("machine.pid"))?;
    let pid: i32 = pid
        .trim()
        .parse()
        .context("kraft's machine.pid has no process id")?;
    let words = machine.command_line(pid);
    if !words.iter().any(|word| word.contains(&id)) {
        bail!("process {pid} is not the monitor of kraft's machine {name}: it has ended");
    }
    let socket = folder.join("qemu_control.sock");
    let qmp = socket.exists().then(|| socket.display().to_string());
    guest(
        pid,
        qmp,
        "kraft runs it otherwise than by QEMU or Firecracker",
        machine,
    )
}

/// The number of kraft's machine with this name.
fn kraft_id(name: &str, machine: &Machine) -> anyhow::Result<String> {
    let shown = (machine.ask)(&["kraft", "ps", "--long", "--output", "json"])?;
    let rows: Value = serde_json::from_str(&shown).context("kraft ps printed no JSON")?;
    let field = |row: &Value, wanted: &str| {
        let fields = row.as_object()?;
        let is_it = |key: &str| key.to_lowercase().replace(['_', '-'], " ") == wanted;
        let (_, value) = fields.iter().find(|(key, _)| is_it(key))?;
        Some(value.as_str()?.to_owned())
    };
    let rows = rows.as_array().map_or(&[][..], Vec::as_slice);
    let names: Vec<String> = rows.iter().filter_map(|row| field(row, "name")).collect();
    let found = rows
        .iter()
        .find(|row| field(row, "name").as_deref() == Some(name));
    let id = found.and_then(|row| field(row, "machine id").or_else(|| field(row, "id")));
    id.with_context(|| format!("kraft knows no machine {name}: {}", listed(&names)))
}

/// ops writes a file for each instance, named by its process id. Source: nanovms/ops, provider/onprem/instance.go.
fn ops(name: &str, machine: &Machine) -> anyhow::Result<String> {
    let mut names = Vec::new();
    for home in &machine.homes {
        for file in entries(&home.join(".ops/instances")) {
            let Ok(text) = read_state(&file) else {
                continue;
            };
            let Ok(instance) = serde_json::from_str::<Value>(&text) else {
                continue;
            };
            let of = |key: &str| instance[key].as_str().unwrap_or_default();
            let pid = file
                .file_name()
                .and_then(|pid| pid.to_str()?.parse::<i32>().ok());
            let Some(pid) = pid.filter(|&pid| is_qemu(&machine.command_line(pid))) else {
                continue;
            };
            if of("instance") != name && pid.to_string() != name {
                names.push(of("instance").to_owned());
                continue;
            }
            let port: Option<u16> = of("mgmt").parse().ok().filter(|port| *port != 0);
            let qmp = port.map(|port| format!("localhost:{port}"));
            return guest(
                pid,
                qmp,
                "start it with `ops run --qmp`, or under KVM",
                machine,
            );
        }
    }
    bail!("ops runs no instance {name}: {}", listed(&names))
}

fn is_qemu(words: &[String]) -> bool {
    let program = words.first().and_then(|word| word.rsplit('/').next());
    program.is_some_and(|program| program.starts_with("qemu-"))
}

/// Firecracker may have the microVM's id on its command line; with its jailer it always has. Any user's process may
/// claim an id, but no guest is chosen among several.
fn firecracker(id: &str, machine: &Machine) -> anyhow::Result<String> {
    let (mut found, mut ids) = (Vec::new(), Vec::new());
    for pid in machine.processes() {
        let words = machine.command_line(pid);
        let program = words.first().and_then(|word| word.rsplit('/').next());
        if !program.is_some_and(|program| program.starts_with("firecracker")) {
            continue;
        }
        let given = words
            .windows(2)
            .find(|pair| pair[0] == "--id")
            .map(|pair| pair[1].clone());
        let given = given.or_else(|| {
            words
                .iter()
                .find_map(|word| Some(word.strip_prefix("--id=")?.to_owned()))
        });
        let given = given.unwrap_or_else(|| "anonymous-instance".to_owned());
        if given == id {
            found.push(pid);
        } else {
            ids.push(given);
        }
    }
    let mut running = found.clone();
    running.retain(|&pid| machine.runs_a_guest(pid));
    match (&running[..], &found[..]) {
        ([pid], _) | ([], [pid, ..]) => guest(*pid, None, "is it started?", machine),
        ([], []) => bail!("no Firecracker runs the microVM {id}: {}", listed(&ids)),
        _ => {
            let all: Vec<String> = running.iter().map(|pid| format!("kvm:{pid}")).collect();
            bail!(
                "several processes run a microVM {id}: record one of {}",
                all.join(", ")
            )
        }
    }
}

/// Monitors of Kata have the sandbox's id on their command line; of Dragonball the shim is the monitor.
fn kata(id: &str, machine: &Machine) -> anyhow::Result<String> {
    // A shorter id could be part of any word.
    if id.len() < 8
        || !id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    {
        bail!(
            "`kata:{id}` is no target: give the sandbox's id, as `crictl pods --no-trunc` shows it, or 8 letters of it"
        );
    }
    let has_id = |pid: &i32| {
        machine
            .command_line(*pid)
            .iter()
            .any(|word| word.contains(id))
    };
    let found: Vec<i32> = machine
        .processes()
        .into_iter()
        .filter(has_id)
        .filter(|&pid| machine.runs_a_guest(pid))
        .collect();
    match found[..] {
        [pid] => Ok(format!("kvm:{pid}")),
        [] => bail!(
            "no process with {id} on its command line runs a guest under KVM; this needs root, on the sandbox's node"
        ),
        _ => bail!(
            "{} monitors have {id} on their command lines: give more of the id",
            found.len()
        ),
    }
}

/// The control group of a container with this id, of whose process `group` is: its first process may be in a group
/// inside, as systemd's is, or that of a container with containers.
fn around(group: &str, id: &str) -> String {
    let at = group.rfind(id).filter(|_| !id.is_empty());
    let end = at.map(|at| group[at..].find('/').map_or(group.len(), |more| at + more));
    group[..end.unwrap_or(group.len())].to_owned()
}

/// The control group of a container. `docker inspect` and `podman inspect` give the container's first process.
fn container(tool: &str, name: &str, machine: &Machine) -> anyhow::Result<String> {
    let asked = [
        tool,
        "inspect",
        "--type",
        "container",
        "--format",
        "{{.State.Pid}} {{.Id}}",
        "--",
        name,
    ];
    let shown = (machine.ask)(&asked)?;
    let (pid, id) = shown.trim().split_once(' ').unwrap_or_default();
    match pid.parse::<i32>() {
        Ok(pid) if pid > 0 => Ok(around(&machine.cgroup(pid)?, id)),
        _ => bail!("the container {name} does not run: `{tool} ps --all` shows its state"),
    }
}

/// A pod's control group encloses those of its containers; crictl gives the first process of each.
fn pod(name: &str, machine: &Machine) -> anyhow::Result<String> {
    let mut parts = name.splitn(3, '/');
    let (Some(namespace), Some(pod)) = (parts.next(), parts.next()) else {
        bail!("`k8s:{name}` is no target: it is k8s:NAMESPACE/POD or k8s:NAMESPACE/POD/CONTAINER");
    };
    let of_namespace = format!("io.kubernetes.pod.namespace={namespace}");
    let of_pod = format!("io.kubernetes.pod.name={pod}");
    let mut asked = vec![
        "crictl",
        "ps",
        "--quiet",
        "--no-trunc",
        "--label",
        &of_namespace,
        "--label",
        &of_pod,
    ];
    let container = parts.next().map(|container| format!("^{container}$"));
    if let Some(container) = &container {
        asked.extend(["--name", container]);
    }
    let shown = (machine.ask)(&asked)?;
    let Some(first) = shown.lines().next().filter(|id| !id.is_empty()) else {
        bail!("no container of {name} runs on this node: `crictl pods` shows its pods");
    };
    let shown = (machine.ask)(&["crictl", "inspect", "--output", "json", first])?;
    let shown: Value = serde_json::from_str(&shown).context("crictl inspect printed no JSON")?;
    let pid = shown["info"]["pid"]
        .as_i64()
        .and_then(|pid| i32::try_from(pid).ok());
    let group = machine.cgroup(pid.context("crictl inspect shows no process")?)?;
    let group = around(&group, first);
    match (&container, group.rsplit_once('/')) {
        (None, Some((around, _))) if around.len() > "cgroup:/".len() => Ok(around.to_owned()),
        _ => Ok(group),
    }
}

/// libvirt's monitor is slow and logs each pause, so a guest under KVM is sampled by its process instead.
fn libvirt_process(name: &str, machine: &Machine) -> Option<String> {
    if name.contains('/') || machine.breakpoints || !cfg!(target_arch = "x86_64") {
        return None;
    }
    let file = machine
        .root
        .join("run/libvirt/qemu")
        .join(format!("{name}.pid"));
    let pid: i32 = read_state(&file).ok()?.trim().parse().ok()?;
    let named = format!("guest={name}");
    let words = machine.command_line(pid);
    let is_its = words
        .iter()
        .any(|word| word.split(',').any(|part| part == named));
    (is_its && machine.runs_a_guest(pid)).then(|| format!("kvm:{pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A machine whose files are in a folder, laid out as each tool documents.
    struct Made(tempfile::TempDir);

    impl Made {
        fn new() -> Self {
            Made(tempfile::tempdir().unwrap())
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// A process; one with a guest has mapped a vCPU's page.
        fn process(&self, pid: i32, words: &str, has_guest: bool) {
            self.write(&format!("proc/{pid}/cmdline"), &words.replace(' ', "\0"));
            let maps = if has_guest {
                "7f0-7f1 rw-s 0 0:e 1 anon_inode:kvm-vcpu:0\n"
            } else {
                "7f0-7f1 rw-p 0 0:0 0 [heap]\n"
            };
            self.write(&format!("proc/{pid}/maps"), maps);
        }

        fn machine(&self) -> Machine {
            Machine {
                root: self.0.path().into(),
                homes: vec![self.0.path().join("home")],
                proc: self.0.path().join("proc"),
                breakpoints: false,
                ask: |words| {
                    match words[..2] {
                    ["kraft", "ps"] => {
                        Ok(r#"[{"machine_id": "1-2-3", "name": "web"}, {"machine_id": "9", "name": "old"}]"#.into())
                    }
                    ["docker", "inspect"] if words.last() == Some(&"db") => Ok("70 aa\n".into()),
                    ["docker", "inspect"] => Ok("0 bb\n".into()),
                    ["crictl", "ps"] => Ok("c0ffee\n".into()),
                    ["crictl", "inspect"] => Ok(r#"{"info": {"pid": 71}}"#.into()),
                    _ => bail!("{} says: no such object", words[0]),
                }
                },
            }
        }

        fn found(&self, target: &str) -> String {
            resolve_on(target, &self.machine()).unwrap()
        }

        #[track_caller]
        fn refused(&self, target: &str, wanted: &str) {
            let said = resolve_on(target, &self.machine()).unwrap_err().to_string();
            assert!(said.contains(wanted), "{target}: {said}");
        }
    }

    #[test]
    fn targets_of_the_recorder_stay_as_they_are() {
        let made = Made::new();
        for target in [
            "pid:7",
            "kvm:7",
            "web",
            "7",
            "qemu:/run/q",
            "libvirt:web",
            "what:ever",
            "",
        ] {
            assert_eq!(made.found(target), target);
        }
        made.refused("docker:", "it is docker:NAME");
        assert_eq!(made.found("libvirt:"), "libvirt:");
    }

    #[test]
    fn machines_of_kraft_are_found_by_name_and_number() {
        let made = Made::new();
        let folder = "home/.local/share/kraftkit/runtime/1-2-3/";
        made.refused("kraft:web", "no folder for the machine 1-2-3");
        made.write(&format!("{folder}machine.pid"), "40\n");
        made.refused(
            "kraft:web",
            "process 40 is not the monitor of kraft's machine web",
        );
        made.process(40, "qemu-system-x86_64 -name 1-2-3 -enable-kvm", true);
        assert_eq!(made.found("kraft:web"), "kvm:40");
        assert_eq!(made.found("kraft:1-2-3"), "kvm:40");
        made.process(40, "qemu-system-x86_64 -name 1-2-3", false);
        made.refused("kraft:web", "runs no vCPU under KVM");
        made.write(&format!("{folder}qemu_control.sock"), "");
        let found = made.found("kraft:web");
        assert!(
            found.starts_with("qemu:/") && found.ends_with("1-2-3/qemu_control.sock"),
            "{found}"
        );
        made.process(40, "qemu-system-x86_64 -name 1-2-3 -enable-kvm", true);
        let stepped = Machine {
            breakpoints: true,
            ..made.machine()
        };
        assert_eq!(resolve_on("kraft:web", &stepped).unwrap(), found);
        made.refused(
            "kraft:none",
            "kraft knows no machine none: there are web, old",
        );
    }

    #[test]
    fn instances_of_ops_are_found_by_name_and_process() {
        let made = Made::new();
        made.refused("ops:web", "ops runs no instance web: none runs");
        made.write(
            "home/.ops/instances/50",
            r#"{"instance": "web", "pid": "50", "mgmt": "4321"}"#,
        );
        made.write("home/.ops/instances/51", "{");
        made.write(
            "home/.ops/instances/52",
            r#"{"instance": "gone", "pid": "52", "mgmt": ""}"#,
        );
        made.process(
            50,
            "/usr/bin/qemu-system-x86_64 -qmp tcp:localhost:4321",
            false,
        );
        made.process(52, "sleep 100", true);
        assert_eq!(made.found("ops:web"), "qemu:localhost:4321");
        made.process(50, "/usr/bin/qemu-system-x86_64 -enable-kvm", true);
        assert_eq!(made.found("ops:web"), "kvm:50");
        assert_eq!(made.found("ops:50"), "kvm:50");
        made.refused("ops:gone", "ops runs no instance gone: there are web");
    }

    #[test]
    fn microvms_and_sandboxes_are_found_by_their_command_lines() {
        let made = Made::new();
        made.process(60, "/firecracker --id blue --start-time-us 1", true);
        made.process(61, "firecracker --api-sock /run/f", true);
        made.process(
            62,
            "/opt/kata/bin/qemu-system-x86_64 -name sandbox-0123456789abcdef,debug-threads=on",
            true,
        );
        made.process(
            63,
            "/usr/bin/containerd-shim-kata-v2 -id 0123456789abcdef",
            false,
        );
        assert_eq!(made.found("firecracker:blue"), "kvm:60");
        assert_eq!(made.found("firecracker:anonymous-instance"), "kvm:61");
        made.refused("firecracker:red", "there are blue, anonymous-instance");
        // Whoever claims an id runs no guest, or leaves the choice to the user.
        made.process(59, "firecracker --id=blue", false);
        let file = "7f0-7f1 rw-s 0 8:1 5 /tmp/anon_inode:kvm-vcpu:0\n";
        made.write("proc/59/maps", file);
        assert_eq!(made.found("firecracker:blue"), "kvm:60");
        made.process(59, "firecracker --id=blue", true);
        made.refused("firecracker:blue", "record one of kvm:59, kvm:60");
        assert_eq!(made.found("kata:0123456789abcdef"), "kvm:62");
        assert_eq!(made.found("kata:01234567"), "kvm:62");
        made.refused("kata:0123", "give the sandbox's id");
        made.refused("kata:ffffffffffff", "runs a guest under KVM");
    }

    #[test]
    fn containers_are_their_control_groups() {
        let made = Made::new();
        made.write("proc/70/cgroup", "0::/system.slice/docker-aa.scope\n");
        made.write(
            "proc/71/cgroup",
            "4:cpu:/k\n1:name=systemd:/kubepods/pod1/c0ffee\n",
        );
        assert_eq!(
            made.found("docker:db"),
            "cgroup:/system.slice/docker-aa.scope"
        );
        made.refused("docker:stopped", "the container stopped does not run");
        made.refused("podman:db", "podman says: no such object");
        assert_eq!(made.found("k8s:shop/web-1"), "cgroup:/kubepods/pod1");
        assert_eq!(
            made.found("k8s:shop/web-1/app"),
            "cgroup:/kubepods/pod1/c0ffee"
        );
        made.refused("k8s:web", "it is k8s:NAMESPACE/POD");
        // Their first processes are in groups of their own inside.
        made.write(
            "proc/70/cgroup",
            "0::/system.slice/docker-aa.scope/init.scope\n",
        );
        made.write("proc/71/cgroup", "0::/kubepods/pod1/cri-c0ffee.scope/a/b\n");
        assert_eq!(
            made.found("docker:db"),
            "cgroup:/system.slice/docker-aa.scope"
        );
        assert_eq!(made.found("k8s:shop/web-1"), "cgroup:/kubepods/pod1");
    }

    #[test]
    fn a_domain_of_libvirt_under_kvm_is_sampled_by_its_process() {
        let made = Made::new();
        made.write("run/libvirt/qemu/web.pid", "80");
        made.process(
            80,
            "qemu-system-x86_64 -name guest=web,debug-threads=on",
            true,
        );
        assert_eq!(made.found("libvirt:web"), "kvm:80");
        let stepped = Machine {
            breakpoints: true,
            ..made.machine()
        };
        assert_eq!(resolve_on("libvirt:web", &stepped).unwrap(), "libvirt:web");
        made.process(80, "qemu-system-x86_64 -name guest=another", true);
        assert_eq!(made.found("libvirt:web"), "libvirt:web");
        assert_eq!(made.found("libvirt:../web"), "libvirt:../web");
    }

    #[test]
    fn a_tools_file_that_is_a_link_or_a_pipe_is_not_opened() {
        let made = Made::new();
        let folder = "home/.local/share/kraftkit/runtime/1-2-3/";
        made.write(&format!("{folder}other"), "1");
        let pid = made.0.path().join(folder).join("machine.pid");
        std::os::unix::fs::symlink("other", &pid).unwrap();
        made.refused("kraft:web", "is no regular file");
        fs::remove_file(&pid).unwrap();
        nix::unistd::mkfifo(&pid, nix::sys::stat::Mode::S_IRWXU).unwrap();
        made.refused("kraft:web", "is no regular file");
    }
}
