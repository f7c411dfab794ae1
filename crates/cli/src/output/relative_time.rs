//! Formats times relative to now, such as `5 min ago`.

use time::{Date, Duration, OffsetDateTime, format_description::well_known::Rfc3339};

/// Differences beyond this many days are shown as a date.
const MAX_DAYS: i64 = 30;

/// Parses a time as the server writes it.
pub(super) fn parse(text: &str) -> Option<OffsetDateTime> {
    // Rejects most other texts before parsing, because the function is called for every cell.
    let is_likely = text.len() >= 20 && text.as_bytes().get(10) == Some(&b'T');
    if is_likely { OffsetDateTime::parse(text, &Rfc3339).ok() } else { None }
}

/// Describes a time relative to another one.
pub(super) fn describe(time: OffsetDateTime, now: OffsetDateTime) -> String {
    let difference = now - time;
    let Some(amount) = amount(difference.abs()) else { return date(time.date()) };
    match (amount.as_str(), difference.is_negative()) {
        ("now", _) => amount,
        (_, true) => format!("in {amount}"),
        (_, false) => format!("{amount} ago"),
    }
}

/// The difference in its largest whole unit; `None` beyond [`MAX_DAYS`].
fn amount(difference: Duration) -> Option<String> {
    let seconds = difference.whole_seconds();
    let (minutes, hours, days) = (difference.whole_minutes(), difference.whole_hours(), difference.whole_days());
    Some(match () {
        () if seconds < 5 => "now".to_owned(),
        () if minutes < 1 => format!("{seconds} s"),
        () if hours < 1 => format!("{minutes} min"),
        () if days < 2 => format!("{hours} h"),
        () if days <= MAX_DAYS => format!("{days} days"),
        () => return None,
    })
}

fn date(date: Date) -> String {
    format!("{:04}-{:02}-{:02}", date.year(), u8::from(date.month()), date.day())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_times_by_their_largest_unit() {
        let now = parse("2026-03-31T12:00:00.5Z").unwrap();
        for (moment, expected) in [
            ("2026-03-31T12:00:00.4Z", "now"),
            ("2026-03-31T12:00:03Z", "now"),
            ("2026-03-31T11:59:10Z", "50 s ago"),
            ("2026-03-31T11:17:00Z", "43 min ago"),
            ("2026-03-31T15:00:01Z", "in 3 h"),
            ("2026-03-29T13:00:00Z", "47 h ago"),
            ("2026-03-29T11:00:00Z", "2 days ago"),
            ("2026-04-10T11:00:00Z", "in 9 days"),
            ("2025-12-24T11:00:00+02:00", "2025-12-24"),
        ] {
            assert_eq!(describe(parse(moment).unwrap(), now), expected, "{moment}");
        }
        for text in ["", "ticket-classifier", "2026-03-31", "2026-03-31T12:00:00 or so", "für 2026T-31T12:00:00Z"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
