//! The first command in the README writes the files that it promises.

#[test]
fn a_recording_a_picture_and_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let output = kit::uniprof()
        .arg("demo")
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // On a busy machine samples may be lost, which is status 1.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    // On an idle machine it has nothing to say against itself.
    let is_whole = output.status.success();
    assert!(
        !said.contains("SIGTERM") && !said.contains("namespaces"),
        "{said}"
    );
    assert!(!is_whole || !said.contains("warning"), "{said}");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("uniprof::workload::hash"), "{table}");
    let picture = std::fs::read_to_string(folder.path().join("demo.svg")).unwrap();
    for function in ["serve", "parse", "hash", "walk_tree", "compress"] {
        let name = format!("uniprof::workload::{function}");
        assert!(picture.contains(&name), "no {name} in the flame graph");
    }
    assert!(folder.path().join("demo.uprof").exists());
    for next in ["--tree", "info demo.uprof", "export demo.uprof"] {
        assert!(said.contains(next), "no {next} in {said}");
    }
}
