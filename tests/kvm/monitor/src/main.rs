//! A small monitor for KVM, made of the same crates as Firecracker and cloud-hypervisor. Its guest boots as
//! Xen's PVH guests do (tests/guests).
//!
//!     monitor IMAGE VCPUS [SOCKET [COMMAND LINE]]
//!
//! With SOCKET, a gdb stub listens there and behaves like cloud-hypervisor's: an interrupt stops all vCPUs,
//! and one debugger is served in the lifetime of the guest, which then runs on. The guest starts at once. Its
//! command line has at most 63 letters.

mod stub;
mod vm;

use std::sync::Arc;
use vm::Vm;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, vcpus, socket @ ..] = &arguments[..] else {
        eprintln!("usage: monitor IMAGE VCPUS [SOCKET [COMMAND LINE]]");
        std::process::exit(2);
    };
    let image = std::fs::read(image).expect("the image can be read");
    let vcpus = vcpus.parse().expect("VCPUS is a number");
    let command_line = socket.get(1).map_or("", String::as_str);
    let vm = Arc::new(Vm::new(&image, vcpus, command_line));
    vm.start();
    if let [path, ..] = socket {
        stub::serve(&vm, path);
    }
    loop {
        std::thread::park();
    }
}
