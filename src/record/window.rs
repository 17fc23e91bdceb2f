//! The saves of a flight recorder: writes its windows to numbered files, and its last one to the recording's own.

use crate::new_file::NewFile;
use crate::quantity::parse_duration;
use crate::record::Args;
use crate::record::destination::OutputPath;
use crate::record::summary;
use crate::terminal;
use anyhow::{Context, bail};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use uniprof_record::capture::{Capture, Saved};
use uniprof_record::flight_recorder::{Keep, KeepEvent};
use uniprof_record::save_requests::SaveRequests;
use uniprof_record::save_socket::{self, SaveSocket};
use uniprof_record::window_folder::{self, WindowFolder};
use uniprof_record::{Counters, Plan, Source, SourceError, Summary};
use uprof::words::duration;

/// Shortest and longest window.
const LEAST_LENGTH: Duration = Duration::from_secs(1);
const MOST_LENGTH: Duration = Duration::from_secs(24 * 3600);

/// Refuses flags that don't go with `--keep`.
pub fn refuse(args: &Args) -> anyhow::Result<()> {
    if args.keep.is_none() {
        return Ok(());
    }
    if args.output.as_deref() == Some(Path::new("-")) {
        bail!(
            "--keep writes a file whenever it saves: name one with -o, instead of standard output"
        );
    }
    Ok(())
}

/// Parses the length of the window.
pub fn parse_length(text: &str) -> anyhow::Result<Duration> {
    let length = parse_duration(text)?;
    if length < LEAST_LENGTH || length > MOST_LENGTH {
        bail!("a window of 1s to 24h, such as 60s");
    }
    Ok(length)
}

/// Creates the folder of the window of the recording at `path`.
pub fn create(path: &Path) -> anyhow::Result<WindowFolder> {
    if let OutputPath::Special(_) = OutputPath::find(path)? {
        bail!(
            "cannot save to {}: --keep needs a regular file",
            path.display()
        );
    }
    Ok(WindowFolder::create(path)?)
}

/// A window that is kept, and the thread that saves it.
pub struct Window {
    keep: Keep,
    path: PathBuf,
    /// What is counted in messages.
    unit: &'static str,
    /// Locked until the last window is written.
    folder: Arc<WindowFolder>,
    saver: JoinHandle<Option<anyhow::Result<Saved>>>,
    socket: Option<SaveSocket>,
}

impl Window {
    /// Starts the thread that saves, and listens for requests.
    pub fn start(args: &Args, path: &Path, folder: WindowFolder) -> anyhow::Result<Window> {
        let requests = Arc::<SaveRequests>::default();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let socket = save_socket::listen(&stem, Arc::clone(&requests));
        if let Err(error) = &socket {
            terminal::say(format_args!(
                "uniprof: `uniprof save` can't reach this recorder, SIGUSR1 can: {error}"
            ));
        }
        let (events, received) = channel();
        let file = path.to_path_buf();
        let unit = if args.off_cpu {
            "samples and waits"
        } else {
            "samples"
        };
        let thread = std::thread::Builder::new().name("uniprof-saver".into());
        let saver = thread
            .spawn(move || attend(&received, &file, unit))
            .context("cannot start the thread that saves")?;
        terminal::inform(format_args!(
            "Keeping the last {} of it in {}: `uniprof save {}` or SIGUSR1 to process {} saves it.",
            duration(args.keep.unwrap_or_default().as_nanos() as u64),
            folder.path().display(),
            save_socket::name_at_socket(&stem),
            std::process::id(),
        ));
        let folder = Arc::new(folder);
        Ok(Window {
            path: path.to_path_buf(),
            unit,
            folder: Arc::clone(&folder),
            keep: Keep {
                window: args.keep.unwrap_or_default(),
                after: args.after.unwrap_or(Duration::ZERO),
                triggers: args.save_when.clone(),
                folder,
                requests,
                events,
            },
            saver,
            socket: socket.ok(),
        })
    }

