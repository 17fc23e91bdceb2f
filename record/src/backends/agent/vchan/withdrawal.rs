//! Whether the server's keys are still in xenstore: while they are, so is the server.
//!
//! Xenstore is asked on a thread of its own: its daemon may take seconds to answer, and the agent takes a client that
//! is silent meanwhile for gone.

use super::Address;
use crate::guest::xenstore::{Xenstore, XenstoreError};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

/// Who asks, and what was found.
pub(super) struct Withdrawal {
    questions: Option<SyncSender<()>>,
    found: Arc<OnceLock<String>>,
}

impl Withdrawal {
    /// For the server at `address`, whose `ring-ref` is `reference`.
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
            // Without the thread, a server that is gone is only silent, which is told as well.
            questions: asker.is_ok().then_some(questions),
            found,
        }
    }

    /// Has xenstore asked, unless it is being asked.
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

/// How the server at `address` ended, if it did. A xenstore that doesn't answer says nothing about it.
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
