//! Precedence of preferences: every combination, and generated settings that are compared with an independent
//! model.

use super::*;
use proptest::prelude::*;
use uuid::Uuid;

const CATEGORY: FactCategory = FactCategory::Incidents;
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

/// A set whose revision encodes its depth, so that a test can recognize which set decided.
fn set(depth: usize, settings: BTreeMap<(FactCategory, Channel), bool>) -> PreferenceSet {
    PreferenceSet(PreferenceSetRecord {
        preference_set_id: Uuid::from_u128(9).into(),
        principal: ActorRef::parse("user:ada").unwrap(),
        scope: scopes()[depth].clone(),
        settings,
        updated_at: stamp().at,
        revision: Revision::new(i64::try_from(depth).unwrap() + 10),
    })
}

fn profiles(settings: BTreeMap<(Role, FactCategory, Channel), bool>) -> DefaultProfiles {
    let (updated_at, updated_by) = (stamp().at, stamp().actor);
    DefaultProfiles(DefaultProfilesRecord { settings, updated_at, updated_by, revision: Revision::new(20) })
}

fn layers<'p>(
    sets: &'p [Option<PreferenceSet>; 4],
    profiles: &'p DefaultProfiles,
    roles: Roles,
) -> PreferenceLayers<'p> {
    let [environment, project, workspace, global] = sets.each_ref().map(Option::as_ref);
    PreferenceLayers { environment, project, workspace, global, profiles: Some(profiles), roles }
}

