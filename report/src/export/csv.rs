//! Functions and their samples, or nanoseconds, as comma-separated values (RFC 4180, with a header line).

use crate::export::Request;
use crate::profile::Profile;
use crate::profile::functions::rows;
use crate::recording::unit::Unit;
use std::io::{self, Write};

/// Writes a line for each function, in the order of `--top`; what was inlined of it elsewhere has a line of its own.
pub(crate) fn write(request: &Request<'_, '_>, out: &mut dyn Write) -> io::Result<Profile> {
    let profile = request.gather(request.options, None);
    let unit = match profile.unit() {
        Unit::Samples => "",
        Unit::Sampled | Unit::OffCpu | Unit::Calls | Unit::VcpuTime => "_ns",
    };
    let head = format!("function,module,self{unit},total{unit},self_share,total_share,inlined");
    write!(out, "{head}\r\n")?;
    let whole = profile.account.counted.max(1) as f64;
    for row in rows(&profile) {
        let labels = &profile.labels;
        let label = labels.get(row.label);
        let name = field(labels.name(row.label));
        let module = field(labels.text(label.module));
        let (own, total) = (row.own as f64 / whole, row.total as f64 / whole);
        let counts = format!("{},{},{own:.6},{total:.6}", row.own, row.total);
        write!(out, "{name},{module},{counts},{}\r\n", label.inlined)?;
    }
    Ok(profile)
}

fn field(text: &str) -> String {
    // A spreadsheet would evaluate these as a formula.
    let is_formula = text.starts_with(['=', '+', '-', '@']);
    let guarded = if is_formula {
        format!("'{text}")
    } else {
        text.to_owned()
    };
    if guarded.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", guarded.replace('"', "\"\""))
    } else {
        guarded
    }
}
