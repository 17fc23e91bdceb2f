//! The vDSO: code that the kernel maps into every process, without a file.
//!
//! Input: its mapping. Output: the mapping with a build-id, and for each build, once, the image read from memory.

use crate::backends::process::registers::ARCH;
use crate::elf::{self, build_id};
use std::fs::File;
use std::os::unix::fs::FileExt;
use uprof::cold::{Contents, Mapping};
use uprof::{ImageIdentity, ImagePart};

/// The kernel's name for the vDSO.
pub const NAME: &str = "[vdso]";
/// Most bytes that are read; a vDSO has one or two pages.
pub const MOST_BYTES: u64 = 64 << 10;

/// The known builds of the vDSO.
#[derive(Debug, Default)]
pub struct Vdso {
    /// Length and build-id. There is more than one if 32-bit programs run.
    known: Vec<(u64, Vec<u8>)>,
}

/// Most builds remembered.
const MOST_BUILDS: usize = 8;

impl Vdso {
    /// Sets the build-id of the mapping of process `pid`; returns the image if it is new.
    pub fn complete(&mut self, pid: i32, mapping: &mut Mapping) -> Option<ImagePart> {
        let Some(bytes) = read(pid, mapping) else {
            // The process is gone. It had the same image as the others, since a kernel has one.
            let mut same = self
                .known
                .iter()
                .filter(|(length, _)| *length == mapping.length);
            if let (Some((_, id)), None) = (same.next(), same.next()) {
                mapping.build_id.clone_from(id);
            }
            return None;
        };
        let contents = || Contents::of(bytes.len() as u64, &bytes[..]).ok();
        let id = build_id::of_bytes(&bytes).or_else(|| contents().map(Contents::as_id))?;
        mapping.build_id.clone_from(&id);
        let known = (mapping.length, id);
        if self.known.contains(&known) || self.known.len() >= MOST_BUILDS {
            return None;
        }
        let mut part = ImagePart::new(ImageIdentity {
            path: NAME.into(),
            build_id: known.1.clone(),
            arch: ARCH,
            load_bias: 0,
            origin: "memory".into(),
        });
        self.known.push(known);
        part.set_file(bytes);
        Some(part)
    }
}

fn read(pid: i32, mapping: &Mapping) -> Option<Vec<u8>> {
    if mapping.length > MOST_BYTES {
        return None;
    }
    let mut bytes = vec![0; mapping.length as usize];
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    memory.read_exact_at(&mut bytes, mapping.start).ok()?;
    elf::is_read(&bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::process::maps;
    use uprof::image::Section;

    #[test]
    fn the_vdso_is_read_once_from_memory() {
        let own = std::process::id() as i32;
        let mut mapping = maps::executable(own)
            .into_iter()
            .find(|mapping| mapping.path == NAME)
            .expect("the kernel maps a vDSO");
        let mut vdso = Vdso::default();
        let part = vdso.complete(own, &mut mapping).unwrap();
        assert_eq!(part.identity.build_id, mapping.build_id);
        let Some(Ok(Section::File(bytes))) = part.sections().next() else {
            panic!("{part:?}");
        };
        assert_eq!(bytes.len() as u64, mapping.length);
        let id = std::mem::take(&mut mapping.build_id);
        assert!(vdso.complete(own, &mut mapping).is_none());
        assert_eq!(mapping.build_id, id);
        mapping.build_id.clear();
        assert!(vdso.complete(i32::MAX, &mut mapping).is_none());
        assert_eq!(mapping.build_id, id, "of a process that has ended");
        mapping.length = MOST_BYTES + 1;
        mapping.build_id.clear();
        assert!(vdso.complete(own, &mut mapping).is_none());
        assert!(mapping.build_id.is_empty(), "too long to be one");
    }
}
