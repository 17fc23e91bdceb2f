//! Follows calls of some functions of a stub's guest by breakpoints at their entries and return addresses.
//!
//! Input: an opened stub, names of functions. Output: calls with start and length. The guest is paused at each
//! breakpoint while the recorder asks for registers, steps over it and resumes the guest; that time is subtracted from
//! the calls. All breakpoints are removed at the end. If the recorder can't remove them, the guardian detaches, and
//! then QEMU and gdbserver remove them.

mod breakpoints;
mod open_calls;
mod heat;
mod functions;
mod one_vcpu;

use super::client::StopReply;
use super::error::GdbError;
use super::handshake::{MOST_VCPUS, Thread};
use super::open::{self, Opening};
use super::source::{GdbSource, life_of};
use crate::guest::checks;
use crate::guest::linux::{self, NotRead};
use crate::source::call_source::{CallCost, CallEvent, FollowCalls};
use crate::source::control::{Control, Ending};
use crate::source::plan::Plan;
use crate::source::{Facts, Life, SourceError};
use crate::sys::clock::monotonic_ns;
use breakpoints::Breakpoints;
use functions::{Function, Search};
use heat::Heat;
use open_calls::{Call, Entry, OpenCalls};
use std::sync::Arc;
use std::time::Duration;
use uprof::cold::{LossReason, SLOWED_CALLS, SLOWED_CALLS_WHY, TaskEvent};
use uprof::cpu::SpecialRegisters;
use uprof::{Span, Task};

/// The limitation of a guest that QEMU emulates (its `check_for_breakpoints`).
const SLOW_PAGES: &str = "QEMU emulates this guest, and runs code an instruction at a time on the 4 KiB pages where \
    breakpoints are, those of the functions and of their callers: calls are counted and nested as they are, but take \
    many times as long where they spend their time there";
/// How long to wait for a stop before checking whether to end, in milliseconds.
const WAIT_MS: u16 = 50;
/// How long the guardian may take to end the conversation: its [`release`](super::release).
const RESCUE_TIME: Duration = Duration::from_secs(4);
/// Most consecutive stops at none of our breakpoints.
const MOST_STRANGE_STOPS: u32 = 16;
/// Task numbers of further stacks of a vCPU begin here.
const FIRST_FURTHER_STACK: u32 = 1 << 16;

/// A guest whose calls are followed.
pub struct CallTracer {
    source: GdbSource,
    functions: Vec<Function>,
    breakpoints: Breakpoints,
    open: OpenCalls,
    heat: Heat,
    cost: CallCost,
    ended: Vec<Call>,
    /// Number of stacks that were reported.
    told: usize,
    strange_stops: u32,
    /// What the client had sent when the guardian had not resumed the guest.
    sends_held: u64,
}

impl FollowCalls for CallTracer {
    fn facts(&self) -> &Facts {
        &self.source.facts
    }

    fn names(&self) -> Vec<String> {
        let names = self.functions.iter();
        names.map(|function| function.name.clone()).collect()
    }

    fn cost(&self) -> &CallCost {
        &self.cost
    }

    fn run(&mut self, control: &mut Control, tell: &mut dyn FnMut(CallEvent)) -> Ending {
        let ending = match self.follow(control, tell) {
            Ok(ending) => ending,
            Err(error) => Ending::Failed(error),
        };
        self.open.finish(&mut self.ended);
        self.tell_ended(tell);
        ending
    }
}

impl CallTracer {
    /// Connects to a stub, and looks for the plan's functions in the guest.
    ///
    /// Must be called while the process has one thread, since it forks a guardian.
    ///
    /// # Errors
    /// Says why calls can't be followed; the guest keeps running.
    pub fn open(opening: Opening, plan: &Plan) -> Result<Self, SourceError> {
        let mut search = Search::new(&plan.calls)?;
        search.look_into(&opening.images);
        let (emulated, shares_memory) = (opening.emulated, opening.ram.is_some());
        let (functions, mut source) = if shares_memory && !search.missing().is_empty() {
            let mut source = open::connect(opening, plan, true, false)?;
            look_into_kernel(&mut search, &mut source)?;
            (search.all()?, source)
        } else {
            // A missing function is reported before the guest is touched.
            (search.all()?, open::connect(opening, plan, true, false)?)
        };
        let [certainly, maybe] = SLOWED_CALLS_WHY;
        let slowed = match emulated {
            Some(true) => Some(certainly),
            Some(false) => None,
            None => Some(maybe),
        };
        if let Some(why) = slowed {
            let note = (SLOWED_CALLS.to_owned(), why.to_owned());
            source.facts.notes.push(note);
        }
        if emulated == Some(true) {
            source.facts.warnings.push(SLOW_PAGES.into());
        }
        if !source.guest.steps {
            let endpoint = source.client.endpoint();
            return Err(SourceError(format!(
                "{endpoint} can't let a guest run for one instruction, which following calls by breakpoints needs; \
                 without --calls it can be sampled"
            )));
        }
        let arch = source.guest.layout.arch;
        let mut tracer = CallTracer {
            heat: Heat::new(plan.most_stops_hz, functions.len(), monotonic_ns()),
            breakpoints: Breakpoints::new(arch),
            open: OpenCalls::default(),
            cost: CallCost::default(),
            ended: Vec::new(),
            told: 0,
            strange_stops: 0,
            sends_held: 0,
            functions,
            source,
        };
        tracer.try_out()?;
        Ok(tracer)
    }

