//! Recorded chains that pass through a frame pointer that was data. A word that is not a return address ends
//! the chain, with a reason that says so.

mod made;

use made::{Made, open, recording};
use uniprof_report::images::Library;
use uniprof_report::profile::{Options, gather};
use uprof::{State, Stop};

#[test]
fn a_caller_outside_all_code_ends_a_chain() {
    let made = |at_ms, stack| Made {
        at_ms,
        thread: 7,
        state: State::Running,
        stack,
    };
    // Function 50 is in no mapping. As innermost frame it was executed; as a caller it is impossible.
    let samples = [
        made(0, &[1, 0][..]),
        made(1, &[1, 50, 0]),
        made(2, &[50, 0]),
    ];
    let recording = open(recording(&["main", "parse"], &[], &samples));
    let library = Library::default();
    let mut stops = Vec::new();
    let mut each = |sampled: &uniprof_report::profile::Sampled,
                    profile: &uniprof_report::profile::Profile| {
        let depth = profile.tree.outwards(sampled.node).count();
        stops.push((sampled.stop, depth));
    };
    gather(
        &[&recording],
        &library,
        &Options::default(),
        &|_, _| {},
        Some(&mut each),
    );
    let whole = (Stop::Complete, 2);
    assert_eq!(stops, [whole, (Stop::BadPointer, 1), whole]);
}
