//! Section 1, identity: the image that a part belongs to.

use super::section::{SectionReader, put_bytes};
use crate::error::Fault;
use crate::samples::Arch;
use crate::varint;

/// The image that a table describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageIdentity {
    /// Path as in [`crate::cold::Mapping::path`], or a name in brackets such as `[kernel]`.
    pub path: String,
    /// GNU build-id, empty if there is none.
    pub build_id: Vec<u8>,
    /// Instruction set.
    pub arch: Arch,
    /// Difference to add, wrapping, to an address of the tables to get the address in the guest. Zero if the tables
    /// hold guest addresses, or if a [`crate::cold::Mapping`] gives the address.
    pub load_bias: u64,
    /// Origin of the tables, for users: `kallsyms`, `symtab`, …
    pub origin: String,
}

/// ELF machine numbers (`e_machine`), which name the instruction set.
const MACHINES: [(u64, Arch); 2] = [(62, Arch::X86_64), (183, Arch::Aarch64)];

impl ImageIdentity {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.path.as_bytes());
        put_bytes(out, &self.build_id);
        let machine = MACHINES.iter().find(|(_, arch)| *arch == self.arch);
        varint::put(out, machine.map_or(0, |(number, _)| *number));
        varint::put(out, self.load_bias);
        put_bytes(out, self.origin.as_bytes());
    }

    pub(super) fn read(mut section: SectionReader<'_>) -> Result<Self, Fault> {
        let path = text(&mut section)?;
        let build_id = section.bytes()?.to_vec();
        let number = section.number()?;
        let machine = MACHINES.iter().find(|(known, _)| *known == number);
        let what = "ELF machine";
        let (_, arch) = *machine.ok_or_else(|| section.fault(Fault::Unknown { what, number }))?;
        Ok(ImageIdentity {
            path,
            build_id,
            arch,
            load_bias: section.number()?,
            origin: text(&mut section)?,
        })
    }
}

fn text(section: &mut SectionReader<'_>) -> Result<String, Fault> {
    let length = section.count(1)?;
    Ok(section.text(length)?.to_owned())
}
