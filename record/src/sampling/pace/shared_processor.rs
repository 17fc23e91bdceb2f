//! Simulates a guest that sleeps and a recorder on one processor: how far shares are off under each rule for late
//! samples. `cargo test -p uniprof-record --lib shared_processor -- --nocapture` prints the table.

use super::Pace;

/// A sample is late beyond this delay.
const LATE_US: u64 = 250;
/// Duration of a wake-up on a free processor.
const WAKE_US: u64 = 20;
const TRUTH: [f64; 3] = [0.5, 0.3, 0.2];

/// When the recorder gets the processor that its guest uses.
#[derive(Clone, Copy)]
enum Scheduler {
    /// Once the guest, or another holder, has used up its slice; at once where that was over already.
    Slice { us: u64, held_in_8: u64 },
    /// Not before the guest sleeps.
    UntilSleep { held_in_8: u64 },
    /// After a delay that is independent of the guest, which runs on elsewhere.
    AnyDelay,
}

/// How late samples are treated.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// Each is taken.
    Taken,
    /// None counts.
    LeftOut,
    /// Each is replaced by one at another moment, drawn from the time to come, at most three times in a row.
    DrawnAgain,
}

/// The result of a simulated recording.
struct Outcome {
    /// Error in percentage points of the worst of the three functions; `None` if one was never seen running.
    off: Option<f64>,
    late_percent: f64,
}

struct Guest {
    sleeps_us: u64,
    works_us: u64,
    /// When it woke last, or will wake.
    woke_us: u64,
    noise: fastrand::Rng,
}

impl Guest {
    /// Advances to the stretch of sleep and work that contains `at_us`. Returns how long the guest has worked in it;
    /// `None` while it sleeps.
    fn worked_us(&mut self, at_us: u64) -> Option<u64> {
        while at_us >= self.woke_us + self.works_us {
            let sleep_us = self.sleeps_us + self.noise.u64(..500);
            self.woke_us += self.works_us + sleep_us;
        }
        at_us.checked_sub(self.woke_us)
    }

    fn function(&self, worked_us: u64) -> usize {
        let part = worked_us as f64 / self.works_us as f64;
        usize::from(part >= TRUTH[0]) + usize::from(part >= TRUTH[0] + TRUTH[1])
    }

    /// When a recorder runs that is woken at `due_us`.
    fn lets_run(&mut self, scheduler: Scheduler, due_us: u64) -> u64 {
        let prompt_us = due_us + WAKE_US;
        let worked_us = self.worked_us(prompt_us);
        let dice = self.noise.u64(..8);
        if matches!(scheduler, Scheduler::AnyDelay) && dice < 4 {
            return prompt_us + self.noise.u64(..8_000);
        }
        let Some(worked_us) = worked_us else {
            return prompt_us;
        };
        let sleeps_us = self.woke_us + self.works_us;
        match scheduler {
            Scheduler::Slice { us, held_in_8 } if dice < held_in_8 && worked_us < us => {
                (self.woke_us + us).min(sleeps_us)
            }
            Scheduler::UntilSleep { held_in_8 } if dice < held_in_8 => sleeps_us,
            _ => prompt_us,
        }
    }
}

fn record(scheduler: Scheduler, rule: Rule, sleeps_us: u64, works_us: u64) -> Outcome {
    let mut guest = Guest {
        sleeps_us,
        works_us,
        woke_us: 3_000,
        noise: fastrand::Rng::with_seed(9),
    };
    let mut pace = Pace::new(7_000_000, 1e9 / 97.0, None);
    let (mut found, mut late, mut taken) = ([0u32; 3], 0, 0);
    for _ in 0..30_000 {
        let mut due_us = pace.wake_ns / 1_000;
        for attempt in 0.. {
            let at_us = guest.lets_run(scheduler, due_us);
            let is_late = at_us > due_us + LATE_US;
            if is_late && rule == Rule::DrawnAgain && attempt < 3 {
                due_us = at_us + guest.noise.u64(..3_000);
                continue;
            }
            taken += 1;
            late += u32::from(is_late);
            if let Some(worked_us) = guest.worked_us(at_us)
                && !(is_late && rule != Rule::Taken)
            {
                found[guest.function(worked_us)] += 1;
            }
            pace.next(at_us * 1_000);
            break;
        }
    }
    let samples: u32 = found.iter().sum();
    let off = |(found, truth): (u32, f64)| (f64::from(found) / f64::from(samples) - truth).abs();
    let worst = found.into_iter().zip(TRUTH).map(off).fold(0.0, f64::max);
    Outcome {
        off: (samples > 0).then_some(100.0 * worst),
        late_percent: 100.0 * f64::from(late) / f64::from(taken),
    }
}

