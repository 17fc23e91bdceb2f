//! `uniprof man`: manual pages, generated from the same text as `--help`.

use crate::outcome::Outcome;
use crate::output::write_to;
use crate::status;
use std::path::{Path, PathBuf};

/// Write manual pages, one for each subcommand.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  uniprof man /usr/local/share/man/man1")]
pub struct Args {
    /// The folder for them, which must be there
    folder: PathBuf,
}

/// Writes the pages.
pub fn run(args: Args, command: clap::Command) -> anyhow::Result<Outcome> {
    let folder = args.folder.display().to_string();
    anyhow::ensure!(
        args.folder.is_dir(),
        "cannot write manual pages: there is no folder {folder}; create it first"
    );
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write(command, &args.folder)?;
    Ok(Outcome::Done)
}

/// Writes one page. It replaces an existing file; a link is not followed.
fn write(command: clap::Command, folder: &Path) -> anyhow::Result<()> {
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        write(below.clone(), folder)?;
    }
    let meanings = status::meanings(command.get_name());
    let page = clap_mangen::Man::new(command);
    write_to(&folder.join(page.get_filename()), |out| {
        page.render(&mut &mut *out)?;
        writeln!(out, ".SH \"EXIT STATUS\"")?;
        for (status, meaning) in &meanings {
            writeln!(
                out,
                ".TP\n\\fB{status}\\fR\n{}",
                meaning.replace('-', "\\-")
            )?;
        }
        Ok(())
    })
}
