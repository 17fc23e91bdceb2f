//! Changes inputs at random: bits, numbers, pieces doubled, moved, cut or taken from another input.
//!
//! What comes out depends on the seed and on how many have come before, never on time.

use fastrand::Rng;

/// Longer inputs are cut.
pub const MOST_BYTES: usize = 128 << 10;
/// Inputs that are kept besides the ones to begin with.
const WALKERS: usize = 16;
/// Numbers at which things begin to differ.
const INTERESTING: [u64; 24] = [
    0,
    1,
    7,
    8,
    16,
    32,
    63,
    64,
    100,
    127,
    128,
    255,
    256,
    1024,
    4096,
    32_767,
    65_535,
    65_536,
    1 << 24,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 32,
    i64::MAX as u64,
    u64::MAX,
];

/// Makes inputs.
pub struct Mutator {
    random: Rng,
    seeds: Vec<Vec<u8>>,
    /// Inputs that have been changed before, so that changes add up.
    walkers: Vec<Vec<u8>>,
}

impl Mutator {
    /// A mutator that begins with `seeds`.
    pub fn new(seed: u64, mut seeds: Vec<Vec<u8>>) -> Self {
        if seeds.is_empty() {
            seeds.push(Vec::new());
        }
        Mutator {
            random: Rng::with_seed(seed),
            walkers: Vec::new(),
            seeds,
        }
    }

    /// The input number `number`; the first are the seeds as they are.
    pub fn input(&mut self, number: u64) -> Vec<u8> {
        if let Some(seed) = self
            .seeds
            .get(usize::try_from(number).unwrap_or(usize::MAX))
        {
            return seed.clone();
        }
        let walks = !self.walkers.is_empty() && self.random.usize(..3) == 0;
        let mut input = match walks {
            true => self.walkers[self.random.usize(..self.walkers.len())].clone(),
            false => self.seeds[self.random.usize(..self.seeds.len())].clone(),
        };
        for _ in 0..=self.random.usize(..6) {
            self.change(&mut input);
        }
        input.truncate(MOST_BYTES);
        if self.walkers.len() < WALKERS {
            self.walkers.push(input.clone());
        } else if self.random.usize(..8) == 0 {
            let place = self.random.usize(..WALKERS);
            self.walkers[place] = input.clone();
        }
        input
    }

    /// One change.
    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.random.usize(..input.len() + 1);
        match self.random.usize(..12) {
            0 | 1 => self.set(input, at, |byte, random| byte ^ 1 << (random & 7)),
            2 => self.set(input, at, |_, random| random as u8),
            3 => self.set(input, at, |byte, random| {
                byte.wrapping_add((random % 35) as u8).wrapping_sub(17)
            }),
            4 => self.put_number(input, at),
            5 => self.put_varint(input, at),
            6 => input.insert(at, self.random.u8(..)),
            7 => {
                let end = self.piece_end(input, at);
                drop(input.drain(at..end));
            }
            8 => {
                let end = self.piece_end(input, at);
                let piece = input[at..end].to_vec();
                let to = self.random.usize(..input.len() + 1);
                input.splice(to..to, piece);
            }
            9 => {
                let end = self.piece_end(input, at);
                let from = self.random.usize(..input.len() + 1);
                let length = (end - at).min(input.len() - from);
                let to = at.min(input.len() - length);
                input.copy_within(from..from + length, to);
            }
            10 => self.splice(input, at),
            _ if self.random.usize(..8) == 0 => input.truncate(at),
            _ => {
                let count = 1 << self.random.usize(..8);
                let byte = input.get(at).copied().unwrap_or(0);
                input.splice(at..at, std::iter::repeat_n(byte, count));
            }
        }
    }

    fn set(&mut self, input: &mut [u8], at: usize, change: fn(u8, u64) -> u8) {
        let random = self.random.u64(..);
        if let Some(byte) = input.get_mut(at) {
            *byte = change(*byte, random);
        }
    }

    /// The end of a piece from `at` on: mostly short, now and then up to the end.
    fn piece_end(&mut self, input: &[u8], at: usize) -> usize {
        let left = input.len() - at;
        let most = match self.random.usize(..4) {
            0 => left,
            1 => left.min(256),
            _ => left.min(16),
        };
        at + self.random.usize(..most + 1)
    }

    fn interesting(&mut self) -> u64 {
        let number = INTERESTING[self.random.usize(..INTERESTING.len())];
        number
            .wrapping_add(self.random.usize(..3) as u64)
            .wrapping_sub(1)
    }

    /// An interesting number of one, two, four or eight bytes.
    fn put_number(&mut self, input: &mut [u8], at: usize) {
        let bytes = self.interesting().to_le_bytes();
        let length = (1 << self.random.usize(..4)).min(input.len() - at);
        input[at..at + length].copy_from_slice(&bytes[..length]);
    }

    /// An interesting number in groups of seven bits, in place of a byte.
    fn put_varint(&mut self, input: &mut Vec<u8>, at: usize) {
        let mut bytes = Vec::new();
        crate::take::put_varint(&mut bytes, self.interesting());
        let end = (at + 1).min(input.len());
        input.splice(at..end, bytes);
    }

    /// The start of this input and the end of another, or a piece of another in the middle.
    fn splice(&mut self, input: &mut Vec<u8>, at: usize) {
        let other = self.random.usize(..self.seeds.len());
        let from = self.random.usize(..self.seeds[other].len() + 1);
        let seed = std::mem::take(&mut self.seeds[other]);
        let end = self.piece_end(&seed, from);
        match self.random.usize(..2) {
            0 => {
                input.truncate(at);
                input.extend_from_slice(&seed[from..]);
            }
            _ => drop(input.splice(at..at, seed[from..end].iter().copied())),
        }
        self.seeds[other] = seed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_depend_on_the_seed_alone() {
        let seeds = vec![b"some bytes".to_vec(), b"and others, longer".to_vec()];
        let all = |seed| {
            let mut mutator = Mutator::new(seed, seeds.clone());
            (0..2000)
                .map(|number| mutator.input(number))
                .collect::<Vec<_>>()
        };
        let first = all(1);
        assert!(first == all(1) && first != all(2));
        assert_eq!(first[..2], seeds[..]);
        let mut distinct = first.clone();
        distinct.sort();
        distinct.dedup();
        assert!(distinct.len() > 1800, "{}", distinct.len());
        assert!(first.iter().all(|input| input.len() <= MOST_BYTES));
    }

    #[test]
    fn nothing_to_begin_with_is_enough() {
        let mut mutator = Mutator::new(3, Vec::new());
        assert!((0..500).any(|number| mutator.input(number).len() > 20));
    }
}
