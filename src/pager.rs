//! What is longer than the screen goes to a pager, as git's does: a text comes in piece by piece, and is kept until
//! it turns out to be too long. A pager that isn't there, or is left early, is no error.

use signal_hook::consts::SIGINT;
use std::io::{self, ErrorKind, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What `less` does unless LESS says otherwise: ends by itself where a screen does, shows colours, leaves the text
/// on the screen.
const LESS: &str = "FRX";
/// The shell's status for a command that isn't there.
const NOT_FOUND: i32 = 127;

/// The pager of this environment; `None` where there shall be none.
pub fn chosen() -> Option<String> {
    let set = ["UNIPROF_PAGER", "PAGER"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok());
    let pager = set.unwrap_or_else(|| "less".to_owned());
    let is_none = matches!(pager.trim(), "" | "cat");
    (!is_none).then_some(pager)
}

/// Standard output, with a pager as soon as a text has more lines than the screen.
pub struct Paged {
    command: String,
    lines_max: usize,
    /// What came before the pager was started.
    kept: Vec<u8>,
    lines: usize,
    pager: Option<Child>,
    /// Whether whoever reads has seen enough.
    is_left: bool,
}

impl Paged {
    /// `command` is a line for the shell, `rows` is how many lines the screen has.
    pub fn new(command: String, rows: usize) -> Paged {
        Paged {
            command,
            // The shell's prompt stands below.
            lines_max: rows.saturating_sub(1),
            kept: Vec::new(),
            lines: 0,
            pager: None,
            is_left: false,
        }
    }

    /// Writes what was kept, or waits until the pager is left.
    ///
    /// # Errors
    /// What standard output returns.
    pub fn finish(mut self) -> io::Result<()> {
        let Some(mut pager) = self.pager.take() else {
            let mut out = io::stdout().lock();
            return out.write_all(&self.kept).and_then(|()| out.flush());
        };
        drop(pager.stdin.take());
        // How it ended is the reader's affair.
        let _ = pager.wait();
        Ok(())
    }

    fn start(&mut self) {
        // Whoever interrupts a search in the pager doesn't mean this program, which has to outlive it: the shell
        // would take the terminal away from the pager.
        let _ = signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false)));
        let line = format!("{}\n[ $? -ne {NOT_FOUND} ] || exec cat", self.command);
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(line).stdin(Stdio::piped());
        if std::env::var_os("LESS").is_none() {
            shell.env("LESS", LESS);
        }
        self.pager = shell.spawn().ok();
        if self.pager.is_none() {
            self.lines_max = usize::MAX;
        }
    }

    fn stdin(&mut self) -> Option<&mut ChildStdin> {
        self.pager.as_mut()?.stdin.as_mut()
    }

    fn pass_on(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_left {
            return Ok(());
        }
        let passed = self.stdin().map_or(Ok(()), |pager| pager.write_all(bytes));
        match passed {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_left = true;
                Ok(())
            }
            passed => passed,
        }
    }
}

impl Write for Paged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.pager.is_some() {
            self.pass_on(bytes)?;
            return Ok(bytes.len());
        }
        self.kept.extend_from_slice(bytes);
        self.lines += bytes.iter().filter(|byte| **byte == b'\n').count();
        if self.lines > self.lines_max {
            self.start();
            if self.pager.is_some() {
                let kept = std::mem::take(&mut self.kept);
                self.pass_on(&kept)?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
