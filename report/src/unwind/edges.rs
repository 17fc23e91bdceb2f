//! Prologues and epilogues on aarch64, for call frame information that is correct only at calls, such as clang 14's:
//! it describes the frame from the prologue's end to the return. gcc's does so too where the frame pointer is loaded
//! before the stack pointer moves. Input: a function's code and its call frame information. Output: the stack at the
//! instructions where that is wrong.
//!
//! Nothing is guessed: instructions are followed backwards from where the stack is known (a return, or the row after
//! a prologue) to where the result agrees with the stated rows. If it never does, the stated rows stay. Encodings:
//! Arm Architecture Reference Manual, section C4.1.

use uprof::image::{Cfa, Place, Save};

const FRAME_POINTER: u8 = 29;
const RETURN_ADDRESS: u8 = 30;
const STACK_POINTER: u8 = 31;
/// Callee-saved registers.
const KEPT_REGISTERS: std::ops::RangeInclusive<u8> = 19..=30;
/// Most instructions of a prologue or epilogue, with others that a compiler schedules between them.
const INSTRUCTIONS_MAX: usize = 64;

/// The stated row of an instruction: the CFA, and where registers are saved.
pub(super) type Stated<'a> = (Cfa, &'a [Save]);

/// The stack before an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Depth {
    /// The stack pointer or the frame pointer.
    base: u8,
    /// The CFA is that register plus this.
    depth_bytes: i32,
    /// Registers saved on the stack, with their offsets from the CFA (bytes).
    pub(super) saved: Vec<(u8, i32)>,
}

/// What an instruction does to the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Nothing.
    None,
    /// Adds to the stack pointer.
    Move(i32),
    /// Stores or loads registers, `None` for those that no caller needs: from `at` on, relative to the stack pointer
    /// before it (`moves` is 0) or to the lower one of before and after it.
    Access {
        is_load: bool,
        registers: [Option<u8>; 2],
        at: i32,
        size: i32,
        moves: i32,
    },
    /// Sets the stack pointer.
    Realign,
    /// Sets the frame pointer to the stack pointer plus this.
    SetFramePointer(i32),
    /// Leaves the function, if `Some` address isn't in it.
    Exit(Option<u64>),
    /// Anything else.
    Other,
}

/// A function's instructions, their stated rows, and the corrections.
pub(super) struct Edges<'a, F> {
    start: u64,
    code: &'a [u8],
    stated: F,
    found: Vec<(u64, Depth)>,
}

/// The stack at each instruction of the function with `code` at `start` for which `stated` is wrong, ascending.
/// `rows` are the addresses at which the stated rows begin.
pub(super) fn edges<'s>(
    start: u64,
    code: &[u8],
    rows: impl Iterator<Item = u64>,
    stated: impl Fn(u64) -> Option<Stated<'s>>,
) -> Vec<(u64, Depth)> {
    let mut edges = Edges {
        start,
        code,
        stated,
        found: Vec::new(),
    };
    for row in rows {
        edges.prologue(row);
    }
    let end = start.saturating_add(code.len() as u64);
    for (index, word) in code.chunks_exact(4).enumerate() {
        let at = start + index as u64 * 4;
        if let Effect::Exit(target) = effect(word_of(word), at)
            && target.is_none_or(|target| !(start..end).contains(&target))
        {
            edges.epilogue(at);
        }
    }
    let mut found = edges.found;
    found.sort_by_key(|(at, _)| *at);
    found.dedup_by_key(|(at, _)| *at);
    found
}

