//! The page of `--html`: its content, that names stay text in it, and its limits, each at its value and
//! beyond it.

mod made;

use made::{open, small};
use std::io::Write;
use std::process::{Command, Stdio};
use uniprof_report::images::Library;
use uniprof_report::import::{IMPORTS, import};
use uniprof_report::profile::{Options, Profile, Sampled, gather};
use uniprof_report::recording::Recording;
use uniprof_report::views::flame::FlameOptions;
use uniprof_report::views::html::{Page, Tally, write};
use uniprof_report::views::info;

fn imported(folded: &str) -> Recording {
    let format = IMPORTS.iter().find(|format| format.name == "folded");
    let mut bytes = Vec::new();
    let mut text = folded.as_bytes();
    import(format.unwrap(), "t", [1; 16], &mut text, &mut bytes).unwrap();
    Recording::from_bytes("made.uprof", bytes).unwrap()
}

fn page_with(recording: &Recording, options: &Options) -> String {
    let mut library = Library::default();
    library.only_given = true;
    let mut tally = Tally::default();
    let mut take = |sampled: &Sampled, _: &Profile| tally.add(sampled);
    let each = Some(&mut take as &mut _);
    let profile = gather(&[recording], &library, options, &|_, _| {}, each);
    written(recording, &profile, &tally)
}

fn written(recording: &Recording, profile: &Profile, tally: &Tally) -> String {
    let page = Page {
        recordings: &[(
            recording,
            info::survey(recording, &Library::default(), &|_, _| {}),
        )],
        profile,
        tally,
        chosen: String::new(),
        is_part: false,
        identify: false,
        drawing: &FlameOptions {
            title: "made </title><u>".into(),
            subtitle: String::new(),
            reverse: false,
            icicle: false,
            least_share: 0.0,
            fold: false,
        },
        least_share: 0.0,
    };
    let mut out = Vec::new();
    write(&page, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn page(recording: &Recording) -> String {
    page_with(recording, &Options::default())
}

/// The part of the page with this id.
fn section<'a>(page: &'a str, id: &str) -> &'a str {
    let start = format!("<section id=\"{id}\">");
    let (_, rest) = page.split_once(&start).expect(id);
    rest.split_once("</section>").unwrap().0
}

fn count(page: &str, id: &str, what: &str) -> usize {
    section(page, id).matches(what).count()
}

#[test]
fn a_page_holds_tables_pictures_and_what_they_rest_on() {
    let page = page(&open(small()));
    for part in [
        "<dt>started</dt><dd><bdi>2017-07-11 09:12:44 UTC</bdi></dd>",
        "<dt>rate requested</dt><dd><bdi>1000 Hz per vCPU or thread</bdi></dd>",
        "<h2>What the numbers rest on</h2>",
        "<li>7 samples in 0.0 s",
        "<li>not counted: 1 idle (12.5% of the samples; --idle counts them too)",
        "<td class=\"number\">3</td><td class=\"number\">42.9%</td>",
        "<bdi>worker-8</bdi></td><td class=\"number\">8</td><td class=\"number\">4</td>",
    ] {
        assert!(page.contains(part), "{part:?} is not in:\n{page}");
    }
    assert_eq!(count(&page, "functions", "<td class=\"function\""), 7);
    for part in ["tables", "samples"] {
        assert_eq!(
            page.matches(&format!("<template id=\"{part}\">")).count(),
            1
        );
    }
    let (page, _) = page.split_once("<script>").unwrap();
    assert!(!page.contains("left out"), "{page}");
    for loaded in ["src=", "url(", "@import", "<link", "<iframe", "style=\""] {
        assert!(!page.contains(loaded), "{loaded}");
    }
    assert!(!page.contains("://"), "{page}");
}

/// The compressed samples in the page.
fn samples(page: &str) -> &str {
    let (_, rest) = page.split_once("<template id=\"samples\">").unwrap();
    rest.split_once("</template>").unwrap().0
}

#[test]
fn what_was_not_running_goes_along_for_the_time_line() {
    let recording = open(small());
    let mut library = Library::default();
    library.only_given = true;
    let mut tally = Tally::default();
    let mut take = |sampled: &Sampled, _: &Profile| tally.add(sampled);
    let each = Some(&mut take as &mut _);
    let options = Options::default();
    let profile = gather(&[&recording], &library, &options, &|_, _| {}, each);
    let without = written(&recording, &profile, &tally);
    tally.add_idle(std::slice::from_ref(&recording), &profile);
    let with = written(&recording, &profile, &tally);
    assert_ne!(samples(&with), samples(&without));
    // No other part of the page counts idle samples.
    let (head, _) = with.split_once("<template").unwrap();
    assert!(without.starts_with(head));
}

