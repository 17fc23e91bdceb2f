//! Span blocks (format-spec.md, section 15): calls of a trace, as columns. `writer` gathers [`Span`]s, `reader` decodes
//! them.

mod span;
mod writer;
mod reader;

pub use reader::{SpanBlock, SpanRows};
pub use span::{Span, SpanColumn, SpanKind, SpanRow};
pub(crate) use writer::SpanBuilder;
