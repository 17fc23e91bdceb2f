//! The registers of one frame, by DWARF number. Unknown registers are distinct from zero.

use uprof::image::REGISTERS_MAX;

/// Register values of one frame, indexed by DWARF number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    values: [u64; REGISTERS_MAX],
    known: u64,
}

impl Default for Registers {
    fn default() -> Self {
        Registers {
            values: [0; REGISTERS_MAX],
            known: 0,
        }
    }
}

impl Registers {
    /// Those of the `recorded` registers that are in the bit set `needed`.
    pub(super) fn select(recorded: &uprof::Registers, needed: u64) -> Registers {
        const ALL: u64 = (1 << REGISTERS_MAX) - 1;
        Registers {
            values: recorded.first_values(),
            known: recorded.mask() & needed & ALL,
        }
    }

    /// The value of register `number`, if it is known.
    #[inline]
    pub(super) fn get(&self, number: u8) -> Option<u64> {
        let value = *self.values.get(usize::from(number))?;
        (self.known >> number & 1 == 1).then_some(value)
    }

    /// Sets register `number`; numbers that no rule can use are ignored.
    #[inline]
    pub(super) fn set(&mut self, number: u8, value: u64) {
        if let Some(slot) = self.values.get_mut(usize::from(number)) {
            *slot = value;
            self.known |= 1 << number;
        }
    }

    /// Makes register `number` unknown.
    #[inline]
    pub(super) fn forget(&mut self, number: u8) {
        if usize::from(number) < REGISTERS_MAX {
            self.known &= !(1 << number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_not_zero_and_strange_numbers_do_nothing() {
        let mut registers = Registers::default();
        assert_eq!(registers.get(7), None);
        registers.set(7, 0);
        registers.set(255, 1);
        assert_eq!((registers.get(7), registers.get(255)), (Some(0), None));
        registers.forget(7);
        registers.forget(200);
        assert_eq!(registers.get(7), None);
    }
}
