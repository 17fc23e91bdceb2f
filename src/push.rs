//! `uniprof push`: sends recordings to a server of continuous profiling, at once or through a spool.

mod address;
mod headers;
mod client;
pub mod server;
mod deadline;
pub mod spool;
mod delivery;
mod inlet;
mod conversion;
mod stream;

use crate::images::{Images, place_given};
use crate::outcome::{Outcome, Reported, describe};
use crate::output::keep;
use crate::progress::Progress;
use crate::quantity::{parse_bytes, parse_duration};
use crate::selection::{inform, say, say_damages, say_warnings};
use anyhow::{Context, bail};
use clap::builder::{PossibleValue, PossibleValuesParser};
use deadline::Deadline;
use delivery::{Delivery, Fate, Left};
use server::Server;
use spool::{Scope, Spool};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uniprof_report::push::{Message, PROTOCOLS, Protocol, Request, Slicing, messages};
use uniprof_report::recording::Recording;
use uniprof_report::stacks::Tables;

/// Send recordings to a server of continuous profiling: Grafana Pyroscope, or OpenTelemetry's profiles
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uniprof push --to http://localhost:4040 run.uprof
  uniprof push --to https://profiles.example.net --format pyroscope --header-file token.txt *.uprof
  uniprof push --to http://localhost:4318 --spool /var/spool/uniprof run.uprof
  uniprof push --to http://localhost:4318 --spool /var/spool/uniprof
  ssh dom0 uniprof record -o - 7 | uniprof push --to http://localhost:4040 --spool spool -")]
pub struct Args {
    /// Recordings. None: what waits in the spool for this server is sent. `-`: a recording that comes now on standard
    /// input, each interval when it is over, through a spool
    #[arg(value_name = "FILE", required_unless_present = "spool", add = crate::candidates::recordings())]
    files: Vec<PathBuf>,
    /// Where to: the address of the server, or the whole URL if it takes profiles under another path
    #[arg(long, value_name = "URL")]
    to: String,
    /// What the server takes (default: by the path or the port of the URL)
    #[arg(long, short, value_name = "FORMAT", value_parser = formats())]
    format: Option<String>,
    /// A file with headers for each request, one a line, such as `Authorization: Bearer TOKEN`
    #[arg(long, value_name = "FILE")]
    header_file: Option<PathBuf>,
    /// A file with the certificates (PEM) of the authorities to believe, instead of the public ones
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Keep in this folder what isn't delivered yet, and deliver what waits there for this server
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,
    /// Most bytes in the spool; beyond them nothing new is taken
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_bytes, requires = "spool")]
    spool_size: u64,
    /// Without recordings: deliver all that waits in the spool in this format, also what was for other servers
    #[arg(long, requires = "spool", conflicts_with = "files")]
    all: bool,
    /// How long to try again while the server is away or busy, from the last success on
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_duration)]
    retry_for: Duration,
    /// Length of a profile in time: servers show each as one moment
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    every: Duration,
    /// Where threads waited and for how long, instead of samples (of `-`: besides them): of recordings made with
    /// --off-cpu
    #[arg(long)]
    off_cpu: bool,
    #[command(flatten)]
    images: Images,
}

/// What to do if a server is away.
const LATER: &str = "; push again later, or with --spool, which keeps what is left";

/// What `--format` takes.
pub fn formats() -> PossibleValuesParser {
    let values = PROTOCOLS.iter();
    PossibleValuesParser::new(values.map(|one| PossibleValue::new(one.name).help(one.about)))
}

/// Runs the subcommand.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let server = Server {
        flag: "--to",
        url: &args.to,
        format: args.format.as_deref(),
        header_file: args.header_file.as_deref(),
        ca_file: args.ca_file.as_deref(),
    };
    let (client, warning) = server.client()?;
    warning.iter().for_each(|warning| say(warning));
    let scope = match (args.files.is_empty(), args.all) {
        (false, _) => Scope::Own,
        (true, false) => Scope::Older,
        (true, true) => Scope::All,
    };
    let ending = client.ending();
    let spool = match &args.spool {
        Some(folder) => Some(Spool::open(folder, args.spool_size, ending, scope)?),
        None => None,
    };
    if args.files.iter().any(|file| file == Path::new("-")) {
        return match (&spool, &args.files[..]) {
            (Some(spool), [_]) => stream::push(args, &client, spool),
            (Some(_), _) => bail!("`-` is a recording that comes now: push files by themselves"),
            (None, _) => bail!(
                "a recording that comes now can't be read again if the server is away: name a folder for what isn't \
                 delivered yet, with --spool"
            ),
        };
    }
    let deadline = Deadline::closed(args.retry_for);
    let mut delivery = Delivery::new(&client, &deadline);
    let library = args.images.library()?;
    let mut push = Push {
        args,
        tables: &Tables::of_builds(&library),
        known: HashMap::new(),
        incomplete: 0,
        failed: 0,
    };
    match &spool {
        Some(spool) => push.through(spool, &mut delivery),
        None => push.directly(&mut delivery),
    }
}

struct Push<'a> {
    args: &'a Args,
    tables: &'a Tables<'a>,
    /// The recordings that were read, by identity.
    known: HashMap<[u8; 16], PathBuf>,
    /// Recordings that lack something, or have nothing.
    incomplete: usize,
    /// Recordings that could not be read, or were not taken as a whole.
    failed: usize,
}