impl<'s, F: Fn(u64) -> Option<Stated<'s>>> Edges<'_, F> {
    /// Follows the epilogue before the exit at `at` backwards.
    fn epilogue(&mut self, at: u64) {
        let mut here = Depth {
            base: STACK_POINTER,
            depth_bytes: 0,
            saved: Vec::new(),
        };
        let mut passed = vec![(at, here.clone())];
        let mut first = None;
        for (at, effect) in instructions_before(self.start, self.code, at) {
            match effect {
                Effect::None => {}
                Effect::Move(bytes) if bytes > 0 => {
                    here.depth_bytes = here.depth_bytes.saturating_add(bytes)
                }
                Effect::Access {
                    is_load: true,
                    registers,
                    at,
                    size,
                    moves: moves @ 0..,
                } => {
                    here.depth_bytes = here.depth_bytes.saturating_add(moves);
                    for (register, slot) in
                        slots(registers, at.saturating_sub(here.depth_bytes), size)
                    {
                        here.saved.retain(|(known, _)| *known != register);
                        here.saved.push((register, slot));
                    }
                }
                _ => break,
            }
            passed.push((at, here.clone()));
            if effect != Effect::None {
                first = Some(passed.len() - 1);
            }
        }
        let Some(first) = first else { return };
        let (at, before) = &passed[first];
        if (self.stated)(*at).is_some_and(|stated| before.is(stated)) {
            self.keep_wrong(passed);
        }
    }

    /// Follows the prologue before the row that begins at `row` backwards. Registers that it stores still have their
    /// values, except the frame pointer.
    fn prologue(&mut self, row: u64) {
        let before = row.checked_sub(4).and_then(&self.stated);
        let (Some((cfa, saves)), Some((start, kept))) = ((self.stated)(row), before) else {
            return;
        };
        let (
            Cfa::Register {
                register,
                offset_bytes,
            },
            Cfa::Register {
                register: STACK_POINTER,
                ..
            },
        ) = (cfa, start)
        else {
            return;
        };
        let links = [FRAME_POINTER, RETURN_ADDRESS];
        let saved = links
            .into_iter()
            .filter_map(|register| Some((register, slot(saves, register)?)));
        let mut here = Depth {
            base: register,
            depth_bytes: offset_bytes,
            saved: saved.collect(),
        };
        let mut passed = Vec::new();
        for (at, effect) in instructions_before(self.start, self.code, row) {
            match (effect, here.base) {
                (Effect::None, _) => {}
                (Effect::SetFramePointer(bytes), FRAME_POINTER) => {
                    here.base = STACK_POINTER;
                    here.depth_bytes = here.depth_bytes.saturating_add(bytes);
                }
                (Effect::SetFramePointer(_), _) => {}
                // The stack pointer's value doesn't matter.
                (Effect::Realign | Effect::Move(_), FRAME_POINTER) => {}
                (Effect::Access { is_load: false, .. }, FRAME_POINTER) => {}
                (Effect::Move(bytes @ ..0), _) => {
                    here.depth_bytes = here.depth_bytes.saturating_add(bytes);
                }
                (
                    Effect::Access {
                        is_load: false,
                        registers,
                        at,
                        size,
                        moves: moves @ ..=0,
                    },
                    _,
                ) => {
                    for stored in slots(registers, at.saturating_sub(here.depth_bytes), size) {
                        here.saved.retain(|known| *known != stored);
                    }
                    here.depth_bytes = here.depth_bytes.saturating_add(moves);
                }
                _ => return,
            }
            passed.push((at, here.clone()));
            let is_kept = |(register, at): &(u8, i32)| slot(kept, *register) == Some(*at);
            if here.cfa() == start && here.saved.iter().all(is_kept) {
                return self.keep_wrong(passed);
            }
        }
    }

    /// Keeps those of `passed` whose stated row is wrong.
    fn keep_wrong(&mut self, passed: Vec<(u64, Depth)>) {
        let stated = &self.stated;
        let wrong = passed
            .into_iter()
            .filter(|(at, depth)| stated(*at).is_some_and(|stated| depth.contradicts(stated)));
        self.found.extend(wrong);
    }
}

impl Depth {
    pub(super) fn cfa(&self) -> Cfa {
        Cfa::Register {
            register: self.base,
            offset_bytes: self.depth_bytes,
        }
    }

    fn slot(&self, register: u8) -> Option<i32> {
        let mut saved = self.saved.iter();
        Some(saved.find(|(known, _)| *known == register)?.1)
    }

    /// Whether `stated` is the same.
    fn is(&self, (cfa, saves): Stated<'_>) -> bool {
        let is_same = |register| self.slot(register) == slot(saves, register);
        let is_there = match cfa {
            Cfa::Register {
                register: STACK_POINTER,
                offset_bytes,
            } => offset_bytes == self.depth_bytes,
            Cfa::Register {
                register: FRAME_POINTER,
                ..
            } => self.slot(FRAME_POINTER).is_some(),
            _ => false,
        };
        is_there && is_same(FRAME_POINTER) && is_same(RETURN_ADDRESS)
    }

