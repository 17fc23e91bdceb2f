//! Runs of both sides' commands, each recorded into a file by a recorder of its own. A run that fails, or does
//! something else than the first one, is reported and not used.

use super::commands::SideCommand;
use super::program_output::{OutputReader, last_messages};
use crate::selection::say;
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// How runs are made.
pub struct RunOptions<'a> {
    /// Samples a second.
    pub frequency: f64,
    /// A shell command before each run.
    pub prepare: Option<&'a str>,
    /// Whether runs may end with another status than 0.
    pub ignore_failure: bool,
    /// Whether the recordings will be read on other machines.
    pub embeds: bool,
    /// Whether to record where threads wait.
    pub off_cpu: bool,
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Deed {
    status: i32,
    /// Length and hash of its standard output.
    output: (u64, u64),
}

/// One side.
struct Side {
    command: SideCommand,
    /// The deed of its first run.
    first: Option<Deed>,
    /// Whether the outputs of its first two runs were equal; `None` before the second.
    repeats: Option<bool>,
    left_out: usize,
}

/// Runs of both sides.
pub struct Runs<'a> {
    options: RunOptions<'a>,
    folder: &'a Path,
    sides: [Side; 2],
}

/// Most runs of a side that are not used.
const LEFT_OUT_MAX: usize = 10;

impl<'a> Runs<'a> {
    /// Runs that are recorded into `folder`.
    pub fn new(commands: [SideCommand; 2], options: RunOptions<'a>, folder: &'a Path) -> Runs<'a> {
        let sides = commands.map(|command| Side {
            command,
            first: None,
            repeats: None,
            left_out: 0,
        });
        Runs {
            options,
            folder,
            sides,
        }
    }

    /// Runs a side's command until a run can be used. Returns its recording; `None` if a signal requested the end.
    ///
    /// # Errors
    /// The command can't be run or recorded, its first run fails, or too many runs can't be used.
    pub fn run(&mut self, side: usize, number: usize) -> anyhow::Result<Option<PathBuf>> {
        let path = self
            .folder
            .join(["a", "b"][side])
            .join(format!("{number:03}.uprof"));
        loop {
            if is_stopped() {
                return Ok(None);
            }
            let left_out = match self.record(side, &path) {
                // The signal ended the run as well.
                _ if is_stopped() => Ok(None),
                Ok(deed) => match self.sides[side].judge(deed) {
                    None => return Ok(Some(path)),
                    why => Ok(why),
                },
                Err(error) => Err(error),
            };
            // A part of a run, or a run that did something else, must not be compared later.
            let _ = fs::remove_file(&path);
            let Some(why) = left_out? else {
                return Ok(None);
            };
            let left = &mut self.sides[side];
            left.left_out += 1;
            say(&format!(
                "a run of {} is left out: {why}",
                left.command.text
            ));
            if left.left_out > LEFT_OUT_MAX {
                bail!(
                    "{} runs of `{}` could not be used, and can't be compared with the others",
                    left.left_out,
                    left.command.text
                );
            }
        }
    }

    /// Whether the sides do the same: a sentence if their status or output differs.
    pub fn difference(&self) -> Option<String> {
        let [a, b] = [0, 1].map(|side| self.sides[side].first.as_ref());
        let (a, b) = a.zip(b)?;
        if a.status != b.status {
            return Some(format!(
                "A ends with status {}, and B with {}",
                a.status, b.status
            ));
        }
        let repeat = self.sides.iter().all(|side| side.repeats == Some(true));
        (repeat && a.output != b.output).then(|| {
            format!(
                "A and B print different output ({} and {} bytes): do they do the same work?",
                a.output.0, b.output.0
            )
        })
    }

    /// Runs and records a command once.
    fn record(&self, side: usize, path: &Path) -> anyhow::Result<Deed> {
        if let Some(prepare) = self.options.prepare {
            let done = Command::new("sh")
                .args(["-c", prepare])
                .stdin(Stdio::null())
                .stdout(io::stderr())
                .status();
            let done = done.with_context(|| format!("cannot run --prepare '{prepare}'"))?;
            if !done.success() {
                bail!("--prepare '{prepare}' failed: {done}");
            }
        }
        let command = &self.sides[side].command;
        let said = self.folder.join("said");
        let mut words: Vec<OsString> = ["record", "--quiet", "-F"].map(OsString::from).to_vec();
        words.push(self.options.frequency.to_string().into());
        // The path may begin with a hyphen.
        let mut run = OsString::from("--run=");
        run.push(path);
        words.push(run);
        words.extend((!self.options.embeds).then(|| "--no-embed".into()));
        words.extend(self.options.off_cpu.then(|| "--off-cpu".into()));
        words.push("--".into());
        words.extend(command.words.iter().map(OsString::from));
        let mut recorder = Command::new(std::env::current_exe()?)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&said)?)
            .spawn()
            .context("cannot start the recorder")?;
        let output = recorder.stdout.take().map(OutputReader::start);
        let output = output.transpose()?;
        let status = wait_for(&mut recorder)?;
        let output = output.map(OutputReader::finish);
        let messages = last_messages(&said);
        let _ = fs::remove_file(&said);
        let (said, output) = (messages, output.transpose()?.unwrap_or_default());
        let is_first = self.sides[side].first.is_none();
        match status.code() {
            _ if !path.exists() => bail!("cannot record `{}`: {said}", command.text),
            None => bail!("the recorder of `{}` was killed: {status}", command.text),
            Some(status @ 1..) if is_first && !self.options.ignore_failure => bail!(
                "`{}` ended with status {status}, so there is no work to compare. It has no terminal and no input \
                 here; --ignore-failure compares such runs.{}{said}",
                command.text,
                if said.is_empty() { "" } else { " It said: " }
            ),
            Some(status) => Ok(Deed { status, output }),
        }
    }
}

