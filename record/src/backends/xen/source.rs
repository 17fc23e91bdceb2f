//! Samples a Xen domain, which it freezes for each sample.
//!
//! It makes two calls per sample, whatever the number of vCPUs: one that gets the state, pauses and fetches, and one
//! that resumes. In between, stack bytes are read from mapped frames, without a call. With `ip_only` and `no_pause` the
//! domain is never paused; with the latter the second call finds out which vCPUs ran while their stacks were read.

use super::domain::{Domain, Xen};
use super::follow::Follow;
use super::host_time::{ObservedDomain, observe};
use super::incarnation::{Calls, Incarnation};
use super::others_pause::OthersPause;
use super::rescue::DomainRescuer;
use super::target::{self, FoundDomain};
use super::vcpu;
use crate::elf::Image;
use crate::guest::boots::NARROW_SAMPLES;
use crate::guest::guardian::Guardian;
use crate::guest::page_tables::Paging;
use crate::guest::pauses::PauseWriter;
use crate::guest::processor_time::VcpuTimes;
use crate::guest::vcpu_of;
use crate::source::plan::Plan;
use crate::source::ring::Sink;
use crate::source::schedule::PeriodSlot;
use crate::source::{Facts, Hot, Life, Observer, Source, SourceError, StopWorld, Vcpu, Vcpus};
use crate::sys::clock::monotonic_ns;
use crate::sys::xen::XenError;
use crate::sys::xen::domctl::{DomainInfo, VcpuInfo};
use std::sync::Arc;
use uprof::cold::{PAUSED_BY_OTHERS_NS, Target, TargetKind, TaskEvent};
use uprof::{Arch, State, Task};

/// `SHUTDOWN_*` of sched.h.
const SHUTDOWN_REBOOT: u8 = 1;
const SHUTDOWN_SUSPEND: u8 = 2;
const SHUTDOWN_CRASH: u8 = 3;
const SHUTDOWN_WATCHDOG: u8 = 4;
const SHUTDOWN_SOFT_RESET: u8 = 5;

/// How often the domain's state is checked for shutdown, crash and pauses by others. It is not checked at each sample,
/// since that would prolong the freeze.
const LOOK_EVERY_NS: u64 = 20_000_000;

/// The backend.
struct XenSource {
    facts: Facts,
    current: Incarnation,
    /// `None` with `ip_only` and `no_pause`: a domain that is never paused needs no guardian.
    guardian: Option<Guardian>,
    /// Slot in the period that it shares with other domains that this process records.
    slot: Option<Arc<PeriodSlot>>,
    /// Freezes that the guardian has ended.
    rescues: u64,
    /// Whether stacks are read while the domain runs.
    runs_on: bool,
    /// Whether the guardian, or someone else, ended the last freeze.
    was_rescued: bool,
    /// Processor time of each vCPU, and of all.
    times: VcpuTimes,
    /// When the last sample resumed the domain; it can have run since.
    resumed_ns: u64,
    /// How long someone else has kept the domain paused.
    others_pause: OthersPause,
    /// Whether the last sample left the domain alone, since someone else had paused it.
    left_alone: bool,
    /// With `--host`: when the source had the domain paused.
    pauses: Option<PauseWriter>,
    /// When the domain's state was last checked.
    looked_ns: u64,
    /// Whether the source has paused the domain and not resumed it yet.
    frozen: bool,
    /// With `--follow`: the guest's other boots.
    follow: Option<Follow>,
    /// Calls of earlier incarnations.
    calls_before: Calls,
    /// Whether the domain is recorded from its first instruction.
    boots: bool,
    /// Samples of vCPUs that were not in 64-bit mode, of a domain that boots.
    narrow: u64,
    /// Whether the recording has begun.
    is_recorded: bool,
}

