//! Exports for tests.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use uniprof_report::export::{FORMATS, Folder, Request, Writes};
use uniprof_report::images::Library;
use uniprof_report::profile::Options;
use uniprof_report::recording::Recording;
use uniprof_report::stacks::Tables;

/// The export of `recordings` in the format called `name`.
pub fn exported(
    name: &str,
    recordings: &[&Recording],
    library: &Library,
    options: &Options,
) -> io::Result<Vec<u8>> {
    let format = FORMATS.iter().find(|format| format.name == name).unwrap();
    let request = Request {
        recordings,
        tables: &Tables::of_builds(library),
        options,
        progress: &|_, _| {},
        marks: false,
        fold: false,
        identify: false,
    };
    let mut out = Vec::new();
    match format.write {
        Writes::File(write) => write(&request, &mut out).map(|_| out),
        // All files, one after another.
        Writes::Folder(write) => {
            let mut files = Files::default();
            for recording in recordings {
                let recordings = &[*recording][..];
                write(
                    &Request {
                        recordings,
                        ..request
                    },
                    &mut files,
                )?;
            }
            Ok(files.take())
        }
    }
}

/// The files of a folder, in memory.
#[derive(Clone, Default)]
struct Files(Arc<Mutex<Vec<u8>>>);

impl Files {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Folder for Files {
    fn create(&mut self, path: &Path) -> io::Result<Box<dyn Write + Send>> {
        let name = path.to_str().unwrap();
        self.write_all(name.as_bytes())?;
        Ok(Box::new(self.clone()))
    }
}

impl Write for Files {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
