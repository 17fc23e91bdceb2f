//! Opens a target as a source. A table has one row for each kind of guest.
//!
//! A new backend is one row of [`BACKENDS`], from which help and error messages are generated.

mod meant;
pub mod resolvers;

use crate::elf::Elf;
use anyhow::{Context, bail};
use std::fs::File;
use std::time::Duration;
use uniprof_record::agent;
use uniprof_record::call_source::FollowCalls;
use uniprof_record::doctor::Report;
use uniprof_record::elf::{GivenImage, Image};
use uniprof_record::gdb;
use uniprof_record::gdb::call_tracer::CallTracer;
use uniprof_record::gdb::open::Opening;
use uniprof_record::guest::left_paused::{LeftPaused, ReadMark};
use uniprof_record::kvm;
use uniprof_record::plan::{FIRST_RATE, LEAF_STACK_BYTES, PROCESS_STACK_BYTES};
use uniprof_record::process::{self, Cgroup, Command, Process, Scope};
use uniprof_record::qemu::{self, Monitor};
use uniprof_record::xen;
use uniprof_record::{Plan, Source};
#[cfg(feature = "report")]
use uprof::cold::{Target, TargetKind};

use resolvers::RESOLVERS;

#[cfg(feature = "report")]
pub use uniprof_record::process::running;
pub use uniprof_record::process::{ExitStatus, Stdout};
pub use uniprof_record::xen::several::Company;

/// The target to sample, and how.
pub struct TargetRequest<'a> {
    /// The target on the command line; empty for a command or the machine.
    pub target: &'a str,
    /// A command to start, with its arguments; empty for none.
    pub command: &'a [String],
    /// Whether the command is left running at the end.
    pub keep_running: bool,
    /// Where the command's standard output goes.
    pub stdout: Stdout,
    /// Whether to sample the whole machine.
    pub all: bool,
    /// Whether to sample processes by ptrace.
    pub ptrace: bool,
    /// Images of a guest.
    pub elf: &'a [Elf],
}

