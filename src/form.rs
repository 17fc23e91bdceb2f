//! `--format` of tables: for a terminal, a pull request or a workflow; and `--recursion` of stacks.

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

/// How recursion is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RecursionFlag {
    /// Calls that follow upon themselves are told once
    Folded,
    /// Every frame
    Whole,
}
