//! An arena: owns values and gives out references with its own lifetime. It holds debug sections, which are unpacked
//! when first needed and then referred to from everywhere.

use std::sync::OnceLock;

/// Values that are added and never moved. A list, since few are kept.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    first: OnceLock<Box<Kept<T>>>,
}

#[derive(Debug)]
struct Kept<T> {
    value: T,
    next: OnceLock<Box<Kept<T>>>,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Arena {
            first: OnceLock::new(),
        }
    }
}

impl<T> Arena<T> {
    /// Keeps `value`.
    pub(crate) fn keep(&self, value: T) -> &T {
        let mut at = &self.first;
        let mut kept = Box::new(Kept {
            value,
            next: OnceLock::new(),
        });
        loop {
            // Another thread may fill the place first; then the next one is tried.
            match at.set(kept) {
                Ok(()) => break,
                Err(refused) => kept = refused,
            }
            match at.get() {
                Some(taken) => at = &taken.next,
                None => unreachable!("a place that refuses is taken"),
            }
        }
        match at.get() {
            Some(kept) => &kept.value,
            None => unreachable!("the place was just taken"),
        }
    }
}

impl<T> Drop for Arena<T> {
    /// Iterative, because recursive drops of a long list would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.first.take();
        while let Some(mut kept) = next {
            next = kept.next.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stays() {
        let arena = Arena::default();
        let first = arena.keep(String::from("a"));
        let others: Vec<&String> = (0..1_000).map(|n| arena.keep(n.to_string())).collect();
        assert_eq!((first.as_str(), others[7].as_str()), ("a", "7"));
    }
}