/// Opens the domain named by `target`. If the user gave a single image that can't be relocated, it must be the
/// guest's; without one, the kernel in libxl's configuration is used.
///
/// Must be called while the process has one thread, since it forks a guardian.
///
/// # Errors
/// Says why the domain can't be recorded.
pub fn open(target: &str, images: Vec<Image>, plan: &Plan) -> Result<Source, SourceError> {
    let found = target::find(target)?;
    let domain = found.id;
    let guardian = pauses(plan).then(|| {
        let traces = plan.host;
        Guardian::start(&[], DomainRescuer { domain, traces })
    });
    open_found(found, images, plan, guardian.transpose()?, None)
}

/// Whether domains are paused for samples, so that they need a guardian.
pub fn pauses(plan: &Plan) -> bool {
    plan.boot.is_some() || !plan.ip_only && !plan.no_pause
}

/// As [`open`], with a guardian, and a slot in the period if there are others.
pub fn open_found(
    found: FoundDomain,
    mut images: Vec<Image>,
    plan: &Plan,
    guardian: Option<Guardian>,
    slot: Option<Arc<PeriodSlot>>,
) -> Result<Source, SourceError> {
    let FoundDomain {
        xen,
        id,
        name,
        uuid,
        stored,
        ..
    } = found;
    let given = !images.is_empty();
    if !given {
        let kernel = stored.and_then(|stored| stored.kernel);
        // A compressed kernel is not an ELF file, and is not used.
        images.extend(kernel.and_then(|path| Image::open(&path, None).ok()));
    }
    let follow = match plan.follow.then(|| Follow::new(&name, uuid)) {
        Some(None) => {
            return Err(SourceError(format!(
                "--follow needs the name or UUID of domain {id}, and xenstore has neither"
            )));
        }
        follow => follow.flatten(),
    };
    let domain = Domain::open(xen, id)?;
    let boots = plan.boot.is_some();
    if domain.is_narrow() && !boots {
        return Err(SourceError(domain.narrow()));
    }
    let runs_on = plan.no_pause && !plan.ip_only;
    let vcpus = domain.vcpus;
    // The guardian resumes what was created for this recording.
    let is_held = boots && guardian.as_ref().is_some_and(Guardian::is_frozen);
    let mut source = XenSource {
        facts: Facts {
            freezes: guardian.is_some(),
            missed_time: Some(super::MISSED_TIME),
            images: images.into(),
            ..Facts::new(Target {
                kind: TargetKind::XenDomain,
                id: u64::from(id),
                name,
                arch: domain.kind.arch,
                vcpus,
            })
        },
        guardian,
        slot,
        rescues: 0,
        runs_on,
        was_rescued: false,
        times: VcpuTimes::new(vcpus as usize),
        resumed_ns: 0,
        others_pause: OthersPause::default(),
        left_alone: false,
        pauses: None,
        looked_ns: 0,
        frozen: is_held,
        follow,
        calls_before: Calls::default(),
        boots,
        narrow: 0,
        is_recorded: false,
        current: Incarnation::new(domain),
    };
    source.look_around(given)?;
    let observer = if plan.host {
        source.observe_host_time()?
    } else {
        None
    };
    Ok(Source {
        observer,
        ..Source::of(Hot::StopWorld(Box::new(source)))
    })
}

impl XenSource {
    /// Gathers facts before the first sample, and maps page tables and stacks while the guest runs, so that the first
    /// freeze is as short as the others.
    fn look_around(&mut self, given: bool) -> Result<(), SourceError> {
        self.current.domain.fetch(false, true)?;
        let info = self
            .current
            .domain
            .info()
            .ok_or_else(|| self.current.gone())?;
        self.current.held_by_other = info.is_paused() && !self.boots;
        if self.current.held_by_other {
            self.facts.warnings.push(format!(
                "domain {} is paused by someone else, and is left so: `xl unpause {0}` lets it run",
                self.current.domain.id
            ));
        }
        let now_ns = monotonic_ns();
        for vcpu in 0..self.current.domain.vcpus {
            let info = self.current.domain.vcpu_info(vcpu);
            self.current.online[vcpu as usize] = info.is_some_and(|info| info.online != 0);
            let name = match self.follow {
                Some(_) => vcpu_of(vcpu, &format!("domain {}", self.current.domain.id)),
                None => format!("vCPU {vcpu}"),
            };
            let named = TaskEvent::named(now_ns, Task { space: 0, vcpu }, name);
            self.facts.tasks.push(named);
        }
        let images = Arc::clone(&self.facts.images);
        for image in &*images {
            self.facts
                .notes
                .push(("image".into(), image.path.display().to_string()));
            // If there are several, one may be a program's, which is not in every address space.
            if given && images.len() == 1 && !image.may_move() && !self.boots {
                self.current.check(image)?;
            }
        }
        self.note_facts(info);
        if !self.boots {
            self.current.warm_up();
        }
        Ok(())
    }

