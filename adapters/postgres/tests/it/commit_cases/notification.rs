//! Commits of notifications: projection of a fact, statuses, preferences and default profiles.

use super::{Decision, store};
use crate::fixture::{Fixture, actor, fresh, now, scope, stamp};
use fairway_domain::{
    access::{ActorRef, ResourcePosition, Role},
    audit::{FactKind, Stamp},
    id::DeliveryId,
    notification::{
        Channel, Tier,
        announcement::{Announcement, Audience},
        delivery::{DeliveryTarget, NewDelivery},
        derived_identifier::EventKey,
        destination::{Destination, DestinationPatch, DestinationScope, NewDestination},
        inbox::{InboxStatus, Notification, inbox_all_read_fact},
        ports::{
            AnnouncementStore, DeliveryStore, DestinationStore, InboxStore, PreferenceStore, ProfileStore,
            ProjectionStore,
        },
        preference::{
            DefaultPreference, DefaultPreferences, NotificationSettings, Preference, PreferenceScope, PreferenceSet,
            PreferenceSetRecord,
        },
        profile::{NotificationProfile, ProfileSettings},
        projection::{CandidateReceivers, NotifiableFact, Projection, SettingsTurnedOnAt, SubjectContext, project},
        recipient::RecipientRights,
    },
    notification_category::NotificationCategory,
    store::{Change, ConstraintConflict, Revision},
    tenant::DEFAULT_TENANT_ID,
};
use serde_json::Map;
use std::collections::{BTreeMap, HashMap, HashSet};
use uuid::Uuid;

/// The projection of a denied run to its submitter. `opted_out` tells whether the submitter opted out of denials.
pub(crate) fn projection_of(submitter: &ActorRef, opted_out: bool) -> Projection {
    let fact = NotifiableFact {
        index: 0,
        fact_id: fresh(),
        kind: FactKind::ExecutionDenied,
        subject_kind: "execution".to_owned(),
        subject_id: Uuid::now_v7(),
        workspace_id: None,
        actor: submitter.clone(),
        request_id: fresh(),
        occurred_at: now(),
        categories: vec![NotificationCategory::Executions],
        detail: Map::new(),
    };
    let subject = SubjectContext {
        name: None,
        owner: None,
        owner_team: Vec::new(),
        submitter: Some(submitter.clone()),
        author: None,
        workload_id: Some(fresh()),
        environment: Some("dev".to_owned()),
        position: ResourcePosition::tenant(DEFAULT_TENANT_ID.into()),
        announcement: None,
    };
    let set = PreferenceSet::restore(PreferenceSetRecord {
        preference_set_id: fresh(),
        principal: submitter.clone(),
        scope: PreferenceScope::Global,
        settings: BTreeMap::from([((NotificationCategory::Executions, Channel::Portal), !opted_out)]),
        updated_at: now(),
        revision: Revision::FIRST,
    });
    let receivers = CandidateReceivers {
        sets: HashMap::from([(submitter.clone(), vec![set])]),
        profiles: None,
        switches: NotificationSettings::Enabled(Tier::Standard),
        turned_on: SettingsTurnedOnAt::default(),
        tenant: DEFAULT_TENANT_ID.into(),
        generation: 0,
        destinations: Vec::new(),
        people: HashMap::new(),
        mailboxes: HashSet::new(),
    };
    project(&fact, &subject, &RecipientRights::default(), &receivers, now())
}

async fn position(fixture: &Fixture) -> u64 {
    let sql =
        format!("SELECT coalesce(max(position), 0) FROM notification_position WHERE tenant_id = '{DEFAULT_TENANT_ID}'");
    u64::try_from(fixture.query_number(&sql).await).unwrap()
}