    /// Whether `stated` has another CFA. Restored registers may still be stated as saved: their slots are intact.
    fn contradicts(&self, (cfa, _): Stated<'_>) -> bool {
        match cfa {
            Cfa::Register {
                register: STACK_POINTER,
                ..
            } => cfa != self.cfa(),
            Cfa::Register {
                register: FRAME_POINTER,
                ..
            } => self.slot(FRAME_POINTER).is_none(),
            _ => false,
        }
    }
}

/// The instructions before `at` in the function with `code` at `start`, nearest first, with their addresses.
fn instructions_before(start: u64, code: &[u8], at: u64) -> impl Iterator<Item = (u64, Effect)> {
    let here = usize::try_from(at.wrapping_sub(start)).unwrap_or(0);
    let code = code.get(..here).unwrap_or_default();
    let words = code.rchunks_exact(4).take(INSTRUCTIONS_MAX);
    words.zip(1u64..).map(move |(word, back)| {
        let at = at - back * 4;
        (at, effect(word_of(word), at))
    })
}

/// The offset of `register` in `saves` from the CFA (bytes).
fn slot(saves: &[Save], register: u8) -> Option<i32> {
    saves.iter().find_map(|save| match save.place {
        Place::AtCfa(at) if save.register == register => Some(at),
        _ => None,
    })
}

/// The registers that callers need among those stored from `at` on, with their places.
fn slots(
    registers: [Option<u8>; 2],
    at: i32,
    size: i32,
) -> impl Iterator<Item = (u8, i32)> + Clone {
    let placed = registers.into_iter().zip([at, at.saturating_add(size)]);
    placed.filter_map(|(register, at)| Some((register?, at)))
}

fn word_of(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk::<4>()
        .map_or(0, |word| u32::from_le_bytes(*word))
}

/// The effect of the instruction `word` at address `at`.
fn effect(word: u32, at: u64) -> Effect {
    let (first, base) = (word as u8 & 31, (word >> 5) as u8 & 31);
    match word >> 25 & 15 {
        // Data processing with an immediate number.
        0b1000 | 0b1001 => {
            let number = (word >> 10 & 0xfff) as i32;
            let bytes = if word >> 22 & 1 == 1 {
                number << 12
            } else {
                number
            };
            match (word & 0xff80_0000, base, first) {
                (0x9100_0000, STACK_POINTER, STACK_POINTER) => Effect::Move(bytes),
                (0xd100_0000, STACK_POINTER, STACK_POINTER) => Effect::Move(-bytes),
                (0x9100_0000, STACK_POINTER, FRAME_POINTER) => Effect::SetFramePointer(bytes),
                _ if first == STACK_POINTER => Effect::Realign,
                _ => harmless(first),
            }
        }
        0b1010 | 0b1011 => branch(word, at),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => access(word),
        // With registers; with vectors.
        0b0101 | 0b1101 | 0b0111 | 0b1111 => harmless(first),
        _ => Effect::Other,
    }
}

/// What writes `register` only.
fn harmless(register: u8) -> Effect {
    if register < FRAME_POINTER {
        Effect::None
    } else {
        Effect::Other
    }
}

fn branch(word: u32, at: u64) -> Effect {
    // BR, RET, and their forms that authenticate; not BLR.
    let is_register = word & 0xfe1f_0000 == 0xd61f_0000;
    if is_register && matches!(word >> 21 & 15, 0 | 2 | 8) {
        return Effect::Exit(None);
    }
    // Hints: NOP, BTI, and those that sign and authenticate x30.
    if word & 0xffff_f01f == 0xd503_201f {
        return Effect::None;
    }
    if word >> 26 == 0b00_0101 {
        let bytes = i64::from((word << 6).cast_signed() >> 6) * 4;
        return Effect::Exit(Some(at.wrapping_add(bytes.cast_unsigned())));
    }
    Effect::Other
}

