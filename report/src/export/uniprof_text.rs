//! The text of the original C tool, byte for byte: a heading, then for each sample its frames,
//! innermost first, a count, and an empty line. stackcollapse.pl reads it.
//!
//! The count is 0 if a frame could not be read. A frame is `name+0xoffset`. At the very start of a function,
//! or if no name is known, it is the address; but an import's addresses are invented, so names stay.

use crate::export::Request;
use crate::profile::Profile;
use crate::profile::gather::Sampled;
use crate::profile::labels::LabelId;
use crate::recording::unit::Unit;
use crate::text::calendar::calendar;
use crate::text::hexadecimal::put_hexadecimal;
use std::io::{self, Write};
use uprof::Stop;
use uprof::cold::TargetKind;

/// Writes the text, sample by sample.
pub(crate) fn write(request: &Request<'_, '_>, out: &mut dyn Write) -> io::Result<Profile> {
    let mut options = request.placed();
    // The original tool has neither inlined functions nor demangled names.
    (options.inlines, options.demangle) = (false, false);
    let first = request.recordings.first();
    let id = first.map_or(0, |first| first.metadata().target.id);
    let started_ns = first
        .and_then(|first| first.start_realtime_ns())
        .unwrap_or(0);
    let started = calendar(started_ns);
    out.write_all(b"#unikernel stack tracer using libxencall hypercall interface\n")?;
    writeln!(out, "#tracing domid {id} on {started} UTC (+0000)\n")?;
    let mut result = Ok(());
    let mut take = |sampled: &Sampled, profile: &Profile| {
        if result.is_err() {
            return;
        }
        if sampled.unit != Unit::Samples {
            result = Err(io::Error::other(format!(
                "uniprof-text has no place for times, and this is {}; export it as folded",
                sampled.unit.what()
            )));
            return;
        }
        let mut lines = String::new();
        let target = &request.recordings[sampled.recording].metadata().target;
        let is_imported = target.kind == TargetKind::Imported;
        for label in profile.tree.outwards(sampled.node) {
            put_frame(&mut lines, profile, label, is_imported);
        }
        let whole = !matches!(sampled.stop, Stop::Unreadable | Stop::BadPointer);
        lines.push_str(if whole { "1\n\n" } else { "0\n\n" });
        result = out.write_all(lines.as_bytes());
    };
    let profile = request.gather(&options, Some(&mut take));
    result.map(|()| profile)
}

fn put_frame(lines: &mut String, profile: &Profile, id: LabelId, is_imported: bool) {
    let label = profile.labels.get(id);
    let has_name = !label.unknown && (is_imported || label.into_bytes != 0);
    let number = if has_name {
        label.into_bytes
    } else {
        label.offset.wrapping_add(u64::from(label.is_return))
    };
    if has_name {
        lines.push_str(profile.labels.name(id));
        lines.push('+');
    }
    lines.push_str("0x");
    put_hexadecimal(lines, number, 1);
    lines.push('\n');
}
