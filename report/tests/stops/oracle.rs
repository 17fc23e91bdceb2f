//! framehop with the same modules and bytes: a second opinion, and a reference for speed.

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Unwinder as _};
use uniprof_report::unwind::{Memory, Module, Stack};

pub struct Oracle {
    unwinder: UnwinderX86_64<Vec<u8>>,
    cache: CacheX86_64,
}

impl Oracle {
    pub fn new(modules: &[Module]) -> Oracle {
        let mut unwinder = UnwinderX86_64::new();
        for module in modules {
            let image = module.image.as_ref().unwrap();
            let range = |name: &str| {
                let (start, length_bytes) = image.section_range(name)?;
                Some(start.0..start.0 + length_bytes)
            };
            let data = |name: &str| image.section(name).map(|bytes| bytes.into_owned());
            let sections = ExplicitModuleSectionInfo {
                base_svma: 0,
                text_svma: range(".text"),
                text: data(".text"),
                got_svma: range(".got"),
                eh_frame_svma: range(".eh_frame"),
                eh_frame: data(".eh_frame"),
                eh_frame_hdr_svma: range(".eh_frame_hdr"),
                eh_frame_hdr: data(".eh_frame_hdr"),
                debug_frame: data(".debug_frame"),
                ..Default::default()
            };
            let addresses = module.start..module.end;
            let name = image.name().to_owned();
            unwinder.add_module(framehop::Module::new(
                name,
                addresses,
                module.bias,
                sections,
            ));
        }
        Oracle {
            unwinder,
            cache: CacheX86_64::new(),
        }
    }

    /// The addresses of one stack, innermost first, and whether its root was reached.
    pub fn unwind(
        &mut self,
        registers: &uprof::Registers,
        memory: &Stack<'_>,
        frames: &mut Vec<u64>,
    ) -> bool {
        let register = |number| registers.get(number).unwrap();
        let start = UnwindRegsX86_64::new(register(16), register(7), register(6));
        let mut read = |address| memory.word(address).ok_or(());
        let mut walk = self
            .unwinder
            .iter_frames(register(16), start, &mut self.cache, &mut read);
        loop {
            match walk.next() {
                Ok(Some(FrameAddress::InstructionPointer(address))) => frames.push(address),
                Ok(Some(address)) => frames.push(address.address()),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }
}
