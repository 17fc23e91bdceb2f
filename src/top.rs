//! `uniprof top`: what runs now. Enters: a target, a recording that is being written, or a stream. Leaves: a screen
//! that shows the last seconds, and files with them.
//!
//! A thread reads the stream, another one makes pictures of it, and this one draws them and takes keys.

mod feed;
mod picture;
mod keys;
mod screen;
#[cfg(feature = "record")]
mod recorder;

use crate::images::Images;
use crate::outcome::Outcome;
use crate::output::{keep, write_private};
use crate::quantity::{parse_duration, parse_rate};
use crate::terminal;
use crate::terminal::full_screen::{self, FullScreen};
use anyhow::{Context, bail};
use feed::Feed;
use keys::{Action, State, WINDOW_SECONDS};
use picture::{Picture, Query};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::io::{self, IsTerminal, Stdout, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Watch what runs: functions or call tree of the last seconds, and the load of each vCPU or thread
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uniprof top pid:1234                         a process and all below it, until q
  uniprof top web                              the Xen domain called web
  uniprof top --elf app.elf qemu:/run/qmp.sock
  uniprof top -- ./server --port 80            a command; it is ended with q
  uniprof top run.uprof                        a recording that is being written, or was
  ssh dom0 uniprof record -o - 7 | uniprof top -

? shows the keys. More flags of a recording: uniprof record -o - FLAGS TARGET | uniprof top -")]
pub struct Args {
    /// A target of `record`, a recording (a path that ends in .uprof, or of a file), or `-` for standard input
    #[arg(
        value_name = "TARGET|FILE",
        required_unless_present_any = ["command", "all"],
        conflicts_with_all = ["command", "all"]
    )]
    #[cfg_attr(feature = "record", arg(add = crate::candidates::targets()))]
    #[cfg_attr(not(feature = "record"), arg(add = crate::candidates::recordings()))]
    of: Option<String>,

    /// Watch all processes of the machine
    #[arg(short, long, conflicts_with = "command")]
    all: bool,

    /// The length of the window in whole seconds, 1s to 10m
    #[arg(short = 'n', long, value_name = "TIME", default_value = "10s", value_parser = parse_window)]
    window: u64,

    /// Of a target: samples a second of each vCPU or thread
    #[arg(short = 'F', long, value_name = "HZ", default_value = "99", value_parser = parse_rate)]
    frequency: f64,

    #[command(flatten)]
    images: Images,

    /// A command to start and watch
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Parses the length of a window to seconds.
fn parse_window(text: &str) -> anyhow::Result<u64> {
    let [least, most] = WINDOW_SECONDS;
    let length = parse_duration(text)?;
    if length.subsec_nanos() > 0 || !(least..=most).contains(&length.as_secs()) {
        bail!("whole seconds, {least} to {most}");
    }
    Ok(length.as_secs())
}

/// What is watched.
enum Subject {
    Stdin,
    File(PathBuf),
    /// The words of `record` for a target or a command.
    Target(Vec<String>),
}

impl Args {
    fn subject(&self) -> Subject {
        let Some(of) = &self.of else {
            if self.all {
                return Subject::Target(vec!["--all".to_owned()]);
            }
            let words = ["--".to_owned()].into_iter();
            return Subject::Target(words.chain(self.command.iter().cloned()).collect());
        };
        let path = Path::new(of);
        let is_recording = path.extension().is_some_and(|ending| ending == "uprof");
        if of == "-" {
            Subject::Stdin
        } else if is_recording || path.exists() && !path.is_dir() {
            Subject::File(path.to_owned())
        } else {
            Subject::Target(vec![of.clone()])
        }
    }
}

/// How often signals are looked for.
const LOOK: Duration = Duration::from_millis(50);
/// How long the screen stays without news.
const REDRAW: Duration = Duration::from_secs(1);

/// Runs the subcommand.
pub fn run(args: Args) -> anyhow::Result<Outcome> {
    if !terminal::is_screen() {
        bail!(
            "top draws on a terminal, and standard output is none, or TERM says that it can't be drawn on: `uniprof \
             record` records in a file, and `uniprof report` shows it as text"
        );
    }
    let window_seconds = args.window;
    let length_ns = window_seconds * 1_000_000_000;
    let watched = Watched::open(&args, length_ns)?;
    let stopped = Arc::new(AtomicUsize::new(0));
    let again = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        // The second one ends the program at once, wherever it is.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&again))
            .context("cannot listen to signals")?;
        signal_hook::flag::register(signal, Arc::clone(&again))
            .context("cannot listen to signals")?;
        signal_hook::flag::register_usize(signal, Arc::clone(&stopped), signal as usize)
            .context("cannot listen to signals")?;
    }
    let (ask, queries) = channel();
    let (send, news) = channel();
    let (feed, images, made) = (watched.feed.clone(), args.images, send.clone());
    start("uniprof-names", move || {
        picture::make(&feed, &images, &queries, &|picture| {
            made.send(News::Picture(picture)).is_ok()
        });
        let _ = made.send(News::NoPictures);
    })?;
    let mut state = State::default();
    state.query.window_seconds = window_seconds;
    let shown = Shown {
        state,
        picture: None,
        taken: Instant::now(),
        failure: None,
        watched,
    };
    shown.run(&ask, &news, send, &stopped)
}

