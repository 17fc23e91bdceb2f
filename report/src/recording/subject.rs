//! The public name of what a recording is of: the guest's name, or the program's without folders and
//! arguments.

use super::Recording;
use uprof::cold::{TargetKind, TaskChange, TaskEvent};

impl Recording {
    /// The name of the guest, the program or the imported file; the recording's own name if there is none. Of
    /// a command line, only the program is used, because arguments may be secret. A guest without a name has its
    /// stub's or monitor's address instead: of a path the last part is used, for HOST:PORT the kind of target.
    pub fn subject(&self) -> &str {
        let target = &self.metadata().target;
        let name = match target.kind {
            TargetKind::Process => last_part(first_word(&target.name)),
            TargetKind::Imported => last_part(&target.name),
            TargetKind::GdbStub | TargetKind::Qemu if has_port(&target.name) => target.kind.name(),
            TargetKind::GdbStub | TargetKind::Qemu => last_part(&target.name),
            _ => &target.name,
        };
        if name.is_empty() {
            last_part(self.name())
        } else {
            name
        }
    }

    /// Replaces the names of tasks that are the target's command line with the program's name.
    pub(super) fn shorten_command_lines(&self, tasks: &mut [TaskEvent]) {
        if self.metadata().target.kind != TargetKind::Process {
            return;
        }
        for event in tasks {
            if let TaskChange::Named(name) = &mut event.what
                && *name == self.metadata().target.name
            {
                *name = self.subject().to_owned();
            }
        }
    }
}

/// Whether it is an address HOST:PORT.
fn has_port(address: &str) -> bool {
    let port = address.rsplit_once(':').map(|(_, port)| port);
    port.is_some_and(|port| port.parse::<u16>().is_ok())
}

/// The program of a command line.
pub(crate) fn first_word(text: &str) -> &str {
    text.split(' ').next().unwrap_or("")
}

/// The last component of a path of any system.
pub(crate) fn last_part(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or("")
}
