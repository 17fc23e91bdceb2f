//! Flags that say where images and symbols are.

use crate::output::keep;
use anyhow::Context;
use std::path::PathBuf;
use uniprof_report::library::Library;

/// Images and symbols, given by hand or looked for.
#[derive(Debug, clap::Args)]
pub struct Images {
    /// An image of the guest; may be repeated
    #[arg(long, value_name = "IMAGE", help_heading = "Symbols")]
    elf: Vec<PathBuf>,
    /// A folder with images or debug files, by name or in .build-id; may be repeated
    #[arg(long, value_name = "FOLDER", help_heading = "Symbols")]
    image_path: Vec<PathBuf>,
    /// Symbols as `nm -n` prints them; may be repeated
    #[arg(long, value_name = "FILE", help_heading = "Symbols")]
    symbols: Vec<PathBuf>,
    /// Take an image although its build-id is another one
    #[arg(long, help_heading = "Symbols")]
    force: bool,
    /// Where the guest's image was loaded, if not where it was linked (KASLR)
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address, help_heading = "Symbols")]
    load_address: Option<u64>,
    /// Don't look for images on this machine
    #[arg(long, help_heading = "Symbols")]
    pub no_search: bool,
}

impl Images {
    /// What was given by hand, and where to look for more.
    pub fn library(&self) -> anyhow::Result<Library> {
        let mut library = Library::default();
        library.only_given = self.no_search;
        library.force = self.force;
        library.folders = self.image_path.clone();
        library.load_address = self.load_address;
        for path in self.elf.iter().chain(&self.symbols) {
            keep(path);
        }
        for path in &self.elf {
            library.add_image(path).context("cannot use --elf")?;
        }
        for path in &self.symbols {
            library.add_symbols(path).context("cannot use --symbols")?;
        }
        Ok(library)
    }
}

/// An address as `0xffffffff81000000`, with or without `0x`.
fn parse_address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| "give a hexadecimal address".to_owned())
}
