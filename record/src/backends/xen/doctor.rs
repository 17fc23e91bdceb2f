//! Examines whether a Xen domain can be recorded well on this machine.
//!
//! Input: a target, or none. Output: findings. Takes a few samples of a domain without pausing it; changes nothing.

use super::MISSED_TIME;
use super::domain::{Domain, Xen};
use super::memory::GuestMemory;
use super::target::{self, FoundDomain};
use crate::elf::{GivenImage, Image};
use crate::guest::Trial;
use crate::guest::page_tables::Paging;
use crate::guest::processor_time::VcpuTimes;
use crate::guest::xenstore::Xenstore;
use crate::source::doctor::{Report, Verdict};
use crate::sys::clock::monotonic_ns;
use uprof::{Due, Registers, State};

/// About how often a trial looks at a domain, as long as it has found nothing running.
const TRIAL_RATE_MILLIHERTZ: u64 = 100_000;
/// Most domains that are listed.
const DOMAINS_MAX: usize = 64;

/// Examines the host: is this dom0, is Xen accessible, which domains can be recorded?
pub fn examine_host(report: &mut Report) {
    let mut xen = match Xen::open() {
        Ok(xen) => xen,
        Err(error) if error.is_elsewhere() => {
            return report.say(Verdict::Absent, format!("Xen: {error}"));
        }
        Err(error) => return report.say(Verdict::Poor, format!("Xen: {error}")),
    };
    say_version(report, &mut xen);
    report.say(
        Verdict::Good,
        "we may control domains, and record their boots: `record --boot NAME -- xl create …`",
    );
    let mut store = Xenstore::connect().ok();
    let mut next = 1;
    for _ in 0..DOMAINS_MAX {
        let Ok(info) = xen.domain_from(next) else {
            break;
        };
        let name = store.as_mut();
        let name = name.and_then(|store| store.domain_name(info.domain).ok());
        let state = match (info.is_paused(), info.is_shut_down()) {
            (_, true) => ", has shut down",
            (true, _) => ", paused",
            _ => "",
        };
        let id = info.domain;
        report.targets.push(id.to_string());
        report.say(
            Verdict::Good,
            format!(
                "domain {id} `{}`{state}: `uniprof doctor {id}`",
                name.unwrap_or_default()
            ),
        );
        next = id.saturating_add(1);
    }
    if next == 1 {
        report.say(Verdict::Absent, "no domain but this one");
    }
}

/// Examines a domain, and the image given for its kernel.
pub fn examine_domain(target: &str, elf: Option<&GivenImage>) -> Report {
    let mut report = Report::default();
    let mut found = match target::find(target) {
        Ok(found) => found,
        Err(error) => {
            report.say(Verdict::Bad, error.0);
            return report;
        }
    };
    say_version(&mut report, &mut found.xen);
    say_domain(&mut report, &found);
    let image = say_image(&mut report, &found, elf);
    let id = found.id;
    let mut command = format!("uniprof record -F 99 -d 30s {id}");
    match Domain::open(found.xen, id) {
        Ok(domain) if domain.is_narrow() => report.say(Verdict::Bad, domain.narrow()),
        Ok(domain) => {
            let stacks = ExaminedDomain::new(domain).examine(&mut report, image.as_ref());
            if !stacks {
                command = format!("uniprof record -F 99 -d 30s --stack {id}");
            }
            report.command = Some(command);
        }
        Err(error) => report.say(Verdict::Bad, error.to_string()),
    }
    report
}

fn say_version(report: &mut Report, xen: &mut Xen) {
    let version = xen.version().unwrap_or_else(|| "unknown".into());
    let interface = xen.interface_version;
    report.say(
        Verdict::Good,
        format!("Xen {version}, domctl interface {interface:#x}"),
    );
}

fn say_domain(report: &mut Report, found: &FoundDomain) {
    let info = &found.info;
    let stored = found.stored.as_ref();
    let kind = stored.and_then(|stored| stored.kind.as_deref());
    let kind = match (kind, info.is_hvm()) {
        (Some(kind), _) => kind.to_uppercase(),
        (None, true) => "HVM or PVH".into(),
        (None, false) => "PV".into(),
    };
    report.say(
        Verdict::Good,
        format!(
            "domain {} `{}`: {kind}, {}, {} of {} vCPUs online, {} MiB",
            found.id,
            found.name,
            super::vcpu::NATIVE.name(),
            info.online_vcpus,
            info.max_vcpu_id.wrapping_add(1),
            info.total_pages >> 8
        ),
    );
    if info.is_paused() {
        report.say(
            Verdict::Poor,
            format!("it is paused: `xl unpause {}`", found.id),
        );
    }
    if info.is_shut_down() {
        report.say(Verdict::Bad, "it has shut down: there is nothing to sample");
    }
}

