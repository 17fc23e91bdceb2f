//! `uniprof bundle`: makes a recording that needs no images, or one that holds no private data.

use crate::candidates::recordings;
#[cfg(feature = "record")]
use crate::elf::Elf;
use crate::images::{Images, place_given, tell_unused};
use crate::outcome::Outcome;
use crate::output::{keep, write_private};
use crate::selection::{inform, say};
#[cfg(feature = "record")]
use anyhow::Context;
use anyhow::bail;
use std::path::{Path, PathBuf};
#[cfg(feature = "record")]
use std::sync::Arc;
#[cfg(feature = "record")]
use uniprof_record::source::HeldImage;
use uniprof_report::bundle::{BundleSummary, bundle};
use uniprof_report::images::Library;
#[cfg(feature = "record")]
use uniprof_report::recording::Module;
use uniprof_report::recording::Recording;
#[cfg(feature = "record")]
use uprof::cold::Mapping;

/// Put what a report needs of the images into the recording
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The tables hold symbols, lines and unwind rules of the addresses that samples have, and of no
other. A bundle gives the same reports wherever it is opened; but of a function without call frame
information the caller may be missing where its image is not at hand.

--redact keeps times, addresses, numbers, build-ids, the processor's model, and of texts what a
report needs: of functions their names without folders, hosts and what is quoted or behind `=`
(`pkg.(*T).Run` of `host/team/pkg.(*T).Run`), of images and source files the last part of the path,
of threads 15 bytes, of system calls the name, of pieces of work the first word. It prints what it
removed and what it left; look before you send the file. format-spec.md, section 14, has it all.

Examples:
  uniprof bundle run.uprof                          with the images that are found here
  uniprof bundle run.uprof --elf app.debug -o bug.uprof
  uniprof bundle run.uprof --redact -o public.uprof")]
pub struct Args {
    /// The recording
    #[arg(value_name = "FILE", default_value = "run.uprof", add = recordings())]
    file: PathBuf,
    /// Where to write [default: the recording itself; with --redact FILE.redacted.uprof]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    images: Images,
    /// Unwind to frames, then take out memory, registers, folders, arguments, host and user names
    #[arg(long)]
    redact: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    let library = args.images.library()?;
    if args.redact {
        // Redaction in place loses the original for good.
        keep(&args.file);
    }
    let mut recording = Recording::open(&args.file)?;
    place_given(&mut recording, &library);
    tell_unused([&recording], &library);
    let output = match &args.output {
        Some(output) => output.clone(),
        None if args.file == Path::new("-") => bail!("say with -o where to write the bundle"),
        None if args.redact => redacted(&args.file),
        None => args.file.clone(),
    };
    // A recorder would go on writing to the file that the bundle replaces. A damaged recording has no bundle at all.
    let is_damaged = !recording.damages().is_none();
    if !is_damaged && recording.end().is_none() && are_the_same(&output, &args.file) {
        bail!(
            "cannot replace {} by its bundle: it has no end, so it is still being recorded, or was cut; name another \
             file with -o, or run `uniprof recover` on it first",
            args.file.display()
        );
    }
    let before_bytes = recording.sizes().file_bytes;
    let bundled = write(&recording, &library, args.redact, &output)?;
    report(&bundled);
    if let Ok(found) = std::fs::metadata(&output)
        && found.is_file()
    {
        inform(&format!(
            "{}: {} KiB, was {} KiB",
            output.display(),
            found.len().div_ceil(1024),
            before_bytes.div_ceil(1024),
        ));
    }
    let mut images = bundled.images.iter();
    let is_partial = images.any(|image| image.left_out_bytes > 0);
    Ok(Outcome::lossy_if(is_partial || !bundled.missing.is_empty()))
}

/// Where the redacted bundle of the recording at `path` goes by default.
fn redacted(path: &Path) -> PathBuf {
    let is_usual = path.extension().is_some_and(|ending| ending == "uprof");
    let mut name = if is_usual {
        path.with_extension("")
    } else {
        path.to_owned()
    };
    name.as_mut_os_string().push(".redacted.uprof");
    name
}

/// Whether two paths lead to the same file.
fn are_the_same(a: &Path, b: &Path) -> bool {
    let whole = |path: &Path| std::fs::canonicalize(path).ok();
    whole(a).is_some_and(|a| Some(a) == whole(b))
}

/// Embeds into the recording at `path` what it needs of the images that were mapped: the open ones in `held`, and
/// those found on this machine.
#[cfg(feature = "record")]
pub fn embed(path: &Path, elf: &[Elf], held: &[HeldImage]) -> anyhow::Result<BundleSummary> {
    let mut library = Library::default();
    for image in held {
        let module = Module::of(&Mapping {
            path: image.path.clone(),
            build_id: image.build_id.clone(),
            file: image.file,
            ..Mapping::default()
        });
        library.hold(module, Arc::clone(&image.opened));
    }
    for elf in elf {
        let added = library.add_image_at(&elf.path, elf.address);
        added.context("cannot use --elf")?;
    }
    let mut recording = Recording::open(path)?;
    place_given(&mut recording, &library);
    tell_unused([&recording], &library);
    write(&recording, &library, false, path)
}

fn write(
    recording: &Recording,
    library: &Library,
    redact: bool,
    output: &Path,
) -> anyhow::Result<BundleSummary> {
    write_private(output, |out| {
        bundle(recording, library, redact, out).map_err(std::io::Error::other)
    })
}

fn report(bundled: &BundleSummary) {
    for warning in &bundled.warnings {
        say(&format!("warning: {warning}"));
    }
    for image in &bundled.images {
        inform(&format!(
            "{}: {} functions, {} addresses with lines, {} unwind rules, {} KiB",
            image.path,
            image.symbols,
            image.lines,
            image.rules,
            image.size_bytes.div_ceil(1024),
        ));
    }
    for path in &bundled.missing {
        say(&format!("no image: {path}; give it with --elf"));
    }
    for (title, lines) in [("removed", &bundled.removed), ("left", &bundled.left)] {
        for line in lines {
            inform(&format!("{title}: {line}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_recording_has_a_redacted_bundle_of_its_own() {
        for (file, bundle) in [
            ("a/run.uprof", "a/run.redacted.uprof"),
            ("web.1", "web.1.redacted.uprof"),
            ("web.2", "web.2.redacted.uprof"),
        ] {
            assert_eq!(redacted(Path::new(file)), Path::new(bundle));
        }
    }
}
