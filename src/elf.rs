//! The value of `--elf`: an image of a guest, and its address.

use anyhow::{Context, ensure};
#[cfg(all(feature = "record", feature = "report"))]
use std::ffi::OsString;
use std::path::PathBuf;

/// `FILE` or `FILE@ADDRESS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elf {
    /// The image.
    pub path: PathBuf,
    /// Where its lowest page is loaded, if the user gave that.
    pub address: Option<u64>,
}

impl Elf {
    /// Parses `text`.
    ///
    /// # Errors
    /// Says why the address is not valid.
    pub fn parse(text: &str) -> anyhow::Result<Elf> {
        let whole = Elf {
            path: PathBuf::from(text),
            address: None,
        };
        let Some((path, address)) = text.rsplit_once('@') else {
            return Ok(whole);
        };
        // A file name may itself contain an @.
        if whole.path.exists() {
            return Ok(whole);
        }
        let digits = address.strip_prefix("0x").unwrap_or(address);
        let address = u64::from_str_radix(digits, 16)
            .ok()
            .context("the address after @ must be hexadecimal")?;
        ensure!(
            address % 4096 == 0,
            "the address must be the start of a page of 4 KiB"
        );
        Ok(Elf {
            path: PathBuf::from(path),
            address: Some(address),
        })
    }

    /// The word that [`Self::parse`] understands.
    #[cfg(all(feature = "record", feature = "report"))]
    pub fn word(&self) -> OsString {
        let mut word = self.path.clone().into_os_string();
        if let Some(address) = self.address {
            word.push(format!("@{address:#x}"));
        }
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_stands_behind_the_file() {
        let parsed = |text: &str| {
            let elf = Elf::parse(text).map_err(|error| error.to_string())?;
            Ok::<_, String>((elf.path, elf.address))
        };
        assert_eq!(parsed("a.elf"), Ok(("a.elf".into(), None)));
        assert_eq!(parsed("a@b@0x1000"), Ok(("a@b".into(), Some(0x1000))));
        assert_eq!(
            parsed("a@ffffffff81000000").unwrap().1,
            Some(0xffff_ffff_8100_0000)
        );
        assert!(parsed("a@there").unwrap_err().contains("hexadecimal"));
        assert!(parsed("a@0x1001").unwrap_err().contains("page"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a@1000");
        std::fs::write(&file, "").unwrap();
        assert_eq!(parsed(file.to_str().unwrap()), Ok((file, None)));
    }
}