const RULES: [Rule; 3] = [Rule::Taken, Rule::LeftOut, Rule::DrawnAgain];
const PROMPT: Scheduler = slice(100, 8);

const fn slice(us: u64, held_in_8: u64) -> Scheduler {
    Scheduler::Slice { us, held_in_8 }
}

/// The error of each rule in percentage points; prints it.
fn off(name: &str, scheduler: Scheduler, (sleeps_us, works_us): (u64, u64)) -> [Option<f64>; 3] {
    let all = RULES.map(|rule| record(scheduler, rule, sleeps_us, works_us));
    let points = all
        .each_ref()
        .map(|found| found.off.map_or("none".into(), |off| format!("{off:.1}")));
    println!(
        "{name:<16} sleeps {:>2}, works {:>2} ms | late {:>4.1} % | taken {:>4}, left out {:>4}, drawn again {:>4}",
        sleeps_us / 1_000,
        works_us / 1_000,
        all[0].late_percent,
        points[0],
        points[1],
        points[2],
    );
    all.map(|found| found.off)
}

/// Shares are true if the recorder waits for no more than the shortest slice, or for something that is independent of
/// its guest.
#[test]
fn who_is_prompt_or_late_by_chance_has_true_shares() {
    for guest in [
        (3_000, 1_000),
        (3_000, 2_000),
        (4_000, 4_000),
        (4_000, 8_000),
        (5_000, 30_000),
    ] {
        let [prompt, ..] = off("slice 0.1 ms", PROMPT, guest);
        assert!(prompt.is_some_and(|off| off < 2.0), "{prompt:?}");
        let [by_chance, ..] = off("any delay", Scheduler::AnyDelay, guest);
        assert!(by_chance.is_some_and(|off| off < 2.0), "{by_chance:?}");
    }
}

/// A guest that works for several slices. Late samples stand for its work meanwhile, in about the right number;
/// without them there are too few.
#[test]
fn late_samples_count_as_shares_are_further_off_without_them() {
    for held_in_8 in [4, 8] {
        for (us, name) in [(1_400, "slice 1.4 ms"), (3_000, "slice 3 ms")] {
            let [taken, left_out, drawn_again] =
                off(name, slice(us, held_in_8), (4_000, 8_000)).map(Option::unwrap);
            assert!(taken < 2.0, "{taken:.1}");
            assert!(left_out > taken + 2.0, "{left_out:.1}");
            assert!(us == 1_400 || drawn_again > taken + 2.0, "{drawn_again:.1}");
        }
    }
}

/// Work that the recorder never sees, or sees only where it is delayed in step with the guest, is lost to every rule.
#[test]
fn no_rule_for_late_samples_mends_shares_of_a_guest_that_works_briefly() {
    for (slice_us, guest) in [(1_400, (3_000, 2_000)), (3_000, (4_000, 4_000))] {
        for off in off("about a slice", slice(slice_us, 4), guest) {
            assert!(off.is_some_and(|off| off > 10.0), "{off:?}");
        }
    }
    for off in off("slice 3 ms", slice(3_000, 8), (3_000, 2_000)) {
        assert_eq!(off, None);
    }
    let until_it_sleeps = |held_in_8| Scheduler::UntilSleep { held_in_8 };
    for off in off("until it sleeps", until_it_sleeps(8), (4_000, 8_000)) {
        assert_eq!(off, None);
    }
}
