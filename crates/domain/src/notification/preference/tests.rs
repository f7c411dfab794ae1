//! Tests of the precedence of preferences: every combination, and generated settings that are compared with an
//! independent model.

use super::*;
use proptest::prelude::*;
use uuid::Uuid;

const CATEGORY: NotificationCategory = NotificationCategory::Incidents;
const INHERIT_OFF_ON: [Option<bool>; 3] = [None, Some(false), Some(true)];

fn workload() -> WorkloadId {
    Uuid::from_u128(7).into()
}

fn scopes() -> [PreferenceScope; 4] {
    [
        PreferenceScope::Environment(workload(), Slug::parse("production").unwrap()),
        PreferenceScope::Project(workload()),
        PreferenceScope::Workspace(Uuid::from_u128(3).into()),
        PreferenceScope::Global,
    ]
}

fn stamp() -> Stamp {
    Stamp {
        fact_id: Uuid::from_u128(1).into(),
        at: Timestamp::parse("2026-11-27T07:00:00Z").unwrap(),
        actor: ActorRef::parse("user:ada").unwrap(),
        request_id: Uuid::from_u128(2).into(),
    }
}

/// A preference set whose revision is its depth, so that a test recognizes the set that decided.
fn set(depth: usize, settings: BTreeMap<(NotificationCategory, Channel), bool>) -> PreferenceSet {
    PreferenceSet(PreferenceSetRecord {
        preference_set_id: Uuid::from_u128(9).into(),
        principal: ActorRef::parse("user:ada").unwrap(),
        scope: scopes()[depth].clone(),
        settings,
        updated_at: stamp().at,
        revision: Revision::new(i64::try_from(depth).unwrap() + 10),
    })
}

fn profiles(settings: BTreeMap<(Role, NotificationCategory, Channel), bool>) -> DefaultPreferences {
    let (updated_at, updated_by) = (stamp().at, stamp().actor);
    DefaultPreferences(DefaultPreferencesRecord { settings, updated_at, updated_by, revision: Revision::new(20) })
}

fn layers<'p>(
    sets: &'p [Option<PreferenceSet>; 4],
    profiles: &'p DefaultPreferences,
    roles: Roles,
) -> PreferenceLayers<'p> {
    let [environment, project, workspace, global] = sets.each_ref().map(Option::as_ref);
    PreferenceLayers { environment, project, workspace, global, profiles: Some(profiles), roles }
}

/// The precedence table of the specification. The narrowest explicit setting decides, then the default profiles of two
/// roles (one `on` is enough), then the fallback.
#[test]
fn every_combination_of_scopes_and_profiles_follows_the_precedence_table() {
    let mut cases = 0;
    for channel in [Channel::Portal, Channel::Webhook] {
        for combination in 0..3_usize.pow(6) {
            let digit = |index: u32| INHERIT_OFF_ON[combination / 3_usize.pow(index) % 3];
            let explicit = [digit(0), digit(1), digit(2), digit(3)];
            let (viewer, operator) = (digit(4), digit(5));
            let sets: [Option<PreferenceSet>; 4] = std::array::from_fn(|depth| {
                explicit[depth].map(|enabled| set(depth, BTreeMap::from([((CATEGORY, channel), enabled)])))
            });
            let defaults = [(Role::Viewer, viewer), (Role::Operator, operator), (Role::Auditor, Some(true))];
            let defaults = defaults
                .into_iter()
                .filter_map(|(role, enabled)| Some(((role, CATEGORY, channel), enabled?)))
                .collect();
            let profiles = profiles(defaults);
            let roles = [Role::Viewer, Role::Operator].into_iter().collect();
            for (tier, first_scope) in [(Tier::Advanced, 0), (Tier::Standard, 2)] {
                let settings_by_scope = [
                    (explicit[0], "environment"),
                    (explicit[1], "project"),
                    (explicit[2], "workspace"),
                    (explicit[3], "global"),
                ];
                let by_scope =
                    settings_by_scope[first_scope..].iter().find_map(|(enabled, scope)| Some(((*enabled)?, *scope)));
                let by_profile = match (viewer, operator) {
                    (Some(true), _) | (_, Some(true)) => Some((true, "default_profile")),
                    (Some(false), _) | (_, Some(false)) => Some((false, "default_profile")),
                    (None, None) => None,
                };
                let expected = by_scope.or(by_profile).unwrap_or((channel == Channel::Portal, "fallback"));
                let actual = layers(&sets, &profiles, roles).effective_preference(CATEGORY, channel, tier);
                assert_eq!(
                    (actual.enabled, actual.scope.as_str()),
                    expected,
                    "{explicit:?} {viewer:?} {operator:?} {tier:?}"
                );
                cases += 1;
            }
        }
    }
    assert_eq!(cases, 2 * 729 * 2);
}

