//! The images in the guest's address space. Input: an address. Output: a module and the address in its image.

use super::table::RuleTable;
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
    pub rules: Arc<RuleTable>,
    /// Its bytes, for scanning; without them a scan uses only the rules.
    pub image: Option<Arc<Image>>,
}

/// Modules by address, without overlap.
#[derive(Clone, Debug, Default)]
pub(super) struct Modules(Vec<Module>);

impl Modules {
    /// Sorts `modules`; where two overlap, the one that starts later wins.
    pub(super) fn new(mut modules: Vec<Module>) -> Modules {
        modules.sort_by_key(|module| (module.start, module.end, module.bias));
        for index in 1..modules.len() {
            let next = modules[index].start;
            modules[index - 1].end = modules[index - 1].end.min(next);
        }
        modules.retain(|module| module.start < module.end);
        Modules(modules)
    }

    /// The number of the module that has `address`.
    pub(super) fn find(&self, address: u64) -> Option<u32> {
        let after = self.0.partition_point(|module| module.start <= address);
        let number = after.checked_sub(1)?;
        (address < self.0[number].end).then_some(number as u32)
    }

    pub(super) fn get(&self, number: u32) -> Option<&Module> {
        self.0.get(number as usize)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Module> {
        self.0.iter()
    }
}

impl Module {
    pub(super) fn image_address(&self, address: u64) -> ImageAddress {
        ImageAddress(address.wrapping_sub(self.bias))
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
        assert_eq!(
            modules.get(1).unwrap().image_address(0x2010),
            ImageAddress(0x10)
        );
    }
}