#[test]
fn nothing_of_a_name_becomes_markup() {
    let names = [
        "</script><script>alert(1)</script>",
        "</style><img src=x onerror=alert(1)>",
        "--><svg onload=alert(1)>",
        "]]></title></text><a href='x'>",
        "\"' onclick='alert(1)' x=\"",
        "&lt;u&gt;\u{202e}\u{1b}[2J",
    ];
    let page = page(&imported(&format!("{} 3\n", names.join(";"))));
    assert_eq!(page.matches("<script>").count(), 1);
    assert_eq!(page.matches("</script>").count(), 1);
    for markup in [
        "<img",
        "<svg onload",
        "<a href='",
        "<u>",
        "' onclick",
        "\u{1b}",
        "\u{202e}",
    ] {
        assert!(!page.contains(markup), "{markup}");
    }
    let text = "<bdi>&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;</bdi>";
    assert_eq!(count(&page, "functions", text), 1);
    assert!(page.contains("<h1><bdi>made &lt;/title&gt;&lt;u&gt;</bdi></h1>"));
}

/// The hash that a browser computes of the text between two tags, computed by coreutils.
fn hash(of: &str) -> Option<String> {
    let line = "sha256sum | cut -c -64 | tr a-f A-F | basenc --base16 --decode | base64";
    let mut shell = Command::new("sh")
        .args(["-c", line])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    shell.stdin.take()?.write_all(of.as_bytes()).ok()?;
    let ended = shell.wait_with_output().ok()?;
    let digits = String::from_utf8(ended.stdout).ok()?;
    (digits.trim().len() == 44).then(|| format!("sha256-{}", digits.trim()))
}

#[test]
fn a_page_allows_its_own_style_and_script_and_no_other() {
    let page = page(&open(small()));
    for (tag, which) in [("style", "STYLE_HASH"), ("script", "SCRIPT_HASH")] {
        let (_, rest) = page.split_once(&format!("<{tag}>")).unwrap();
        let (inside, rest) = rest.split_once(&format!("</{tag}>")).unwrap();
        assert!(!rest.contains(&format!("<{tag}")), "a second {tag}");
        let Some(hash) = hash(inside) else {
            eprintln!("skipped: sha256sum and basenc (coreutils 8.31) are not there");
            return;
        };
        let policy = format!("{tag}-src '{hash}';");
        assert!(page.contains(&policy), "write {hash} into {which}");
    }
    assert!(page.contains("content=\"default-src 'none'; "));
}

#[test]
fn a_recording_without_samples_gives_a_page_that_says_so() {
    let mut options = Options::default();
    options.filter.focus = Some(regex::Regex::new("no such function").unwrap());
    let page = page_with(&open(small()), &options);
    assert!(page.contains("<li>no sample to show</li>"), "{page}");
    assert!(!page.contains("<table"));
    assert!(page.contains("id=\"recording\""));
}

#[test]
fn functions_of_a_page() {
    let many = |count: usize| -> String {
        let lines = (0..count).map(|number| format!("f{number} 1\n"));
        page(&imported(&lines.collect::<String>()))
    };
    let (full, over) = (many(1000), many(1001));
    for page in [&full, &over] {
        assert_eq!(count(page, "functions", "<td class=\"function\""), 1000);
    }
    assert!(!section(&full, "functions").contains("left out"));
    assert!(section(&over, "functions").contains(">1 more functions"));
    assert!(section(&over, "functions").contains("lists all 1001."));
    // A function without self samples counts as much as the functions that it calls.
    let lines = (0..1001).map(|number| format!("main;f{number} 1\n"));
    let called = page(&imported(&lines.collect::<String>()));
    assert_eq!(count(&called, "functions", "<bdi>main</bdi>"), 1);
}

#[test]
fn threads_of_a_page() {
    let many = |count: u32| {
        let stack = [0];
        let samples: Vec<made::Made<'_>> = (0..count)
            .map(|thread| made::Made {
                at_ms: 1,
                thread: thread + 1,
                state: uprof::State::Running,
                stack: &stack,
            })
            .collect();
        page(&open(made::recording(&["main"], &[], &samples)))
    };
    assert_eq!(count(&many(200), "threads", "<tr><td>"), 200);
    assert!(!many(200).contains("more with fewer"));
    assert_eq!(count(&many(201), "threads", "<tr><td>"), 200);
    assert!(section(&many(201), "threads").contains("… and 1 more with fewer samples."));
}
