//! Holds a domain before its first instruction.
//!
//! Input: a name, and the command that creates the domain, unless it is there already. Output: a source whose domain
//! has never run. `xl create` gets `-p`, with which it leaves the domain paused. Once a guardian looks after what the
//! command created, it is never left paused; errors before that say that it may be. A domain that was there stays
//! paused if nothing is recorded, so that one can try again.

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
    let left = |error| {
        if is_created {
            may_be_paused(error)
        } else {
            error
        }
    };
    let found = target::find(name).map_err(left)?;
    let domain = found.id;
    if !found.info.is_paused() {
        return Err(SourceError(format!(
            "domain {domain} has begun already: create it paused, with `xl create -p`"
        )));
    }
    let traces = plan.host;
    let guardian = Guardian::start(&[], DomainRescuer { domain, traces });
    let mut guardian = guardian.map_err(left)?;
    if is_created {
        // From here on the guardian resumes it, whatever happens.
        guardian.holding(PATIENCE);
    }
    open_found(found, images, plan, Some(guardian), None)
}

/// Says where an error leaves what the command may have created: nobody looks after it yet.
fn may_be_paused(error: SourceError) -> SourceError {
    SourceError(format!(
        "{error}; a domain that the command created may still be paused: `xl list` shows it, and `xl unpause NAME` \
         lets it run"
    ))
}

/// Runs the command to its end.
fn create(mut command: Command) -> Result<(), SourceError> {
    let place = command.arguments.iter().position(|word| word == "create");
    if let Some(place) = place.filter(|_| command.program() == "xl") {
        command.arguments.insert(place + 1, "-p".into());
    }
    let mut child = command.start()?;
    child.go()?;
    await_end(&mut child).map_err(may_be_paused)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::command::{ExitStatus, Stdout};

    #[test]
    fn errors_say_that_what_the_command_created_may_be_paused() {
        let said = |program: Option<&str>| {
            let command = program.map(|program| Command {
                arguments: vec![program.into()],
                keep_running: false,
                stdout: Stdout::Same,
                status: ExitStatus::default(),
            });
            let opened = open("no such domain", command, Vec::new(), &Plan::default());
            opened.err().unwrap().to_string()
        };
        for program in ["true", "false"] {
            let said = said(Some(program));
            assert!(said.contains("`xl unpause NAME`"), "{program}: {said}");
        }
        assert!(!said(None).contains("xl unpause"), "there was no command");
    }
}
