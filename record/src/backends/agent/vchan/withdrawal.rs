//! Checks whether the server's keys are still in xenstore; the server exists as long as they do.
//!
//! A thread of its own asks xenstore: the daemon may take seconds to answer, and an agent assumes that a client which
//! is silent for so long is gone.

use super::Address;
use crate::guest::xenstore::{Xenstore, XenstoreError};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

/// The thread that asks, and its result.
pub(super) struct Withdrawal {
    questions: Option<SyncSender<()>>,
    found: Arc<OnceLock<String>>,
}

impl Withdrawal {
    /// Watches the server at `address`, whose `ring-ref` is `reference`.
    pub fn watch(address: &Address, reference: u32) -> Self {
        let (questions, asked) = sync_channel(1);
        let found = Arc::new(OnceLock::new());
        let (address, answers) = (address.clone(), Arc::clone(&found));
        let asker = move || {
            while asked.recv().is_ok() {
                if let Some(why) = withdrawn(&address, reference) {
                    let _ = answers.set(why);
                }
            }
        };
        let asker = std::thread::Builder::new()
            .name("xenstore".into())
            .spawn(asker);
        Withdrawal {
            // Without the thread, a server that is gone is merely silent, which is also reported.
            questions: asker.is_ok().then_some(questions),
            found,
        }
    }

    /// Starts a query of xenstore, unless one is under way.
    pub fn ask(&self) {
        if let Some(questions) = &self.questions {
            let _ = questions.try_send(());
        }
    }

    /// How the server ended, once that is known.
    pub fn found(&self) -> Option<String> {
        self.found.get().cloned()
    }
}

/// Says how the server at `address` ended, if it did. A xenstore that doesn't answer is no evidence of that.
fn withdrawn(address: &Address, reference: u32) -> Option<String> {
    let domain = address.domain;
    let key = address.key("ring-ref");
    match Xenstore::connect().and_then(|mut store| store.read(&key)) {
        Ok(value) if value.trim().parse() == Ok(reference) => None,
        Ok(_) => Some(format!("domain {domain} has made a new vchan")),
        Err(XenstoreError::Refused { .. }) => Some(format!(
            "domain {domain} was destroyed, or has withdrawn its vchan: xenstore has no {key} any more"
        )),
        Err(_) => None,
    }
}