impl Side {
    /// Why a run can't be used; `None` if it can.
    fn judge(&mut self, deed: Deed) -> Option<String> {
        let Some(first) = &self.first else {
            self.first = Some(deed);
            return None;
        };
        if deed.status != first.status {
            return Some(format!(
                "it ended with status {}, the first with {}",
                deed.status, first.status
            ));
        }
        let is_same = deed.output == first.output;
        if *self.repeats.get_or_insert(is_same) && !is_same {
            return Some("its output differs from that of the first ones".to_owned());
        }
        None
    }
}

/// Waits until the recorder ends, and passes a signal on that requests the end.
fn wait_for(recorder: &mut Child) -> io::Result<ExitStatus> {
    #[cfg(feature = "record")]
    return uniprof_record::signal::wait_for(recorder);
    #[cfg(not(feature = "record"))]
    recorder.wait()
}

/// Whether a signal requested the end.
fn is_stopped() -> bool {
    #[cfg(feature = "record")]
    return uniprof_record::signal::stop_signal().is_some();
    #[cfg(not(feature = "record"))]
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_do_something_else_are_not_used() {
        let side = || Side {
            command: SideCommand {
                words: Vec::new(),
                text: String::new(),
            },
            first: None,
            repeats: None,
            left_out: 0,
        };
        let deed = |status, output| Deed {
            status,
            output: (output, output),
        };
        // Its output is the same each time, until it isn't.
        let mut steady = side();
        let used = [(0, 7), (0, 7), (0, 8), (1, 7), (0, 7)]
            .map(|(status, output)| steady.judge(deed(status, output)).is_none());
        assert_eq!(used, [true, true, false, false, true]);
        // It prints another text each time.
        let mut varying = side();
        let used = [(0, 7), (0, 8), (0, 9), (2, 9)]
            .map(|(status, output)| varying.judge(deed(status, output)).is_none());
        assert_eq!(used, [true, true, true, false]);
    }
}