/// What a thread brings.
enum News {
    Picture(anyhow::Result<Picture>),
    /// Nobody makes pictures any more.
    NoPictures,
    Event(Event),
    /// The terminal has no keys any more.
    NoKeys(io::Error),
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(work).context("cannot start a thread")?;
    Ok(())
}

/// Reads keys, in a thread of its own: where the terminal is gone, crossterm never returns.
fn read_keys(send: &Sender<News>) {
    loop {
        let news = match event::read() {
            Ok(event) => News::Event(event),
            Err(error) => News::NoKeys(error),
        };
        let is_last = matches!(news, News::NoKeys(_));
        if send.send(news).is_err() || is_last {
            return;
        }
    }
}

/// The stream, and who writes it.
struct Watched {
    feed: Feed,
    #[cfg(feature = "record")]
    recorder: Option<recorder::Recorder>,
}

impl Watched {
    fn open(args: &Args, length_ns: u64) -> anyhow::Result<Watched> {
        let feed = match args.subject() {
            Subject::Stdin if io::stdin().is_terminal() => {
                bail!(
                    "a recording is no text: send one to standard input, or name a target or a file"
                )
            }
            Subject::Stdin => Feed::read(io::stdin(), "standard input", length_ns)?,
            Subject::File(path) => {
                keep(&path);
                let name = path.display().to_string();
                let file = File::open(&path);
                let file = file.with_context(|| format!("cannot open {name}"))?;
                if file.metadata().is_ok_and(|found| found.is_file()) {
                    Feed::follow(file, &name, length_ns)?
                } else {
                    Feed::read(file, &name, length_ns)?
                }
            }
            Subject::Target(words) => return Watched::record(args, words, length_ns),
        };
        Ok(Watched {
            feed,
            #[cfg(feature = "record")]
            recorder: None,
        })
    }

    #[cfg(feature = "record")]
    fn record(args: &Args, target: Vec<String>, length_ns: u64) -> anyhow::Result<Watched> {
        let mut words = vec!["-F".into(), args.frequency.to_string().into()];
        for elf in args.images.elf_words() {
            words.extend(["--elf".into(), elf]);
        }
        words.extend(target.into_iter().map(Into::into));
        let (recorder, output) = recorder::Recorder::start(&words)?;
        match Feed::read(output, "the target", length_ns) {
            Ok(feed) => Ok(Watched {
                feed,
                recorder: Some(recorder),
            }),
            Err(error) => {
                let said = recorder.last_words();
                if said.is_empty() {
                    return Err(error);
                }
                bail!("{}", said.join("\nuniprof: "))
            }
        }
    }

    #[cfg(not(feature = "record"))]
    fn record(_: &Args, target: Vec<String>, _: u64) -> anyhow::Result<Watched> {
        bail!(
            "there is no file {}, and this build of uniprof doesn't record: `top` of a target needs one with the \
             feature `record`, on Linux",
            target.join(" ")
        )
    }

    /// What the recorder says.
    fn messages(&self) -> Vec<String> {
        #[cfg(feature = "record")]
        if let Some(recorder) = &self.recorder {
            return recorder.messages();
        }
        Vec::new()
    }
}

/// What is on the screen.
struct Shown {
    state: State,
    picture: Option<Picture>,
    /// When the picture came.
    taken: Instant,
    /// Why there is no newer picture.
    failure: Option<String>,
    watched: Watched,
}

