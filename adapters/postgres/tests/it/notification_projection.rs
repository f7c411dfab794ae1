//! Projection of facts to notifications in PostgreSQL. Each fact causes one notification for each recipient, also
//! under concurrent projectors and repetitions.

use crate::{
    commit_cases::notification::projection_of,
    fixture::{Fixture, actor, fresh, open_store, scope, stamp},
    indexes::{MAX_BLOCKS_PER_ROW, assert_no_seq_scans, measure},
};
use fairway_domain::{
    access::{ActorRef, ResourcePosition, Role},
    audit::{FactKind, FactSequencer},
    fact_category::FactCategory,
    notification::{
        announcement::{Announcement, Audience},
        inbox::inbox_read_fact,
        ports::{AnnouncementStore, InboxFilter, InboxStore, ProjectionStore},
        projection::Projection,
    },
    store::{CommitError, PageRequest},
    tenant::DEFAULT_TENANT,
    workload::{Status, Workload, WorkloadPatch, ports::WorkloadStore},
};
use fairway_postgres::Database;
use fairway_testkit::TestDatabase;
use std::{collections::BTreeSet, sync::Arc};
use tokio::task::JoinSet;
use uuid::Uuid;

const RECIPIENTS: u32 = 3;
const RELAYS: usize = 64;

