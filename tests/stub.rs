//! Debug stubs that misbehave: each fault is reported within a time limit, and the guest continues to run.
//!
//! The stub is that of the gdbstub crate, which Firecracker, cloud-hypervisor and uhyve use as well. Between
//! it and the recorder is a line that corrupts packets as a test requires.

use gdbstub::arch::{Arch, Registers};
use gdbstub::common::{Signal, Tid};
use gdbstub::conn::Connection;
use gdbstub::stub::state_machine::GdbStubStateMachine;
use gdbstub::stub::{GdbStub, MultiThreadStopReason};
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::multithread::{
    MultiThreadBase, MultiThreadResume, MultiThreadResumeOps,
};
use gdbstub::target::{Target, TargetError, TargetResult};
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The fault of a stub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// Replies with registers take 5 ms.
    Slow,
    /// From the 20th stop on, there is no reply with registers.
    Hangs,
    /// The connection closes in the middle of the 20th reply with registers.
    DiesMidPacket,
    BadChecksum,
    /// A `g` reply of 40 bytes.
    ShortRegisters,
    /// The target description is for RISC-V.
    OtherArch,
    /// There is no reply at all.
    Mute,
}

/// The number of good stops, so that some samples come before the fault.
const GOOD_STOPS: u64 = 20;

/// The registers of x86-64. Only rip, rsp and rbp matter here.
#[derive(Debug, Default, Clone, PartialEq)]
struct Words {
    rip: u64,
    rsp: u64,
    rbp: u64,
    short: bool,
}

impl Registers for Words {
    type ProgramCounter = u64;

    fn pc(&self) -> u64 {
        self.rip
    }

    fn gdb_serialize(&self, mut write_byte: impl FnMut(Option<u8>)) {
        let mut words = [0; 17];
        (words[6], words[7], words[16]) = (self.rbp, self.rsp, self.rip);
        let count = if self.short { 5 } else { 17 };
        for byte in words[..count].iter().flat_map(|word| word.to_le_bytes()) {
            write_byte(Some(byte));
        }
    }

    fn gdb_deserialize(&mut self, _: &[u8]) -> Result<(), ()> {
        Ok(())
    }
}

#[derive(Debug)]
enum Cpu<const OTHER: bool> {}

const NAMES: &str = "rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip";

impl<const OTHER: bool> Arch for Cpu<OTHER> {
    type Usize = u64;
    type Registers = Words;
    type BreakpointKind = usize;
    type RegId = ();

    fn target_description_xml() -> Option<&'static str> {
        static X86_64: std::sync::OnceLock<String> = std::sync::OnceLock::new();
        let registers = || {
            let each = NAMES
                .split(' ')
                .map(|name| format!("<reg name='{name}' bitsize='64'/>"));
            each.collect::<String>()
        };
        match OTHER {
            true => Some("<target><architecture>riscv:rv64</architecture></target>"),
            false => Some(X86_64.get_or_init(|| {
                format!(
                    "<target><architecture>i386:x86-64</architecture>{}</target>",
                    registers()
                )
            })),
        }
    }
}

/// A guest with a stack of three frames at 0x8000.
struct Guest<const OTHER: bool> {
    fault: Fault,
    /// Number of times that registers were read.
    reads: Arc<AtomicU64>,
    running: Arc<AtomicBool>,
}

impl<const OTHER: bool> Target for Guest<OTHER> {
    type Arch = Cpu<OTHER>;
    type Error = &'static str;

    fn base_ops(&mut self) -> BaseOps<'_, Self::Arch, Self::Error> {
        BaseOps::MultiThread(self)
    }

    fn guard_rail_implicit_sw_breakpoints(&self) -> bool {
        true
    }
}

