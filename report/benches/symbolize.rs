//! Names and source lines for addresses, from a cold start, beside binutils' `addr2line -afi`.
//!
//! `cargo bench -p uniprof-report --bench symbolize` takes addresses spread evenly over the code of
//! its own executable (which has line tables) and asks both for function, inlined functions and
//! line of each. Opening the image counts. `addr2line` is asked about fewer, as it is slow; what it
//! takes to start is measured with one address and taken off.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;
use uniprof_report::images::{Image, ImageAddress, LineStore, Lines, SymbolTable};

const ADDRESSES: usize = 20_000;
const ADDRESSES_OF_PEER: usize = 2_000;

fn main() {
    let path = std::env::current_exe().unwrap();
    // `cargo test --benches` runs this too: a few addresses show that it works.
    let is_bench = std::env::args().any(|flag| flag == "--bench");
    let (many, some) = if is_bench {
        (ADDRESSES, ADDRESSES_OF_PEER)
    } else {
        (20, 20)
    };

    let addresses = spread(&path, many);
    let began = Instant::now();
    let answers = ours(&path, &addresses);
    let ours_us = began.elapsed().as_secs_f64() * 1e6 / many as f64;
    let named = answers.iter().filter(|answer| answer.is_named).count();
    println!("{many} addresses, {named} with a name: {ours_us:.2} us an address");
    assert!(named > many * 9 / 10, "most of the code has names");

    let addresses = spread(&path, some);
    if addr2line(&path, &addresses[..1]).is_none() {
        println!("skipped: no addr2line to compare with (Debian: binutils)");
        return;
    }
    let began = Instant::now();
    let _ = addr2line(&path, &addresses[..1]);
    let start_s = began.elapsed().as_secs_f64();
    let began = Instant::now();
    let theirs = addr2line(&path, &addresses).unwrap_or_default();
    let theirs_s = (began.elapsed().as_secs_f64() - start_s).max(0.0);
    let theirs_us = theirs_s * 1e6 / some as f64;

    let lines = ours(&path, &addresses);
    let same = lines
        .iter()
        .zip(&theirs)
        .filter(|(ours, line)| ours.line == **line)
        .count();
    println!("addr2line: {theirs_us:.2} us an address; the same line for {same} of {some}");
    println!(
        "figure\tsymbolizer: functions and line of an address\t{ours_us:.2}\tus\taddr2line -afi\t\
         {theirs_us:.2}\tratio <= 1"
    );
}

/// Addresses at even distances over the code of an executable.
fn spread(path: &Path, count: usize) -> Vec<ImageAddress> {
    let image = Image::open(path).unwrap();
    let (start, bytes) = image.section_range(".text").unwrap();
    let step = (bytes / count as u64).max(1);
    let addresses = (0..count as u64).map(|number| ImageAddress(start.0 + number * step));
    addresses.collect()
}

struct Answer {
    is_named: bool,
    /// Innermost line; 0 if unknown.
    line: u32,
}

fn ours(path: &Path, addresses: &[ImageAddress]) -> Vec<Answer> {
    let image = Arc::new(Image::open(path).unwrap());
    let symbols = SymbolTable::from_image(&image);
    let store = LineStore::default();
    let lines = Lines::new(&store, &image, None, false).expect("a bench has line tables");
    let ask = |address: &ImageAddress| {
        let found = lines.find(*address);
        Answer {
            is_named: symbols.find(*address).is_some() || !found.is_empty(),
            line: found.last().map_or(0, |innermost| innermost.line),
        }
    };
    addresses.iter().map(ask).collect()
}

/// The innermost line of each address as binutils tells it; `None` if it can't be started.
fn addr2line(path: &Path, addresses: &[ImageAddress]) -> Option<Vec<u32>> {
    let mut child = Command::new("addr2line")
        .args(["-afi", "-e"])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take()?;
    let asked: String = addresses
        .iter()
        .map(|address| format!("{:#x}\n", address.0))
        .collect();
    // It answers while it reads: a thread feeds it.
    let feeder = std::thread::spawn(move || stdin.write_all(asked.as_bytes()));
    let output = child.wait_with_output().ok()?;
    feeder.join().ok()?.ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // An address, then a function and `file:line` for each frame, innermost first.
    let rows: Vec<&str> = text.lines().collect();
    let heads = (0..rows.len()).filter(|row| rows[*row].starts_with("0x"));
    let line_after = |head: usize| {
        let place = rows.get(head + 2)?.rsplit_once(':')?.1;
        place.split(' ').next()?.parse().ok()
    };
    Some(heads.map(|head| line_after(head).unwrap_or(0)).collect())
}
