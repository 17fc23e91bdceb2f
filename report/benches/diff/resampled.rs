//! Pairs of recordings put together from pieces of real ones.
//!
//! Recordings `a*.uprof` are of one program, `b*.uprof` of the same with a function that is 5 %
//! slower. Each is cut into 20 pieces of equal time, three seconds of a minute, so that samples keep
//! what they have to do with their neighbours (Künsch's block resampling, Annals of Statistics 17,
//! 1989). A pair of recordings is then put together from pieces drawn from all recordings of a side
//! without putting back: two from A's, or one from A's and one from B's. The truth of two from A's
//! is that nothing differs. What runs differ by is in every piece, so it is part of the spread
//! within a recording; how the diff fares where it is not, `benches/diff.py` says.
//!
//! - A/A: pairs from A's in which a function is called certain.
//! - Coverage: how often the 95 % interval of these pairs' changes holds none.
//! - Power: pairs of A and B in which the function is called certain.

use crate::random::Random;
use crate::share;
use std::path::Path;
use uniprof_report::diff::{BLOCKS, Change, Counted, Counts, DiffOptions, Item, Series, Side};
use uniprof_report::diff::{diff, judge};
use uniprof_report::library::Library;
use uniprof_report::recording::Recording;

/// Pieces of a recording.
const PIECES: usize = 20;
const BLOCKS_OF_PIECE: usize = BLOCKS / PIECES;
/// How the name of the function ends that is slower in B.
const SLOW: &str = "workload::hash";

/// Prints the figures of `pairs` pairs from the recordings in `folder`.
pub fn judge_all(folder: &Path, pairs: u64) {
    let [a, b] = ["a", "b"].map(|side| open_all(folder, side));
    println!(
        "{pairs} pairs put together from {} recordings of A and {} of B in {}",
        a.len(),
        b.len(),
        folder.display()
    );
    let mut library = Library::default();
    library.only_given = true;
    let (a, b): (Vec<_>, Vec<_>) = (a.iter().collect(), b.iter().collect());
    let mut series = diff(&a, &b, &library, &DiffOptions::default(), &|_, _| {}).series;
    let [a, b] = std::mem::take(&mut series.sides).map(|side| pieces(&side));
    let slow = slow_function(&series);
    let mut random = Random(5);
    let (mut alarms, mut found, mut inside, mut asked) = (0, 0, 0, 0);
    for _ in 0..pairs {
        let mut drawn = draw(&a, 2 * PIECES, &mut random);
        let other = drawn.split_off(PIECES);
        let alike = compare(&mut series, [drawn, other]);
        alarms += u64::from(alike.iter().any(|change| change.certain));
        asked += alike.len() as u64;
        inside += alike.iter().filter(|change| holds_none(change)).count() as u64;
        let [before, after] = [&a, &b].map(|side| draw(side, PIECES, &mut random));
        let planted = compare(&mut series, [before, after]);
        let is_found = |change: &Change| {
            change.item == slow && change.certain && change.estimate.change() > 0.0
        };
        found += u64::from(planted.iter().any(is_found));
    }
    print(
        "alarms",
        "pairs of A with a certain change",
        [alarms, pairs],
        "<= 5",
    );
    print(
        "intervals that hold the truth",
        "95 % intervals with 0",
        [inside, asked],
        "93 to 97",
    );
    print(
        "5 % slower function found",
        "pairs of A and B",
        [found, pairs],
        ">= 95",
    );
}

fn print(figure: &str, what: &str, [part, whole]: [u64; 2], goal: &str) {
    let percent = share(part, whole);
    println!("  {figure}: {part} of {whole} {what}, {percent:.1} % ({goal} %)");
    println!("figure\tdiff, resampled runs: {figure}\t{percent:.1}\t%\t\t\tours {goal}");
}

/// Recordings in `folder` whose names begin with `side`, by name.
fn open_all(folder: &Path, side: &str) -> Vec<Recording> {
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries =
        entries.unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()));
    let mut paths: Vec<_> = entries
        .iter()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(side) && name.ends_with(".uprof")
        })
        .collect();
    paths.sort();
    assert!(
        paths.len() >= 2,
        "no two recordings {side}*.uprof in {}: `benches/diff.py 15 60 FOLDER` makes them",
        folder.display()
    );
    let opened = paths.iter().map(|path| Recording::open(path));
    opened.map(|one| one.expect("a recording")).collect()
}

/// The pieces of all recordings of a side.
fn pieces(side: &Side) -> Vec<Counts> {
    let of_recording = |counts: &Counts| -> Vec<Counts> {
        let starts = (0..PIECES).map(|piece| piece * BLOCKS_OF_PIECE);
        let piece = |from: usize| {
            let blocks = from..from + BLOCKS_OF_PIECE;
            let of_item = |item: &Vec<f64>| item[blocks.clone()].to_vec();
            Counts {
                totals: counts.totals[blocks.clone()].to_vec(),
                items: counts.items.iter().map(of_item).collect(),
            }
        };
        starts.map(piece).collect()
    };
    side.recordings.iter().flat_map(of_recording).collect()
}

/// Draws `count` pieces, none of them twice.
fn draw<'a>(pieces: &'a [Counts], count: usize, random: &mut Random) -> Vec<&'a Counts> {
    let mut left: Vec<&Counts> = pieces.iter().collect();
    let mut take = || left.swap_remove((random.unit() * left.len() as f64) as usize);
    (0..count).map(|_| take()).collect()
}

/// What changes between two recordings put together from these pieces; of functions only.
fn compare(series: &mut Series, sides: [Vec<&Counts>; 2]) -> Vec<Change> {
    series.sides = sides.map(|pieces| {
        let items = 0..pieces[0].items.len();
        let of_item = |item: usize| pieces.iter().flat_map(move |one| one.items[item].clone());
        let joined = Counts {
            totals: pieces.iter().flat_map(|one| one.totals.clone()).collect(),
            items: items.map(|item| of_item(item).collect()).collect(),
        };
        Side {
            recordings: vec![joined],
        }
    });
    let mut changes = judge(series, &DiffOptions::default()).changes;
    changes.retain(|change| series.items[change.item].counted != Counted::Path);
    changes
}

fn holds_none(change: &Change) -> bool {
    let (low, high) = change.estimate.interval(0.95);
    low <= 0.0 && 0.0 <= high
}

/// The item that grows from A to B.
fn slow_function(series: &Series) -> usize {
    let is_slow =
        |item: &Item| item.counted == Counted::Total && series.item_name(item).ends_with(SLOW);
    let slow = series.items.iter().position(is_slow);
    slow.unwrap_or_else(|| panic!("no function {SLOW}: give recordings of `uniprof workload`"))
}
