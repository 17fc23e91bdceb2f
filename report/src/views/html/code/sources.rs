//! Lines of source files, for a page: those with samples, and those around them.

use crate::source_files::SourceFiles;
use crate::text::printable;
use crate::views::caption;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Number of lines shown around one with samples.
const AROUND: u32 = 8;
/// Most lines of text in a page.
const LINES_MAX: usize = 20_000;
/// Most text in a page (bytes).
const TEXT_BYTES_MAX: usize = 2 << 20;
/// Most columns of a line.
const COLUMNS_MAX: usize = 240;
/// Most files that are searched for.
const FILES_MAX: usize = 500;

/// A source file, and its lines that are shown.
#[derive(Debug)]
struct Source {
    path: String,
    is_read: bool,
    shown: BTreeMap<u32, String>,
}

/// Lines of source files.
#[derive(Debug)]
pub(super) struct Sources {
    /// The files of this machine that may be shown.
    on_disk: SourceFiles,
    files: Vec<Source>,
    count: usize,
    bytes: usize,
    /// Number of files that didn't fit completely.
    left_out: usize,
}

impl Sources {
    pub(crate) fn new(on_disk: &SourceFiles) -> Self {
        Sources {
            on_disk: on_disk.clone(),
            files: Vec::new(),
            count: 0,
            bytes: 0,
            left_out: 0,
        }
    }

    /// Adds the lines with samples and those around them, and the lines of the instructions. Lines that come
    /// first take the room first.
    pub(crate) fn fill<'l>(
        &mut self,
        sampled: impl Iterator<Item = (&'l str, u32)>,
        others: impl Iterator<Item = (&'l str, u32)>,
    ) {
        let mut order = Vec::new();
        let mut wanted: HashMap<&str, BTreeSet<u32>> = HashMap::new();
        let around = |line: u32| line.saturating_sub(AROUND).max(1)..=line.saturating_add(AROUND);
        let sampled = sampled.filter(|(file, line)| !file.is_empty() && *line > 0);
        let sampled = sampled.map(|(file, line)| (file, around(line)));
        let others = others.map(|(file, line)| (file, line..=line));
        for (file, lines) in sampled.chain(others) {
            let of_file = wanted.entry(file).or_insert_with(|| {
                order.push(file);
                BTreeSet::new()
            });
            of_file.extend(lines);
        }
        self.left_out += order.len().saturating_sub(FILES_MAX);
        for file in order.into_iter().take(FILES_MAX) {
            self.take(file, &wanted[file]);
        }
    }

    fn take(&mut self, path: &str, wanted: &BTreeSet<u32>) {
        let text = self.on_disk.read(path);
        let mut source = Source {
            path: printable(path).into_owned(),
            is_read: text.is_some(),
            shown: BTreeMap::new(),
        };
        let mut is_whole = true;
        let lines = text.as_deref().unwrap_or("").lines();
        for (number, text) in (1..).zip(lines) {
            if !wanted.contains(&number) {
                continue;
            }
            let text = line_of(text);
            if self.count >= LINES_MAX || self.bytes + text.len() > TEXT_BYTES_MAX {
                is_whole = false;
                break;
            }
            self.count += 1;
            self.bytes += text.len();
            source.shown.insert(number, text);
        }
        self.left_out += usize::from(!is_whole);
        self.files.push(source);
    }

    /// Notes of the page about missing lines.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        let read = self.files.iter().filter(|one| !one.shown.is_empty());
        let held = match read.count() {
            0 => None,
            files => Some(format!(
                "the page holds {} lines of source, of {files} {}, which --no-source leaves out",
                self.count,
                if files == 1 { "file" } else { "files" }
            )),
        };
        let left_out = (self.left_out > 0).then(|| {
            format!(
                "source is left out, of {} files all or a part: a page carries {LINES_MAX} lines of {FILES_MAX} \
                 files, {} MiB",
                self.left_out,
                TEXT_BYTES_MAX >> 20
            )
        });
        held.into_iter().chain(left_out)
    }