pub(super) async fn batch(fixture: &Fixture) -> Decision {
    let (position, basis) = (position(fixture).await, fixture.projection_basis().await);
    let mut projection = projection_of(&actor(), false);
    projection.suppressed = projection_of(&actor(), true).suppressed;
    assert_eq!((projection.notifications.len(), projection.suppressed.len()), (1, 1));
    let store = store(fixture);
    let position_change = format!(
        "INSERT INTO notification_position (tenant_id, position) VALUES ('{DEFAULT_TENANT_ID}', 1)
         ON CONFLICT (tenant_id) DO UPDATE SET position = notification_position.position + 1"
    );
    Decision::new(async move |_| {
        store.commit_batch(scope(), position..position + 1, basis, &projection).await.map(|_| ())
    })
    .stale_after(position_change)
    // The generation changes when a notification setting goes off, even if it is on again afterwards.
    .stale_after(format!(
        "UPDATE tenant SET notification_generation = notification_generation + 1 WHERE tenant_id = '{DEFAULT_TENANT_ID}'"
    ))
}

/// An unread notification of a new person.
async fn notification(fixture: &Fixture) -> Notification {
    let person = ActorRef::parse(&format!("user:{}", Uuid::now_v7().simple())).unwrap();
    let projection = projection_of(&person, false);
    let (position, basis) = (position(fixture).await, fixture.projection_basis().await);
    fixture.store.commit_batch(scope(), position..position + 1, basis, &projection).await.unwrap();
    let id = projection.notifications[0].notification.notification_id;
    InboxStore::find(&*fixture.store, scope(), &person, id).await.unwrap().unwrap()
}

pub(super) async fn status(fixture: &Fixture) -> Decision {
    let unread = notification(fixture).await;
    let change = unread.set_status(InboxStatus::Read, &stamp()).unwrap();
    let id = unread.notification_id;
    let store = store(fixture);
    Decision::new(async move |_| store.commit_status(scope(), change).await).stale_after(format!(
        "UPDATE notification SET revision = revision + 1 WHERE tenant_id = '{DEFAULT_TENANT_ID}' AND notification_id = '{id}'"
    ))
}

pub(super) async fn all_read(fixture: &Fixture) -> Decision {
    let recipient = notification(fixture).await.recipient.clone();
    let fact = inbox_all_read_fact(scope().tenant(), &stamp());
    let store = store(fixture);
    Decision::new(async move |key| store.commit_all_read(scope(), &recipient, fact, key.as_ref()).await)
}

const PREFERENCE: Preference =
    Preference { category: NotificationCategory::Incidents, channel: Channel::Email, enabled: true };

/// Sets the preferences of a new person. `earlier_changes` is the number of preceding changes.
pub(super) async fn preferences(fixture: &Fixture, earlier_changes: usize) -> Decision {
    let person = ActorRef::parse(&format!("user:{}", Uuid::now_v7().simple())).unwrap();
    let upsert = |previous: Option<&PreferenceSet>, channel| {
        let settings = [Preference { channel, ..PREFERENCE }];
        PreferenceSet::upsert(fresh(), previous, &person, PreferenceScope::Global, &settings, &stamp())
            .unwrap()
            .unwrap()
    };
    let mut previous = None;
    for channel in [Channel::Portal].into_iter().take(earlier_changes) {
        let change = upsert(previous.as_ref(), channel);
        previous = Some(change.next.clone());
        fixture.store.commit_set(scope(), change).await.unwrap();
    }
    let change = upsert(previous.as_ref(), Channel::Email);
    let concurrent_change = format!(
        "INSERT INTO notification_preference VALUES ('{DEFAULT_TENANT_ID}', '{person}', 'global', '{DEFAULT_TENANT_ID}', '',
         '{}', '[]', 1, now()) ON CONFLICT (tenant_id, principal, scope_kind, scope_ref, environment)
         DO UPDATE SET revision = notification_preference.revision + 1",
        Uuid::now_v7()
    );
    let store = store(fixture);
    Decision::new(async move |_| store.commit_set(scope(), change).await).stale_after(concurrent_change)
}