/// A kind of guest.
pub struct Backend {
    /// Prefix of its targets; empty for the last row.
    pub prefix: &'static str,
    /// Form of its targets, for help.
    pub form: &'static str,
    /// Description of its targets, for help.
    pub what: &'static str,
    /// Kind of target, which decides the flags that it takes.
    pub kind: Kind,
    /// Default of the longest freeze for a sample.
    pub budget: Duration,
    /// Default number of raw stack bytes of `--stack`.
    pub stack_bytes: u32,
    /// Opens the target; the first argument is its text after the prefix.
    open: fn(&str, &TargetRequest<'_>, &Plan) -> anyhow::Result<Source>,
    /// Connects to the target to follow calls, if it has breakpoints.
    breakpoints: Option<fn(&str, &TargetRequest<'_>) -> anyhow::Result<Opening>>,
    /// Examines the target for `uniprof doctor`, given the image.
    examine: fn(&str, Option<&GivenImage>) -> anyhow::Result<Report>,
    /// Lists guests of the kind on this machine, and what recording them requires.
    examine_host: Option<fn(&mut Report)>,
    /// Reads the mark of a recorder that was killed while it had paused a guest of the kind.
    read_mark: Option<ReadMark>,
    /// Whether `--host` records where the time of its vCPUs goes.
    has_host: bool,
}

/// Kinds of targets, by what can be recorded of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Processes, whose images are found here, and whose stacks are copied while others run.
    Process,
    /// A guest that is a program of this machine.
    Guest,
    /// A domain of Xen. Several can be recorded at a time, and one that ended may come back under its name.
    XenDomain,
}

/// A flag for one kind of target.
struct KindFlag {
    is_given: fn(&Plan) -> bool,
    kind: Kind,
    /// The message for other kinds.
    refusal: &'static str,
}

const KIND_FLAGS: [KindFlag; 4] = [
    KindFlag {
        is_given: |plan| plan.off_cpu,
        kind: Kind::Process,
        refusal: "--off-cpu is for processes: a guest's vCPUs have states instead (report --state)",
    },
    KindFlag {
        is_given: |plan| plan.per_thread,
        kind: Kind::Process,
        refusal: "--per-thread is for processes: of a guest, vCPUs are sampled",
    },
    KindFlag {
        // The later boots of a guest that is recorded from its first one.
        is_given: |plan| plan.follow && plan.boot.is_none(),
        kind: Kind::XenDomain,
        refusal: "--follow is for Xen domains: what else ends doesn't come back under its name",
    },
    KindFlag {
        is_given: |plan| plan.no_pause,
        kind: Kind::XenDomain,
        refusal: "--no-pause is for Xen domains: perf events don't stop a process anyway, and behind a gdb stub, in \
                  QEMU or under ptrace a guest must stand still; --freeze-budget and --max-overhead say for how long",
    },
];

/// The message for `--host` with targets that are not guests of this machine, or whose vCPUs are not seen here.
const HOST_REFUSAL: &str = "--host is for guests whose hypervisor says where their time goes: kvm:PID, qemu: and \
                            libvirt: under KVM, and Xen domains; in the whole program, and without --ptrace, also for \
                            -a";

/// Ample time for a hypercall or a signal.
const LOCAL_BUDGET: Duration = Duration::from_micros(200);
/// Time for a deep stack through a stub under emulation.
const STUB_BUDGET: Duration = Duration::from_millis(50);

/// The size of a kernel's stack. The guest is frozen while it is copied.
const GUEST_STACK_BYTES: u32 = 16 << 10;

/// All kinds of guests.
pub const BACKENDS: &[Backend] = &[
    Backend {
        prefix: "pid:",
        form: "pid:N or pid:N,M",
        what: "processes and all below them",
        kind: Kind::Process,
        budget: LOCAL_BUDGET,
        stack_bytes: PROCESS_STACK_BYTES,
        open: |list, wanted, plan| open_running(wanted, pids(list)?, plan),
        breakpoints: None,
        examine: |list, elf| examine_processes(pids(list)?, elf),
        examine_host: Some(process::doctor::examine_host),
        read_mark: None,
        has_host: false,
    },
    Backend {
        prefix: "name:",
        form: "name:NAME",
        what: "all processes of that name, or whose program has it",
        kind: Kind::Process,
        budget: LOCAL_BUDGET,
        stack_bytes: PROCESS_STACK_BYTES,
        open: |name, wanted, plan| open_running(wanted, Scope::named(name)?, plan),
        breakpoints: None,
        examine: |name, elf| examine_processes(Scope::named(name)?, elf),
        examine_host: None,
        read_mark: None,
        has_host: false,
    },
    Backend {
        prefix: "cgroup:",
        form: "cgroup:PATH",
        what: "all processes of a control group",
        kind: Kind::Process,
        budget: LOCAL_BUDGET,
        stack_bytes: PROCESS_STACK_BYTES,
        open: |path, wanted, plan| open_running(wanted, Scope::Cgroup(Cgroup::find(path)?), plan),
        breakpoints: None,
        examine: |path, elf| examine_processes(Scope::Cgroup(Cgroup::find(path)?), elf),
        examine_host: None,
        read_mark: None,
        has_host: false,
    },
    Backend {
        prefix: "gdb:",
        form: "gdb:HOST:PORT or gdb:/SOCKET",
        what: "a guest behind a gdb stub",
        kind: Kind::Guest,
        budget: STUB_BUDGET,
        stack_bytes: GUEST_STACK_BYTES,
        open: |address, wanted, plan| Ok(gdb::open::open_stub(address, images_of(wanted)?, plan)?),
        breakpoints: Some(|address, wanted| Ok(Opening::stub(address, images_of(wanted)?)?)),
        examine: |address, elf| Ok(gdb::doctor::examine(address, elf)),
        examine_host: None,
        read_mark: Some(gdb::release::paused_guest),
        has_host: false,
    },
    Backend {
        prefix: "qemu:",
        form: "qemu:/SOCKET or qemu:HOST:PORT",
        what: "a QEMU guest, by its QMP monitor",
        kind: Kind::Guest,
        budget: STUB_BUDGET,
        stack_bytes: GUEST_STACK_BYTES,
        open: |path, wanted, plan| open_qemu(&Monitor::at(path), wanted, plan),
        breakpoints: Some(|path, wanted| opening(&Monitor::at(path), wanted)),
        examine: |path, elf| Ok(qemu::doctor::examine(&Monitor::at(path), elf)),
        examine_host: Some(qemu::doctor::examine_host),
        read_mark: None,
        has_host: true,
    },
    Backend {
        prefix: "libvirt:",
        form: "libvirt:NAME",
        what: "a QEMU guest that libvirt runs",
        kind: Kind::Guest,
        budget: STUB_BUDGET,
        stack_bytes: GUEST_STACK_BYTES,
        open: |name, wanted, plan| open_qemu(&libvirt(name)?, wanted, plan),
        breakpoints: Some(|name, wanted| opening(&libvirt(name)?, wanted)),
        examine: |name, elf| Ok(qemu::doctor::examine(&libvirt(name)?, elf)),
        examine_host: None,
        read_mark: None,
        has_host: true,
    },
    Backend {
        prefix: "kvm:",
        form: "kvm:PID",
        what: "a guest under KVM, by its monitor's process",
        kind: Kind::Guest,
        budget: LOCAL_BUDGET,
        stack_bytes: GUEST_STACK_BYTES,
        open: |pid, wanted, plan| open_kvm(monitor(pid)?, images_of(wanted)?, plan),
        breakpoints: None,
        examine: |pid, elf| Ok(kvm::doctor::examine(monitor(pid)?, elf)),
        examine_host: Some(kvm::doctor::examine_host),
        read_mark: None,
        has_host: true,
    },
    Backend {
        prefix: "agent:",
        form: "agent:HOST:PORT, agent:/SOCKET or agent:vchan:DOMID/PATH",
        what: "a guest that carries the agent",
        kind: Kind::Guest,
        budget: LOCAL_BUDGET,
        stack_bytes: GUEST_STACK_BYTES,
        open: open_agent,
        breakpoints: None,
        examine: |address, elf| Ok(agent::doctor::examine(address, elf)),
        examine_host: None,
        read_mark: None,
        has_host: false,
    },
    Backend {
        prefix: "",
        form: "a number, name or UUID",
        what: "a Xen domain",
        kind: Kind::XenDomain,
        budget: LOCAL_BUDGET,
        stack_bytes: GUEST_STACK_BYTES,
        open: |target, wanted, plan| Ok(xen::open(target, images_of(wanted)?, plan)?),
        breakpoints: None,
        examine: |domain, elf| Ok(xen::doctor::examine_domain(domain, elf)),
        examine_host: Some(xen::doctor::examine_host),
        read_mark: Some(xen::paused_guest),
        has_host: true,
    },
];

/// The kind of a target; `None`, which means a command or the machine, is a process.
fn kind_of(target: Option<&str>) -> Kind {
    target
        .and_then(backend_of)
        .map_or(Kind::Process, |(backend, _)| backend.kind)
}

fn backend_of(target: &str) -> Option<(&'static Backend, &str)> {
    BACKENDS
        .iter()
        .find_map(|backend| Some((backend, target.strip_prefix(backend.prefix)?)))
}

/// Whether a target is a Xen domain. Several of these can be recorded at a time.
pub fn is_domain(target: &str) -> bool {
    backend_of(target).is_some_and(|(backend, _)| backend.kind == Kind::XenDomain)
}

/// What to type instead of these targets, if they can only mean Xen domains on a machine without Xen.
pub fn instead_of(targets: &[String]) -> Option<String> {
    let are_domains = targets.iter().all(|target| is_domain(target)) && !xen::is_here();
    are_domains.then(|| meant::instead_of(targets)).flatten()
}

/// The forms of all targets, for help.
pub fn help() -> String {
    let own = BACKENDS.iter().map(|backend| (backend.form, backend.what));
    let names = RESOLVERS
        .iter()
        .map(|resolver| (resolver.form, resolver.what));
    let all = own.chain(names).filter(|(form, _)| !form.is_empty());
    let all = all.map(|(form, what)| format!("{form} for {what}"));
    all.collect::<Vec<_>>().join("; ")
}

/// Default of the longest freeze for a sample of the target.
pub fn usual_budget(target: Option<&str>) -> Duration {
    target
        .and_then(backend_of)
        .map_or(LOCAL_BUDGET, |(backend, _)| backend.budget)
}

/// Raw stack bytes of the target's samples without a flag. A guest is paused while they are copied.
pub fn default_stack_bytes(target: Option<&str>) -> u32 {
    if kind_of(target) == Kind::Process {
        usual_stack_bytes(target)
    } else {
        LEAF_STACK_BYTES
    }
}

/// Default number of raw stack bytes of `--stack` for the target.
pub fn usual_stack_bytes(target: Option<&str>) -> u32 {
    target
        .and_then(backend_of)
        .map_or(PROCESS_STACK_BYTES, |(backend, _)| backend.stack_bytes)
}

/// Examines a target for `uniprof doctor`.
pub fn examine(target: &str, elf: Option<&Elf>) -> anyhow::Result<Report> {
    let (backend, rest) = backend_of(target).context("there is no such target")?;
    let image = elf.map(|elf| GivenImage {
        path: elf.path.clone(),
        address: elf.address,
    });
    (backend.examine)(rest, image.as_ref())
}

/// Examines this machine: what can be recorded here, and how to continue.
pub fn examine_host() -> Report {
    let mut report = look_at_host(BACKENDS.iter());
    report.command = Some("uniprof doctor TARGET, for what will work there".into());
    report
}

/// Guests of this machine that can be recorded, in the form of targets; processes are left out.
#[cfg(feature = "report")]
pub fn guests() -> Vec<String> {
    look_at_host(
        BACKENDS
            .iter()
            .filter(|backend| backend.kind != Kind::Process),
    )
    .targets
}

fn look_at_host<'a>(kinds: impl Iterator<Item = &'a Backend>) -> Report {
    let mut report = Report::default();
    let looks = kinds.filter_map(|backend| backend.examine_host);
    looks.for_each(|look| look(&mut report));
    report
}