    /// The value for the script: for each file its path, why it has no text, and ranges of lines, each after
    /// the number of its first line.
    pub(crate) fn value(&self) -> Value {
        let files = self.files.iter().map(|source| {
            let note = match (self.on_disk.may_open(), source.is_read) {
                (false, _) => "not looked for",
                (true, false) => "not readable where the page was made",
                (true, true) => "",
            };
            let mut stretches: Vec<(u32, Vec<&str>)> = Vec::new();
            for (line, text) in &source.shown {
                match stretches.last_mut() {
                    Some((from, texts)) if *from as usize + texts.len() == *line as usize => {
                        texts.push(text);
                    }
                    _ => stretches.push((*line, vec![text])),
                }
            }
            json!({"path": source.path, "note": note, "lines": stretches})
        });
        files.collect()
    }
}

/// The text of a line for the page. Tabs are kept, because they are harmless and indent the line.
fn line_of(text: &str) -> String {
    let text = text.replace('\t', "    ");
    caption::cut(printable(&text).trim_end(), COLUMNS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(on_disk: &SourceFiles, lines: &[(String, u32)]) -> Sources {
        let mut sources = Sources::new(on_disk);
        let lines = lines.iter().map(|(file, line)| (file.as_str(), *line));
        sources.fill(lines, std::iter::empty());
        sources
    }

    #[test]
    fn lines_of_source_that_a_page_carries() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.c");
        let file = path.to_str().unwrap().to_owned();
        std::fs::write(&path, "x\n".repeat(2 * LINES_MAX)).unwrap();
        let around = AROUND as usize;
        // Each line with samples brings the lines around it.
        let lines = |count: usize| -> Vec<(String, u32)> {
            let apart = (0..count / (2 * around + 1)).map(|number| number * (2 * around + 1));
            let rest = count % (2 * around + 1);
            let rest = (0..rest).map(|line| count * 10 + line + around);
            let all = apart.chain(rest).map(|line| (line + around + 1) as u32);
            all.map(|line| (file.clone(), line)).collect()
        };
        let sources = filled(&SourceFiles::anywhere(), &lines(LINES_MAX / 17 * 17));
        assert_eq!(sources.count, LINES_MAX / 17 * 17);
        assert_eq!(sources.notes().count(), 1);
        let sources = filled(&SourceFiles::anywhere(), &lines((LINES_MAX / 17 + 1) * 17));
        assert_eq!(sources.count, LINES_MAX);
        let notes: Vec<String> = sources.notes().collect();
        assert!(
            notes[1].starts_with("source is left out, of 1 files"),
            "{notes:?}"
        );
    }

    #[test]
    fn text_of_source_that_a_page_carries() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.c");
        let file = path.to_str().unwrap().to_owned();
        let line = format!("\t{}\u{202e}</script>\n", "y".repeat(500));
        std::fs::write(&path, line.repeat(10_000)).unwrap();
        let lines: Vec<(String, u32)> = (1..10_000).map(|line| (file.clone(), line)).collect();
        let sources = filled(&SourceFiles::anywhere(), &lines);
        assert!(sources.bytes <= TEXT_BYTES_MAX && sources.bytes + 300 > TEXT_BYTES_MAX);
        assert_eq!(sources.left_out, 1);
        let text = &sources.files[0].shown[&1];
        // The ellipsis takes two columns.
        assert_eq!(text.chars().count(), COLUMNS_MAX - 1);
        assert!(
            text.starts_with("    yyy") && text.ends_with("y…"),
            "{text}"
        );
    }

    #[test]
    fn source_files_that_are_looked_for() {
        let many = |count: usize| -> Vec<(String, u32)> {
            let files = (0..count).map(|number| (format!("/nowhere/{number}.c"), 1));
            files.collect()
        };
        assert_eq!(
            filled(&SourceFiles::anywhere(), &many(FILES_MAX)).left_out,
            0
        );
        let over = filled(&SourceFiles::anywhere(), &many(FILES_MAX + 1));
        assert_eq!((over.files.len(), over.left_out), (FILES_MAX, 1));
    }

    #[test]
    fn files_that_are_not_to_be_opened_are_named_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (source, secret) = (folder.path().join("a.c"), folder.path().join("id_rsa"));
        for path in [&source, &secret] {
            std::fs::write(path, "secret\n").unwrap();
        }
        let lines = [&source, &secret].map(|path| (path.to_str().unwrap().to_owned(), 1));
        assert_eq!(filled(&SourceFiles::none(), &lines).count, 0);
        let sources = filled(&SourceFiles::anywhere(), &lines);
        let told = sources.value().to_string();
        assert_eq!(told.matches("secret").count(), 1, "{told}");
        assert!(
            told.contains("not readable where the page was made"),
            "{told}"
        );
    }
}
