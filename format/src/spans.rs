//! Span blocks (format-spec.md, section 15): calls of a trace, as columns. `writer` gathers [`Span`]s, `reader` takes
//! them apart as [`SpanRow`]s.

mod span;
mod writer;
mod reader;

pub use reader::{SpanBlock, SpanRow, SpanRows};
pub use span::{Span, SpanColumn, SpanKind};
pub(crate) use writer::SpanBuilder;
