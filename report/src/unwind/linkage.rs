//! Rules for stubs without any: those of the procedure linkage table where the linker wrote none (lld, and GNU ld in
//! static programs and on aarch64), and those of Xen's hypercall page. Input: the bytes of the sections with stubs.
//! Output: the stack pointer at each of their instructions.

use crate::images::Image;
use crate::images::hypercalls;
use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind};
use uprof::Arch;

/// Names of sections with stubs.
const SECTIONS: [&str; 4] = [".plt", ".plt.sec", ".plt.got", ".iplt"];

/// Adjacent stubs.
pub(super) struct Stubs {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Addresses, each with the bytes on the stack from there on, beyond the caller's; with the return address where
    /// calls push it.
    pub(super) rows: Vec<(u64, i32)>,
}

/// The stubs of `image`, ascending.
pub(super) fn stubs(image: &Image) -> Vec<Stubs> {
    let mut found: Vec<Stubs> = SECTIONS
        .iter()
        .filter_map(|name| {
            let (start, length_bytes) = image.section_range(name)?;
            let code = image.code_at(start, length_bytes)?;
            let rows = match image.arch() {
                Arch::X86_64 => x86_64(start.0, code),
                Arch::Aarch64 => aarch64(start.0, code),
            };
            Some(Stubs {
                start: start.0,
                end: start.0.checked_add(code.len() as u64)?,
                rows,
            })
        })
        .collect();
    found.extend(hypercalls::page(image).map(|page| Stubs {
        start: page,
        end: page + hypercalls::PAGE_BYTES,
        rows: hypercalls::depths(page),
    }));
    found.sort_by_key(|stubs| stubs.start);
    found
}

/// A stub may push a number for the linker and jump to the first stub, which pushes an address (System V ABI, AMD64
/// supplement, "Procedure Linkage Table").
fn x86_64(start: u64, code: &[u8]) -> Vec<(u64, i32)> {
    let mut rows = Vec::new();
    let mut depth_bytes = 8;
    let decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    for instruction in decoder {
        let is_push = instruction.mnemonic() == Mnemonic::Push;
        if rows.is_empty() && is_push && instruction.op0_kind() == OpKind::Memory {
            depth_bytes = 16;
        }
        push(&mut rows, instruction.ip(), depth_bytes);
        match instruction.mnemonic() {
            Mnemonic::Push => depth_bytes += 8,
            Mnemonic::Jmp => depth_bytes = 8,
            _ => {}
        }
    }
    rows
}

/// The first stub saves x16 and x30; the others don't use the stack.
fn aarch64(start: u64, code: &[u8]) -> Vec<(u64, i32)> {
    /// `stp x16, x30, [sp, #-16]!` and `br x17`.
    const SAVE: [u8; 4] = 0xa9bf_7bf0u32.to_le_bytes();
    const BRANCH: [u8; 4] = 0xd61f_0220u32.to_le_bytes();
    let mut rows = Vec::new();
    let mut depth_bytes = 0;
    for (at, word) in (start..).step_by(4).zip(code.chunks_exact(4)) {
        push(&mut rows, at, depth_bytes);
        if word == SAVE {
            depth_bytes = 16;
        } else if word == BRANCH {
            depth_bytes = 0;
        }
    }
    rows
}

fn push(rows: &mut Vec<(u64, i32)>, at: u64, depth_bytes: i32) {
    if rows.last().is_none_or(|(_, before)| *before != depth_bytes) {
        rows.push((at, depth_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stubs_that_push_and_stubs_that_do_not() {
        // push m; jmp m; nop: then jmp m; push 0; jmp.
        let mut lazy = vec![
            0xff, 0x35, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0, 0x0f, 0x1f, 0x40, 0,
        ];
        lazy.extend([
            0xff, 0x25, 0, 0, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0xe0, 0xff, 0xff, 0xff,
        ]);
        let rows = x86_64(0x1000, &lazy);
        assert_eq!(
            rows,
            [(0x1000, 16), (0x1006, 24), (0x100c, 8), (0x101b, 16)]
        );
        let plain = [0xff, 0x25, 0, 0, 0, 0, 0x66, 0x90];
        assert_eq!(x86_64(0x1000, &plain), [(0x1000, 8)]);
    }

    #[test]
    fn the_first_stub_of_aarch64_saves_the_return_address() {
        let words = [0xa9bf_7bf0u32, 0x9000_0010, 0xd61f_0220, 0x9000_0010];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(
            aarch64(0x1000, &code),
            [(0x1000, 0), (0x1004, 16), (0x100c, 0)]
        );
    }
}
