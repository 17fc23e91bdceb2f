//! placeholder
use super::Process;
use crate::session::Plan;
use crate::source::{Source, SourceError};

/// placeholder
pub fn open(_: Process, _: &Plan, warnings: Vec<String>) -> Result<Source, SourceError> {
    Err(SourceError(warnings.join("; ")))
}
