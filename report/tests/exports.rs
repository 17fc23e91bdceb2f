//! Every export is read by the program that it is for, if that can run here. Its numbers must equal those of
//! the table of functions.

mod exported;
mod made;

use exported::exported;
use made::{open, small};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use uniprof_report::export::FORMATS;
use uniprof_report::images::Library;
use uniprof_report::import::{IMPORTS, import};
use uniprof_report::profile::{NodeId, Options, Profile, gather};
use uniprof_report::recording::Recording;
use uprof::Stop;

/// A library with only the images of the corpus.
fn library() -> Library {
    let mut library = Library::default();
    library.only_given = true;
    let images = corpus("images");
    for entry in std::fs::read_dir(images).unwrap() {
        library.add_image(&entry.unwrap().path()).unwrap();
    }
    library
}

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../corpus")
        .join(name)
}

/// A synthetic recording, and real ones with their images.
fn recordings() -> Vec<Recording> {
    let mut all = vec![open(small())];
    for name in ["calls.uprof", "calls-stack.uprof", "pack-stack.uprof"] {
        all.push(Recording::open(&corpus(name)).unwrap());
    }
    all
}

fn export(name: &str, recordings: &[&Recording], options: &Options) -> Vec<u8> {
    exported(name, recordings, &library(), options).unwrap()
}

/// Self and total samples by function name.
fn truth(recording: &Recording) -> BTreeMap<String, (u64, u64)> {
    let profile: Profile = gather(
        &[recording],
        &library(),
        &Options::default(),
        &|_, _| {},
        None,
    );
    let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (number, node) in profile.tree.nodes().iter().enumerate() {
        if node.count == 0 {
            continue;
        }
        // Images may have functions with the same name.
        let path = profile.tree.outwards(number as NodeId);
        let names: Vec<&str> = path.map(|label| profile.labels.name(label)).collect();
        counts.entry(names[0].to_owned()).or_default().0 += node.count;
        for name in BTreeSet::from_iter(names) {
            counts.entry(name.to_owned()).or_default().1 += node.count;
        }
    }
    counts
}

/// Self and total samples by function name, from stacks with outermost frames first.
fn count(stacks: &[(Vec<String>, u64)]) -> BTreeMap<String, (u64, u64)> {
    let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (stack, samples) in stacks {
        let mut seen: Vec<&String> = stack.iter().collect();
        seen.sort();
        seen.dedup();
        for name in seen {
            counts.entry(name.clone()).or_default().1 += samples;
        }
        counts.get_mut(stack.last().unwrap()).unwrap().0 += samples;
    }
    counts
}

