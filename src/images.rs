//! Flags that say where images and symbols are.

use crate::elf::Elf;
use crate::output::keep;
use crate::terminal::say;
use anyhow::Context;
#[cfg(feature = "record")]
use std::ffi::OsString;
use std::path::PathBuf;
use uniprof_report::images::Library;
use uniprof_report::recording::Recording;

/// Images and symbols, given or searched.
#[derive(Debug, clap::Args)]
pub struct Images {
    /// An image of the guest (an ELF file, or Linux's vmlinuz), and where it was loaded if the recording
    /// doesn't show that; may be repeated
    #[arg(long, value_name = "FILE[@ADDRESS]", value_parser = Elf::parse, help_heading = "Symbols")]
    elf: Vec<Elf>,
    /// A folder with images or debug files, by name or in .build-id; may be repeated
    #[arg(long, value_name = "FOLDER", help_heading = "Symbols")]
    image_path: Vec<PathBuf>,
    /// Symbols as `nm -n` prints them; may be repeated
    #[arg(long, value_name = "FILE", help_heading = "Symbols")]
    symbols: Vec<PathBuf>,
    /// Take an image although its build-id is another one
    #[arg(long, help_heading = "Symbols")]
    force: bool,
    /// Don't look for images on this machine
    #[arg(long, help_heading = "Symbols")]
    pub no_search: bool,
}

impl Images {
    /// Whether the user has named images, or folders of them.
    pub fn are_named(&self) -> bool {
        !self.elf.is_empty() || !self.image_path.is_empty()
    }

    /// The values of `--elf`.
    #[cfg(feature = "record")]
    pub fn elf_words(&self) -> impl Iterator<Item = OsString> + '_ {
        self.elf.iter().map(Elf::word)
    }

    /// The images and symbols that the user gave, and where to search for more.
    pub fn library(&self) -> anyhow::Result<Library> {
        let mut library = Library::default();
        library.only_given = self.no_search;
        library.force = self.force;
        library.folders = self.image_path.clone();
        for path in self.elf.iter().map(|elf| &elf.path).chain(&self.symbols) {
            keep(path);
        }
        for elf in &self.elf {
            let added = library.add_image_at(&elf.path, elf.address);
            added.context("cannot use --elf")?;
        }
        for path in &self.symbols {
            library.add_symbols(path).context("cannot use --symbols")?;
        }
        Ok(library)
    }
}

/// Places the given images in a guest, and reports on standard error what was found and what was refused.
pub fn place_given(recording: &mut Recording, library: &Library) {
    tell(recording.assume_images(library));
}

/// Reports on standard error which of the given images have no part in any of these recordings.
pub fn tell_unused<'r>(recordings: impl IntoIterator<Item = &'r Recording>, library: &Library) {
    let recordings: Vec<&Recording> = recordings.into_iter().collect();
    tell(Recording::unused_images(&recordings, library));
}

fn tell(sentences: Vec<String>) {
    for sentence in sentences {
        say(format_args!("uniprof: {sentence}"));
    }
}
