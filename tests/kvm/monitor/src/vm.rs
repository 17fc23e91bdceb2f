//! Memory, vCPUs and their threads.

use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_regs, kvm_segment, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use std::io::Write;
use std::os::unix::thread::JoinHandleExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

const MEMORY_BYTES: usize = 128 << 20;
/// `struct hvm_start_info` of Xen's public/arch-x86/hvm/start_info.h, and the command line after it.
const START_INFO: u64 = 0x6000;
const COMMAND_LINE_AT: usize = 64;
const START_INFO_BYTES: usize = 128;
const START_INFO_MAGIC: u32 = 0x336e_c578;
/// `XEN_ELFNOTE_PHYS32_ENTRY`.
const PHYS32_ENTRY: u32 = 18;
/// An address range in which KVM may keep a task state of its own on Intel processors.
const TASK_STATE: usize = 0xfffb_d000;

/// The vCPUs that run.
#[derive(Default)]
struct Pause {
    wanted: bool,
    standing: usize,
}

pub struct Vm {
    vcpus: Vec<Mutex<VcpuFd>>,
    memory: GuestMemoryMmap,
    pause: Mutex<Pause>,
    changed: Condvar,
    threads: Mutex<Vec<libc::pthread_t>>,
    _machine: VmFd,
}

impl Vm {
    pub fn new(image: &[u8], vcpus: u8, command_line: &str) -> Vm {
        let kvm = Kvm::new().expect("there is KVM");
        let machine = kvm.create_vm().expect("a machine");
        machine.set_tss_address(TASK_STATE).expect("its place");
        machine.create_irq_chip().expect("interrupt controllers");
        let ranges = [(GuestAddress(0), MEMORY_BYTES)];
        let memory = GuestMemoryMmap::<()>::from_ranges(&ranges).expect("memory");
        let host = memory.get_host_address(GuestAddress(0)).expect("mapped");
        let region = kvm_userspace_memory_region {
            memory_size: MEMORY_BYTES as u64,
            userspace_addr: host as u64,
            ..Default::default()
        };
        // SAFETY: the mapping lives as long as the machine, in the same struct.
        unsafe { machine.set_user_memory_region(region) }.expect("KVM takes the memory");
        let entry = load(image, command_line, &memory);
        let cpuid = kvm
            .get_supported_cpuid(KVM_MAX_CPUID_ENTRIES)
            .expect("features");
        let vcpu = |number: u8| {
            let vcpu = machine.create_vcpu(number.into()).expect("a vCPU");
            let mut cpuid = cpuid.clone();
            for leaf in cpuid.as_mut_slice() {
                match leaf.function {
                    1 => leaf.ebx = leaf.ebx & 0x00ff_ffff | u32::from(number) << 24,
                    0xb => leaf.edx = number.into(),
                    _ => {}
                }
            }
            vcpu.set_cpuid2(&cpuid).expect("KVM takes the features");
            if number == 0 {
                enter(&vcpu, entry);
            }
            Mutex::new(vcpu)
        };
        Vm {
            vcpus: (0..vcpus).map(vcpu).collect(),
            memory,
            pause: Mutex::default(),
            changed: Condvar::new(),
            threads: Mutex::default(),
            _machine: machine,
        }
    }

    pub fn start(self: &Arc<Self>) {
        extern "C" fn nothing(_: libc::c_int) {}
        let handler = nothing as *const () as libc::sighandler_t;
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(libc::SIGUSR1, handler) };
        let threads = (0..self.vcpus.len()).map(|number| {
            let vm = Arc::clone(self);
            let name = format!("vcpu {number}");
            let thread = std::thread::Builder::new().name(name);
            let thread = thread.spawn(move || vm.run(number)).expect("a thread");
            thread.as_pthread_t()
        });
        *self.threads.lock().unwrap() = threads.collect();
    }

    pub fn vcpus(&self) -> usize {
        self.vcpus.len()
    }

    /// A paused vCPU.
    pub fn vcpu(&self, number: usize) -> MutexGuard<'_, VcpuFd> {
        self.vcpus[number].lock().unwrap()
    }

    /// Reads memory as a paused vCPU sees it. Returns the number of bytes before the first missing one.
    pub fn read(&self, number: usize, address: u64, into: &mut [u8]) -> usize {
        let vcpu = self.vcpu(number);
        let mut filled = 0;
        while filled < into.len() {
            let at = address.wrapping_add(filled as u64);
            let length = (4096 - at as usize % 4096).min(into.len() - filled);
            let place = vcpu.translate_gva(at).ok().filter(|place| place.valid != 0);
            let Some(place) = place else { break };
            let piece = &mut into[filled..filled + length];
            let place = GuestAddress(place.physical_address);
            if self.memory.read_slice(piece, place).is_err() {
                break;
            }
            filled += length;
        }
        filled
    }

    /// Pauses all vCPUs.
    pub fn pause(&self) {
        let threads = self.threads.lock().unwrap();
        let mut pause = self.pause.lock().unwrap();
        pause.wanted = true;
        while pause.standing < self.vcpus.len() {
            for &thread in &*threads {
                // SAFETY: the threads never end.
                unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            }
            // A signal that came just before KVM_RUN is lost, so it is sent again.
            pause = self
                .changed
                .wait_timeout(pause, Duration::from_millis(1))
                .unwrap()
                .0;
        }
    }

    pub fn resume(&self) {
        self.pause.lock().unwrap().wanted = false;
        self.changed.notify_all();
    }

    fn run(&self, number: usize) {
        loop {
            let mut pause = self.pause.lock().unwrap();
            pause.standing += 1;
            self.changed.notify_all();
            while pause.wanted {
                pause = self.changed.wait(pause).unwrap();
            }
            pause.standing -= 1;
            drop(pause);
            let mut vcpu = self.vcpu(number);
            match vcpu.run() {
                Ok(VcpuExit::IoOut(0x3f8, bytes)) => std::io::stdout().write_all(bytes).unwrap(),
                Ok(VcpuExit::IoOut(0xf4, bytes)) => std::process::exit(bytes[0].into()),
                Ok(VcpuExit::IoOut(SLOW_PORT, _)) => slow_port(),
                Ok(VcpuExit::MmioRead(SLOW_ADDRESS, bytes)) => slow_memory(bytes),
                // The status of a serial line that is always ready.
                Ok(VcpuExit::IoIn(0x3fd, bytes)) => bytes.fill(0x60),
                Ok(VcpuExit::IoIn(_, bytes) | VcpuExit::MmioRead(_, bytes)) => bytes.fill(0xff),
                Ok(VcpuExit::IoOut(..) | VcpuExit::MmioWrite(..) | VcpuExit::Hlt) => {}
                Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => {}
                other => panic!("vCPU {number}: {other:?}"),
            }
        }
    }
}

