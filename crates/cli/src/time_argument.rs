//! Parses a point in time on the command line: an RFC 3339 time, or a duration before now.

use std::{str::FromStr, time::Duration};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// A command-line argument for a point in time, as an RFC 3339 text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TimeArgument(String);

impl TimeArgument {
    /// The RFC 3339 text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses an RFC 3339 time, or a number with `s`, `m`, `h` or `d` before `now`.
    fn parse_at(text: &str, now: OffsetDateTime) -> Result<Self, String> {
        if OffsetDateTime::parse(text, &Rfc3339).is_ok() {
            return Ok(Self(text.to_owned()));
        }
        let malformed = || "a time is an RFC 3339 time, or a number with s, m, h or d, such as 2h".to_owned();
        let unit = text.chars().last().ok_or_else(malformed)?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            _ => return Err(malformed()),
        };
        let number = text.strip_suffix(unit).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        let number: u64 = number.and_then(|number| number.parse().ok()).ok_or_else(malformed)?;
        let time = number
            .checked_mul(seconds)
            .and_then(|total_seconds| now.checked_sub(Duration::from_secs(total_seconds).try_into().ok()?));
        let time = time.ok_or_else(|| "this time is too long ago".to_owned())?;
        let truncated = time.replace_millisecond(time.millisecond()).unwrap_or(time);
        truncated.format(&Rfc3339).map(Self).map_err(|_| "this time is too long ago".to_owned())
    }
}

impl FromStr for TimeArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse_at(text, OffsetDateTime::now_utc())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Result<String, String> {
        let now = OffsetDateTime::parse("2026-03-01T12:00:00.123456Z", &Rfc3339).unwrap();
        TimeArgument::parse_at(text, now).map(|time| time.as_str().to_owned())
    }

    #[test]
    fn parses_absolute_and_relative_times() {
        assert_eq!(at("2026-01-01T00:00:00+01:00").as_deref(), Ok("2026-01-01T00:00:00+01:00"));
        for (text, expected) in [
            ("90s", "2026-03-01T11:58:30.123Z"),
            ("5m", "2026-03-01T11:55:00.123Z"),
            ("2h", "2026-03-01T10:00:00.123Z"),
            ("7d", "2026-02-22T12:00:00.123Z"),
        ] {
            assert_eq!(at(text).as_deref(), Ok(expected), "{text}");
        }
        for invalid in
            ["", "h", "2", "-2h", "+2h", "2w", "1.5h", "yesterday", "99999999999d", "18446744073709551615d", "2ü"]
        {
            assert!(at(invalid).is_err(), "{invalid}");
        }
    }
}
