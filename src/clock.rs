//! Moments, their text, and the clock of the log, the status and the history.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// A moment, in whole seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub i64);

impl Moment {
    /// From nanoseconds since 1970, as a runtime reports them.
    pub fn from_nanos(nanos: i64) -> Moment {
        Moment(nanos.div_euclid(1_000_000_000))
    }

    /// Writes date, time of day and `rest`. The date is Howard Hinnant's `civil_from_days`.
    fn write(self, f: &mut fmt::Formatter<'_>, rest: fmt::Arguments<'_>) -> fmt::Result {
        let days = self.0.div_euclid(86_400);
        let second = self.0.rem_euclid(86_400);
        // Days since 1 March of the year 0, by eras of 400 years.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let hour = second / 3600;
        let minute = second / 60 % 60;
        let second = second % 60;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{rest}")
    }
}

impl fmt::Display for Moment {
    /// RFC 3339, in UTC: `2026-11-21T14:05:09Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, format_args!("Z"))
    }
}

/// A moment to the millisecond, so that the lines of several logs can be put in order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) moment: Moment,
    pub(crate) millis: u32,
}

impl fmt::Display for Stamp {
    /// RFC 3339, in UTC: `2026-11-21T14:05:09.042Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.moment.write(f, format_args!(".{:03}Z", self.millis))
    }
}

impl From<SystemTime> for Moment {
    /// A moment before 1970 counts as 1970.
    fn from(time: SystemTime) -> Moment {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
    }
}

pub(crate) fn now() -> Moment {
    stamp().moment
}

pub(crate) fn stamp() -> Stamp {
    let now = SystemTime::now();
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    Stamp { moment: now.into(), millis: since.subsec_millis() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_as_date_and_time() {
        for (seconds, expect) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Moment(seconds).to_string(), expect);
        }
        assert_eq!(Moment::from_nanos(-1), Moment(-1));
    }

    #[test]
    fn a_stamp_has_three_digits_of_milliseconds() {
        let at = |moment, millis| Stamp { moment: Moment(moment), millis }.to_string();
        assert_eq!(at(1_709_251_199, 42), "2024-02-29T23:59:59.042Z");
        assert_eq!(at(1_709_251_200, 0), "2024-03-01T00:00:00.000Z");
    }
}
