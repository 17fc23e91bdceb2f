//! The code of an image, for the rule that finds it in a guest ([`uprof::placement`]).

use crate::images::{Image, ImageAddress};
use std::borrow::Cow;
use uprof::placement::ImageText;

impl ImageText for Image {
    fn parts(&self) -> Vec<(u64, u64)> {
        let code = self.segments().iter().filter(|segment| segment.has_code);
        code.map(|segment| (segment.address, segment.file_bytes))
            .collect()
    }

    fn code_at(&self, address: u64, length_bytes: u64) -> Option<Cow<'_, [u8]>> {
        let address = ImageAddress(address);
        let is_code = self.segments().is_code(address);
        let bytes = self.bytes_at(address, length_bytes);
        bytes.filter(|_| is_code).map(Cow::Borrowed)
    }

    fn lowest_page(&self) -> Option<u64> {
        self.segments().lowest_page()
    }

    fn may_be_patched(&self) -> bool {
        !self.tells_code()
    }

    fn is_written_over(&self, address: u64) -> bool {
        Image::is_written_over(self, ImageAddress(address))
    }
}

#[cfg(test)]
mod tests;
