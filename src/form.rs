//! `--format` of tables: for a terminal, a pull request or a workflow; and `--recursion` of stacks.

use uniprof_report::views::TableForm;

/// In which form a table is written.
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
    /// Calls that follow upon themselves are told once
    Folded,
    /// Every frame
    Whole,
}
