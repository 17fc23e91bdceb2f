//! Compares the unwinder with framehop on corpus/: both unwind the raw stacks of real recordings. Every
//! difference must be of a sort that is explained here.

mod stops;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use stops::oracle::Oracle;
use uniprof_report::images::Image;
use uniprof_report::recording::Recording;
use uniprof_report::unwind::{Cache, Module, Options, Stack, UnwindRules, Unwinder};
use uprof::{Arch, Frame, Row, Stop};

/// Why framehop's frames may differ; `None` if the difference is not explained.
fn explain(ours: &[Frame], stop: Stop, theirs: &[u64], theirs_ended: bool) -> Option<&'static str> {
    let same = ours
        .iter()
        .zip(theirs)
        .take_while(|(ours, theirs)| ours.address == **theirs)
        .count();
    if same == ours.len() && same == theirs.len() {
        return None;
    }
    Some(match (same == ours.len(), same == theirs.len()) {
        (true, false) if stop == Stop::Complete => "it goes on above our root by frame pointer",
        // The frame is in an image that isn't in corpus/, such as the dynamic linker.
        (true, false) if stop == Stop::BadPointer => {
            "without a rule or a frame pointer it takes the top of the stack for a return address"
        }
        (true, false) => "UNEXPLAINED",
        (false, true) if !theirs_ended => "it gives up where we go on",
        (false, true) => "it takes a frame for the root that isn't",
        _ => "UNEXPLAINED",
    })
}

fn modules(recording: &Recording, row: &Row<'_>, images: &Path) -> Vec<Module> {
    let mut modules = Vec::new();
    for region in recording.spaces().regions_at(row.task.space, row.time_ns) {
        let known = &recording.spaces().modules()[region.module as usize];
        let is_it = |image: &Image| image.build_id().is_some_and(|id| id.0 == known.build_id);
        let files = std::fs::read_dir(images).unwrap().flatten();
        let mut images = files.filter_map(|file| Image::open(&file.path()).ok());
        let Some(image) = images.find(is_it) else {
            continue;
        };
        let image = Arc::new(image);
        let Some(bias) = image
            .segments()
            .bias_of_mapping(region.start, region.file_offset)
        else {
            continue;
        };
        modules.push(Module {
            start: region.start,
            end: region.end,
            bias,
            rules: Arc::new(UnwindRules::of(&image, None)),
            image: Some(image),
        });
    }
    modules
}

#[test]
fn every_difference_from_framehop_over_the_corpus_is_explained() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    for name in ["calls-stack.uprof", "pack-stack.uprof"] {
        let recording = Recording::open(&corpus.join(name)).unwrap();
        let mut unwinders: BTreeMap<u32, (u32, Unwinder, Oracle)> = BTreeMap::new();
        let mut cache = Cache::new();
        let mut differences: BTreeMap<&str, (u64, String)> = BTreeMap::new();
        let (mut stacks, mut frames_count) = (0u64, 0);
        for place in recording.blocks() {
            let block = recording.samples(place).unwrap();
            let mut rows = block.rows();
            while let Some(row) = rows.next_row().unwrap() {
                let (Some(registers), Some(stack)) = (row.registers, row.stack) else {
                    continue;
                };
                let epoch = recording.spaces().epoch(row.task.space, row.time_ns);
                if unwinders
                    .get(&row.task.space)
                    .is_none_or(|(known, ..)| *known != epoch)
                {
                    let modules = modules(&recording, &row, &corpus.join("images"));
                    let oracle = Oracle::new(&modules);
                    let unwinder = Unwinder::new(Arch::X86_64, modules);
                    unwinders.insert(row.task.space, (epoch, unwinder, oracle));
                }
                let (_, unwinder, oracle) = unwinders.get_mut(&row.task.space).unwrap();
                let memory = Stack {
                    base: stack.address,
                    bytes: stack.bytes,
                };
                let (mut ours, mut theirs) = (Vec::new(), Vec::new());
                let options = Options::default();
                let stop = unwinder.unwind(&mut cache, registers, &memory, options, &mut ours);
                let ended = oracle.unwind(registers, &memory, &mut theirs);
                stacks += 1;
                frames_count += ours.len();
                if let Some(reason) = explain(&ours, stop, &theirs, ended) {
                    let addresses: Vec<u64> = ours.iter().map(|frame| frame.address).collect();
                    let first = format!("ours {addresses:x?} {}, theirs {theirs:x?}", stop.name());
                    differences.entry(reason).or_insert((0, first)).0 += 1;
                }
            }
        }
        println!("{name}: {stacks} stacks, {frames_count} frames");
        for (reason, (count, first)) in &differences {
            println!("    {count} times {reason}; first: {first}");
        }
        assert!(stacks > 0, "{name} has no raw stacks");
        assert!(
            !differences.contains_key("UNEXPLAINED"),
            "{name}: {differences:#x?}"
        );
    }
}