    /// With `--host`: prepares to read where the time of the vCPUs goes. Samples are taken without it, too.
    fn observe_host_time(&mut self) -> Result<Option<Box<dyn Observer>>, SourceError> {
        if self.follow.is_some() {
            return Err(SourceError(
                "--host doesn't follow a domain: its next boot is another domain for Xen's trace; leave out --follow"
                    .into(),
            ));
        }
        let domain = &self.current.domain;
        let observed = ObservedDomain {
            id: domain.id,
            is_hvm: domain.kind.is_hvm,
            vcpus: domain.vcpus,
        };
        Ok(match observe(observed) {
            Ok((observer, pauses)) => {
                self.pauses = Some(pauses);
                Some(observer)
            }
            Err(error) => {
                let warning = format!("no host time is recorded, only samples: {error}");
                self.facts.warnings.push(warning);
                None
            }
        })
    }

    fn note_facts(&mut self, info: DomainInfo) {
        let kind = if info.is_hvm() { "HVM or PVH" } else { "PV" };
        let version = self
            .current
            .domain
            .xen
            .version()
            .unwrap_or("unknown".into());
        let mut note = |name: &str, value: String| self.facts.notes.push((name.into(), value));
        note("domain kind", kind.into());
        note("Xen version", version);
        if self.runs_on {
            note("domain paused", "never".into());
        }
        let interface = self.current.domain.xen.interface_version;
        note("domctl interface version", format!("{interface:#x}"));
        note("guest memory", format!("{} MiB", info.total_pages >> 8));
    }

    /// Fetches; if `pause`, with a pause that the guardian watches.
    fn fetch(&mut self, pause: bool, look: bool) -> Result<(), XenError> {
        if pause && let Some(guardian) = &mut self.guardian {
            guardian.freezing();
        }
        let fetched = self.current.domain.fetch(pause, look);
        self.current.failed = fetched.is_err();
        self.frozen = pause && !self.current.failed;
        if pause
            && self.current.failed
            && let Some(guardian) = &self.guardian
        {
            guardian.running();
        }
        if self.frozen
            && let Some(guardian) = &self.guardian
            && !guardian.is_frozen()
        {
            self.undo_late_pause();
        }
        fetched
    }

    /// Resumes the domain if our pause came after the guardian had looked for it, since we stood still just before it.
    #[cold]
    fn undo_late_pause(&mut self) {
        if let Some(guardian) = &self.guardian {
            guardian.await_rescue();
        }
        let id = self.current.domain.id;
        let info = self.current.domain.xen.domain_info(id);
        if info.is_ok_and(|info| info.is_paused()) {
            let _ = self.current.domain.unpause();
        }
    }

    /// The state of a vCPU at `now_ns`. Whether it executes at this moment is not sufficient evidence, since dom0 may
    /// have preempted it for this call.
    fn state_of(&mut self, vcpu: u32, info: VcpuInfo, now_ns: u64) -> State {
        let seen = match info.state() {
            State::Offline => State::Offline,
            _ if self.current.held_by_other => State::Paused,
            state => state,
        };
        let since_ns = now_ns.saturating_sub(self.resumed_ns);
        self.times
            .state(vcpu as usize, seen, info.cpu_time_ns, since_ns)
    }