/// Sets the default profiles of the tenant. `earlier_changes` is the number of preceding changes.
pub(super) async fn profiles(fixture: &Fixture, earlier_changes: usize) -> Decision {
    let deletion = format!("DELETE FROM notification_default_profiles WHERE tenant_id = '{DEFAULT_TENANT_ID}'");
    fixture.run(&deletion).await;
    let upsert = |previous: Option<&DefaultPreferences>, role| {
        let defaults = [DefaultPreference { role, preference: PREFERENCE }];
        DefaultPreferences::upsert(DEFAULT_TENANT_ID.into(), previous, &defaults, &stamp()).unwrap().unwrap()
    };
    let mut previous = None;
    for role in [Role::Viewer].into_iter().take(earlier_changes) {
        let change = upsert(previous.as_ref(), role);
        previous = Some(change.next.clone());
        fixture.store.commit_default_profiles(scope(), change).await.unwrap();
    }
    let change = upsert(previous.as_ref(), Role::Operator);
    let concurrent_change = format!(
        "INSERT INTO notification_default_profiles VALUES ('{DEFAULT_TENANT_ID}', '[]', 1, now(), 'user:eve')
         ON CONFLICT (tenant_id) DO UPDATE SET revision = notification_default_profiles.revision + 1"
    );
    let store = store(fixture);
    Decision::new(async move |_| store.commit_default_profiles(scope(), change).await).stale_after(concurrent_change)
}

/// A new destination of the organization.
fn new_destination() -> Change<Destination> {
    let new = NewDestination {
        destination_id: fresh(),
        scope: DestinationScope::Organization,
        destination_type: Channel::Webhook,
        display_name: Uuid::now_v7().to_string(),
        configuration: Map::from_iter([("url".to_owned(), "https://hooks.example/in".into())]),
        secret_ref: None,
        is_enabled: true,
    };
    Destination::create(new, &stamp()).unwrap()
}

pub(crate) async fn stored_destination(fixture: &Fixture) -> Destination {
    let change = new_destination();
    let destination = change.next.clone();
    DestinationStore::commit_new(&*fixture.store, scope(), change, None).await.unwrap();
    destination
}

pub(super) async fn destination(fixture: &Fixture) -> Decision {
    let change = new_destination();
    let duplicate = format!(
        "INSERT INTO notification_destination (tenant_id, destination_id, destination_type, display_name, configuration,
            is_enabled, created_at, created_by, updated_at, revision)
         VALUES ('{DEFAULT_TENANT_ID}', '{}', 'webhook', '{}', '{{}}', true, now(), 'user:eve', now(), 1)",
        Uuid::now_v7(),
        change.next.display_name
    );
    let store = store(fixture);
    Decision::new(async move |key| DestinationStore::commit_new(&*store, scope(), change, key.as_ref()).await)
        .conflict_after(ConstraintConflict::DuplicateDestination, duplicate)
}

pub(super) async fn changed_destination(fixture: &Fixture) -> Decision {
    let destination = stored_destination(fixture).await;
    let patch = DestinationPatch { is_enabled: Some(false), ..DestinationPatch::default() };
    let change = destination.apply_patch(patch, &stamp()).unwrap().unwrap();
    let store = store(fixture);
    Decision::new(async move |_| DestinationStore::commit_change(&*store, scope(), change).await).stale_after(format!(
        "UPDATE notification_destination SET revision = revision + 1 WHERE destination_id = '{}'",
        destination.destination_id
    ))
}

pub(super) async fn deleted_destination(fixture: &Fixture) -> Decision {
    let destination = stored_destination(fixture).await;
    let (id, fact) = (destination.destination_id, destination.deletion_fact(&stamp()));
    let store = store(fixture);
    Decision::new(async move |_| store.commit_deletion(scope(), id, Revision::FIRST, fact).await)
        .stale_after(format!("DELETE FROM notification_destination WHERE destination_id = '{id}'"))
}