fn say_image(report: &mut Report, found: &FoundDomain, elf: Option<&GivenImage>) -> Option<Image> {
    let stored = found.stored.as_ref();
    let configured = || {
        Some(GivenImage {
            path: stored?.kernel.clone()?,
            address: None,
        })
    };
    let Some(elf) = elf.cloned().or_else(configured) else {
        report.say(
            Verdict::Poor,
            "no image known: libxl's configuration names none; give it with --elf, when recording or \
             when reporting",
        );
        return None;
    };
    match elf.open() {
        Ok(image) => {
            report.say(Verdict::Good, format!("image {elf}"));
            Some(image)
        }
        Err(problem) => {
            report.say(Verdict::Poor, problem.to_string());
            None
        }
    }
}

/// A domain under examination.
struct ExaminedDomain {
    domain: Domain,
    memory: GuestMemory,
    registers: Registers,
    /// Processor time of each vCPU, and of all, and how often a vCPU was found running.
    times: VcpuTimes,
    found_running: u64,
    looked_ns: u64,
}

impl ExaminedDomain {
    fn new(domain: Domain) -> Self {
        ExaminedDomain {
            memory: GuestMemory::new(domain.id),
            times: VcpuTimes::new(domain.vcpus as usize),
            found_running: 0,
            looked_ns: 0,
            domain,
            registers: Registers::default(),
        }
    }

    /// Takes trial samples and reports the result; `false` if stacks have no frame pointers.
    fn examine(&mut self, report: &mut Report, image: Option<&Image>) -> bool {
        let mut trial = Trial::new(image);
        while trial.goes_on() {
            if let Err(error) = self.domain.fetch(false, true) {
                report.say(Verdict::Bad, error.to_string());
                return true;
            }
            let now_ns = monotonic_ns();
            let since_ns = now_ns - std::mem::replace(&mut self.looked_ns, now_ns);
            for vcpu in 0..self.domain.vcpus {
                self.compare_time(vcpu, since_ns);
                self.sample(vcpu, &mut trial);
            }
        }
        trial.report(report);
        let totals = self.times.totals();
        let due = Due::of_guest(&totals, self.found_running, TRIAL_RATE_MILLIHERTZ);
        if let Some(due) = due.filter(|due| due.has_gap() && due.sampled_ns() < due.counted_ns) {
            let share = due.share().unwrap_or(0.0) * 100.0;
            report.say(
                Verdict::Poor,
                format!("samples stand for {share:.0} % of the processor time that Xen counts: {MISSED_TIME}"),
            );
        }
        trial.have_chains()
    }

    /// Compares the processor time of `vcpu` with how often it is found running.
    fn compare_time(&mut self, vcpu: u32, since_ns: u64) {
        let Some(info) = self.domain.vcpu_info(vcpu) else {
            return;
        };
        let seen = info.state();
        let state = self
            .times
            .state(vcpu as usize, seen, info.cpu_time_ns, since_ns);
        self.found_running += u64::from(state == State::Running);
    }

    fn sample(&mut self, vcpu: u32, trial: &mut Trial<'_>) {
        let info = self.domain.vcpu_info(vcpu);
        if !info.is_some_and(|info| info.online != 0 && info.blocked == 0) {
            return;
        }
        let Some(paging) = self.domain.vcpu_place(vcpu, &mut self.registers) else {
            return;
        };
        if paging == Paging::Unsupported {
            return trial.pass_over();
        }
        // Return addresses may be in one of the other registers.
        self.domain.vcpu_registers(vcpu, &mut self.registers);
        let arch = self.domain.kind.arch;
        let (memory, privcmd) = (&mut self.memory, &self.domain.xen.privcmd);
        let mut read = |address, into: &mut [u8]| memory.read(privcmd, &paging, address, into);
        trial.compare(arch, &self.registers, &mut read);
    }
}