/// What `exits=N` of tests/guests/exits.c writes to and reads: devices that take their time, each in functions whose
/// shares of it are known.
const SLOW_PORT: u16 = 0x80;
const SLOW_ADDRESS: u64 = 0x2000_0000;
const UNIT: u32 = 200_000;

/// Three quarters of its time are in the one, a quarter in the other.
#[inline(never)]
fn slow_port() {
    port_transfer(3 * UNIT);
    port_complete(UNIT);
    // Something is left to do, so that the call above is none of those that replace their caller.
    std::hint::black_box(0);
}

#[inline(never)]
fn port_transfer(rounds: u32) {
    for round in 0..rounds {
        std::hint::black_box(round);
    }
}

#[inline(never)]
fn port_complete(rounds: u32) {
    for round in 0..rounds {
        std::hint::black_box(round + 1);
    }
}

#[inline(never)]
fn slow_memory(bytes: &mut [u8]) {
    for round in 0..2 * UNIT {
        std::hint::black_box(round + 2);
    }
    bytes.fill(0xff);
}

/// Loads an ELF image. Returns its entry point for 32-bit code.
fn load(image: &[u8], command_line: &str, memory: &GuestMemoryMmap) -> u64 {
    let half = |at: usize| u16::from_le_bytes(image[at..at + 2].try_into().unwrap());
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
    let long = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    let mut entry = None;
    for index in 0..usize::from(half(56)) {
        let header = long(32) as usize + index * usize::from(half(54));
        let (offset, bytes) = (long(header + 8) as usize, long(header + 32) as usize);
        match word(header) {
            1 => {
                let place = GuestAddress(long(header + 24));
                let segment = &image[offset..offset + bytes];
                memory.write_slice(segment, place).expect("it fits");
            }
            4 => {
                let mut note = offset;
                while note < offset + bytes {
                    let (name, content, kind) = (word(note), word(note + 4), word(note + 8));
                    let content_at = note + 12 + name.next_multiple_of(4) as usize;
                    if kind == PHYS32_ENTRY && &image[note + 12..note + 15] == b"Xen" {
                        entry = Some(word(content_at));
                    }
                    note = content_at + content.next_multiple_of(4) as usize;
                }
            }
            _ => {}
        }
    }
    let mut info = START_INFO_MAGIC.to_le_bytes().to_vec();
    info.resize(24, 0);
    info.extend((START_INFO + COMMAND_LINE_AT as u64).to_le_bytes());
    info.resize(COMMAND_LINE_AT, 0);
    info.extend(command_line.bytes());
    assert!(
        info.len() < START_INFO_BYTES,
        "the command line is too long"
    );
    info.resize(START_INFO_BYTES, 0);
    let place = GuestAddress(START_INFO);
    memory.write_slice(&info, place).expect("it fits");
    entry.expect("the image boots as a PVH guest").into()
}

/// Sets the registers for 32-bit code without paging, with the start info in ebx.
fn enter(vcpu: &VcpuFd, entry: u64) {
    let mut system = vcpu.get_sregs().expect("registers");
    let flat = |kind, selector| kvm_segment {
        limit: u32::MAX,
        selector,
        type_: kind,
        present: 1,
        db: 1,
        s: 1,
        g: 1,
        ..Default::default()
    };
    system.cs = flat(11, 8);
    (system.ds, system.es, system.ss) = (flat(3, 16), flat(3, 16), flat(3, 16));
    system.cr0 = 0x11;
    vcpu.set_sregs(&system).expect("KVM takes them");
    let registers = kvm_regs {
        rip: entry,
        rbx: START_INFO,
        rflags: 2,
        ..Default::default()
    };
    vcpu.set_regs(&registers).expect("KVM takes them");
}
