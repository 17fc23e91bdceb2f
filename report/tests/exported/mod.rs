//! Exports for tests.

use std::io;
use uniprof_report::export::{FORMATS, Request};
use uniprof_report::images::Library;
use uniprof_report::profile::Options;
use uniprof_report::recording::Recording;

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
        library,
        options,
        progress: &|_, _| {},
        marks: false,
        fold: false,
        identify: false,
    };
    let mut out = Vec::new();
    (format.write)(&request, &mut out).map(|_| out)
}
