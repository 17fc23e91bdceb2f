//! Dates: converts nanoseconds since 1970 to date and time of day in UTC.

/// Formats nanoseconds since 1970-01-01 00:00 UTC as `2026-11-20 22:31:51`, by the civil calendar algorithm
/// of Howard Hinnant's `chrono`-compatible date notes (days from a March-based year).
pub(crate) fn calendar(realtime_ns: i64) -> String {
    let seconds = realtime_ns.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02}",
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_fall_where_the_calendar_has_them() {
        assert_eq!(calendar(0), "1970-01-01 00:00:00");
        assert_eq!(calendar(1_499_764_364_000_000_000), "2017-07-11 09:12:44");
        assert_eq!(calendar(951_827_696_000_000_000), "2000-02-29 12:34:56");
        assert_eq!(calendar(-1), "1969-12-31 23:59:59");
    }
}
