//! Holds a domain before its first instruction.
//!
//! Input: a name, and the command that creates the domain, unless it is there already. Output: a source whose domain
//! has never run. `xl create` gets `-p`, with which it leaves the domain paused. What the command created is never left
//! paused; a domain that was there stays paused if nothing is recorded, so that one can try again.

use super::rescue::DomainRescuer;
use super::source::open_found;
use super::target;
use crate::elf::Image;
use crate::guest::command::{Child, Command};
use crate::guest::guardian::Guardian;
use crate::source::plan::Plan;
use crate::source::{Life, Source, SourceError};
use std::time::{Duration, Instant};

/// Longest wait for the command, which may have to read a large image, and then for the recorder, which reads it, too.
const PATIENCE: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// Creates a domain if there is a command for that, and opens it. Must be called while the process has one thread,
/// since it forks a guardian.
///
/// # Errors
/// Says why there is no domain that has not begun.
pub fn open(
    name: &str,
    command: Option<Command>,
    images: Vec<Image>,
    plan: &Plan,
) -> Result<Source, SourceError> {
    if plan.follow {
        return Err(SourceError(
            "--boot records one boot of a Xen domain: leave out --follow".into(),
        ));
    }
    let is_created = command.is_some();
    if let Some(command) = command {
        create(command)?;
    }
    let found = target::find(name)?;
    let domain = found.id;
    if !found.info.is_paused() {
        return Err(SourceError(format!(
            "domain {domain} has begun already: create it paused, with `xl create -p`"
        )));
    }
    let traces = plan.host;
    let mut guardian = Guardian::start(&[], DomainRescuer { domain, traces })?;
    if is_created {
        // From here on the guardian resumes it, whatever happens.
        guardian.holding(PATIENCE);
    }
    open_found(found, images, plan, Some(guardian), None)
}

/// Runs the command to its end.
fn create(mut command: Command) -> Result<(), SourceError> {
    let place = command.arguments.iter().position(|word| word == "create");
    if let Some(place) = place.filter(|_| command.program() == "xl") {
        command.arguments.insert(place + 1, "-p".into());
    }
    let mut child = command.start()?;
    child.go()?;
    await_end(&mut child)
}

fn await_end(child: &mut Child) -> Result<(), SourceError> {
    let begun = Instant::now();
    loop {
        let life = child.life();
        match life {
            Life::Ended(_) if child.has_succeeded() => return Ok(()),
            Life::Ended(how) | Life::Crashed(how) => {
                return Err(SourceError(format!("{how}: nothing was recorded")));
            }
            Life::Alive if begun.elapsed() > PATIENCE => {
                return Err(SourceError(format!(
                    "`{}` still runs after {} s, and was ended: leave out -c and -F of `xl create`",
                    child.name(),
                    PATIENCE.as_secs()
                )));
            }
            Life::Alive => std::thread::sleep(BETWEEN_LOOKS),
        }
    }
}
