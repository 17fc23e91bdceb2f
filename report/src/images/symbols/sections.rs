//! Unpacked sections of images, which live as long as the store.

use crate::images::Image;
use crate::images::symbols::arena::Arena;
use gimli::{EndianSlice, LittleEndian};
use std::borrow::Cow;
use std::sync::Arc;

pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Owns images and unpacked sections.
#[derive(Debug, Default)]
pub struct LineStore {
    pub(super) images: Arena<Arc<Image>>,
    sections: Arena<Vec<u8>>,
}

impl LineStore {
    pub(super) fn section<'a>(&'a self, image: &'a Image, name: &str) -> Bytes<'a> {
        let bytes = match image.section(name) {
            Some(Cow::Borrowed(bytes)) => bytes,
            Some(Cow::Owned(bytes)) => self.sections.keep(bytes),
            None => &[],
        };
        EndianSlice::new(bytes, LittleEndian)
    }
}
