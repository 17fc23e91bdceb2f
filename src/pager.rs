//! Shows text that is longer than the screen in a pager, as git does. The text is buffered until it is too long. A
//! missing pager, or one that the user quits early, is not an error.

use signal_hook::consts::SIGINT;
use std::io::{self, ErrorKind, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The default of LESS: exit if the text fits on the screen, show colours, leave the text on the screen.
const LESS: &str = "FRX";
/// The shell's status for a missing command.
const NOT_FOUND: i32 = 127;

/// The pager selected by the environment; `None` for none.
pub fn chosen() -> Option<String> {
    let set = ["UNIPROF_PAGER", "PAGER"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok());
    let pager = set.unwrap_or_else(|| "less".to_owned());
    let is_none = matches!(pager.trim(), "" | "cat");
    (!is_none).then_some(pager)
}

/// Standard output, with a pager if a text has more lines than the screen.
pub struct Paged {
    command: String,
    lines_max: usize,
    /// Text before the pager was started.
    kept: Vec<u8>,
    lines: usize,
    pager: Option<Child>,
    /// Whether the user has quit the pager.
    is_left: bool,
}

impl Paged {
    /// `command` is a shell command, `rows` the number of lines of the screen.
    pub fn new(command: String, rows: usize) -> Paged {
        Paged {
            command,
            // One line stays free for the shell's prompt.
            lines_max: rows.saturating_sub(1),
            kept: Vec::new(),
            lines: 0,
            pager: None,
            is_left: false,
        }
    }

    /// Writes the buffered text, or waits until the pager ends.
    ///
    /// # Errors
    /// Those of standard output.
    pub fn finish(mut self) -> io::Result<()> {
        let Some(mut pager) = self.pager.take() else {
            let mut out = io::stdout().lock();
            return out.write_all(&self.kept).and_then(|()| out.flush());
        };
        drop(pager.stdin.take());
        // The pager's exit status doesn't matter.
        let _ = pager.wait();
        Ok(())
    }

    fn start(&mut self) {
        // An interrupt in the pager must not end this program first: the shell would then take the terminal away from
        // the pager.
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