#[test]
fn effective_preference_names_the_revision_that_decided() {
    let sets = [None, None, None, Some(set(3, BTreeMap::from([((CATEGORY, Channel::Email), true)])))];
    let no_defaults = profiles(BTreeMap::new());
    let layers = layers(&sets, &no_defaults, Roles::default());
    assert_eq!(layers.effective_preference(CATEGORY, Channel::Email, Tier::Standard).revision, Some(Revision::new(13)));
    assert_eq!(layers.effective_preference(CATEGORY, Channel::Portal, Tier::Standard).revision, None);
}

/// Every reason for which a recipient receives a category on no channel, with the deciding scope in the record.
#[test]
fn suppressed_decisions_name_the_reason_and_the_scope_that_decided() {
    let inbox_off = |depth| Some(set(depth, BTreeMap::from([((CATEGORY, Channel::Portal), false)])));
    let inbox_on = |depth| Some(set(depth, BTreeMap::from([((CATEGORY, Channel::Portal), true)])));
    let viewer: Roles = [Role::Viewer].into_iter().collect();
    let no_defaults = profiles(BTreeMap::new());
    let off_by_default = profiles(BTreeMap::from([((Role::Viewer, CATEGORY, Channel::Portal), false)]));
    let standard = NotificationSettings::Enabled(Tier::Standard);
    let advanced = NotificationSettings::Enabled(Tier::Advanced);
    type Case<'c> =
        ([Option<PreferenceSet>; 4], &'c DefaultPreferences, NotificationSettings, Option<(&'c str, Option<&'c str>)>);
    let cases: [Case<'_>; 9] = [
        ([None, None, None, None], &no_defaults, standard, None),
        ([None, None, None, inbox_off(3)], &no_defaults, standard, Some(("preference_off", Some("global")))),
        ([None, None, inbox_off(2), inbox_on(3)], &no_defaults, standard, Some(("preference_off", Some("workspace")))),
        ([None, None, inbox_on(2), inbox_off(3)], &no_defaults, standard, None),
        ([None, None, None, None], &off_by_default, standard, Some(("default_profile_off", Some("default_profile")))),
        ([None, inbox_off(1), None, None], &no_defaults, advanced, Some(("preference_off", Some("project")))),
        ([None, inbox_off(1), None, None], &no_defaults, standard, None),
        (
            [inbox_on(0), None, None, inbox_off(3)],
            &no_defaults,
            standard,
            Some(("capability_disabled", Some("environment"))),
        ),
        (
            [None, None, None, inbox_off(3)],
            &no_defaults,
            NotificationSettings::Disabled,
            Some(("notifications_disabled", None)),
        ),
    ];
    for (number, (sets, profiles, settings, expected)) in cases.iter().enumerate() {
        let actual = match layers(sets, profiles, viewer).decide_delivery(CATEGORY, *settings, |_| true) {
            DeliveryDecision::Channels(channels) => {
                assert_eq!(channels, [Channel::Portal], "case {number}");
                None
            }
            DeliveryDecision::Suppressed(suppression) => {
                Some((suppression.reason.as_str(), suppression.scope.map(DecidingScope::as_str)))
            }
        };
        assert_eq!(actual, *expected, "case {number}");
    }
}

#[test]
fn another_channel_than_the_inbox_is_no_opt_out() {
    let settings = BTreeMap::from([((CATEGORY, Channel::Portal), false), ((CATEGORY, Channel::Paging), true)]);
    let sets = [None, None, None, Some(set(3, settings))];
    let no_defaults = profiles(BTreeMap::new());
    let layers = layers(&sets, &no_defaults, Roles::default());
    let decision = layers.decide_delivery(CATEGORY, NotificationSettings::Enabled(Tier::Standard), |_| true);
    assert_eq!(decision, DeliveryDecision::Channels(vec![Channel::Paging]));
}

/// If the enabled channels have no receiver, the setting that turned the inbox off is the deciding one.
#[test]
fn channels_without_a_receiver_deliver_nothing() {
    let pair = |channel, enabled| ((CATEGORY, channel), enabled);
    let global = |settings: &[((NotificationCategory, Channel), bool)]| {
        [None, None, None, Some(set(3, settings.iter().copied().collect()))]
    };
    let inbox_off = pair(Channel::Portal, false);
    let (email, webhook) = (pair(Channel::Email, true), pair(Channel::Webhook, true));
    let viewer: Roles = [Role::Viewer].into_iter().collect();
    let no_defaults = profiles(BTreeMap::new());
    let off_by_default = profiles(BTreeMap::from([((Role::Viewer, CATEGORY, Channel::Portal), false)]));
    let mut with_workload_setting = global(&[inbox_off, email]);
    with_workload_setting[1] = Some(set(1, BTreeMap::from([webhook])));
    let (global_off, project_on) = (("preference_off", "global", Channel::Portal), DecidingScope::Project.as_str());
    let default_off = ("default_profile_off", "default_profile", Channel::Portal);
    let (email_only, email_and_webhook) = (&[Channel::Email][..], &[Channel::Email, Channel::Webhook][..]);
    for (sets, profiles, tier, expected_reason, unreachable) in [
        (global(&[inbox_off]), &no_defaults, Tier::Standard, global_off, &[][..]),
        (global(&[inbox_off, email]), &no_defaults, Tier::Standard, global_off, email_only),
        (global(&[inbox_off, email, webhook]), &no_defaults, Tier::Standard, global_off, email_and_webhook),
        (global(&[email]), &off_by_default, Tier::Standard, default_off, email_only),
        // The setting for the workload would turn the webhook on, but only in the advanced tier.
        (
            with_workload_setting.clone(),
            &no_defaults,
            Tier::Standard,
            ("capability_disabled", project_on, Channel::Webhook),
            email_only,
        ),
        (with_workload_setting, &no_defaults, Tier::Advanced, global_off, email_and_webhook),
    ] {
        let has_receiver = |channel| channel == Channel::Portal;
        let decision = layers(&sets, profiles, viewer).decide_delivery(
            CATEGORY,
            NotificationSettings::Enabled(tier),
            has_receiver,
        );
        let DeliveryDecision::Suppressed(suppression) = decision else { panic!("{sets:?} delivers") };
        let reason = (suppression.reason.as_str(), suppression.scope.unwrap().as_str(), suppression.channel.unwrap());
        assert_eq!((reason, &suppression.unreachable[..]), (expected_reason, unreachable), "{sets:?}");
        let with_mailbox = |channel| channel == Channel::Email;
        let decision = layers(&sets, profiles, viewer).decide_delivery(
            CATEGORY,
            NotificationSettings::Enabled(tier),
            with_mailbox,
        );
        assert_eq!(matches!(decision, DeliveryDecision::Channels(_)), unreachable.contains(&Channel::Email));
    }
}

#[test]
fn upserts_keep_other_settings_and_refuse_repetitions() {
    let ada = ActorRef::parse("user:ada").unwrap();
    let prefer = |channel, enabled| Preference { category: CATEGORY, channel, enabled };
    let id: PreferenceSetId = Uuid::from_u128(4).into();
    let set = |previous: Option<&PreferenceSet>, preferences: &[Preference]| {
        PreferenceSet::upsert(id, previous, &ada, PreferenceScope::Global, preferences, &stamp())
    };
    let first = set(None, &[prefer(Channel::Email, true)]).unwrap().unwrap();
    assert_eq!((first.expected_revision, first.next.revision), (None, Revision::FIRST));
    let second = set(Some(&first.next), &[prefer(Channel::Portal, false)]).unwrap().unwrap();
    assert_eq!(second.next.preferences().count(), 2);
    assert_eq!(second.expected_revision, Some(Revision::FIRST));
    assert!(set(Some(&second.next), &[prefer(Channel::Portal, false)]).unwrap().is_none(), "nothing changes");
    let repeated = set(None, &[prefer(Channel::Email, true), prefer(Channel::Email, false)]).unwrap_err();
    assert_eq!(repeated.position, 1);
}

/// A generated setting: the index of a scope or role, the index of the category, the index of the channel, and whether
/// the channel is on.
type Drawn = (usize, usize, usize, bool);

fn drawn(owners: usize) -> impl Strategy<Value = Vec<Drawn>> {
    proptest::collection::vec(
        (0..owners, 0..NotificationCategory::ALL.len(), 0..Channel::ALL.len(), any::<bool>()),
        0..60,
    )
}

/// The independent model: a list of rules, searched from the most to the least specific one. It does not use preference
/// sets.
fn model(settings: &[Drawn], defaults: &[Drawn], roles: &[bool], pair: (usize, usize), skip: usize) -> (bool, usize) {
    for scope in skip..4 {
        let last = settings
            .iter()
            .rev()
            .find(|(owner, category, channel, _)| (*owner, *category, *channel) == (scope, pair.0, pair.1));
        if let Some((.., enabled)) = last {
            return (*enabled, scope);
        }
    }
    let mut role_settings = Vec::new();
    for (role, is_held) in roles.iter().enumerate() {
        let last = defaults
            .iter()
            .rev()
            .find(|(owner, category, channel, _)| (*owner, *category, *channel) == (role, pair.0, pair.1));
        role_settings.extend(last.filter(|_| *is_held).map(|(.., enabled)| *enabled));
    }
    if role_settings.is_empty() { (pair.1 == 0, 5) } else { (role_settings.contains(&true), 4) }
}

proptest! {
    #[test]
    fn effective_preferences_agree_with_the_model(
        settings in drawn(4),
        defaults in drawn(Role::ALL.len()),
        roles in proptest::collection::vec(any::<bool>(), Role::ALL.len()),
        advanced in any::<bool>(),
        receivers in proptest::collection::vec(any::<bool>(), Channel::ALL.len()),
    ) {
        let sets: [Option<PreferenceSet>; 4] = std::array::from_fn(|depth| {
            let scope_settings: BTreeMap<_, _> = settings
                .iter()
                .filter(|(scope, ..)| *scope == depth)
                .map(|(_, category, channel, enabled)| {
                    ((NotificationCategory::ALL[*category], Channel::ALL[*channel]), *enabled)
                })
                .collect();
            (!scope_settings.is_empty()).then(|| set(depth, scope_settings))
        });
        let profiles = profiles(
            defaults
                .iter()
                .map(|(role, category, channel, enabled)| {
                    ((Role::ALL[*role], NotificationCategory::ALL[*category], Channel::ALL[*channel]), *enabled)
                })
                .collect(),
        );
        let held_roles =
            Role::ALL.into_iter().zip(&roles).filter(|(_, is_held)| **is_held).map(|(role, _)| role).collect();
        let layers = layers(&sets, &profiles, held_roles);
        let (tier, skip) = if advanced { (Tier::Advanced, 0) } else { (Tier::Standard, 2) };
        for (category, name) in NotificationCategory::ALL.into_iter().enumerate() {
            let explained = layers.effective_preferences(name, tier);
            let expected: Vec<(bool, DecidingScope)> = (0..Channel::ALL.len())
                .map(|channel| model(&settings, &defaults, &roles, (category, channel), skip))
                .map(|(enabled, scope)| (enabled, DecidingScope::ALL[scope]))
                .collect();
            let actual: Vec<(bool, DecidingScope)> =
                explained.iter().map(|preference| (preference.enabled, preference.scope)).collect();
            prop_assert_eq!(&actual, &expected);
            // If one of the explained channels that are on has a receiver, the projector delivers on exactly these
            // channels.
            let enabled_channels: Vec<Channel> = explained
                .iter()
                .filter(|preference| preference.enabled)
                .map(|preference| preference.channel)
                .collect();
            let has_receiver = |channel: Channel| {
                let index = Channel::ALL.iter().position(|candidate| *candidate == channel).unwrap();
                channel == Channel::Portal || receivers[index]
            };
            let is_reached = enabled_channels.iter().any(|channel| has_receiver(*channel));
            match layers.decide_delivery(name, NotificationSettings::Enabled(tier), has_receiver) {
                DeliveryDecision::Channels(channels) => prop_assert!(is_reached && channels == enabled_channels),
                DeliveryDecision::Suppressed(suppression) => {
                    prop_assert!(!is_reached && suppression.unreachable == enabled_channels);
                }
            }
        }
    }
}
