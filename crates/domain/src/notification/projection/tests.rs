//! Tests of the projection of single facts.

mod destinations_and_mailboxes;

use super::*;
use crate::{
    access::{Grant, GrantScope, Rights, Role},
    audit::disclosed_detail::disclosed_detail,
    id::TenantId,
    notification::{
        burst::{self, BurstCounts},
        destination::DestinationScope,
        preference::{DecidingScope, DefaultPreferencesRecord, PreferenceSetRecord, SuppressionReason},
        recipient::MAX_RECIPIENTS,
        rule::base_rule_of_kind,
    },
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn actor(name: &str) -> ActorRef {
    ActorRef::parse(name).unwrap()
}

fn position() -> ResourcePosition {
    ResourcePosition::workspace(id(1).into(), id(2).into(), id(3).into()).for_workload(id(4).into())
}

fn at() -> Timestamp {
    Timestamp::parse("2026-11-27T07:10:00Z").unwrap()
}

fn denial(submitter: &str, number: u128) -> (NotifiableFact, SubjectContext) {
    let fact = NotifiableFact {
        index: 5,
        fact_id: id(0x0190_1234_5678_7000_8000_0000_0000_0000 + number).into(),
        kind: FactKind::ExecutionDenied,
        subject_kind: "execution".to_owned(),
        subject_id: id(50),
        workspace_id: Some(id(3).into()),
        actor: actor(submitter),
        request_id: id(6).into(),
        occurred_at: at(),
        categories: vec![NotificationCategory::Executions, NotificationCategory::ComplianceFindings],
        detail: Map::from_iter([("reason_code".to_owned(), json!("no_rule"))]),
    };
    let subject = SubjectContext {
        name: Some("refunds".to_owned()),
        owner: Some(actor("user:owner")),
        owner_team: vec![actor("user:member")],
        submitter: Some(actor(submitter)),
        author: None,
        workload_id: Some(id(4).into()),
        environment: Some("production".to_owned()),
        position: position(),
        announcement: None,
    };
    (fact, subject)
}

fn recipient_rights(roles: &[(&str, Role)]) -> RecipientRights {
    let scope = GrantScope::Workspace(id(3).into());
    let rights = roles.iter().map(|(name, role)| (actor(name), Rights::new(vec![Grant::of_role(*role, scope)])));
    RecipientRights { rights: rights.collect() }
}

fn default_receivers() -> CandidateReceivers {
    CandidateReceivers {
        sets: HashMap::new(),
        profiles: None,
        switches: NotificationSettings::Enabled(Tier::Standard),
        turned_on: SettingsTurnedOnAt::default(),
        tenant: id(1).into(),
        generation: 0,
        destinations: Vec::new(),
        people: HashMap::new(),
        mailboxes: HashSet::new(),
    }
}

/// Preferences that turn the inbox off for these categories, so that the person receives them on no channel.
fn opt_out(person: &str, categories: &[NotificationCategory]) -> (ActorRef, Vec<PreferenceSet>) {
    let settings = categories.iter().map(|category| ((*category, Channel::Portal), false)).collect();
    let set = PreferenceSet(PreferenceSetRecord {
        preference_set_id: id(8).into(),
        principal: actor(person),
        scope: PreferenceScope::Global,
        settings,
        updated_at: at(),
        revision: Revision::new(4),
    });
    (actor(person), vec![set])
}

fn names(projection: &Projection) -> Vec<String> {
    projection.notifications.iter().map(|new| new.notification.recipient.to_string()).collect()
}

#[test]
fn owner_submitter_and_acting_people_are_recipients_if_they_may_see_the_run() {
    let (fact, subject) = denial("user:ada", 0);
    let rights = recipient_rights(&[
        ("user:owner", Role::Viewer),
        ("user:member", Role::Viewer),
        ("user:operator", Role::Operator),
        ("user:author", Role::Author),
        ("group:ops", Role::Operator),
        ("service:bot", Role::Operator),
    ]);
    let projection = project(&fact, &subject, &rights, &default_receivers(), at());
    assert_eq!(names(&projection), ["user:owner", "user:member", "user:ada", "user:operator", "service:bot"]);
    let without_role = recipient_rights(&[("user:operator", Role::Operator)]);
    assert_eq!(
        names(&project(&fact, &subject, &without_role, &default_receivers(), at())),
        ["user:ada", "user:operator"]
    );
    let rights_in_other_workspace = RecipientRights {
        rights: BTreeMap::from([(
            actor("user:operator"),
            Rights::new(vec![Grant::of_role(Role::Operator, GrantScope::Workspace(id(99).into()))]),
        )]),
    };
    assert_eq!(names(&project(&fact, &subject, &rights_in_other_workspace, &default_receivers(), at())), ["user:ada"]);
}

#[test]
fn notifications_hold_slugs_codes_and_identifiers() {
    let (fact, subject) = denial("user:ada", 0);
    let projection = project(&fact, &subject, &RecipientRights::default(), &default_receivers(), at());
    let notification = &projection.notifications[0].notification;
    assert_eq!(notification.title, "A policy denied a run of `refunds` in `production`");
    assert_eq!(notification.body, format!("execution {}, reason no_rule, by user:ada", id(50)));
    assert_eq!((notification.category, notification.severity), (NotificationCategory::Executions, Severity::Warning));
    assert_eq!((notification.status, notification.log_index), (InboxStatus::Unread, 5));
}

#[test]
fn second_category_delivers_to_a_recipient_who_turned_the_first_one_off() {
    let (fact, subject) = denial("user:ada", 0);
    let sets = HashMap::from([opt_out("user:ada", &[NotificationCategory::Executions])]);
    let projection = project(
        &fact,
        &subject,
        &RecipientRights::default(),
        &CandidateReceivers { sets, ..default_receivers() },
        at(),
    );
    assert_eq!(projection.notifications[0].notification.category, NotificationCategory::ComplianceFindings);
    assert!(projection.suppressed.is_empty());
}

#[test]
fn opt_out_leaves_one_record_for_each_category_with_its_digest_in_a_fact() {
    let (fact, subject) = denial("user:ada", 0);
    let sets = HashMap::from([opt_out(
        "user:ada",
        &[NotificationCategory::Executions, NotificationCategory::ComplianceFindings],
    )]);
    let receivers = CandidateReceivers { sets, ..default_receivers() };
    let projection = project(&fact, &subject, &RecipientRights::default(), &receivers, at());
    assert!(projection.notifications.is_empty());
    let records: Vec<_> = projection
        .suppressed
        .iter()
        .map(|(decision, _)| (decision.category, decision.reason, decision.scope, decision.revision))
        .collect();
    let expected = (SuppressionReason::PreferenceOff, Some(DecidingScope::Global), Some(Revision::new(4)));
    assert_eq!(
        records,
        [
            (NotificationCategory::Executions, expected.0, expected.1, expected.2),
            (NotificationCategory::ComplianceFindings, expected.0, expected.1, expected.2)
        ]
    );
    for (decision, record) in &projection.suppressed {
        assert_eq!(record.detail["digest"], json!(decision.digest()));
        assert_eq!(record.fact_id, decision.suppression_fact_id());
        let disclosed = disclosed_detail(record.kind.as_str(), record.detail.clone());
        assert_eq!(disclosed.as_ref(), Some(&record.detail), "an auditor recomputes the leaf hash from it");
        assert!(record.categories.is_empty(), "the record must not cause notifications");
    }
    let repeated = project(&fact, &subject, &RecipientRights::default(), &receivers, at());
    let ids = |projection: &Projection| -> Vec<_> {
        projection.suppressed.iter().map(|(decision, fact)| (decision.suppressed_decision_id, fact.fact_id)).collect()
    };
    assert_eq!(ids(&projection), ids(&repeated), "a repeated projection writes the same rows");
}

#[test]
fn opt_out_of_reports_leaves_no_record() {
    let (mut fact, subject) = denial("user:ada", 0);
    fact.kind = FactKind::ExecutionEnded;
    fact.categories = vec![NotificationCategory::Reports];
    let sets = HashMap::from([opt_out("user:ada", &[NotificationCategory::Reports])]);
    let projection = project(
        &fact,
        &subject,
        &RecipientRights::default(),
        &CandidateReceivers { sets, ..default_receivers() },
        at(),
    );
    assert!(projection.notifications.is_empty() && projection.suppressed.is_empty());
}

#[test]
fn denials_of_guests_collapse_by_workload_and_hour() {
    let owner_rights = recipient_rights(&[("user:owner", Role::Viewer)]);
    let id_of = |submitter: &str, number, minutes: u64| {
        let (mut fact, subject) = denial(submitter, number);
        fact.occurred_at = at().plus(std::time::Duration::from_secs(60 * minutes));
        project(&fact, &subject, &owner_rights, &default_receivers(), at()).notifications[0]
            .notification
            .notification_id
    };
    for guest in ["anonymous", "share_link:7"] {
        assert_eq!(id_of(guest, 1, 0), id_of("anonymous", 2, 49), "one hour");
        assert_ne!(id_of(guest, 1, 0), id_of("anonymous", 2, 50), "the next hour");
    }
    assert_ne!(id_of("user:ada", 1, 0), id_of("user:ada", 2, 0));
}

#[test]
fn collapsed_denials_share_one_record() {
    let sets = HashMap::from([opt_out(
        "user:owner",
        &[NotificationCategory::Executions, NotificationCategory::ComplianceFindings],
    )]);
    let (owner_rights, receivers) =
        (recipient_rights(&[("user:owner", Role::Viewer)]), CandidateReceivers { sets, ..default_receivers() });
    let mut combined = Projection::default();
    for number in [1, 2] {
        let (fact, subject) = denial("anonymous", number);
        combined.append(project(&fact, &subject, &owner_rights, &receivers, at()));
    }
    let (first, _) = denial("anonymous", 1);
    let events: Vec<_> = combined.suppressed.iter().map(|(decision, _)| decision.event_id).collect();
    assert_eq!(events, [first.fact_id; 2], "one for each category");
}

#[test]
fn report_to_the_owner_asks_nobody_to_act() {
    let (mut fact, subject) = denial("user:ada", 0);
    fact.kind = FactKind::ExecutionEnded;
    let rights = recipient_rights(&[("user:owner", Role::Viewer), ("user:operator", Role::Operator)]);
    let notified = |fact: &NotifiableFact| {
        let notifications = project(fact, &subject, &rights, &default_receivers(), at()).notifications;
        let recipient_and_severity =
            |new: &NewNotification| (new.notification.recipient.to_string(), new.notification.severity);
        notifications.iter().map(recipient_and_severity).collect::<Vec<_>>()
    };
    fact.categories = vec![NotificationCategory::Executions, NotificationCategory::Reports];
    assert!(notified(&fact).contains(&("user:operator".to_owned(), Severity::Warning)));
    fact.categories = vec![NotificationCategory::Reports];
    let expected = ["user:owner", "user:ada"].map(|actor| (actor.to_owned(), Severity::Info));
    assert_eq!(notified(&fact), expected);
}

#[test]
fn facts_from_before_notifications_were_turned_on_cause_none() {
    let (fact, subject) = denial("user:ada", 0);
    let later = fact.occurred_at.plus(std::time::Duration::from_secs(1));
    let turned_on = SettingsTurnedOnAt { notifications: Some(later), advanced: None };
    let receivers = CandidateReceivers { turned_on, ..default_receivers() };
    assert!(project(&fact, &subject, &RecipientRights::default(), &receivers, at()).notifications.is_empty());
    let fact = NotifiableFact { occurred_at: later, ..fact };
    assert_eq!(project(&fact, &subject, &RecipientRights::default(), &receivers, at()).notifications.len(), 1);
}

#[test]
fn recipients_beyond_the_limit_are_counted() {
    let (fact, subject) = denial("user:ada", 0);
    let people: Vec<String> = (0..MAX_RECIPIENTS).map(|number| format!("user:op-{number}")).collect();
    let operators: Vec<(&str, Role)> = people.iter().map(|name| (name.as_str(), Role::Operator)).collect();
    let projection = project(&fact, &subject, &recipient_rights(&operators), &default_receivers(), at());
    assert_eq!((projection.notifications.len(), projection.omitted_recipients), (MAX_RECIPIENTS, 1));
    assert_eq!(projection.notifications[0].notification.recipient, actor("user:ada"), "the submitter comes first");
}

#[test]
fn default_profile_of_a_role_adds_a_channel() {
    let (fact, subject) = denial("user:ada", 0);
    let profiles = DefaultPreferences::restore(DefaultPreferencesRecord {
        settings: BTreeMap::from([((Role::Operator, NotificationCategory::Executions, Channel::Email), true)]),
        updated_at: at(),
        updated_by: actor("user:admin"),
        revision: Revision::FIRST,
    });
    let receivers = CandidateReceivers { profiles: Some(profiles), ..default_receivers() };
    let projection =
        project(&fact, &subject, &recipient_rights(&[("user:operator", Role::Operator)]), &receivers, at());
    let channels: Vec<_> = projection.notifications.iter().map(|new| new.channels.clone()).collect();
    assert_eq!(channels, [vec![Channel::Portal], vec![Channel::Portal, Channel::Email]]);
}

/// Preferences of `user:ada` that turn on notifications of the category `Executions` on these channels.
fn opt_in(channels: &[Channel]) -> (ActorRef, Vec<PreferenceSet>) {
    let (person, mut sets) = opt_out("user:ada", &[]);
    sets[0].0.settings = channels.iter().map(|channel| ((NotificationCategory::Executions, *channel), true)).collect();
    (person, sets)
}

fn destination(number: u128, scope: DestinationScope, channel: Channel) -> ActiveDestination {
    ActiveDestination { destination_id: id(number).into(), scope, destination_type: channel }
}

#[test]
fn facts_of_one_window_share_a_digest() {
    let sets = HashMap::from([opt_in(&[Channel::Email])]);
    let digest = std::collections::BTreeMap::from([(NotificationCategory::Executions, DigestFrequency::Hourly)]);
    let people = HashMap::from([(actor("user:ada"), ProfileSettings { digest, ..ProfileSettings::default() })]);
    let receivers = CandidateReceivers {
        sets,
        people,
        switches: NotificationSettings::Enabled(Tier::Advanced),
        ..default_receivers()
    };
    let digest_at = |number, time: &str| {
        let (fact, subject) = denial("user:ada", number);
        let at = Timestamp::parse(time).unwrap();
        let mut projection = project(&fact, &subject, &RecipientRights::default(), &receivers, at);
        assert_eq!(projection.notifications.len(), 1, "the inbox gets it at once");
        let delivery = projection.deliveries.remove(0);
        (delivery.delivery_id, delivery.digest.unwrap().end.to_string())
    };
    let first = digest_at(1, "2026-11-27T07:10:00Z");
    assert_eq!(first.1, "2026-11-27T08:00:00Z");
    assert_eq!(first, digest_at(2, "2026-11-27T07:59:59Z"));
    assert_ne!(first.0, digest_at(3, "2026-11-27T08:00:00Z").0);
    let (fact, subject) = denial("user:ada", 4);
    let later = CandidateReceivers { generation: 1, ..receivers };
    let at = Timestamp::parse("2026-11-27T07:10:00Z").unwrap();
    let after_a_pause = project(&fact, &subject, &RecipientRights::default(), &later, at);
    assert_ne!(first.0, after_a_pause.deliveries[0].delivery_id, "a setting went off and on");
}

#[test]
fn burst_is_collected_after_three_single_messages() {
    let sets = HashMap::from([opt_in(&[Channel::Email])]);
    let receivers =
        CandidateReceivers { sets, switches: NotificationSettings::Enabled(Tier::Advanced), ..default_receivers() };
    let at = Timestamp::parse("2026-11-27T07:11:00Z").unwrap();
    let window = burst::window(at).unwrap();
    assert_eq!(
        (window.start.to_string(), window.end.to_string()),
        ("2026-11-27T07:10:00Z".to_owned(), "2026-11-27T07:15:00Z".to_owned())
    );
    let run = |queued_before: u32| {
        let key = (actor("user:ada"), Channel::Email, NotificationCategory::Executions);
        let mut counts = BurstCounts::new(receivers.tenant, 0, window, HashMap::from([(key, queued_before)]));
        let mut all_deliveries = Vec::new();
        for number in 1..=6 {
            let (fact, subject) = denial("user:ada", number);
            let mut deliveries = project(&fact, &subject, &RecipientRights::default(), &receivers, at).deliveries;
            counts.combine_excess_deliveries(&mut deliveries);
            all_deliveries.extend(deliveries);
        }
        all_deliveries
    };
    let all_deliveries = run(0);
    assert!(all_deliveries[..3].iter().all(|delivery| delivery.digest.is_none() && !delivery.requires_advanced_tier));
    assert!(
        all_deliveries[3..].iter().all(|delivery| delivery.digest == Some(window) && delivery.requires_advanced_tier)
    );
    assert!(
        all_deliveries[3..].windows(2).all(|pair| pair[0].delivery_id == pair[1].delivery_id),
        "one message for the rest"
    );
    assert!(all_deliveries[3..].windows(2).all(|pair| pair[0].event != pair[1].event), "with a line each");
    assert_eq!(run(2).iter().filter(|delivery| delivery.digest.is_none()).count(), 1, "earlier batches count");
}

#[test]
fn deliveries_by_advanced_preferences_require_the_advanced_tier() {
    let (fact, subject) = denial("user:ada", 0);
    let (person, mut sets) = opt_in(&[]);
    let mut workload_set = sets[0].clone();
    workload_set.0.scope = PreferenceScope::Project(subject.workload_id.unwrap());
    workload_set.0.settings = [((NotificationCategory::Executions, Channel::Webhook), true)].into();
    sets.push(workload_set);
    let receivers = CandidateReceivers {
        sets: HashMap::from([(person, sets)]),
        switches: NotificationSettings::Enabled(Tier::Advanced),
        destinations: vec![destination(20, DestinationScope::Organization, Channel::Webhook)],
        ..default_receivers()
    };
    let projection = project(&fact, &subject, &RecipientRights::default(), &receivers, at());
    assert_eq!(
        projection.deliveries.iter().map(|delivery| delivery.requires_advanced_tier).collect::<Vec<_>>(),
        [true]
    );
    let global_receivers = CandidateReceivers { sets: HashMap::from([opt_in(&[Channel::Webhook])]), ..receivers };
    let projection = project(&fact, &subject, &RecipientRights::default(), &global_receivers, at());
    assert_eq!(
        projection.deliveries.iter().map(|delivery| delivery.requires_advanced_tier).collect::<Vec<_>>(),
        [false]
    );
}

#[test]
fn announcements_reach_their_audience_with_their_text() {
    let (mut fact, mut subject) = denial("user:ada", 0);
    (fact.kind, fact.categories) = (FactKind::AnnouncementMade, vec![NotificationCategory::Reports]);
    subject.announcement = Some(AnnouncementContext {
        roles: Vec::new(),
        title: "Maintenance".to_owned(),
        body: "Tonight.".to_owned(),
        audience: vec![actor("user:bob"), actor("group:ops")],
    });
    // Bob has turned on the organization's chat and his mailbox for reports.
    let (_, mut sets) = opt_out("user:bob", &[]);
    let channels = [Channel::ChatA, Channel::Email];
    sets[0].0.settings = channels.map(|channel| ((NotificationCategory::Reports, channel), true)).into();
    let receivers = CandidateReceivers {
        sets: HashMap::from([(actor("user:bob"), sets)]),
        switches: NotificationSettings::Enabled(Tier::Advanced),
        destinations: vec![destination(20, DestinationScope::Organization, Channel::ChatA)],
        ..default_receivers()
    };
    let projection = project(&fact, &subject, &RecipientRights::default(), &receivers, at());
    assert_eq!(names(&projection), ["user:bob"]);
    let channels: Vec<_> =
        projection.deliveries.iter().map(|delivery| (delivery.channel, delivery.requires_advanced_tier)).collect();
    assert_eq!(channels, [(Channel::Email, true)], "not everybody who reads the chat is in the audience");
    let notification = &projection.notifications[0].notification;
    assert_eq!((notification.title.as_str(), notification.body.as_str()), ("Maintenance", "Tonight."));
}

/// A fact of a kind without a rule causes no notifications, and every rule names at least one category.
#[test]
fn rules_cover_every_category() {
    let covered: BTreeSet<NotificationCategory> = FactKind::ALL
        .iter()
        .filter_map(|kind| base_rule_of_kind(*kind))
        .inspect(|rule| assert!(!rule.categories.is_empty()))
        .flat_map(|rule| rule.categories.iter().copied())
        .collect();
    assert_eq!(covered, NotificationCategory::ALL.into());
    let tenant = TenantId::from(id(1));
    let (mut fact, subject) = denial("user:ada", 0);
    fact.kind = FactKind::ReleaseCreated;
    let admin = Rights::new(vec![Grant::of_role(Role::TenantAdmin, GrantScope::Tenant(tenant))]);
    let admin_rights = RecipientRights { rights: BTreeMap::from([(actor("user:admin"), admin)]) };
    assert!(project(&fact, &subject, &admin_rights, &default_receivers(), at()).notifications.is_empty());
}

#[test]
fn texts_name_the_actor_to_those_who_may_see_the_subject() {
    let (mut fact, subject) = denial("user:submitter", 1);
    fact.actor = actor("user:caller");
    let rights = recipient_rights(&[
        ("user:owner", Role::Viewer),
        ("user:member", Role::Viewer),
        ("user:submitter", Role::RuntimeUser),
    ]);
    let rule = base_rule_of_kind(FactKind::ExecutionDenied).unwrap();
    let may_see = |name: &str| rights.rights[&actor(name)].allow(rule.view_permission, &subject.position);
    let projection = project(&fact, &subject, &rights, &default_receivers(), at());
    assert!(projection.notifications.len() >= 3, "{:?}", names(&projection));
    let id = fact.subject_id;
    for NewNotification { notification, .. } in &projection.notifications {
        let name = notification.recipient.to_string();
        let names_actor = notification.body.ends_with(", by user:caller");
        assert_eq!(names_actor, may_see(&name), "{name}: {}", notification.body);
        let workspace = fact.workspace_id.unwrap();
        assert_eq!(notification.link, Some(format!("/console/runs/{id}?workspace={workspace}")));
    }
    for guest in ["anonymous", "share_link:0190f000-0000-7000-8000-000000000001", "system:sequencer"] {
        fact.actor = actor(guest);
        let projection = project(&fact, &subject, &rights, &default_receivers(), at());
        assert!(projection.notifications.iter().all(|new| !new.notification.body.contains("by ")), "{guest}");
    }
}
