//! The times at which the notification settings of a tenant were last turned on. They determine the settings that
//! apply to a fact.

use crate::{
    notification::{Tier, preference::NotificationSettings},
    time::Timestamp,
};

/// The times at which the notification settings of a tenant were last turned on; `None` for a setting that never was.
///
/// When a setting is turned on, the projector may not have read earlier facts yet. Such facts cause no notifications,
/// because people do not expect notifications about a time when notifications were off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SettingsTurnedOnAt {
    /// The time at which notifications were last turned on; `None` if they never were.
    pub notifications: Option<Timestamp>,
    /// The time at which the advanced tier was last turned on; `None` if it never was.
    pub advanced: Option<Timestamp>,
}

impl SettingsTurnedOnAt {
    /// The settings that apply to a fact that occurred at this time. `current` are the tenant's settings now.
    #[must_use]
    pub fn settings_at(self, current: NotificationSettings, occurred_at: Timestamp) -> NotificationSettings {
        let was_off =
            |turned_on_at: Option<Timestamp>| turned_on_at.is_some_and(|turned_on_at| occurred_at < turned_on_at);
        match current {
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
    fn ignores_facts_from_before_a_setting_was_turned_on() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000).unwrap();
        let turned_on = SettingsTurnedOnAt { notifications: Some(at(10)), advanced: Some(at(20)) };
        let (standard, advanced) =
            (NotificationSettings::Enabled(Tier::Standard), NotificationSettings::Enabled(Tier::Advanced));
        for (current, occurred, expected) in [
            (advanced, 9, NotificationSettings::Disabled),
            (standard, 9, NotificationSettings::Disabled),
            (advanced, 10, standard),
            (advanced, 19, standard),
            (advanced, 20, advanced),
            (standard, 20, standard),
            (NotificationSettings::Disabled, 20, NotificationSettings::Disabled),
        ] {
            assert_eq!(turned_on.settings_at(current, at(occurred)), expected, "{current:?} {occurred}");
            assert_eq!(SettingsTurnedOnAt::default().settings_at(current, at(occurred)), current);
        }
    }
}
