//! Parses points in time, and formats durations, token counts and costs for people.

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
        let wrong = || "a time is an RFC 3339 time, or a number with s, m, h or d, such as 2h".to_owned();
        let unit = text.chars().last().ok_or_else(wrong)?;
        let seconds = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            _ => return Err(wrong()),
        };
        let number = text.strip_suffix(unit).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        let number: u64 = number.and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
        let before =
            number.checked_mul(seconds).and_then(|all| now.checked_sub(Duration::from_secs(all).try_into().ok()?));
        let before = before.ok_or_else(|| "this time is too long ago".to_owned())?;
        let whole = before.replace_millisecond(before.millisecond()).unwrap_or(before);
        whole.format(&Rfc3339).map(Self).map_err(|_| "this time is too long ago".to_owned())
    }
}

impl FromStr for TimeArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse_at(text, OffsetDateTime::now_utc())
    }
}

/// Formats a duration in its largest units.
pub(crate) fn milliseconds(ms: u64) -> String {
    match ms {
        0..=999 => format!("{ms} ms"),
        1_000..=59_999 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..=3_599_999 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// Formats the numbers of input and output tokens; `None` if both are unknown.
pub(crate) fn tokens(input: Option<u64>, output: Option<u64>) -> Option<String> {
    let text = |tokens: Option<u64>| tokens.map_or_else(|| "-".to_owned(), |tokens| tokens.to_string());
    (input.is_some() || output.is_some()).then(|| format!("{} in, {} out", text(input), text(output)))
}

/// Formats a cost from millionths of the currency in which the model's prices are configured.
pub(crate) fn cost(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
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
        for wrong in
            ["", "h", "2", "-2h", "+2h", "2w", "1.5h", "yesterday", "99999999999d", "18446744073709551615d", "2ü"]
        {
            assert!(at(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn prints_durations_tokens_and_costs() {
        for (ms, text) in
            [(0, "0 ms"), (999, "999 ms"), (1_260, "1.2 s"), (61_000, "1 min 1 s"), (3_720_000, "1 h 2 min")]
        {
            assert_eq!(milliseconds(ms), text);
        }
        assert_eq!(tokens(Some(12), None).as_deref(), Some("12 in, - out"));
        assert_eq!(tokens(None, None), None);
        assert_eq!((cost(1_250), cost(2_000_001)), ("0.001250".to_owned(), "2.000001".to_owned()));
    }
}