impl<const OTHER: bool> MultiThreadBase for Guest<OTHER> {
    fn read_registers(&mut self, registers: &mut Words, _: Tid) -> TargetResult<(), Self> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if self.fault == Fault::Slow {
            std::thread::sleep(Duration::from_millis(5));
        }
        *registers = Words {
            rip: 0x1000,
            rsp: 0x8000,
            rbp: 0x8010,
            short: self.fault == Fault::ShortRegisters,
        };
        Ok(())
    }

    fn write_registers(&mut self, _: &Words, _: Tid) -> TargetResult<(), Self> {
        Err(TargetError::NonFatal)
    }

    fn read_addrs(&mut self, start: u64, data: &mut [u8], _: Tid) -> TargetResult<usize, Self> {
        const STACK: [u64; 6] = [0, 0, 0x8020, 0x1100, 0, 0x1200];
        let offset = usize::try_from(start.wrapping_sub(0x8000)).unwrap_or(usize::MAX);
        let bytes: Vec<u8> = STACK.iter().flat_map(|word| word.to_le_bytes()).collect();
        let Some(there) = bytes.get(offset..).filter(|there| !there.is_empty()) else {
            return Err(TargetError::NonFatal);
        };
        let count = there.len().min(data.len());
        data[..count].copy_from_slice(&there[..count]);
        Ok(count)
    }

    fn write_addrs(&mut self, _: u64, _: &[u8], _: Tid) -> TargetResult<(), Self> {
        Err(TargetError::NonFatal)
    }

    fn list_active_threads(&mut self, register: &mut dyn FnMut(Tid)) -> Result<(), Self::Error> {
        register(Tid::new(1).unwrap());
        Ok(())
    }

    fn support_resume(&mut self) -> Option<MultiThreadResumeOps<'_, Self>> {
        Some(self)
    }
}

