//! The images in the guest's address space. Input: an address. Output: a module and the address in its image.

use super::rules::{FoundRule, UnwindRules};
use crate::images::{Image, ImageAddress};
use std::sync::Arc;

/// One image in the guest's address space.
#[derive(Clone, Debug)]
pub struct Module {
    /// First guest address.
    pub start: u64,
    /// End of its guest addresses, exclusive.
    pub end: u64,
    /// What to add (wrapping) to an address of the image for a guest address.
    pub bias: u64,
    /// Its unwind rules.
    pub rules: Arc<UnwindRules>,
    /// Its bytes, for scanning; without them a scan uses only the rules.
    pub image: Option<Arc<Image>>,
}

/// Most modules of a piece: what an unwinder that was made from another has of its own, for each module that is new.
pub(crate) const PIECE_MODULES: usize = 64;
/// Bits of a module's number that say where in its piece it is.
const PLACE_BITS: u32 = 8;
const _: () = assert!(PIECE_MODULES < 1 << PLACE_BITS);

/// Modules by address, without overlap, in pieces: those of two moments share the pieces in which nothing was mapped
/// in between, so that a program that maps all the time costs little for each time.
#[derive(Clone, Debug, Default)]
pub(super) struct Modules(Vec<Arc<Vec<Module>>>);

impl Modules {
    /// Sorts `modules`; where two overlap, the one that starts later wins.
    pub(super) fn new(mut modules: Vec<Module>) -> Modules {
        modules.sort_by_key(|module| (module.start, module.end, module.bias));
        for index in 1..modules.len() {
            let next = modules[index].start;
            modules[index - 1].end = modules[index - 1].end.min(next);
        }
        modules.retain(|module| module.start < module.end);
        Modules(pieces(&modules))
    }

    /// Lays `module` over what is there.
    pub(super) fn lay(&mut self, module: Module) {
        let (start, end) = (module.start, module.end);
        if start >= end {
            return;
        }
        let first = self.piece_of(start).unwrap_or(0);
        let last = self.piece_of(end - 1).map_or(first, |last| last.max(first));
        let touched = first..(last + 1).min(self.0.len());
        let mut modules = Vec::new();
        for old in self.0[touched.clone()].iter().flat_map(|piece| &**piece) {
            let below = old.start..old.end.min(start);
            let above = old.start.max(end)..old.end;
            for rest in [below, above] {
                if rest.start < rest.end {
                    let (start, end) = (rest.start, rest.end);
                    modules.push(Module {
                        start,
                        end,
                        ..old.clone()
                    });
                }
            }
        }
        let at = modules.partition_point(|old| old.start < start);
        modules.insert(at, module);
        self.0.splice(touched, pieces(&modules));
    }

    /// The piece that has `address`, if one begins at or before it.
    fn piece_of(&self, address: u64) -> Option<usize> {
        let begins = |piece: &Arc<Vec<Module>>| piece.first().is_some_and(|it| it.start <= address);
        self.0.partition_point(begins).checked_sub(1)
    }

    /// The number of the module that has `address`.
    pub(super) fn find(&self, address: u64) -> Option<u32> {
        let piece = self.piece_of(address)?;
        let modules = &self.0[piece];
        let after = modules.partition_point(|module| module.start <= address);
        let place = after.checked_sub(1)?;
        let number = u32::try_from(piece << PLACE_BITS | place).ok()?;
        (address < modules[place].end).then_some(number)
    }

    /// The module with a number that [`Modules::find`] gave.
    pub(super) fn get(&self, number: u32) -> Option<&Module> {
        let piece = self.0.get((number >> PLACE_BITS) as usize)?;
        piece.get((number & ((1 << PLACE_BITS) - 1)) as usize)
    }

    /// The module that has `address`.
    pub(super) fn at(&self, address: u64) -> Option<&Module> {
        self.get(self.find(address)?)
    }

    /// How many pieces there are.
    pub(super) fn pieces(&self) -> usize {
        self.0.len()
    }
}

/// Sorted modules, in pieces of like length.
fn pieces(modules: &[Module]) -> Vec<Arc<Vec<Module>>> {
    let count = modules.len().div_ceil(PIECE_MODULES).max(1);
    let length = modules.len().div_ceil(count).max(1);
    let pieces = modules.chunks(length);
    pieces.map(|piece| Arc::new(piece.to_vec())).collect()
}

impl Module {
    pub(super) fn image_address(&self, address: u64) -> ImageAddress {
        ImageAddress(address.wrapping_sub(self.bias))
    }

    /// The rule at a guest address.
    pub(super) fn rule(&self, address: u64) -> Option<FoundRule<'_>> {
        self.rules.find(self.image_address(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(start: u64, end: u64) -> Module {
        Module {
            start,
            end,
            bias: start,
            rules: Arc::default(),
            image: None,
        }
    }

    #[test]
    fn overlaps_go_to_the_later_module() {
        let modules = Modules::new(vec![module(0x2000, 0x3000), module(0x1000, 0x2800)]);
        assert_eq!(modules.find(0xfff), None);
        assert_eq!(modules.find(0x1fff), Some(0));
        assert_eq!(modules.find(0x2000), Some(1));
        assert_eq!(modules.find(0x3000), None);
        assert!(Modules::default().find(0x1000).is_none() && Modules::default().get(0).is_none());
        assert_eq!(
            modules.get(1).unwrap().image_address(0x2010),
            ImageAddress(0x10)
        );
    }

    /// Against one list that is searched from the last module laid to the first.
    #[test]
    fn modules_are_laid_over_others() {
        let mut random = fastrand::Rng::with_seed(3);
        for round in 0..40 {
            let space = [0x100, 0x10_000][round % 2];
            let mut some = || {
                let start = random.u64(..space);
                let length = 1 + random.u64(..space) / [1, 300][round / 2 % 2];
                module(start, start + length)
            };
            let mut laid: Vec<Module> = Vec::new();
            let mut modules = Modules::default();
            for _ in 0..500 {
                let next = some();
                laid.push(next.clone());
                modules.lay(next);
            }
            for address in (0..2 * space).step_by(space as usize / 0x100) {
                let truth = laid
                    .iter()
                    .rev()
                    .find(|module| (module.start..module.end).contains(&address));
                let found = modules.find(address).and_then(|number| modules.get(number));
                assert_eq!(
                    found.map(|it| it.bias),
                    truth.map(|it| it.bias),
                    "{address:#x}"
                );
            }
            let all: Vec<&Module> = modules.0.iter().flat_map(|piece| &**piece).collect();
            assert!(all.is_sorted_by(|one, next| one.start < one.end && one.end <= next.start));
            assert!(
                modules
                    .0
                    .iter()
                    .all(|piece| (1..=PIECE_MODULES).contains(&piece.len()))
            );
        }
    }

    #[test]
    fn what_was_before_is_kept_and_shared() {
        let many = (0..10_000).map(|number| module(number * 0x1000, number * 0x1000 + 0x800));
        let before = Modules::new(many.collect());
        let mut after = before.clone();
        after.lay(module(0x500_0c00, 0x500_0e00));
        assert_eq!(before.find(0x500_0c00), None);
        assert!(after.find(0x500_0c00).is_some());
        let old = after
            .0
            .iter()
            .filter(|piece| before.0.iter().any(|one| Arc::ptr_eq(one, piece)));
        assert_eq!(old.count(), before.pieces() - 1);
    }
}
