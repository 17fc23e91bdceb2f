//! One function at an address: its name, its file and its lines, as far as they are known.

/// What is known of one function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// As the linker would write it, or its name with its path where no linker has seen it; `None`
    /// if only the line is known.
    pub function: Option<String>,
    /// Source file.
    pub file: Option<String>,
    /// Line in it, from 1; 0 if unknown.
    pub line: u32,
    /// Line on which the function is declared, from 1; 0 if unknown or not asked for.
    pub start_line: u32,
}

/// Whether it isn't known of all functions where they begin.
pub(crate) fn has_undeclared(lines: &[Line]) -> bool {
    lines.iter().any(|line| line.start_line == 0)
}

/// Takes from `known`, functions of the same address, where those of `lines` begin.
pub(crate) fn declare(lines: &mut [Line], known: &[Line]) {
    for line in lines.iter_mut().filter(|line| line.start_line == 0) {
        let mut same = known.iter().filter(|one| one.function == line.function);
        line.start_line = same.next().map_or(0, |one| one.start_line);
    }
}
