//! Resumes the threads that were paused for a sample, in the best order.
//!
//! A resumed thread may take the recorder's processor at once, for as long as the scheduler sees fit. That can be
//! milliseconds, in which the threads that are not resumed yet stay paused. So threads on other processors come first.

use crate::sys::clock::monotonic_ns;

/// A thread that can be paused.
pub trait Held {
    /// Whether it is paused, or was asked to stop.
    fn is_held(&self) -> bool;

    /// The processor that it ran on before the pause.
    fn processor(&self) -> Option<usize>;

    /// Resumes it.
    fn let_go(&mut self);
}

/// Resumes all paused threads. Returns when the target had all processors again that it had before, as
/// [`monotonic_ns`] counts. Of several threads on the recorder's own processor, the first one resumed can have it, so
/// its time counts. Returns `None` if none was paused.
pub fn let_all_go(threads: &mut [impl Held]) -> Option<u64> {
    let_go_from(nix::sched::sched_getcpu().ok(), threads)
}

/// The same for a recorder on processor `here`.
fn let_go_from(here: Option<usize>, threads: &mut [impl Held]) -> Option<u64> {
    let mut when_ns = None;
    for thread in held(threads).filter(|thread| thread.processor() != here) {
        when_ns = Some(monotonic_ns());
        thread.let_go();
    }
    for (place, thread) in held(threads).enumerate() {
        // The first thread resumed here may take this processor before the loop goes on.
        if place == 0 {
            when_ns = Some(monotonic_ns());
        }
        thread.let_go();
    }
    when_ns
}

fn held<T: Held>(threads: &mut [T]) -> impl Iterator<Item = &mut T> {
    threads.iter_mut().filter(|thread| thread.is_held())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    struct Fake<'a> {
        name: &'static str,
        processor: Option<usize>,
        held: bool,
        /// Names and times of the resumed threads.
        log: &'a RefCell<Vec<(&'static str, u64)>>,
    }

    impl Held for Fake<'_> {
        fn is_held(&self) -> bool {
            self.held
        }

        fn processor(&self) -> Option<usize> {
            self.processor
        }

        fn let_go(&mut self) {
            self.held = false;
            self.log.borrow_mut().push((self.name, monotonic_ns()));
        }
    }

    #[test]
    fn those_that_take_our_place_come_last_and_the_first_of_them_counts() {
        let log = RefCell::default();
        let fake = |name, processor, held| Fake {
            name,
            processor,
            held,
            log: &log,
        };
        let mut threads = [
            fake("ours", Some(1), true),
            fake("another", Some(0), true),
            fake("free", Some(0), false),
            fake("also ours", Some(1), true),
            fake("unknown", None, true),
        ];
        let when_ns = let_go_from(Some(1), &mut threads).unwrap();
        let (names, times): (Vec<_>, Vec<_>) = log.take().into_iter().unzip();
        assert_eq!(names, ["another", "unknown", "ours", "also ours"]);
        assert!(
            times[1] <= when_ns && when_ns <= times[2],
            "{when_ns} {times:?}"
        );
        // None of them is on our processor, so the last one counts.
        threads[0].held = true;
        threads[1].held = true;
        let when_ns = let_go_from(Some(7), &mut threads).unwrap();
        let times: Vec<_> = log.take().into_iter().map(|(_, time)| time).collect();
        assert!(
            times[0] <= when_ns && when_ns <= times[1],
            "{when_ns} {times:?}"
        );
        assert_eq!(let_go_from(Some(1), &mut threads), None);
    }
}