/// Guests that were left paused.
pub fn left_paused() -> Vec<LeftPaused> {
    let kinds = BACKENDS.iter().filter_map(|backend| backend.read_mark);
    LeftPaused::all(&kinds.collect::<Vec<_>>())
}

fn examine_processes(scope: Scope, elf: Option<&GivenImage>) -> anyhow::Result<Report> {
    if elf.is_some() {
        bail!("--elf is for guests: a process says itself which files it runs");
    }
    Ok(process::doctor::examine(scope))
}

/// Opens the target or command; `status` will be set to the exit status of the command. May fork, so no thread may run
/// yet.
///
/// # Errors
/// Says why the target can't be recorded, or not as the plan requires.
pub fn open(
    wanted: &TargetRequest<'_>,
    plan: &Plan,
    status: &ExitStatus,
) -> anyhow::Result<Source> {
    if plan.boot.is_some() {
        return open_boot(wanted, plan, status);
    }
    let has_target = wanted.command.is_empty() && !wanted.all;
    let has_host = wanted.all && !wanted.ptrace && cfg!(feature = "report")
        || has_target && backend_of(wanted.target).is_some_and(|(one, _)| one.has_host);
    if plan.host && !has_host {
        bail!("{HOST_REFUSAL}");
    }
    let kind = kind_of(Some(wanted.target).filter(|_| has_target));
    for flag in KIND_FLAGS {
        if (flag.is_given)(plan) && kind != flag.kind {
            bail!("{}", flag.refusal);
        }
    }
    if !wanted.command.is_empty() {
        return open_process(wanted, Process::Started(command(wanted, status)), plan);
    }
    if wanted.all {
        return open_machine(wanted, plan);
    }
    match backend_of(wanted.target) {
        Some((backend, rest)) => (backend.open)(rest, wanted, plan),
        None => bail!("unknown target `{}`: use {}", wanted.target, help()),
    }
}

