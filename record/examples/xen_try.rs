//! Temporary.
use std::sync::Arc;
use std::time::Duration;
use uniprof_record::xen::{image::Image, source, target};
use uniprof_record::{Plan, Progress};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let plan = Plan {
        rate_hz: args[2].parse().unwrap(),
        duration: Some(Duration::from_secs_f64(args[3].parse().unwrap())),
        budget: Duration::from_millis(args[4].parse().unwrap()),
        ip_only: args.len() > 6,
        ..Plan::default()
    };
    let found = match target::find(&args[1]) {
        Ok(f) => f,
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(2)
        }
    };
    eprintln!(
        "iface {:#x} stored {:?} name {}",
        found.xen.interface_version, found.stored, found.name
    );
    let image = found
        .stored
        .as_ref()
        .and_then(|s| s.kernel.as_ref())
        .and_then(|k| Image::open(k).ok());
    let source = match source::open(found, image, &plan) {
        Ok(f) => f,
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(2)
        }
    };
    for w in &source.hot.facts().warnings {
        eprintln!("{w}");
    }
    let out = std::fs::File::create(&args[5]).unwrap();
    let summary =
        uniprof_record::record(source, out, &plan, Arc::new(Progress::default())).unwrap();
    eprintln!(
        "{} samples {} bytes cost p50 {} p99 {} max {} lost {:?} end {}",
        summary.samples,
        summary.bytes,
        summary.cost.percentile_ns(0.5),
        summary.cost.percentile_ns(0.99),
        summary.cost.most_ns(),
        summary.lost,
        summary.ending
    );
}
