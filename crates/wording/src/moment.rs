//! Moments and their text.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
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

    /// Reads what [`Display`](fmt::Display) writes. The date is Howard Hinnant's `days_from_civil`.
    pub fn parse(text: &str) -> Option<Moment> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let [year, month, day] = numbers(date, '-')?;
        let [hour, minute, second] = numbers(time, ':')?;
        if !(1..=12).contains(&month) {
            return None;
        }
        let shifted = year - i64::from(month <= 2);
        let year_of_era = shifted.rem_euclid(400);
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = shifted.div_euclid(400) * 146_097 + day_of_era - 719_468;
        Some(Moment(days * 86_400 + hour * 3600 + minute * 60 + second))
    }

    /// How long ago it was at another moment, as kubectl writes it: `45s`, `12m`, `3h`, `5d`.
    pub fn age_at(self, now: Moment) -> String {
        match now.0.saturating_sub(self.0).max(0) {
            seconds @ 0..120 => format!("{seconds}s"),
            seconds @ 120..7200 => format!("{}m", seconds / 60),
            seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
            seconds => format!("{}d", seconds / 86_400),
        }
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

/// Three numbers of at most four digits.
fn numbers(text: &str, between: char) -> Option<[i64; 3]> {
    let number = |part: &str| if part.len() <= 4 { part.parse::<u16>().ok() } else { None };
    let numbers: Vec<i64> = text.split(between).map_while(number).map(i64::from).collect();
    numbers.try_into().ok()
}

impl fmt::Display for Moment {
    /// RFC 3339, in UTC: `2026-11-21T14:05:09Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, format_args!("Z"))
    }
}

/// In RFC 3339.
impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Moment, D::Error> {
        let text = String::deserialize(from)?;
        Moment::parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no moment")))
    }
}

/// A moment to the millisecond, so that the lines of several logs can be put in order.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    pub moment: Moment,
    pub millis: u32,
}

impl fmt::Display for Stamp {
    /// RFC 3339, in UTC: `2026-11-21T14:05:09.042Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.moment.write(f, format_args!(".{:03}Z", self.millis))
    }
}

impl From<SystemTime> for Stamp {
    fn from(time: SystemTime) -> Stamp {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Stamp { moment: time.into(), millis: since.subsec_millis() }
    }
}

impl From<SystemTime> for Moment {
    /// A moment before 1970 counts as 1970.
    fn from(time: SystemTime) -> Moment {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Moment {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Moment".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "A moment in RFC 3339." })
    }
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
            assert_eq!(Moment::parse(expect), Some(Moment(seconds)));
        }
        assert_eq!(Moment::from_nanos(-1), Moment(-1));
    }

    #[test]
    fn other_texts_are_no_moments() {
        for text in [
            "",
            "2024-02-29",
            "2024-02-29T23:59:59",
            "2024-02-29T23:59:59.042Z",
            "2024-13-01T00:00:00Z",
            "2024-00-01T00:00:00Z",
            "2024-02T23:59:59Z",
            "99999-01-01T00:00:00Z",
        ] {
            assert_eq!(Moment::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_stamp_has_three_digits_of_milliseconds() {
        let at = |moment, millis| Stamp { moment: Moment(moment), millis }.to_string();
        assert_eq!(at(1_709_251_199, 42), "2024-02-29T23:59:59.042Z");
        assert_eq!(at(1_709_251_200, 0), "2024-03-01T00:00:00.000Z");
    }
}