impl<const OTHER: bool> MultiThreadResume for Guest<OTHER> {
    fn resume(&mut self) -> Result<(), Self::Error> {
        self.running.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn clear_resume_actions(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    fn set_resume_action_continue(&mut self, _: Tid, _: Option<Signal>) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// The connection between stub and recorder. It collects each packet and passes it on, corrupted or not.
struct Line {
    stream: UnixStream,
    packet: Vec<u8>,
    fault: Fault,
    /// Number of times that registers were read: now, and when the last packet was passed on.
    reads: Arc<AtomicU64>,
    passed: u64,
    dead: bool,
}

impl Line {
    fn read(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        match self.dead {
            true => Err(io::ErrorKind::BrokenPipe.into()),
            false => self.stream.read_exact(&mut byte).map(|()| byte[0]),
        }
    }

    fn pass_on(&mut self) -> io::Result<()> {
        let mut packet = std::mem::take(&mut self.packet);
        let reads = self.reads.load(Ordering::SeqCst);
        let late = std::mem::replace(&mut self.passed, reads) != reads && reads > GOOD_STOPS;
        match self.fault {
            Fault::Hangs if late => return Ok(()),
            Fault::DiesMidPacket if late => {
                packet.truncate(10);
                self.dead = true;
            }
            Fault::BadChecksum if late => {
                let last = packet.len() - 1;
                packet[last] = if packet[last] == b'0' { b'1' } else { b'0' };
            }
            Fault::Mute => return Ok(()),
            _ => {}
        }
        Write::write_all(&mut self.stream, &packet)?;
        if self.dead {
            self.stream.shutdown(std::net::Shutdown::Both)?;
        }
        Ok(())
    }
}

impl Connection for Line {
    type Error = io::Error;

    fn write(&mut self, byte: u8) -> io::Result<()> {
        self.packet.push(byte);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass_on()
    }
}

/// Serves one debugger after the other, as QEMU does. A new connection stops the guest, closing it changes
/// nothing, and detaching resumes the guest.
fn serve<const OTHER: bool>(listener: UnixListener, fault: Fault, running: Arc<AtomicBool>) {
    let reads = Arc::new(AtomicU64::new(0));
    while let Ok((stream, _)) = listener.accept() {
        running.store(false, Ordering::SeqCst);
        let line = Line {
            stream,
            packet: Vec::new(),
            fault,
            reads: Arc::clone(&reads),
            passed: reads.load(Ordering::SeqCst),
            dead: false,
        };
        let mut guest = Guest::<OTHER> {
            fault,
            reads: Arc::clone(&reads),
            running: Arc::clone(&running),
        };
        if let Ok(true) = converse(line, &mut guest) {
            running.store(true, Ordering::SeqCst);
        }
    }
}

/// Serves until the debugger has gone. Returns whether it detached.
fn converse<const OTHER: bool>(line: Line, guest: &mut Guest<OTHER>) -> Result<bool, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let stub = GdbStub::new(line);
    let mut state = stub
        .run_state_machine(guest)
        .map_err(|error| text(&error))?;
    loop {
        state = match state {
            GdbStubStateMachine::Idle(mut idle) => {
                let byte = idle.borrow_conn().read().map_err(|error| text(&error))?;
                idle.incoming_data(guest, byte)
                    .map_err(|error| text(&error))?
            }
            GdbStubStateMachine::Running(mut running) => {
                let byte = running.borrow_conn().read().map_err(|error| text(&error))?;
                running
                    .incoming_data(guest, byte)
                    .map_err(|error| text(&error))?
            }
            GdbStubStateMachine::CtrlCInterrupt(interrupt) => {
                guest.running.store(false, Ordering::SeqCst);
                let stop = MultiThreadStopReason::Signal(Signal::SIGINT);
                let handled = interrupt.interrupt_handled(guest, Some(stop));
                handled.map_err(|error| text(&error))?
            }
            GdbStubStateMachine::Disconnected(_) => return Ok(true),
        };
    }
}

/// Records from a stub with a fault. Returns the exit status, the messages, and whether the guest soon ran
/// again.
fn record(fault: Fault, output: &Path) -> (Option<i32>, String, bool) {
    record_with(fault, output, &["-F", "200"])
}

/// As [`record`], with these flags.
fn record_with(fault: Fault, output: &Path, flags: &[&str]) -> (Option<i32>, String, bool) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stub");
    let listener = UnixListener::bind(&path).unwrap();
    let running = Arc::new(AtomicBool::new(true));
    let shared = Arc::clone(&running);
    std::thread::spawn(move || match fault {
        Fault::OtherArch => serve::<true>(listener, fault, shared),
        _ => serve::<false>(listener, fault, shared),
    });
    let duration = match fault {
        Fault::Nothing => "2s",
        Fault::Slow => "4s",
        _ => "20s",
    };
    let began = Instant::now();
    let ended = kit::uniprof()
        .args(["record", "-d", duration, "-o"])
        .arg(output)
        .args(flags)
        .arg(format!("gdb:{}", path.display()))
        .output()
        .unwrap();
    let took = began.elapsed();
    assert!(
        took < Duration::from_secs(12),
        "{fault:?}: it took {took:?} to say so"
    );
    let patience = Instant::now() + Duration::from_secs(3);
    while !running.load(Ordering::SeqCst) && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    (ended.status.code(), said, running.load(Ordering::SeqCst))
}

/// The process id of a recorder's guardian, as soon as there is one.
fn guardian_of(recorder: u32) -> String {
    let children = format!("/proc/{recorder}/task/{recorder}/children");
    let began = Instant::now();
    loop {
        let children = std::fs::read_to_string(&children).unwrap();
        let named = |pid: &&str| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name == "uprof-guardian\n")
        };
        if let Some(pid) = children.split_whitespace().find(named) {
            return pid.to_owned();
        }
        assert!(began.elapsed() < Duration::from_secs(10), "no guardian");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(signal: &str, pids: &[&str]) {
    let sent = Command::new("kill").arg(signal).args(pids).status();
    assert!(sent.unwrap().success());
}

/// Runs `doctor` with these words. Returns both output streams.
fn doctor(words: &[&str], runtime: &Path) -> (Option<i32>, String) {
    let ended = kit::uniprof()
        .arg("doctor")
        .args(words)
        .env("XDG_RUNTIME_DIR", runtime)
        .output()
        .unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    (
        ended.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

#[test]
fn doctor_takes_an_image_with_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stub");
    let listener = UnixListener::bind(&path).unwrap();
    let running = Arc::new(AtomicBool::new(true));
    std::thread::spawn(move || serve::<false>(listener, Fault::Nothing, running));
    let image = std::env::current_exe().unwrap();
    let target = format!("gdb:{}", path.display());
    let examined = |address: &str| {
        let elf = format!("{}@{address}", image.display());
        let (status, said) = doctor(&["--elf", &elf, &target], folder.path());
        (status, said, format!(" --elf {elf} {target}"))
    };
    let (status, said, command) = examined("0x400000");
    assert_eq!(status, Some(1), "{said}");
    let advice = said.lines().find(|line| line.starts_with("Try: "));
    assert!(
        advice.is_some_and(|line| line.ends_with(&command)),
        "{said}"
    );
    let (status, said, _) = examined("0x400001");
    assert!(
        status == Some(2) && said.contains("start of a page"),
        "{said}"
    );
}

#[test]
fn a_guest_whose_recorder_and_guardian_were_killed_is_found_and_let_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stub");
    let listener = UnixListener::bind(&path).unwrap();
    let running = Arc::new(AtomicBool::new(true));
    let shared = Arc::clone(&running);
    std::thread::spawn(move || serve::<false>(listener, Fault::Hangs, shared));
    let mut recorder = kit::uniprof()
        .args(["record", "-F", "200", "-d", "20s", "-o"])
        .arg(folder.path().join("out.uprof"))
        .arg(format!("gdb:{}", path.display()))
        .env("XDG_RUNTIME_DIR", folder.path())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let guardian = guardian_of(recorder.id());
    let said = |words: &[&str]| doctor(words, folder.path());
    let (_, alive) = said(&[]);
    assert!(
        !alive.contains("still"),
        "a recorder at work is no news: {alive}"
    );
    let began = Instant::now();
    let mut still_since = Instant::now();
    while still_since.elapsed() < Duration::from_millis(100) {
        assert!(
            began.elapsed() < Duration::from_secs(15),
            "the stub never hung"
        );
        std::thread::sleep(Duration::from_millis(1));
        if running.load(Ordering::SeqCst) {
            still_since = Instant::now();
        }
    }
    // Otherwise the guardian would end the freeze, as it should.
    kill("-STOP", &[&guardian]);
    kill("-KILL", &[&guardian, &recorder.id().to_string()]);
    recorder.wait().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(
        !running.load(Ordering::SeqCst),
        "nobody is left to let it run"
    );

    let place = format!("the gdb stub at {}", path.display());
    let (status, said_of_it) = said(&[]);
    assert!(
        said_of_it.contains(&place) && said_of_it.contains("--resume"),
        "{said_of_it}"
    );
    assert_eq!(status, Some(1), "{said_of_it}");
    let (status, resumed) = said(&["--resume"]);
    assert!(
        resumed.contains("runs again") && status == Some(0),
        "{resumed}"
    );
    assert!(running.load(Ordering::SeqCst));
    let (_, after) = said(&["--resume"]);
    assert!(after.contains("no guest was left paused"), "{after}");
}

#[test]
fn a_sound_stub_of_another_make_is_sampled() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.uprof");
    let (status, said, running) = record(Fault::Nothing, &output);
    assert!(matches!(status, Some(0 | 1)), "{said}");
    assert!(running, "the guest stands still: {said}");
    let dump = kit::uniprof().arg("dump").arg(&output).output().unwrap();
    let dump = String::from_utf8_lossy(&dump.stdout).into_owned();
    let samples: Vec<&str> = dump
        .lines()
        .filter(|line| line.starts_with("sample "))
        .collect();
    assert!(samples.len() > 20, "{said}");
    for sample in samples {
        assert!(
            sample.contains(" chain=1000:ef,1100:rf,1200:rf "),
            "{sample}"
        );
    }
}

