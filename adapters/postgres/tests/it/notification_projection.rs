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
    notification::{
        announcement::{Announcement, Audience},
        inbox::inbox_all_read_fact,
        ports::{AnnouncementStore, InboxFilter, InboxStore, ProjectionBasis, ProjectionStore},
        projection::Projection,
    },
    notification_category::NotificationCategory,
    store::{CommitError, PageRequest},
    tenant::DEFAULT_TENANT_ID,
    workload::{Workload, WorkloadPatch, WorkloadStatus, ports::WorkloadStore},
};
use fairway_postgres::Database;
use fairway_testkit::TestDatabase;
use std::{collections::BTreeSet, sync::Arc};
use tokio::task::JoinSet;
use uuid::Uuid;

const RECIPIENTS: u32 = 3;
const PROJECTORS: usize = 64;

fn recipients() -> Vec<ActorRef> {
    (0..RECIPIENTS).map(|number| ActorRef::parse(&format!("user:r-{number}")).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_projectors_write_each_record_once() {
    let fixture = Fixture::with_connections(8).await;
    let projection = Arc::new(projection_of(&actor(), true));
    let mut tasks = JoinSet::new();
    let stores: Vec<_> = (0..4).map(|_| open_store(&fixture.database.url_for_owner(), 4)).collect();
    let basis = fixture.projection_basis().await;
    for number in 0..PROJECTORS {
        let (store, projection) = (Arc::clone(&stores[number % stores.len()]), Arc::clone(&projection));
        tasks.spawn(async move { store.commit_batch(scope(), 0..1, basis, &projection).await });
    }
    let mut committed = 0;
    while let Some(result) = tasks.join_next().await {
        match result.unwrap() {
            Ok(_) => committed += 1,
            Err(CommitError::Stale) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!(committed, 1, "one projector moves the position");
    // A projector whose position was lost, for example after a backup was restored, projects the fact again.
    fixture.run("UPDATE notification_position SET position = 0").await;
    fixture.store.commit_batch(scope(), 0..1, fixture.projection_basis().await, &projection).await.unwrap();
    for (sql, expected) in [
        ("SELECT count(*) FROM suppressed_decision", 1),
        ("SELECT count(*) FROM fact WHERE kind = 'notification.suppressed'", 1),
        (
            "SELECT count(*) FROM fact_pending WHERE fact_id IN (SELECT fact_id FROM fact WHERE kind = 'notification.suppressed')",
            1,
        ),
    ] {
        assert_eq!(fixture.query_number(sql).await, expected, "{sql}");
    }
}

#[tokio::test]
async fn repeated_projection_keeps_the_status_of_notifications() {
    let fixture = Fixture::new().await;
    let mut projection = Projection::default();
    for recipient in recipients() {
        projection.notifications.extend(projection_of(&recipient, false).notifications);
    }
    assert_eq!(
        fixture.store.commit_batch(scope(), 0..1, fixture.projection_basis().await, &projection).await.unwrap(),
        u64::from(RECIPIENTS)
    );
    let first = &recipients()[0];
    fixture.store.commit_all_read(scope(), first, inbox_all_read_fact(scope().tenant(), &stamp()), None).await.unwrap();
    fixture.run("UPDATE notification_position SET position = 0").await;
    assert_eq!(
        fixture.store.commit_batch(scope(), 0..1, fixture.projection_basis().await, &projection).await.unwrap(),
        0
    );
    for recipient in recipients() {
        let page =
            InboxStore::list(&*fixture.store, scope(), &recipient, InboxFilter::default(), PageRequest::first(10))
                .await
                .unwrap();
        assert_eq!(page.total, 1, "{recipient}");
        let unread = u64::from(recipient != *first);
        assert_eq!(fixture.store.count_unread(scope(), &recipient).await.unwrap(), unread, "{recipient}");
    }
}

/// A batch that is rolled back leaves no rows and does not move the position.
#[tokio::test]
async fn failed_commit_writes_nothing() {
    let fixture = Fixture::new().await;
    fixture.run("ALTER TABLE notification ADD CONSTRAINT refuse_all CHECK (title = '')").await;
    let mut projection = projection_of(&actor(), false);
    projection.suppressed = projection_of(&actor(), true).suppressed;
    assert!(fixture.store.commit_batch(scope(), 0..1, fixture.projection_basis().await, &projection).await.is_err());
    for table in ["notification", "suppressed_decision", "fact"] {
        assert_eq!(fixture.query_number(&format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
    assert_eq!(fixture.query_number("SELECT coalesce(max(position), 0) FROM notification_position").await, 0);
}

async fn suspended_workload(fixture: &Fixture) -> Workload {
    let workload = fixture.workload().await;
    let patch = WorkloadPatch { status: Some(WorkloadStatus::Suspended), ..WorkloadPatch::default() };
    let change = workload.apply_patch(patch, &stamp()).unwrap().unwrap();
    WorkloadStore::commit_change(&*fixture.store, scope(), change).await.unwrap();
    workload
}

/// For each fact, the projector reads its subject, the people who may act on the subject, and their preferences.
#[tokio::test]
async fn batch_contains_subjects_and_finds_the_people_of_their_roles() {
    let fixture = Fixture::new().await;
    let workload = suspended_workload(&fixture).await;
    for (role, principal, kind, scope_ref) in [
        ("operator", "user:here", "workspace", workload.workspace_id.uuid()),
        ("operator", "user:elsewhere", "workspace", fresh()),
        ("viewer", "user:viewer", "workspace", workload.workspace_id.uuid()),
        ("tenant_admin", "user:admin", "tenant", scope().tenant().uuid()),
    ] {
        let id: Uuid = fresh();
        let sql = format!(
            "INSERT INTO role_binding VALUES ('{}', '{id}', '{principal}', '{role}', '{kind}', '{scope_ref}', now(), 'user:eve');
             INSERT INTO bound_principal VALUES ('{principal}') ON CONFLICT DO NOTHING",
            scope().tenant()
        );
        fixture.run(&sql).await;
    }
    while fixture.store.sequence().await.unwrap() > 0 {}
    let batch = fixture.store.next_batch(scope(), 500).await.unwrap().unwrap();
    let [(fact, subject)] = &batch.facts[..] else { panic!("{:?}", batch.facts) };
    assert_eq!((fact.kind, &fact.categories[..]), (FactKind::WorkloadChanged, &[NotificationCategory::Incidents][..]));
    assert_eq!(
        (subject.name.as_deref(), subject.workload_id),
        (Some(workload.slug.as_str()), Some(workload.workload_id))
    );
    assert_eq!(subject.position.workspace, Some(workload.workspace_id));
    let people = [ActorRef::parse("user:viewer").unwrap(), ActorRef::parse("user:new").unwrap()];
    let held_roles = fixture.store.held_roles(scope(), &[subject.position], &people).await.unwrap();
    let names: BTreeSet<String> = held_roles.roles.iter().map(|role| role.principal.to_string()).collect();
    assert_eq!(names, ["user:admin", "user:here", "user:viewer"].map(str::to_owned).into());
    assert_eq!(held_roles.without_role_history, [people[1].clone()]);
    let workloads = [workload.workload_id];
    assert!(
        fixture
            .store
            .preferences(scope(), &people, &[workload.workspace_id], &workloads, &[])
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn batches_follow_the_index_of_the_log_without_gaps() {
    let fixture = Fixture::new().await;
    for _ in 0..5 {
        suspended_workload(&fixture).await;
        fixture.workload().await;
    }
    while fixture.store.sequence().await.unwrap() > 0 {}
    let facts = u64::try_from(fixture.query_number("SELECT max(size) FROM fact_log").await).unwrap();
    assert_eq!(fixture.store.tenants_with_unprojected_facts(None, 10).await.unwrap(), [scope().tenant()]);
    let (mut projected, mut sizes) = (0, Vec::new());
    while let Some(batch) = fixture.store.next_batch(scope(), 2).await.unwrap() {
        assert_eq!(batch.position, projected);
        // The creation of a workload causes no notification, so the batch contains only other facts. Its range
        // covers all facts.
        assert!(batch.facts.iter().all(|(fact, _)| (batch.position..batch.end).contains(&fact.index)));
        sizes.push(batch.facts.len());
        projected = batch.end;
        fixture
            .store
            .commit_batch(
                scope(),
                batch.position..batch.end,
                ProjectionBasis { at: batch.at, generation: batch.generation },
                &Projection::default(),
            )
            .await
            .unwrap();
    }
    assert_eq!((projected, sizes), (facts, vec![2, 2, 1]));
    assert!(fixture.store.tenants_with_unprojected_facts(None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn resolves_roles_of_a_group_to_its_members() {
    let fixture = Fixture::new().await;
    let groups = [("ada", "group:ops"), ("bob", "group:other"), ("eve", "group:ops")];
    for (name, group) in groups {
        fixture
            .run(&format!(
                "INSERT INTO identity VALUES ('{DEFAULT_TENANT_ID}', '{}', 'https://issuer.example', '{name}', 'user:{name}',
                 ARRAY['{group}'], NULL, now(), now())",
                Uuid::now_v7()
            ))
            .await;
    }
    fixture
        .run(&format!(
            "INSERT INTO role_binding (tenant_id, role_binding_id, principal, role, scope_kind, scope_ref, created_at, created_by)
             VALUES ('{DEFAULT_TENANT_ID}', '{}', 'group:ops', 'operator', 'tenant', '{DEFAULT_TENANT_ID}', now(), 'user:eve')",
            Uuid::now_v7()
        ))
        .await;
    let position = ResourcePosition::tenant(DEFAULT_TENANT_ID.into());
    let found = async |positions: &[ResourcePosition], people: &[ActorRef]| {
        let held_roles = fixture.store.held_roles(scope(), positions, people).await.unwrap();
        held_roles.roles.iter().map(|role| role.principal.to_string()).collect::<BTreeSet<_>>()
    };
    let members = BTreeSet::from(["user:ada".to_owned(), "user:eve".to_owned()]);
    assert_eq!(found(&[position], &[]).await, members, "the group itself has no inbox");
    let people = [ActorRef::parse("user:ada").unwrap(), ActorRef::parse("user:bob").unwrap()];
    assert_eq!(found(&[], &people).await, BTreeSet::from(["user:ada".to_owned()]));
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
    let project_announcement = async |_: &Fixture, store: &Database| {
        let audience = Audience { roles: vec![Role::Operator], workspaces: Vec::new() };
        let (title, body) = ("Maintenance".to_owned(), "Tonight.".to_owned());
        let change = Announcement::create((fresh(), [7; 16]), title, body, audience, &stamp()).unwrap();
        AnnouncementStore::commit(store, scope(), change, None).await.unwrap();
        while store.sequence().await.unwrap() > 0 {}
        let batch = store.next_batch(scope(), 500).await.unwrap().unwrap();
        let announcement = batch.facts.iter().filter_map(|(_, subject)| subject.announcement.as_ref());
        let audience: Vec<Vec<String>> =
            announcement.map(|announcement| announcement.audience.iter().map(ToString::to_string).collect()).collect();
        assert_eq!(audience, [members.map(str::to_owned).to_vec()]);
        let basis = ProjectionBasis { at: batch.at, generation: batch.generation };
        store.commit_batch(scope(), batch.position..batch.end, basis, &Projection::default()).await.unwrap();
        let position = ResourcePosition::tenant(DEFAULT_TENANT_ID.into());
        let held_roles = store.held_roles(scope(), &[position], &[]).await.unwrap();
        assert_eq!(held_roles.roles.len(), members.len());
    };
    let (_database, counts) = measure(database, project_announcement).await;
    assert_no_seq_scans(&counts);
    let blocks = counts["identity"].blocks_per_access();
    assert!(blocks <= MAX_BLOCKS_PER_ROW, "{blocks} blocks of identities were read for each row");
}
