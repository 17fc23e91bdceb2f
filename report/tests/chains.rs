//! The part of a recorded chain of frame pointers that is a stack: words after a frame pointer that was data
//! are not.

mod exported;
mod listing;

use exported::exported;
use listing::{corpus, made_of};
use object::{Object, ObjectSymbol};
use uniprof_report::bundle::bundle;
use uniprof_report::images::Library;
use uniprof_report::profile::{Options, gather};
use uniprof_report::recording::Recording;
use uprof::Stop;
use uprof::cold::TargetKind;

/// The only stack of `recording`, outermost function first, without names of images.
fn stack(recording: &Recording, library: &Library) -> Vec<String> {
    let out = exported("folded", &[recording], library, &Options::default()).unwrap();
    let text = String::from_utf8(out).unwrap();
    let (stack, count) = text.trim().rsplit_once(' ').unwrap();
    assert_eq!(count, "1", "{text}");
    stack.split(';').map(str::to_owned).collect()
}

#[test]
fn a_pointer_to_a_function_is_no_caller() {
    let path = corpus("images/calls");
    let bytes = std::fs::read(&path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let id = file.build_id().unwrap().unwrap();
    let address = |name: &str| file.symbol_by_name(name).unwrap().address();
    let mut library = Library::default();
    library.only_given = true;
    library.add_image(&path).unwrap();
    let mut nothing = Library::default();
    nothing.only_given = true;
    // In a guest, frame pointers lead through interrupts to the interrupted code. In a process, they lead
    // through calls only.
    let interrupted = address("deep") + 1;
    let cases = [
        (TargetKind::Process, address("frame_dummy"), false),
        (TargetKind::Process, interrupted, false),
        (TargetKind::GdbStub, address("frame_dummy"), false),
        (TargetKind::GdbStub, interrupted, true),
    ];
    for (kind, last, is_frame) in cases {
        // The call in `often` is at byte 14.
        let call = address("often") + 14;
        let chain = [address("steps") + 4, call, last, call];
        let recording = made_of(kind, id, &[], &[&chain]);
        let mut bundled = Vec::new();
        bundle(&recording, &library, false, &mut bundled).unwrap();
        let bundled = Recording::from_bytes("bundled.uprof", bundled).unwrap();
        let expected: &[&str] = match is_frame {
            true => &["often", "deep", "often", "steps"],
            false => &["often", "steps"],
        };
        assert_eq!(stack(&recording, &library), expected, "{kind:?} {last:#x}");
        assert_eq!(
            stack(&bundled, &nothing),
            expected,
            "{kind:?} {last:#x}, bundled"
        );
    }
}

/// LK's threads have such stacks, whose last words are old memory.
#[test]
fn a_guests_thread_that_a_return_entered_has_a_whole_stack() {
    let nowhere = 0x9999_9999_0000_0000;
    let ends = |kind, stack: &[u64]| {
        let recording = made_of(kind, &[], &[], &[stack]);
        let (library, options) = (Library::default(), Options::default());
        let mut found = Vec::new();
        let mut each = |sampled: &uniprof_report::profile::Sampled,
                        profile: &uniprof_report::profile::Profile| {
            found.push((sampled.stop, profile.tree.outwards(sampled.node).count()));
        };
        let recordings = [&recording];
        gather(&recordings, &library, &options, &|_, _| {}, Some(&mut each));
        found[0]
    };
    let stack = [0x10, 0x20, nowhere];
    assert_eq!(ends(TargetKind::GdbStub, &stack), (Stop::Complete, 2));
    assert_eq!(ends(TargetKind::Process, &stack), (Stop::BadPointer, 2));
    // A single frame pointer may have any value.
    assert_eq!(
        ends(TargetKind::Agent, &[0x10, nowhere]),
        (Stop::BadPointer, 1)
    );
}
