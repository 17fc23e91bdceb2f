//! Unwinds and names the stacks of a recording, and prints them one by one as they were sampled.
//!
//!     cargo run -p uniprof-report --example stacks -- run.uprof [IMAGE...]
//!
//! Images are ELF files that the guest ran; without, what the recording carries itself has names.

use std::error::Error;
use std::path::Path;
use uniprof_report::images::Library;
use uniprof_report::profile::{Options, Profile, Sampled, gather};
use uniprof_report::recording::Recording;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments
        .next()
        .ok_or("usage: stacks RECORDING [IMAGE...]")?;
    let recording = Recording::open(Path::new(&path))?;
    let mut library = Library::default();
    for image in arguments {
        library.add_image(Path::new(&image))?;
    }
    // Called for each sample, in the order of the file, when its stack is unwound and has names.
    let mut print = |sampled: &Sampled, profile: &Profile| {
        let seconds = sampled.since_ns as f64 / 1e9;
        println!(
            "{seconds:.6} {} {}",
            sampled.task.vcpu,
            sampled.state.name()
        );
        for label in profile.tree.outwards(sampled.node) {
            println!(
                "    {}{}",
                profile.labels.name(label),
                profile.labels.module_suffix(label)
            );
        }
    };
    let quiet = |_done, _of| {};
    let options = Options::default();
    let profile = gather(&[&recording], &library, &options, &quiet, Some(&mut print));
    // Whatever the stacks rest on: what was lost or cut, images that were refused.
    for warning in &profile.warnings {
        eprintln!("{warning}");
    }
    eprintln!("{}", profile.account.short_line(200));
    Ok(())
}
