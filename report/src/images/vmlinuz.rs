//! Compressed kernels for x86. Input: a bzImage. Output: the kernel's ELF file, its payload. The header has its
//! offset (Linux, Documentation/arch/x86/boot.rst, version 2.08 of the protocol and later); its first bytes show the
//! compression. The stated size is not trusted.

use super::debugdata::unpack_xz;
use super::unpacked_max;
use std::io::Read;

/// The largest kernel (bytes, unpacked); Debian's has 75 MiB.
const KERNEL_BYTES_MAX: u64 = 512 << 20;
/// The largest dictionary of kernels' xz (bytes): the largest in any version of Linux's scripts/xz_wrap.sh.
const DICTIONARY_BYTES_MAX: usize = 128 << 20;

/// Offsets in the header.
const SECTORS_AT: usize = 0x1f1;
const MAGIC_AT: usize = 0x202;
const VERSION_AT: usize = 0x206;
const PAYLOAD_AT: usize = 0x248;
const PAYLOAD_BYTES_AT: usize = 0x24c;
const MAGIC: &[u8] = b"HdrS";
const SECTOR_BYTES: usize = 512;

/// The kernel in `file`, unpacked; `None` if `file` isn't a bzImage.
///
/// # Errors
/// Why it can't be unpacked, in a few words.
pub(super) fn unpack(file: &[u8]) -> Option<Result<Vec<u8>, &'static str>> {
    if file.get(MAGIC_AT..)?.starts_with(MAGIC) && half(file, VERSION_AT)? >= 0x0208 {
        return Some(
            payload(file)
                .ok_or("it is cut short")
                .and_then(unpack_payload),
        );
    }
    None
}

fn half(file: &[u8], at: usize) -> Option<u16> {
    file.get(at..)?
        .first_chunk()
        .copied()
        .map(u16::from_le_bytes)
}

fn word(file: &[u8], at: usize) -> Option<usize> {
    let bytes = file.get(at..)?.first_chunk().copied()?;
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}

fn payload(file: &[u8]) -> Option<&[u8]> {
    // 0 means 4, for the oldest loaders.
    let sectors = match *file.get(SECTORS_AT)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = ((sectors + 1) * SECTOR_BYTES).checked_add(word(file, PAYLOAD_AT)?)?;
    file.get(start..start.checked_add(word(file, PAYLOAD_BYTES_AT)?)?)
}

fn unpack_payload(packed: &[u8]) -> Result<Vec<u8>, &'static str> {
    let most_bytes = unpacked_max(packed, KERNEL_BYTES_MAX);
    let damaged = "what is packed in it is damaged, or too large";
    match packed {
        [0x1f, 0x8b, ..] => read(flate2::read::GzDecoder::new(packed), most_bytes),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => zstd::Decoder::with_buffer(packed)
            .ok()
            // Its size follows.
            .and_then(|decoder| read(decoder.single_frame(), most_bytes)),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            unpack_xz(packed, most_bytes, DICTIONARY_BYTES_MAX)
        }
        _ => return Err("it is packed neither by gzip, xz nor zstd; unpack it with Linux's scripts/extract-vmlinux"),
    }
    .ok_or(damaged)
}

fn read(from: impl Read, most_bytes: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let got = from.take(most_bytes + 1).read_to_end(&mut bytes).ok()?;
    (got as u64 <= most_bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const KERNEL: &[u8] = b"what a kernel would be, were it as small as that";
    /// `KERNEL` packed by `xz --x86 --lzma2=dict=32MiB --check=crc32`, of xz 5.4.
    const XZ: &[u8] = &[
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x01, 0x69, 0x22, 0xde, 0x36, 0x02, 0x01, 0x04,
        0x00, 0x21, 0x01, 0x1a, 0x00, 0x01, 0xc9, 0x80, 0xb3, 0x01, 0x00, 0x2f, 0x77, 0x68, 0x61,
        0x74, 0x20, 0x61, 0x20, 0x6b, 0x65, 0x72, 0x6e, 0x65, 0x6c, 0x20, 0x77, 0x6f, 0x75, 0x6c,
        0x64, 0x20, 0x62, 0x65, 0x2c, 0x20, 0x77, 0x65, 0x72, 0x65, 0x20, 0x69, 0x74, 0x20, 0x61,
        0x73, 0x20, 0x73, 0x6d, 0x61, 0x6c, 0x6c, 0x20, 0x61, 0x73, 0x20, 0x74, 0x68, 0x61, 0x74,
        0x00, 0x6f, 0x15, 0x67, 0x16, 0x00, 0x01, 0x44, 0x30, 0x86, 0x0f, 0x4a, 0x92, 0x90, 0x42,
        0x99, 0x0d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x01, 0x59, 0x5a,
    ];

    /// A bzImage with one sector of set-up code, its payload behind 8 bytes of code.
    fn file(packed: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 2 * SECTOR_BYTES + 8];
        file[SECTORS_AT] = 1;
        file[MAGIC_AT..][..4].copy_from_slice(MAGIC);
        file[VERSION_AT..][..2].copy_from_slice(&0x020f_u16.to_le_bytes());
        file[PAYLOAD_AT..][..4].copy_from_slice(&8_u32.to_le_bytes());
        let length = u32::try_from(packed.len() + 4).unwrap();
        file[PAYLOAD_BYTES_AT..][..4].copy_from_slice(&length.to_le_bytes());
        file.extend(packed);
        // Behind what is packed stands how much it is.
        file.extend((KERNEL.len() as u32).to_le_bytes());
        file
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_kernels_are_packed_by_is_unpacked() {
        for packed in [&gzip(KERNEL), &zstd::encode_all(KERNEL, 19).unwrap(), XZ] {
            assert_eq!(unpack(&file(packed)), Some(Ok(KERNEL.to_vec())));
        }
        assert!(
            unpack(&file(b"LZO or so"))
                .unwrap()
                .unwrap_err()
                .contains("extract-vmlinux")
        );
        assert_eq!(unpack(KERNEL), None);
    }

    #[test]
    fn a_kernel_that_grows_too_much_is_given_up() {
        let zeros = vec![0; 16 << 20];
        for packed in [gzip(&zeros), zstd::encode_all(&zeros[..], 19).unwrap()] {
            assert!(unpack(&file(&packed)).unwrap().is_err());
        }
    }

    #[test]
    fn every_cut_and_every_changed_byte_ends() {
        for packed in [&gzip(KERNEL), &zstd::encode_all(KERNEL, 19).unwrap(), XZ] {
            let whole = file(packed);
            for length in 0..whole.len() {
                assert!(!matches!(unpack(&whole[..length]), Some(Ok(_))));
            }
            for at in 0..whole.len() {
                let mut changed = whole.clone();
                changed[at] ^= 0x55;
                let _ = unpack(&changed);
            }
        }
    }
}