/// The command to start.
fn command(wanted: &TargetRequest<'_>, status: &ExitStatus) -> Command {
    Command {
        arguments: wanted.command.to_vec(),
        keep_running: wanted.keep_running,
        stdout: wanted.stdout.clone(),
        status: status.clone(),
    }
}

/// The prefix of targets like the guest that a monitor will have.
pub fn of_monitor(command: &[String]) -> &'static str {
    if qemu::boot::emulates(command) {
        "qemu:"
    } else {
        "kvm:"
    }
}

/// The largest share of time that the start of a boot may be frozen. Behind a stub the guest runs on for a part of each
/// freeze, by which times are wrong.
pub fn most_overhead_at_first(command: &[String]) -> f64 {
    match of_monitor(command) {
        "qemu:" => 0.2,
        _ => FIRST_RATE.most_overhead,
    }
}

/// Starts a monitor, and opens its guest, which has not begun.
fn open_boot(
    wanted: &TargetRequest<'_>,
    plan: &Plan,
    status: &ExitStatus,
) -> anyhow::Result<Source> {
    let (command, images) = (command(wanted, status), images_of(wanted)?);
    let source = match backend_of(wanted.target) {
        Some((backend, name)) if backend.kind == Kind::XenDomain => {
            let command = Some(command).filter(|command| !command.arguments.is_empty());
            xen::boot::open(name, command, images, plan)
        }
        _ if command.program() == "xl" => {
            bail!("--boot needs the domain's name: record --boot NAME -- xl create …")
        }
        _ if wanted.command.is_empty() => bail!(
            "--boot needs a monitor's command after --: `{}` runs already",
            wanted.target
        ),
        Some((backend, _)) if backend.prefix == "qemu:" => qemu::boot::open(&command, images, plan),
        _ => kvm::open_boot(&command, images),
    };
    Ok(source?)
}

