//! The result of a subcommand, and what follows from it: an exit status, or a message.
//!
//! Status 0 is done, 1 done with loss, 2 failed. A failure is an error, never an [`Outcome`].

use std::process::ExitCode;

/// The result of a subcommand that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Complete.
    Done,
    /// Done, but something was lost, truncated, or over a requested limit.
    Lossy,
    /// Done; exit with the status of the recorded command.
    #[cfg(feature = "record")]
    Command(u8),
}

impl Outcome {
    pub fn lossy_if(is_lossy: bool) -> Outcome {
        if is_lossy {
            Outcome::Lossy
        } else {
            Outcome::Done
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        match outcome {
            Outcome::Done => ExitCode::SUCCESS,
            Outcome::Lossy => ExitCode::from(1),
            #[cfg(feature = "record")]
            Outcome::Command(status) => ExitCode::from(status),
        }
    }
}

/// A failure that was reported when it happened, while other work went on. It ends with status 2 and no more messages.
#[derive(Debug)]
pub struct Reported;

impl std::fmt::Display for Reported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "something failed, as reported above")
    }
}

impl std::error::Error for Reported {}

/// The error and its causes, each once, since many messages include their cause.
pub fn describe(error: &anyhow::Error) -> String {
    let mut whole = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if whole.is_empty() {
            whole = cause;
        } else if !whole.contains(&cause) {
            whole = format!("{whole}: {cause}");
        }
    }
    whole
}

/// What was `written`, unless its reader has closed it because it has seen enough: what follows is done nevertheless.
#[cfg(feature = "report")]
pub fn unless_closed(written: anyhow::Result<()>) -> anyhow::Result<()> {
    written.or_else(|error| {
        if is_broken_pipe(&error) {
            Ok(())
        } else {
            Err(error)
        }
    })
}

/// Whether the reader of our output has closed it, which is not an error.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cause = cause.downcast_ref::<std::io::Error>();
        cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