#[test]
fn a_recorder_whose_guardian_is_killed_or_stopped_ends_and_says_so() {
    for (signal, how) in [
        ("-KILL", "was killed by SIGKILL"),
        ("-STOP", "was stopped by SIGSTOP"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stub");
        let output = folder.path().join("out.uprof");
        let listener = UnixListener::bind(&path).unwrap();
        let running = Arc::new(AtomicBool::new(true));
        let shared = Arc::clone(&running);
        std::thread::spawn(move || serve::<false>(listener, Fault::Nothing, shared));
        let recorder = kit::uniprof()
            .args(["record", "-F", "200", "-d", "60s", "-o"])
            .arg(&output)
            .arg(format!("gdb:{}", path.display()))
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let guardian = guardian_of(recorder.id());
        let began = Instant::now();
        let length = || std::fs::metadata(&output).map_or(0, |known| known.len());
        let mut first = 0;
        // Wait until samples have been written.
        while first == 0 || length() <= first {
            assert!(began.elapsed() < Duration::from_secs(20), "no recording");
            std::thread::sleep(Duration::from_millis(5));
            first = if first == 0 { length() } else { first };
        }
        kill(signal, &[&guardian]);
        let ended = recorder.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(
            began.elapsed() < Duration::from_secs(50),
            "it went on: {said}"
        );
        assert!(said.contains(how), "{said}");
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(
            running.load(Ordering::SeqCst),
            "the guest stands still: {said}"
        );
        assert!(
            !Path::new(&format!("/proc/{guardian}")).exists(),
            "it is left"
        );
        let info = kit::uniprof().arg("info").arg(&output).output();
        let info = String::from_utf8(info.unwrap().stdout).unwrap();
        assert!(info.contains(how), "the file: {info}");
    }
}

#[test]
fn a_guest_that_stands_still_for_much_of_the_time_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.uprof");
    let (_, said, _) = record(Fault::Slow, &output);
    let of = |said: &str| {
        let found = said.split("uniprof: the target stood still for ").nth(1)?;
        found.split(" %").next()?.parse::<u32>().ok()
    };
    assert!(of(&said).is_some_and(|share| share >= 50), "{said}");
    // If the rate is lowered for this limit, there is nothing to report.
    let options = ["-F", "200", "--max-overhead", "5%"];
    let (_, said, _) = record_with(Fault::Slow, &output, &options);
    assert!(said.contains("The rate was lowered to"), "{said}");
    assert_eq!(of(&said), None, "{said}");
}

