//! A program of this machine, stepped with ptrace from its very first instruction.

use super::{Machine, pin};
use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use std::io::IoSliceMut;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use uprof::Registers;

const STACK_BYTES: usize = 256 << 10;

pub struct Tracee {
    child: Child,
    pid: Pid,
    /// A signal that the program will get at the next step.
    signal: Option<Signal>,
    stack_end: u64,
    bytes: Vec<u8>,
}

impl Tracee {
    /// Starts `program` with `arguments`, and stops it before its first instruction.
    pub fn start(program: &Path, arguments: &[&str]) -> Tracee {
        // The shell waits for this process before it becomes the program.
        let child = Command::new("/bin/sh")
            .args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""])
            .arg(program)
            .args(arguments)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("cannot run /bin/sh");
        let pid = Pid::from_raw(child.id() as i32);
        let stat = format!("/proc/{pid}/stat");
        while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
            std::thread::yield_now();
        }
        ptrace::seize(
            pid,
            Options::PTRACE_O_TRACEEXEC | Options::PTRACE_O_EXITKILL,
        )
        .expect("cannot trace a child");
        kill(pid, Signal::SIGCONT).unwrap();
        loop {
            match waitpid(pid, None).unwrap() {
                WaitStatus::PtraceEvent(_, _, event)
                    if event == Event::PTRACE_EVENT_EXEC as i32 =>
                {
                    break;
                }
                _ => ptrace::cont(pid, None).unwrap(),
            }
        }
        pin(child.id());
        let mut tracee = Tracee {
            child,
            pid,
            signal: None,
            stack_end: 0,
            bytes: vec![0; STACK_BYTES],
        };
        let sp = ptrace::getregs(pid).unwrap().rsp;
        tracee.stack_end = tracee.line_of(sp).expect("no stack").1;
        tracee
    }

    /// Start and end of the mapping that contains `address`.
    fn line_of(&self, address: u64) -> Option<(u64, u64)> {
        let text = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).ok()?;
        let mut ranges = text
            .lines()
            .filter_map(|line| range(line.split(' ').next()?));
        ranges.find(|(start, end)| (*start..*end).contains(&address))
    }

    fn read(&self, at: u64, into: &mut [u8]) -> usize {
        let remote = RemoteIoVec {
            base: at as usize,
            len: into.len(),
        };
        process_vm_readv(self.pid, &mut [IoSliceMut::new(into)], &[remote]).unwrap_or(0)
    }
}

fn range(text: &str) -> Option<(u64, u64)> {
    let (start, end) = text.split_once('-')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some((number(start)?, number(end)?))
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // It may have ended by itself; in both cases it is gone afterwards.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Machine for Tracee {
    fn step(&mut self) -> Option<bool> {
        let signal = self.signal.take();
        ptrace::step(self.pid, signal).ok()?;
        loop {
            match waitpid(self.pid, None).ok()? {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => return Some(signal.is_some()),
                WaitStatus::Stopped(_, other) => {
                    self.signal = Some(other);
                    return Some(false);
                }
                WaitStatus::Exited(..) | WaitStatus::Signaled(..) => return None,
                _ => ptrace::step(self.pid, None).ok()?,
            }
        }
    }

    fn registers(&mut self) -> Registers {
        let all = ptrace::getregs(self.pid).unwrap();
        let mut registers = Registers::default();
        for (number, value) in [
            (3, all.rbx),
            (6, all.rbp),
            (7, all.rsp),
            (10, all.r10),
            (12, all.r12),
            (13, all.r13),
            (14, all.r14),
            (15, all.r15),
            (16, all.rip),
        ] {
            registers.set(number, value);
        }
        registers
    }

    fn stack(&mut self, from: u64) -> &[u8] {
        let mut bytes = std::mem::take(&mut self.bytes);
        let wanted = self.stack_end.saturating_sub(from).min(STACK_BYTES as u64) as usize;
        let read = self.read(from, &mut bytes[..wanted]);
        self.bytes = bytes;
        &self.bytes[..read]
    }

    fn code(&mut self, at: u64) -> Vec<u8> {
        let mut code = vec![0; 16];
        let read = self.read(at, &mut code);
        code.truncate(read);
        code
    }

    fn maps(&mut self) -> Vec<(u64, u64, u64, String)> {
        let text = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).unwrap_or_default();
        let lines = text.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (start, end) = range(words.next()?)?;
            let is_code = words.next()?.contains('x');
            let offset = u64::from_str_radix(words.next()?, 16).ok()?;
            let path = words.nth(2).unwrap_or("[anon]").to_owned();
            is_code.then_some((start, end, offset, path))
        });
        lines.collect()
    }
}
