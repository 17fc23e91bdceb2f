//! Measures how long someone else had the domain paused.

/// Pauses by others, as far as checks of the domain have shown them.
#[derive(Debug, Default)]
pub struct OthersPause {
    /// When it was last seen paused; `None` if it has run since.
    seen_ns: Option<u64>,
    total_ns: u64,
}

impl OthersPause {
    /// Notes whether the domain was paused by someone else at `now_ns`.
    pub fn note(&mut self, is_paused: bool, now_ns: u64) {
        if let Some(seen_ns) = self.seen_ns {
            self.total_ns += now_ns.saturating_sub(seen_ns);
        }
        self.seen_ns = is_paused.then_some(now_ns);
    }

    /// Total time from each check that saw it paused until the next check, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_last_until_the_next_look() {
        let mut pause = OthersPause::default();
        let looks = [
            (10, false),
            (20, true),
            (30, true),
            (50, false),
            (70, false),
            (80, true),
            (90, true),
        ];
        for (now_ns, is_paused) in looks {
            pause.note(is_paused, now_ns);
        }
        assert_eq!(pause.total_ns(), 30 + 10);
    }
}
