//! Tables in a folder, of any number of recordings: one after another is opened, written and closed again. A recording
//! that can't be read costs only its own tables.

use super::Args;
use crate::outcome::{Outcome, describe};
use crate::output::NewFiles;
use crate::progress::Progress;
use crate::selection::{inform, say, say_damages, say_warnings};
use anyhow::{Context, anyhow};
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use uniprof_report::export::{Folder, Request};
use uniprof_report::profile::Profile;
use uniprof_report::recording::Recording;
use uniprof_report::stacks::Tables as ImageTables;

type WriteFolder = fn(&Request<'_, '_>, &mut dyn Folder) -> io::Result<Profile>;

/// Writes the tables of all recordings that are selected.
pub fn write(args: &Args, write: WriteFolder) -> anyhow::Result<Outcome> {
    if args.output == Path::new("-") {
        let format = &args.format;
        return Err(anyhow!(
            "{format} is a folder of tables; name it with -o DIR"
        ));
    }
    let library = args.selection.selecting.images.library()?;
    // Recordings of a fleet have many images in common.
    let images = &ImageTables::of_builds(&library);
    let mut tables = Tables {
        args,
        write,
        images,
        written: HashMap::new(),
    };
    let (mut rows, mut others, mut incomplete) = (0_u64, 0, 0);
    let (mut last, mut failed) = (None, 0);
    for file in &args.selection.files {
        match tables.write(file) {
            Ok(Some(profile)) => {
                let counted = profile.account.counted_rows.values();
                let counts = counted.map(|weight| weight.count);
                rows = counts.fold(rows, u64::saturating_add);
                incomplete += usize::from(profile.account.is_incomplete());
            }
            Ok(None) => others += 1,
            Err(error) => {
                failed += 1;
                if let Some(error) = last.replace(error) {
                    say(&format!("warning: {}", describe(&error)));
                }
            }
        }
    }
    let recordings = tables.written.len();
    match last {
        Some(error) if recordings == 0 => return Err(error),
        Some(error) => say(&format!("warning: {}", describe(&error))),
        None if recordings == 0 => return Err(args.selection.none_of(others)),
        None => {}
    }
    inform(&format!(
        "{rows} samples of {recordings} recordings are in the tables of {}",
        args.output.display()
    ));
    if incomplete > 0 && args.selection.files.len() > 1 {
        say(&format!(
            "{incomplete} of these recordings lack samples; `uniprof info FILE` shows which"
        ));
    }
    Ok(Outcome::lossy_if(incomplete + failed > 0))
}

struct Tables<'a, 'l> {
    args: &'a Args,
    write: WriteFolder,
    images: &'a ImageTables<'l>,
    /// The recordings that are written, by identity.
    written: HashMap<[u8; 16], PathBuf>,
}

impl Tables<'_, '_> {
    /// Writes the tables of one recording; `None` if it isn't selected.
    fn write(&mut self, file: &Path) -> anyhow::Result<Option<Profile>> {
        let recording = self.args.selection.open(file, self.images.library())?;
        if !self.args.selection.has(&recording) {
            return Ok(None);
        }
        let known = recording.uuid().and_then(|uuid| self.written.get(&uuid));
        if let Some(other) = known {
            let (file, other) = (file.display(), other.display());
            return Err(anyhow!(
                "{file} is left out: it has the identity of {other}, whose tables are written; name one of them"
            ));
        }
        let tables = self.write_one(&recording);
        let profile = tables.with_context(|| format!("cannot export {}", file.display()))?;
        if let Some(uuid) = recording.uuid() {
            self.written.insert(uuid, file.to_owned());
        }
        // Of a single recording, everything is said; of many, `info` and the tables have it.
        if self.args.selection.files.len() == 1 {
            say_warnings(&profile);
            say_damages(std::slice::from_ref(&recording));
            let lines = profile.account.lines();
            lines.iter().skip(1).for_each(|line| say(line));
        }
        Ok(Some(profile))
    }

    fn write_one(&self, recording: &Recording) -> anyhow::Result<Profile> {
        let progress = Progress::new();
        let selecting = &self.args.selection.selecting;
        let request = Request {
            recordings: &[recording],
            tables: self.images,
            options: &selecting.options(1),
            progress: &|done, total| progress.tell(done, total),
            marks: false,
            fold: false,
            identify: selecting.identify,
        };
        let mut folder = NewFolder {
            path: &self.args.output,
            files: NewFiles::default(),
        };
        let profile = (self.write)(&request, &mut folder)?;
        folder.files.put()?;
        Ok(profile)
    }
}

/// The folder of the tables.
struct NewFolder<'a> {
    path: &'a Path,
    files: NewFiles,
}

impl Folder for NewFolder<'_> {
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn Write + Send>> {
        self.files.create(&self.path.join(path))
    }
}
