//! Everything that can wait until a recording exists: from recorded registers, stack bytes and
//! instruction pointers to frames, names, a stack tree and its views. Makes no hypercall and needs
//! no guest; same input, same bytes out.

mod mapped;

pub mod images;
pub mod unwind;
pub mod symbols;

pub use mapped::{MapError, Mapped, map};