fn recipients() -> Vec<ActorRef> {
    (0..RECIPIENTS).map(|number| ActorRef::parse(&format!("user:r-{number}")).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_projectors_write_each_record_once() {
    let stage = Fixture::with_connections(8).await;
    let projection = Arc::new(projection_of(&actor(), true));
    let mut relays = JoinSet::new();
    let stores: Vec<_> = (0..4).map(|_| open_store(&stage.database.url(), 4)).collect();
    let decided = stage.now_and_settings_generation().await;
    for number in 0..RELAYS {
        let (store, projection) = (Arc::clone(&stores[number % stores.len()]), Arc::clone(&projection));
        relays.spawn(async move { store.commit_batch(scope(), 0..1, decided, &projection).await });
    }
    let mut winners = 0;
    while let Some(done) = relays.join_next().await {
        match done.unwrap() {
            Ok(_) => winners += 1,
            Err(CommitError::Stale) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(winners, 1, "one projector moves the position");
    // A projector whose position was lost, for example after a backup was restored, projects the fact again.
    stage.run("UPDATE notification_position SET position = 0").await;
    stage.store.commit_batch(scope(), 0..1, stage.now_and_settings_generation().await, &projection).await.unwrap();
    for (sql, expected) in [
        ("SELECT count(*) FROM suppressed_decision", 1),
        ("SELECT count(*) FROM fact WHERE kind = 'notification.suppressed'", 1),
        (
            "SELECT count(*) FROM fact_pending WHERE fact_id IN (SELECT fact_id FROM fact WHERE kind = 'notification.suppressed')",
            1,
        ),
    ] {
        assert_eq!(stage.query_number(sql).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn repeated_projection_keeps_the_status_of_notifications() {
    let stage = Fixture::new().await;
    let mut all = Projection::default();
    for recipient in recipients() {
        all.notifications.extend(projection_of(&recipient, false).notifications);
    }
    assert_eq!(
        stage.store.commit_batch(scope(), 0..1, stage.now_and_settings_generation().await, &all).await.unwrap(),
        u64::from(RECIPIENTS)
    );
    let first = &recipients()[0];
    stage.store.commit_all_read(scope(), first, inbox_read_fact(scope().tenant(), &stamp()), None).await.unwrap();
    stage.run("UPDATE notification_position SET position = 0").await;
    assert_eq!(
        stage.store.commit_batch(scope(), 0..1, stage.now_and_settings_generation().await, &all).await.unwrap(),
        0
    );
    for recipient in recipients() {
        let page = InboxStore::list(&*stage.store, scope(), &recipient, InboxFilter::default(), PageRequest::first(10))
            .await
            .unwrap();
        assert_eq!(page.total, 1, "{recipient}");
        let unread = u64::from(recipient != *first);
        assert_eq!(stage.store.count_unread(scope(), &recipient).await.unwrap(), unread, "{recipient}");
    }
}

/// A batch that is rolled back leaves no rows and does not move the position.
#[tokio::test]
async fn failed_commit_writes_nothing() {
    let stage = Fixture::new().await;
    stage.run("ALTER TABLE notification ADD CONSTRAINT refuse_all CHECK (title = '')").await;
    let mut both = projection_of(&actor(), false);
    both.suppressed = projection_of(&actor(), true).suppressed;
    assert!(stage.store.commit_batch(scope(), 0..1, stage.now_and_settings_generation().await, &both).await.is_err());
    for table in ["notification", "suppressed_decision", "fact"] {
        assert_eq!(stage.query_number(&format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
    assert_eq!(stage.query_number("SELECT coalesce(max(position), 0) FROM notification_position").await, 0);
}

async fn suspended_workload(stage: &Fixture) -> Workload {
    let workload = stage.workload().await;
    let patch = WorkloadPatch { status: Some(Status::Suspended), ..WorkloadPatch::default() };
    let change = workload.amend(patch, &stamp()).unwrap().unwrap();
    WorkloadStore::commit_change(&*stage.store, scope(), change).await.unwrap();
    workload
}

/// For each fact, the projector reads its subject, the people who may act on the subject, and their preferences.
#[tokio::test]
async fn facts_come_with_their_subject_and_the_people_they_concern() {
    let stage = Fixture::new().await;
    let workload = suspended_workload(&stage).await;
    for (role, principal, kind, place) in [
        ("operator", "user:here", "workspace", workload.workspace_id.uuid()),
        ("operator", "user:elsewhere", "workspace", fresh()),
        ("viewer", "user:viewer", "workspace", workload.workspace_id.uuid()),
        ("tenant_admin", "user:admin", "tenant", scope().tenant().uuid()),
    ] {
        let id: Uuid = fresh();
        let sql = format!(
            "INSERT INTO role_binding VALUES ('{}', '{id}', '{principal}', '{role}', '{kind}', '{place}', now(), 'user:eve');
             INSERT INTO bound_principal VALUES ('{principal}') ON CONFLICT DO NOTHING",
            scope().tenant()
        );
        stage.run(&sql).await;
    }
    while stage.store.sequence().await.unwrap() > 0 {}
    let batch = stage.store.next_batch(scope(), 500).await.unwrap().unwrap();
    let [(fact, subject)] = &batch.facts[..] else { panic!("{:?}", batch.facts) };
    assert_eq!((fact.kind, &fact.categories[..]), (FactKind::WorkloadChanged, &[FactCategory::Incidents][..]));
    assert_eq!(
        (subject.name.as_deref(), subject.workload_id),
        (Some(workload.slug.as_str()), Some(workload.workload_id))
    );
    assert_eq!(subject.position.workspace, Some(workload.workspace_id));
    let people = [ActorRef::parse("user:viewer").unwrap(), ActorRef::parse("user:new").unwrap()];
    let held = stage.store.held_roles(scope(), &[subject.position], &people).await.unwrap();
    let names: BTreeSet<String> = held.roles.iter().map(|role| role.principal.to_string()).collect();
    assert_eq!(names, ["user:admin", "user:here", "user:viewer"].map(str::to_owned).into());
    assert_eq!(held.without_role_history, [people[1].clone()]);
    let workloads = [workload.workload_id];
    assert!(
        stage.store.preferences(scope(), &people, &[workload.workspace_id], &workloads, &[]).await.unwrap().is_empty()
    );
}

#[tokio::test]
async fn batches_follow_the_index_of_the_log_without_gaps() {
    let stage = Fixture::new().await;
    for _ in 0..5 {
        suspended_workload(&stage).await;
        stage.workload().await;
    }
    while stage.store.sequence().await.unwrap() > 0 {}
    let facts = u64::try_from(stage.query_number("SELECT max(size) FROM fact_log").await).unwrap();
    assert_eq!(stage.store.tenants_with_unprojected_facts(None, 10).await.unwrap(), [scope().tenant()]);
    let (mut projected, mut sizes) = (0, Vec::new());
    while let Some(batch) = stage.store.next_batch(scope(), 2).await.unwrap() {
        assert_eq!(batch.position, projected);
        // The creation of a workload causes no notification, so the batch contains only other facts. Its range
        // covers all facts.
        assert!(batch.facts.iter().all(|(fact, _)| (batch.position..batch.end).contains(&fact.index)));
        sizes.push(batch.facts.len());
        projected = batch.end;
        stage
            .store
            .commit_batch(scope(), batch.position..batch.end, (batch.at, batch.generation), &Projection::default())
            .await
            .unwrap();
    }
    assert_eq!((projected, sizes), (facts, vec![2, 2, 1]));
    assert!(stage.store.tenants_with_unprojected_facts(None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn roles_of_a_group_reach_those_who_presented_it() {
    let stage = Fixture::new().await;
    let groups = [("ada", "group:ops"), ("bob", "group:other"), ("eve", "group:ops")];
    for (name, group) in groups {
        stage
            .run(&format!(
                "INSERT INTO identity VALUES ('{DEFAULT_TENANT}', '{}', 'https://issuer.example', '{name}', 'user:{name}',
                 ARRAY['{group}'], NULL, now(), now())",
                Uuid::now_v7()
            ))
            .await;
    }
    stage
        .run(&format!(
            "INSERT INTO role_binding (tenant_id, role_binding_id, principal, role, scope_kind, scope_ref, created_at, created_by)
             VALUES ('{DEFAULT_TENANT}', '{}', 'group:ops', 'operator', 'tenant', '{DEFAULT_TENANT}', now(), 'user:eve')",
            Uuid::now_v7()
        ))
        .await;
    let here = ResourcePosition::tenant(DEFAULT_TENANT.into());
    let found = async |positions: &[ResourcePosition], people: &[ActorRef]| {
        let held = stage.store.held_roles(scope(), positions, people).await.unwrap();
        held.roles.iter().map(|held| held.principal.to_string()).collect::<BTreeSet<_>>()
    };
    let members = BTreeSet::from(["user:ada".to_owned(), "user:eve".to_owned()]);
    assert_eq!(found(&[here], &[]).await, members, "the group itself has no inbox");
    let named = [ActorRef::parse("user:ada").unwrap(), ActorRef::parse("user:bob").unwrap()];
    assert_eq!(found(&[], &named).await, BTreeSet::from(["user:ada".to_owned()]));
}

/// SQL that adds many people without a group, and two people in the group `ops`.
const PEOPLE: &str = "
    INSERT INTO identity SELECT tenant_id, gen_random_uuid(), 'https://idp.example', 'subject-' || n,
        'user:person-' || n,
        CASE WHEN n <= 2 THEN ARRAY['group:ops'] ELSE ARRAY['group:team-' || n] END, NULL, now(), now()
        FROM tenant, generate_series(1, 6000) AS n WHERE slug = 'default';
    INSERT INTO role_binding (tenant_id, role_binding_id, principal, role, scope_kind, scope_ref, created_at,
            created_by)
        SELECT tenant_id, gen_random_uuid(), 'group:ops', 'operator', 'tenant', tenant_id, now(), 'user:eve'
        FROM tenant WHERE slug = 'default';
    -- As a vacuum does: a scan reads all entries that were not merged yet.
    SELECT gin_clean_pending_list('identity_by_group');
    ANALYZE;";

#[tokio::test]
async fn people_of_an_audience_are_found_by_the_index_of_groups() {
    let database = TestDatabase::create().await.unwrap();
    database.connect_as_owner().await.unwrap().batch_execute(PEOPLE).await.unwrap();
    let members = ["user:person-1", "user:person-2"];
    let touch = async |_: &Fixture, store: &Database| {
        let audience = Audience { roles: vec![Role::Operator], workspaces: Vec::new() };
        let (title, body) = ("Maintenance".to_owned(), "Tonight.".to_owned());
        let change = Announcement::create((fresh(), [7; 16]), title, body, audience, &stamp()).unwrap();
        AnnouncementStore::commit(store, scope(), change, None).await.unwrap();
        while store.sequence().await.unwrap() > 0 {}
        let batch = store.next_batch(scope(), 500).await.unwrap().unwrap();
        let announced = batch.facts.iter().filter_map(|(_, subject)| subject.announcement.as_ref());
        let audience: Vec<Vec<String>> =
            announced.map(|announced| announced.audience.iter().map(ToString::to_string).collect()).collect();
        assert_eq!(audience, [members.map(str::to_owned).to_vec()]);
        let decided = (batch.at, batch.generation);
        store.commit_batch(scope(), batch.position..batch.end, decided, &Projection::default()).await.unwrap();
        let here = ResourcePosition::tenant(DEFAULT_TENANT.into());
        let held = store.held_roles(scope(), &[here], &[]).await.unwrap();
        assert_eq!(held.roles.len(), members.len());
    };
    let (_database, counts) = measure(database, touch).await;
    assert_no_seq_scans(&counts);
    let blocks = counts["identity"].blocks_per_access();
    assert!(blocks <= MAX_BLOCKS_PER_ROW, "{blocks} blocks of identities were read for each row");
}
