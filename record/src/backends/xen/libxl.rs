//! The toolstack's file about a domain: `/var/lib/xen/userdata-d.DOMID.UUID.libxl-json`.
//!
//! Input: a domid. Output: the configuration's kernel image and kind, if the file is readable. Other toolstacks don't
//! write it.

use std::path::{Path, PathBuf};

/// The folder of libxl's files.
const FOLDER: &str = "/var/lib/xen";
/// Longest file that is read.
const MOST_BYTES: u64 = 1 << 20;

/// The part of libxl's configuration that is used here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredConfiguration {
    /// Kernel image, as a path in dom0.
    pub kernel: Option<PathBuf>,
    /// `pv`, `pvh` or `hvm`.
    pub kind: Option<String>,
}

/// The configuration of domain `id`. With a UUID, only that domain's, in case an old file with the same number is left.
pub fn stored_configuration(id: u16, uuid: Option<&str>) -> Option<StoredConfiguration> {
    stored_in(Path::new(FOLDER), id, uuid)
}

fn stored_in(folder: &Path, id: u16, uuid: Option<&str>) -> Option<StoredConfiguration> {
    let prefix = format!("userdata-d.{id}.");
    let mut candidates: Vec<_> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(&prefix) && name.ends_with(".libxl-json"))
        .filter(|name| uuid.is_none_or(|uuid| name.contains(uuid)))
        .collect();
    candidates.sort();
    let path = folder.join(candidates.first()?);
    if path.metadata().ok()?.len() > MOST_BYTES {
        return None;
    }
    parse(&std::fs::read(path).ok()?)
}

/// Parses the file; `None` if it is not JSON.
pub fn parse(json: &[u8]) -> Option<StoredConfiguration> {
    // The file ends with a zero byte.
    let json = json.strip_suffix(b"\0").unwrap_or(json);
    let value: serde_json::Value = serde_json::from_slice(json).ok()?;
    let text = |pointer: &str| Some(value.pointer(pointer)?.as_str()?.to_owned());
    Some(StoredConfiguration {
        kernel: text("/b_info/kernel").map(PathBuf::from),
        kind: text("/c_info/type"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_found_by_number_and_uuid() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, kernel: &str| {
            let json =
                format!(r#"{{"c_info":{{"type":"pvh"}},"b_info":{{"kernel":"{kernel}"}}}}"#) + "\0";
            std::fs::write(folder.path().join(name), json).unwrap();
        };
        put("userdata-d.7.aaaa.libxl-json", "/old.elf");
        put("userdata-d.7.bbbb.libxl-json", "/new.elf");
        put("userdata-d.77.cccc.libxl-json", "/other.elf");
        let found = stored_in(folder.path(), 7, Some("bbbb")).unwrap();
        assert_eq!(found.kernel.as_deref(), Some(Path::new("/new.elf")));
        assert_eq!(found.kind.as_deref(), Some("pvh"));
        assert_eq!(stored_in(folder.path(), 8, None), None);
    }

    #[test]
    fn a_configuration_without_a_kernel_or_without_sense_is_no_error() {
        assert_eq!(parse(b"{}"), Some(StoredConfiguration::default()));
        assert_eq!(parse(b"{\"b_info\":"), None);
        assert_eq!(parse(b"\xff\0"), None);
    }
}
