//! Hostile files that are well-formed: each asks for as much work or memory as its kind can in few bytes. Mutations
//! of sound files seldom come to that.
//!
//! A seed and a number enter; a recording or a text to import leaves.

mod cold;
mod samples;
mod texts;

use fastrand::Rng;
use uprof::cold::{End, EndReason, Metadata, TargetKind};
use uprof::{Task, Writer};

/// A way to be hostile.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// What there is much of, for people.
    pub what: &'static str,
    craft: fn(&mut Rng) -> Content,
}

/// All kinds; the files of a run are of each in turn.
pub const KINDS: [Kind; 10] = [
    Kind {
        name: "mappings",
        what: "changes of address spaces, with samples between them",
        craft: cold::mappings,
    },
    Kind {
        name: "broken",
        what: "blocks with wrong checksums, wrong ends or wrong numbers",
        craft: samples::broken,
    },
    Kind {
        name: "weights",
        what: "samples and time that few bytes stand for",
        craft: texts::weights,
    },
    Kind {
        name: "chains",
        what: "deep stacks in many samples",
        craft: samples::chains,
    },
    Kind {
        name: "tasks",
        what: "threads and processes",
        craft: texts::tasks,
    },
    Kind {
        name: "stacks",
        what: "different stacks",
        craft: samples::stacks,
    },
    Kind {
        name: "tables",
        what: "symbols, lines and inlined functions of an image",
        craft: cold::tables,
    },
    Kind {
        name: "spans",
        what: "calls of a trace, deep in one another",
        craft: cold::spans,
    },
    Kind {
        name: "images",
        what: "images, and mappings of them",
        craft: cold::images,
    },
    Kind {
        name: "bombs",
        what: "rows and stack bytes that compress to nothing",
        craft: samples::bombs,
    },
];

/// A crafted file.
pub struct Crafted {
    /// The name of its kind.
    pub kind: &'static str,
    /// What it holds.
    pub content: Content,
}

/// What a crafted file holds.
pub enum Content {
    /// A recording.
    Recording(Vec<u8>),
    /// A text, and the format that it is imported as.
    Text(&'static str, Vec<u8>),
}

impl Content {
    /// The bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Content::Recording(bytes) | Content::Text(_, bytes) => bytes,
        }
    }
}

/// The file with this number of those that `seed` gives.
pub fn craft(seed: u64, number: u64) -> Crafted {
    let kind = &KINDS[(number % KINDS.len() as u64) as usize];
    let mut random = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
    Crafted {
        kind: kind.name,
        content: (kind.craft)(&mut random),
    }
}

/// Where the code of crafted programs begins.
const TEXT: u64 = 0x40_0000;
/// The time from the start of a recording to its end (nanoseconds).
const LENGTH_NS: u64 = 1_000_000_000;

/// A number up to `most`: now and then that itself, else each power of two is as likely.
fn count(random: &mut Rng, most: u64) -> u64 {
    if random.u32(..12) == 0 {
        return most;
    }
    let bits = random.u32(..=most.ilog2());
    random.u64(1 << bits..=u64::MAX >> (63 - bits)).min(most)
}

fn time_ns(random: &mut Rng) -> u64 {
    random.u64(..LENGTH_NS)
}

/// One of `most` tasks, of a process of their own, or of one that all share.
fn task(random: &mut Rng, most: u32) -> Task {
    let vcpu = random.u32(1..=most);
    let space = if random.bool() { vcpu } else { 1 };
    Task { space, vcpu }
}

/// A recording with what `fill` writes.
fn recording(random: &mut Rng, fill: impl FnOnce(&mut Writer<Vec<u8>>, &mut Rng)) -> Content {
    let mut metadata = Metadata::default();
    let kinds = [
        TargetKind::Process,
        TargetKind::XenDomain,
        TargetKind::Imported,
    ];
    metadata.target.kind = kinds[random.usize(..kinds.len())];
    metadata.sampling.rate_millihertz = 99_000;
    let mut writer = memory(Writer::create(Vec::new(), [7; 16], &metadata, 0));
    fill(&mut writer, random);
    let end = End {
        time_ns: LENGTH_NS,
        reason: EndReason::TargetEnded,
        message: "it ended".into(),
        totals: Vec::new(),
    };
    Content::Recording(memory(writer.finish(&end)))
}

/// What writing into memory returned.
fn memory<T>(written: std::io::Result<T>) -> T {
    written.expect("memory takes all")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small ones only: what is large takes seconds without optimisation.
    const SMALL_BYTES: usize = 64 << 10;

    #[test]
    fn files_depend_on_seed_and_number_alone_and_are_of_all_kinds() {
        let all = |seed| -> Vec<Vec<u8>> {
            let numbers = 0..10;
            numbers
                .map(|number| craft(seed, number).content.bytes().to_vec())
                .collect()
        };
        let first = all(1);
        assert!(first == all(1) && first != all(2));
        assert!(first.iter().any(|bytes| bytes.len() > SMALL_BYTES));
        for (number, kind) in KINDS.iter().enumerate() {
            assert_eq!(craft(3, number as u64).kind, kind.name);
        }
    }

    #[test]
    fn recordings_are_readable() {
        let mut broken = 0;
        for number in 0..30 {
            let Crafted { kind, content } = craft(5, number);
            let Content::Recording(bytes) = content else {
                continue;
            };
            let recording = uprof::SliceReader::open(&bytes).expect("it has metadata");
            let damages = recording
                .blocks()
                .filter(|item| matches!(item, uprof::Item::Damage(_)))
                .count();
            assert!(kind == "broken" || damages == 0, "{number}: {kind}");
            broken += damages;
        }
        assert!(broken > 0);
    }
}
