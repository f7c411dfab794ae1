//! Timestamps: UTC with microsecond precision, as in PostgreSQL, formatted as RFC 3339 with `Z`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::fmt;
use time::{Duration, OffsetDateTime, Time, UtcOffset, format_description::well_known::Rfc3339};

/// A point in time. INVARIANT: the offset is UTC, and there is no fraction below a microsecond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timestamp(OffsetDateTime);

impl Timestamp {
    /// Truncates a time to the precision of the database. A response and a later read then contain the same time.
    #[must_use]
    pub fn new(datetime: OffsetDateTime) -> Self {
        let utc = datetime.to_offset(UtcOffset::UTC);
        let micros = utc.nanosecond() / 1_000 * 1_000;
        Self(utc.replace_nanosecond(micros).unwrap_or(utc))
    }

    /// Parses an RFC 3339 text; `None` for an invalid text, or a year that does not have four digits in UTC.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let datetime = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        let utc = datetime.checked_to_offset(UtcOffset::UTC)?;
        (0..=9999).contains(&utc.year()).then(|| Self::new(utc))
    }

    /// The timestamp in the type that database rows use.
    #[must_use]
    pub const fn to_datetime(self) -> OffsetDateTime {
        self.0
    }

    /// The timestamp plus a duration.
    #[must_use]
    pub fn plus(self, span: std::time::Duration) -> Self {
        let span = Duration::try_from(span).unwrap_or(Duration::MAX);
        Self(self.0.saturating_add(span))
    }

    /// The start of the timestamp's day, in UTC.
    #[must_use]
    pub fn midnight(self) -> Self {
        Self(self.0.replace_time(Time::MIDNIGHT))
    }

    /// The start of the next day, in UTC.
    #[must_use]
    pub fn next_midnight(self) -> Self {
        Self(self.midnight().0.saturating_add(Duration::DAY))
    }

    /// The timestamp minus a duration.
    #[must_use]
    pub fn minus(self, span: std::time::Duration) -> Self {
        let span = Duration::try_from(span).unwrap_or(Duration::MAX);
        Self(self.0.saturating_sub(span))
    }

    /// The number of microseconds since 1970; negative for earlier times.
    #[must_use]
    pub fn micros(self) -> i128 {
        self.0.unix_timestamp_nanos() / 1_000
    }

    /// The timestamp for a number of microseconds since 1970; `None` if the year is out of range.
    #[must_use]
    pub fn from_micros(micros: i64) -> Option<Self> {
        let nanos = i128::from(micros).saturating_mul(1_000);
        OffsetDateTime::from_unix_timestamp_nanos(nanos).ok().map(Self::new)
    }

    /// The time from this timestamp to a later one; zero if `later` is earlier, because a clock may have been set back.
    #[must_use]
    pub fn duration_until(self, later: Self) -> std::time::Duration {
        let micros = later.micros().saturating_sub(self.micros());
        std::time::Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A year above 9999 has no RFC 3339 form, but clocks and accepted inputs have no such year.
        self.0.format(&Rfc3339).map_err(|_| fmt::Error)?.fmt(formatter)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("expected an RFC 3339 timestamp"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_years_outside_four_digits_in_utc() {
        for text in ["9999-12-31T23:59:59-00:01", "9999-12-31T23:59:59-23:59", "0000-01-01T00:00:00+00:01", "", "1"] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
            assert!(serde_json::from_value::<Timestamp>(serde_json::json!(text)).is_err(), "{text}");
        }
        let last = Timestamp::parse("9999-12-31T23:59:59-00:00").unwrap();
        assert_eq!(last.to_string(), "9999-12-31T23:59:59Z");
        assert_eq!(Timestamp::parse("0000-01-01T00:00:00Z").unwrap().to_string(), "0000-01-01T00:00:00Z");
    }

    #[test]
    fn keeps_microseconds_and_utc() {
        let datetime = OffsetDateTime::parse("2026-11-21T12:00:00.123456789+02:00", &Rfc3339).unwrap();
        assert_eq!(Timestamp::new(datetime).to_string(), "2026-11-21T10:00:00.123456Z");
    }
}