    fn freeze_domain(&mut self, now_ns: u64, vcpus: &mut Vcpus) -> Result<(), SourceError> {
        self.left_alone = self.guardian.is_some() && self.current.held_by_other;
        let by_us = self.guardian.is_some() && !self.current.held_by_other;
        let is_due = now_ns - self.looked_ns >= LOOK_EVERY_NS;
        let look = is_due || self.current.held_by_other || self.current.failed;
        self.fetch(by_us, look)?;
        let just_released = if look {
            self.looked_ns = now_ns;
            self.note_domain(now_ns)?
        } else {
            false
        };
        // Registers of a domain that someone else has just resumed are inconsistent.
        if !self.current.is_shut_down && !just_released {
            self.hand_over(now_ns, vcpus);
        }
        Ok(())
    }

    /// Updates the state of the domain, as just fetched with the vCPUs. Returns whether someone else has resumed it
    /// since the last time.
    fn note_domain(&mut self, now_ns: u64) -> Result<bool, SourceError> {
        let Some(info) = self.current.domain.info() else {
            let _ = self.resume();
            return Err(self.current.gone());
        };
        self.current.remember_shutdown(Some(info));
        let was_held = std::mem::replace(&mut self.current.held_by_other, info.is_paused());
        self.others_pause.note(self.current.held_by_other, now_ns);
        self.current.is_shut_down = info.is_shut_down();
        Ok(was_held && !self.current.held_by_other && self.guardian.is_some())
    }

    fn hand_over(&mut self, now_ns: u64, vcpus: &mut Vcpus) {
        let space = self.follow.as_ref().map_or(0, |follow| follow.life);
        self.current.moved.fill(true);
        for vcpu in 0..self.current.domain.vcpus {
            let Some(info) = self.current.domain.vcpu_info(vcpu) else {
                continue;
            };
            let state = self.state_of(vcpu, info, now_ns);
            let Some(added) = vcpus.add(Task { space, vcpu }, state) else {
                continue;
            };
            added.handle = u64::from(vcpu);
            let registers = &mut added.registers;
            let paging = self.current.domain.vcpu_place(vcpu, registers);
            // These need no stack, and the freeze is shorter without it.
            if matches!(state, State::Offline | State::Ready) {
                registers.clear();
            }
            let mut paging = paging.unwrap_or(Paging::Unsupported);
            if self.boots && is_narrow(paging) && registers.mask() != 0 {
                let again = self.current.domain.refresh_place(vcpu, paging, registers);
                paging = again.unwrap_or(Paging::Unsupported);
                self.narrow += u64::from(state == State::Running && is_narrow(paging));
            }
            self.current.pagings[vcpu as usize] = paging;
            let mut root = paging.root();
            // For a PV guest, Xen reports the kernel's root.
            if self.current.domain.kind.is_hvm && vcpu::NATIVE == Arch::X86_64 {
                let ip = Arch::X86_64.special_registers().ip;
                root = self.current.roots.of(root, registers.get(ip));
            }
            let has_registers = registers.mask() != 0;
            self.current.moved[vcpu as usize] = !has_registers;
            added.details.root = root.filter(|_| has_registers);
            added.details.cpu = (state != State::Offline).then_some(u64::from(info.cpu));
        }
    }

    /// Finds out which vCPUs ran since they were fetched. Neither their time nor their registers are sufficient alone.
    /// Registers may be the same after an iteration of a loop. The time of an executing vCPU is read from the clocks of
    /// two processors, which may differ, and Xen adds none if the clock of the processor that a vCPU comes to is behind
    /// that of the one it left (`vcpu_runstate_change` in xen/common/sched/core.c).
    fn look_again(&mut self) {
        let looked = self.current.domain.look_at_vcpus().is_ok();
        // vCPUs without registers are skipped, as a domain may have hundreds that are offline.
        for vcpu in 0..self.current.domain.vcpus {
            let place = vcpu as usize;
            if self.current.moved[place] {
                continue;
            }
            let before_ns = self.times.counted_ns(place);
            let stood_still =
                |info: VcpuInfo| info.running == 0 && Some(info.cpu_time_ns) == before_ns;
            let stood_still =
                looked && self.current.domain.vcpu_info(vcpu).is_some_and(stood_still);
            self.current.moved[place] =
                !stood_still || !self.current.domain.has_the_same_registers(vcpu);
        }
    }