/// The output of `go tool pprof` for an export, with these flags; `None` if this machine has no go.
fn pprof(recording: &Recording, flags: &[&str]) -> Option<String> {
    if Command::new("go").arg("version").output().is_err() {
        println!("skipped: no go here to run `go tool pprof` (Debian's golang-go has it)");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.pb.gz");
    std::fs::write(&path, export("pprof", &[recording], &Options::default())).unwrap();
    let mut go = Command::new("go");
    go.args(["tool", "pprof"]).args(flags);
    let output = go.arg(&path).env("HOME", folder.path()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    Some(text)
}

#[test]
fn pprof_takes_the_program_for_the_main_binary() {
    for (name, program) in [
        ("calls.uprof", "calls"),
        ("calls-stack.uprof", "calls"),
        ("pack-stack.uprof", "pack"),
    ] {
        let recording = Recording::open(&corpus(name)).unwrap();
        let Some(text) = pprof(&recording, &["-symbolize=none", "-top"]) else {
            return;
        };
        assert_eq!(
            text.lines().next(),
            Some(&*format!("File: {program}")),
            "{name}"
        );
    }
}

#[test]
fn pprof_is_told_on_which_lines_functions_begin() {
    let source = std::fs::read_to_string(corpus("calls.c")).unwrap();
    let source: Vec<&str> = source.lines().collect();
    let recording = Recording::open(&corpus("calls.uprof")).unwrap();
    let Some(text) = pprof(&recording, &["-symbolize=none", "-raw"]) else {
        return;
    };
    let place = regex::Regex::new(r"(\w+) \S*calls\.c:(\d+)(?::\d+)? s=(\d+)").unwrap();
    let mut found = 0;
    for place in place.captures_iter(&text) {
        let (line, start): (usize, usize) = (place[2].parse().unwrap(), place[3].parse().unwrap());
        let declared = source[start.checked_sub(1).expect(&place[0])];
        assert!(
            declared.contains(&format!("{}(", &place[1])),
            "{}: {declared}",
            &place[0]
        );
        assert!(start <= line, "{}", &place[0]);
        found += 1;
    }
    assert!(found >= 3, "{text}");
}

/// A quotation mark in the name of a thread or image used to break the text that pprof passes to Graphviz.
#[test]
fn pprof_draws_names_with_quotation_marks() {
    let script = "wo\"rk\\er 7/7 1.000000: 1 cycles: \n\t401000 operator\"\"_km+0x1 (/tmp/a\"b\\c)\n\
                  \t401100 <T as \"C\">::f\\+0x1 (/tmp/a\"b\\c)\n\n";
    let format = IMPORTS
        .iter()
        .find(|format| format.name == "perf-script")
        .unwrap();
    let mut bytes = Vec::new();
    import(format, "in", [1; 16], &mut script.as_bytes(), &mut bytes).unwrap();
    let recording = open(bytes);
    let Some(text) = pprof(&recording, &["-dot"]) else {
        return;
    };
    let escaped = regex::Regex::new(r"\\.").unwrap();
    for line in text.lines() {
        let quotes = escaped.replace_all(line, "").matches('"').count();
        assert!(quotes.is_multiple_of(2), "{line}");
    }
    let text = text.replace("\\n", "");
    let parts = [
        r#"operator\"\"_km"#,
        r#"<T as \"C\">"#,
        "thread:wo'rk_er",
        "File: a'b_c",
    ];
    for part in parts {
        assert!(text.contains(part), "no {part}: {text}");
    }
    if Command::new("dot").arg("-V").output().is_err() {
        println!("skipped: no dot here to draw what pprof exports (Debian's graphviz has it)");
        return;
    }
    let picture = pprof(&recording, &["-svg", "-output", "/dev/stdout"]).unwrap();
    assert!(picture.contains("</svg>"), "{picture}");
}

#[test]
fn go_tool_pprof_counts_as_we_do() {
    let run = |recording: &Recording, flags: &[&str]| {
        let flags = [&["-symbolize=none"], flags].concat();
        pprof(recording, &flags)
    };
    for recording in recordings() {
        let top = run(
            &recording,
            &["-top", "-nodecount=100000", "-nodefraction=0"],
        );
        let Some(top) = top else { return };
        let mut found = BTreeMap::new();
        for line in top
            .lines()
            .skip_while(|line| !line.contains("flat%"))
            .skip(1)
        {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let number = |field: &str| field.parse::<u64>().unwrap();
            // pprof marks inlined functions everywhere; the table of functions does so in another column.
            let name = fields[5..]
                .join(" ")
                .replace(" (inline)", "")
                .replace(" (partial-inline)", "");
            let count: &mut (u64, u64) = found.entry(name).or_default();
            count.0 += number(fields[0]);
            count.1 += number(fields[3]);
        }
        assert_eq!(found, truth(&recording), "{}: {top}", recording.name());
    }
    let traces = run(&open(small()), &["-traces"]).unwrap();
    assert!(traces.contains("worker-8"), "{traces}");
    let deep: Vec<&str> = traces.lines().map(str::trim).collect();
    let stack = ["1   copy", "sys_read", "parse", "main"];
    assert!(deep.windows(4).any(|lines| lines == stack), "{traces}");
}

#[test]
fn inferno_collapses_perf_script_to_our_folded_stacks() {
    use inferno::collapse::Collapse;
    for recording in recordings() {
        let text = export("perf-script", &[&recording], &Options::default());
        let mut folder = inferno::collapse::perf::Folder::default();
        let mut out = Vec::new();
        folder.collapse(&text[..], &mut out).unwrap();
        let options = Options {
            by_task: true,
            ..Options::default()
        };
        let folded = export("folded", &[&recording], &options);
        let (theirs, ours) = (stacks(&out), stacks(&folded));
        assert_eq!(theirs, ours, "{}", recording.name());
        assert!(ours.values().sum::<u64>() >= 7);
    }
}

/// The stacks of folded lines. For code without a name, perf has only the name of the image.
fn stacks(folded: &[u8]) -> BTreeMap<String, u64> {
    let unknown = regex::Regex::new(r"([^;]+)\+0x[0-9a-f]+(;|$)").unwrap();
    let nowhere = regex::Regex::new(r"(^|;)0x[0-9a-f]+").unwrap();
    let mut stacks = BTreeMap::new();
    for line in std::str::from_utf8(folded).unwrap().lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        // perf doesn't allow spaces in a thread's name, which comes first.
        let (thread, stack) = stack.split_once(';').unwrap();
        let stack = format!("{};{stack}", thread.replace(' ', "_"));
        let stack = unknown.replace_all(&stack, "[$1]$2");
        let stack = nowhere.replace_all(&stack, "$1[unknown]");
        *stacks.entry(stack.into_owned()).or_default() += count.parse::<u64>().unwrap();
    }
    stacks
}

/// The stacks of folded lines, with all addresses made equal.
fn addresses(folded: &[u8]) -> BTreeMap<String, u64> {
    let address = regex::Regex::new(r"(^|;)([^;]+\+)?0x[0-9a-f]+").unwrap();
    let mut stacks = BTreeMap::new();
    for line in std::str::from_utf8(folded).unwrap().lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let stack = address.replace_all(stack, "${1}0x");
        *stacks.entry(stack.into_owned()).or_default() += count.parse::<u64>().unwrap();
    }
    stacks
}