    /// Finds functions whose image the guest has moved, and tries the breakpoints. The guest is paused for it.
    fn try_out(&mut self) -> Result<(), SourceError> {
        let images = Arc::clone(&self.source.facts.images);
        let mut moved: Vec<usize> = self
            .elsewhere()?
            .iter()
            .filter_map(|each| each.image)
            .collect();
        moved.dedup();
        for number in moved {
            if let Some(by) = checks::moved_by(&mut self.source, &images[number])? {
                let of_image = |each: &&mut Function| each.image == Some(number);
                for function in self.functions.iter_mut().filter(of_image) {
                    function.address = function.address.wrapping_add(by);
                }
            }
        }
        if let Some(function) = self.elsewhere()?.first() {
            return Err(function.refusal(&images));
        }
        self.source.guard.guardian.freezing();
        one_vcpu::stop(&mut self.source)?;
        self.set_all()?;
        self.breakpoints.remove_all(&mut self.source.client)?;
        self.source.let_run()?;
        self.source.guard.guardian.running();
        Ok(())
    }

    /// The functions at whose addresses the guest's code differs from their image.
    fn elsewhere(&mut self) -> Result<Vec<Function>, SourceError> {
        self.source.guard.guardian.freezing();
        one_vcpu::stop(&mut self.source)?;
        let mut elsewhere = Vec::new();
        for function in &self.functions {
            let mut code = vec![0; function.code.len()];
            let read = self.source.read_far(0, function.address, &mut code)?;
            if code[..read] != function.code {
                elsewhere.push(function.clone());
            }
        }
        self.source.let_run()?;
        self.source.guard.guardian.running();
        Ok(elsewhere)
    }

    fn set_all(&mut self) -> Result<(), SourceError> {
        for function in &self.functions {
            let client = &mut self.source.client;
            if self.breakpoints.set(client, function.address)? {
                continue;
            }
            let (name, endpoint) = (&function.name, client.endpoint());
            let why = if self.breakpoints.are_known() {
                format!(
                    "{endpoint} has no breakpoint for {name} (at {:#x}): name fewer functions",
                    function.address
                )
            } else {
                format!("{endpoint} knows no breakpoints: calls can't be followed there")
            };
            return Err(SourceError(format!(
                "{why}; without --calls the guest can be sampled"
            )));
        }
        Ok(())
    }