/// Opens the target to follow calls in it. May fork, so no thread may run yet.
pub fn trace(wanted: &TargetRequest<'_>, plan: &Plan) -> anyhow::Result<Box<dyn FollowCalls>> {
    let (backend, rest) = backend_of(wanted.target).context("there is no such target")?;
    let Some(breakpoints) = backend.breakpoints else {
        let able = BACKENDS
            .iter()
            .filter(|backend| backend.breakpoints.is_some());
        let able: Vec<&str> = able.map(|backend| backend.form).collect();
        bail!(
            "--calls needs breakpoints, which {} has none of for uniprof; it is for {}. Calls that a tracer logs can \
             be imported (uniprof import)",
            backend.what,
            able.join(", ")
        );
    };
    let opening = breakpoints(rest, wanted)?;
    Ok(Box::new(CallTracer::open(opening, plan)?))
}

fn pids(list: &str) -> anyhow::Result<Scope> {
    let pid = |text: &str| text.trim().parse().ok().filter(|&pid: &i32| pid > 0);
    let pids: Option<Vec<i32>> = list.split(',').map(pid).collect();
    let pids = pids.with_context(|| {
        format!(
            "`pid:{list}` is no target: pid: needs process ids, for example pid:1234 or pid:12,34"
        )
    })?;
    Ok(Scope::processes(pids)?)
}

/// The process of a guest's monitor.
fn monitor(pid: &str) -> anyhow::Result<i32> {
    let parsed = pid.parse().ok().filter(|&pid| pid > 0);
    parsed.with_context(|| {
        format!(
            "`kvm:{pid}` is no target: kvm: needs the process id of a monitor, for example kvm:1234"
        )
    })
}

/// What the recorded process publishes about itself; of several, the first.
#[cfg(feature = "report")]
pub fn published(target: &Target) -> Vec<(String, String)> {
    let pid = i32::try_from(target.id).ok().filter(|&pid| pid > 0);
    match pid.filter(|_| target.kind == TargetKind::Process) {
        Some(pid) => process::published::attributes(pid),
        None => Vec::new(),
    }
}

fn open_running(wanted: &TargetRequest<'_>, scope: Scope, plan: &Plan) -> anyhow::Result<Source> {
    open_process(wanted, Process::Running(scope), plan)
}

/// Opens all processes of the machine; with `--host` its guests are looked into, for which the recorder of dom0 has no
/// room.
fn open_machine(wanted: &TargetRequest<'_>, plan: &Plan) -> anyhow::Result<Source> {
    #[cfg(feature = "report")]
    if plan.host {
        let guests = kvm::MachineGuests::find(&images_of(wanted)?);
        let plan = Plan {
            host: false,
            ..plan.clone()
        };
        let source = open_running(wanted, Scope::Machine, &plan)?;
        return Ok(guests.name_in(source));
    }
    open_running(wanted, Scope::Machine, plan)
}

fn open_process(
    wanted: &TargetRequest<'_>,
    process: Process,
    plan: &Plan,
) -> anyhow::Result<Source> {
    // They are read when the recording is over.
    for elf in wanted.elf {
        let path = &elf.path;
        File::open(path)
            .with_context(|| format!("cannot use --elf: cannot open {}", path.display()))?;
    }
    let source = if wanted.ptrace {
        process::open_ptrace(process, Vec::new())
    } else {
        process::open(process, plan)
    };
    source.map_err(anyhow::Error::new)
}

/// The images that `--elf` names.
fn images_of(wanted: &TargetRequest<'_>) -> anyhow::Result<Vec<Image>> {
    let images = wanted.elf.iter();
    let images = images.map(|elf| Image::open(&elf.path, elf.address));
    Ok(images.collect::<Result<_, _>>()?)
}

