//! Flags for the display of texts: width, colours, pager.

use crate::output::write_to_stdout;
use crate::pager::{self, Paged};
use crate::terminal;
use anyhow::Context;
use std::io::{self, BufWriter, Write};
use uniprof_report::text::Screen;

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorFlag {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

/// How texts are displayed.
#[derive(Debug, clap::Args)]
pub struct Showing {
    /// Columns of tables, 0 for whole names (default: those of the terminal; whole names where there is none)
    #[arg(long, value_name = "N", help_heading = "Form")]
    width: Option<usize>,
    /// Colours by weight: red from 5 %, green from 0.5 %
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "Form"
    )]
    color: ColorFlag,
    /// No pager for what is longer than the screen ($UNIPROF_PAGER, $PAGER, less)
    #[arg(long, help_heading = "Form")]
    no_pager: bool,
}

impl Showing {
    /// The screen that the text is written to.
    pub fn screen(&self) -> Screen {
        let columns = match self.width {
            None => terminal::columns(),
            Some(0) => None,
            Some(columns) => Some(columns),
        };
        Screen {
            columns,
            colors: match self.color {
                ColorFlag::Auto => terminal::has_colors(),
                ColorFlag::Always => true,
                ColorFlag::Never => false,
            },
        }
    }

    /// Runs `write` on standard output, through a pager if that is a terminal and the text is longer.
    pub fn write(
        &self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let rows = terminal::rows().filter(|_| !self.no_pager);
        let Some((rows, command)) = rows.zip(pager::chosen()) else {
            return write_to_stdout(write);
        };
        let mut out = BufWriter::new(Paged::new(command, rows));
        let written = write(&mut out);
        let finished = match out.into_inner() {
            Ok(paged) => paged.finish(),
            Err(error) => Err(error.into_error()),
        };
        written
            .and(finished)
            .context("cannot write to standard output")
    }
}
