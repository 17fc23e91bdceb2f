//! How the guardian resumes a domain.
//!
//! Xen counts pauses, and another tool may hold one. The guardian resumes only if the recorder's word shows that our
//! pause may be in effect and Xen reports the domain as paused. One race remains: if the recorder is killed within the
//! microseconds of its own pause or resume call while another tool pauses, the other's pause could be undone.

use super::domain::Xen;
use super::host_time::turn_off_if_abandoned;
use crate::guest::guardian::Rescuer;
use crate::guest::left_paused::PausedGuest;
use std::fmt;

/// Resumes one domain.
pub struct DomainRescuer {
    /// Its number.
    pub domain: u16,
    /// Whether the recorder uses Xen's trace, which must not stay on.
    pub traces: bool,
}

impl Rescuer for DomainRescuer {
    fn resume(&mut self) {
        // A failure means that the domain is gone or not accessible any more.
        if let Ok(mut xen) = Xen::open()
            && xen
                .domain_info(self.domain)
                .is_ok_and(|info| info.is_paused())
        {
            let _ = xen.unpause(self.domain);
        }
    }

    fn release(&mut self, frozen: bool) {
        if frozen {
            Rescuer::resume(self);
        }
        if self.traces {
            turn_off_if_abandoned();
        }
    }

    fn turn_to(&mut self, guest: u64) {
        self.domain = guest as u16;
    }

    fn guest(&self) -> String {
        format!("xen {}", self.domain)
    }
}

/// The domain that a mark names, if it names one.
pub fn paused_guest(mark: &str) -> Option<Box<dyn PausedGuest>> {
    let domain = mark.strip_prefix("xen ")?.parse().ok()?;
    let traces = false;
    Some(Box::new(DomainRescuer { domain, traces }))
}

impl PausedGuest for DomainRescuer {
    fn is_paused(&self) -> Option<bool> {
        let info = Xen::open().and_then(|mut xen| xen.domain_info(self.domain));
        Some(info.is_ok_and(|info| info.is_paused()))
    }

    fn resume(&mut self) -> bool {
        Rescuer::resume(self);
        self.is_paused() == Some(false)
    }

    fn is_held_by_other(&self) -> Option<String> {
        let how = "stays paused, by someone else too: `xl unpause";
        Some(format!("{how} {}`", self.domain))
    }
}

impl fmt::Display for DomainRescuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "domain {}", self.domain)
    }
}
