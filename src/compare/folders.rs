//! Recordings of a folder, one for each run, as `record --runs` writes them.

use crate::candidates::is_recording;
use crate::selection::{Selecting, refuse_twice};
use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};
use uniprof_report::images::Library;
use uniprof_report::recording::Recording;

/// Most recordings of a folder.
const FOLDER_RECORDINGS_MAX: usize = 1000;

/// Opens the recordings of a folder, in the order of their start.
///
/// # Errors
/// There are none, or too many, or one can't be read, or is there twice.
pub fn open(
    folder: &str,
    selecting: &Selecting,
    library: &Library,
) -> anyhow::Result<Vec<Recording>> {
    let paths = paths(Path::new(folder))?;
    if paths.is_empty() {
        bail!(
            "{folder} has no recording (*.uprof); `uniprof record --runs 5 -o {folder} -- COMMAND` makes some"
        );
    }
    if paths.len() > FOLDER_RECORDINGS_MAX {
        bail!(
            "{folder} has {} recordings; at most {FOLDER_RECORDINGS_MAX} are compared",
            paths.len()
        );
    }
    let opened = paths.iter();
    let opened = opened.map(|path| selecting.open_to_compare(path, library));
    let mut opened = opened.collect::<anyhow::Result<Vec<Recording>>>()?;
    refuse_twice(&opened)?;
    opened.sort_by_key(Recording::start_realtime_ns);
    Ok(opened)
}

/// The recordings in a folder, by their names and in the order of these.
///
/// # Errors
/// It can't be read.
pub fn paths(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read the folder {}", folder.display());
    let entries = fs::read_dir(folder).with_context(cannot)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths
        .collect::<Result<Vec<PathBuf>, _>>()
        .with_context(cannot)?;
    paths.retain(|path| is_recording(path));
    paths.sort();
    Ok(paths)
}

/// Whether runs of both sides were made in turns: each pair before the next.
pub fn are_in_turns([a, b]: [&[&Recording]; 2]) -> bool {
    let starts = a
        .iter()
        .zip(b)
        .map(|(a, b)| a.start_realtime_ns().zip(b.start_realtime_ns()));
    let Some(starts) = starts.collect::<Option<Vec<_>>>() else {
        return false;
    };
    let pairs = starts.windows(2);
    a.len() == b.len()
        && pairs
            .into_iter()
            .all(|two| two[0].0.max(two[0].1) < two[1].0.min(two[1].1))
}