/// The fields that speedscope's published schema (file-format-schema.json) allows in a sampled profile.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Speedscope {
    #[serde(rename = "$schema")]
    schema: String,
    exporter: String,
    #[allow(dead_code)]
    name: String,
    shared: Shared,
    profiles: Vec<Sampled>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    frames: Vec<SpeedscopeFrame>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct SpeedscopeFrame {
    name: String,
    file: Option<String>,
    line: Option<u32>,
    col: Option<u32>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Sampled {
    r#type: String,
    name: String,
    unit: String,
    start_value: u64,
    end_value: u64,
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

#[test]
fn speedscope_fits_its_schema_and_counts_as_we_do() {
    for recording in recordings() {
        check_speedscope(&recording);
    }
}

fn check_speedscope(recording: &Recording) {
    let text = export("speedscope", &[recording], &Options::default());
    let read: Speedscope = serde_json::from_slice(&text).unwrap();
    assert!(read.schema.ends_with("file-format-schema.json"));
    assert!(read.exporter.starts_with("uniprof "));
    let mut stacks = Vec::new();
    for profile in &read.profiles {
        assert_eq!(
            (profile.r#type.as_str(), profile.unit.as_str()),
            ("sampled", "none")
        );
        assert!(!profile.name.is_empty());
        assert_eq!(profile.samples.len(), profile.weights.len());
        assert_eq!(
            profile.end_value - profile.start_value,
            profile.weights.iter().sum::<u64>()
        );
        for (sample, weight) in profile.samples.iter().zip(&profile.weights) {
            let frames = sample
                .iter()
                .map(|frame| read.shared.frames[*frame].name.clone());
            stacks.push((frames.collect(), *weight));
        }
    }
    assert_eq!(count(&stacks), truth(recording));
}

/// Follows the tables of a processed profile as the Firefox profiler does: from sample to stack with its
/// prefix, to frame, to function, to name.
#[test]
fn firefox_profile_tables_lead_to_our_counts() {
    for recording in recordings() {
        check_firefox(&recording);
    }
}

fn check_firefox(recording: &Recording) {
    let text = export("firefox", &[recording], &Options::default());
    let read: Value = serde_json::from_slice(&text).unwrap();
    let threads = read["threads"].as_array().unwrap();
    let categories = &read["meta"]["categories"];
    assert!(
        categories
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["name"] == "Kernel")
    );
    let mut stacks = Vec::new();
    for thread in threads {
        let at = |table: &str, column: &str, row: u64| thread[table][column][row as usize].clone();
        let samples = &thread["samples"];
        let ran = samples["threadCPUDelta"].as_array().unwrap();
        let ran_us = ran.iter().map(|delta| delta.as_u64().unwrap());
        assert!(ran_us.sum::<u64>() > 0, "a thread that never ran is hidden");
        for stack in samples["stack"].as_array().unwrap() {
            let mut frames = Vec::new();
            let mut next = stack.as_u64();
            while let Some(stack) = next {
                let frame = at("stackTable", "frame", stack).as_u64().unwrap();
                let func = at("frameTable", "func", frame).as_u64().unwrap();
                let name = at("funcTable", "name", func).as_u64().unwrap() as usize;
                let strings = match &thread["stringArray"] {
                    Value::Array(_) => &thread["stringArray"],
                    _ => &read["shared"]["stringArray"],
                };
                frames.push(strings[name].as_str().unwrap().to_owned());
                next = at("stackTable", "prefix", stack).as_u64();
            }
            frames.reverse();
            stacks.push((frames, 1));
        }
    }
    assert_eq!(count(&stacks), truth(recording));
}

#[test]
fn the_original_text_is_byte_for_byte() {
    let recording = open(small());
    let mut options = Options::default();
    options.filter.to_ns = Some(2_000_000);
    let text = export("uniprof-text", &[&recording], &options);
    let expected = "#unikernel stack tracer using libxencall hypercall interface\n\
        #tracing domid 7 on 2017-07-11 09:12:44 UTC (+0000)\n\n\
        parse+0x10\nmain+0x10\n1\n\nparse+0x10\nmain+0x10\n1\n\n";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

/// Removes innermost frames, because the original tool has an address at the very start of a function.
fn callers(stacks: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut callers = BTreeMap::new();
    for (stack, count) in stacks {
        let outer = stack.rsplit_once(';').map_or("", |(outer, _)| outer);
        *callers.entry(outer.to_owned()).or_default() += count;
    }
    callers
}

/// inferno's reader of DTrace stacks works like stackcollapse.pl: it removes the offsets and adds up the
/// counts. A stack that could not be read as a whole counts 0.
#[test]
fn inferno_collapses_the_original_text_to_our_folded_stacks() {
    use inferno::collapse::Collapse;
    for recording in recordings() {
        let text = export("uniprof-text", &[&recording], &Options::default());
        let mut folder = inferno::collapse::dtrace::Folder::default();
        let mut out = Vec::new();
        folder.collapse(&text[..], &mut out).unwrap();
        let options = Options {
            inlines: false,
            demangle: false,
            ..Options::default()
        };
        let folded = export("folded", &[&recording], &options);
        let mut theirs = callers(addresses(&out));
        theirs.retain(|_, count| *count > 0);
        let mut missing = 0;
        let mut ours = callers(addresses(&folded));
        for (stack, count) in &mut ours {
            let found = theirs.get(stack).copied().unwrap_or(0);
            missing += *count - found;
            *count = found;
        }
        ours.retain(|_, count| *count > 0);
        assert_eq!(theirs, ours, "{}", recording.name());
        let profile = gather(&[&recording], &library(), &options, &|_, _| {}, None);
        let unread = [Stop::Unreadable, Stop::BadPointer];
        let cut = unread.map(|stop| profile.account.cut.get(&stop).copied().unwrap_or(0));
        assert_eq!(missing, cut.iter().sum::<u64>(), "{}", recording.name());
    }
}

#[test]
fn json_and_csv_say_what_the_table_says() {
    let recording = open(small());
    let text = export("json", &[&recording], &Options::default());
    let read: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(read["account"]["counted"], 7);
    assert_eq!(read["account"]["other_states"]["blocked"], 1);
    let label = |id: &Value| read["labels"][id.as_u64().unwrap() as usize]["name"].clone();
    let stacks = read["stacks"].as_array().unwrap().iter().map(|stack| {
        let frames = stack["frames"].as_array().unwrap().iter();
        let frames = frames.map(|id| label(id).as_str().unwrap().to_owned());
        (frames.collect(), stack["count"].as_u64().unwrap())
    });
    assert_eq!(count(&stacks.collect::<Vec<_>>()), truth(&recording));
    let text = String::from_utf8(export("csv", &[&recording], &Options::default())).unwrap();
    assert!(
        text.contains("hash,/made/app,2,2,0.285714,0.285714,false\r\n"),
        "{text}"
    );
}

#[test]
fn the_same_bytes_with_one_thread_and_with_two() {
    let recordings = recordings();
    let recordings: Vec<&Recording> = recordings.iter().collect();
    let with_threads = |threads: usize, name: &str| {
        // These recordings were not made at the same time, as a common time axis requires.
        let recordings = match name {
            "perfetto" => &recordings[1..2],
            // It has no place for times, which samples of several rates are added up by.
            "uniprof-text" => &recordings[1..3],
            _ => &recordings[..],
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| export(name, recordings, &Options::default()))
    };
    for format in FORMATS {
        let (one, two) = (with_threads(1, format.name), with_threads(2, format.name));
        assert!(
            one == two,
            "{} differs with the number of threads",
            format.name
        );
        assert!(!one.is_empty());
    }
}
