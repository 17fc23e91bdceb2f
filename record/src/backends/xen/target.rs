//! Finds a domain by number, name or UUID, and checks whether it can be recorded.

use super::domain::Xen;
use super::libxl::{StoredConfiguration, stored_configuration};
use crate::guest::xenstore::{Xenstore, XenstoreError};
use crate::source::SourceError;
use crate::sys::xen::XenError;
use crate::sys::xen::domctl::DomainInfo;

/// A domain that can be recorded.
#[derive(Debug)]
pub struct FoundDomain {
    /// The hypervisor.
    pub xen: Xen,
    /// Its number.
    pub id: u16,
    /// Its name, empty if xenstore has none.
    pub name: String,
    /// Its UUID, if xenstore has it.
    pub uuid: Option<String>,
    /// Xen's information about it.
    pub info: DomainInfo,
    /// The configuration that libxl stored.
    pub stored: Option<StoredConfiguration>,
}

impl From<XenError> for SourceError {
    fn from(error: XenError) -> Self {
        SourceError(error.to_string())
    }
}

impl From<XenstoreError> for SourceError {
    fn from(error: XenstoreError) -> Self {
        SourceError(error.to_string())
    }
}

/// Numbers from here on are reserved (DOMID_FIRST_RESERVED of xen.h).
const FIRST_RESERVED: u16 = 0x7ff0;

/// Finds the domain named by `target`: by its number, or else by its name or UUID.
///
/// # Errors
/// Says why there is no such domain, or why it can't be recorded, and what to do.
pub fn find(target: &str) -> Result<FoundDomain, SourceError> {
    let id = match target.parse::<u32>() {
        Ok(number) => number_to_id(number)?,
        Err(_) => name_to_id(target)?,
    };
    if id == 0 {
        return Err(SourceError(
            "cannot record domain 0: it is the one that we run in, and pausing it would pause us; \
             profile it with `perf record -a`"
                .into(),
        ));
    }
    let mut xen = Xen::open()?;
    let info = xen.domain_info(id)?;
    if info.is_dying() {
        return Err(SourceError(format!(
            "cannot record domain {id}: it is being destroyed"
        )));
    }
    if xen.address_bits(id) == Some(32) {
        return Err(SourceError(format!(
            "cannot record domain {id}: it is a 32-bit guest, and only 64-bit ones are supported"
        )));
    }
    let mut store = Xenstore::connect().ok();
    let name = store.as_mut().and_then(|store| store.domain_name(id).ok());
    let uuid = store.as_mut().and_then(|store| store.domain_uuid(id).ok());
    Ok(FoundDomain {
        xen,
        id,
        name: name.unwrap_or_default(),
        info,
        stored: stored_configuration(id, uuid.as_deref()),
        uuid,
    })
}

fn number_to_id(number: u32) -> Result<u16, SourceError> {
    u16::try_from(number)
        .ok()
        .filter(|id| *id < FIRST_RESERVED)
        .ok_or_else(|| {
            SourceError(format!(
                "cannot record domain {number}: domain numbers end at {}; see `xl list`",
                FIRST_RESERVED - 1
            ))
        })
}

fn name_to_id(name: &str) -> Result<u16, SourceError> {
    let mut store = Xenstore::connect()?;
    store.domain_by_name(name)?.ok_or_else(|| {
        SourceError(format!(
            "there is no domain called `{name}`; see `xl list` for those that there are, or write \
                 pid:N for a process, -- COMMAND to start one"
        ))
    })
}
