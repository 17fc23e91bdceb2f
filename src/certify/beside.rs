//! Another profiler on the same run.

mod perf;
mod samply;

use crate::certify::finding::Tally;
use anyhow::{Context, bail};
use perf::Control;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Another profiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Peer {
    /// `perf record`
    Perf,
    /// `samply record`
    Samply,
}

/// How long a profiler may take to begin, or to end after the program.
const PATIENCE: Duration = Duration::from_secs(10);
/// What samply says when it samples.
const SAMPLY_SAMPLES: &str = "Recording process";
/// Between two looks.
const NAP: Duration = Duration::from_millis(5);

impl Peer {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Perf => "perf",
            Peer::Samply => "samply",
        }
    }

    /// Checks that it is here.
    ///
    /// # Errors
    /// It isn't.
    pub fn check(self) -> anyhow::Result<()> {
        let mut version = Command::new(self.name());
        let found = version.arg("--version").stdin(Stdio::null()).output();
        if !found.is_ok_and(|output| output.status.success()) {
            bail!(
                "there is no `{}` here: install it, or leave out --beside",
                self.name()
            );
        }
        Ok(())
    }

    /// Records a process until it ends; reports through `ready` when it samples. Must be called on a thread that
    /// doesn't wait for the process.
    ///
    /// # Errors
    /// It can't be started, or fails.
    pub fn record(
        self,
        pid: i32,
        frequency: f64,
        folder: &Path,
        ready: &SyncSender<()>,
    ) -> anyhow::Result<PathBuf> {
        let file = folder.join(self.file_name());
        let said = folder.join("beside.said");
        let output = File::create(&said)?;
        let mut command = Command::new(self.name());
        let words: &[&str] = match self {
            Peer::Perf => &["record", "-q", "-g", "-F"],
            Peer::Samply => &["record", "--save-only", "--unstable-presymbolicate", "-r"],
        };
        command.args(words).arg(format!("{frequency:.0}"));
        command.arg("-o").arg(&file).arg("-p").arg(pid.to_string());
        let mut control = match self {
            Peer::Perf => Some(Control::new(folder, &mut command)?),
            Peer::Samply => None,
        };
        let mut child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {}", self.name()))?;
        if let Some(control) = &mut control {
            control.enable()?;
        }
        let has_begun = |_: &mut Child| match &mut control {
            Some(control) => control.is_enabled(),
            None => std::fs::read_to_string(&said).is_ok_and(|text| text.contains(SAMPLY_SAMPLES)),
        };
        let is_begun = await_it(&mut child, has_begun);
        let _ = ready.try_send(());
        let has_ended = |child: &mut Child| matches!(child.try_wait(), Ok(Some(_)));
        if !is_begun || !await_end(&mut child, pid, has_ended) {
            let _ = child.kill();
            let _ = child.wait();
            let said = std::fs::read_to_string(&said).unwrap_or_default();
            bail!("{} record failed: {}", self.name(), said.trim());
        }
        Ok(file)
    }

    /// What it saw in `folder` of the code that was added to an image: at this offset in the image's file, or, for
    /// frames without callers, at these addresses.
    ///
    /// # Errors
    /// Its file can't be read.
    pub fn read(
        self,
        folder: &Path,
        image: &str,
        file_offset: u64,
        addresses: &BTreeSet<u64>,
    ) -> anyhow::Result<Tally> {
        let file = folder.join(self.file_name());
        match self {
            Peer::Perf => {
                let mut addresses = addresses.clone();
                addresses.insert(file_offset);
                perf::read(&file, image, &addresses)
            }
            Peer::Samply => samply::read(&file, image, file_offset),
        }
    }

    fn file_name(self) -> &'static str {
        match self {
            Peer::Perf => "beside.data",
            Peer::Samply => "beside.json",
        }
    }
}

/// Waits until something happens; `false` if the profiler ends first, or it takes too long.
fn await_it(child: &mut Child, mut happens: impl FnMut(&mut Child) -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if happens(child) {
            return true;
        }
        if matches!(child.try_wait(), Ok(Some(_))) {
            return false;
        }
        std::thread::sleep(NAP);
    }
    false
}

/// Waits until the profiler has ended, which it has to do soon after the process.
fn await_end(child: &mut Child, pid: i32, mut has_ended: impl FnMut(&mut Child) -> bool) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    while process.exists() {
        if has_ended(child) {
            return true;
        }
        std::thread::sleep(NAP);
    }
    await_it(child, has_ended)
}