/// The precedence table of the specification. The narrowest explicit setting decides, then the profiles of two
/// roles (any `on` wins), then the fallback.
#[test]
fn every_combination_of_scopes_and_profiles_follows_the_precedence_table() {
    let mut cases = 0;
    for channel in [Channel::Portal, Channel::Webhook] {
        for combination in 0..3_usize.pow(6) {
            let digit = |place: u32| INHERIT_OFF_ON[combination / 3_usize.pow(place) % 3];
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
            for (tier, first) in [(Tier::Advanced, 0), (Tier::Standard, 2)] {
                let named = [
                    (explicit[0], "environment"),
                    (explicit[1], "project"),
                    (explicit[2], "workspace"),
                    (explicit[3], "global"),
                ];
                let by_scope = named[first..].iter().find_map(|(enabled, scope)| Some(((*enabled)?, *scope)));
                let by_profile = match (viewer, operator) {
                    (Some(true), _) | (_, Some(true)) => Some((true, "default_profile")),
                    (Some(false), _) | (_, Some(false)) => Some((false, "default_profile")),
                    (None, None) => None,
                };
                let expected = by_scope.or(by_profile).unwrap_or((channel == Channel::Portal, "fallback"));
                let got = layers(&sets, &profiles, roles).effective_preference(CATEGORY, channel, tier);
                assert_eq!(
                    (got.enabled, got.scope.as_str()),
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
    let nothing = profiles(BTreeMap::new());
    let layers = layers(&sets, &nothing, Roles::default());
    assert_eq!(layers.effective_preference(CATEGORY, Channel::Email, Tier::Standard).revision, Some(Revision::new(13)));
    assert_eq!(layers.effective_preference(CATEGORY, Channel::Portal, Tier::Standard).revision, None);
}

/// Every reason why a recipient receives a category on no channel, with the deciding scope that the record
/// contains.
#[test]
fn suppressed_decisions_name_the_reason_and_the_scope_that_decided() {
    let off = |depth| Some(set(depth, BTreeMap::from([((CATEGORY, Channel::Portal), false)])));
    let on = |depth| Some(set(depth, BTreeMap::from([((CATEGORY, Channel::Portal), true)])));
    let viewer: Roles = [Role::Viewer].into_iter().collect();
    let silent = profiles(BTreeMap::new());
    let off_by_default = profiles(BTreeMap::from([((Role::Viewer, CATEGORY, Channel::Portal), false)]));
    let standard = NotificationSettings::Enabled(Tier::Standard);
    let advanced = NotificationSettings::Enabled(Tier::Advanced);
    type Case<'c> =
        ([Option<PreferenceSet>; 4], &'c DefaultProfiles, NotificationSettings, Option<(&'c str, Option<&'c str>)>);
    let cases: [Case<'_>; 9] = [
        ([None, None, None, None], &silent, standard, None),
        ([None, None, None, off(3)], &silent, standard, Some(("preference_off", Some("global")))),
        ([None, None, off(2), on(3)], &silent, standard, Some(("preference_off", Some("workspace")))),
        ([None, None, on(2), off(3)], &silent, standard, None),
        ([None, None, None, None], &off_by_default, standard, Some(("default_profile_off", Some("default_profile")))),
        ([None, off(1), None, None], &silent, advanced, Some(("preference_off", Some("project")))),
        ([None, off(1), None, None], &silent, standard, None),
        ([on(0), None, None, off(3)], &silent, standard, Some(("capability_disabled", Some("environment")))),
        ([None, None, None, off(3)], &silent, NotificationSettings::Disabled, Some(("notifications_disabled", None))),
    ];
    for (number, (sets, profiles, switches, expected)) in cases.iter().enumerate() {
        let got = match layers(sets, profiles, viewer).decide_delivery(CATEGORY, *switches, |_| true) {
            DeliveryDecision::Channels(channels) => {
                assert_eq!(channels, [Channel::Portal], "case {number}");
                None
            }
            DeliveryDecision::Suppressed(why) => Some((why.reason.as_str(), why.scope.map(DecidingScope::as_str))),
        };
        assert_eq!(got, *expected, "case {number}");
    }
}

#[test]
fn another_channel_than_the_inbox_is_no_opt_out() {
    let settings = BTreeMap::from([((CATEGORY, Channel::Portal), false), ((CATEGORY, Channel::Paging), true)]);
    let sets = [None, None, None, Some(set(3, settings))];
    let silent = profiles(BTreeMap::new());
    let layers = layers(&sets, &silent, Roles::default());
    let decision = layers.decide_delivery(CATEGORY, NotificationSettings::Enabled(Tier::Standard), |_| true);
    assert_eq!(decision, DeliveryDecision::Channels(vec![Channel::Paging]));
}

/// If the inbox is off and the enabled channels have no receiver, the setting that turned the inbox off decides.
#[test]
fn channels_without_a_receiver_deliver_nothing() {
    let pair = |channel, enabled| ((CATEGORY, channel), enabled);
    let global = |settings: &[((FactCategory, Channel), bool)]| {
        [None, None, None, Some(set(3, settings.iter().copied().collect()))]
    };
    let off = pair(Channel::Portal, false);
    let (email, webhook) = (pair(Channel::Email, true), pair(Channel::Webhook, true));
    let viewer: Roles = [Role::Viewer].into_iter().collect();
    let silent = profiles(BTreeMap::new());
    let off_by_default = profiles(BTreeMap::from([((Role::Viewer, CATEGORY, Channel::Portal), false)]));
    let mut of_workload = global(&[off, email]);
    of_workload[1] = Some(set(1, BTreeMap::from([webhook])));
    let (global_off, project_on) = (("preference_off", "global", Channel::Portal), DecidingScope::Project.as_str());
    let by_default = ("default_profile_off", "default_profile", Channel::Portal);
    let (mail, both) = (&[Channel::Email][..], &[Channel::Email, Channel::Webhook][..]);
    for (sets, profiles, tier, why, unreachable) in [
        (global(&[off]), &silent, Tier::Standard, global_off, &[][..]),
        (global(&[off, email]), &silent, Tier::Standard, global_off, mail),
        (global(&[off, email, webhook]), &silent, Tier::Standard, global_off, both),
        (global(&[email]), &off_by_default, Tier::Standard, by_default, mail),
        // In the advanced tier, the setting of the workload enables the webhook.
        (of_workload.clone(), &silent, Tier::Standard, ("capability_disabled", project_on, Channel::Webhook), mail),
        (of_workload, &silent, Tier::Advanced, global_off, both),
    ] {
        let has_receiver = |channel| channel == Channel::Portal;
        let decided = layers(&sets, profiles, viewer).decide_delivery(
            CATEGORY,
            NotificationSettings::Enabled(tier),
            has_receiver,
        );
        let DeliveryDecision::Suppressed(found) = decided else { panic!("{sets:?} delivers") };
        let found_why = (found.reason.as_str(), found.scope.unwrap().as_str(), found.channel.unwrap());
        assert_eq!((found_why, &found.unreachable[..]), (why, unreachable), "{sets:?}");
        let with_mailbox = |channel| channel == Channel::Email;
        let decided = layers(&sets, profiles, viewer).decide_delivery(
            CATEGORY,
            NotificationSettings::Enabled(tier),
            with_mailbox,
        );
        assert_eq!(matches!(decided, DeliveryDecision::Channels(_)), unreachable.contains(&Channel::Email));
    }
}

#[test]
fn upserts_keep_other_settings_and_refuse_repetitions() {
    let ada = ActorRef::parse("user:ada").unwrap();
    let prefer = |channel, enabled| Preference { category: CATEGORY, channel, enabled };
    let id: PreferenceSetId = Uuid::from_u128(4).into();
    let set = |before: Option<&PreferenceSet>, preferences: &[Preference]| {
        PreferenceSet::upsert(id, before, &ada, PreferenceScope::Global, preferences, &stamp())
    };
    let first = set(None, &[prefer(Channel::Email, true)]).unwrap().unwrap();
    assert_eq!((first.decided_on, first.next.revision), (None, Revision::FIRST));
    let second = set(Some(&first.next), &[prefer(Channel::Portal, false)]).unwrap().unwrap();
    assert_eq!(second.next.preferences().count(), 2);
    assert_eq!(second.decided_on, Some(Revision::FIRST));
    assert!(set(Some(&second.next), &[prefer(Channel::Portal, false)]).unwrap().is_none(), "nothing changes");
    let repeated = set(None, &[prefer(Channel::Email, true), prefer(Channel::Email, false)]).unwrap_err();
    assert_eq!(repeated.position, 1);
}

/// A generated setting: the number of a scope or role, the category, the channel, and whether the channel is on.
type Drawn = (usize, usize, usize, bool);

fn drawn(owners: usize) -> impl Strategy<Value = Vec<Drawn>> {
    proptest::collection::vec((0..owners, 0..FactCategory::ALL.len(), 0..Channel::ALL.len(), any::<bool>()), 0..60)
}

/// The model: a list of rules that is searched from the most to the least specific rule. It does not use
/// preference sets.
fn model(settings: &[Drawn], defaults: &[Drawn], roles: &[bool], pair: (usize, usize), skip: usize) -> (bool, usize) {
    for scope in skip..4 {
        let last = settings
            .iter()
            .rev()
            .find(|(at, category, channel, _)| (*at, *category, *channel) == (scope, pair.0, pair.1));
        if let Some((.., enabled)) = last {
            return (*enabled, scope);
        }
    }
    let mut said = Vec::new();
    for (role, held) in roles.iter().enumerate() {
        let last = defaults
            .iter()
            .rev()
            .find(|(at, category, channel, _)| (*at, *category, *channel) == (role, pair.0, pair.1));
        said.extend(last.filter(|_| *held).map(|(.., enabled)| *enabled));
    }
    if said.is_empty() { (pair.1 == 0, 5) } else { (said.contains(&true), 4) }
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
            let own: BTreeMap<_, _> = settings
                .iter()
                .filter(|(scope, ..)| *scope == depth)
                .map(|(_, category, channel, on)| ((FactCategory::ALL[*category], Channel::ALL[*channel]), *on))
                .collect();
            (!own.is_empty()).then(|| set(depth, own))
        });
        let profiles = profiles(
            defaults
                .iter()
                .map(|(role, category, channel, on)| {
                    ((Role::ALL[*role], FactCategory::ALL[*category], Channel::ALL[*channel]), *on)
                })
                .collect(),
        );
        let held = Role::ALL.into_iter().zip(&roles).filter(|(_, held)| **held).map(|(role, _)| role).collect();
        let layers = layers(&sets, &profiles, held);
        let (tier, skip) = if advanced { (Tier::Advanced, 0) } else { (Tier::Standard, 2) };
        for (category, name) in FactCategory::ALL.into_iter().enumerate() {
            let explained = layers.explain(name, tier);
            let expected: Vec<(bool, DecidingScope)> = (0..Channel::ALL.len())
                .map(|channel| model(&settings, &defaults, &roles, (category, channel), skip))
                .map(|(enabled, scope)| (enabled, DecidingScope::ALL[scope]))
                .collect();
            let got: Vec<(bool, DecidingScope)> = explained.iter().map(|one| (one.enabled, one.scope)).collect();
            prop_assert_eq!(&got, &expected);
            // If one of the channels that the explanation shows as on has a receiver, the projector delivers on
            // exactly these channels.
            let on: Vec<Channel> = explained.iter().filter(|one| one.enabled).map(|one| one.channel).collect();
            let has_receiver = |channel: Channel| {
                channel == Channel::Portal || receivers[Channel::ALL.iter().position(|one| *one == channel).unwrap()]
            };
            let is_reached = on.iter().any(|channel| has_receiver(*channel));
            match layers.decide_delivery(name, NotificationSettings::Enabled(tier), has_receiver) {
                DeliveryDecision::Channels(channels) => prop_assert!(is_reached && channels == on),
                DeliveryDecision::Suppressed(why) => prop_assert!(!is_reached && why.unreachable == on),
            }
        }
    }
}
