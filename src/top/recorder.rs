//! The recorder of `top TARGET`: this program's own `record`, in a process of its own, into a pipe. Enters: its flags.
//! Leaves: its recording, and what it says. Whatever `top` does, the recorder neither waits for it nor shares memory
//! with it.

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most lines that are kept of what the recorder says.
const LINES_MAX: usize = 50;
/// Most bytes of a line.
const LINE_BYTES_MAX: u64 = 1000;
/// How long a recorder may take to end: a command is given 2 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running recorder.
pub struct Recorder {
    child: Child,
    said: Arc<Mutex<VecDeque<String>>>,
    listener: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Starts `uniprof record -o -` with these words.
    ///
    /// # Errors
    /// This program can't be started again.
    pub fn start(words: &[OsString]) -> anyhow::Result<(Recorder, ChildStdout)> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["record", "-o", "-"])
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the recorder")?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let said = Arc::default();
        let mut recorder = Recorder {
            child,
            said: Arc::clone(&said),
            listener: None,
        };
        let thread = std::thread::Builder::new().name("uniprof-messages".into());
        let listener =
            thread.spawn(move || stderr.into_iter().for_each(|pipe| listen(pipe, &said)));
        recorder.listener = Some(listener.context("cannot start a thread")?);
        Ok((recorder, stdout.context("the recorder has no output")?))
    }

    /// Its last messages. What a recorded command writes is left out.
    pub fn messages(&self) -> Vec<String> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let own = said
            .iter()
            .filter_map(|line| line.strip_prefix("uniprof: "));
        own.map(str::to_owned).collect()
    }

    /// Its messages, after it has ended by itself.
    pub fn last_words(mut self) -> Vec<String> {
        let _ = self.child.wait();
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
        self.messages()
    }
}

impl Drop for Recorder {
    /// Ends it, and waits: it resumes its guest, and ends its command.
    fn drop(&mut self) {
        let begun = Instant::now();
        if let Ok(None) = self.child.try_wait() {
            let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
        }
        while let Ok(None) = self.child.try_wait()
            && begun.elapsed() < PATIENCE
        {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn listen(pipe: impl Read, said: &Mutex<VecDeque<String>>) {
    let mut pipe = BufReader::new(pipe);
    loop {
        let mut line = Vec::new();
        let read = (&mut pipe)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            return;
        }
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
        if said.len() > LINES_MAX {
            said.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let long = "x".repeat(LINE_BYTES_MAX as usize + 7);
        let lines = (0..LINES_MAX + 5).map(|number| format!("uniprof: {number}\n"));
        let text: String = lines.chain([long]).collect();
        let said = Mutex::default();
        listen(text.as_bytes(), &said);
        let said = said.into_inner().unwrap();
        assert_eq!(said.len(), LINES_MAX);
        // The long line is two.
        assert_eq!(said[0], "uniprof: 7");
        assert_eq!(said[LINES_MAX - 2].len(), LINE_BYTES_MAX as usize);
        assert_eq!(said[LINES_MAX - 1], "xxxxxxx");
    }
}