impl Push<'_> {
    /// Sends the recordings at once.
    fn directly(&mut self, delivery: &mut Delivery<'_>) -> anyhow::Result<Outcome> {
        let client = delivery.client();
        let mut end = None;
        for file in &self.args.files {
            let mut refused = None;
            let read = self.read(file, client.protocol, &mut |message| loop {
                match delivery.attempt(&message.body, file) {
                    Fate::Delivered => break Ok(()),
                    Fate::Later(failure) => {
                        if let Some(why) = delivery.wait(&failure) {
                            break Err(stop(&mut end, why + LATER));
                        }
                    }
                    Fate::Refused(why) => {
                        refused = Some(why);
                        break Ok(());
                    }
                    Fate::Unusable(why) => break Err(stop(&mut end, why)),
                }
            });
            if end.is_some() {
                break;
            }
            self.count(read);
            if let Some(why) = refused {
                self.failed += 1;
                say(&format!(
                    "warning: {} refuses {}: {why}",
                    client.url,
                    file.display()
                ));
            }
        }
        if let Some(why) = end {
            delivery.say_repeated();
            bail!(
                "{}: {why}; profiles delivered before: {}",
                client.url,
                delivery.delivered
            );
        }
        self.outcome(delivery, 0)
    }

    /// Takes the recordings into the spool, then delivers all that waits there.
    fn through(&mut self, spool: &Spool, delivery: &mut Delivery<'_>) -> anyhow::Result<Outcome> {
        let client = delivery.client();
        for file in &self.args.files {
            let mut taken = Vec::new();
            let read = self.read(file, client.protocol, &mut |message| {
                taken.extend(spool.add(&message, &mut VecDeque::new())?);
                Ok(())
            });
            if read.is_err() {
                // As a whole or not at all, so that it can be pushed again.
                taken.iter().for_each(|path| drop(spool.remove(path)));
            }
            self.count(read);
        }
        let left = delivery.deliver_all(spool)?;
        let waiting = spool.waiting().map_or(0, |all| all.len());
        let (url, folder) = (&client.url, spool.folder().display());
        let again = format!(
            "profiles that wait in {folder}: {waiting}; `uniprof push --spool {folder} --to {url}` delivers them"
        );
        let others = spool.others();
        if self.args.files.is_empty() && others > 0 {
            inform(&format!(
                "profiles that wait in {folder} for other servers: {others}; --all delivers them to this one"
            ));
        }
        match left {
            Left::Nothing => {}
            Left::ToAnother => say(&format!(
                "{url}: another uniprof is delivering from this spool; {again}"
            )),
            Left::Undelivered(why) => say(&format!("{url}: {why}; {again}")),
            Left::Unusable(why) => bail!("{url}: {why}; {again}"),
        }
        self.outcome(delivery, waiting + spool.refused())
    }

    /// Passes the messages of a recording to `each`. Returns whether it is whole.
    fn read(
        &mut self,
        file: &Path,
        protocol: &Protocol,
        each: &mut dyn FnMut(Message) -> io::Result<()>,
    ) -> anyhow::Result<bool> {
        keep(file);
        let mut recording = Recording::open(file)?;
        place_given(&mut recording, self.tables.library());
        let known = recording
            .uuid()
            .and_then(|uuid| self.known.insert(uuid, file.to_owned()));
        if let Some(other) = known {
            let (file, other) = (file.display(), other.display());
            bail!("{file} is left out: it has the identity of {other}; name one of them");
        }
        let progress = Progress::new();
        let mut sent = 0;
        let request = Request {
            recording: &recording,
            tables: self.tables,
            is_off_cpu: self.args.off_cpu,
            progress: &|done, total| progress.tell(done, total),
            slicing: Slicing::Every(nanoseconds(self.args.every)),
        };
        let profile = messages(&request, protocol, &mut |message| {
            sent += 1;
            each(message)
        });
        let profile = profile.with_context(|| format!("cannot push {}", file.display()))?;
        // Of a single recording, everything is said; of many, `info` has it.
        if self.args.files.len() == 1 {
            say_warnings(&profile);
            say_damages(std::slice::from_ref(&recording));
            let lines = profile.account.lines();
            lines.iter().skip(1).for_each(|line| say(line));
        }
        if sent == 0 {
            say(&format!(
                "warning: {} has no {} to push",
                file.display(),
                profile.unit().what()
            ));
        }
        Ok(sent > 0 && !profile.account.is_incomplete())
    }

    fn count(&mut self, read: anyhow::Result<bool>) {
        match read {
            Ok(is_whole) => self.incomplete += usize::from(!is_whole),
            Err(error) => {
                self.failed += 1;
                say(&format!("warning: {}", describe(&error)));
            }
        }
    }

    fn outcome(&self, delivery: &Delivery<'_>, left: usize) -> anyhow::Result<Outcome> {
        delivery.say_repeated();
        let files = self.args.files.len();
        if files > 0 && self.failed == files {
            return Err(Reported.into());
        }
        inform(&format!(
            "profiles delivered to {}: {}",
            delivery.client().url,
            delivery.delivered
        ));
        if self.incomplete > 0 && files > 1 {
            say(&format!(
                "{} of these recordings lack samples; `uniprof info FILE` shows which",
                self.incomplete
            ));
        }
        Ok(Outcome::lossy_if(self.failed + self.incomplete + left > 0))
    }
}

/// Keeps why nothing more can be sent, and ends reading.
fn stop(end: &mut Option<String>, why: String) -> io::Error {
    *end = Some(why);
    io::Error::other("nothing more can be sent")
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
