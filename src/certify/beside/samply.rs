//! What samply writes of a program: a profile for Firefox's profiler, and beside it the symbols that it found.
//!
//! Its addresses count from the image's first page. Where an image has no symbol, samply makes one up of the start of
//! the function, which is no name: `fun_1a2b`.

use crate::certify::finding::Tally;
use anyhow::Context;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use uniprof_report::images::Image;

#[derive(Deserialize)]
struct Profile {
    libs: Vec<Lib>,
    threads: Vec<Thread>,
}

#[derive(Deserialize)]
struct Lib {
    path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    samples: Samples,
    stack_table: Stacks,
    frame_table: Frames,
    func_table: Functions,
    resource_table: Resources,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Samples {
    stack: Vec<Option<usize>>,
    weight: Vec<u64>,
    /// Processor time since the sample before, in microseconds; 0 for samples of threads that waited.
    #[serde(rename = "threadCPUDelta")]
    cpu_us: Vec<Option<u64>>,
}

#[derive(Deserialize)]
struct Stacks {
    /// The callers' stack, which stands before.
    prefix: Vec<Option<usize>>,
    frame: Vec<usize>,
}

#[derive(Deserialize)]
struct Frames {
    /// From the image's first page; -1 without one.
    address: Vec<i64>,
    func: Vec<usize>,
}

#[derive(Deserialize)]
struct Functions {
    /// -1 without one.
    resource: Vec<i64>,
}

#[derive(Deserialize)]
struct Resources {
    lib: Vec<Option<usize>>,
}

#[derive(Deserialize)]
struct SymbolFile {
    string_table: Vec<String>,
    data: Vec<ImageSymbols>,
}

#[derive(Deserialize)]
struct ImageSymbols {
    debug_name: String,
    symbol_table: Vec<Symbol>,
}

#[derive(Deserialize)]
struct Symbol {
    rva: u64,
    size: Option<u64>,
    symbol: usize,
}

/// What it saw at this offset in the file of an image.
///
/// # Errors
/// Its files can't be read.
pub fn read(file: &Path, image: &str, file_offset: u64) -> anyhow::Result<Tally> {
    let opened = Image::open(Path::new(image))?;
    let segments = opened.segments();
    let address = segments.address_of_offset(file_offset);
    let from_start = |address: u64| Some(address.wrapping_add(segments.bias_of_load_address(0)?));
    let Some(address) = address.and_then(|it| from_start(it.0)) else {
        return Ok(Tally::default());
    };
    let profile: Profile = parse(file)?;
    let symbols: SymbolFile = parse(&file.with_extension("syms.json"))?;
    let mut found = tally(&profile, image, address);
    if !symbols.names(image, address) {
        found.seen = 0;
    }
    Ok(found)
}

fn parse<T: DeserializeOwned>(file: &Path) -> anyhow::Result<T> {
    let cannot = || format!("cannot read what samply wrote to {}", file.display());
    let opened = File::open(file).with_context(cannot)?;
    serde_json::from_reader(BufReader::new(opened)).with_context(cannot)
}

impl SymbolFile {
    /// Whether the function at this address has a name.
    fn names(&self, image: &str, address: u64) -> bool {
        let name = Path::new(image)
            .file_name()
            .map(|name| name.to_string_lossy());
        let of_image =
            |it: &&ImageSymbols| name.as_ref().is_some_and(|name| *name == it.debug_name);
        let mut symbols = self
            .data
            .iter()
            .filter(of_image)
            .flat_map(|it| &it.symbol_table);
        symbols.any(|symbol| {
            let bytes = symbol.size.unwrap_or(u64::MAX);
            let name = self.string_table.get(symbol.symbol);
            address
                .checked_sub(symbol.rva)
                .is_some_and(|into| into < bytes)
                && name.is_some_and(|name| name != "UNKNOWN" && !name.starts_with("fun_"))
        })
    }
}

/// Counts samples of threads that ran, and those with this address in their stacks.
fn tally(profile: &Profile, image: &str, address: u64) -> Tally {
    let mut tally = Tally::default();
    for thread in &profile.threads {
        let is_planted = |frame: usize| {
            let function = thread.frame_table.func.get(frame);
            let resource = function.and_then(|it| thread.func_table.resource.get(*it));
            let resource = resource.and_then(|it| usize::try_from(*it).ok());
            let lib = resource.and_then(|it| *thread.resource_table.lib.get(it)?);
            let is_image = lib
                .and_then(|it| profile.libs.get(it))
                .is_some_and(|it| it.path == image);
            let at = thread.frame_table.address.get(frame);
            is_image && at.and_then(|at| u64::try_from(*at).ok()) == Some(address)
        };
        let stacks = &thread.stack_table;
        let mut seen: Vec<bool> = Vec::with_capacity(stacks.frame.len());
        for (frame, prefix) in stacks.frame.iter().zip(&stacks.prefix) {
            let below = prefix.is_some_and(|prefix| seen.get(prefix) == Some(&true));
            seen.push(below || is_planted(*frame));
        }
        let samples = &thread.samples;
        let all = samples
            .stack
            .iter()
            .zip(&samples.weight)
            .zip(&samples.cpu_us);
        for ((stack, weight), cpu_us) in all {
            if cpu_us.is_none_or(|cpu_us| cpu_us > 0) {
                tally.samples += weight;
                let is_seen = stack.is_some_and(|stack| seen.get(stack) == Some(&true));
                tally.seen += if is_seen { *weight } else { 0 };
            }
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn samples_with_the_plant_in_their_stacks_are_counted() {
        // Frames: main, work, work in another image. Stacks: main, main > work, main > work > kernel, main > other.
        let profile = json!({
            "libs": [{ "path": "/bin/a" }, { "path": "/bin/b" }],
            "threads": [{
                "samples": {
                    "stack": [0, 1, 2, 3, null, 1],
                    "weight": [1, 1, 2, 1, 1, 1],
                    "threadCPUDelta": [9, 9, 9, 9, null, 0],
                },
                "stackTable": { "prefix": [null, 0, 1, 0], "frame": [0, 1, 3, 2] },
                "frameTable": { "address": [0x10, 0x20, 0x20, -1], "func": [0, 0, 1, 2] },
                "funcTable": { "resource": [0, 1, -1] },
                "resourceTable": { "lib": [0, 1] },
            }],
        });
        let profile: Profile = serde_json::from_value(profile).unwrap();
        let found = tally(&profile, "/bin/a", 0x20);
        assert_eq!((found.samples, found.seen), (6, 3));
    }

    #[test]
    fn a_name_that_was_made_up_is_none() {
        let symbols = json!({
            "string_table": ["UNKNOWN", "fun_20", "work"],
            "data": [{
                "debug_name": "a",
                "symbol_table": [
                    { "rva": 0x20, "size": 0x10, "symbol": 1 },
                    { "rva": 0x30, "size": 0x10, "symbol": 2 },
                ],
            }],
        });
        let symbols: SymbolFile = serde_json::from_value(symbols).unwrap();
        let named = [0x2f, 0x30, 0x3f, 0x40].map(|address| symbols.names("/bin/a", address));
        assert_eq!(named, [false, true, true, false]);
        assert!(!symbols.names("/bin/b", 0x30));
    }
}
