//! What fuzzing has found once stays survived: every input under found/, every file of corpus/bad,
//! and all seeds.

use std::path::Path;
use uniprof_fuzz_targets::TARGETS;

#[test]
fn found_inputs_are_survived() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("found");
    let mut count = 0;
    for target in TARGETS {
        let entries = std::fs::read_dir(folder.join(target.name));
        for entry in entries.into_iter().flatten().flatten() {
            println!("{} {}", target.name, entry.path().display());
            (target.run)(&std::fs::read(entry.path()).unwrap());
            count += 1;
        }
    }
    assert!(count >= 6, "only {count} inputs were found");
}

#[test]
fn bad_recordings_are_survived() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/bad");
    let reads_recordings = ["reader", "report"];
    let targets: Vec<_> = TARGETS
        .iter()
        .filter(|target| reads_recordings.contains(&target.name))
        .collect();
    assert_eq!(targets.len(), reads_recordings.len());
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "uprof")
        {
            let bytes = std::fs::read(&path).unwrap();
            println!("{}", path.display());
            targets.iter().for_each(|target| (target.run)(&bytes));
            count += 1;
        }
    }
    assert!(count >= 30, "only {count} files in {}", folder.display());
}

#[test]
fn every_target_has_something_to_begin_with_and_a_file_for_cargo_fuzz() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz_targets");
    let manifest = std::fs::read_to_string(folder.join("../Cargo.toml")).unwrap();
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seed", target.name);
        assert!(seeds.iter().any(|seed| !seed.is_empty()), "{}", target.name);
        let file = folder.join(format!("{}.rs", target.name));
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let call = format!("run(\"{}\", bytes)", target.name);
        assert!(
            text.contains(&call),
            "{} does not call {call}",
            file.display()
        );
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)));
    }
}

/// Among them names of functions, threads and guests that would be script, markup or escape sequences.
#[test]
fn seeds_are_survived() {
    for target in TARGETS {
        for (number, seed) in (target.seeds)().iter().enumerate() {
            println!("{} {number}", target.name);
            (target.run)(seed);
        }
    }
}
