//! Rust code that is hard to unwind: generics, trait objects, closures, collections, formatting, and panics
//! that are caught.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::hint::black_box;

trait Visit {
    fn visit(&self, depth: u32) -> u64;
}

struct Leaf(u64);
struct Branch(Vec<Box<dyn Visit>>);

impl Visit for Leaf {
    #[inline(never)]
    fn visit(&self, depth: u32) -> u64 {
        self.0.rotate_left(depth)
    }
}

impl Visit for Branch {
    #[inline(never)]
    fn visit(&self, depth: u32) -> u64 {
        self.0.iter().map(|part| part.visit(depth + 1)).fold(0, u64::wrapping_add)
    }
}

#[inline(never)]
fn tree(depth: u32, seed: u64) -> Box<dyn Visit> {
    if depth == 0 {
        return Box::new(Leaf(seed));
    }
    Box::new(Branch((0..2).map(|index| tree(depth - 1, seed * 3 + index)).collect()))
}

#[inline(never)]
fn words(round: u64) -> usize {
    let mut text = String::new();
    for index in 0..6 {
        write!(text, "w{} {:.2} ", (round + index) % 5, round as f64 / 7.0).unwrap();
    }
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for word in text.split(' ') {
        *counts.entry(word).or_default() += 1;
    }
    let ordered: BTreeMap<_, _> = counts.into_iter().collect();
    ordered.values().sum()
}

#[inline(never)]
fn caught(round: u64) -> u64 {
    let result = std::panic::catch_unwind(|| {
        if round % 4 == 0 {
            std::panic::resume_unwind(Box::new(round));
        }
        round
    });
    result.unwrap_or(1)
}

fn main() {
    let mut round = 0u64;
    loop {
        black_box(tree(3, round).visit(0));
        black_box(words(round));
        black_box(caught(round));
        let mut values: Vec<u64> = (0..20).map(|index| (index * 7919 + round) % 31).collect();
        values.sort_by_key(|value| u64::MAX - value);
        black_box(values);
        round += 1;
    }
}