/// Loads and stores.
fn access(word: u32) -> Effect {
    let (first, base) = (word as u8 & 31, (word >> 5) as u8 & 31);
    let is_vector = word >> 26 & 1 == 1;
    let (registers, at, size, moves, is_load);
    if word >> 27 & 7 == 0b101 {
        let second = (word >> 10) as u8 & 31;
        size = match (word >> 30, is_vector) {
            (0, _) => 4,
            (1, true) | (2, false) => 8,
            (2, true) => 16,
            _ => return Effect::Other,
        };
        let bytes = ((word << 10).cast_signed() >> 25) * size;
        is_load = word >> 22 & 1 == 1;
        (at, moves) = match (word >> 23 & 3, is_load) {
            // Non-temporal, or with an offset; then a pop, and a push.
            (0 | 2, _) => (bytes, 0),
            (1, true) | (3, false) => (0, bytes),
            _ => return Effect::Other,
        };
        registers = [first, second].map(|one| (!is_vector).then_some(one));
    } else if word >> 27 & 7 == 0b111 {
        size = match (word >> 30, is_vector, word >> 23 & 1) {
            (0, true, 1) => 16,
            (log, _, _) => 1 << log,
        };
        is_load = word >> 22 & 3 != 0 && !(is_vector && word >> 22 & 3 == 2);
        let bytes = (word << 11).cast_signed() >> 23;
        (at, moves) = match (word >> 24 & 1, word >> 21 & 1, word >> 10 & 3, is_load) {
            (1, ..) => ((word >> 10 & 0xfff) as i32 * size, 0),
            (0, 0, 0, _) => (bytes, 0),
            (0, 0, 1, true) | (0, 0, 3, false) => (0, bytes),
            // By a register.
            (0, 1, 2, _) => (i32::MAX, 0),
            _ => return Effect::Other,
        };
        registers = [(!is_vector).then_some(first), None];
    } else {
        return Effect::Other;
    }
    let is_kept = |register: &u8| KEPT_REGISTERS.contains(register);
    let writes_kept = registers
        .iter()
        .flatten()
        .any(|one| (FRAME_POINTER..=RETURN_ADDRESS).contains(one));
    match (base, at) {
        (STACK_POINTER, 0..=0xf_ffff) => Effect::Access {
            is_load,
            registers: match size {
                8 => registers.map(|one| one.filter(is_kept)),
                _ if is_load && writes_kept => return Effect::Other,
                _ => [None; 2],
            },
            at,
            size,
            moves,
        },
        (STACK_POINTER, _) if moves != 0 => Effect::Other,
        _ if moves != 0 && base >= FRAME_POINTER || is_load && writes_kept => Effect::Other,
        _ => Effect::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: u32 = 0x9400_0010;
    const RETURN: u32 = 0xd65f_03c0;

    fn cfa(register: u8, offset_bytes: i32) -> Cfa {
        Cfa::Register {
            register,
            offset_bytes,
        }
    }

    fn saves(saved: &[(u8, i32)]) -> Vec<Save> {
        let save = |&(register, at): &(u8, i32)| Save {
            register,
            place: Place::AtCfa(at),
        };
        saved.iter().map(save).collect()
    }

    /// Where `words` at 0x1000 contradict what is stated from the start on, and from `row` on.
    fn found(words: &[u32], row: u64, (body, saved): (Cfa, &[(u8, i32)])) -> Vec<(u64, Depth)> {
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let saved = saves(saved);
        edges(0x1000, &code, [0x1000, row].into_iter(), |at| {
            Some(if at < row {
                (cfa(STACK_POINTER, 0), &[][..])
            } else {
                (body, &saved[..])
            })
        })
    }

    fn depths(found: &[(u64, Depth)]) -> Vec<(u64, Cfa)> {
        found.iter().map(|(at, depth)| (*at, depth.cfa())).collect()
    }

    /// stp x29, x30, [sp, #-32]!; str x19, [sp, #16]; mov x29, sp; bl; ldr x19, [sp, #16];
    /// ldp x29, x30, [sp], #32; ret.
    const FRAME: [u32; 7] = [
        0xa9be_7bfd,
        0xf900_0bf3,
        0x9100_03fd,
        CALL,
        0xf940_0bf3,
        0xa8c2_7bfd,
        RETURN,
    ];
    const SAVED: [(u8, i32); 3] = [(19, -16), (29, -32), (30, -24)];

    #[test]
    fn a_frame_that_is_stated_behind_its_prologue_is_there_before() {
        let found = found(&FRAME, 0x100c, (cfa(FRAME_POINTER, 32), &SAVED));
        let here = [
            (0x1004, cfa(STACK_POINTER, 32)),
            (0x1008, cfa(STACK_POINTER, 32)),
            // The frame is gone at the return, where it is still stated.
            (0x1018, cfa(STACK_POINTER, 0)),
        ];
        assert_eq!(depths(&found), here);
        assert_eq!(found[0].1.saved, [(29, -32), (30, -24)]);
        assert_eq!(found[2].1.saved, []);
    }

    #[test]
    fn the_stack_pointer_may_go_where_only_the_frame_pointer_tells() {
        // stp x29, x30, [sp, #-16]!; mov x29, sp; sub x9, sp, #64; and sp, x9, #~63; bl.
        let words = [0xa9bf_7bfd, 0x9100_03fd, 0xd101_03e9, 0x927a_e53f, CALL];
        let found = found(
            &words,
            0x1010,
            (cfa(FRAME_POINTER, 16), &[(29, -16), (30, -8)]),
        );
        let here = [
            (0x1004, cfa(STACK_POINTER, 16)),
            (0x1008, cfa(FRAME_POINTER, 16)),
            (0x100c, cfa(FRAME_POINTER, 16)),
        ];
        assert_eq!(depths(&found), here);
    }

    #[test]
    fn what_does_not_add_up_stays_as_it_is_stated() {
        // Another size is stated than the instructions make.
        let body = (cfa(FRAME_POINTER, 48), &[(29, -48), (30, -40)][..]);
        assert_eq!(found(&FRAME, 0x100c, body), []);
        // A jump within the function leaves it in none of its branches.
        let inside = [FRAME[0], FRAME[2], CALL, 0xa8c2_7bfd, 0x17ff_fffe];
        let body = (cfa(FRAME_POINTER, 32), &[(29, -32), (30, -24)][..]);
        assert_eq!(
            depths(&found(&inside, 0x1008, body)),
            [(0x1004, cfa(STACK_POINTER, 32))]
        );
        // What is stated at each instruction is right already.
        let exact = [FRAME[0], CALL, FRAME[5]];
        assert_eq!(
            found(
                &exact,
                0x1004,
                (cfa(STACK_POINTER, 32), &[(29, -32), (30, -24)])
            ),
            []
        );
    }

    #[test]
    fn instructions_do_what_their_encodings_say() {
        let access = |is_load, registers, at, size, moves| Effect::Access {
            is_load,
            registers,
            at,
            size,
            moves,
        };
        let links = [Some(29), Some(30)];
        for (word, effect_of) in [
            (0xd112_c3ffu32, Effect::Move(-1200)),
            (0x9140_07ff, Effect::Move(4096)),
            (0x9101_03fd, Effect::SetFramePointer(64)),
            (0x927a_e53f, Effect::Realign),
            (0xa902_7bfd, access(false, links, 32, 8, 0)),
            (0xa9ba_7bfd, access(false, links, 0, 8, -96)),
            (0xa8c2_7bfd, access(true, links, 0, 8, 32)),
            // ldp d9, d8, [sp], #32; ldp w0, w1, [sp, #8]; str x30, [sp, #-16]!.
            (0x6cc2_23e9, access(true, [None; 2], 0, 8, 32)),
            (0x2941_07e0, access(true, [None; 2], 8, 4, 0)),
            (0xf81f_0ffe, access(false, [Some(30), None], 0, 8, -16)),
            // paciasp; mov x0, x1; str x1, [x29, #56]; ldr x4, [x21, #3096].
            (0xd503_233f, Effect::None),
            (0xaa01_03e0, Effect::None),
            (0xf900_1fa1, Effect::None),
            (0xf946_0ea4, Effect::None),
            // retaa; br x17; b.
            (0xd65f_0bff, Effect::Exit(None)),
            (0xd61f_0220, Effect::Exit(None)),
            (0x1400_0002, Effect::Exit(Some(0x1008))),
            // bl; blr x1; cbz; ldr x30, [x0]; mov x30, x0; ldp x29, x30, [sp, #16]!.
            (CALL, Effect::Other),
            (0xd63f_0020, Effect::Other),
            (0xb400_0220, Effect::Other),
            (0xf940_001e, Effect::Other),
            (0xaa00_03fe, Effect::Other),
            (0xa9c1_7bfd, Effect::Other),
        ] {
            assert_eq!(effect(word, 0x1000), effect_of, "{word:#x}");
        }
    }
}
