//! What unwinding gives: frames that say how they were found, and why a stack ended.

/// What the address of a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressKind {
    /// The instruction that was about to run: the innermost frame, or an interrupted one.
    Instruction,
    /// Where a call will return to. The call itself ends one byte before it.
    Return,
}

/// How a frame was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Found {
    /// It is where the registers of the sample were.
    Registers,
    /// By call frame information of the frame below.
    Rule,
    /// Through the frame pointer, since the frame below has no call frame information.
    FramePointer,
    /// As a trap frame recognised by its shape, below which there is no call frame information.
    TrapFrame,
    /// As the first word up the stack that looks like a return address. A guess.
    Scan,
}

impl Found {
    /// A word for reports.
    pub fn label(self) -> &'static str {
        match self {
            Found::Registers => "registers",
            Found::Rule => "cfi",
            Found::FramePointer => "frame-pointer",
            Found::TrapFrame => "trap-frame",
            Found::Scan => "scan",
        }
    }
}

/// One frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Guest address.
    pub address: u64,
    /// What that address is.
    pub kind: AddressKind,
    /// How it was found.
    pub found: Found,
}

impl Frame {
    /// The address to look up symbols, lines and rules at: inside the call for a return address,
    /// which may be the first byte of the next function if the callee never returns.
    pub fn lookup_address(&self) -> u64 {
        match self.kind {
            AddressKind::Instruction => self.address,
            AddressKind::Return => self.address.wrapping_sub(1),
        }
    }
}

/// Why a stack ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// At its root: call frame information or a zero says that there is no caller.
    Root,
    /// The next frame lies in memory that wasn't recorded.
    MemoryEnds,
    /// No rule covers the last frame's code, and its frame pointer isn't one.
    NoFramePointer,
    /// The rule of the last frame needs what isn't known, or is damaged.
    BadRule,
    /// The next frame would have been one that was there before.
    Cycle,
    /// The limit on frames was reached.
    TooDeep,
}

impl End {
    /// A few words for reports.
    pub fn label(self) -> &'static str {
        match self {
            End::Root => "root reached",
            End::MemoryEnds => "stack bytes end",
            End::NoFramePointer => "no unwind rule and no frame pointer",
            End::BadRule => "unwind rule failed",
            End::Cycle => "stack leads back to itself",
            End::TooDeep => "depth limit reached",
        }
    }
}
