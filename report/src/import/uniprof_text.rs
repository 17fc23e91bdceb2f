//! The text of the original C tool: frames, innermost first, one a line. A line with the count ends a stack;
//! it is 0 if a frame could not be read.

use super::{ImportError, Importer, InputFrame, Origin, split_offset};
use std::io::BufRead;
use uprof::Stop;

pub(super) fn read(
    input: &mut dyn BufRead,
    importer: &mut Importer<'_>,
) -> Result<(), ImportError> {
    let mut line = String::new();
    let mut stack: Vec<String> = Vec::new();
    let mut deepest = 0;
    while importer.next_line(input, &mut line)? {
        let text = line.trim();
        if let Some(heading) = text.strip_prefix("#tracing domid ") {
            read_heading(heading, importer);
        } else if text.is_empty() || text.starts_with('#') {
            continue;
        } else if let Ok(count) = text.parse::<u64>() {
            let frames: Vec<InputFrame<'_>> = stack.iter().map(|frame| found(frame)).collect();
            let (stop, count) = match count {
                0 => (Stop::Unreadable, 1),
                count => (Stop::Unsaid, count),
            };
            let origin = Origin {
                time_ns: None,
                vcpu: 0,
                stop,
            };
            importer.stack(&frames, origin, count)?;
            deepest = deepest.max(stack.len());
            stack.clear();
        } else {
            stack.push(text.to_owned());
        }
    }
    // The tool was stopped in the middle of a stack, or a trial has no more of it, where text of another kind has
    // numbers as well.
    if !importer.is_trial || stack.len() > deepest {
        importer.imported.skipped += stack.len() as u64;
    }
    Ok(())
}

fn found(frame: &str) -> InputFrame<'_> {
    let digits = frame.strip_prefix("0x");
    match digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
        Some(address) => InputFrame::Address(address),
        None => {
            let (name, offset) = split_offset(frame);
            InputFrame::Named("", name, offset)
        }
    }
}

/// Parses `26 on 2017-07-11 09:12:44 UTC (+0000)`.
fn read_heading(heading: &str, importer: &mut Importer<'_>) {
    let mut words = heading.split(' ');
    let id = words.next().and_then(|word| word.parse::<u64>().ok());
    importer.metadata.target.id = id.unwrap_or(0);
    let time = words.nth(1).zip(words.next());
    importer.realtime_ns = time.and_then(|(date, clock)| realtime_ns(date, clock));
}

/// Nanoseconds since 1970 of a date and a time of day, both UTC; days as in Howard Hinnant's
/// "chrono-Compatible Low-Level Date Algorithms".
fn realtime_ns(date: &str, clock: &str) -> Option<i64> {
    let numbers = |text: &str, separator| -> Option<[i64; 3]> {
        let parts: Option<Vec<i64>> = text
            .split(separator)
            .map(|part| part.parse().ok())
            .collect();
        parts?.try_into().ok()
    };
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(clock, ':')?;
    let sane =
        (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !sane
        || !(0..24).contains(&hour)
        || !(0..60).contains(&minute)
        || !(0..=60).contains(&second)
    {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let from_march = (month + 9) % 12;
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    (days * 86_400 + hour * 3_600 + minute * 60 + second).checked_mul(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::calendar::calendar;

    #[test]
    fn dates_are_read_as_they_are_written() {
        for (date, clock) in [("2017-07-11", "09:12:44"), ("2000-02-29", "23:59:59")] {
            let time_ns = realtime_ns(date, clock).unwrap();
            assert_eq!(calendar(time_ns), format!("{date} {clock}"));
        }
        assert_eq!(realtime_ns("2017-13-11", "09:12:44"), None);
        assert_eq!(realtime_ns("2017-07", "09:12:44"), None);
    }
}