/// A failed delivery to a new destination.
pub(super) async fn retry(fixture: &Fixture) -> Decision {
    let destination = stored_destination(fixture).await;
    let mut projection = projection_of(&actor(), false);
    let notification = projection.notifications[0].notification.clone();
    let id: DeliveryId = fresh();
    projection.deliveries.push(NewDelivery {
        delivery_id: id,
        channel: Channel::Webhook,
        target: DeliveryTarget::Destination(destination.destination_id),
        event: EventKey::of_fact(notification.event_id),
        notification,
        digest: None,
        requires_advanced_tier: false,
        failure: None,
    });
    let (position, basis) = (position(fixture).await, fixture.projection_basis().await);
    fixture.store.commit_batch(scope(), position..position + 1, basis, &projection).await.unwrap();
    // By primary key, because the index test counts the scans of all connections.
    let of_delivery = format!("WHERE tenant_id = '{DEFAULT_TENANT_ID}' AND delivery_id = '{id}'");
    fixture.run(&format!("UPDATE notification_delivery SET status = 'failed' {of_delivery}")).await;
    let (failed, _) = DeliveryStore::find(&*fixture.store, scope(), id).await.unwrap().unwrap();
    let change = failed.retry(&stamp()).unwrap();
    let store = store(fixture);
    Decision::new(async move |key| store.commit_retry(scope(), change, key.as_ref()).await)
        .stale_after(format!("UPDATE notification_delivery SET revision = revision + 1 {of_delivery}"))
}

pub(super) async fn test(fixture: &Fixture) -> Decision {
    let destination = stored_destination(fixture).await;
    let (id, fact) = (destination.destination_id, destination.test_fact(None, &stamp()));
    let store = store(fixture);
    Decision::new(async move |_| store.commit_test(scope(), id, fact).await)
        .stale_after(format!("DELETE FROM notification_destination WHERE destination_id = '{id}'"))
}

/// Replaces the notification profile of a new person. `earlier_changes` is the number of preceding changes.
pub(super) async fn profile(fixture: &Fixture, earlier_changes: usize) -> Decision {
    let person = ActorRef::parse(&format!("user:{}", Uuid::now_v7().simple())).unwrap();
    let by_person = Stamp { actor: person.clone(), ..stamp() };
    let replace = |previous: Option<&NotificationProfile>, name: &str| {
        let settings = ProfileSettings { chat_secret_ref: Some(format!("file:{name}")), ..ProfileSettings::default() };
        let stamp = Stamp { fact_id: fresh(), ..by_person.clone() };
        NotificationProfile::replace(scope().tenant(), fresh(), previous, settings, &stamp).unwrap().unwrap()
    };
    let mut previous = None;
    for name in ["first"].into_iter().take(earlier_changes) {
        let change = replace(previous.as_ref(), name);
        previous = Some(change.next.clone());
        ProfileStore::commit(&*fixture.store, scope(), change).await.unwrap();
    }
    let change = replace(previous.as_ref(), "next");
    let concurrent_change = format!(
        "INSERT INTO notification_profile VALUES ('{DEFAULT_TENANT_ID}', '{person}', '{}', 'UTC', '{{}}', NULL, 1, now())
         ON CONFLICT (tenant_id, principal) DO UPDATE SET revision = notification_profile.revision + 1",
        Uuid::now_v7()
    );
    let store = store(fixture);
    Decision::new(async move |_| ProfileStore::commit(&*store, scope(), change).await).stale_after(concurrent_change)
}

/// Makes an announcement to the members of a new workspace.
pub(super) async fn announcement(fixture: &Fixture) -> Decision {
    let workspace = Uuid::now_v7();
    fixture
        .run(&format!(
            "INSERT INTO workspace SELECT tenant_id, '{workspace}', namespace_id, '{}', 'Other', now(), 'user:eve'
             FROM namespace WHERE slug = 'default'",
            workspace.simple()
        ))
        .await;
    let audience = Audience { roles: Vec::new(), workspaces: vec![workspace.into()] };
    let (title, body) = ("Maintenance".to_owned(), "Tonight.".to_owned());
    let change = Announcement::create((fresh(), [7; 16]), title, body, audience, &stamp()).unwrap();
    let store = store(fixture);
    Decision::new(async move |key| AnnouncementStore::commit(&*store, scope(), change, key.as_ref()).await)
        .stale_after(format!("DELETE FROM workspace WHERE workspace_id = '{workspace}'"))
}