    /// The state of the guest, as last fetched. The reason of a shutdown is remembered from earlier, since the
    /// toolstack may remove the domain quickly.
    fn life(&mut self) -> Life {
        if self.current.failed {
            self.current.domain.look();
        }
        let info = self.current.domain.info();
        self.current.remember_shutdown(info);
        let gone = info.is_none_or(|info| info.is_dying());
        let id = self.current.domain.id;
        match self.current.shutdown {
            None if gone => Life::Ended(format!("domain {id} was destroyed")),
            None => Life::Alive,
            Some(shutdown) => life_after(shutdown, id, gone),
        }
    }

    /// Makes the end of a boot not end the recording of a followed guest.
    fn unless_followed(&mut self, life: Life) -> Life {
        let Some(follow) = &mut self.follow else {
            return life;
        };
        let life = follow.ended(life, self.current.domain.id, self.current.domain.vcpus);
        if follow.is_waiting() {
            // Mapped frames would keep the old domain from being destroyed.
            self.current.memory.forget();
            // libxl pauses a domain before it destroys it.
            self.others_pause.note(false, self.looked_ns);
        }
        life
    }

    /// Calls of all incarnations.
    fn calls(&self) -> Calls {
        let calls = self.current.calls();
        Calls {
            hypercalls: self.calls_before.hypercalls + calls.hypercalls,
            mappings: self.calls_before.mappings + calls.mappings,
        }
    }

    /// Ends the freeze, if there is one.
    fn resume_domain(&mut self) -> Result<(), SourceError> {
        if !std::mem::take(&mut self.frozen) {
            self.resumed_ns = monotonic_ns();
            return Ok(());
        }
        let ours = self.guardian.as_ref().is_none_or(Guardian::may_resume);
        self.was_rescued = !ours;
        self.rescues += u64::from(!ours);
        let resumed = if ours {
            self.current.domain.unpause()
        } else {
            Ok(())
        };
        self.resumed_ns = monotonic_ns();
        match resumed {
            // Someone else has undone our pause, so the vCPUs ran.
            Err(error) if error.errno == libc::EINVAL => self.was_rescued = true,
            // The domain is still paused: the guardian looks after it until another try succeeds. One that was
            // destroyed is reported by the next check.
            Err(error) if !error.is_gone() => {
                self.frozen = true;
                if let Some(guardian) = &mut self.guardian {
                    guardian.not_resumed();
                }
                return Err(error.into());
            }
            _ => {}
        }
        if let Some(guardian) = &self.guardian {
            if ours && !guardian.resumed() {
                // It was as late as we were, and must not undo the next pause.
                guardian.await_rescue();
            }
            guardian.running();
        }
        Ok(())
    }

    fn is_waiting(&self) -> bool {
        self.follow.as_ref().is_some_and(Follow::is_waiting)
    }

    /// Switches to the guest's next boot, if it has begun.
    #[cold]
    fn look_for_successor(&mut self) {
        // A soft reset keeps the domain.
        let is_kept = self.current.shutdown == Some(SHUTDOWN_SOFT_RESET);
        let before = Some(self.current.domain.id).filter(|_| !is_kept);
        let found = self.follow.as_mut();
        let Some(id) = found.and_then(|follow| follow.successor(before)) else {
            return;
        };
        // A paused domain is still being restored or built.
        let is_ready = |domain: &mut Domain| {
            domain.fetch(false, true).is_ok()
                && domain.info().is_some_and(|info| {
                    !info.is_paused() && !info.is_dying() && !info.is_shut_down()
                })
                && !domain.is_narrow()
        };
        let opened = Xen::open().and_then(|xen| Domain::open(xen, id));
        let Some(domain) = opened
            .ok()
            .and_then(|mut domain| is_ready(&mut domain).then_some(domain))
        else {
            return;
        };
        let vcpus = domain.vcpus;
        self.calls_before = self.calls();
        self.current = Incarnation::new(domain);
        self.times.restart(vcpus as usize);
        if let Some(guardian) = &mut self.guardian {
            guardian.turn_to(u64::from(id));
        }
        self.current.refresh_modes(true);
        self.current.warm_up();
        if let Some(follow) = &mut self.follow {
            follow.begun(id, vcpus);
        }
    }
}

