//! The gdb stub: the crate gdbstub, used in the same way as in cloud-hypervisor.

use crate::vm::Vm;
use gdbstub::common::{Signal, Tid};
use gdbstub::conn::ConnectionExt;
use gdbstub::stub::run_blocking::{BlockingEventLoop, Event, WaitForStopReasonError};
use gdbstub::stub::{DisconnectReason, GdbStub, MultiThreadStopReason};
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::multithread::{
    MultiThreadBase, MultiThreadResume, MultiThreadResumeOps,
};
use gdbstub::target::{Target, TargetError, TargetResult};
use gdbstub_arch::x86::X86_64_SSE;
use gdbstub_arch::x86::reg::X86_64CoreRegs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

/// Serves one debugger.
pub fn serve(vm: &Arc<Vm>, path: &str) {
    let listener = UnixListener::bind(path).expect("the socket can be made");
    let (connection, _) = listener.accept().expect("a debugger");
    let mut guest = Guest(Arc::clone(vm));
    let stub = GdbStub::new(connection);
    match stub.run_blocking::<Loop>(&mut guest) {
        Ok(DisconnectReason::Disconnect) => guest.0.resume(),
        // As in cloud-hypervisor, a debugger that disconnects without detaching leaves the guest as it is.
        Ok(other) => eprintln!("the debugger is gone: {other:?}"),
        Err(error) => eprintln!("the debugger is gone: {error}"),
    }
}

struct Guest(Arc<Vm>);

fn number(tid: Tid) -> usize {
    tid.get() - 1
}

impl Target for Guest {
    type Arch = X86_64_SSE;
    type Error = &'static str;

    fn base_ops(&mut self) -> BaseOps<'_, Self::Arch, Self::Error> {
        BaseOps::MultiThread(self)
    }

    fn guard_rail_implicit_sw_breakpoints(&self) -> bool {
        true
    }
}

impl MultiThreadBase for Guest {
    fn read_registers(&mut self, to: &mut X86_64CoreRegs, tid: Tid) -> TargetResult<(), Self> {
        let vcpu = self.0.vcpu(number(tid));
        let from = vcpu.get_regs().map_err(|_| TargetError::NonFatal)?;
        to.regs = [
            from.rax, from.rbx, from.rcx, from.rdx, from.rsi, from.rdi, from.rbp, from.rsp,
            from.r8, from.r9, from.r10, from.r11, from.r12, from.r13, from.r14, from.r15,
        ];
        to.rip = from.rip;
        to.eflags = from.rflags as u32;
        Ok(())
    }

    fn write_registers(&mut self, _: &X86_64CoreRegs, _: Tid) -> TargetResult<(), Self> {
        Err(TargetError::NonFatal)
    }

    fn read_addrs(&mut self, start: u64, data: &mut [u8], tid: Tid) -> TargetResult<usize, Self> {
        match self.0.read(number(tid), start, data) {
            0 => Err(TargetError::NonFatal),
            count => Ok(count),
        }
    }

    fn write_addrs(&mut self, _: u64, _: &[u8], _: Tid) -> TargetResult<(), Self> {
        Err(TargetError::NonFatal)
    }

    fn list_active_threads(&mut self, each: &mut dyn FnMut(Tid)) -> Result<(), Self::Error> {
        (1..=self.0.vcpus()).filter_map(Tid::new).for_each(each);
        Ok(())
    }

    fn support_resume(&mut self) -> Option<MultiThreadResumeOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadResume for Guest {
    fn resume(&mut self) -> Result<(), Self::Error> {
        self.0.resume();
        Ok(())
    }

    fn clear_resume_actions(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    fn set_resume_action_continue(&mut self, _: Tid, _: Option<Signal>) -> Result<(), Self::Error> {
        Ok(())
    }
}

enum Loop {}

impl BlockingEventLoop for Loop {
    type Target = Guest;
    type Connection = UnixStream;
    type StopReason = MultiThreadStopReason<u64>;

    /// The guest never stops by itself, so this waits only for the debugger.
    fn wait_for_stop_reason(
        _: &mut Guest,
        connection: &mut UnixStream,
    ) -> Result<Event<Self::StopReason>, WaitForStopReasonError<&'static str, io::Error>> {
        let byte = ConnectionExt::read(connection).map_err(WaitForStopReasonError::Connection)?;
        Ok(Event::IncomingData(byte))
    }

    fn on_interrupt(guest: &mut Guest) -> Result<Option<Self::StopReason>, &'static str> {
        guest.0.pause();
        Ok(Some(MultiThreadStopReason::Signal(Signal::SIGINT)))
    }
}
