//! The settings of a tenant at the time of a fact.

use crate::{
    notification::{Tier, preference::Switches},
    time::Timestamp,
};

/// When the notification settings of a tenant were last turned on; `None` if never.
///
/// A projector may be behind when a setting is turned on. Facts of the time before stay without notifications then, because
/// nobody expects a notification of a time in which they were off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SettingsTurnedOnAt {
    /// The setting of all notifications.
    pub notifications: Option<Timestamp>,
    /// The setting of the advanced tier.
    pub advanced: Option<Timestamp>,
}

impl SettingsTurnedOnAt {
    /// The settings for a fact of this time, where `present` are those of now.
    #[must_use]
    pub fn switches(self, present: Switches, occurred_at: Timestamp) -> Switches {
        let was_off = |since: Option<Timestamp>| since.is_some_and(|since| occurred_at < since);
        match present {
            Switches::Disabled => Switches::Disabled,
            Switches::Enabled(_) if was_off(self.notifications) => Switches::Disabled,
            Switches::Enabled(Tier::Advanced) if was_off(self.advanced) => Switches::Enabled(Tier::Standard),
            Switches::Enabled(tier) => Switches::Enabled(tier),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_covers_no_fact_of_the_time_before() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000).unwrap();
        let turned_on = SettingsTurnedOnAt { notifications: Some(at(10)), advanced: Some(at(20)) };
        let (standard, advanced) = (Switches::Enabled(Tier::Standard), Switches::Enabled(Tier::Advanced));
        for (present, occurred, expected) in [
            (advanced, 9, Switches::Disabled),
            (standard, 9, Switches::Disabled),
            (advanced, 10, standard),
            (advanced, 19, standard),
            (advanced, 20, advanced),
            (standard, 20, standard),
            (Switches::Disabled, 20, Switches::Disabled),
        ] {
            assert_eq!(turned_on.switches(present, at(occurred)), expected, "{present:?} {occurred}");
            assert_eq!(SettingsTurnedOnAt::default().switches(present, at(occurred)), present);
        }
    }
}
