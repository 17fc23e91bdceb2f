//! A program for another processor, run by qemu-user and stepped through its gdb stub.

use super::{Machine, pin};
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use uniprof_report::images::Image;
use uprof::Registers;

/// Bytes above the first stack pointer that are read. Above them are arguments, which no frame needs.
const ABOVE_BYTES: u64 = 64;
const WORD_REGISTERS: usize = 33;

/// An aarch64 program.
pub struct Stub {
    child: Child,
    program: PathBuf,
    stream: BufReader<TcpStream>,
    registers: [u64; WORD_REGISTERS],
    stack_end: u64,
    bytes: Vec<u8>,
}

impl Stub {
    /// Starts `program`, which is statically linked, and stops it at `main`: a step is a few round trips, and
    /// there are hundreds of thousands of instructions before `main`.
    pub fn start(program: &Path, main: u64) -> Stub {
        // The port is free now. It is unlikely that another program takes it before QEMU does.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let child = Command::new("qemu-aarch64")
            .args(["-g", &port.to_string()])
            .arg(program)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("cannot run qemu-aarch64");
        let stream = (0..200).find_map(|_| {
            std::thread::sleep(Duration::from_millis(50));
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        let stream = stream.expect("qemu-aarch64 does not listen");
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut stub = Stub {
            child,
            program: program.to_owned(),
            stream: BufReader::new(stream),
            registers: [0; WORD_REGISTERS],
            stack_end: 0,
            bytes: Vec::new(),
        };
        pin(stub.child.id());
        stub.fetch();
        stub.stack_end = stub.registers[31] + ABOVE_BYTES;
        assert_eq!(stub.ask(&format!("Z0,{main:x},4")), "OK");
        stub.ask("c");
        stub.ask(&format!("z0,{main:x},4"));
        stub.fetch();
        assert_eq!(stub.registers[32], main, "main was not reached");
        stub
    }

    /// The reply to one packet (gdb's manual, "Remote Serial Protocol").
    fn ask(&mut self, question: &str) -> String {
        let sum = question.bytes().fold(0u8, u8::wrapping_add);
        let packet = format!("${question}#{sum:02x}");
        self.stream.get_mut().write_all(packet.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let mut begun = false;
        loop {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).expect("no answer");
            match byte[0] {
                b'$' => begun = true,
                b'#' if begun => break,
                other if begun => answer.push(other),
                _ => {}
            }
        }
        self.stream.read_exact(&mut [0; 2]).unwrap();
        self.stream.get_mut().write_all(b"+").unwrap();
        String::from_utf8(answer).unwrap()
    }

    fn fetch(&mut self) {
        let bytes = unhex(&self.ask("g"));
        for (register, value) in self.registers.iter_mut().zip(bytes.chunks_exact(8)) {
            *register = u64::from_le_bytes(value.try_into().unwrap());
        }
    }

    fn read(&mut self, at: u64, length: u64) -> Vec<u8> {
        let answer = self.ask(&format!("m{at:x},{length:x}"));
        if answer.starts_with('E') {
            Vec::new()
        } else {
            unhex(&answer)
        }
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
    let pairs = text.as_bytes().chunks_exact(2);
    pairs
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

impl Drop for Stub {
    fn drop(&mut self) {
        // It may have ended by itself; in both cases it is gone afterwards.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Machine for Stub {
    fn step(&mut self) -> Option<bool> {
        // A signal is reported in place of a step. It is dropped by continuing.
        let answer = loop {
            let answer = self.ask("s");
            if !answer.starts_with('T') || answer.starts_with("T05") {
                break answer;
            }
        };
        self.fetch();
        answer.starts_with('T').then_some(false)
    }

    fn registers(&mut self) -> Registers {
        let mut registers = Registers::default();
        for number in 19..WORD_REGISTERS as u8 {
            registers.set(number, self.registers[usize::from(number)]);
        }
        registers
    }

    fn stack(&mut self, from: u64) -> &[u8] {
        self.bytes.clear();
        while let at = from + self.bytes.len() as u64
            && at < self.stack_end
        {
            let more = self.read(at, (self.stack_end - at).min(1024));
            if more.is_empty() {
                break;
            }
            self.bytes.extend(more);
        }
        &self.bytes
    }

    fn code(&mut self, at: u64) -> Vec<u8> {
        self.read(at, 4)
    }

    fn maps(&mut self) -> Vec<(u64, u64, u64, String)> {
        let image = Image::open(&self.program).unwrap();
        let code = image.segments().iter().filter(|segment| segment.has_code);
        let path = self.program.display().to_string();
        code.map(|segment| {
            let start = segment.address;
            (
                start,
                start + segment.memory_bytes,
                segment.file_offset,
                path.clone(),
            )
        })
        .collect()
    }
}