impl Shown {
    /// Draws, and takes keys and pictures until the end.
    fn run(
        mut self,
        ask: &Sender<Query>,
        news: &Receiver<News>,
        send: Sender<News>,
        stopped: &AtomicUsize,
    ) -> anyhow::Result<Outcome> {
        let screen = FullScreen::enter().context(
            "cannot take the terminal: top needs one for its keys, also where standard input is a recording",
        )?;
        start("uniprof-keys", move || read_keys(&send))?;
        let mut terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        let mut drawn = None;
        let signal = loop {
            let signal = stopped.load(Ordering::Relaxed);
            if signal != 0 {
                break Some(signal as i32);
            }
            if !full_screen::is_on() {
                bail!("a thread failed, as reported above; please report this");
            }
            // Also without news: a terminal that is gone shows itself when it is drawn on.
            if drawn.is_none_or(|drawn: Instant| drawn.elapsed() > REDRAW) {
                self.draw(&mut terminal, ask)?;
                drawn = Some(Instant::now());
            }
            let mut next = news.recv_timeout(LOOK);
            let mut goes_on = true;
            while let Ok(one) = next {
                drawn = None;
                goes_on &= self.take(one, ask)?;
                next = news.try_recv().map_err(|_| RecvTimeoutError::Timeout);
            }
            if !goes_on {
                break None;
            }
        };
        drop(screen);
        let is_lossy = self.failure.is_some() || self.watched.feed.is_lossy();
        // The recorder ends here, and its command.
        drop(self.watched);
        if let Some(signal) = signal {
            signal_hook::low_level::emulate_default_handler(signal)?;
        }
        Ok(Outcome::lossy_if(is_lossy))
    }

    /// Draws, and asks for a picture of the terminal's width.
    fn draw(
        &mut self,
        terminal: &mut Terminal<CrosstermBackend<Stdout>>,
        ask: &Sender<Query>,
    ) -> anyhow::Result<()> {
        let columns = usize::from(terminal.size()?.width);
        if self.state.query.columns != columns {
            self.state.query.columns = columns;
            self.ask(ask);
        }
        self.state.age_seconds = self.taken.elapsed().as_secs();
        let Shown { state, picture, .. } = self;
        terminal.draw(|frame| screen::draw(frame, state, picture.as_ref()))?;
        Ok(())
    }

    /// Asks for another picture. If nobody makes any, that is news of its own.
    fn ask(&self, ask: &Sender<Query>) {
        let _ = ask.send(self.state.query.clone());
    }

    /// Takes what a thread brings. Returns whether to go on.
    fn take(&mut self, news: News, ask: &Sender<Query>) -> anyhow::Result<bool> {
        match news {
            News::Picture(Ok(mut picture)) => {
                self.failure = None;
                let said = self.watched.messages();
                let said = said.into_iter().map(|said| format!("record: {said}"));
                picture.add_notes(said.collect());
                self.picture = Some(picture);
                self.taken = Instant::now();
            }
            News::Picture(Err(error)) => {
                let why = crate::outcome::describe(&error);
                self.state.message = format!("no picture: {why}");
                self.failure = Some(why);
            }
            News::NoPictures => {
                let why = self.failure.take();
                bail!(why.unwrap_or_else(|| "the thread that makes pictures ended".to_owned()))
            }
            News::NoKeys(error) => return Err(error).context("cannot read keys"),
            News::Event(event) => return Ok(self.take_event(&event, ask)),
        }
        Ok(true)
    }

    /// Takes a key. Returns whether to go on.
    fn take_event(&mut self, event: &Event, ask: &Sender<Query>) -> bool {
        let Event::Key(key) = event else {
            return true;
        };
        if key.kind == KeyEventKind::Release {
            return true;
        }
        let empty = Picture::default();
        let picture = self.picture.as_ref().unwrap_or(&empty);
        match self.state.press(*key, picture) {
            Action::Quit => return false,
            Action::Draw => return true,
            Action::Save => {
                self.state.message = save(picture);
                return true;
            }
            Action::Resize => {
                let seconds = self.state.query.window_seconds;
                self.watched.feed.set_length(seconds * 1_000_000_000);
                self.state.message = format!("a window of {seconds} s");
            }
            Action::Ask => {}
        }
        self.ask(ask);
        true
    }
}

/// Most files of windows in a folder.
const SAVES_MAX: u32 = 9999;

/// Writes the window that is shown into a new file, and returns a message.
fn save(picture: &Picture) -> String {
    if picture.bytes.is_empty() {
        return "nothing to save yet".to_owned();
    }
    let paths = (1..=SAVES_MAX).map(|number| PathBuf::from(format!("top-{number}.uprof")));
    let mut free = paths.filter(|path| std::fs::symlink_metadata(path).is_err());
    let Some(path) = free.next() else {
        return format!("not saved: there are {SAVES_MAX} files top-N.uprof; move some away");
    };
    match write_private(&path, |out| out.write_all(&picture.bytes)) {
        Ok(()) => format!(
            "saved: the last {:.1} s are in {}",
            picture.seconds,
            path.display()
        ),
        Err(error) => format!("not saved: {}", crate::outcome::describe(&error)),
    }
}
