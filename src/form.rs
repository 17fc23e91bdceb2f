//! The flags `--format` of tables and `--recursion` of stacks.

use uniprof_report::views::TableForm;

/// The form of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum FormFlag {
    /// For a terminal
    Text,
    /// A table in Markdown, for a pull request
    Markdown,
    /// Annotations for a workflow of GitHub Actions
    Github,
}

impl From<FormFlag> for TableForm {
    fn from(flag: FormFlag) -> Self {
        match flag {
            FormFlag::Text => TableForm::Text,
            FormFlag::Markdown => TableForm::Markdown,
            FormFlag::Github => TableForm::Github,
        }
    }
}

/// How recursion is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RecursionFlag {
    /// A repeated chain of calls is shown once
    Folded,
    /// Every frame
    Whole,
}