    fn follow(
        &mut self,
        control: &mut Control,
        tell: &mut dyn FnMut(CallEvent),
    ) -> Result<Ending, SourceError> {
        self.source.guard.guardian.freezing();
        one_vcpu::stop(&mut self.source)?;
        self.set_all()?;
        self.source.let_run()?;
        control.begin(monotonic_ns());
        loop {
            self.still_held()?;
            let ending = control.ending(monotonic_ns());
            let stop = match ending {
                Some(_) => self.let_go().map(|()| Life::Alive),
                None => self.next_stop(tell),
            };
            if stop.is_err() {
                // If the guardian has ended the conversation, errors of any kind may follow.
                self.still_held()?;
            }
            if let (Ok(_), Some(ending)) = (&stop, ending) {
                return Ok(ending);
            }
            match stop {
                Ok(Life::Alive) => self.tell_ended(tell),
                Ok(life) => return Ok(Ending::of_life(life)),
                Err(GdbError::Closed(_)) => {
                    self.source.gone();
                    return Ok(Ending::of_life(self.source.life.clone()));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Checks that the guardian exists, and has not resumed the guest.
    fn still_held(&mut self) -> Result<(), SourceError> {
        self.source.guard.guardian.is_there()?;
        if self.source.guard.guardian.still_freezing() {
            self.sends_held = self.source.client.sends;
            return Ok(());
        }
        // A byte of ours that came to the stub after the guardian's last has stopped the guest. Then it is released
        // once more, over another connection, when the source is dropped.
        let has_ended = self.source.client.connection().await_end(RESCUE_TIME);
        if has_ended && self.source.client.sends == self.sends_held {
            self.source.guard.forget();
        }
        Err(SourceError(
            "the recorder itself stood still for more than half a second, so that its guardian let the guest run and \
             removed the breakpoints; the trace ends there"
                .into(),
        ))
    }

    /// Stops the guest, and resumes it without breakpoints.
    fn let_go(&mut self) -> Result<(), GdbError> {
        one_vcpu::stop(&mut self.source)?;
        self.breakpoints.remove_all(&mut self.source.client)?;
        self.source.let_run()
    }

    /// Waits for a stop, and handles it.
    fn next_stop(&mut self, tell: &mut dyn FnMut(CallEvent)) -> Result<Life, GdbError> {
        let Some(packet) = self.source.client.unasked()? else {
            let wait = self.source.client.connection().wait_to_receive(WAIT_MS);
            let endpoint = || self.source.client.endpoint().clone();
            return wait
                .map(|()| Life::Alive)
                .map_err(|errno| GdbError::Broken(endpoint(), errno));
        };
        let begun_ns = monotonic_ns();
        let id = StopReply::thread(packet).unwrap_or_default().to_owned();
        match StopReply::parse(packet) {
            // A breakpoint is a trap.
            Some(StopReply::Stopped(5)) => {}
            Some(stop) if stop.is_interrupt() => {
                self.breakpoints.remove_all(&mut self.source.client)?;
                self.source.held_by_other = true;
                let how =
                    "someone else stopped the guest (a monitor, a snapshot), and it is left so";
                return Ok(Life::Ended(how.into()));
            }
            Some(stop) => return Ok(life_of(stop)),
            None => return Ok(Life::Alive),
        }
        self.cost.stops += 1;
        let place = self.place_of(&id, begun_ns, tell);
        self.at_breakpoint(place, begun_ns, tell)?;
        self.source.let_run()?;
        let took_ns = monotonic_ns().saturating_sub(begun_ns);
        self.cost.stopped.add(took_ns);
        if self.strange_stops > MOST_STRANGE_STOPS {
            Err(self
                .source
                .client
                .nonsense("the guest stops where no breakpoint of ours is, again and again"))
        } else {
            Ok(Life::Alive)
        }
    }

    /// The index of a vCPU or thread, which may be new.
    fn place_of(&mut self, id: &str, now_ns: u64, tell: &mut dyn FnMut(CallEvent)) -> usize {
        let threads = &mut self.source.guest.threads;
        if let Some(place) = threads.iter().position(|thread| thread.id == id) {
            return place;
        }
        let sound = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b'p' | b'.');
        if id.is_empty() || !id.bytes().all(sound) || threads.len() >= MOST_VCPUS {
            return 0;
        }
        let number = threads.len() as u32;
        threads.push(Thread {
            id: id.to_owned(),
            number,
            name: format!("thread {id}"),
        });
        let now_ns = self.cost.guest_ns(now_ns);
        let named = TaskEvent::named(now_ns, task(number), format!("thread {id}"));
        tell(CallEvent::Task(named));
        self.source.guest.threads.len() - 1
    }

    /// Handles a vCPU at a breakpoint: notes entry or return, and steps over the breakpoint if it stays.
    fn at_breakpoint(
        &mut self,
        place: usize,
        now_ns: u64,
        tell: &mut dyn FnMut(CallEvent),
    ) -> Result<(), GdbError> {
        let registers = one_vcpu::registers(&mut self.source, place)?;
        let SpecialRegisters { ip, sp, .. } = self.source.guest.layout.arch.special_registers();
        let at = registers.get(ip).unwrap_or(0);
        let stack_pointer = registers.get(sp).unwrap_or(0);
        if !self.breakpoints.is_at(at) {
            // Two vCPUs came to a breakpoint that is no longer set.
            self.strange_stops += 1;
            return Ok(());
        }
        self.strange_stops = 0;
        let vcpu = self.source.guest.threads[place].number;
        let time_ns = self.cost.guest_ns(now_ns);
        self.open
            .leave(vcpu, at, stack_pointer, time_ns, &mut self.ended);
        let entered = self.functions.iter();
        let entered = entered
            .enumerate()
            .find(|(_, each)| each.is_on && each.address == at);
        let entered = entered.map(|(index, _)| index);
        let stopped_ns = now_ns - time_ns;
        if let Some(hot) = self.heat.stop(entered, now_ns, stopped_ns) {
            let function = &mut self.functions[hot.function];
            function.is_on = false;
            let address = function.address;
            if address != at && self.open.returning_to(address) == 0 {
                self.breakpoints.remove(&mut self.source.client, address)?;
            }
            self.cost.too_hot.push(hot);
            tell(CallEvent::Lost {
                reason: LossReason::CallsLost,
                count: 1,
                time_ns,
            });
        }
        if let Some(function) = entered.filter(|index| self.functions[*index].is_on) {
            let followed = match one_vcpu::returns_to(&mut self.source, place, &registers)? {
                Some((return_to, stack_pointer)) => self.begin(Entry {
                    function,
                    vcpu,
                    return_to,
                    stack_pointer,
                    time_ns,
                })?,
                None => false,
            };
            if !followed {
                tell(CallEvent::Lost {
                    reason: LossReason::CallsLost,
                    count: 1,
                    time_ns,
                });
            }
        }
        let is_entry = self
            .functions
            .iter()
            .any(|each| each.is_on && each.address == at);
        if !is_entry && self.open.returning_to(at) == 0 {
            return self.breakpoints.remove(&mut self.source.client, at);
        }
        self.breakpoints.lift(&mut self.source.client, at)?;
        let took_ns = one_vcpu::step(&mut self.source, place, &registers)?;
        self.cost.steps.add(took_ns);
        self.breakpoints.set(&mut self.source.client, at)?;
        Ok(())
    }

    /// Follows a call, if a breakpoint can be set at its return address and there is room for both.
    fn begin(&mut self, entry: Entry) -> Result<bool, GdbError> {
        if !self
            .breakpoints
            .set(&mut self.source.client, entry.return_to)?
        {
            return Ok(false);
        }
        self.cost.changed_code |= self.breakpoints.change_code();
        let followed = self.open.enter(entry, &mut self.ended);
        Ok(followed)
    }

    /// Reports the calls that ended, and stacks that are new.
    fn tell_ended(&mut self, tell: &mut dyn FnMut(CallEvent)) {
        let mut ended = std::mem::take(&mut self.ended);
        for stack in self.told..self.open.stacks() {
            let (vcpu, nth) = self.open.owner(stack);
            if nth > 0 {
                let name = format!("{}, stack {}", self.name_of(vcpu), nth + 1);
                let now_ns = self.cost.guest_ns(monotonic_ns());
                let named = TaskEvent::named(now_ns, self.task_of(stack).0, name);
                tell(CallEvent::Task(named));
            }
        }
        self.told = self.open.stacks();
        for call in ended.drain(..) {
            let (task, cpu) = self.task_of(call.task);
            let name = call.name;
            tell(CallEvent::Call(Span {
                cpu,
                ..call.with(name, task)
            }));
        }
        self.ended = ended;
    }

    fn name_of(&self, vcpu: u32) -> &str {
        let threads = self.source.guest.threads.iter();
        let mut named = threads.filter(|thread| thread.number == vcpu);
        named.next().map_or("", |thread| &thread.name)
    }

    /// The task of a stack, and its vCPU if the task doesn't show it.
    fn task_of(&self, stack: usize) -> (Task, Option<u32>) {
        match self.open.owner(stack) {
            (vcpu, 0) => (task(vcpu), None),
            (vcpu, _) => (task(FIRST_FURTHER_STACK + stack as u32), Some(vcpu)),
        }
    }
}

/// Looks for the functions in the kernel of a guest that runs Linux.
fn look_into_kernel(search: &mut Search<'_>, source: &mut GdbSource) -> Result<(), SourceError> {
    match linux::read(source) {
        Ok(Some(kernel)) => {
            let banner = kernel.facts().banner;
            source.facts.notes.push(("guest kernel".into(), banner));
            search.look_into_kernel(&kernel);
            Ok(())
        }
        Ok(None) | Err(NotRead::Hidden) => Ok(()),
        Err(NotRead::NotUnderstood(why)) => Err(SourceError(format!(
            "no function {} in the images given, and the guest's kernel, which seems to be Linux, is not understood \
             ({why})",
            search.missing().join(", ")
        ))),
        Err(NotRead::Failed(error)) => Err(error),
    }
}

fn task(vcpu: u32) -> Task {
    Task { space: 0, vcpu }
}