#[test]
fn each_fault_is_named_and_the_guest_runs_on() {
    let cases = [
        (Fault::Hangs, "did not answer for registers"),
        (
            Fault::DiesMidPacket,
            "closed the connection; the guest runs on",
        ),
        (Fault::BadChecksum, "checksum is wrong"),
        (Fault::ShortRegisters, "too few"),
        (Fault::OtherArch, "riscv:rv64"),
        (Fault::Mute, "did not answer what it can do"),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (fault, words) in cases {
        let (status, said, running) = record(fault, &folder.path().join("out.uprof"));
        assert!(said.contains(words), "{fault:?}: {said}");
        // A closed connection ends the recording regularly, because it usually means the end of the guest.
        let expected = if fault == Fault::DiesMidPacket { 0 } else { 2 };
        assert_eq!(status, Some(expected), "{fault:?}: {said}");
        // A stub that answers nothing can't be made to resume its guest either.
        assert!(
            running || fault == Fault::Mute,
            "{fault:?}: the guest stands still"
        );
    }
}

#[test]
fn calls_are_refused_where_the_stub_can_not_step() {
    let image = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/images/calls");
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.uprof");
    let flags = ["--calls", "work", "--elf", image];
    let (status, said, running) = record_with(Fault::Nothing, &output, &flags);
    assert_eq!(status, Some(2), "{said}");
    assert!(
        said.contains("can't let a guest run for one instruction"),
        "{said}"
    );
    assert!(said.contains("without --calls it can be sampled"), "{said}");
    assert!(running && !output.exists(), "{said}");
}
