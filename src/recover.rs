//! `uniprof recover`: copies the sound parts of a damaged recording, or of the window that a killed flight recorder
//! left, into a new one.

use crate::candidates::recordings;
use crate::dump;
use crate::outcome::Outcome;
use crate::output::{keep, write_private};
use crate::terminal::{inform, say};
use anyhow::{Context, bail};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use uniprof_report::{mapped, work};
use uprof::{Item, Joined, OpenError, Recovered, StreamReader};

/// Most damaged parts that are listed.
const TOLD: usize = 20;

/// Most segments of a window that are read.
const MOST_SEGMENTS: usize = 256;
/// Most files of a folder that are listed.
const MOST_LISTED: usize = 1 << 16;

/// A file of a window.
type Part = BufReader<File>;

/// Copy what is sound of a damaged recording into a new one that says what is missing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  uniprof recover cut.uprof -o sound.uprof
  uniprof recover run.uprof.keep -o run.uprof       the window of a killed `record --keep`")]
pub struct Args {
    /// The damaged recording; `-` is standard input. A folder is the window of `record --keep`
    #[arg(value_name = "FILE", add = recordings())]
    file: PathBuf,
    /// The new recording; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    if args.file.is_dir() {
        return recover_window(args);
    }
    keep(&args.file);
    let reader = dump::open(&args.file, "cannot recover anything from")?;
    let uuid = new_identity(reader.uuid());
    let recovered = write_private(&args.output, |out| {
        Ok(uprof::recover(reader.inspect(count), out, uuid)?.1)
    })?;
    report(&recovered, args, true);
    Ok(Outcome::lossy_if(!recovered.is_whole()))
}

/// Recovers the window of a flight recorder from the folder of its files.
fn recover_window(args: &Args) -> anyhow::Result<Outcome> {
    let shown = args.file.display();
    let cannot = || format!("cannot recover anything from {shown}");
    let listed = std::fs::read_dir(&args.file).with_context(cannot)?;
    let names = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names = names.filter(|name| is_part(name));
    let (mut segments, before): (Vec<String>, Vec<String>) = names
        .take(MOST_LISTED)
        .partition(|name| name.starts_with(|first: char| first.is_ascii_digit()));
    // By their numbers, which have the same number of digits.
    segments.sort();
    let too_many = segments.len().saturating_sub(MOST_SEGMENTS);
    if too_many > 0 {
        say(format_args!(
            "uniprof: {too_many} segments are left out: {MOST_SEGMENTS} are read, the newest"
        ));
    }
    let segments = segments.split_off(too_many);
    let mut gaps = 0;
    for (before, after) in segments.iter().zip(segments.iter().skip(1)) {
        if number_of(before) + 1 < number_of(after) {
            gaps += 1;
            say(format_args!(
                "uniprof: the segments between {before} and {after} are gone"
            ));
        }
    }
    let files = segments.len() + before.len();
    let readers = |names: Vec<String>| -> Vec<StreamReader<Part>> {
        names
            .iter()
            .filter_map(|name| open_part(&args.file.join(name)))
            .collect()
    };
    let (segments, before) = (readers(segments), readers(before));
    let is_all = files == segments.len() + before.len() && too_many + gaps == 0;
    let Some(uuid) = segments.first().map(StreamReader::uuid) else {
        bail!(
            "{}: there is no recording in it; a window is in FILE.keep, beside the FILE of `record --keep`",
            cannot()
        );
    };
    let joined = Joined::new(before, segments).with_context(cannot)?;
    let uuid = new_identity(uuid);
    let recovered = write_private(&args.output, |out| {
        Ok(uprof::recover(joined.inspect(count), out, uuid)?.1)
    })?;
    report(&recovered, args, is_all);
    Ok(Outcome::lossy_if(!is_all || !recovered.is_whole()))
}

/// The number of a segment.
fn number_of(name: &str) -> u64 {
    let digits = name.strip_suffix(".uprof");
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// The identity of the new recording: that of the old one, unless its preamble is damaged.
fn new_identity(old: Option<[u8; 16]>) -> [u8; 16] {
    old.unwrap_or_else(|| fastrand::u128(..).to_le_bytes())
}

/// Whether a flight recorder gives its files this name (format-spec.md, section 9).
fn is_part(name: &str) -> bool {
    let stem = name.strip_suffix(".uprof").unwrap_or("");
    let is_number = !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_digit());
    is_number || ["state", "tables"].contains(&stem)
}

/// Opens a file of a window; `None`, with a message, if there is nothing to read.
fn open_part(path: &Path) -> Option<StreamReader<Part>> {
    // Someone else's folder may have a pipe in it, which would be waited for.
    let is_file = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    let opened = if is_file {
        File::open(path)
    } else {
        Err(io::Error::other("it is no regular file"))
    };
    keep(path);
    let reader = opened
        .map_err(|error| OpenError::Read(error.to_string()))
        .and_then(|file| StreamReader::open_to_end(BufReader::new(file)));
    match reader {
        Ok(reader) => Some(reader),
        Err(error) => {
            say(format_args!(
                "uniprof: {} is left out: {error}",
                path.display()
            ));
            None
        }
    }
}

/// Counts the bytes read, and the work of decoding them.
fn count(item: &io::Result<Item<'_>>) {
    let Ok(item) = item else { return };
    mapped::add_read(item.file_bytes());
    if let Item::Block(block) = item {
        work::take_block(block);
    }
}

/// `is_all`: no file of a window was left out.
fn report(recovered: &Recovered, args: &Args, is_all: bool) {
    for damage in recovered.damages.iter().take(TOLD) {
        say(format_args!("uniprof: {damage}"));
    }
    for error in recovered.undecodable.iter().take(TOLD) {
        say(format_args!(
            "uniprof: {error}; what comes before that is kept"
        ));
    }
    let places = recovered.damages.len() as u64 + recovered.more_damages;
    let untold = places.saturating_sub(TOLD as u64);
    if untold > 0 {
        say(format_args!("uniprof: and {untold} more damaged places"));
    }
    if !recovered.has_metadata {
        say(format_args!(
            "uniprof: the metadata is lost: say with --elf what was recorded"
        ));
    }
    let (blocks, samples) = (recovered.blocks, recovered.samples);
    inform(format_args!(
        "uniprof: {blocks} blocks with {samples} samples are in {}",
        args.output.display()
    ));
    if recovered.is_whole() {
        if is_all {
            inform(format_args!(
                "uniprof: nothing was wrong with {}",
                args.file.display()
            ));
        }
        return;
    }
    let (bytes, lost) = (recovered.skipped_bytes, recovered.lost_samples);
    let places = recovered.damaged_places();
    if places == 0 {
        // Only the end is missing, as listed above.
        return;
    }
    let plural = if places == 1 { "" } else { "s" };
    say(format_args!(
        "uniprof: damage at {places} place{plural}, {bytes} bytes skipped, at least {lost} samples \
         lost"
    ));
}
