//! `record --push`: what is recorded goes to `uniprof push`, in a process of its own. In: flags, and the bytes of the
//! recording. Out: the same bytes in a pipe, and in the file if one is wanted. The recorder waits for neither names nor
//! the network, and the file is whole whatever becomes of the other process.

use crate::outcome::Outcome;
use crate::push::server::Server;
use crate::push::spool::{Scope, Spool};
use crate::quantity::{parse_bytes, parse_duration};
use crate::record::Args;
use crate::record::destination::Destination;
use crate::terminal;
use anyhow::{Context, bail};
use std::io::{self, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use uniprof_record::output::Output;
use uniprof_record::signal;

/// The name of the output of a recording that is only pushed.
pub const PUSHED: &str = "`uniprof push`";

/// Where a recording is pushed to.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Pushing")]
pub struct PushFlags {
    /// Push to this server while recording, as `uniprof push` does; without -o, no recording is kept
    #[arg(long, value_name = "URL", conflicts_with_all = ["keep", "calls", "runs", "run", "all_domains"])]
    pub push: Option<String>,

    /// Length of a profile in time: each is pushed when it is over
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_every, requires = "push")]
    pub every: Duration,

    /// What the server takes: pyroscope, otlp (default: by the path or the port of the URL)
    #[arg(long, value_name = "FORMAT", value_parser = crate::push::formats(), requires = "push",
          hide_possible_values = true)]
    pub format: Option<String>,

    /// A file with headers for each request, one a line, such as `Authorization: Bearer TOKEN`
    #[arg(long, value_name = "FILE", requires = "push")]
    pub header_file: Option<PathBuf>,

    /// A file with the certificates (PEM) of the authorities to believe, instead of the public ones
    #[arg(long, value_name = "FILE", requires = "push")]
    pub ca_file: Option<PathBuf>,

    /// Keep in this folder what isn't delivered yet
    #[arg(long, value_name = "DIR", default_value = "spool", requires = "push")]
    pub spool: PathBuf,

    /// Most bytes in the spool; beyond them the oldest profiles of this recording are dropped
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_bytes, requires = "push")]
    pub spool_size: u64,

    /// How long to try to deliver what is left when the recording is over
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration, requires = "push")]
    pub retry_for: Duration,
}

/// Parses the length of a profile.
fn parse_every(text: &str) -> anyhow::Result<Duration> {
    let length = parse_duration(text)?;
    if length < Duration::from_secs(1) {
        bail!("at least 1s: a recorder writes every half second");
    }
    Ok(length)
}

impl PushFlags {
    /// Checks before anything is recorded that pushing is possible.
    ///
    /// # Errors
    /// Says what isn't.
    pub fn check(&self, args: &Args) -> anyhow::Result<()> {
        let Some(url) = &self.push else {
            return Ok(());
        };
        if args.are_several() {
            bail!("--push is for one recording: start one recorder for each target");
        }
        if args.output.as_deref() == Some(Path::new("-")) {
            bail!(
                "--push sends the recording to a server: name a file with -o to keep it as well, or pipe it into \
                 `uniprof push --to URL --spool DIR -`"
            );
        }
        let server = Server {
            flag: "--push",
            url,
            format: self.format.as_deref(),
            header_file: self.header_file.as_deref(),
            ca_file: self.ca_file.as_deref(),
        };
        let (client, _) = server.client()?;
        Spool::open(&self.spool, self.spool_size, client.ending(), Scope::Own).map(drop)
    }

    /// Starts the process that pushes, if any, and returns the output of the recording: `output`, that process, or
    /// both.
    ///
    /// # Errors
    /// This program can't be started again.
    pub fn start(&self, args: &Args, output: &Destination) -> anyhow::Result<Pushing> {
        let Some(url) = &self.push else {
            return Ok((None, Box::new(output.writer()?)));
        };
        let (reader, writer) = io::pipe().context("cannot make a pipe")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["push", "--to", url]);
        let mut flag = |name: &str, value: &Path| {
            command.arg(name).arg(value);
        };
        for (name, length) in [("--every", self.every), ("--retry-for", self.retry_for)] {
            flag(name, Path::new(&format!("{}ns", length.as_nanos())));
        }
        flag("--spool", &self.spool);
        flag("--spool-size", Path::new(&self.spool_size.to_string()));
        let files = [
            ("--format", self.format.as_ref().map(Path::new)),
            ("--header-file", self.header_file.as_deref()),
            ("--ca-file", self.ca_file.as_deref()),
        ];
        for (name, value) in files {
            value.iter().for_each(|value| flag(name, value));
        }
        for elf in &args.elf {
            flag("--elf", Path::new(&elf.word()));
        }
        if args.off_cpu {
            command.arg("--off-cpu");
        }
        if terminal::is_quiet() {
            command.arg("--quiet");
        }
        // In a group of its own, so that ctrl-C ends the recording first, and its last interval is pushed.
        let child = command
            .arg("-")
            .process_group(0)
            .stdin(reader)
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start `uniprof push`")?;
        let file = args.named_file().map(|_| output.writer()).transpose()?;
        let output = PushedOutput::new(file, writer);
        Ok((Some(Pusher { child }), Box::new(output)))
    }
}

/// The process that pushes, and the output to write to.
pub type Pushing = (Option<Pusher>, Box<dyn Write + Send>);

/// The process that pushes.
pub struct Pusher {
    child: Child,
}

impl Pusher {
    /// Waits until everything is delivered or is kept in the spool. A signal makes it end sooner.
    pub fn wait(mut self) -> Outcome {
        // The signal that ended the recording was handled.
        signal::forget_stop();
        match signal::wait_for(&mut self.child) {
            Ok(status) => Outcome::lossy_if(!status.success()),
            Err(error) => {
                terminal::say(format_args!(
                    "uniprof: how `uniprof push` ended is unknown: {error}"
                ));
                Outcome::Lossy
            }
        }
    }
}

/// An output that is pushed, and may be a file as well.
pub struct PushedOutput {
    file: Option<Output>,
    pipe: Option<Output>,
}

impl PushedOutput {
    /// An output to `file` and to a pipe.
    pub fn new(file: Option<Output>, pipe: PipeWriter) -> PushedOutput {
        PushedOutput {
            file,
            pipe: Some(Output::from(OwnedFd::from(pipe))),
        }
    }
}

impl Write for PushedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match (&mut self.file, &mut self.pipe) {
            (Some(file), _) => file.write(bytes)?,
            (None, Some(pipe)) => return pipe.write(bytes),
            (None, None) => bytes.len(),
        };
        // The file is whole, whatever becomes of the other process, which has told why it ended.
        if let Some(pipe) = &mut self.pipe
            && pipe.write_all(&bytes[..written]).is_err()
        {
            self.pipe = None;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.iter_mut().try_for_each(Output::flush)
    }
}
