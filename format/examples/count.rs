//! Counts the samples of each thread or vCPU, by what it was doing, and tells what is damaged.
//!
//!     cargo run -p uprof --example count -- run.uprof        (- is standard input)
//!
//! What is read is never in memory as a whole: a block at a time is enough, since each decodes alone.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::{self, Read};
use uprof::{Item, Payload, StreamReader};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: count FILE")?;
    let input: Box<dyn Read> = match path.as_str() {
        "-" => Box::new(io::stdin()),
        path => Box::new(File::open(path)?),
    };
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    for item in StreamReader::open(input)? {
        let block = match item? {
            Item::Block(block) => block,
            // Reading goes on behind it.
            Item::Damage(damage) => {
                eprintln!("{damage}");
                continue;
            }
        };
        // What a block holds is decoded when somebody asks; the headers alone tell where what is.
        let samples = match block.payload() {
            Ok(Payload::Samples(samples)) => samples,
            Ok(_) => continue,
            Err(error) => {
                eprintln!("{error}");
                continue;
            }
        };
        let mut rows = samples.rows();
        while let Some(row) = rows.next_row()? {
            // The stack, innermost frame first, would be samples.chain(row.node).
            let key = (row.task.space, row.task.vcpu, row.state.name());
            *counts.entry(key).or_default() += 1;
        }
    }
    for ((space, vcpu, state), count) in counts {
        println!("{count:8} {space}/{vcpu} {state}");
    }
    Ok(())
}
