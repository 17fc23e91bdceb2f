//! `perf record` beside a program, and what `perf script` prints of it.

use crate::certify::finding::Tally;
use anyhow::Context;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Orders for perf, and its answers.
pub struct Control {
    orders: File,
    answers: File,
}

impl Control {
    /// Makes both in `folder`, and adds them to the arguments.
    ///
    /// # Errors
    /// The system's.
    pub fn new(folder: &Path, perf: &mut Command) -> anyhow::Result<Control> {
        let [orders, answers] = ["control", "answer"].map(|name| folder.join(name));
        for path in [&orders, &answers] {
            let _ = std::fs::remove_file(path);
            mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?;
        }
        let fifos = format!("{},{}", orders.display(), answers.display());
        perf.arg(format!("--control=fifo:{fifos}"));
        // Without events until it is told.
        perf.args(["-D", "-1"]);
        let open = |path: &Path| {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true);
            options.custom_flags(libc::O_NONBLOCK).open(path)
        };
        Ok(Control {
            orders: open(&orders)?,
            answers: open(&answers)?,
        })
    }

    /// Lets it sample.
    ///
    /// # Errors
    /// The system's.
    pub fn enable(&mut self) -> std::io::Result<()> {
        self.orders.write_all(b"enable\n")
    }

    /// Whether it samples.
    pub fn is_enabled(&mut self) -> bool {
        let mut text = [0; 64];
        self.answers.read(&mut text).is_ok_and(|read| read > 0)
    }
}

/// What it saw at these addresses of an image. Those of frames with callers are offsets in the image's file.
///
/// # Errors
/// It can't be run.
pub fn read(file: &Path, image: &str, addresses: &BTreeSet<u64>) -> anyhow::Result<Tally> {
    let output = Command::new("perf")
        .args(["script", "-F", "ip,sym,dso", "-i"])
        .arg(file)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .context("cannot run perf script")?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(tally(&text, image, addresses))
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
