//! Several domains that one process records, and that come and go.
//!
//! Input: targets, or Xen's list of domains. Output: sources that share one guardian and one schedule.

use super::domain::Xen;
use super::rescue::DomainRescuer;
use super::source;
use super::target;
use crate::guest::guardian::Guardian;
use crate::source::plan::Plan;
use crate::source::schedule::{PeriodSlot, Schedule};
use crate::source::{Source, SourceError};
use std::sync::Arc;

/// The state that domains recorded by one process share.
pub struct Company {
    xen: Xen,
    /// `None` if none of them is ever paused.
    guardian: Option<Guardian>,
    schedule: Arc<Schedule>,
}

/// A domain, as Xen lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedDomain {
    /// Its number.
    pub id: u16,
    /// Whether it is alive: it has not shut down, and is not being destroyed.
    pub is_alive: bool,
    /// Whether someone has paused it; a domain that is being built or restored is paused, too.
    pub is_paused: bool,
}

impl Company {
    /// Must be called while the process has one thread, since it forks a guardian.
    ///
    /// # Errors
    /// Says why Xen can't be asked, or why there can be no guardian.
    pub fn start(plan: &Plan) -> Result<Self, SourceError> {
        if plan.host {
            return Err(SourceError(
                "--host is for one domain at a time: Xen's trace buffers have one reader".into(),
            ));
        }
        let xen = Xen::open()?;
        let guardian = source::pauses(plan).then(|| {
            // The domain's number is set at each pause.
            let (domain, traces) = (0, false);
            Guardian::start(&[], DomainRescuer { domain, traces })
        });
        Ok(Company {
            xen,
            guardian: guardian.transpose()?,
            schedule: Schedule::new(),
        })
    }

    /// All domains but the one that we run in.
    ///
    /// # Errors
    /// Says why Xen can't be asked, or that the guardian is gone, so that none of them can be recorded any more.
    pub fn list(&mut self) -> Result<Vec<ListedDomain>, SourceError> {
        if let Some(guardian) = &self.guardian {
            guardian.is_there()?;
        }
        let mut all = Vec::new();
        let mut next = 1;
        loop {
            let info = match self.xen.domain_from(next) {
                Ok(info) => info,
                Err(error) if error.is_gone() => return Ok(all),
                Err(error) => return Err(error.into()),
            };
            all.push(ListedDomain {
                id: info.domain,
                is_alive: !info.is_dying() && !info.is_shut_down(),
                is_paused: info.is_paused(),
            });
            match info.domain.checked_add(1) {
                Some(following) if following > next => next = following,
                _ => return Ok(all),
            }
        }
    }

    /// Opens a domain by its number, name or UUID, beside those that are recorded already. May be called at any time.
    ///
    /// # Errors
    /// Says why it can't be recorded, or not yet.
    pub fn open(&self, target: &str, plan: &Plan) -> Result<Source, SourceError> {
        let found = target::find(target)?;
        let id = u64::from(found.id);
        let guardian = self.guardian.as_ref();
        let guardian = guardian.map(|guardian| guardian.also_for(id));
        let slot: Option<Arc<PeriodSlot>> = guardian.is_some().then(|| self.schedule.join());
        source::open_found(found, Vec::new(), plan, guardian, slot)
    }
}
