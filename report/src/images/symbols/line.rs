//! One function at an address: its name, file and lines, if known.

/// What is known of one function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The linker's name, or the name with its path if there is none; `None` if only the line is known.
    pub function: Option<String>,
    /// Source file.
    pub file: Option<String>,
    /// Line in it, from 1; 0 if unknown.
    pub line: u32,
    /// Line on which the function is declared, from 1; 0 if unknown or not asked for.
    pub start_line: u32,
    /// Which of several parts of the line, as the compiler numbered them (DWARF 5, 6.2.2); 0 if there is one, or not
    /// asked for.
    pub discriminator: u32,
}

/// Whether the first line of some function isn't known.
pub(crate) fn has_undeclared(lines: &[Line]) -> bool {
    lines.iter().any(|line| line.start_line == 0)
}

/// Copies the first lines and the parts of lines from `known`, functions of the same address, to `lines`.
pub(crate) fn declare(lines: &mut [Line], known: &[Line]) {
    for line in lines.iter_mut().filter(|line| line.start_line == 0) {
        let mut same = known.iter().filter(|one| one.function == line.function);
        if let Some(one) = same.next() {
            line.start_line = one.start_line;
            if one.line == line.line {
                line.discriminator = one.discriminator;
            }
        }
    }
}
