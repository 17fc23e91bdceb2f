//! Requests to a stub about the vCPU that came to a breakpoint, and the step past it.

use crate::backends::gdb::client::StopReply;
use crate::backends::gdb::error::GdbError;
use crate::backends::gdb::handshake::Continue;
use crate::backends::gdb::source::{GdbSource, life_of};
use crate::backends::gdb::stacks;
use crate::sys::clock::monotonic_ns;
use uprof::cpu::aarch64;
use uprof::{Arch, Registers};

/// Most steps until a vCPU is past a breakpoint: an instruction that repeats itself takes many, and goes on alone.
const MOST_STEPS: u32 = 8;

/// Interrupts the guest, which may have stopped by itself meanwhile.
pub fn stop(source: &mut GdbSource) -> Result<(), GdbError> {
    source.client.begin("to stop");
    source.client.add_interrupt();
    expect_stop(source)
}

fn expect_stop(source: &mut GdbSource) -> Result<(), GdbError> {
    match StopReply::parse(source.client.reply()?) {
        Some(StopReply::Stopped(_)) => Ok(()),
        Some(ended) => {
            source.life = life_of(ended);
            Err(source.client.nonsense("the guest ended"))
        }
        None => Err(source
            .client
            .nonsense("it did not say that the guest has stopped")),
    }
}

/// The registers of a vCPU.
pub fn registers(source: &mut GdbSource, place: usize) -> Result<Registers, GdbError> {
    let (client, guest) = (&mut source.client, &source.guest);
    let thread = &guest.threads[place];
    client.begin("for registers");
    stacks::choose(client, thread);
    client.add(format_args!("g"));
    stacks::expect_chosen(client, thread)?;
    let mut registers = Registers::default();
    if guest.layout.read(client.reply()?, &mut registers) {
        Ok(registers)
    } else {
        Err(client.nonsense("it has no registers of a vCPU that it stopped"))
    }
}

/// The return address of a function at whose first instruction a vCPU is, and the stack pointer after the return;
/// `None` if the stack can't be read.
pub fn returns_to(
    source: &mut GdbSource,
    place: usize,
    registers: &Registers,
) -> Result<Option<(u64, u64)>, GdbError> {
    let arch = source.guest.layout.arch;
    let sp = arch.special_registers().sp;
    let sp = registers.get(sp).unwrap_or(0);
    match arch {
        Arch::X86_64 => {
            let mut word = [0; 8];
            let read = source.read_far(place, sp, &mut word)?;
            let is_whole = read == word.len();
            Ok(is_whole.then(|| (u64::from_le_bytes(word), sp.wrapping_add(8))))
        }
        Arch::Aarch64 => Ok(registers.get(aarch64::LR).map(|link| (link, sp))),
    }
}

/// Runs one vCPU, whose registers are given, for one instruction while the others are paused. Returns how long that
/// took, in nanoseconds.
pub fn step(source: &mut GdbSource, place: usize, before: &Registers) -> Result<u64, GdbError> {
    let ip = source.guest.layout.arch.special_registers().ip;
    let mut tries = 0;
    loop {
        let begun_ns = monotonic_ns();
        let client = &mut source.client;
        let id = &source.guest.threads[place].id;
        client.begin("to step over a breakpoint");
        match source.guest.resume {
            Continue::All if !id.is_empty() => client.add(format_args!("vCont;s:{id}")),
            Continue::All => client.add(format_args!("vCont;s")),
            Continue::Plain => client.add(format_args!("s")),
        }
        expect_stop(source)?;
        let took_ns = monotonic_ns().saturating_sub(begun_ns);
        tries += 1;
        // QEMU may first stop for a request that was pending, as of another vCPU that came to a breakpoint at the same
        // time. This vCPU has not moved then.
        if tries == MOST_STEPS || registers(source, place)?.get(ip) != before.get(ip) {
            return Ok(took_ns);
        }
    }
}
