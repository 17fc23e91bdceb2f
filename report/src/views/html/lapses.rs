//! Missing data and its time: losses that the recorder counted, and damage of the file. The time line shows
//! them, so that a time without samples looks different from one in which samples were lost.

use crate::recording::Recording;
use uprof::Task;

/// Most lapses of a recording in a page.
const LAPSES_MAX: usize = 1000;

/// A range of time in which data is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lapse {
    /// Start, in nanoseconds from the start of the recording.
    pub(super) from_ns: u64,
    /// End, in nanoseconds from the start of the recording.
    pub(super) to_ns: u64,
    /// The vCPU or thread; `None` if it is unknown.
    pub(super) task: Option<Task>,
    /// What is missing, and why.
    pub(super) what: String,
}

/// The lapses of a recording, in order of time. If there are too many, those with the most samples are kept.
pub(super) fn lapses(recording: &Recording) -> Vec<Lapse> {
    let start_ns = recording.start_ns();
    let since = |time_ns: u64| time_ns.saturating_sub(start_ns);
    let gaps = recording.damages().gaps.iter().map(|gap| {
        let end_ns = gap.to_ns.unwrap_or(recording.end_ns());
        let lapse = Lapse {
            from_ns: since(gap.from_ns.unwrap_or(start_ns)),
            to_ns: since(end_ns),
            task: None,
            what: "a part of the file is damaged".to_owned(),
        };
        (u64::MAX, lapse)
    });
    let losses = recording.losses().iter().map(|loss| {
        let lapse = Lapse {
            from_ns: since(loss.first_ns),
            to_ns: since(loss.last_ns),
            task: loss.task,
            what: format!("{} {}", loss.count, loss.reason.describe()),
        };
        (loss.count, lapse)
    });
    kept(gaps.chain(losses).collect())
}

/// Keeps the lapses with the most samples; each comes with its number of samples.
fn kept(mut counted: Vec<(u64, Lapse)>) -> Vec<Lapse> {
    counted.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    counted.truncate(LAPSES_MAX);
    let mut lapses: Vec<Lapse> = counted.into_iter().map(|(_, lapse)| lapse).collect();
    lapses.sort_by_key(|lapse| (lapse.from_ns, lapse.to_ns));
    lapses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lapses_that_a_page_carries() {
        let all = (0..LAPSES_MAX as u64 + 1).map(|number| {
            let lapse = Lapse {
                from_ns: number,
                to_ns: number,
                task: None,
                what: String::new(),
            };
            (number, lapse)
        });
        let all: Vec<(u64, Lapse)> = all.collect();
        assert_eq!(kept(all[1..].to_vec()).len(), LAPSES_MAX);
        let kept = kept(all);
        assert_eq!(kept.len(), LAPSES_MAX);
        // The lapse with the fewest samples is left out.
        assert_eq!(kept[0].from_ns, 1);
    }
}
