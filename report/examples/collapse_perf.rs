//! What `inferno-collapse-perf` does, as a filter: the peer in benches/report.py.

use inferno::collapse::Collapse;
use inferno::collapse::perf::Folder;
use std::io;

fn main() -> io::Result<()> {
    Folder::default().collapse(io::stdin().lock(), io::stdout().lock())
}