/// The state of domain `id`, which has shut down for this reason, and may be gone since.
fn life_after(shutdown: u8, id: u16, gone: bool) -> Life {
    match shutdown {
        SHUTDOWN_SUSPEND if gone => Life::Ended(format!("domain {id} was saved or migrated away")),
        SHUTDOWN_SUSPEND => Life::Alive, // until it is gone, or runs again
        SHUTDOWN_REBOOT => Life::Ended(format!(
            "domain {id} rebooted: if it comes back, it has another number, see `xl list`"
        )),
        SHUTDOWN_CRASH => Life::Crashed(format!("domain {id} crashed")),
        SHUTDOWN_WATCHDOG => Life::Crashed(format!("domain {id}'s watchdog ended it")),
        SHUTDOWN_SOFT_RESET => Life::Ended(format!(
            "domain {id} was reset in place, as by kexec: record it again once it runs"
        )),
        _ => Life::Ended(format!("domain {id} shut down")),
    }
}

/// Whether an x86-64 vCPU that translates addresses like this is not in 64-bit mode.
fn is_narrow(paging: Paging) -> bool {
    vcpu::NATIVE == Arch::X86_64 && !matches!(paging, Paging::X86_64 { .. })
}

impl StopWorld for XenSource {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn may_freeze(&self) -> Result<(), SourceError> {
        self.guardian.as_ref().map_or(Ok(()), Guardian::is_there)
    }

    fn begin(&mut self) -> Result<(), SourceError> {
        if !self.frozen
            && let Some(guardian) = &mut self.guardian
        {
            guardian.freezing();
            self.frozen = true;
        }
        self.resume_domain()?;
        if std::mem::take(&mut self.was_rescued) {
            return Err(SourceError(format!(
                "domain {} began before the recorder was ready: try again",
                self.current.domain.id
            )));
        }
        Ok(())
    }

    fn freeze(&mut self, now_ns: u64, vcpus: &mut Vcpus) -> Result<(), SourceError> {
        if self.is_waiting() {
            self.left_alone = true;
            self.look_for_successor();
            return Ok(());
        }
        if self.guardian.is_some()
            && !self.current.held_by_other
            && let Some(pauses) = &self.pauses
        {
            pauses.begin(now_ns);
        }
        let frozen = self.freeze_domain(now_ns, vcpus);
        if frozen.is_err()
            && let Some(pauses) = &mut self.pauses
        {
            pauses.end(monotonic_ns());
        }
        match frozen {
            Err(error) if self.follow.is_some() => {
                let life = self.life();
                match self.unless_followed(life) {
                    Life::Alive if self.is_waiting() => Ok(()),
                    _ => Err(error),
                }
            }
            frozen => frozen,
        }
    }

    fn read(&mut self, vcpu: &Vcpu, address: u64, into: &mut [u8]) -> usize {
        self.current.read(vcpu.handle, address, into)
    }

    fn reads_running(&self) -> bool {
        true
    }

    fn resume(&mut self) -> Result<(), SourceError> {
        if self.runs_on {
            self.look_again();
        }
        let resumed = self.resume_domain();
        if let Some(pauses) = &mut self.pauses {
            pauses.end(self.resumed_ns);
        }
        resumed
    }

