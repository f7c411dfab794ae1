//! Digests: notifications of one category that a person receives in one message. A digest covers an hour or a day in
//! the person's time zone, or a burst.

use crate::time::Timestamp;
use jiff::{ToSpan as _, Zoned, tz::TimeZone};
use std::time::Duration;

/// The delay between the end of a digest's window and the time at which the digest is sent.
pub const DIGEST_GRACE: Duration = Duration::from_secs(60);
/// The maximum time between the decisions about a batch of notifications and their commit. It is shorter than
/// [`DIGEST_GRACE`], so that no line is added to a digest that was already sent.
pub const MAX_DECISION_TO_COMMIT_DELAY: Duration = Duration::from_secs(30);
const HOUR_MICROS: i64 = 60 * 60 * 1_000_000;
const SECOND_MICROS: i64 = 1_000_000;

/// How often a person receives the notifications of one category outside the inbox.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DigestFrequency {
    /// Each notification is sent individually.
    Off,
    /// One message for each hour of the recipient's time zone.
    Hourly,
    /// One message for each day of the recipient's time zone.
    Daily,
}

impl DigestFrequency {
    /// Every frequency.
    pub const ALL: [Self; 3] = [Self::Off, Self::Hourly, Self::Daily];

    /// The wire form, such as `off`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Hourly => "hourly",
            Self::Daily => "daily",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|frequency| frequency.as_str() == text)
    }
}

/// The reason why several notifications share one message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DigestKind {
    /// Too many notifications occurred within a few minutes (see [`crate::notification::burst`]).
    Burst,
    /// The recipient chose an hourly digest.
    Hourly,
    /// The recipient chose a daily digest.
    Daily,
}

impl DigestKind {
    /// The name in the database, such as `burst`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::Hourly => "hourly",
            Self::Daily => "daily",
        }
    }
}

/// The time range of one digest: a few minutes, or an hour or a day in the recipient's time zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DigestWindow {
    /// The reason why notifications in the window share a message.
    pub kind: DigestKind,
    /// The first instant of the window.
    pub start: Timestamp,
    /// The first instant after the window. The digest is sent shortly afterwards.
    pub end: Timestamp,
}

/// A time zone of the IANA database.
#[derive(Clone, Debug)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}

impl Zone {
    /// UTC, the time zone of people who chose none.
    #[must_use]
    pub fn utc() -> Self {
        Self { name: "UTC".to_owned(), zone: TimeZone::UTC }
    }

    /// Finds a time zone by its name, such as `Europe/Berlin`; `None` for an unknown name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let zone = TimeZone::get(name).ok()?;
        // The database ignores the case of names, so the zone keeps the spelling of the database.
        let name = zone.iana_name()?.to_owned();
        Some(Self { name, zone })
    }

    /// The name of the time zone, as the IANA database spells it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The window that contains a time; `None` without digests. Hours and days follow the clock of the time zone, so a
    /// day on which daylight saving time starts or ends has 23 or 25 hours.
    #[must_use]
    pub fn window(&self, frequency: DigestFrequency, at: Timestamp) -> Option<DigestWindow> {
        let micros = i64::try_from(at.micros()).ok()?;
        match frequency {
            DigestFrequency::Off => None,
            DigestFrequency::Hourly => self.hour(micros),
            DigestFrequency::Daily => {
                let zoned_time = jiff::Timestamp::from_microsecond(micros).ok()?.to_zoned(self.zone.clone());
                let start = zoned_time.start_of_day().ok()?;
                let end = start.checked_add(1.day()).ok()?.start_of_day().ok()?;
                Some(DigestWindow { kind: DigestKind::Daily, start: timestamp(&start)?, end: timestamp(&end)? })
            }
        }
    }

    /// The hour of the zone's clock that contains a time. Some zones differ from UTC by a fraction of an hour. If the
    /// offset of the zone changes, the current window ends, so that every time belongs to exactly one window. Such a
    /// window can be shorter than an hour.
    fn hour(&self, micros: i64) -> Option<DigestWindow> {
        let instant = jiff::Timestamp::from_microsecond(micros).ok()?;
        let offset = i64::from(self.zone.to_offset(instant).seconds()).checked_mul(SECOND_MICROS)?;
        let into_hour = micros.checked_add(offset)?.checked_rem_euclid(HOUR_MICROS)?;
        let start = micros.checked_sub(into_hour)?;
        let end = start.checked_add(HOUR_MICROS)?;
        let to_micros = |transition: jiff::tz::TimeZoneTransition<'_>| transition.timestamp().as_microsecond();
        // The iterator excludes a change at its start time, so the search starts one microsecond later.
        let search_start = jiff::Timestamp::from_microsecond(micros.checked_add(1)?).ok()?;
        let start = self.zone.preceding(search_start).next().map(to_micros).map_or(start, |last| last.max(start));
        let end = self.zone.following(instant).next().map(to_micros).map_or(end, |next| next.min(end));
        let (start, end) = (Timestamp::from_micros(start)?, Timestamp::from_micros(end)?);
        Some(DigestWindow { kind: DigestKind::Hourly, start, end })
    }
}

