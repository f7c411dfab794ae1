//! The notification settings of a tenant at the time of a fact.

use crate::{
    notification::{Tier, preference::NotificationSettings},
    time::Timestamp,
};

/// The times at which notification settings of a tenant were last turned on; `None` if never.
///
/// The projector may lag behind the log when a setting is turned on. Facts from before that time then cause no
/// notifications, because people do not expect notifications about a time when they were off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SettingsTurnedOnAt {
    /// The time at which notifications were turned on.
    pub notifications: Option<Timestamp>,
    /// The time at which the advanced tier was turned on.
    pub advanced: Option<Timestamp>,
}

impl SettingsTurnedOnAt {
    /// The settings that apply to a fact of this time. `present` contains the current settings.
    #[must_use]
    pub fn settings_at(self, present: NotificationSettings, occurred_at: Timestamp) -> NotificationSettings {
        let was_off = |since: Option<Timestamp>| since.is_some_and(|since| occurred_at < since);
        match present {
            NotificationSettings::Disabled => NotificationSettings::Disabled,
            NotificationSettings::Enabled(_) if was_off(self.notifications) => NotificationSettings::Disabled,
            NotificationSettings::Enabled(Tier::Advanced) if was_off(self.advanced) => {
                NotificationSettings::Enabled(Tier::Standard)
            }
            NotificationSettings::Enabled(tier) => NotificationSettings::Enabled(tier),
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
        let (standard, advanced) =
            (NotificationSettings::Enabled(Tier::Standard), NotificationSettings::Enabled(Tier::Advanced));
        for (present, occurred, expected) in [
            (advanced, 9, NotificationSettings::Disabled),
            (standard, 9, NotificationSettings::Disabled),
            (advanced, 10, standard),
            (advanced, 19, standard),
            (advanced, 20, advanced),
            (standard, 20, standard),
            (NotificationSettings::Disabled, 20, NotificationSettings::Disabled),
        ] {
            assert_eq!(turned_on.settings_at(present, at(occurred)), expected, "{present:?} {occurred}");
            assert_eq!(SettingsTurnedOnAt::default().settings_at(present, at(occurred)), present);
        }
    }
}
