//! `--format` of tables: for a terminal, a pull request or a workflow.

/// In which form a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// For a terminal
    Text,
    /// A table in Markdown, for a pull request
    Markdown,
    /// Annotations for a workflow of GitHub Actions
    Github,
}
