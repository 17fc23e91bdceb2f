//! Another profiler on the same run.

use crate::certify::finding::Tally;
use anyhow::{Context, bail};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Another profiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Peer {
    /// `perf record`
    Perf,
}

/// How long a profiler may take to begin, or to end after the program.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
const NAP: Duration = Duration::from_millis(5);

impl Peer {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Perf => "perf",
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
        let file = folder.join("beside.data");
        let [control, answer] = ["control", "answer"].map(|name| folder.join(name));
        for path in [&control, &answer] {
            let _ = std::fs::remove_file(path);
            mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?;
        }
        let mut orders = open(&control)?;
        let mut answers = open(&answer)?;
        let mut perf = Command::new(self.name())
            .args(["record", "-q", "-g", "-F", &format!("{frequency:.0}"), "-p"])
            .arg(pid.to_string())
            .arg(format!(
                "--control=fifo:{},{}",
                control.display(),
                answer.display()
            ))
            .args(["-D", "-1", "-o"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(folder.join("beside.said"))?)
            .spawn()
            .context("cannot start perf")?;
        orders.write_all(b"enable\n")?;
        let is_enabled = |_: &mut Child| {
            let mut text = [0; 64];
            answers.read(&mut text).is_ok_and(|read| read > 0)
        };
        let is_begun = await_it(&mut perf, is_enabled);
        let _ = ready.try_send(());
        let has_ended = |perf: &mut Child| matches!(perf.try_wait(), Ok(Some(_)));
        if !is_begun || !await_end(&mut perf, pid, has_ended) {
            let _ = perf.kill();
            let _ = perf.wait();
            let said = std::fs::read_to_string(folder.join("beside.said")).unwrap_or_default();
            bail!("perf record failed: {}", said.trim());
        }
        Ok(file)
    }

    /// What it saw at these addresses of an image. Those of frames with callers are offsets in the image's file.
    ///
    /// # Errors
    /// Its file can't be read.
    pub fn read(
        self,
        file: &Path,
        image: &str,
        addresses: &BTreeSet<u64>,
    ) -> anyhow::Result<Tally> {
        let output = Command::new(self.name())
            .args(["script", "-F", "ip,sym,dso", "-i"])
            .arg(file)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .context("cannot run perf script")?;
        Ok(tally(
            &String::from_utf8_lossy(&output.stdout),
            image,
            addresses,
        ))
    }
}

/// Counts samples of `perf script -F ip,sym,dso`: a line for each frame, and an empty one behind each sample. A frame
/// without a symbol says `[unknown]`.
fn tally(text: &str, image: &str, addresses: &BTreeSet<u64>) -> Tally {
    let mut tally = Tally::default();
    let within = format!("({image})");
    let is_seen = |line: &str| {
        let frame = line.trim().strip_suffix(&within);
        let frame = frame.and_then(|frame| frame.split_once(' '));
        frame.is_some_and(|(address, symbol)| {
            let address = u64::from_str_radix(address, 16);
            address.is_ok_and(|address| addresses.contains(&address))
                && symbol.trim() != "[unknown]"
        })
    };
    for sample in text
        .split("\n\n")
        .filter(|sample| !sample.trim().is_empty())
    {
        tally.samples += 1;
        tally.seen += u64::from(sample.lines().any(is_seen));
    }
    tally
}

fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true);
    options.custom_flags(libc::O_NONBLOCK).open(path)
}

/// Waits until something happens; `false` if the profiler ends first, or it takes too long.
fn await_it(perf: &mut Child, mut happens: impl FnMut(&mut Child) -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if happens(perf) {
            return true;
        }
        if matches!(perf.try_wait(), Ok(Some(_))) {
            return false;
        }
        std::thread::sleep(NAP);
    }
    false
}

/// Waits until the profiler has ended, which it has to do soon after the process.
fn await_end(perf: &mut Child, pid: i32, mut has_ended: impl FnMut(&mut Child) -> bool) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    while process.exists() {
        if has_ended(perf) {
            return true;
        }
        std::thread::sleep(NAP);
    }
    await_it(perf, has_ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_the_plant_are_counted_if_they_have_a_name() {
        let text = "\n  1001 work (/bin/a)\n  1000 main (/bin/a)\n\n\n  1002 [unknown] (/bin/a)\n\n\n ffff81 int3 \
                    ([kernel])\n  1002 work (/bin/a)\n\n\n  1001 other (/bin/b)\n\n\n  1000 main (/bin/a)\n\n";
        let found = tally(text, "/bin/a", &BTreeSet::from([0x1001, 0x1002]));
        assert_eq!((found.samples, found.seen), (5, 2));
    }
}