    /// Records until something ends it; then the file is the last window.
    pub fn record(
        self,
        source: Source,
        plan: &Plan,
        counters: Arc<Counters>,
    ) -> Result<Summary, SourceError> {
        let result = uniprof_record::record_window(source, self.keep, plan, counters);
        drop(self.socket);
        let last = self.saver.join();
        if result.is_err() && matches!(last, Ok(None)) {
            // Nothing was recorded, so there is nothing to recover.
            let _ = window_folder::clear(self.folder.path());
        }
        let mut summary = result?;
        match last {
            Ok(Some(Ok(saved))) => {
                summary.bytes = saved.bytes;
                let _ = window_folder::clear(self.folder.path());
                let (samples, length) = (saved.samples, duration(saved.length_ns));
                if saved.bytes > 0 {
                    terminal::inform(format_args!(
                        "The last {length} with {samples} {} are in {}.",
                        self.unit,
                        self.path.display()
                    ));
                }
                Ok(summary)
            }
            Ok(Some(Err(error))) => Err(SourceError(format!(
                "{error:#}; the window is kept: uniprof recover {} -o {}",
                self.folder.path().display(),
                self.path.display()
            ))),
            _ => Err(SourceError(format!(
                "the last window could not be read; it is kept: uniprof recover {} -o {}",
                self.folder.path().display(),
                self.path.display()
            ))),
        }
    }
}

/// Handles what the recorder reports; returns the result of its last window.
fn attend(
    received: &Receiver<KeepEvent>,
    file: &Path,
    unit: &str,
) -> Option<anyhow::Result<Saved>> {
    let mut last = None;
    let mut number = 0;
    for event in received {
        match event {
            KeepEvent::Save(capture) => save(capture, file, &mut number, unit),
            KeepEvent::Last(capture) => last = Some(put_last(capture, file)),
            KeepEvent::Trouble(what) => {
                terminal::clear_line();
                terminal::say(format_args!("uniprof: {}: {what}", file.display()));
            }
        }
    }
    last
}

/// Saves a window to the next numbered file, and answers whoever asked for it.
fn save(mut capture: Capture, file: &Path, number: &mut u32, unit: &str) {
    let replies = std::mem::take(&mut capture.replies);
    let reason = capture.reason.clone();
    let saved = put_numbered(capture, file, number);
    terminal::clear_line();
    let answer = match saved {
        Ok((path, saved)) => {
            terminal::inform(format_args!(
                "Saved {} {unit} of {} to {}: {reason}.",
                saved.samples,
                duration(saved.length_ns),
                path.display()
            ));
            let path = std::path::absolute(&path).unwrap_or(path);
            format!("saved {}", path.display())
        }
        Err(error) => {
            let why = format!("{error:#}; the window is kept");
            terminal::say(format_args!("uniprof: {why}"));
            format!("failed {why}")
        }
    };
    for mut reply in replies {
        // Who asked may have gone; a reader that waits for nothing must not hold the next save.
        let _ = reply.set_write_timeout(Some(Duration::from_secs(1)));
        let _ = reply.write_all(answer.as_bytes());
    }
}

/// FILE-N.uprof, for FILE.uprof.
fn numbered(file: &Path, number: u32) -> PathBuf {
    let mut name = file.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    if let Some(extension) = file.extension() {
        name.push(".");
        name.push(extension);
    }
    file.with_file_name(name)
}

fn put_numbered(
    capture: Capture,
    file: &Path,
    number: &mut u32,
) -> anyhow::Result<(PathBuf, Saved)> {
    // Saves of an earlier run stay.
    let path = loop {
        *number += 1;
        let path = numbered(file, *number);
        if path.symlink_metadata().is_err() {
            break path;
        }
    };
    let cannot = || format!("cannot save to {}", path.display());
    let new = NewFile::beside(&path, 0o600).with_context(cannot)?;
    let saved = write(capture, &new.file).with_context(cannot);
    if saved.is_err() {
        *number -= 1;
    }
    let saved = saved?;
    new.put(&path).with_context(cannot)?;
    Ok((path, saved))
}

fn put_last(capture: Capture, file: &Path) -> anyhow::Result<Saved> {
    let cannot = || format!("cannot write {}", file.display());
    let output = OutputPath::of_file(file)?.create()?;
    let written = output
        .writer()
        .and_then(|out| write(capture, out).with_context(cannot));
    let mut saved = written.inspect_err(|_| output.discard())?;
    if !summary::is_kept(&output, (saved.samples, saved.bytes), false, false) {
        saved.bytes = 0;
    }
    Ok(saved)
}

fn write(capture: Capture, out: impl Write) -> io::Result<Saved> {
    let mut out = BufWriter::new(out);
    let saved = capture.write(&mut out)?;
    out.flush()?;
    Ok(saved)
}
