//! Files that a recorder kept open. Input: a module of the recording. Output: the image that was mapped, whatever is
//! at its path now.

use crate::images::Image;
use crate::recording::spaces::Module;
use std::fs::File;
use std::sync::Arc;
use uprof::cold::Contents;

/// The files, each with its module.
#[derive(Debug, Default)]
pub(super) struct HeldFiles(Vec<(Module, Arc<File>)>);

impl HeldFiles {
    /// Adds a file.
    pub(crate) fn add(&mut self, module: Module, file: Arc<File>) {
        self.0.push((module, file));
    }

    /// The image of `module`: the same build, if its file has not been written to since.
    pub(crate) fn find(&self, module: &Module) -> Option<Arc<Image>> {
        let id = module.id();
        let same = self.0.iter().filter(|(held, _)| {
            if id.is_empty() {
                held == module
            } else {
                held.id() == id
            }
        });
        let mut images = same.filter_map(|(_, file)| Image::from_file(file, &module.path).ok());
        images.find(|image| is_still(image, module)).map(Arc::new)
    }
}

fn is_still(image: &Image, module: &Module) -> bool {
    let bytes = image.file_bytes();
    let id = match image.build_id() {
        Some(id) => id.0.clone(),
        None => Contents::of(bytes.len() as u64, bytes).map_or(Vec::new(), Contents::as_id),
    };
    id == module.id()
}