impl DigestWindow {
    /// The window that contains a time, if the time since 1970 is divided into windows of this length.
    pub(super) fn of_length(kind: DigestKind, length_micros: i64, at: Timestamp) -> Option<Self> {
        let micros = i64::try_from(at.micros()).ok()?;
        let start = micros.checked_sub(micros.checked_rem_euclid(length_micros)?)?;
        let end = start.checked_add(length_micros)?;
        Some(Self { kind, start: Timestamp::from_micros(start)?, end: Timestamp::from_micros(end)? })
    }

    /// The start of the window in milliseconds since 1970.
    #[must_use]
    pub fn start_millis(&self) -> u64 {
        millis(self.start)
    }

    /// The end of the window in milliseconds since 1970.
    #[must_use]
    pub fn end_millis(&self) -> u64 {
        millis(self.end)
    }
}

fn millis(at: Timestamp) -> u64 {
    u64::try_from(at.micros() / 1_000).unwrap_or(0)
}

fn timestamp(zoned_time: &Zoned) -> Option<Timestamp> {
    Timestamp::from_micros(zoned_time.timestamp().as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(zone: &str, frequency: DigestFrequency, at: &str) -> (String, String) {
        let window = Zone::parse(zone).unwrap().window(frequency, Timestamp::parse(at).unwrap()).unwrap();
        (window.start.to_string(), window.end.to_string())
    }

    #[test]
    fn days_follow_the_recipients_clock() {
        let day = |at| window("Europe/Berlin", DigestFrequency::Daily, at);
        let span = |start: &str, end: &str| (start.to_owned(), end.to_owned());
        assert_eq!(day("2026-11-27T22:59:59Z"), span("2026-11-26T23:00:00Z", "2026-11-27T23:00:00Z"));
        assert_eq!(day("2026-11-27T23:00:00Z"), span("2026-11-27T23:00:00Z", "2026-11-28T23:00:00Z"));
        // In Berlin, the days on which daylight saving time starts and ends have 23 and 25 hours.
        assert_eq!(day("2026-03-29T12:00:00Z"), span("2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"));
        assert_eq!(day("2026-10-25T12:00:00Z"), span("2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"));
        // In Beirut, the day on which daylight saving time starts has no midnight.
        let beirut = window("Asia/Beirut", DigestFrequency::Daily, "2026-03-29T12:00:00Z");
        assert_eq!(beirut.0, "2026-03-28T22:00:00Z");
    }

    #[test]
    fn hours_follow_the_recipients_clock() {
        for (zone, at, start, end) in [
            ("UTC", "2026-11-27T07:10:00Z", "2026-11-27T07:00:00Z", "2026-11-27T08:00:00Z"),
            // These zones are 5:30 and 5:45 hours ahead of UTC.
            ("Asia/Kolkata", "2026-11-27T07:29:59Z", "2026-11-27T06:30:00Z", "2026-11-27T07:30:00Z"),
            ("Asia/Kolkata", "2026-11-27T07:30:00Z", "2026-11-27T07:30:00Z", "2026-11-27T08:30:00Z"),
            ("Asia/Kathmandu", "2026-11-27T07:14:59Z", "2026-11-27T06:15:00Z", "2026-11-27T07:15:00Z"),
            ("Asia/Kathmandu", "2026-11-27T07:15:00Z", "2026-11-27T07:15:00Z", "2026-11-27T08:15:00Z"),
            // Daylight saving time ends at 2:00, and the clock then shows 1:30 again. The time from 1:30 to 2:00 occurs
            // twice.
            ("Australia/Lord_Howe", "2026-04-04T14:59:59Z", "2026-04-04T14:00:00Z", "2026-04-04T15:00:00Z"),
            ("Australia/Lord_Howe", "2026-04-04T15:00:00Z", "2026-04-04T15:00:00Z", "2026-04-04T15:30:00Z"),
            ("Australia/Lord_Howe", "2026-04-04T15:30:00Z", "2026-04-04T15:30:00Z", "2026-04-04T16:30:00Z"),
            // Daylight saving time starts at 2:00, and the clock then shows 2:30.
            ("Australia/Lord_Howe", "2026-10-03T15:29:59Z", "2026-10-03T14:30:00Z", "2026-10-03T15:30:00Z"),
            ("Australia/Lord_Howe", "2026-10-03T15:30:00Z", "2026-10-03T15:30:00Z", "2026-10-03T16:00:00Z"),
            ("Australia/Lord_Howe", "2026-10-03T16:00:00Z", "2026-10-03T16:00:00Z", "2026-10-03T17:00:00Z"),
            // The hour from 2:00 to 3:00 occurs twice, and each occurrence has its own window.
            ("Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"),
            ("Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"),
        ] {
            let range = window(zone, DigestFrequency::Hourly, at);
            assert_eq!(range, (start.to_owned(), end.to_owned()), "{zone} {at}");
        }
    }

    #[test]
    fn every_moment_lies_in_exactly_one_window() {
        for name in [
            "UTC",
            "Europe/Berlin",
            "America/St_Johns",
            "Asia/Kolkata",
            "Asia/Kathmandu",
            "Australia/Lord_Howe",
            "Pacific/Apia",
        ] {
            let zone = Zone::parse(name).unwrap();
            for frequency in [DigestFrequency::Hourly, DigestFrequency::Daily] {
                let mut at = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
                let end = Timestamp::parse("2027-01-01T00:00:00Z").unwrap();
                let mut previous: Option<DigestWindow> = None;
                while at < end {
                    let window = zone.window(frequency, at).unwrap();
                    assert!(window.start <= at && at < window.end, "{name} {window:?} {at}");
                    if let Some(previous) = previous.filter(|previous| previous.start != window.start) {
                        assert_eq!(previous.end, window.start, "{name}");
                    }
                    (previous, at) = (Some(window), at.plus(std::time::Duration::from_secs(1_500)));
                }
            }
        }
    }

    #[test]
    fn zones_have_names_of_the_database() {
        for name in ["", "Mars/Olympus", "Europe/Berlin; DROP", "../etc/passwd", "Local", "+02:00"] {
            assert!(Zone::parse(name).is_none(), "{name}");
        }
        assert_eq!(Zone::parse("europe/berlin").unwrap().name(), "Europe/Berlin");
        assert!(Zone::utc().window(DigestFrequency::Off, Timestamp::parse("2026-01-01T00:00:00Z").unwrap()).is_none());
        assert_eq!(Zone::parse("UTC"), Some(Zone::utc()));
    }
}