    fn complete(&mut self, vcpus: &mut Vcpus) {
        for vcpu in vcpus.all_mut() {
            let paging = self.current.pagings.get(vcpu.handle as usize);
            let is_narrow = self.boots && paging.is_none_or(|paging| is_narrow(*paging));
            if vcpu.registers.mask() != 0 && !is_narrow {
                let number = vcpu.task.vcpu;
                self.current
                    .domain
                    .vcpu_registers(number, &mut vcpu.registers);
            }
        }
    }

    fn period_slot(&self) -> Option<Arc<PeriodSlot>> {
        self.slot.clone()
    }

    fn resumed_ns(&self) -> Option<u64> {
        Some(self.resumed_ns)
    }

    fn was_left_alone(&self) -> bool {
        self.left_alone
    }

    fn has_moved(&self, vcpu: &Vcpu) -> bool {
        if self.runs_on {
            self.current.moved.get(vcpu.handle as usize) != Some(&false)
        } else {
            self.was_rescued
        }
    }

    fn physical(&mut self, vcpu: &Vcpu, address: u64) -> Option<u64> {
        let paging = self.current.pagings.get(vcpu.handle as usize)?;
        self.current
            .memory
            .frame_of(&self.current.domain.xen.privcmd, paging, address)?
            .physical()
    }

    fn kernel_tables(&mut self, vcpu: &Vcpu) -> Option<u64> {
        let paging = self.current.pagings.get(vcpu.handle as usize)?;
        self.current
            .memory
            .own_address(&self.current.domain.xen.privcmd, paging)
    }

    fn between(&mut self, sink: &mut Sink) -> Result<Life, SourceError> {
        if let Some(follow) = &mut self.follow {
            follow.report(sink);
        }
        if !std::mem::replace(&mut self.is_recorded, true) {
            // Reading the kernel took long, and is no time between samples.
            self.times = VcpuTimes::new(self.current.domain.vcpus as usize);
            self.others_pause = OthersPause::default();
        }
        if self.is_waiting() {
            return Ok(Life::Alive);
        }
        if self.frozen
            && let Some(guardian) = &mut self.guardian
        {
            // The domain has not begun.
            guardian.still_freezing();
        }
        // While it boots, each sample of a vCPU that is not in 64-bit mode asks.
        self.current.refresh_modes(!self.boots);
        if self.current.memory.is_stale() {
            self.current.memory.forget();
            self.current.warm_up();
        }
        let life = self.life();
        let life = self.unless_followed(life);
        if let Some(follow) = &mut self.follow {
            follow.report(sink);
        }
        Ok(life)
    }

    fn totals(&self) -> Vec<(String, u64)> {
        let calls = self.calls();
        let mut totals = vec![
            ("hypercalls".into(), calls.hypercalls),
            ("memory_mapping_calls".into(), calls.mappings),
            ("resumed_by_guardian".into(), self.rescues),
        ];
        totals.extend(self.times.totals());
        let paused_ns = self.others_pause.total_ns();
        totals.extend((paused_ns > 0).then(|| (PAUSED_BY_OTHERS_NS.to_owned(), paused_ns)));
        let lives = self.follow.as_ref().map(|follow| follow.life + 1);
        totals.extend(lives.map(|lives| ("lives".to_string(), u64::from(lives))));
        totals.extend((self.narrow > 0).then(|| (NARROW_SAMPLES.to_owned(), self.narrow)));
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_that_was_reset_in_place_has_not_shut_down() {
        let ended = |shutdown, gone| match life_after(shutdown, 7, gone) {
            Life::Ended(text) | Life::Crashed(text) => Some(text),
            Life::Alive => None,
        };
        assert_eq!(ended(0, true).as_deref(), Some("domain 7 shut down"));
        let reset = ended(SHUTDOWN_SOFT_RESET, false).unwrap();
        assert!(reset.starts_with("domain 7 was reset in place"), "{reset}");
        assert_eq!(ended(SHUTDOWN_SUSPEND, false), None);
    }
}