fn opening(monitor: &Monitor, wanted: &TargetRequest<'_>) -> anyhow::Result<Opening> {
    Ok(qemu::source::opening(monitor, images_of(wanted)?)?)
}

/// Opens the guest of a process under KVM; with `--host` the process as well.
fn open_kvm(pid: i32, images: Vec<Image>, plan: &Plan) -> anyhow::Result<Source> {
    let mut source = kvm::open(pid, images, plan)?;
    if plan.host {
        source.monitor = Some(process::open_monitor(pid, plan)?);
    }
    Ok(source)
}

/// Opens QEMU's guest by its monitor; with `--host` by its process, since only that has vCPUs' threads.
fn open_qemu(monitor: &Monitor, wanted: &TargetRequest<'_>, plan: &Plan) -> anyhow::Result<Source> {
    if plan.host {
        let (pid, kernel) = qemu::source::kvm_process(monitor)?;
        let mut images = images_of(wanted)?;
        if images.is_empty() {
            images.extend(kernel);
        }
        return open_kvm(pid, images, plan);
    }
    Ok(qemu::source::open(monitor, images_of(wanted)?, plan)?)
}

fn libvirt(name: &str) -> anyhow::Result<Monitor> {
    if name.is_empty() {
        bail!("`libvirt:` names no domain: `virsh list` shows those that run");
    }
    Ok(Monitor::Libvirt(qemu::Domain::named(name)))
}

fn open_agent(address: &str, wanted: &TargetRequest<'_>, plan: &Plan) -> anyhow::Result<Source> {
    let images = wanted.elf.iter();
    let images: Vec<_> = images.map(|elf| (elf.path.clone(), elf.address)).collect();
    Ok(agent::open::open(address, &images, plan)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_searched_by_prefix() {
        let forms = ["pid:1", "name:web", "cgroup:/web", "gdb::1234", "web", "7"]
            .map(|target| backend_of(target).map_or("none", |(backend, _)| backend.prefix));
        assert_eq!(forms, ["pid:", "name:", "cgroup:", "gdb:", "", ""]);
        for (index, backend) in BACKENDS.iter().enumerate() {
            let is_last = index == BACKENDS.len() - 1;
            assert_eq!(backend.prefix.is_empty(), is_last, "{}", backend.what);
        }
    }

    #[test]
    fn host_is_refused_where_nobody_knows_of_vcpus() {
        let plan = Plan {
            host: true,
            ..Plan::default()
        };
        let refused = |target: &str, all, ptrace| {
            let wanted = TargetRequest {
                target,
                command: &[],
                keep_running: false,
                stdout: Stdout::Same,
                all,
                ptrace,
                elf: &[],
            };
            let opened = open(&wanted, &plan, &ExitStatus::default());
            opened.map(drop).unwrap_err().to_string() == HOST_REFUSAL
        };
        for backend in BACKENDS {
            let target = format!("{}no such target", backend.prefix);
            assert_eq!(
                refused(&target, false, false),
                !backend.has_host,
                "{target}"
            );
        }
        assert!(refused("", true, true));
    }

    #[test]
    fn a_flag_of_another_kind_is_refused_before_the_target_is_looked_for() {
        let plans = [
            Plan {
                off_cpu: true,
                ..Plan::default()
            },
            Plan {
                per_thread: true,
                ..Plan::default()
            },
            Plan {
                follow: true,
                ..Plan::default()
            },
            Plan {
                no_pause: true,
                ..Plan::default()
            },
        ];
        for backend in BACKENDS {
            // The name is made up, so no process, socket or domain has it.
            let target = format!("{}no such target", backend.prefix);
            let wanted = TargetRequest {
                target: &target,
                command: &[],
                keep_running: false,
                stdout: Stdout::Same,
                all: false,
                ptrace: false,
                elf: &[],
            };
            for plan in &plans {
                let flag = KIND_FLAGS
                    .iter()
                    .find(|flag| (flag.is_given)(plan))
                    .unwrap();
                let opened = open(&wanted, plan, &ExitStatus::default());
                let error = opened.map(drop).unwrap_err().to_string();
                assert_eq!(
                    error == flag.refusal,
                    backend.kind != flag.kind,
                    "{target}: {error}"
                );
            }
        }
    }
}
